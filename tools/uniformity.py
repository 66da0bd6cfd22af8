"""Read from the source of a rule's functions whether they treat every rank alike.

A function that visits, compares, permutes and inverts axes, but never compares their number with a
literal, or names one by a literal, does at rank 7 what it does at rank 3. `reading` walks the
functions that a rule's text names, and those of `stepwell.translate` that they call, and collects
every construct by which code could tell one rank from another:

    literals     an integer that is compared, added, or used as an index names axes up to it, from
                 the front or the back: `shape[1]`, `order[-1]`, `len(order) > 2`
    problems     constructs whose effect is not followed: quotients of the number of axes, powers,
                 the length of a text, a list indexed by its own entries, a loop that computes a
                 value from itself

Not counted are a comparison of a size with 0 or 1, the sign of an axis that counts from the back,
`axis(d, len(order))`, `d % len(order)`, `range(len(order))`, the number of operands, and a test
`len(shape) > n` that does nothing but refuse, through all callers: it excludes higher ranks.
Functions that reach no axes (`dims`, a list, an integer) may contain any number.
"""

import ast
import math
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from inspect import getsource
from textwrap import dedent
from types import FunctionType
from typing import Any, TypeGuard, get_args, get_origin

from stepwell.validation.rules.hashes import names_in
from stepwell.validation.rules.reviewed import (
    FOLLOWED,
    MOST_AXES,
    Reading,
    named,
    reached,
    tested_by,
)

_READ = (*FOLLOWED, "tests.", "rules.")
"""Modules whose functions are followed, with those of tests."""
_SOURCES = frozenset(
    """dims shape_of shape shapes sizes sizes_of len rank axis_map arg numbers ints perm
    perms""".split()
)
"""Names through which a function reaches axes, their number or their sizes."""
_SHAPES = frozenset(("dims", "shape_of", "sizes_of"))
_AXISLESS = frozenset(
    """SSAValue Operation Program Rewriter Attribute Refusal str bool float None SchemaOp XnnpackOp
    TosaOp Block TensorType UniformQuantizedType Quantization""".split()
)
"""Annotations of parameters that are no axes."""
_OF_SIZES = ("Dim", "Shape", "Sequence[object]", "Sequence[Size]")
"""Annotations of parameters that are shapes."""
_UNFOLLOWED = frozenset(("hash", "id", "eval", "exec", "pow", "divmod"))
_TEXTS = frozenset(
    "str repr split rsplit partition removeprefix removesuffix startswith get".split()
)
"""Functions of text, and look-ups, in which integers are not axes."""
_REFUSALS = frozenset(("Refusal", "refuse", "StepwellError", "Unproven"))
_SEVERAL = 2


def rows(functions: Iterable[FunctionType], counting_elements: Collection[str]) -> dict[str, Any]:
    """Return what each of some functions reads of axes and sizes, by its name in the table: also if
    its refusals do more than refuse, and which functions' refusals it tests.
    """
    held, made = list(functions), dict[str, Any]()
    known = {function.__name__ for function in held}
    for function in held:
        found = [Reading(), Reading()]
        for reading, only_refuses in zip(found, (True, False), strict=True):
            visitor = _Visitor(function, reading, only_refuses)
            visitor.counts_elements = named(function) in counting_elements
            visitor.run(have_axes=True)
        row, if_tested = ({n: v for n, v in vars(r).items() if v} for r in found)
        if if_tested != row:
            row["if_tested"] = if_tested
        if tests := sorted(_tested(function, known)):
            row["tests"] = tests
        if _Visitor(function, Reading(), only_refuses=True).reads_types():
            row["reads_types"] = True
        made[named(function)] = row
    return made


def reading(
    functions: Mapping[str, FunctionType],
    *,
    have_axes: bool = True,
    counting_elements: Collection[str] = (),
) -> Reading:
    """Return what some functions, and those that they call, read of the number of axes.

    Args:
        functions: the functions that a rule names.
        have_axes: whether integers and lists among the rule's arguments may be axes.
        counting_elements: functions of which no literal names an axis.
    """
    held = (f for f in reached(functions.values(), _READ) if isinstance(f, FunctionType))
    seen = [f for f in held if f"{f.__module__}.".startswith(_READ)]
    decisive, found = _decisive(seen), Reading()
    for function in seen:
        visitor = _Visitor(function, found, function.__name__ not in decisive)
        visitor.counts_elements = named(function) in counting_elements
        visitor.run(have_axes)
    return found


def _decisive(functions: Iterable[FunctionType]) -> set[str]:
    """Return the names of functions whose refusals may do more than refuse: a caller tests them,
    instead of returning them.
    """
    known = {function.__name__ for function in functions}
    return tested_by({f: _tested(f, known) for f in functions})


def _tested(function: FunctionType, known: Collection[str]) -> set[str]:
    """Return the functions, of some, whose refusals a function tests instead of returning them."""
    found, tree = set[str](), _tree(function)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Name) and node.id in known and tree is not None:
            call = _parent(node)
            is_called = isinstance(call, ast.Call) and call.func is node
            if not (is_called and _is_returned(call, tree)):
                found.add(node.id)
    return found


def _is_returned(node: ast.AST, tree: ast.AST) -> bool:
    """Whether the refusal that an expression gives is returned as it is, if it gives one."""
    parent = _parent(node)
    match parent:
        case ast.Return():
            return True
        case ast.BoolOp(op=ast.Or()):
            return _is_returned(parent, tree)
        case ast.IfExp(test=test) if test is not node:
            return _is_returned(parent, tree)
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.NamedExpr(target=ast.Name(id=name)):
            names = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name)
            reads = [_parent(n) for n in names if isinstance(n.ctx, ast.Load)]
            return all(isinstance(each, ast.Return) or _leads_to_return(each) for each in reads)
        case _:
            return False


def _leads_to_return(node: ast.AST) -> bool:
    """Whether a node is `refusal is not None`, the test of a branch that returns."""
    branch = _parent(node)
    if not isinstance(node, ast.Compare) or not isinstance(branch, ast.If):
        return False
    is_other = isinstance(node.ops[0], ast.IsNot)
    return is_other and len(branch.body) == 1 and isinstance(branch.body[0], ast.Return)


@cache
def _tree(function: FunctionType) -> ast.FunctionDef | ast.Lambda | None:
    try:
        tree = ast.parse(dedent(getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return None
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            setattr(child, "parent", node)  # noqa: B010
    defined = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda))
    return next(defined, None)


class _Visitor(ast.NodeVisitor):
    """A walk over one function."""

    def __init__(self, function: FunctionType, found: Reading, only_refuses: bool) -> None:
        self.function, self.found, self.only_refuses = function, found, only_refuses
        self.counts_elements = False
        self.shapes = set[str]()
        self.sizes = set[str]()
        self.ranks = set[str]()
        self.records = set[str]()

    def run(self, have_axes: bool) -> None:
        """Walk over the function, unless it reaches no axes."""
        tree = _tree(self.function)
        if tree is None:
            if self.function.__code__.co_filename.startswith("<"):
                return  # Generated, as a dataclass's methods are.
            self._problem("its source is not readable")
            return
        if not self._reaches_axes(tree, have_axes):
            return
        for argument in tree.args.args:
            alias = self.function.__globals__.get(getattr(argument.annotation, "id", ""))
            if get_origin(alias) is tuple and ... not in get_args(alias):
                self.records.add(argument.arg)
            if argument.annotation and any(
                w in ast.unparse(argument.annotation) for w in _OF_SIZES
            ):
                self.shapes.add(argument.arg)
        for node in ast.walk(tree):
            self._learn(node)
        body = tree.body if isinstance(tree.body, list) else [tree.body]
        for node in (*tree.args.defaults, *(d for d in tree.args.kw_defaults if d), *body):
            self.visit(node)

    def _problem(self, text: str) -> None:
        self.found.problems.append(f"{self.function.__name__}: {text}")

    def reads_types(self) -> bool:
        """Whether the function reaches axes though none is among its arguments."""
        return bool(_SOURCES & set(names_in(self.function.__code__)))

    def _reaches_axes(self, tree: ast.FunctionDef | ast.Lambda, have_axes: bool) -> bool:
        if self.reads_types():
            return True
        if not have_axes:
            return False
        arguments = (*tree.args.args, *tree.args.kwonlyargs, tree.args.vararg)
        for argument in arguments:
            if argument is None or argument.arg in ("self", "rw", "b"):
                continue
            words = {
                n.id
                for n in ast.walk(argument.annotation or ast.Name("?"))
                if isinstance(n, ast.Name)
            }
            if not words or not words <= _AXISLESS:
                return True
        return False

    def _learn(self, node: ast.AST) -> None:
        """Note the local names that hold shapes, sizes and numbers of axes."""
        pairs: list[tuple[ast.AST, ast.AST]] = []
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs += zip(target.elts, node.value.elts, strict=False)
                else:
                    pairs.append((target, node.value))
        elif isinstance(node, ast.NamedExpr):
            pairs.append((node.target, node.value))
        for target, value in pairs:
            if not isinstance(target, ast.Name):
                continue
            if _calls(value, _SHAPES):
                self.shapes.add(target.id)
            if isinstance(value, ast.Call) and _calls(value, ("len",)):
                self.ranks.add(target.id)
            if isinstance(value, ast.Subscript) and self._is_shape(value.value):
                self.sizes.add(target.id)
        if isinstance(node, ast.comprehension | ast.For):
            source, target = node.iter, node.target
            if _calls(source, ("enumerate",)) and isinstance(target, ast.Tuple):
                source, target = source.args[0], target.elts[1]
            if isinstance(target, ast.Name) and self._is_shape(source):
                self.sizes.add(target.id)

    def _is_shape(self, node: ast.AST) -> bool:
        return (isinstance(node, ast.Name) and node.id in self.shapes) or _calls(node, _SHAPES)

    def _is_size(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript):
            return self._is_shape(node.value) and not isinstance(node.slice, ast.Slice)
        return isinstance(node, ast.Name) and node.id in self.sizes

    def _is_rank(self, node: ast.AST) -> bool:
        return _calls(node, ("len",)) or (isinstance(node, ast.Name) and node.id in self.ranks)

    # -- nodes -------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        """Skip the text of refusals, and `axis(d, len(order))`; refuse text of lists."""
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in _REFUSALS:
            return
        if name == "IntegerType":
            return
        if name in _UNFOLLOWED:
            self._problem(f"calls {name}")
        if name in _SHAPES and not _calls(_parent(node), ("len",)):
            self.found.reads_sizes = True
        if name in _TEXTS:
            self.visit(node.func)
            if (
                name in ("str", "repr")
                and isinstance(_parent(node), ast.Call)
                and _calls(_parent(node), ("len",))
            ):
                self._problem("measures a text")
            return
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        for each in arguments:
            if name == "max" and isinstance(each, ast.Constant) and each.value == 1:
                continue  # `max(rank, 1)` is the number of axes, or 1 of a scalar.
            if not (self._is_rank(each) and name in ("axis", "range", "max")):
                self.visit(each)
        self.visit(node.func)
        if name == "len":
            self._length(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Read a module's constant as its number; a number of axes only where it is allowed."""
        if node.id in self.ranks and isinstance(node.ctx, ast.Load):
            self._length(node)
        value = self.function.__globals__.get(node.id)
        if isinstance(value, int) and not isinstance(value, bool):
            self._literal(node, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Skip the annotation of a variable."""
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip formatted text, which only messages and names contain."""

    def visit_For(self, node: ast.For) -> None:
        """Refuse a loop that computes a value from itself, such as an order composed again."""
        for each in ast.walk(node):
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                name = each.targets[0].id
                for part in ast.walk(each.value):
                    is_made = isinstance(part, ast.Call | ast.ListComp | ast.GeneratorExp)
                    if is_made and any(
                        isinstance(n, ast.Name) and n.id == name for n in ast.walk(part)
                    ):
                        self._problem(f"a loop computes {name} from itself")
                        break
        self.generic_visit(node)

    visit_While = visit_For  # pyright: ignore[reportAssignmentType]

    def visit_If(self, node: ast.If) -> None:
        """Skip a test that only refuses more than some number of axes."""
        is_refusal = self.only_refuses and not node.orelse and _refuses(node.body)
        if is_refusal and self._is_upper_bound(node.test):
            return
        self.generic_visit(node)

    def _is_upper_bound(self, test: ast.AST) -> bool:
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return any(map(self._is_upper_bound, test.values))
        if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Gt)):
            return False
        left = test.left.value if isinstance(test.left, ast.NamedExpr) else test.left
        return self._is_rank(left)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Skip the numbers of operands and results; refuse a list indexed by its own entries."""
        if isinstance(node.value, ast.Name) and node.value.id in self.records:
            return  # A field of a record.
        name = getattr(node.value, "attr", "")
        if name not in ("operands", "results", "args", "uses", "terms") and not _calls(
            node.value, _TEXTS
        ):
            self.visit(node.slice)
        held = ast.dump(node.value)
        if any(
            isinstance(n, ast.Subscript) and ast.dump(n.value) == held for n in ast.walk(node.slice)
        ):
            self._problem("a list is indexed by its own entries")
        self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Record an integer, unless where it stands it names no axis."""
        parent = _parent(node)
        counts = isinstance(parent, ast.BinOp | ast.UnaryOp | ast.Slice | ast.Subscript) or (
            isinstance(parent, ast.Compare) and not isinstance(parent.ops[0], ast.Eq | ast.Is)
        )
        is_truth = isinstance(node.value, bool) and not counts
        if isinstance(node.value, int | float) and not is_truth:
            self._literal(node, math.ceil(node.value))

    def _literal(self, node: ast.expr, number: int) -> None:
        compared = _parent(node)
        sides = [compared.left, *compared.comparators] if isinstance(compared, ast.Compare) else []
        if self.counts_elements and not any(map(self._is_rank, sides)):
            return
        parent = _parent(node)
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.USub):
            node, parent, number = parent, _parent(parent), -number
        match parent:
            case ast.Compare() if self._compares_no_axis(parent, number):
                return
            case ast.Compare() if any(map(self._is_count, (parent.left, *parent.comparators))):
                if number <= MOST_AXES:
                    self.found.threshold = max(self.found.threshold, number)
                else:
                    self.found.literal(number)
            case ast.BinOp(op=ast.Add() | ast.Sub()) if number == 1 and self._is_next(parent):
                return
            case ast.BinOp(op=ast.Add() | ast.Sub(), left=left) if self._is_rank(left):
                return  # `_length` counts it.
            case ast.BinOp(op=ast.Pow() | ast.LShift() | ast.RShift() | ast.Mult()):
                if abs(number) >= _SEVERAL:
                    self._problem(f"computes with {number}")
                return
            case ast.List() if isinstance(_parent(parent), ast.BinOp):
                return  # `[1] * n`, a filler.
            case ast.Tuple() if isinstance(_parent(parent), ast.BinOp):
                return
            case ast.Return() | ast.keyword() if number in (0, 1):
                return
            case ast.Slice(upper=upper) if upper is node and number > 0:
                self.found.literal(number - 1)
            case _:
                self.found.literal(number)

    def _is_count(self, node: ast.AST) -> bool:
        return self._is_rank(node) or _calls(node, ("sum", "count", "max", "min", "least_of"))

    def _compares_no_axis(self, node: ast.Compare, number: int) -> bool:
        """Whether a comparison is of a size with 0 or 1, or asks for a sign."""
        others = [node.left, *node.comparators]
        if any(_calls(e, ("len",)) and isinstance(e.args[0], ast.SetComp) for e in others):
            return True  # Of a set of types.
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            return number in (0, 1) and self._is_shape(others[-1])
        if any(map(self._is_rank, others)):
            return False
        if number == 0 and isinstance(node.ops[0], ast.Lt | ast.GtE):
            return True
        return number in (0, 1) and any(map(self._is_size, others))

    def _is_next(self, node: ast.BinOp) -> bool:
        """Whether `at + 1` is the end of a slice or of a range."""
        parent = _parent(node)
        is_alone = not any(isinstance(n, ast.BinOp) and n is not node for n in ast.walk(node))
        is_range = isinstance(parent, ast.Call) and _calls(parent, ("range",))
        return (
            is_alone
            and not self._is_rank(node.left)
            and (isinstance(parent, ast.Slice) or is_range)
        )

    def _length(self, node: ast.expr) -> None:
        """Record a number of axes that is compared with a literal; refuse other arithmetic."""
        parent = _parent(node)
        match parent:
            case ast.Assign() | ast.NamedExpr():
                pass  # Its name is followed.
            case ast.BinOp(op=ast.Sub() | ast.Add(), right=ast.Constant(value=int(number))):
                self.found.literal(-abs(number))
            case ast.BinOp(op=ast.Div() | ast.FloorDiv() | ast.RShift() | ast.Pow()):
                self._problem("divides the number of axes")
            case ast.BinOp(op=ast.Mod(), left=left) if left is node:
                self._problem("takes a remainder of the number of axes")
            case _:
                pass  # A literal that it is compared with is counted.


def _parent(node: ast.AST) -> Any:
    return getattr(node, "parent", None)


def _calls(node: ast.AST, names: Any) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call):
        return False
    return getattr(node.func, "id", getattr(node.func, "attr", "")) in names


def _refuses(body: list[ast.stmt]) -> bool:
    """Whether a branch does nothing but refuse."""
    last = body[0] if len(body) == 1 else None
    value = last.value if isinstance(last, ast.Return) else None
    return value is not None and _calls(value, _REFUSALS)

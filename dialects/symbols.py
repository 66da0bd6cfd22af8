"""Conversion of symbolic sizes to torch: the expressions of types as `SymInt`s, and fake tensors.

An expression such as `2*s77 + 1` is parsed without evaluating it as Python, so that a program's
text cannot run code. Each symbol gets its range and, if it is the size of an input, an example
value (a different prime for each), as `torch.export` takes one from the example inputs.
"""

from __future__ import annotations

import ast
import logging
import operator
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, lru_cache
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from stepwell.ir.compat.torch import torch_private
from stepwell.ir.compat.torch.lazy_imports import symbolic_shapes, sympy, torch
from stepwell.ir.compat.torch.torch_globals import torch_alone
from stepwell.ir.diagnostics import ParseFailure, StepwellError
from stepwell.ir.dtypes import element_type, torch_dtype
from stepwell.ir.platform.process_settings import without_logs
from stepwell.ir.sizes.size import UNKNOWN, Size, is_unbacked
from stepwell.ir.sizes.size_ranges import holds
from stepwell.ir.sizes.size_text import dim_of
from stepwell.ir.types import BoolType, Dim, FloatType, IntType, NoneType, dims, element, tensor

Ranges = Mapping[str, tuple[int, int | None]]
Number = int | float | bool

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda a, b: torch_private.sympy_functions.FloorDiv(a, b),
    ast.Mod: lambda a, b: torch_private.sympy_functions.Mod(a, b),
    ast.Pow: operator.pow,
    ast.BitAnd: lambda a, b: sympy.And(a, b),
    ast.BitOr: lambda a, b: sympy.Or(a, b),
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "Eq",
    ast.NotEq: "Ne",
    ast.Lt: "Lt",
    ast.LtE: "Le",
    ast.Gt: "Gt",
    ast.GtE: "Ge",
}
"""Comparison → sympy's class."""
_SYMPY_FUNCTIONS = ("Eq", "Ne", "And", "Or", "Not", "Abs", "floor", "ceiling", "sqrt", "Piecewise")


@cache
def _functions() -> dict[str, Callable[..., Any]]:
    torch_functions = torch_private.sympy_functions
    functions: dict[str, Callable[..., Any]] = {
        name: function
        for name, function in vars(torch_functions).items()
        if isinstance(function, type)
        and issubclass(function, sympy.Basic)
        and function.__module__ == torch_functions.__name__
        and not name.startswith("_")
    }
    functions.update({name: getattr(sympy, name) for name in _SYMPY_FUNCTIONS})
    functions.update(Max=torch_functions.Max, Min=torch_functions.Min)
    return functions


_NONE = NoneType()


_SPOKEN = (
    *(ast.Load, *_BINARY, *_COMPARE, ast.USub, ast.Invert, ast.Not),
    *(ast.Name, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Tuple),
)


@lru_cache(maxsize=65536)
def is_read(text: str) -> bool:
    """Whether `Symbols.expression` can parse a text; torch prints an open set of functions."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return False
    return all(
        isinstance(node, _SPOKEN)
        or (isinstance(node, ast.Constant) and isinstance(node.value, int | float))
        or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _functions()
            and not node.keywords
        )
        for node in ast.walk(tree)
    )


def spelt(number: Any) -> str:
    """Format a number of torch.

    Raises:
        StepwellError: the parser does not accept the text.
    """
    text = str(number)
    if not is_read(text):
        short = text if len(text) < 80 else f"{text[:77]}..."
        raise StepwellError(
            f"the dynamic number {short} cannot be represented in the IR",
            help="constrain it in the model (torch._check), so that torch simplifies it",
        )
    return text


def dimension(size: int | torch.SymInt) -> Dim:
    """Convert a size to a number, or to its expression if it is symbolic."""
    if isinstance(size, int):
        return int(size)
    known = size.node.maybe_as_int()
    return dim_of(spelt(size)) if known is None else known


def expression_of(number: torch.SymInt | torch.SymFloat | torch.SymBool) -> Dim:
    """Convert a dynamic number to its expression; one that is not an integer keeps only
    its text.
    """
    if isinstance(number, torch.SymInt):
        return dimension(number)
    return Size.computed(spelt(number.node.expr))


_RELATIONS = ("==", "!=", "<", "<=", ">", ">=")


def is_true_of(guard: Any, ranges: Ranges) -> bool:
    """Whether a guard of torch provably holds for all sizes within ranges.

    False means that the guard was not proved.
    """
    if isinstance(guard, sympy.And):
        return all(is_true_of(part, ranges) for part in guard.args)
    free = [name for name in map(str, guard.free_symbols) if not is_unbacked(name)]
    ranges = {**dict.fromkeys(free, (2, None)), **ranges}
    relation = getattr(guard, "rel_op", None)
    if relation not in _RELATIONS:
        return False
    difference = Size.of(dim_of(str(guard.lhs))) - dim_of(str(guard.rhs))
    try:
        return holds(relation, difference, ranges)
    except StepwellError:  # The expression divides by zero if a size is 0.
        return False


def is_of_more_than_one(guard: Any) -> bool:
    """Whether a guard states that a size is not 1, which `torch.export` assumes of every size.

    Strides and broadcasting create such guards. They can be ignored: the types of an op state its
    ranks and sizes, and an op that broadcasts a symbolic size against a number or another symbol
    guards their equality.
    """
    (size,) = guard.free_symbols if len(guard.free_symbols) == 1 else (None,)
    if size is None:
        return False
    return guard in (sympy.Ne(size, 1), sympy.Lt(1, size), sympy.Gt(size, 1), sympy.Ge(size, 2))


def tensor_type(value: torch.Tensor) -> Attribute:
    """Return the type of a (fake) tensor."""
    if value.layout != torch.strided:
        raise StepwellError(f"a tensor of layout {value.layout} has no type in the IR")
    return tensor([dimension(size) for size in value.shape], element_type(value.dtype))


def type_of(value: Any) -> Attribute:
    """Return the type of an example value: a tensor, a number or None.

    Raises:
        StepwellError: the value is of another kind.
    """
    if isinstance(value, torch.Tensor):
        return tensor_type(value)
    if value is None:
        return _NONE
    if isinstance(value, torch.SymInt | int) and not isinstance(value, bool):
        return IntType(str(dim_of(spelt(value))))
    if isinstance(value, torch.SymFloat | float):
        return FloatType(spelt(value))
    if isinstance(value, torch.SymBool | bool):
        return BoolType(spelt(value))
    raise StepwellError(f"a value of type {type(value).__name__} has no type in the IR")


def flat_types(value: Any) -> list[Attribute]:
    """Return the types of an operator's results, with lists of tensors flattened."""
    if isinstance(value, torch.Tensor):
        return [tensor_type(value)]
    if isinstance(value, tuple | list):
        return [type_ for item in value for type_ in flat_types(item)]
    return [type_of(value)]


_LOGGERS = tuple(
    logging.getLogger(f"torch.{name}")
    for name in ("_subclasses.fake_tensor", "fx.experimental.symbolic_shapes")
)


def asked_quietly() -> AbstractContextManager[None]:
    """Silence the tracebacks that torch logs when its shape functions reject a call."""
    return without_logs(_LOGGERS)


class Symbols:
    """The symbols of one method, in a separate shape environment.

    Args:
        ranges: the ranges of symbols by name; other symbols have torch's default.
        device: the device of fake tensors.
    """

    def __init__(self, ranges: Ranges | None = None, device: str = "cpu") -> None:
        self.env = symbolic_shapes.ShapeEnv()
        self.device = device
        self.mode = torch_private.FakeTensorMode(shape_env=self.env, static_shapes=False)
        self._ranges = dict(ranges or {})
        self.ranges: dict[sympy.Symbol, Any] = {}
        """The stated range of each symbol, before any guard."""
        self._symbols: dict[str, sympy.Symbol] = {}
        self._expressions: dict[str, Any] = {}
        self._examples = _primes()

    @contextmanager
    def on_fakes(self) -> Generator[None]:
        """Run torch's operators on fake tensors in this thread; one thread at a time."""
        with torch_alone(), self.mode, torch.no_grad():
            yield

    def symbol(self, name: str) -> sympy.Symbol:
        """Return the symbol of a name; `u0`, `u1`, … are unbacked."""
        found = self._symbols.get(name)
        if found is None:
            unbacked = is_unbacked(name)
            found = sympy.Symbol(name, integer=True, **({} if unbacked else {"positive": True}))
            self._symbols[name] = found
            low, high = self._ranges.get(name, (-torch_private.int_oo if unbacked else 2, None))
            bounds: Any = (low, torch_private.int_oo if high is None else high)
            self.env.constrain_symbol_range(found, *bounds)
            self.ranges[found] = torch_private.ValueRanges(*bounds)
            if unbacked:
                self.env.unbacked_symint_counter = max(
                    self.env.unbacked_symint_counter, int(name[1:]) + 1
                )
            else:
                self.env.backed_var_to_val[found] = sympy.Integer(self._example(low, high))
        return found

    def may_agree(self, one: Any, other: Any) -> bool:
        """Whether sizes with unbacked symbols (`u0`) are equal for some values within their ranges.

        An assertion of the program makes them equal for all values: `narrow(0, u0, s1)` has s1 rows
        if the program asserts that `u0 + s1` rows exist; without the assertion torch infers
        `Min(256, s1 + u0) - u0`.
        """
        free = one.free_symbols | other.free_symbols
        if not any(is_unbacked(str(symbol)) for symbol in free):
            return False
        difference = one - other
        for seed in range(_TRIES):
            apart = {s: self._within(s, (seed + 1) * (at + 2)) for at, s in enumerate(free)}
            nothing = {s: self._within(s, 0) for s in free if is_unbacked(str(s)) == (not seed)}
            up = {s: self._within(s, seed + at) for at, s in enumerate(free)}
            down = {s: self._within(s, seed + len(free) - at) for at, s in enumerate(free)}
            for point in (apart | nothing if seed < 2 else apart, up, down):
                if difference.subs(point) == 0:
                    return True
        return False

    def is_a_guess(self, size: Any, number: Any) -> bool:
        """Whether torch replaced a size by its value for the example's sizes.

        An axis of size `(s0 - 1)//32 + 1` has size 1 if s0 is 13, and is broadcast.
        """
        if not (self.env.guards and number.is_Integer):
            return False
        return bool(size.subs(self.env.backed_var_to_val) == number)

    def _within(self, symbol: sympy.Symbol, offset: int) -> int:
        bounds = self.ranges.get(symbol)
        low = int(bounds.lower) if bounds is not None and bounds.lower.is_Integer else 0
        high = int(bounds.upper) if bounds is not None and bounds.upper.is_Integer else low + 1000
        return low + offset % max(high - low + 1, 1)

    def _example(self, low: Any, high: int | None) -> int:
        """Return a size in the range that no other symbol has, if possible."""
        if high is not None and high - low < 1000:
            return low + (next(self._examples) % (high - low + 1))
        return next(self._examples) + max(int(low) - 2, 0)

    def expression(self, text: str) -> Any:
        """Parse the sympy expression of a type.

        Raises:
            ParseFailure: the text is not an arithmetic expression.
        """
        found = self._expressions.get(text)
        if found is None:
            try:
                tree = ast.parse(text, mode="eval").body
            except (SyntaxError, ValueError, RecursionError):
                raise ParseFailure(f"{text!r} is not a symbolic expression") from None
            found = self._expressions[text] = sympy.sympify(self._read(tree, text))
        return found

    def _read(self, tree: ast.expr, text: str) -> Any:
        if isinstance(tree, ast.Name):
            return self.symbol(tree.id)
        if isinstance(tree, ast.Constant) and isinstance(tree.value, int | float):
            return sympy.sympify(tree.value)
        if isinstance(tree, ast.BinOp) and type(tree.op) in _BINARY:
            left, right = self._read(tree.left, text), self._read(tree.right, text)
            return _BINARY[type(tree.op)](left, right)
        if isinstance(tree, ast.UnaryOp):
            value = self._read(tree.operand, text)
            if isinstance(tree.op, ast.USub):
                return -value
            if isinstance(tree.op, ast.Invert | ast.Not):
                return sympy.Not(value)
        if isinstance(tree, ast.Compare) and [type(op) in _COMPARE for op in tree.ops] == [True]:
            left, right = self._read(tree.left, text), self._read(tree.comparators[0], text)
            return getattr(sympy, _COMPARE[type(tree.ops[0])])(left, right)
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            function = _functions().get(tree.func.id)
            if function is sympy.Piecewise and not tree.keywords:
                return function(*(self._pair(item, text) for item in tree.args))
            if function is not None and not tree.keywords:
                return function(*(self._read(item, text) for item in tree.args))
        raise ParseFailure(f"{text!r} is not a symbolic expression")

    def _pair(self, tree: ast.expr, text: str) -> Any:
        """Parse a value of sympy's `Piecewise` and its condition."""
        if not isinstance(tree, ast.Tuple) or len(tree.elts) != 2:
            raise ParseFailure(f"{text!r} is not a symbolic expression")
        return tuple(self._read(item, text) for item in tree.elts)

    def stated(self, text: str, values: Mapping[str, int]) -> Number | str:
        """Substitute some symbols in a number's text; the result is a number or a text."""
        known = {self.symbol(name): sympy.Integer(value) for name, value in values.items()}
        return _plain(self.expression(text).subs(known))

    def size(self, dim: Dim) -> int | torch.SymInt:
        """Convert a dimension to an int or a `SymInt`."""
        if isinstance(dim, int):
            return dim
        if dim == UNKNOWN:
            raise StepwellError("a dimension is not known, not even as an expression")
        return self.env.create_symintnode(self.expression(str(dim)), hint=None)

    def number(self, type_: IntType | FloatType | BoolType) -> Any:
        """Convert a dynamic number to torch's representation."""
        expression = self.expression(type_.data)
        if not isinstance(_plain(expression), str):
            kind = {IntType: int, FloatType: float, BoolType: bool}[type(type_)]
            return kind(expression)
        if isinstance(type_, IntType):
            return self.env.create_symintnode(expression, hint=None)
        if isinstance(type_, FloatType):
            return self.env.create_symfloatnode(expression, hint=None)
        return self.env.create_symboolnode(expression)

    def fake(self, type_: Attribute, order: Sequence[int] | None = None) -> Any:
        """Create a fake tensor of a tensor type in a dim order; numbers are converted
        by `number`.
        """
        if isinstance(type_, IntType | FloatType | BoolType):
            return self.number(type_)
        if not isinstance(type_, TensorType):
            return None
        shape: list[Any] = [self.size(dim) for dim in dims(type_)]
        strides: list[Any] = [1] * len(shape)
        step: Any = 1
        for axis in reversed(order or range(len(shape))):
            strides[axis] = step
            step = step * (1 if symbolic_shapes.guard_or_false(shape[axis] == 0) else shape[axis])
        with self.on_fakes():
            dtype = torch_dtype(element(type_))
            return torch.empty_strided(shape, strides, dtype=dtype, device=self.device)


_TRIES = 16


def _plain(expression: Any) -> Number | str:
    """Convert a constant expression to a number, and any other to text."""
    if expression in (sympy.true, sympy.false):
        return bool(expression)
    if not expression.is_number:
        return str(expression)
    return int(expression) if expression.is_Integer else float(expression)


def _primes() -> Generator[int]:
    candidate = 11
    while True:
        candidate += 2
        if all(candidate % divisor for divisor in range(3, int(candidate**0.5) + 1, 2)):
            yield candidate

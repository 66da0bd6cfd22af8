"""Proved rules as patterns of xDSL's `pdl` dialect, for its pattern and e-graph passes.

    P='eqsat-create-eclasses,saturate-by-rules,eqsat-add-costs{default=1},eqsat-extract'
    stepwell opt model.mlir -p "$P"

A rule can be exported if it is proved bit for bit for any sizes, has no conditions and computes no
argument, and if `pdl` can state what it means: an op with several results, lists of values, weights
and families of ops are refused with a reason. Conditions for cost or termination are left out: an
e-graph keeps both sides. PDL cannot say that an optional argument is absent: a native constraint
does (`ABSENT`), which `saturate-by-rules` registers, and without which xDSL's own passes refuse
such a pattern. PDL infers no types of new ops: the last one has the type of the value that it
replaces, and others are exported only if all values of the pattern have one type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.builder import ImplicitBuilder
from xdsl.context import Context
from xdsl.dialects import pdl
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.interpreter import Interpreter, InterpreterFunctions, impl_external, register_impls
from xdsl.interpreters.eqsat_pdl_interp import EqsatPDLInterpFunctions
from xdsl.interpreters.pdl_interp import PDLInterpFunctions
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.traits import SymbolTable
from xdsl.transforms.convert_pdl_interp_to_eqsat_pdl_interp import (
    ConvertPDLInterpToEqsatPDLInterpPass,
)
from xdsl.transforms.convert_pdl_to_pdl_interp.conversion import ConvertPDLToPDLInterpPass
from xdsl.universe import Universe

from stepwell.dialects.aten.op import SchemaOp, stated_default
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.side_effects import is_pure
from stepwell.translate.rules.compiling import named_arguments, operator
from stepwell.translate.rules.notation import Computed, Hole, Line, Rule
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.validation.rules.hashes import hash_of
from stepwell.validation.rules.instantiation import RuleProgram, Statement
from stepwell.validation.rules.kept_verdicts import known
from stepwell.validation.rules.verdicts import rules, without_labels

ABSENT = "stepwell.has_no_argument_but"
"""The native constraint that an op has no arguments but those whose names follow, after dots."""


class NotExported(StepwellError):
    """Raised if PDL cannot express a rule."""


@dataclass
class _Pattern:
    """A pattern of one form of a rule, under construction."""

    rule: Rule
    program: RuleProgram
    groups: dict[SSAValue, int]
    """The values of one type have one number."""
    types: dict[int, SSAValue] = field(default_factory=dict[int, SSAValue])
    holes: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    made: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])

    def type_of(self, held: SSAValue) -> SSAValue:
        """Return the PDL type of a value of the example."""
        group = self.groups[held]
        if group not in self.types:
            self.types[group] = pdl.TypeOp().result
        return self.types[group]

    def value(self, held: SSAValue) -> SSAValue:
        """Return the PDL value of a value of the example."""
        if held not in self.values:
            self.values[held] = pdl.OperandOp(self.type_of(held)).value
        return self.values[held]

    def matched(self, op: Operation, line: Line) -> None:
        """Add an op of the pattern."""
        self._append(op, line, is_match=True)

    def written(self, op: Operation, line: Line) -> None:
        """Add an op of the replacement."""
        self._append(op, line, is_match=False)

    def _append(self, op: Operation, line: Line, is_match: bool) -> None:
        _check(op, line)
        names: list[str] = []
        attributes: list[SSAValue] = []
        stated = _holes(line, self.rule)
        shown = _stated(op)  # A placeholder is no default, whatever its example is.
        for name, held in op.properties.items():
            if name not in shown and name not in stated:
                continue
            hole = stated.get(name)
            if isinstance(hole, Computed):
                raise NotExported(f"the argument {name} of {op.name} is computed")
            if isinstance(hole, Hole):
                if hole.name not in self.holes and not is_match:
                    raise NotExported(f"the argument {name} of {op.name} is part of a type")
                if hole.name not in self.holes:
                    self.holes[hole.name] = pdl.AttributeOp().output
                value = self.holes[hole.name]
            else:
                value = pdl.AttributeOp(held).output
            names.append(name)
            attributes.append(value)
        operands = [self.value(operand) for operand in op.operands]
        made = pdl.OperationOp(
            op.name,
            ArrayAttr(map(StringAttr, names)),
            operand_values=operands,
            attribute_values=attributes,
            type_values=[self.type_of(op.results[0])],
        )
        if is_match:
            pdl.ApplyNativeConstraintOp(".".join((ABSENT, *names)), [made.op], [])
        self.made[op] = made.op
        self.values[op.results[0]] = pdl.ResultOp(0, made.op).val


def _stated(op: Operation) -> dict[str, Attribute]:
    """Return an op's arguments, without those that a schema has as defaults."""
    if not isinstance(op, SchemaOp):
        return dict(op.properties)
    defaults = {a.name: stated_default(a) for a in op.SCHEMA.arguments if a.default}
    return {
        name: held
        for name, held in op.properties.items()
        if name not in defaults or not _is_same(op.arg(name), defaults[name])
    }


def _is_same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _check(op: Operation, line: Line) -> None:
    if "." not in line.op:
        raise NotExported(f"{line.op} is a function of the rule's module")
    if len(op.results) != 1 or op.regions:
        raise NotExported(f"{op.name} has not one result")
    if line.family or line.recipe or line.is_open or isinstance(op, WeightOp):
        raise NotExported(f"{line.op} is a family, a weight, or has open arguments")
    if any(line.operand_types) or any(line.result_types):
        raise NotExported(f"the rule states types of {op.name}")


def _holes(line: Line, rule: Rule) -> dict[str, Any]:
    """Return the placeholders and computed terms of a line, by argument."""
    written = named_arguments(line, operator(line, rule), rule)
    return {n: term for n, term in written.items() if isinstance(term, Hole | Computed)}


def pattern_of(rewrite: type[RuleRewrite], rule: Rule) -> pdl.PatternOp:
    """Return one form of a rule as a PDL pattern.

    Raises:
        NotExported: PDL cannot express it; the message has the reason.
    """
    if rule.where or rule.proven or rule.loses or rule.bound_by or not rewrite.bound.exact:
        raise NotExported("it has conditions, or a bound")
    if rule.options or rule.lies or rule.beside or not rule.takes_empty:
        raise NotExported("it has options, or is not of every tensor")
    try:
        program = Statement(rewrite, rule).concrete({})
    except StepwellError as error:
        raise NotExported(error.problems[0].fact) from error
    if program is None or len(program.pairs) != 1:
        raise NotExported("its example replaces more than one value")
    ((old, new),) = program.pairs
    body = Block()
    with ImplicitBuilder(body):
        made = _Pattern(rule, program, _groups(program))
        lines = [line for line in rule.before if line.forwards is None]
        for op, line in _paired(_before(program), lines):
            made.matched(op, line)
        root = made.made[_owner(old)]
        after = Block()
        with ImplicitBuilder(after):
            fresh = [line for line in rule.after if line.forwards is None]
            for op, line in _paired(program.fresh, fresh):
                made.written(op, line)
            if new not in made.values:
                raise NotExported("it replaces by a value that the pattern does not match")
            owner = new.owner
            if isinstance(owner, Operation) and owner in program.fresh:
                pdl.ReplaceOp(root, made.made[owner])
            else:
                pdl.ReplaceOp(root, repl_values=[made.values[new]])
        pdl.RewriteOp(root, Region(after))
    name = "".join(c if c.isalnum() else "_" for c in rewrite.name)
    return pdl.PatternOp(1, name, Region(body))


def _groups(program: RuleProgram) -> dict[SSAValue, int]:
    """Return a number of each value's type: one for all, if the replacement has several ops."""
    (old, new), before = program.pairs[0], _before(program)
    values = [v for op in (*before, *program.fresh) for v in (*op.operands, *op.results)]
    numbers = {value: at for at, value in enumerate(dict.fromkeys([old, *values]))}
    if len(program.fresh) < 2:
        return {v: numbers[old] if v in (old, new) else at for v, at in numbers.items()}
    if len({v.type for v in values}) != 1 or any(not _keeps_type(op) for op in program.fresh):
        raise NotExported("its replacement has several ops of different types")
    return dict.fromkeys(numbers, 0)


def _keeps_type(op: Operation) -> bool:
    return is_of(op, "elementwise") and not is_of(op, "cast", "comparison")


def _before(program: RuleProgram) -> list[Operation]:
    fresh = set(program.fresh)
    ops = program.program.method().body.block.ops
    return [op for op in ops if op.results and op not in fresh]


def _owner(value: SSAValue) -> Operation:
    assert isinstance(value.owner, Operation)
    return value.owner


def _paired(ops: Sequence[Operation], lines: Sequence[Line]) -> Iterator[tuple[Operation, Line]]:
    if len(ops) != len(lines):
        raise NotExported("its example has other ops than its lines")
    yield from zip(ops, lines, strict=True)


_SCOPE = "any rank, any size"
"""The scope of rules that hold for every type and argument, on every engine."""


def pdl_module() -> tuple[ModuleOp, dict[str, str]]:
    """Return the patterns of every rule that is proved bit for bit and that PDL can express, and
    the reason for each other rule, by name.
    """
    patterns: list[Operation] = []
    left: dict[str, str] = {}
    for name, rewrite in rules().items():
        verdict = known().get(hash_of(rewrite))
        if verdict is None or verdict.kind != "bits" or verdict.scope != _SCOPE:
            left[name] = "it is not proved bit for bit for any rank and size"
            continue
        for rule in rewrite.rule.forms:
            bare = without_labels(rule) if verdict.of_labels else rule
            try:
                made = pattern_of(rewrite, bare)
                if made.sym_name is not None:  # A rule may have several forms.
                    made.sym_name = StringAttr(f"{made.sym_name.data}_{len(patterns)}")
                patterns.append(made)
            except NotExported as error:
                left[name] = error.problems[0].fact
    return ModuleOp(patterns), left


def _constraints(patterns: ModuleOp) -> InterpreterFunctions:
    """Return the implementations of all native constraints of some patterns."""
    names = {op.constraint_name.data for op in patterns.walk()
             if isinstance(op, pdl.ApplyNativeConstraintOp)}  # fmt: skip

    def made(name: str) -> Any:
        allowed = set(name.removeprefix(ABSENT).split("."))

        def holds(self: Any, interpreter: Interpreter, op: Operation, args: Any) -> Any:
            return {*args[0].properties} <= allowed, ()

        return impl_external(name)(holds)

    methods = {f"constraint_{at}": made(name) for at, name in enumerate(sorted(names))}
    return register_impls(type("Constraints", (InterpreterFunctions,), methods))()


def _prepare(module: ModuleOp) -> None:
    """Omit arguments that are defaults, so that equal ops have equal attributes.

    Raises:
        StepwellError: an op is random or has a side effect; two such ops with equal operands are
            not equal, although an e-graph takes them to be.
    """
    for op in module.walk():
        if not isinstance(op, SchemaOp):
            continue
        if not is_pure(op):
            raise StepwellError(
                f"saturate-by-rules: {op.name} may give another result each time",
                help="an e-graph takes equal ops to be one; saturate the part without it",
            )
        for name in {*op.properties} - {*_stated(op)}:
            del op.properties[name]


@dataclass(frozen=True)
class SaturateByRules(ModulePass):
    """Saturate a program of equivalence classes by the proved rules that PDL can express."""

    name = "saturate-by-rules"
    max_iterations: int = 20

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Add equal ops to the equivalence classes of a program, until none is new."""
        _prepare(op)
        patterns, _ = pdl_module()
        constraints = _constraints(patterns)
        own = Context()
        for name, make in Universe.get_multiverse().all_dialects.items():
            own.register_dialect(name, make)
        ConvertPDLToPDLInterpPass().apply(own, patterns)
        ConvertPDLInterpToEqsatPDLInterpPass().apply(own, patterns)
        matcher = SymbolTable.lookup_symbol(patterns, "matcher")
        if matcher is None or op.ops.first is None:
            return
        interpreter = Interpreter(patterns)
        plain, saturating = PDLInterpFunctions(), EqsatPDLInterpFunctions()
        PDLInterpFunctions.set_ctx(interpreter, own)
        saturating.populate_known_ops(op)
        for functions in (saturating, plain, constraints):
            interpreter.register_implementations(functions)
        rewriter = PatternRewriter(op.ops.first)
        rewriter.operation_modification_handler.append(saturating.modification_handler)
        plain.set_rewriter(interpreter, rewriter)
        for _ in range(self.max_iterations):
            for root in op.body.walk():
                interpreter.call_op(matcher, (root,))  # pyright: ignore[reportArgumentType]
            saturating.execute_pending_rewrites(interpreter)
            if not saturating.worklist:
                return
            saturating.rebuild(interpreter)

"""Proved rules as patterns of xDSL's `pdl` dialect, for its pattern and e-graph passes.

    P='eqsat-create-eclasses,saturate-by-rules,eqsat-add-costs{default=1},eqsat-extract'
    stepwell opt model.mlir -p "$P"

A rule can be exported if it is proved bit for bit for any sizes, has no conditions on values and
computes no argument, and if `pdl` can state what it means: an op with several results, lists of
values, weights and families of ops are refused with a reason. Placeholders that a condition reads
are replaced by the numbers of the rule's example, for which the condition holds. Conditions for
cost or termination are left out: an e-graph keeps both sides. PDL cannot say that an argument is
absent: patterns state every argument of a schema, defaults too, and so does a program that
`saturate-by-rules` prepares. PDL infers no types of new ops: the last one has the type of the value
that it replaces, and others are exported only if all values of the pattern have one type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.builder import ImplicitBuilder
from xdsl.context import Context
from xdsl.dialects import pdl
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.transforms.apply_eqsat_pdl_interp import apply_eqsat_pdl_interp
from xdsl.transforms.convert_pdl_interp_to_eqsat_pdl_interp import (
    ConvertPDLInterpToEqsatPDLInterpPass,
)
from xdsl.transforms.convert_pdl_to_pdl_interp.conversion import ConvertPDLToPDLInterpPass
from xdsl.universe import Universe

from stepwell.dialects.aten.attributes import attribute
from stepwell.dialects.aten.op import SchemaOp, stated_default
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.side_effects import is_pure
from stepwell.translate.rules.compiling import named_arguments, operator, takes_program
from stepwell.translate.rules.notation import Computed, Hole, Line, Rule, ValueName
from stepwell.translate.rules.operators import operator_of
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.validation.rules.hashes import hash_of
from stepwell.validation.rules.instantiation import RuleProgram, Statement
from stepwell.validation.rules.kept_verdicts import known
from stepwell.validation.rules.verdicts import rules, without_labels


class NotExported(StepwellError):
    """Raised if PDL cannot express a rule."""


class _Pattern:
    """A pattern of one form of a rule, under construction.

    Attributes:
        types, values, holes: the PDL values of types, by their group, of values of the example, and
            of placeholders.
        ops: the PDL values of the example's ops.
    """

    def __init__(self, rule: Rule, groups: dict[SSAValue, int]) -> None:
        self.rule, self.groups = rule, groups
        self.fixed = {name for each in rule.where for name in _holes(each.arguments)}
        self.types: dict[int, SSAValue] = {}
        self.values: dict[SSAValue, SSAValue] = {}
        self.holes: dict[str, SSAValue] = {}
        self.ops: dict[Any, SSAValue] = {}

    def type_of(self, value: SSAValue) -> SSAValue:
        """Return the PDL type of a value of the example."""
        group = self.groups[value]
        if group not in self.types:
            self.types[group] = pdl.TypeOp().result
        return self.types[group]

    def append(self, op: Operation, line: Line, is_match: bool) -> None:
        """Add an op of the pattern or of the replacement."""
        _check(op, line)
        terms = named_arguments(line, operator(line, self.rule), self.rule)
        attributes: dict[str, SSAValue] = {}
        for name, value in op.properties.items():
            term = terms.get(name)
            is_fixed = {*_holes([term])} <= self.fixed
            if isinstance(term, Computed | list) and not is_fixed:
                raise NotExported(f"the argument {name} of {op.name} is computed")
            if isinstance(term, Hole) and not is_fixed:
                if term.name not in self.holes:
                    if not is_match:
                        raise NotExported(f"the argument {name} of {op.name} is part of a type")
                    self.holes[term.name] = pdl.AttributeOp().output
                attributes[name] = self.holes[term.name]
            else:
                attributes[name] = pdl.AttributeOp(value).output
        for operand in op.operands:
            if operand not in self.values:
                self.values[operand] = pdl.OperandOp(self.type_of(operand)).value
        self.ops[op] = pdl.OperationOp(
            op.name,
            ArrayAttr(map(StringAttr, attributes)),
            [self.values[operand] for operand in op.operands],
            [*attributes.values()],
            [self.type_of(op.results[0])],
        ).op
        self.values[op.results[0]] = pdl.ResultOp(0, self.ops[op]).val


def _holes(terms: Iterable[Any]) -> Iterator[str]:
    """Yield the placeholders in some terms."""
    for term in terms:
        if isinstance(term, Hole):
            yield term.name
        elif isinstance(term, list | Computed):
            yield from _holes(term.arguments if isinstance(term, Computed) else term)


def _state_defaults(op: Operation) -> None:
    """State the arguments of a schema's op that are omitted."""
    if isinstance(op, SchemaOp):
        for each in op.SCHEMA.arguments:
            if each.default and not each.type.is_tensor and each.name not in op.properties:
                op.properties[each.name] = attribute(stated_default(each), each)


def _check(op: Operation, line: Line) -> None:
    if "." not in line.op:
        raise NotExported(f"{line.op} is a function of the rule's module")
    if len(op.results) != 1 or op.regions or not is_pure(op):
        raise NotExported(f"{op.name} has not one result that depends on its operands alone")
    if line.family or line.recipe or line.is_open or isinstance(op, WeightOp):
        raise NotExported(f"{line.op} is a family, a weight, or has open arguments")
    if any(line.operand_types) or any(line.result_types):
        raise NotExported(f"the rule states types of {op.name}")
    _state_defaults(op)
    fields = (p for p in operator_of(type(op)).parameters if p.may_be_absent and not p.is_value)
    if any(field.name not in op.properties for field in fields):
        raise NotExported(f"{op.name} may have further arguments")


def pattern_of(rewrite: type[RuleRewrite], rule: Rule, label: str) -> pdl.PatternOp:
    """Return one form of a rule as a PDL pattern.

    Args:
        rewrite, rule: the rule, and the form of it.
        label: the pattern's name.

    Raises:
        NotExported: PDL cannot express it; the message has the reason.
    """
    if rule.proven or rule.loses or rule.bound_by:
        raise NotExported("it has conditions that are proved in a program, or loses numbers")
    for each in rule.where:
        if (
            each.binds
            or takes_program(rewrite.namespace[each.predicate])
            or any(isinstance(term, ValueName) for term in each.arguments)
        ):
            raise NotExported("it has conditions on values")
    if rule.options or rule.lies or rule.beside or not rule.takes_empty:
        raise NotExported("it has options, or is not of every tensor")
    try:
        program = Statement(rewrite, rule).concrete({})
    except StepwellError as error:
        raise NotExported(error.problems[0].fact) from error
    if program is None or len(program.pairs) != 1:
        raise NotExported("its example replaces more than one value")
    ((old, new),) = program.pairs
    ops = program.program.method().body.block.ops
    before = [op for op in ops if op.results and op not in program.fresh]
    lines = [[line for line in side if line.forwards is None] for side in (rule.before, rule.after)]
    if (len(before), len(program.fresh)) != tuple(map(len, lines)):
        raise NotExported("its example has other ops than its lines")
    body, after = Block(), Block()
    with ImplicitBuilder(body):
        pattern = _Pattern(rule, _groups(program, before))
        for op, line in zip(before, lines[0], strict=True):
            pattern.append(op, line, is_match=True)
        root = pattern.ops[old.owner]
        with ImplicitBuilder(after):
            for op, line in zip(program.fresh, lines[1], strict=True):
                pattern.append(op, line, is_match=False)
            if new not in pattern.values:
                raise NotExported("it replaces by a value that the pattern does not match")
            if new.owner in program.fresh:
                pdl.ReplaceOp(root, pattern.ops[new.owner])
            else:
                pdl.ReplaceOp(root, repl_values=[pattern.values[new]])
        pdl.RewriteOp(root, Region(after))
    return pdl.PatternOp(1, "".join(c if c.isalnum() else "_" for c in label), Region(body))


def _groups(program: RuleProgram, before: Sequence[Operation]) -> dict[SSAValue, int]:
    """Return a number of each value's type: one for all, if the replacement has several ops."""
    ((old, new),) = program.pairs
    values = [v for op in (*before, *program.fresh) for v in (*op.operands, *op.results)]
    numbers = {value: at for at, value in enumerate(dict.fromkeys([old, *values]))}
    if len(program.fresh) < 2:
        return numbers | {new: numbers[old]}
    keeps = (is_of(op, "elementwise") and not is_of(op, "cast", "comparison")
             for op in program.fresh)  # fmt: skip
    if len({v.type for v in values}) != 1 or not all(keeps):
        raise NotExported("its replacement has several ops of different types")
    return dict.fromkeys(numbers, 0)


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
        for rule in rewrite.rule.forms:  # Each has a name.
            bare = without_labels(rule) if verdict.of_labels else rule
            try:
                label = f"{rewrite.name}_{len(patterns)}"
                patterns.append(pattern_of(rewrite, bare, label))
            except NotExported as error:
                left[name] = error.problems[0].fact
    return ModuleOp(patterns), left


def _prepare(module: ModuleOp) -> None:
    """State arguments that are defaults, so that equal ops have equal attributes.

    Raises:
        StepwellError: an op is random or has a side effect; two such ops with equal operands are
            not equal, although an e-graph takes them to be.
    """
    for op in module.walk():
        if isinstance(op, SchemaOp) and not is_pure(op):
            raise StepwellError(
                f"saturate-by-rules: {op.name} may give another result each time",
                help="an e-graph takes equal ops to be one; saturate the part without it",
            )
        _state_defaults(op)


@dataclass(frozen=True)
class SaturateByRules(ModulePass):
    """Saturate a program of equivalence classes by the proved rules that PDL can express."""

    name = "saturate-by-rules"
    max_iterations: int = 20

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Add equal ops to the equivalence classes of a program, until none is new."""
        _prepare(op)
        patterns, _ = pdl_module()
        own = Context()
        for name, make in Universe.get_multiverse().all_dialects.items():
            own.register_dialect(name, make)
        ConvertPDLToPDLInterpPass().apply(own, patterns)
        ConvertPDLInterpToEqsatPDLInterpPass().apply(own, patterns)
        apply_eqsat_pdl_interp(op, own, patterns, self.max_iterations)

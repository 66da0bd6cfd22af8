"""Check a statement (that the ops before and after a rewrite compute equal values) in two ways:
whether it is an instance of a proved rule, and whether both sides agree when they are run on
numbers.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, cast, get_args

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.op_text import text_of
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite
from stepwell.ir.rewriting.rewriter import Rewriter
from stepwell.ir.sizes.size import number_of
from stepwell.ir.types import dims, is_static
from stepwell.pipelines.pass_pipeline.named_passes import step_classes
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.validation.certificates.checker.check import Definition, EqualityGraph
from stepwell.validation.certificates.checker.statements import MOST_STEPS, pairs_of
from stepwell.validation.compare import differs
from stepwell.validation.fills import value_of
from stepwell.validation.rules.hashes import hash_of
from stepwell.validation.rules.kept_verdicts import covers, known
from stepwell.validation.rules.verdicts import rules

FAILS = (
    StepwellError, RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError,
    NotImplementedError, AssertionError,
)  # fmt: skip
"""What rewrites and the interpreter raise on a program that they do not know."""


@cache
def by_hash() -> dict[str, type[RuleRewrite]]:
    """Return a mapping from hash to rule, of every rule that is defined as text."""
    return {hash_of(rewrite): rewrite for rewrite in rules().values()}


def hash_of_rule(rule: type[Rewrite[Any]] | None) -> str | None:
    """Return the hash of a rule that has a proof."""
    if rule is None or not issubclass(rule, RuleRewrite):
        return None
    found = hash_of(rule)
    return found if found in known() and known()[found].is_proved else None


def follows_rule(program: Program, hash_: str) -> str | None:
    """Return why a statement (ops before and after a rewrite) is not an instance of a proved rule,
    or None.

    The rule itself is applied to the original side; it must produce the new side.
    """
    rewrite, verdict = by_hash().get(hash_), known().get(hash_)
    if rewrite is None or verdict is None:
        return f"no rule has the text {hash_}"
    block = program.method("equal").body.block
    tensors = [v.type for op in block.ops for v in (*op.operands, *op.results)]
    rank = max((len(dims(t)) for t in tensors if isinstance(t, TensorType)), default=0)
    if not covers(verdict, rank):
        return f"{verdict.rule} is proved {verdict.scope}"
    return writes_otherwise(program, rewrite)


def writes_otherwise(program: Program, rewrite: type[Rewrite[Any]]) -> str | None:
    """Return why the rewrite, applied to a statement's old ops, does not give its new ops; else
    None.
    """
    old = [one.owner for one, _ in pairs_of(program) if isinstance(one.owner, Operation)]
    ops = list(program.method("equal").body.block.ops)
    places = dict.fromkeys(ops.index(op) for op in (*old, *ops[:-1]))
    said = [_writes_otherwise(program, f, place) for f in _forms(rewrite) for place in places]
    return None if None in said else next(iter(said), "nothing is before")


def is_reproduced_by(program: Program, name: str) -> bool:
    """Whether a rewrite of this name, applied to a statement's old ops, gives its new ops."""
    named = [c for c in step_classes().values() if c.name == name and issubclass(c, Rewrite)]
    return any(writes_otherwise(program, each) is None for each in named)


def _forms(rewrite: type[Rewrite[Any]]) -> Iterator[Rewrite[Any]]:
    """Yield a rewrite without options, and with each listed value of each option."""
    yield rewrite()
    for name in getattr(rewrite, "options", ()):
        kind = rewrite.__annotations__[name]
        yield from (cast(Any, rewrite)(**{name: v}) for v in get_args(kind) if isinstance(v, str))


def _writes_otherwise(program: Program, rewrite: Rewrite[Any], place: int) -> str | None:
    """Return why the rewrite, applied at one op, does not give a statement's new ops; else None."""
    work = Program(program.module.clone(), program.weights)
    root = list(work.method("equal").body.block.ops)[place]
    try:
        match = rewrite.match(root, work) if isinstance(root, rewrite.anchors) else None
        if match is None or isinstance(match, Refusal):
            return f"{rewrite.name} does not match"
        rewrite.build(match, Rewriter(root, work))
    except FAILS as error:
        return f"{rewrite.name} fails: {error}"
    (graph, numbers), pairs = _interned(work), pairs_of(work)
    if graph.are_equal(*([numbers[pair[side]] for pair in pairs] for side in (0, 1))):
        return None
    return f"{rewrite.name} writes something else"


def _interned(program: Program) -> tuple[EqualityGraph, dict[SSAValue, int]]:
    graph, numbers = EqualityGraph(), dict[SSAValue, int]()
    block = program.method("equal").body.block
    for argument in block.args:
        numbers[argument] = graph.new()
    for op in block.ops:
        if isinstance(op, ReturnOp):
            continue
        results = tuple(graph.new() for _ in op.results)
        numbers.update(zip(op.results, results, strict=True))
        operands = tuple(numbers[value] for value in op.operands)
        unread = ("kind", "persistent") if isinstance(op, WeightOp) else ()
        graph.define(Definition(text_of(op, unread), operands, results))
    return graph, numbers


def allowed(bound: Bound) -> Bound:
    """Return the error bound for comparing both sides of a statement when they are run: 1/1000 if
    they differ only by roundings.
    """
    if bound.exact or not (bound.is_local or bound.magnitudes):
        return bound
    return Bound(max(bound.relative, 1e-3), max(bound.absolute, 1e-4), units=bound.units)


class _Bounded(Interpreter):
    """An interpreter that raises an error after `MOST_STEPS` ops."""

    steps = 0

    def step(self, op: Operation, environment: dict[SSAValue, Any]) -> None:
        """Evaluate one op, binding its results."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise StepwellError(
                f"the interpreter evaluates more than {MOST_STEPS} ops of the statement"
            )
        super().step(op, environment)


def runs(program: Program, bound: Bound, seed: int = 0) -> str | None:
    """Run a statement on random numbers. Return how the old and the new values differ beyond the
    bound, or None.

    Raises:
        StepwellError: the statement cannot be run in this process.
    """
    generator = torch.Generator().manual_seed(seed)
    block = program.method("equal").body.block
    environment: dict[SSAValue, Any] = {a: _input(a.type, generator) for a in block.args}
    interpreter = _Bounded(program.weights)
    try:
        with torch.no_grad():
            for op in block.ops:
                if not isinstance(op, ReturnOp):
                    interpreter.step(op, environment)
    except FAILS as error:
        raise StepwellError(f"the ops of a statement fail: {error}") from error
    for old, new in pairs_of(program):
        difference = differs(environment[old], environment[new], bound, against="tensor")
        if difference is not None:
            return str(difference)
    return None


def _input(type_: Any, generator: torch.Generator) -> Any:
    if not isinstance(type_, TensorType):
        raise StepwellError(f"an input of type {type_} cannot be sampled: it is no tensor")
    if not is_static(type_):
        raise StepwellError(f"an input with a symbolic size, {type_}, cannot be sampled")
    return value_of(type_, "random", [*map(number_of, dims(type_))], generator)

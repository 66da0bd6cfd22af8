"""Try one application of a rewrite on special values, as each family of CPUs treats them.

The old ops compute in PyTorch's arithmetic, the new ones as each engine treats special values. A
node that ExecuTorch's own flow also produces from the same ops (`docs/semantics.md` accepts those)
computes as PyTorch does. Operands that both sides share get the special values that their intervals
contain.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.quant.types import quantization
from stepwell.dialects.xnnpack import NODES
from stepwell.dialects.xnnpack.meaning.engines import with_changes
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.engine_behavior import Change, engine_behavior
from stepwell.ir.declared.interpretation import Rule
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewriter import Rewriter
from stepwell.ir.types import TensorType
from stepwell.translate.engine_losses import inherited_nodes, is_exact, measured_as, node_of
from stepwell.translate.range_analysis import interval
from stepwell.validation.derived import FAR, Sides
from stepwell.validation.error_rules import NoErrorRule, is_real
from stepwell.validation.recording import NotRecorded, Recording
from stepwell.validation.roundings import Roundings

NAN, INF = math.nan, math.inf
MODERATE = (NAN, INF, -INF, 0.0, -0.0, 1.5, -1.5, 89.1, 88.6, -89.1)
"""Operands for which a rewrite must keep NaN, infinities and finite numbers apart."""
LARGE = (NAN, 1e30, -1e30, 3e38, -3e38, 5e4, -5e4, 1e-30)
"""Operands where only a change by the engine counts: sums and products may overflow anyway."""
AS_PYTORCH = "as in PyTorch's arithmetic"
FAR_OFF = 0.02
"""The relative difference of finite numbers beyond which an engine's result is another."""
_CLASSES = {cls.name: cls for cls in NODES.values()}
Given = Mapping[SSAValue, Tensor]


@dataclass(frozen=True)
class EngineLoss:
    """A finding: special values that a replacement does not preserve on some engines.

    Attributes:
        engines: the engines, such as `xnnpack/avx2`
        cause: the first new node that differs from PyTorch there, with its operand and result.
        operands: the shared operands of the element, in words.
        result, expected: the element of the replacement, and the original element.
    """

    engines: tuple[str, ...]
    cause: str
    operands: str
    result: str
    expected: str

    def __str__(self) -> str:
        where = ", ".join(self.engines)
        what = f"the replacement gives {self.result} for {self.operands}, not {self.expected}"
        return f"on {where} {self.cause}: {what}"


class _NotNoted(Roundings):
    """A context that records no rounding errors, since a trial compares only classes of numbers."""

    def __enter__(self) -> _NotNoted:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def put(self, value: Tensor, error: Tensor | None) -> None:
        return None


@dataclass
class _OnEngine(Sides):
    """The evaluation of both sides of an application; the new side behaves as on one engine."""

    changes: Mapping[Operation, Sequence[Change]] = field(
        default_factory=dict[Operation, Sequence[Change]]
    )
    changed: list[tuple[str, Tensor, list[Any], Tensor]] = field(default_factory=list[Any])
    """Each node that differs from PyTorch: its name, where, its operands and its result."""

    def cause(self, at: tuple[int, ...], shape: torch.Size) -> str:
        """Return the first node whose result differs from PyTorch's."""
        here = [each for each in self.changed if each[1].shape == shape and bool(each[1][at])]
        for name, where, operands, result in (here or self.changed)[:1]:
            at = at if here else _first(where)
            return f"{name} makes {_word(result[at])} of {_words(operands, at, result.shape)}"
        return AS_PYTORCH

    def pair(self, old: SSAValue, new: SSAValue, given: Given) -> tuple[Any, Any]:
        """Evaluate both sides of an application on `given` values of their shared operands."""
        self._made.update(given)
        self._reaches.update(dict.fromkeys(given, True))
        after = self._evaluated(new, set(given))
        return self._evaluated(old, set(given), is_root=True), after

    def _weight(self, op: WeightOp) -> Any:
        return self.weights.get(op.key.data)

    def _interpreted(self, rule: Rule, op: Operation, operands: list[Any]) -> list[Any]:
        results = super()._interpreted(rule, op, operands)
        if not (changes := self.changes.get(op)):
            return results
        node, context = measured_as(op), self.recording.interpreter
        assert node is not None
        cls = _CLASSES[node[0].split()[0]]
        changed = list(with_changes(cls, changes, op, operands, results, context))
        where = _apart(results[0], changed[0])
        if bool(where.any()):
            self.changed.append((node[0], where, operands, changed[0]))
        return changed


def engine_losses(
    program: Program,
    recording: Recording,
    rewriter: Rewriter,
    replaced: Collection[str],
    engines: Sequence[str],
) -> Iterator[tuple[SSAValue, EngineLoss]]:
    """Yield the special values that an application does not keep on some engines.

    With the option `numerics="finite"`, operands are finite.

    Args:
        program: the program after the observed application of a rewrite.
        recording: a run that defines the operands' shapes, and the operands that are not floats.
        rewriter: the application.
        replaced: names of the replaced ops.
        engines: the families of CPUs.

    The statistics of the pass count the values that were tried, and the others by reason.
    """
    fresh, names = set(rewriter.inserted), {*replaced}
    side_of = partial(_OnEngine, fresh, rewriter.gone, recording, program.weights, _NotNoted())
    for old, new in rewriter.replaced:
        side = side_of()
        ops = {v.owner for v in side.above(old, FAR)} - {v.owner for v in side.shared(new)}
        names |= {op.name for op in ops if isinstance(op, Operation)}
    inherited = inherited_nodes(names)
    nodes = {
        op: measured
        for op in fresh
        if node_of(op.name) not in inherited and not is_exact(op, program)
        if (measured := measured_as(op)) is not None
    }
    alike: dict[tuple[tuple[Change, ...], ...], list[str]] = defaultdict(list)
    for engine in engines:
        alike[tuple(engine_behavior(*of, engine).losses for of in nodes.values())].append(engine)
    alike.pop(((),) * len(nodes), None)
    if not alike:
        return
    points = [edge for key in alike for losses in key for c in losses for edge in _edges(c)]
    changes = [(dict(zip(nodes, key, strict=True)), families) for key, families in alike.items()]
    for old, new in rewriter.replaced:
        if new in rewriter.superseded or new.owner not in fresh:
            continue
        why = "no operand is a float that may be any number"
        try:
            if old.type != new.type:
                raise NotRecorded("the replacement has another type")
            fillings = _fillings(_roots(side_of(), old, new), program, recording, points)
            found = _losses_of_value(old, new, side_of, fillings, changes)
            why = why if found is None else ""
            for loss, families in (found or {}).items():
                yield new, replace(loss, engines=tuple(families))
        except (NotRecorded, NoErrorRule, StepwellError) as error:
            why = str(error).partition("\n")[0] or "one side cannot be computed again"
        rewriter.count(f"not tried on engines: {why}" if why else "tried on engines")


def _losses_of_value(
    old: SSAValue,
    new: SSAValue,
    side_of: Callable[..., _OnEngine],
    fillings: Iterable[tuple[Given, bool]],
    changes: Iterable[tuple[Mapping[Operation, Sequence[Change]], list[str]]],
) -> Mapping[EngineLoss, list[str]] | None:
    """Return each loss of a replaced value with its engines; None if no operands can be tried.

    Args:
        old, new: the replaced value and the new one.
        side_of: creates the evaluation of both sides, with or without the behavior of an engine.
        fillings: operand values, and whether they are of moderate size.
        changes: the changed behavior of each node, and the engines that have it.
    """
    seen, found = set[tuple[int, int]](), defaultdict[EngineLoss, list[str]](list)
    is_tried = False
    for given, is_moderate in fillings:
        before, plain = side_of().pair(old, new, given)
        if not isinstance(before, Tensor):
            raise NotRecorded("the value is no tensor")
        is_tried = True
        for number, (changed, families) in enumerate(changes):
            side = side_of(changes=changed)
            after = side.pair(old, new, given)[1]
            for kind, loss in _losses(side, given, before, plain, after, is_moderate):
                if (number, kind) not in seen:
                    seen.add((number, kind))
                    found[loss] += families
    return found if is_tried else None


def _losses(
    side: _OnEngine, given: Given, before: Tensor, plain: Tensor, after: Tensor, is_moderate: bool
) -> Iterator[tuple[int, EngineLoss]]:
    """Yield a loss of each kind: the classes of both numbers, and whether the engine is the cause.

    Args:
        side: the evaluation of `after`.
        given: the operands.
        before, plain, after: the value replaced, and the new one by PyTorch and on the engine.
        is_moderate: whether losses that PyTorch's arithmetic also causes are counted.
    """
    lost, by_engine = _apart(before, after), _apart(plain, after)
    kinds = _classes(before) * 8 + _classes(after) * 2 + by_engine
    for kind in kinds[lost if is_moderate else lost & by_engine].unique().tolist():
        at = _first((kinds == kind) & lost)
        cause = side.cause(at, before.shape) if kind % 2 else AS_PYTORCH
        words = _words([*given.values()], at, before.shape)
        yield kind, EngineLoss((), cause, words, _word(after[at]), _word(before[at]))


def _roots(sides: _OnEngine, old: SSAValue, new: SSAValue) -> list[SSAValue]:
    """Return the shared float operands that determine both sides and may be chosen freely.

    Raises:
        NotRecorded: the new value depends on an operand that the old value does not use.
    """
    shared = sides.shared(new)
    above = sides.above(old, FAR)
    free = [
        value
        for value in shared
        if not isinstance(value.owner, WeightOp)
        and not (sides.above(value, FAR) - {value}) & shared
        and isinstance(value.type, TensorType)
        and quantization(value.type) is None
        and is_real(sides.recording.value(value))
    ]
    if not above.issuperset(free):
        raise NotRecorded("the new value depends on one that the old value does not")
    return free


def _fillings(
    roots: Sequence[SSAValue], program: Program, recording: Recording, points: Sequence[float]
) -> Iterator[tuple[Given, bool]]:
    """Yield values of the operands, and whether their finite numbers are of moderate size."""
    plain = {root: recording.value(root) for root in roots}
    sizes = [value.numel() for value in plain.values()]
    if not sizes or not min(sizes):
        return
    ordinary = {
        root: _admitted(torch.linspace(-2, 2, value.numel()).tolist(), root, value, program)
        for root, value in plain.items()
    }
    for at, (root, value) in enumerate(plain.items()):
        for number in (NAN, INF, -INF):  # One among ordinary numbers.
            flat = ordinary[root].flatten().clone()
            flat[-1 - at % len(flat)] = number
            yield {**ordinary, root: _admitted(flat.tolist(), root, value, program)}, True
    for numbers, is_moderate in ((MODERATE, True), ((*LARGE, *sorted({*points})), False)):
        for turn in range(max(math.ceil(len(numbers) / max(sizes)), 2 * (len(sizes) > 1))):
            given: dict[SSAValue, Tensor] = {}
            for at, (root, value) in enumerate(plain.items()):
                start = turn * max(sizes) + at * (2 * turn + 1)
                line = [numbers[(start + i) % len(numbers)] for i in range(value.numel())]
                given[root] = _admitted(line, root, value, program)
            yield given, is_moderate


def _admitted(numbers: list[float], root: SSAValue, like: Tensor, program: Program) -> Tensor:
    """Return the numbers as a tensor; numbers outside the value's interval are replaced."""
    held = interval(root, program)
    low, high = float(held.low), float(held.high)
    made = torch.tensor(numbers, dtype=torch.float64).reshape(like.shape)
    if program.context.option("numerics") == "finite":
        made = made.nan_to_num(1.0, 1.0, 1.0)
    made = made if held.nan else made.nan_to_num(min(max(0.0, low), high), INF, -INF)
    return torch.where(made.isnan(), made, made.clamp(low, high)).to(like.dtype)


def _edges(change: Change) -> Iterator[float]:
    """Yield a number from each range of finite operands where an engine deviates from PyTorch."""
    for wanted in change.operands:
        if wanted is not None and math.isfinite(wanted[0]) and wanted[0] < wanted[1]:
            yield wanted[0] / 2 + wanted[1] / 2


def _apart(before: Tensor, after: Tensor) -> Tensor:
    """Return a mask of the elements in which two tensors have different classes (NaN, ±∞, finite),
    or finite numbers that are far apart.
    """
    a, b = before.double(), after.double()
    finite = a.isfinite() & b.isfinite()
    far = (a - b).abs() > FAR_OFF * a.abs() + FAR_OFF
    return torch.where(finite, far, (a != b) & ~(a.isnan() & b.isnan()))


def _classes(value: Tensor) -> Tensor:
    """Return 0 for NaN, 1 for infinity, 2 for −infinity, 3 for other numbers."""
    wide = value.double()
    return torch.where(wide.isnan(), 0, torch.where(wide.isfinite(), 3, (wide < 0) + 1))


def _first(where: Tensor) -> tuple[int, ...]:
    return tuple(where.nonzero()[0].tolist())


def _word(number: Tensor) -> str:
    return "NaN" if bool(number.isnan()) else f"{float(number):.6g}"


def _words(values: Sequence[Any], at: tuple[int, ...], shape: torch.Size) -> str:
    """Describe the operands of an element: `NaN and 1.5`, `numbers with inf among them`."""
    said: list[str] = []
    for value in values:
        if not isinstance(value, Tensor):
            continue
        if value.shape == shape:
            said.append(_word(value[at]))
        else:
            odd = value[~value.isfinite()] if value.is_floating_point() else value[:0]
            among = f" with {_word(odd.flatten()[0])} among them" if odd.numel() else ""
            said.append(f"numbers{among}")
    return " and ".join(said)

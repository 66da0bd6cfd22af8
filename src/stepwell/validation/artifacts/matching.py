"""Match the values of an artifact with those of its source, by their fingerprints.

Values inside a fused or folded operator have no counterpart in the artifact, but its result has
one. So a value of the source is *lost* only if neither it nor any value computed from it is in the
artifact. The first lost value is where both programs part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import MutateInputOp, UpdateOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.diagnostics import op_name
from stepwell.ir.dtypes import f64
from stepwell.ir.types import TensorType, element
from stepwell.validation.artifacts.fingerprints import Call, Fingerprint, precision
from stepwell.validation.rounding import MARGIN

FEW, NEAREST = 16, 8
"""The number of statistics by which candidates are chosen, and of candidates that are compared."""
LEAST = 1e-6
"""The difference that is always allowed, relative to the largest number of a value."""
ALIKE = 0.05
"""The relative difference up to which values at the same place of both programs are taken for the
same value, computed in another way."""
APART = 8.0
"""The factor of what rounding explains from which such values differ."""
FUSED = frozenset(
    "batch_norm clamp hardtanh hardtanh_ relu relu6 relu_ quantize_per_channel quantize_per_tensor "
    "dequantize_per_channel dequantize_per_tensor".split()
)
"""Operators that engines fuse with the one before."""
AFFINE = frozenset(("add", "sub", "mul", "div"))
"""Operators that engines fold into the weights before, if one operand is constant."""


@dataclass(frozen=True)
class Nearest:
    """A value of the artifact, and the largest difference of its numbers from another value's."""

    value: SSAValue
    distance: float


@dataclass
class Correspondence:
    """The values of a source that have counterparts in an artifact.

    Attributes:
        source, artifact: the interpreted calls.
        tolerances: for each value of the source, the difference that rounding explains.
        local: whether the source was computed with the artifact's numbers.
        found: for each value of the source, the values of the artifact that are equal to it.
        nearest: for other values, the nearest of as many numbers.
    """

    source: Call
    artifact: Call
    tolerances: Mapping[SSAValue, float]
    local: bool = False
    found: dict[SSAValue, list[SSAValue]] = field(default_factory=dict[SSAValue, list[SSAValue]])
    nearest: dict[SSAValue, list[Nearest]] = field(default_factory=dict[SSAValue, list[Nearest]])

    @cached_property
    def images(self) -> Mapping[SSAValue, set[SSAValue]]:
        """For each matched value of the artifact, the values of the source that are equal to it."""
        images: dict[SSAValue, set[SSAValue]] = defaultdict(set)
        for value, others in self.found.items():
            for other in others:
                images[other].add(value)
        return images

    @cached_property
    def lost(self) -> set[SSAValue]:
        """The values of the source such that nothing computed from them is in the artifact."""
        lost, live = set[SSAValue](), set[SSAValue]()
        for op in reversed([*self.source.func.walk()]):
            for value in op.results:
                users = [use.operation for use in value.uses]
                is_observed = any(isinstance(u, ReturnOp | UpdateOp | MutateInputOp) for u in users)
                later = [r for user in users for r in user.results if r in live]
                if not is_observed and not later and not any(user.regions for user in users):
                    continue
                live.add(value)
                is_unknown = value not in self.nearest and (is_observed or value in self.found)
                if not is_unknown and (is_observed or all(r in lost for r in later)):
                    lost.add(value)
        return lost & self.nearest.keys()

    @property
    def covered(self) -> int:
        """The number of values that are in the artifact, or inside an operator whose result is."""
        return len(self.found) + sum(value not in self.lost for value in self.nearest)


def tolerances(source: Call, noisy: Iterable[Call]) -> dict[SSAValue, float]:
    """Return the difference of each value that rounding explains.

    Args:
        source: the call without noise.
        noisy: the same call with noise in every float.
    """
    allowed = {value: _least(value) * held.scale for value, held in source.prints.items()}
    for call in noisy:
        for value, held in call.prints.items():
            if (exact := source.prints.get(value)) is not None and exact.count == held.count:
                allowed[value] = max(allowed[value], MARGIN * exact.distance(held))
    return allowed


def _least(value: SSAValue) -> float:
    is_double = isinstance(value.type, TensorType) and element(value.type) == f64
    return precision(torch.float64, LEAST) if is_double else LEAST


def correspond(
    source: Call, artifact: Call, allowed: Mapping[SSAValue, float], *, local: bool = False
) -> Correspondence:
    """Match the values of two programs that were called with the same inputs."""
    matched = Correspondence(source, artifact, allowed, local)
    groups: dict[int, list[SSAValue]] = defaultdict(list)
    for value, held in artifact.prints.items():
        groups[held.count].append(value)
    tables = {
        count: torch.stack([_statistics(artifact.prints[value]) for value in values])
        for count, values in groups.items()
    }
    for value, held in source.prints.items():
        near: list[Nearest] = []
        if (values := groups.get(held.count)) is not None:
            apart = (tables[held.count] - _statistics(held)).abs().amax(1)
            order = apart.argsort(stable=True).tolist()
            within = int((apart <= allowed[value]).sum())
            near = [
                Nearest(values[at], held.distance(artifact.prints[values[at]]))
                for at in order[: max(within, NEAREST)]
            ]
        near.sort(key=lambda each: each.distance)
        if equal := [each.value for each in near if each.distance <= allowed[value]]:
            matched.found[value] = equal
        else:
            matched.nearest[value] = near
    return matched


def _statistics(held: Fingerprint) -> torch.Tensor:
    places = torch.linspace(0, len(held.numbers) - 1, FEW, dtype=torch.float64).long()
    return held.numbers[places]


@dataclass(frozen=True)
class Parting:
    """Where two programs part: operators of both that begin with the same values.

    Attributes:
        ops: the operators of the source, from the first one to the one whose result differs.
        value: the result that differs.
        by: the operators of the artifact that compute the nearest value at the same place.
        other: that value; None if the artifact has none.
        distance, allowed: the largest difference of the two, and what rounding explains.
    """

    ops: tuple[Operation, ...]
    value: SSAValue
    by: tuple[Operation, ...]
    other: SSAValue | None
    distance: float
    allowed: float


def parting(of: Correspondence, *, differ: bool) -> Parting | None:
    """Return the first place where the programs part, or None.

    Args:
        of: the matched values of a call.
        differ: whether the results of the call differ. If they do, a lost value is enough;
            otherwise only values at the same place that are alike, but differ, show a fault.
    """
    regions = _Regions(of)
    lost = of.lost
    for value in of.source.prints:
        if value not in of.nearest or not isinstance(value.owner, Operation):
            continue
        if differ and value in lost:
            return _best(of, regions, value)
        # A value that is not lost may be another one: constants are folded into operators before.
        if (of.local or value in lost) and (found := regions.alike(value)) is not None:
            return found
    return None


def _best(of: Correspondence, regions: _Regions, first: SSAValue) -> Parting:
    """Return the parting at the first lost value, or at a result of the operators that engines fuse
    with it: the nearest one to what the artifact computes first from the same values. If the
    artifact has none, it is the next lost value that has a counterpart.
    """
    _, ends = regions.above(first)
    others = regions.beside(ends)
    makers = {other.owner for other in others}
    earliest = [o for o in others if not (regions.made(o)[0] - {o.owner}) & makers]

    def pairs(value: SSAValue) -> list[tuple[float, SSAValue, SSAValue]]:
        held = of.source.prints[value]
        apart = {other: of.artifact.prints[other] for other in earliest}
        same = [other for other, print_ in apart.items() if print_.count == held.count]
        return [(held.distance(apart[o]) / max(held.scale, 1e-30), value, o) for o in same]

    near = [pair for value in fused(of, first) for pair in pairs(value)]
    lost = [v for v in of.source.prints if v in of.lost and regions.above(v)[1] == ends]
    near = near or next(filter(None, map(pairs, lost)), [])
    if not near:
        ops, _ = regions.above(first)
        by = regions.made(earliest[0])[0] if earliest else set[Operation]()
        allowed = of.tolerances[first]
        return Parting(_in_order(ops), first, _in_order(by), None, torch.inf, allowed)
    share, value, other = min(near, key=lambda pair: pair[0])
    return regions.parting(value, other, share * max(of.source.prints[value].scale, 1e-30))


def fused(of: Correspondence, value: SSAValue) -> list[SSAValue]:
    """Return a lost value, and those that engines compute in the same operator as it."""
    chain = [value]
    while len(users := {use.operation for use in chain[-1].uses}) == 1:
        user = users.pop()
        if user.results and user.results[0] in of.lost and _is_fused(of, user):
            chain.append(user.results[0])
        else:
            break
    return chain


def _is_fused(of: Correspondence, op: Operation) -> bool:
    """Whether engines fuse an operator with the one before: a movement, an activation of the
    rectifier's kind, or an affine function of constant numbers for each channel.
    """
    if is_of(op, "movement", "cast"):
        return True
    name = op_name(op).split(".")[1]
    varying = [operand for operand in op.operands if operand in of.source.prints]
    return name in FUSED or (name in AFFINE and len(varying) == 1)


def _in_order(ops: set[Operation]) -> tuple[Operation, ...]:
    if not ops:
        return ()
    block = next(iter(ops)).parent
    places = {op: at for at, op in enumerate(block.ops)} if isinstance(block, Block) else {}
    return tuple(sorted(ops, key=lambda op: places.get(op, len(places))))


@dataclass
class _Regions:
    """For each value, the operators that compute it from matched values."""

    of: Correspondence
    _made: dict[SSAValue, tuple[set[Operation], frozenset[SSAValue]]] = field(
        default_factory=dict[SSAValue, tuple[set[Operation], frozenset[SSAValue]]]
    )
    _beside: dict[frozenset[SSAValue], list[SSAValue]] = field(
        default_factory=dict[frozenset[SSAValue], list[SSAValue]]
    )

    def above(self, value: SSAValue) -> tuple[set[Operation], frozenset[SSAValue]]:
        """Return the operators between matched values of the source and a value, and the former."""
        return self._up(value, self.of.found)

    def made(self, value: SSAValue) -> tuple[set[Operation], frozenset[SSAValue]]:
        """Return the operators between matched values of the artifact and a value, and the
        former.
        """
        return self._up(value, self.of.images)

    def _up(
        self, value: SSAValue, matched: Mapping[SSAValue, object]
    ) -> tuple[set[Operation], frozenset[SSAValue]]:
        if value not in self._made:
            ops, ends, seen, waiting = set[Operation](), set[SSAValue](), {value}, [value]
            while waiting:
                at = defined(waiting.pop())
                if at is not value and at in matched:
                    ends.add(at)
                    continue
                owner = at.owner
                if not isinstance(owner, Operation):
                    ends.add(at)
                    continue
                ops.add(owner)
                for read in _reads(owner):
                    if read not in seen:
                        seen.add(read)
                        waiting.append(read)
            self._made[value] = ops, frozenset(ends)
        return self._made[value]

    def beside(self, ends: frozenset[SSAValue]) -> list[SSAValue]:
        """Return the values of the artifact that equal no value of the source and are computed
        from the same matched values, those of the source, alone.
        """
        if ends not in self._beside:
            self._beside[ends] = [
                other
                for other in self.of.artifact.prints
                if other not in self.of.images
                and isinstance(other.owner, Operation)
                and defined(other) is other
                and self._same(ends, self.made(other)[1])
            ]
        return self._beside[ends]

    def parting(self, value: SSAValue, other: SSAValue, distance: float) -> Parting:
        """Return the parting at a value of the source and one of the artifact."""
        ops, by = self.above(value)[0], self.made(other)[0]
        allowed = self.of.tolerances[value]
        return Parting(_in_order(ops), value, _in_order(by), other, distance, allowed)

    def _same(self, ends: frozenset[SSAValue], others: frozenset[SSAValue]) -> bool:
        """Whether matched values of both programs are the same values."""
        ends = frozenset(end for end in ends if end in self.of.source.prints)
        others = frozenset(other for other in others if other in self.of.artifact.prints)
        images = [self.of.images.get(other, set()) for other in others]
        return bool(ends) and (
            all(not ends.isdisjoint(image) for image in images) and ends <= set().union(*images)
        )

    def _is_rounded(self, value: SSAValue) -> bool:
        """Whether a value is only read inside an operator of integers, which rounds its result."""
        if value in self.of.found:
            return False
        users = [use.operation for use in value.uses]
        return bool(users) and all(
            "quantize" in user.name
            or (len(user.results) == 1 and self._is_rounded(user.results[0]))
            for user in users
        )

    def alike(self, value: SSAValue) -> Parting | None:
        """Return the parting at a value that has a counterpart at the same place of the artifact,
        alike, but differing by more than rounding explains; None if there is none.
        """
        if self._is_rounded(value):
            return None
        _, ends = self.above(value)
        allowed, held = self.of.tolerances[value], self.of.source.prints[value]
        prints = self.of.artifact.prints
        near = [
            (held.distance(prints[other]), other)
            for other in self.beside(ends)
            if prints[other].count == held.count
        ]
        apart, alike = (2.0, 0.5) if self.of.local else (APART, ALIKE)
        near = [one for one in near if apart * allowed < one[0] <= alike * held.scale]
        if not near:
            return None
        distance, other = min(near, key=lambda one: one[0])
        return self.parting(value, other, distance)


def _reads(op: Operation) -> list[SSAValue]:
    """Return the values that an operator reads, from outside its regions."""
    inner = {value for part in op.walk() for value in part.results} if op.regions else set()
    blocks = [block for region in op.regions for block in region.blocks]
    inner |= {argument for block in blocks for argument in block.args}
    return [value for part in op.walk() for value in part.operands if value not in inner]


def defined(value: SSAValue) -> SSAValue:
    """Return the value inside, or outside, a delegate that is the same as this one."""
    while True:
        owner = value.owner
        if isinstance(owner, Operation):
            if not is_delegate(owner):
                return value
            last = owner.regions[0].block.last_op
            assert last is not None
            value = last.operands[next(i for i, r in enumerate(owner.results) if r is value)]
        else:
            parent = owner.parent_op()
            if parent is None or not is_delegate(parent):
                return value
            value = parent.operands[next(i for i, a in enumerate(owner.args) if a is value)]


def is_delegate(op: Operation) -> bool:
    """Whether an op is a delegate whose payload was read."""
    return op.name.endswith(".delegate") and bool(op.regions)

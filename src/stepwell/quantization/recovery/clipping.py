"""Clipping search: narrower ranges of activations, where finer steps gain more than clipping loses.

Calibration sets a range to the observed values. If a few numbers, or the fill value of a mask, are
far from all others, most integers are unused. All attention scores are then only a few steps apart,
although attention depends on the largest scores. Each end of each range is tried at fractions of
its value. The criterion is the divergence from the float model with only the values of that range
quantized. No operator is added, and no file grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects.aten.attributes import attribute
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.diagnostics import StepwellError, op_name
from stepwell.quantization.recovery.scales import biases_of, requantize, rescale
from stepwell.quantization.recovery.weights import Weights
from stepwell.quantization.sensitivity.attribution import estimates
from stepwell.quantization.sensitivity.metrics import Batch
from stepwell.quantization.sensitivity.quantization_points import (
    DEQUANTIZES,
    QUANTIZES,
    Quantized,
    Site,
)
from stepwell.quantization.sensitivity.replay import Playback, divergences

PARTS = (0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.06, 0.03)
"""Fractions of a range's end that are tried."""
WINS = 0.9
"""A narrower range is taken if the divergence falls below this part of its previous value."""
LOOKED_AT = 2
"""Number of batches for trying ranges."""
MOST = 24
"""Number of ranges that are tried: those whose users rank first by gradients."""
FIXED = (2.0**-8, 2.0**-7, 2.0**-16, 2.0**-15)
"""Scales that int8 and int16 kernels of bounded functions have built in."""


@dataclass(frozen=True)
class Ends:
    """The smallest and the largest number that a scale and a zero point represent."""

    low: float
    high: float

    def narrowed(self, end: str, part: float) -> Ends:
        """Return a range with one end, or both, multiplied by a fraction."""
        low, high = (part if end in (which, "both") else 1.0 for which in ("low", "high"))
        return Ends(self.low * low, self.high * high)


@dataclass(frozen=True, eq=False)
class Range:
    """A static activation range: the quantize and dequantize ops that share scale and zero point.

    Attributes:
        casts: the ops' numbers in the method, in program order.
        first: the first quantize op.
    """

    casts: tuple[int, ...]
    first: SchemaOp

    @cached_property
    def limits(self) -> tuple[int, int]:
        """Return the smallest and the largest integer."""
        return self.first.arg("quant_min"), self.first.arg("quant_max")

    @property
    def is_symmetric(self) -> bool:
        """Whether zero is the middle of the range, as some kernels require."""
        return self.first.arg("zero_point") == 0

    @cached_property
    def ends(self) -> Ends:
        """Return the smallest and the largest number that the current scale represents."""
        scale, zero = self.first.arg("scale"), self.first.arg("zero_point")
        low, high = ((limit - zero) * scale for limit in self.limits)
        return Ends(low, high)

    def sides(self) -> tuple[str, ...]:
        """Return the ends of the range that can be tried separately."""
        if self.is_symmetric:
            return ("both",)
        return tuple(s for s, end in zip(("low", "high"), (self.ends.low, self.ends.high),
                                         strict=True) if end)  # fmt: skip

    def scale_and_zero(self, ends: Ends) -> tuple[float, int]:
        """Return scale and zero point of a range with these ends; zero stays representable."""
        least, largest = self.limits
        if self.is_symmetric:
            return self.first.arg("scale") * ends.high / self.ends.high, 0
        scale = (ends.high - ends.low) / (largest - least)
        return scale, min(max(round(least - ends.low / scale), least), largest)


def clipped(weights: Weights, batches: Sequence[Batch]) -> Weights:
    """Narrow the ranges of activations where that reduces the loss; weights are unchanged.

    Raises:
        StepwellError: no activation of the program has a static scale.
    """
    pair, looked_at = weights.pair, batches[:LOOKED_AT]
    casts = list(casts_of(pair))
    readers = {r: _readers(pair.sites, values_of(casts, r)) for r in ranges_of(casts, pair)}
    if not readers:
        raise StepwellError(
            "the recovery method 'clipping' chooses static ranges of activations, but the "
            "program has none",
            help='quantize="int8"',
        )
    ranked = estimates(pair, looked_at[:1])
    ranges = sorted(readers, key=lambda one: -max((ranked[s] for s in readers[one]), default=0.0))
    chosen = {one: one.ends for one in ranges[:MOST] if readers[one]}
    least = _divergences(weights, chosen, looked_at)
    for side in ("low", "high", "both"):
        start = dict(chosen)
        for part in PARTS:
            tried = {r: ends.narrowed(side, part) for r, ends in start.items() if side in r.sides()}
            for one, lost in _divergences(weights, tried, looked_at).items():
                if lost < WINS * least[one]:
                    chosen[one], least[one] = tried[one], lost
    wanted = {r: ends for r, ends in chosen.items() if ends != r.ends}
    return weights.moved(with_ranges(pair, wanted))


def _divergences(
    weights: Weights, ends: Mapping[Range, Ends], batches: Sequence[Batch]
) -> dict[Range, float]:
    """Return the divergence from the float model when only the values of one range are
    quantized.
    """
    if not ends:
        return {}
    pair = with_ranges(weights.pair, ends)
    casts = list(casts_of(pair))
    ways = {one: partial(Playback.quantizing, quantized=values_of(casts, one)) for one in ends}
    return divergences(pair, batches, ways)


def with_ranges(original: Quantized, ends: Mapping[Range, Ends]) -> Quantized:
    """Return the same program with other ranges of activations.

    The integers of a bias are adjusted: their scale is the input's scale times the weight's.
    """
    pair = replace(original, program=original.program.clone())
    casts = list(casts_of(pair))
    for one, asked in ends.items():
        scale, zero = one.scale_and_zero(asked)
        for at in one.casts:
            casts[at].properties["scale"] = attribute(scale)
            casts[at].properties["zero_point"] = attribute(zero)
        for bias in _biases(pair.sites, values_of(casts, one)):
            rescale(pair, bias, scale / one.first.arg("scale"))
            requantize(pair, bias, scale / one.first.arg("scale"))
    return pair


def casts_of(pair: Quantized) -> Iterator[SchemaOp]:
    """Return the quantize and dequantize ops of activations with one static scale."""
    for op in pair.func.body.block.ops:
        if not isinstance(op, SchemaOp) or "per_tensor.default" not in op_name(op):
            continue
        if op_name(op).startswith(QUANTIZES) or (
            op_name(op).startswith(DEQUANTIZES) and _quantized(op.results[0]) is not None
        ):
            yield op


def _quantized(value: SSAValue) -> SchemaOp | None:
    """Return the quantize op of a dequantized activation."""
    owner = value.owner
    if not isinstance(owner, SchemaOp) or not op_name(owner).startswith(DEQUANTIZES):
        return None
    source = owner.operands[0].owner
    if not isinstance(source, SchemaOp) or not op_name(source).startswith(QUANTIZES):
        return None
    return source


def _grid(op: SchemaOp) -> tuple[Any, ...]:
    return tuple(op.arg(name) for name in ("scale", "zero_point", "quant_min", "quant_max"))


def ranges_of(casts: Sequence[SchemaOp], pair: Quantized) -> list[Range]:
    """Group quantize ops to ranges.

    Quantized operands and results of one op with an equal scale and zero point share a range.
    """
    number = {op: at for at, op in enumerate(casts)}
    leader = {op: op for op in casts}

    def leading(op: SchemaOp) -> SchemaOp:
        while leader[op] is not op:
            op = leader[op]
        return op

    def join(one: SchemaOp | None, other: SchemaOp | None) -> None:
        if one is None or other is None or one not in leader or other not in leader:
            return
        if _grid(one) == _grid(other):
            leader[leading(other)] = leading(one)

    for op in casts:
        join(op, _quantized(op.results[0]))
    for op in pair.func.body.block.ops:
        if op in number:
            continue
        ahead = [_quantized(value) for value in op.operands]
        around = [*ahead, *(user for result in op.results for user in _quantizes(result))]
        for first, second in combinations(around, 2):
            join(first, second)
    groups: dict[SchemaOp, list[SchemaOp]] = {}
    for op in casts:
        groups.setdefault(leading(op), []).append(op)
    return [
        Range(tuple(number[op] for op in ops), ops[0])
        for ops in groups.values()
        if ops[0].arg("scale") not in FIXED and len({_grid(op) for op in ops}) == 1
    ]


def _quantizes(value: SSAValue) -> list[SchemaOp]:
    users = [use.operation for use in value.uses]
    return [u for u in users if isinstance(u, SchemaOp) and op_name(u).startswith(QUANTIZES)]


def values_of(casts: Sequence[SchemaOp], one: Range) -> set[SSAValue]:
    """Return the results of the dequantize ops of a range."""
    ops = [casts[at] for at in one.casts]
    return {op.results[0] for op in ops if op_name(op).startswith(DEQUANTIZES)}


def _readers(sites: Sequence[Site], values: Set[SSAValue]) -> list[Site]:
    """Return the quantization points that read one of these values."""
    return [site for site in sites if not values.isdisjoint(site.op.operands)]


def _biases(sites: Sequence[Site], values: Set[SSAValue]) -> list[SchemaOp]:
    """Return the dequantize ops of the integer biases of layers that read one of these values."""
    return [bias for site in sites if site.op.operands[0] in values for bias in biases_of(site)]

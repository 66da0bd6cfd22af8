"""Decompose a transposed convolution with a scale per channel into parallel convolutions.

Vela fuses a CONV2D and the RESCALE after it into one operator. After a TRANSPOSE_CONV2D, a RESCALE
by channels is a product of int32 with as many factors, read from flash for each element: 92 160 of
98 727 cycles on a U55-128, for 1 440 results. With stride s, however, the results whose position
has the same remainder modulo s (a *phase*) are a convolution of the operand with some of the taps.
Phases of columns are the channels of one CONV2D, so that the columns are adjacent. Each phase of
rows has its own CONV2D, and their results are concatenated along the columns, which is row by row.
Missing taps are 0, padding is the operand's zero point: the sums are the same, and so is the
RESCALE.

rule transposed-by-phases
    A convolution of s · C channels for each of s rows.
Before:
    %c = tosa.transpose_conv2d(%x, %w, %b, %i, %k, out_pad=$out_pad, stride=$stride, …) : (…) -> tensor<$*S x i32>
    %y = tosa.rescale(%c, %m, %s, %z, %o, per_channel=true, …) : (…) -> tensor<$*S x $I>
After:
    %y = by_phases(%c, %y, $axes)
with $axes = axes_of(%c)
where reads_once(%c) for cost
for %w = weight : tensor<2 x 3 x 3 x 4 x i8>
for %b = weight : tensor<2 x i32>
for %m = weight : tensor<2 x i32>
for %s = weight : tensor<2 x i8>
for %i = weight : tensor<1 x i8>
for %k = weight : tensor<1 x i8>
for %z = weight : tensor<1 x i32>
for %o = weight : tensor<1 x i8>
for %x = "tensor<1x3x5x4xi8>", $S = [1, 6, 10, 2], $out_pad = [-1, 0, -1, 0], $stride = [2, 2], $I = i8, $acc_type = i32
for %k = "k#zeros", %z = "z#zeros", %s = "s#ones"
for $scale32 = true, $input_unsigned = false, $output_unsigned = false, $rounding_mode = "SINGLE_ROUND"
not for $stride = [1, 1], $S = [1, 4, 6, 2]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.types import element, is_static, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.lowerings.tosa.values import Value, concat
from stepwell.translate.rewrites.tosa.operators.building import Builder, i64s, shape_of
from stepwell.translate.rules import read_rules


@recipe("filter_of_phases")
def filter_of_phases(
    weight: torch.Tensor, *, stride: int, axis: int, phases: list[int], first: int, taps: int
) -> torch.Tensor:
    """Split the filter of a transposed convolution, `[outputs, rows, columns, inputs]`, along `axis`.

    The result, `[phases · outputs, …]`, has a filter of `taps` elements for each output pixel's
    remainder p modulo the stride (its phase). Element j of that filter is element
    `(first - j) · stride + p` of the original filter, or 0 outside it.
    """
    phase, tap = (torch.tensor(each, device=weight.device) for each in (phases, range(taps)))
    index = (first - tap) * stride + phase[:, None]
    held = (index >= 0) & (index < weight.shape[axis])
    parts = weight.index_select(axis, (index * held).flatten()).unflatten(axis, held.shape)
    shape = [1, *held.shape, *[1] * (weight.dim() - axis - 1)]
    return (parts * held.reshape([1] * (axis - 1) + shape)).movedim(axis, 0).flatten(0, 1)


@recipe("for_each_phase")
def for_each_phase(values: torch.Tensor, *, count: int) -> torch.Tensor:
    """Repeat the parameters of each channel for all phases."""
    return values.repeat(count)


@dataclass(frozen=True)
class Taps:
    """The operand pixels that the results of some phases read along an axis.

    Attributes:
        phases: remainders of the result's position, less the amount removed at the begin.
        first: the last pixel that is read, relative to the result's position.
        count: the number of pixels that are read.
        behind: padding after the operand.
    """

    phases: tuple[int, ...]
    first: int
    count: int
    behind: int


@dataclass(frozen=True)
class PhaseAxis:
    """An axis of a transposed convolution: pixels, results, and results before the first tap."""

    held: int
    made: int
    kernel: int
    stride: int
    lead: int

    @property
    def pixels(self) -> int:
        """Return the number of results of each phase."""
        return -(-self.made // self.stride)

    def taps(self, phases: Sequence[int]) -> Taps:
        """Return the operand pixels that some phases read: at least one tap, possibly a zero
        tap.
        """
        places = tuple(phase - self.lead for phase in phases)
        first = max(0, *((self.kernel - 1 - place) // self.stride for place in places))
        more = self.pixels - self.held
        last = min(first, more, *(-(place // self.stride) for place in places))
        return Taps(places, first, first - last + 1, more - last)


def axes_of(convolution: SSAValue) -> tuple[PhaseAxis, PhaseAxis] | None:
    """Return the row and column axes, if the kernel is constant and there are several phases."""
    op = cast("t.TransposeConv2dOp", convolution.owner)
    if not is_static(op.operands[0].type) or weight_key(op.operands[1]) is None:
        return None
    (_, *held, _), (_, *made, _) = shape_of(op.operands[0]), shape_of(convolution)
    (_, *kernel, _), lists = shape_of(op.operands[1]), (ints(op.stride), ints(op.out_pad)[::2])
    rows, columns = (PhaseAxis(*each) for each in zip(held, made, kernel, *lists, strict=True))
    return (rows, columns) if rows.stride * columns.stride > 1 else None


def by_phases(
    rw: Rewriter, convolution: SSAValue, result: SSAValue, axes: tuple[PhaseAxis, PhaseAxis]
) -> SSAValue:
    """Build the rescaled rows of each phase and interleave them."""
    rows, columns = axes
    batch, height, width, channels = shape_of(result)
    across, b = columns.taps(range(columns.stride)), Builder(rw)
    parts = [
        _phase(b, convolution, result, axes, (rows.taps([at]), across)) for at in range(rows.stride)
    ]
    y = concat(parts, 2) if len(parts) > 1 else parts[0]
    y = y.reshape(batch, rows.pixels * rows.stride, columns.pixels * columns.stride, channels)
    return y.narrow(1, 0, height).narrow(2, 0, width).ssa


def _phase(
    b: Builder,
    convolution: SSAValue,
    result: SSAValue,
    axes: tuple[PhaseAxis, PhaseAxis],
    taps: tuple[Taps, Taps],
) -> Value:
    """Build the rows of a phase with all columns, which are adjacent as channels."""
    op, rescale = convolution.owner, result.owner
    assert isinstance(op, t.TransposeConv2dOp) and isinstance(rescale, t.RescaleOp)
    x, weight, bias, *zeros = (Value(operand, b) for operand in op.operands)
    for at, (axis, own) in enumerate(zip(axes, taps, strict=True), 1):
        part = {"phases": list(own.phases), "first": own.first, "taps": own.count}
        weight = weight.derived("filter_of_phases", axis=at, stride=axis.stride, **part)
    batch, *_, channels = shape_of(result)
    count, (down, across) = axes[1].stride, taps
    shape = (batch, axes[0].pixels, axes[1].pixels, count * channels)
    lists = {
        "pad": (down.first, down.behind, across.first, across.behind),
        "stride": (1, 1),
        "dilation": (1, 1),
    }
    integer = element(convolution.type)
    sums = x.made(
        t.Conv2dOp,
        shape,
        weight,
        _each(bias, channels, count),
        *zeros,
        dtype=integer,
        acc_type=integer,
        **{name: i64s(values) for name, values in lists.items()},
    )
    factors = [_each(Value(value, b), channels, count).ssa for value in rescale.operands[1:3]]
    typed = tensor(shape, element(result.type))
    new = remade(rescale, [sums.ssa, *factors, *rescale.operands[3:]], [typed])
    return Value(b.rw.insert(new).results[0], b)


def _each(value: Value, channels: int, count: int) -> Value:
    """Repeat per-channel parameters for all phases; shared parameters are unchanged."""
    if value.shape != (channels,):
        return value
    if value.key is None:
        return concat([value] * count, 0)
    return value.derived("for_each_phase", count=count)


(TransposedByPhases,) = RULES = read_rules(__doc__, globals())

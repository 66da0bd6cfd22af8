"""Move scales out of a convolution's computed filter until the filter is a constant.

StyleGAN scales the filter of each layer by a style, along its input channels, and normalizes it
along its output channels. Both may be done to the image instead:

    conv(x, W · s · t) = t · conv(s · x, W)    for s along input channels, t along output channels

The result is a convolution with a constant filter, which targets pack. With a filter computed at
run time ExecuTorch's kernel takes about a hundred times as long. A batch of styles is a filter for
each image, written as groups: `x[B, I, H, W]` as `[1, B·I, H, W]`, the filters `[B, O, I, h, w]` as
`[B·O, I, h, w]`. The rewrite restores the batch.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<5x3x1x1xf32>
    %f = aten.mul.Tensor(%w, %s) : (tensor<5x3x1x1xf32>, tensor<1x3x1x1xf32>) -> tensor<5x3x1x1xf32>
    %y = aten.convolution.default(%x, %f, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x4x4xf32>, tensor<5x3x1x1xf32>) -> tensor<1x5x4x4xf32>
After:
    %w = stepwell.weight <"w"> "parameter" : tensor<5x3x1x1xf32>
    %0 = aten.mul.Tensor(%x, %s) : (tensor<1x3x4x4xf32>, tensor<1x3x1x1xf32>) -> tensor<1x3x4x4xf32>
    %y = aten.convolution.default(%0, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x4x4xf32>, tensor<5x3x1x1xf32>) -> tensor<1x5x4x4xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims, element, is_static, tensor
from stepwell.translate.rewrites.building import axis, emit, emit_as, permute, view


@dataclass(frozen=True)
class Turned:
    """A factor of a filter, and the permutations between it and the filter, the last one first."""

    value: SSAValue
    orders: tuple[tuple[int, ...], ...] = ()

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Return the sizes after the permutations."""
        shape = dims(self.value.type)
        for order in reversed(self.orders):
            shape = (*[1] * (len(order) - len(shape)), *shape)
            shape = tuple(shape[at] for at in order)
        return shape

    def written(self, rw: Rewriter) -> SSAValue:
        """Build the factor with its axes in the order of the filter's."""
        value = self.value
        for order in reversed(self.orders):
            shape = dims(value.type)
            value = view(rw, value, (*[1] * (len(order) - len(shape)), *shape))
            value = permute(rw, value, order)
        return value


Scale = tuple[Turned, tuple[int, int]]
"""A factor, with the number of its images and of its channels, or one."""


@dataclass(frozen=True)
class ScaledFilter:
    """A convolution whose filter is a constant, scaled.

    Attributes:
        op: the convolution.
        filter: the constant, `[O, I, …]` or `[I, O, …]` where it is transposed.
        images: how many filters there are, one an image.
        inner: the scales along input channels.
        outer: the scales along output channels.
    """

    op: SchemaOp
    filter: Turned
    images: int
    inner: tuple[Scale, ...]
    outer: tuple[Scale, ...]


@dataclass(frozen=True)
class LiftScalesFromFilter(Rewrite[ScaledFilter]):
    """Move scales of a filter to the image and to the result."""

    name: ClassVar[str] = "lift-scales-from-filter"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ConvolutionDefault,)
    bound: ClassVar[Bound] = roundings("the image is scaled in place of the filter")
    deviation: ClassVar[Deviation | None] = REORDERED

    def match(self, op: SchemaOp, program: Program) -> ScaledFilter | Refusal | None:
        """Guards: a computed filter that is a constant under products, views and repetitions."""
        x, held = op.operands[:2]
        if not (is_static(x.type) and is_static(held.type)):
            return None
        found = scales_of(held)
        if found is None or not found[1]:
            return None
        base, scales = found
        sizes = [size for size in dims(held.type) if isinstance(size, int)]
        images = op.arg("groups")
        if images > 1 and (dims(x.type)[0] != 1 or sizes[0] % images):
            return Refusal("the filters are a group each, and the batch is more than one")
        one = [images, sizes[0] // images, *sizes[1:]]
        if tuple(one[1:]) != _without(base.shape, len(one) - 1):
            return Refusal("the constant in the filter is repeated along its channels")
        first, second = [images, one[1], 1], [images, 1, one[2]]
        outer_is_first = not op.arg("transposed")
        outer: list[Scale] = []
        inner: list[Scale] = []
        for scale in scales:
            shape = _aligned(scale.shape, one)
            if shape is None or prod(shape[3:]) != 1:
                return Refusal("a scale of the filter differs along its window")
            if _fits(shape[:3], first):
                (outer if outer_is_first else inner).append((scale, (shape[0], shape[1])))
            elif _fits(shape[:3], second):
                (inner if outer_is_first else outer).append((scale, (shape[0], shape[2])))
            else:
                return Refusal("a scale of the filter differs along both of its channels")
        return ScaledFilter(op, base, images, tuple(inner), tuple(outer))

    def build(self, match: ScaledFilter, rw: Rewriter) -> None:
        """Scale, convolve with the constant, scale, add the bias."""
        op, images = match.op, match.images
        x, result = op.operands[0], op.results[0]
        bias = op.operand("bias")
        x_dims, result_dims = dims(x.type), dims(result.type)
        batch = (images, *_split(x_dims, images)) if images > 1 else x_dims
        x = view(rw, x, batch)
        for scale in match.inner:
            x = _times(rw, x, _beside(rw, scale, x))
        base = view(rw, match.filter.written(rw), match.filter.shape[-len(x_dims) :])
        shape = (images, *_split(result_dims, images)) if images > 1 else result_dims
        late = bool(match.outer) or images > 1
        numbers = [op.arg(n) for n in ("stride", "padding", "dilation", "transposed")]
        new = aten.ConvolutionDefault.make(
            x,
            base,
            None if late else bias,
            *numbers,
            op.arg("output_padding"),
            1,
            result_types=[tensor(shape, element(result.type))],
        )
        if not late:
            rw.replace(op, [emit_as(rw, new, result)])
            return
        y = emit(rw, new)
        for scale in match.outer:
            y = _times(rw, y, _beside(rw, scale, y))
        y = view(rw, y, result_dims)
        if bias is not None:
            row = view(rw, bias, (1, *dims(bias.type), *[1] * (len(result_dims) - 2)))
            y = emit(rw, aten.AddTensor.make(y, row, result_types=[result.type]))
        rw.replace(op, [y])


def scales_of(value: SSAValue) -> tuple[Turned, list[Turned]] | None:
    """Return a constant and the factors that a filter multiplies it by; None if there is none."""
    scales: list[Turned] = []
    orders: tuple[tuple[int, ...], ...] = ()
    while weight_key(value) is None:
        owner = value.owner
        if isinstance(owner, aten.PermuteDefault):
            rank = len(dims(value.type))
            orders = (*orders, tuple(axis(number, rank) for number in owner.arg("dims")))
            value = owner.operands[0]
        elif isinstance(owner, aten.ViewDefault | aten.ExpandDefault):
            drops = len(dims(owner.operands[0].type)) > len(dims(value.type))
            if not _moves_ones(owner) or (orders and drops):
                return None
            value = owner.operands[0]
        elif isinstance(owner, aten.MulTensor):
            one, other = owner.operands
            if _size(one) < _size(other):
                one, other = other, one
            scales.append(Turned(other, orders))
            value = one
        else:
            return None
    return Turned(value, orders), scales


def _size(value: SSAValue) -> int:
    return prod(size for size in dims(value.type) if isinstance(size, int))


def _moves_ones(op: SchemaOp) -> bool:
    """Whether a view adds or drops leading axes of one, merges filters, or repeats nothing."""
    operand_dims, result_dims = dims(op.operands[0].type), dims(op.results[0].type)
    short = min(len(operand_dims), len(result_dims)) - 1
    return operand_dims[-short:] == result_dims[-short:] or _without(operand_dims) == _without(
        result_dims
    )


def _without(shape: Sequence[object], least: int = 0) -> tuple[object, ...]:
    """Return a shape without its leading ones, down to a minimum rank."""
    rest = list(shape)
    while len(rest) > least and rest and rest[0] == 1:
        rest.pop(0)
    return tuple(rest)


def _aligned(shape: Sequence[object], filters: Sequence[int]) -> list[int] | None:
    """Return a scale's shape aligned to `[images, O, I, …]`, where it broadcasts to it."""
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) == len(filters) - 1 and sizes[0] == filters[0] * filters[1] and filters[0] > 1:
        sizes = [filters[0], filters[1], *sizes[1:]]
    padded = [1] * (len(filters) - len(sizes)) + sizes
    return padded if len(padded) == len(filters) and _fits(padded, filters) else None


def _fits(shape: Sequence[int], into: Sequence[int]) -> bool:
    return all(one in (1, other) for one, other in zip(shape, into, strict=True))


def _split(shape: Sequence[object], images: int) -> tuple[int, ...]:
    channels, *space = [size for size in shape[1:] if isinstance(size, int)]
    return channels // images, *space


def _beside(rw: Rewriter, scale: Scale, x: SSAValue) -> SSAValue:
    """Return a scale as `[images, channels, 1, …]`, in the axis order of an image."""
    factor, shape = scale
    return view(rw, factor.written(rw), (*shape, *[1] * (len(dims(x.type)) - 2)))


def _times(rw: Rewriter, x: SSAValue, scale: SSAValue) -> SSAValue:
    return emit(rw, aten.MulTensor.make(x, scale, result_types=[x.type]))

"""Move scales out of a convolution's computed filter until the filter is a constant.

StyleGAN scales the filter of each layer by a style, along its input channels, and normalizes it
along its output channels. Both may be done to the image instead:

    conv(x, W · s · t) = t · conv(s · x, W)    for s along input channels, t along output channels

The result is a convolution with a constant filter, which targets pack. With a filter computed at
run time ExecuTorch's kernel takes about a hundred times as long. A batch of styles is a filter for
each image, written as groups: `x[B, I, H, W]` as `[1, B·I, H, W]`, the filters `[B, O, I, h, w]` as
`[B·O, I, h, w]`. The rewrite restores the batch afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import Dim, dims
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.building import axis


@dataclass(frozen=True)
class Turned:
    """A factor of a filter, and the permutations from the factor's axes to the filter's, the last
    one first.
    """

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

    def written(self, b: Rewriter) -> Value:
        """Build the factor with its axes in the filter's order."""
        value = Value(self.value, b)
        for order in reversed(self.orders):
            value = value.view(*[1] * (len(order) - value.rank), *value.shape).permute(order)
        return value


Scale = tuple[Turned, tuple[int, int]]
"""A factor, with the number of its images and of its channels, or one."""


@lowers(
    "aten.convolution.default",
    to="aten",
    bound=roundings("the image is scaled in place of the filter"),
    deviation=lambda op, program: REORDERED,
    unless=lambda op: weight_key(op.operands[1]) is not None,
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<5x3x1x1xf32>
    %f = aten.mul.Tensor(%w, %s) : (tensor<5x3x1x1xf32>, tensor<1x3x1x1xf32>) -> tensor<5x3x1x1xf32>
    %y = aten.convolution.default(%x, %f, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x4x4xf32>, tensor<5x3x1x1xf32>) -> tensor<1x5x4x4xf32>
    """,
)
def lift_scales_from_filter(
    x: Value, filter_: Value, bias: Value | None, *, op: SchemaOp, out: Out, b: Rewriter
) -> Value | None:
    """Scale an image, convolve it with a constant, scale the result, add the bias.

    A filter is `[O, I, …]`, or `[I, O, …]` where it is transposed; each image may have its own.
    """
    if not (x.is_static and filter_.is_static):
        return None
    found = scales_of(filter_.ssa)
    if found is None or not found[1]:
        return None
    (base, scales), images, sizes = found, op.arg("groups"), filter_.shape
    if images > 1 and (x.shape[0] != 1 or sizes[0] % images):
        refuse("each group has its own filter, and the batch size is not 1")
    one = [images, sizes[0] // images, *sizes[1:]]
    if tuple(one[1:]) != _without(base.shape, len(one) - 1):
        refuse("the constant factor of the filter is broadcast along its channels")
    outer, inner = _by_side(scales, one)
    if op.arg("transposed"):
        outer, inner = inner, outer
    if images > 1:
        x = x.view(images, *_split(x.shape, images))
    for scale in inner:
        x = x.call(aten.MulTensor, _for_images(scale, x))
    base = base.written(b).view(*base.shape[-x.rank :])
    late = bool(outer) or images > 1
    y = x.call(
        aten.ConvolutionDefault,
        base,
        None if late else bias,
        *(op.arg(name) for name in ("stride", "padding", "dilation", "transposed")),
        op.arg("output_padding"),
        1,
        shape=(images, *_split(out.shape, images)) if images > 1 else out.shape,
    )
    for scale in outer:
        y = y.call(aten.MulTensor, _for_images(scale, y))
    y = y.view(*out.shape)
    if bias is None or not late:
        return y
    return y.call(aten.AddTensor, bias.view(1, *bias.shape, *[1] * (y.rank - 2)))


def _by_side(scales: Sequence[Turned], filters: Sequence[int]) -> tuple[list[Scale], list[Scale]]:
    """Return the scales along the first and along the second channels of filters `[images, …]`."""
    first: list[Scale] = []
    second: list[Scale] = []
    for scale in scales:
        shape = _aligned(scale.shape, filters)
        if shape is None or prod(shape[3:]) != 1:
            refuse("a scale of the filter differs along its window")
        if _fits(shape[:3], [*filters[:2], 1]):
            first.append((scale, (shape[0], shape[1])))
        elif _fits(shape[:3], [filters[0], 1, filters[2]]):
            second.append((scale, (shape[0], shape[2])))
        else:
            refuse("a scale of the filter differs along both of its channels")
    return first, second


def scales_of(value: SSAValue) -> tuple[Turned, list[Turned]] | None:
    """Return the constant filter and its factors; None if the filter is not constant."""
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


def _for_images(scale: Scale, x: Value) -> Value:
    """Return a scale as `[images, channels, 1, …]`, in the axis order of an image."""
    factor, shape = scale
    return factor.written(x.b).view(*shape, *[1] * (x.rank - 2))


RULES = lowerings_of(__name__)

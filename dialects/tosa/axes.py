"""The axis maps of TOSA's operators. Operands that are shapes, zero points and tables have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import BlockScaledType
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.constants import shape_value
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.ir.axes.forms import (
    broadcast,
    concatenated,
    elementwise,
    mapped,
    moved,
    permuted,
    reduced,
    reshaped,
)
from stepwell.ir.axes.maps import All, Along, AxisMap, AxisRule, Links, Once, kept, maps
from stepwell.ir.declared.families import Family, belong
from stepwell.ir.types import dims

UNARY = (
    t.AbsOp, t.BitwiseNotOp, t.CeilOp, t.ClzOp, t.CosOp, t.ErfOp, t.ExpOp, t.FloorOp, t.IdentityOp,
    t.LogOp, t.LogicalNotOp, t.ReciprocalOp, t.RsqrtOp, t.SigmoidOp, t.SinOp, t.TanhOp,
)  # fmt: skip
"""Functions of one tensor with a result of the same type."""

BINARY = (
    t.AddOp, t.SubOp, t.PowOp, t.MaximumOp, t.MinimumOp, t.BitwiseAndOp, t.BitwiseOrOp,
    t.BitwiseXorOp, t.LogicalAndOp, t.LogicalOrOp, t.LogicalXorOp, t.LogicalLeftShiftOp,
    t.LogicalRightShiftOp, t.ArithmeticRightShiftOp, t.IntDivOp,
)  # fmt: skip
"""Functions of two tensors of one element type, which is the result's too."""

COMPARISONS = (t.EqualOp, t.GreaterOp, t.GreaterEqualOp)

ELEMENTWISE: tuple[type[TosaOp], ...] = (
    *UNARY, *BINARY, *COMPARISONS, t.CastOp, t.ClampOp, t.MulOp, t.NegateOp, t.RescaleOp,
    t.SelectOp, t.TableOp,
)  # fmt: skip
"""Operators that compute each element from the corresponding operand elements."""

DATA: dict[type[TosaOp], int] = {t.MulOp: 2, t.NegateOp: 1, t.RescaleOp: 1, t.TableOp: 1}
"""The number of leading data operands, if the rest are parameters."""

REDUCTIONS = (
    t.ReduceAllOp, t.ReduceAnyOp, t.ReduceMaxOp, t.ReduceMinOp, t.ReduceProductOp, t.ReduceSumOp,
)  # fmt: skip

FAMILIES: dict[Family, tuple[type[TosaOp], ...]] = {
    "elementwise": ELEMENTWISE,
    "comparison": COMPARISONS,
    "choice": (t.SelectOp,),
    "cast": (t.CastOp,),
    "reshape": (t.ReshapeOp, t.IdentityOp),
    "permutation": (t.TransposeOp,),
    "rearrangement": (t.ReverseOp,),
    "repetition": (t.TileOp,),
    "part": (t.SliceOp,),
    "join": (t.ConcatOp,),
    "lookup": (t.GatherOp,),
    "padding": (t.PadOp,),
    "reduction": (*REDUCTIONS, t.ArgMaxOp),
    "product": (
        t.MatMulOp, t.MatMulTOp, t.Conv2dOp, t.Conv3dOp, t.DepthwiseConv2dOp,
        t.TransposeConv2dOp,
    ),
    "write": (t.ScatterOp,),
}  # fmt: skip
for _family, _classes in FAMILIES.items():
    belong(_family, *(cls.name for cls in _classes))

_F = TypeVar("_F", bound=AxisRule)


def _maps(*classes: type[TosaOp]) -> Callable[[_F], _F]:
    return maps(*(cls.name for cls in classes))


def is_block_scaled(op: TosaOp) -> bool:
    """Whether an operand or result is block-scaled: its blocks run along the last axis."""
    for value in (*op.operands, *op.results):
        if type(getattr(value.type, "element_type", None)) is BlockScaledType:
            return True
    return False


@_maps(*ELEMENTWISE)
def _elementwise(op: TosaOp, result: int) -> AxisMap | None:
    if is_block_scaled(op):
        return None
    axes = elementwise(op, DATA.get(type(op)))
    if isinstance(op, t.RescaleOp) and op.per_channel.value.data:
        last: Links = (Along(len(axes.shape) - 1),)
        return mapped(op, axes.links[0], last, last)
    return axes


@_maps(*REDUCTIONS)
def _reduction(op: TosaOp, result: int) -> AxisMap | None:
    return mapped(op, reduced(len(dims(op.operands[0].type)), (_axis(op),), keep=True))


def _axis(op: TosaOp) -> int:
    return cast(Any, op.properties["axis"]).value.data


@_maps(t.ArgMaxOp)
def _argmax(op: t.ArgMaxOp, result: int) -> AxisMap | None:
    return mapped(op, reduced(len(dims(op.input.type)), (_axis(op),), keep=False))


@_maps(t.ConcatOp)
def _concat(op: t.ConcatOp, result: int) -> AxisMap | None:
    return mapped(op, *concatenated([dims(value.type) for value in op.operands], _axis(op)))


@_maps(t.ReverseOp)
def _reverse(op: t.ReverseOp, result: int) -> AxisMap | None:
    shape, axis = dims(op.input.type), _axis(op)
    size = shape[axis]
    turned = Along(axis, -1, size - 1) if isinstance(size, int) else All(axis)
    links = kept(len(shape))
    return mapped(op, (*links[:axis], turned, *links[axis + 1 :]))


@_maps(t.TransposeOp)
def _transpose(op: t.TransposeOp, result: int) -> AxisMap | None:
    return mapped(op, permuted(ints(op.perms)))


@_maps(t.ReshapeOp)
def _reshape(op: t.ReshapeOp, result: int) -> AxisMap | None:
    return mapped(op, reshaped(dims(op.input1.type), dims(op.output.type)))


@_maps(t.SliceOp)
def _slice(op: t.SliceOp, result: int) -> AxisMap | None:
    start = shape_value(op.start)
    return None if start is None or is_block_scaled(op) else mapped(op, moved(start))


@_maps(t.PadOp)
def _pad(op: t.PadOp, result: int) -> AxisMap | None:
    widths = shape_value(op.padding)
    if widths is None or is_block_scaled(op):
        return None
    return mapped(op, moved([-width for width in widths[::2]]))


@_maps(t.TileOp)
def _tile(op: t.TileOp, result: int) -> AxisMap | None:
    """Return the map of TILE: an axis of one element is broadcast; others are opaque if
    repeated.
    """
    input1_dims, made = dims(op.input1.type), dims(op.output.type)
    pairs = enumerate(zip(input1_dims, made, strict=True))
    return mapped(
        op,
        tuple(Along(a) if d == e else Once(a) if d == 1 else All(a) for a, (d, e) in pairs),
    )


@_maps(t.MatMulOp, t.MatMulTOp)
def _matmul(op: TosaOp, result: int) -> AxisMap | None:
    if is_block_scaled(op):
        return None
    batch = tuple(dims(value.type)[:1] for value in op.operands[:2])
    first, second = (broadcast(sizes, dims(op.results[0].type)[:1]) for sizes in batch)
    columns: Links = (All(), Along(2)) if isinstance(op, t.MatMulOp) else (Along(2), All())
    return mapped(op, (*first, Along(1), All()), (*second, *columns))


@_maps(t.Conv2dOp, t.DepthwiseConv2dOp)
def _convolution(op: TosaOp, result: int) -> AxisMap | None:
    kernel, image = dims(op.operands[1].type), dims(op.operands[0].type)
    pad, stride, dilation = (ints(op.properties[n]) for n in ("pad", "stride", "dilation"))
    each = isinstance(op, t.DepthwiseConv2dOp)
    sizes = kernel[:2] if each else kernel[1:3]
    windows: list[Along] = []
    for index, size in enumerate(sizes):
        if not isinstance(size, int):
            return None
        reach = (size - 1) * dilation[index] + 1
        windows.append(Along(1 + index, stride[index], -pad[2 * index], reach))
    channels = Along(3) if each and kernel[3] == 1 and image[3] == kernel[2] else All(3)
    outputs: Links = (Along(3), All(), All(), All())
    if each:
        outputs = (All(), All(), All(3), All(3))
    bias: Links = (Once(3) if dims(op.operands[2].type)[0] == 1 else Along(3),)
    return mapped(op, (Along(0), *windows, channels), outputs, bias)


@_maps(t.MaxPool2dOp, t.AvgPool2dOp)
def _pool(op: TosaOp, result: int) -> AxisMap | None:
    kernel, stride, pad = (ints(op.properties[name]) for name in ("kernel", "stride", "pad"))
    windows = (Along(1 + i, stride[i], -pad[2 * i], kernel[i]) for i in range(2))
    return mapped(op, (Along(0), *windows, Along(3)))

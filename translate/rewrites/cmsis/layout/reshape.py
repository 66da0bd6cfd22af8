"""Change the shape or the dimension order of quantized values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.ops import Pad, Transpose
from stepwell.dialects.cmsis.ops.layout import NCHW_TO_NHWC, NHWC_TO_NCHW
from stepwell.dialects.cmsis.ops.movement import pad_is_misread
from stepwell.dialects.quant import StorageCast, UniformQuantizedType
from stepwell.dialects.quant.types import storage_element
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import Dim, dims, element, tensor, with_element
from stepwell.translate.rewrites.building import view_op
from stepwell.translate.rewrites.quant.movement import moved, only_moves

SLICE = op_class("aten.slice.Tensor")


def raw(rw: Rewriter, value: SSAValue) -> SSAValue:
    """Return the stored integers of a quantized value."""
    held = element(value.type)
    assert isinstance(held, UniformQuantizedType)
    stored = with_element(value.type, storage_element(held.data))
    return rw.insert(StorageCast(value, stored)).results[0]


def moved_bytes(
    rw: Rewriter, value: SSAValue, cls: type[SchemaOp], shape: Sequence[Dim], **arguments: Any
) -> SSAValue:
    """Apply a data movement op to a quantized value's stored integers; keep its element type."""
    stored = raw(rw, value)
    result = tensor(shape, element(stored.type))
    made = rw.insert(cls.from_arguments({"self": stored, **arguments}, [result])).results[0]
    return rw.insert(StorageCast(made, tensor(shape, element(value.type)))).results[0]


def reshaped(rw: Rewriter, value: SSAValue, shape: Sequence[Dim]) -> SSAValue:
    """Reshape a quantized value by a view of its stored integers, which moves no data."""
    if tuple(shape) == dims(value.type):
        return value
    view = rw.insert(view_op(rw, raw(rw, value), shape))
    return rw.insert(StorageCast(view.results[0], tensor(shape, element(value.type)))).results[0]


def padded(
    rw: Rewriter, value: SSAValue, before: Sequence[int], after: Sequence[int], cell: int
) -> SSAValue:
    """Pad a quantized value around each dimension, in a form that the kernel reads correctly.

    The kernel misreads some rank-4 tensors as channels-last. Two dimensions of such a tensor are
    merged: dimension i and its unpadded neighbor i + 1 are padded as one dimension, by the amount
    times the neighbor's size.
    """
    shape = cast("tuple[int, ...]", dims(value.type))
    if not pad_is_misread(shape, before, after):
        return _pad(rw, value, before, after, cell)
    for axis in (1, 2, 3):
        if not before[axis] and not after[axis]:
            size = shape[axis]
            merged = [
                (*side[: axis - 1], side[axis - 1] * by, *side[axis + 1 :])
                for side, by in ((shape, size), (before, size), (after, size))
            ]
            flat = reshaped(rw, value, merged[0])
            grown = [s + b + a for s, b, a in zip(shape, before, after, strict=True)]
            return reshaped(rw, _pad(rw, flat, merged[1], merged[2], cell), grown)
    wider = padded(rw, value, (0, before[1], 0, 0), (0, after[1], 0, 0), cell)
    rest_before, rest_after = ((side[0], 0, side[2], side[3]) for side in (before, after))
    return padded(rw, wider, rest_before, rest_after, cell)


def _pad(
    rw: Rewriter, value: SSAValue, before: Sequence[int], after: Sequence[int], cell: int
) -> SSAValue:
    shape = cast("tuple[int, ...]", dims(value.type))
    grown = [s + b + a for s, b, a in zip(shape, before, after, strict=True)]
    lead = [0] * (4 - len(shape))
    op = Pad.make(
        value,
        result=tensor(grown, element(value.type)),
        pre_pad=[*lead, *before],
        post_pad=[*lead, *after],
        pad_value=cell,
    )
    return rw.insert(op).results[0]


def sliced(rw: Rewriter, value: SSAValue, dim: int, start: int, end: int) -> SSAValue:
    """Slice a quantized value along a dimension."""
    shape = list(dims(value.type))
    shape[dim] = end - start
    return moved_bytes(rw, value, SLICE, shape, dim=dim, start=start, end=end)


def transposed(rw: Rewriter, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """Permute the dimensions of a quantized value, or of its stored integers."""
    if list(order) == sorted(order):
        return value
    shape = dims(value.type)
    result_type = tensor([shape[axis] for axis in order], element(value.type))
    return rw.insert(Transpose.make(value, result=result_type, perm=list(order))).results[0]


def to_nhwc(rw: Rewriter, value: SSAValue) -> SSAValue:
    """Permute a value from NCHW to NHWC."""
    return transposed(rw, value, NCHW_TO_NHWC)


def to_nchw(rw: Rewriter, value: SSAValue) -> SSAValue:
    """Permute a value from NHWC to NCHW."""
    return transposed(rw, value, NHWC_TO_NCHW)


def permuted(
    rw: Rewriter, stored: SSAValue, quantized_type: UniformQuantizedType, order: Sequence[int]
) -> SSAValue:
    """Permute the dimensions of stored integers by transposing their quantized value."""
    typed = rw.insert(StorageCast(stored, with_element(stored.type, quantized_type))).results[0]
    return raw(rw, transposed(rw, typed, order))


def stored_type(value: SSAValue) -> UniformQuantizedType | None:
    """Return the quantized type of stored integers, found through data movement ops."""
    maker = value.owner
    if isinstance(maker, StorageCast):
        held = element(maker.input.type)
        return held if isinstance(held, UniformQuantizedType) else None
    if not (isinstance(maker, SchemaOp) and only_moves(maker)):
        return None
    stored_types = (
        stored_type(source) for _, source in moved(maker)
    )  # A constant does not state it.
    return next((held for held in stored_types if held is not None), None)

"""Changing the shape or the dimension order of quantised values."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.ops import Transpose
from stepwell.dialects.cmsis.ops.layout import NCHW_TO_NHWC, NHWC_TO_NCHW
from stepwell.dialects.quant import StorageCast, UniformQuantizedType
from stepwell.dialects.quant.types import storage_element
from stepwell.ir.rewriting import Rewriter
from stepwell.ir.types import Dim, dims, element, tensor

VIEW = op_class("aten.view.default")
SLICE = op_class("aten.slice.Tensor")


def reshaped(rw: Rewriter, value: SSAValue, shape: Sequence[Dim]) -> SSAValue:
    """A quantised value under another shape: a view of its stored integers, which moves nothing."""
    if tuple(shape) == dims(value.type):
        return value
    held = element(value.type)
    assert isinstance(held, UniformQuantizedType)
    stored = storage_element(held.data)
    raw = rw.insert(StorageCast(value, tensor(dims(value.type), stored))).results[0]
    view = rw.insert(
        VIEW.from_arguments({"self": raw, "size": list(shape)}, [tensor(shape, stored)])
    )
    return rw.insert(StorageCast(view.results[0], tensor(shape, held))).results[0]


def sliced(rw: Rewriter, value: SSAValue, dim: int, start: int, end: int) -> SSAValue:
    """Part of a quantised value along a dimension."""
    held = element(value.type)
    assert isinstance(held, UniformQuantizedType)
    stored = storage_element(held.data)
    shape = list(dims(value.type))
    raw = rw.insert(StorageCast(value, tensor(shape, stored))).results[0]
    shape[dim] = end - start
    arguments = {"self": raw, "dim": dim, "start": start, "end": end}
    part = rw.insert(SLICE.from_arguments(arguments, [tensor(shape, stored)]))
    return rw.insert(StorageCast(part.results[0], tensor(shape, held))).results[0]


def transposed(rw: Rewriter, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """A quantised value under permuted dimensions."""
    if list(order) == sorted(order):
        return value
    shape = dims(value.type)
    made = tensor([shape[axis] for axis in order], element(value.type))
    return rw.insert(Transpose.make(value, result=made, perm=list(order))).results[0]


def to_nhwc(rw: Rewriter, value: SSAValue) -> SSAValue:
    """NCHW → NHWC."""
    return transposed(rw, value, NCHW_TO_NHWC)


def to_nchw(rw: Rewriter, value: SSAValue) -> SSAValue:
    """NHWC → NCHW."""
    return transposed(rw, value, NHWC_TO_NCHW)

"""Bring operands of elementwise ops to one shape, as cheaply as the library allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.ops import Relabel
from stepwell.dialects.cmsis.ops.layout import NCHW_TO_NHWC, NHWC_TO_NCHW
from stepwell.dialects.quant import StorageCast
from stepwell.ir.core import weight_key
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import Dim, dims, element, is_static, tensor
from stepwell.translate.quantized.recognize import typed_weight
from stepwell.translate.rewrites.cmsis.layout.reshape import (
    moved_bytes,
    reshaped,
    to_nchw,
    to_nhwc,
)

EXPAND = op_class("aten.expand.default")


def is_along_channels(small: Sequence[Dim], large: Sequence[Dim]) -> bool:
    """Whether an operand has one number for each channel of an NCHW result."""
    if len(large) != 4 or large[1] == 1 or not isinstance(large[1], int):
        return False
    padded = [1] * (4 - len(small)) + list(small)
    return padded[1] == large[1] and all(padded[axis] == 1 for axis in (0, 2, 3))


def is_along_last(small: Sequence[Dim], large: Sequence[Dim]) -> bool:
    """Whether an operand has one number for each index of the result's last dimension."""
    return (
        bool(small)
        and len(large) > 1
        and small[-1] == large[-1] != 1
        and all(size == 1 for size in small[:-1])
        and all(isinstance(size, int) for size in large)
        and any(size != 1 for size in large[:-1])
    )


def rows_view(rw: Rewriter, value: SSAValue) -> SSAValue:
    """View a value as rows of channels, [1, C, rows, 1] in row-major memory."""
    shape = cast("tuple[int, ...]", dims(value.type))
    image = reshaped(rw, value, (1, math.prod(shape[:-1]), 1, shape[-1]))
    return _relabeled(rw, image, NHWC_TO_NCHW)


def from_rows_view(rw: Rewriter, value: SSAValue, shape: Sequence[Dim]) -> SSAValue:
    """Restore the shape from which `rows_view` made its view."""
    return reshaped(rw, _relabeled(rw, value, NCHW_TO_NHWC), shape)


def expanded(rw: Rewriter, value: SSAValue, shape: Sequence[Dim]) -> SSAValue:
    """Materialize the broadcast of a quantized value; at compile time if it is a constant."""
    value_dims = dims(value.type)
    if value_dims == tuple(shape):
        return value
    maker = value.owner
    key = weight_key(maker.input) if isinstance(maker, StorageCast) else None
    wanted = tensor(shape, element(value.type))
    if key is not None and is_static(wanted):
        derived = rw.weights.derive("cmsis.expand", [key], shape=list(shape))
        return typed_weight(rw, derived, wanted)
    squeezed = [d for d in shape if d != 1]
    if [d for d in value_dims if d != 1] == squeezed:
        return reshaped(rw, value, shape)
    return moved_bytes(rw, value, EXPAND, shape, size=list(shape))


def channels_last_view(rw: Rewriter, value: SSAValue) -> SSAValue:
    """Convert an NCHW value to NHWC memory, which the library's channel broadcast iterates over."""
    return _relabeled(rw, to_nhwc(rw, value), NHWC_TO_NCHW)


def channel_vector(rw: Rewriter, value: SSAValue, channels: int) -> SSAValue:
    """Return one number per channel in the shape of the channel broadcast: [1, C, 1, 1]."""
    return reshaped(rw, value, (1, channels, 1, 1))


def from_channels_last_view(rw: Rewriter, value: SSAValue) -> SSAValue:
    """Convert a value back to row-major NCHW."""
    return to_nchw(rw, _relabeled(rw, value, NCHW_TO_NHWC))


def _relabeled(rw: Rewriter, value: SSAValue, order: Sequence[int]) -> SSAValue:
    shape = dims(value.type)
    result_type = tensor([shape[axis] for axis in order], element(value.type))
    return rw.insert(Relabel.make(value, result=result_type, perm=list(order))).results[0]

"""Lowerings of MX layers to block-scaled operators; weights are cast at compile time.

With the form `operators`, a layer becomes `cast_to_block_scaled` and `matmul_t_block_scaled` (or
`conv2d_block_scaled`). With the form `types`, it becomes `cast`, `matmul_t` and `conv2d` on
block-scaled types, which may mix payloads; `types-bf16` lets `matmul_t` accumulate in bf16. An
activation that several layers read is cast once (by `share-common-subexpressions`).

A matrix product has no bias, so a bias is a separate ADD, unless it is zero. CONV2D_BLOCK_SCALED
has a bias, but requires rank 4 and its own extension, and does not support mxint8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from xdsl.ir import Attribute

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import BlockScaledType, BlockSizeAttr
from stepwell.dialects.tosa.codes import PAYLOAD_ELEMENTS, e8m0
from stepwell.dialects.tosa.constants import const_of_key
from stepwell.dialects.tosa_mxfp.numerics import cast_to_block_scaled
from stepwell.dialects.tosa_mxfp.operators import (
    OPERATORS,
    TYPES_BF16,
    form_refused,
    padding_to_block,
)
from stepwell.dialects.tosa_mxfp.payloads import BLOCK, PAYLOADS, payload_named
from stepwell.ir.dtypes import dtype_name, f16, f32, torch_dtype
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.ir.types import tensor
from stepwell.ir.weights import recipe
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.convolving import TO_NCHW, TO_NHWC
from stepwell.translate.lowerings.tosa.values import Value, concat, needs_known
from stepwell.translate.rewrites.tosa.operators.building import FLOATS, elements, i64s

OF_32 = BlockSizeAttr("BLOCK_SIZE_32")


@recipe("mx_codes")
def mx_codes(weight: torch.Tensor, *, payload: str) -> torch.Tensor:
    """Return the payload codes of a weight, blocks along its last axis, padded to whole blocks."""
    kind, extra = payload_named(payload), padding_to_block(weight.shape[-1])
    if weight.is_meta:
        shape = (*weight.shape[:-1], weight.shape[-1] + extra)
        return torch.empty(shape, dtype=kind.torch_dtype or torch.uint8, device="meta")
    codes = cast_to_block_scaled(F.pad(weight, (0, extra)), kind)[0]
    return codes if kind.torch_dtype is None else codes.view(kind.torch_dtype)


@recipe("mx_scales")
def mx_scales(weight: torch.Tensor, *, payload: str) -> torch.Tensor:
    """Return the scales of a weight's blocks."""
    kind, extra = payload_named(payload), padding_to_block(weight.shape[-1])
    if weight.is_meta:
        shape = (*weight.shape[:-1], (weight.shape[-1] + extra) // BLOCK)
        return torch.empty(shape, dtype=torch.float8_e8m0fnu, device="meta")
    scales = cast_to_block_scaled(F.pad(weight, (0, extra)), kind)[1]
    return scales.view(torch.float8_e8m0fnu)


@recipe("mx_cast")
def mx_cast(weight: torch.Tensor, *, dtype: str) -> torch.Tensor:
    """Return a weight cast to another float type."""
    return weight.to(getattr(torch, dtype))


Pair = tuple[Value, Value]
"""Data and scales."""


@lowers(
    "stepwell_mx.matmul_t.default",
    to="tosa",
    bound=EXACT,
    sample=("1x2x32xf32", "1x3x32xf32", "fp4e2m1", "fp4e2m1"),
)
def mx_matmul(
    x: Value, other: Value, payload: str, second: str, applied: str, *, out: Out
) -> Value:
    """Lower `stepwell_mx.matmul_t`: casts, the product, and a cast back for bf16 and fp16."""
    _needs_blocks(x, other)
    needs_known(x, (0,), "a batch")
    needs_known(other, (0,), "a batch")
    if {x.rank, other.rank} != {3}:
        refuse("MATMUL_T takes two batches of matrices")
    _needs_form(x, other, payload, second, applied)
    if x.shape[0] < other.shape[0]:
        # A single left matrix for many right ones: TOSA broadcasts the right side only.
        x = x.tile((other.shape[0], *x.shape[1:]))
    y = _product(x, other, payload, second, applied, out)
    return _as(y, out.dtype).reshape(*out.shape)


@lowers(
    "stepwell_mx.linear.default",
    to="tosa",
    bound=EXACT,
    sample=("2x32xf32", "3x32xf32", None, "fp8e4m3", "fp8e4m3"),
)
def mx_linear(
    x: Value,
    weight: Value,
    bias: Value | None,
    payload: str,
    second: str,
    applied: str,
    *,
    out: Out,
) -> Value:
    """Lower `stepwell_mx.linear`: casts, product, bias, and a cast back for bf16 and fp16."""
    _needs_blocks(x, weight)
    _needs_form(x, weight, payload, second, applied)
    shape, depth = x.shape, x.shape[-1]
    x = x.reshape(*(shape if x.rank == 3 else (1, elements(shape) // depth, depth)))
    weight = weight.reshape(1, *weight.shape)
    y = _product(x, weight, payload, second, applied, out)
    if bias is not None and not is_zero(bias):
        y = y + _as(bias, y.dtype).reshape(1, 1, weight.shape[1])
    return _as(y, out.dtype).reshape(*out.shape)


def _needs_blocks(x: Value, other: Value) -> None:
    """Refuse blocks along an axis of symbolic size."""
    for value in (x, other):
        needs_known(value, (-1,), "the axis of the blocks, of size")


def _needs_form(x: Value, other: Value, payload: str, second: str, form: str) -> None:
    """Refuse a form that TOSA does not have for these payloads and this element type."""
    if x.dtype not in FLOATS or other.dtype != x.dtype:
        refuse(f"TOSA has no MX product of {dtype_name(x.dtype)} by {dtype_name(other.dtype)}")
    if (refused := form_refused(form, payload, second, torch_dtype(x.dtype))) is not None:
        refuse(refused)


def _product(x: Value, other: Value, payload: str, second: str, form: str, out: Out) -> Value:
    """Return the MX product: MATMUL_T_BLOCK_SCALED, or MATMUL_T on block-scaled types, as `form`
    says.
    """
    b, shape = x.b, (*x.shape[:2], other.shape[1])
    if form == OPERATORS:
        left, *operands = (part for side in (x, other) for part in _cast(side, payload))
        return left.made(t.MatMulTBlockScaledOp, shape, *operands, dtype=f32, block_size=OF_32)
    left, right = _typed(x, payload), _typed(other, second)
    zero, summed = b.zero(f32), out.dtype if form == TYPES_BF16 else f32
    return left.made(t.MatMulTOp, shape, right, zero, zero, dtype=summed)


def is_zero(bias: Value) -> bool:
    """Whether a bias is known to be zeros; adding zeros changes no bit, since sums start at +0."""
    constant = bias.constant
    return constant is not None and not constant.is_meta and not bool(constant.any())


def _as(value: Value, attribute: Attribute) -> Value:
    """Cast a value to an element type; a constant is cast at compile time."""
    if value.dtype == attribute or value.key is None:
        return value.cast(attribute)
    return value.derived("mx_cast", dtype=str(torch_dtype(attribute))[6:])


def _padded(x: Value) -> Value:
    """Pad the last axis with zeros to whole blocks."""
    return x.pad([*[0] * (2 * x.rank - 1), padding_to_block(x.shape[-1])])


def _cast(x: Value, payload: str) -> Pair:
    """Return the data and scales of a value cast to MX; those of a weight are constants."""
    element, b = PAYLOAD_ELEMENTS[payload], x.b
    if x.key is not None:
        whole = (*x.shape[:-1], x.shape[-1] + padding_to_block(x.shape[-1]))
        store = b.rw.weights
        codes = store.derive("mx_codes", [x.key], payload=payload)
        scales = Value(b.weight(store.derive("mx_scales", [x.key], payload=payload)), b)
        if PAYLOADS[payload].torch_dtype is not None:
            return Value(b.weight(codes), b), scales
        constant = b.rw.insert(const_of_key(codes, tensor(whole, element)))
        return Value(constant.results[0], b), scales
    # CAST_TO_BLOCK_SCALED takes fp32 and bf16; every fp16 is exact in fp32.
    wide = _padded(_as(x, f32) if x.dtype == f16 else x)
    *outer, last = wide.shape
    types = [tensor(wide.shape, element), tensor((*outer, last // BLOCK), e8m0)]
    new = t.CastToBlockScaledOp.create(
        operands=[wide.ssa], result_types=types, properties={"block_size": OF_32}
    )
    codes, scales = b.rw.insert(new).results
    return Value(codes, b), Value(scales, b)


def _typed(x: Value, payload: str) -> Value:
    """Cast a value to a block-scaled type; a weight becomes a constant of that type."""
    block_scaled_type: Attribute = BlockScaledType(e8m0, PAYLOAD_ELEMENTS[payload])
    if x.key is None:
        return _padded(x).cast(block_scaled_type)
    whole = (*x.shape[:-1], x.shape[-1] + padding_to_block(x.shape[-1]))
    store = x.b.rw.weights
    codes = store.derive("mx_codes", [x.key], payload=payload)
    scales = store.derive("mx_scales", [x.key], payload=payload)
    new = x.b.rw.insert(const_of_key(codes, tensor(whole, block_scaled_type), scales))
    return Value(new.results[0], x.b)


@lowers(
    "stepwell_mx.quantize_dequantize.default",
    to="tosa",
    takes_symbols=False,
    bound=EXACT,
    sample=("2x32xf32", "fp4e2m1"),
)
def mx_quantize(x: Value, payload: str) -> Value:
    """Lower to CAST_TO_BLOCK_SCALED and CAST_FROM_BLOCK_SCALED of padded blocks, then crop."""
    if x.dtype not in FLOATS:
        refuse(f"TOSA has no MX cast of {dtype_name(x.dtype)}")
    codes, scales = _cast(x, payload)
    given = f32 if x.dtype == f16 else x.dtype
    y = codes.made(t.CastFromBlockScaledOp, codes.shape, scales, dtype=given, block_size=OF_32)
    return _as(y.narrow(x.rank - 1, 0, x.shape[-1]), x.dtype)


@lowers(
    "stepwell_mx.conv2d.default",
    to="tosa",
    takes_symbols=False,
    bound=EXACT,
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<8x32x3x3xf32>
    %y = stepwell_mx.conv2d.default(%x, %w, none, [1, 1], [0, 0], [1, 1], 1, "fp8e4m3", "fp8e4m3", "types") : (tensor<1x32x5x5xf32>, tensor<8x32x3x3xf32>) -> tensor<1x8x3x3xf32>
    """,
)
def mx_conv2d(
    x: Value, weight: Value, bias: Value | None, *, op: Any, out: Out, groups: int
) -> Value:
    """Lower to CONV2D_BLOCK_SCALED, or CONV2D of block-scaled types, one per group, in NHWC."""
    if x.dtype not in FLOATS:
        refuse(f"TOSA has no MX convolution of {dtype_name(x.dtype)}")
    payloads = op.arg("payload"), op.arg("weight_payload")
    refused = form_refused(op.arg("form"), *payloads, torch_dtype(x.dtype), True)
    if refused is not None:
        refuse(refused)
    if weight.key is None:
        refuse("the weight is computed at run time")
    ends = _ends(op, x, weight, out)
    image = x.permute(TO_NHWC)
    for axis, end in enumerate(ends, 1):
        if end < 0:
            # Drop rows or columns at the end that no window reads.
            image = image.narrow(axis, 0, image.shape[axis] + end)
    kernel = weight.permute(TO_NHWC)
    n, width = image.shape[0], kernel.shape[0]
    added = x.tensor(torch.zeros(width)) if bias is None else _as(bias, f32)
    shape = (n, *out.shape[2:], width // groups)
    parts: list[Value] = []
    for group in range(groups):
        operands = (
            image.part(3, group, groups),
            kernel.part(0, group, groups),
            added.part(0, group, groups),
        )
        parts.append(_convolved(op, *operands, ends, shape))
    y = parts[0] if groups == 1 else concat(parts, 3)
    return _as(y, out.dtype).permute(TO_NCHW)


def _convolved(
    op: Any, image: Value, weight: Value, bias: Value, ends: Sequence[int], shape: Sequence[int]
) -> Value:
    """Convolve one group: cast image and weight, convolve, add the bias."""
    payload, second, b = op.arg("payload"), op.arg("weight_payload"), image.b
    top, left = op.arg("padding")
    pad = (top, max(ends[0], 0), left, max(ends[1], 0))
    stride, dilation = list(op.arg("stride")), list(op.arg("dilation"))
    if op.arg("form") == OPERATORS:
        codes, *rest = (part for side in (image, weight) for part in _cast(side, payload))
        sizes = [b.sizes(values) for values in (pad, stride, dilation)]
        operands = (*rest, bias, *sizes)
        return codes.made(t.Conv2dBlockScaledOp, shape, *operands, dtype=f32, block_size=OF_32)
    zero = b.zero(f32)
    lists = {"pad": i64s(pad), "stride": i64s(stride), "dilation": i64s(dilation)}
    typed, operands = _typed(image, payload), (_typed(weight, second), bias, zero, zero)
    return typed.made(t.Conv2dOp, shape, *operands, dtype=f32, acc_type=f32, **lists)


def _ends(op: Any, x: Value, weight: Value, out: Out) -> list[int]:
    """Return the bottom and right padding with which the windows cover the image exactly.

    The padding is negative where rows or columns are left over.
    """
    sizes, kernel, size = x.shape[2:], weight.shape[2:], out.shape[2:]
    stride, padding, dilation = op.arg("stride"), op.arg("padding"), op.arg("dilation")
    return [
        (size[i] - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - sizes[i] - padding[i]
        for i in range(2)
    ]


RULES = lowerings_of(__name__)

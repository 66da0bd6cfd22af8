"""MX layers to block-scaled operators; weights are cast at compile time.

Equal payloads become `cast_to_block_scaled` and `matmul_t_block_scaled`; different ones need
block-scaled types, `cast` and `matmul_t`.  An activation that several layers read is cast once
(`share-common-subexpressions` sees to it).

Before:
    func.func @forward(%x: tensor<1x2x32xf32>, %y: tensor<1x3x32xf32>) -> tensor<1x2x3xf32> {
      %z = stepwell_mx.matmul_t.default(%x, %y, "fp4e2m1", "fp4e2m1") : (tensor<1x2x32xf32>, tensor<1x3x32xf32>) -> tensor<1x2x3xf32>
      func.return %z : tensor<1x2x3xf32>
    }
After:
    func.func @forward(%x: tensor<1x2x32xf32>, %y: tensor<1x3x32xf32>) -> tensor<1x2x3xf32> {
      %0, %1 = tosa.cast_to_block_scaled %x {block_size = BLOCK_SIZE_32} : (tensor<1x2x32xf32>) -> (tensor<1x2x32xf4E2M1FN>, tensor<1x2x1xf8E8M0FNU>)
      %2, %3 = tosa.cast_to_block_scaled %y {block_size = BLOCK_SIZE_32} : (tensor<1x3x32xf32>) -> (tensor<1x3x32xf4E2M1FN>, tensor<1x3x1xf8E8M0FNU>)
      %z = tosa.matmul_t_block_scaled %0, %1, %2, %3 {block_size = BLOCK_SIZE_32} : (tensor<1x2x32xf4E2M1FN>, tensor<1x2x1xf8E8M0FNU>, tensor<1x3x32xf4E2M1FN>, tensor<1x3x1xf8E8M0FNU>) -> tensor<1x2x3xf32>
      func.return %z : tensor<1x2x3xf32>
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import BlockScaledType, BlockSizeAttr
from stepwell.dialects.tosa.codes import PAYLOAD_ELEMENTS, e8m0
from stepwell.dialects.tosa.constants import const_of_key
from stepwell.dialects.tosa_mxfp.numerics import cast_to_block_scaled
from stepwell.dialects.tosa_mxfp.operators import padding_to_block
from stepwell.dialects.tosa_mxfp.payloads import BLOCK, PAYLOADS, payload_named
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import bf16, f32, i32, torch_dtype
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.tosa.building import Builder, elements, shape_of
from stepwell.translate.rewrites.tosa.choose_mxfp import MxConv2dOp, MxLinearOp, MxMatmulOp
from stepwell.translate.rewrites.tosa.lower_products import TO_NCHW, TO_NHWC
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa

OF_32 = BlockSizeAttr("BLOCK_SIZE_32")


@recipe("mx_codes")
def mx_codes(weight: torch.Tensor, *, payload: str) -> torch.Tensor:
    """The payload codes of a weight, blocks along its last axis, zeros to whole blocks."""
    kind, extra = payload_named(payload), padding_to_block(weight.shape[-1])
    if weight.is_meta:
        shape = (*weight.shape[:-1], weight.shape[-1] + extra)
        return torch.empty(shape, dtype=kind.torch_dtype or torch.uint8, device="meta")
    codes = cast_to_block_scaled(F.pad(weight, (0, extra)), kind)[0]
    return codes if kind.torch_dtype is None else codes.view(kind.torch_dtype)


@recipe("mx_scales")
def mx_scales(weight: torch.Tensor, *, payload: str) -> torch.Tensor:
    """The scales of a weight's blocks."""
    kind, extra = payload_named(payload), padding_to_block(weight.shape[-1])
    if weight.is_meta:
        shape = (*weight.shape[:-1], (weight.shape[-1] + extra) // BLOCK)
        return torch.empty(shape, dtype=torch.float8_e8m0fnu, device="meta")
    scales = cast_to_block_scaled(F.pad(weight, (0, extra)), kind)[1]
    return scales.view(torch.float8_e8m0fnu)


Pair = tuple[SSAValue, SSAValue]
"""Data and scales."""


@dataclass(frozen=True)
class LowerMxLinear(LowerToTosa):
    """`stepwell_mx.linear` and `stepwell_mx.matmul_t`."""

    name: ClassVar[str] = "lower-mx-linear-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (MxLinearOp, MxMatmulOp)
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Casts take f32 and bf16."""
        held = element(op.operands[0].type)
        return None if held in (f32, bf16) else Refusal(f"MX casts take no {held}")

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Casts, the product, the bias, and a cast back for bf16."""
        x, other = op.operands[:2]
        is_linear = isinstance(op, MxLinearOp)
        payload = op.arg("payload")
        second = op.arg("weight_payload" if is_linear else "b_payload")
        depth = shape_of(x)[-1]
        if is_linear:
            shape = shape_of(x)
            rows = shape if len(shape) == 3 else (1, elements(shape) // depth, depth)
            x = b.reshape(x, rows)
            other = b.reshape(other, (1, *shape_of(other)))
        x, other = _padded(x, b), other if weight_key(other) else _padded(other, b)
        columns = shape_of(other)[1]
        result = (*shape_of(x)[:2], columns)
        if payload == second:
            operands = [*_cast(x, payload, b), *_cast(other, payload, b)]
            y = b.op(t.MatMulTBlockScaledOp, operands, result, f32, block_size=OF_32)
        else:
            left, right = _typed(x, payload, b), _typed(other, second, b)
            zero = b.zero(f32)
            y = b.op(t.MatMulTOp, [left, right, zero, zero], result, f32)
        bias = op.operand("bias") if is_linear else None
        if bias is not None:
            y = b.binary(t.AddOp, y, b.reshape(_as_f32(bias, b), (1, 1, columns)))
        held = element(op.results[0].type)
        if held != f32:
            y = b.op(t.CastOp, [y], result, held)
        return b.reshape(y, shape_of(op.results[0]))


def _as_f32(value: SSAValue, b: Builder) -> SSAValue:
    if element(value.type) == f32:
        return value
    return b.op(t.CastOp, [value], shape_of(value), f32)


def _padded(x: SSAValue, b: Builder) -> SSAValue:
    """The last axis filled with zeros to whole blocks."""
    shape = shape_of(x)
    extra = padding_to_block(shape[-1])
    if not extra:
        return x
    sizes = b.sizes([*[0] * (2 * len(shape) - 1), extra])
    value = b.constant(torch.zeros(1, dtype=torch_dtype(element(x.type))))
    return b.op(t.PadOp, [x, sizes, value], (*shape[:-1], shape[-1] + extra), element(x.type))


def _cast(x: SSAValue, payload: str, b: Builder) -> Pair:
    """Data and scales of a value; a weight's are constants."""
    held = PAYLOAD_ELEMENTS[payload]
    shape = shape_of(x)
    key = weight_key(x)
    if key is not None:
        whole = (*shape[:-1], shape[-1] + padding_to_block(shape[-1]))
        store = b.rw.weights
        codes = store.derive("mx_codes", [key], payload=payload)
        scales = b.weight(store.derive("mx_scales", [key], payload=payload))
        if PAYLOADS[payload].torch_dtype is not None:
            return b.weight(codes), scales
        constant = b.rw.insert(const_of_key(codes, tensor(whole, held)))
        return constant.results[0], scales
    cast = b.rw.insert(
        t.CastToBlockScaledOp.create(
            operands=[x],
            result_types=[
                tensor(shape, held),
                tensor((*shape[:-1], shape[-1] // BLOCK), e8m0),
            ],
            properties={"block_size": OF_32},
        )
    )
    return cast.results[0], cast.results[1]


def _typed(x: SSAValue, payload: str, b: Builder) -> SSAValue:
    """A value of a block-scaled type; a weight is a constant of it."""
    held: Attribute = BlockScaledType(e8m0, PAYLOAD_ELEMENTS[payload])
    shape = shape_of(x)
    key = weight_key(x)
    if key is None:
        return b.op(t.CastOp, [x], shape, held)
    whole = (*shape[:-1], shape[-1] + padding_to_block(shape[-1]))
    store = b.rw.weights
    codes = store.derive("mx_codes", [key], payload=payload)
    scales = store.derive("mx_scales", [key], payload=payload)
    return b.rw.insert(const_of_key(codes, tensor(whole, held), scales)).results[0]


@dataclass(frozen=True)
class LowerMxConv2d(LowerToTosa):
    """`stepwell_mx.conv2d` to CONV2D_BLOCK_SCALED, one a group."""

    name: ClassVar[str] = "lower-mx-conv2d-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (MxConv2dOp,)
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A weight known at compile time, windows that come out even, no mxint8."""
        if element(op.operands[0].type) != f32:
            return Refusal("the MX convolution takes f32")
        if op.arg("payload") == "mxint8":
            return Refusal("CONV2D_BLOCK_SCALED has no mxint8")
        if weight_key(op.operands[1]) is None:
            return Refusal("the weight is computed at run time")
        if min(_ends(op)) < 0:
            return Refusal("rows or columns at the end belong to no window")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Cast in NHWC, convolve the groups, concatenate them."""
        image = b.transpose(op.operands[0], TO_NHWC)
        kernel = b.transpose(op.operands[1], TO_NHWC)
        groups, payload = op.arg("groups"), op.arg("payload")
        n, _, _, channels = shape_of(image)
        out = shape_of(kernel)[0]
        rows, columns = shape_of(op.results[0])[2:]
        bias = op.operand("bias") or b.constant(torch.zeros(out))
        padding, (bottom, right) = list(op.arg("padding")), _ends(op)
        lists = (
            (padding[0], bottom, padding[1], right),
            list(op.arg("stride")),
            list(op.arg("dilation")),
        )
        parts: list[SSAValue] = []
        for group in range(groups):
            part = _slice(image, 3, group * channels // groups, channels // groups, b)
            weight = _slice(kernel, 0, group * out // groups, out // groups, b)
            shift = _slice(bias, 0, group * out // groups, out // groups, b)
            operands = [*_cast(_padded(part, b), payload, b), *_cast(weight, payload, b), shift]
            operands += [b.sizes(values) for values in lists]
            shape = (n, rows, columns, out // groups)
            y = b.op(t.Conv2dBlockScaledOp, operands, shape, f32, block_size=OF_32)
            parts.append(y)
        y = parts[0]
        if groups > 1:
            axis = IntegerAttr(3, i32)
            y = b.op(t.ConcatOp, parts, (n, rows, columns, out), f32, axis=axis)
        return b.transpose(y, TO_NCHW)


def _ends(op: SchemaOp) -> tuple[int, int]:
    """The padding at the bottom and on the right that makes the windows come out even."""
    held, kernel = shape_of(op.operands[0])[2:], shape_of(op.operands[1])[2:]
    size = shape_of(op.results[0])[2:]
    stride, padding, dilation = op.arg("stride"), op.arg("padding"), op.arg("dilation")
    found = [
        (size[i] - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - held[i] - padding[i]
        for i in range(2)
    ]
    return found[0], found[1]


def _slice(x: SSAValue, axis: int, start: int, size: int, b: Builder) -> SSAValue:
    shape: Sequence[int] = shape_of(x)
    if shape[axis] == size:
        return x
    key = weight_key(x)
    if key is not None:
        rows = {"axis": axis, "start": start, "size": size}
        return b.weight(b.rw.weights.derive("tosa_slice", [key], **rows))
    first = [start if i == axis else 0 for i in range(len(shape))]
    taken = [size if i == axis else d for i, d in enumerate(shape)]
    return b.op(t.SliceOp, [x, b.sizes(first), b.sizes(taken)], taken, element(x.type))

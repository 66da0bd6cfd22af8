"""MX layers to block-scaled operators; weights are cast at compile time.

The form `operators` becomes `cast_to_block_scaled` and `matmul_t_block_scaled` (or
`conv2d_block_scaled`); `types` becomes `cast`, `matmul_t` and `conv2d` on block-scaled types, which
may mix payloads; `types-bf16` lets `matmul_t` add up in bf16.  An activation that several layers
read is cast once (`share-common-subexpressions` sees to it).

A product has no bias, so that one is an ADD of its own, unless it is zeros. CONV2D_BLOCK_SCALED has
one, but takes rank 4, no mxint8, and an extension of its own.

Before:
    %z = stepwell_mx.matmul_t.default(%x, %y, "fp4e2m1", "fp4e2m1") : (tensor<1x2x32xf32>, tensor<1x3x32xf32>) -> tensor<1x2x3xf32>
After:
    %0, %1 = tosa.cast_to_block_scaled %x {block_size = BLOCK_SIZE_32} : (tensor<1x2x32xf32>) -> (tensor<1x2x32xf4E2M1FN>, tensor<1x2x1xf8E8M0FNU>)
    %2, %3 = tosa.cast_to_block_scaled %y {block_size = BLOCK_SIZE_32} : (tensor<1x3x32xf32>) -> (tensor<1x3x32xf4E2M1FN>, tensor<1x3x1xf8E8M0FNU>)
    %z = tosa.matmul_t_block_scaled %0, %1, %2, %3 {block_size = BLOCK_SIZE_32} : (tensor<1x2x32xf4E2M1FN>, tensor<1x2x1xf8E8M0FNU>, tensor<1x3x32xf4E2M1FN>, tensor<1x3x1xf8E8M0FNU>) -> tensor<1x2x3xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
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
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, f16, f32, torch_dtype
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.mxfp.choose_mxfp import (
    MxConv2dOp,
    MxLinearOp,
    MxMatmulOp,
    MxQuantizeOp,
)
from stepwell.translate.rewrites.tosa.operators.building import (
    FLOATS,
    Builder,
    elements,
    i64s,
    shape_of,
)
from stepwell.translate.rewrites.tosa.operators.convolving import TO_NCHW, TO_NHWC
from stepwell.translate.rewrites.tosa.operators.lowering import LowerToTosa, needs_known

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


@recipe("mx_cast")
def mx_cast(weight: torch.Tensor, *, dtype: str) -> torch.Tensor:
    """A weight as another float type."""
    return weight.to(getattr(torch, dtype))


Pair = tuple[SSAValue, SSAValue]
"""Data and scales."""


@dataclass(frozen=True)
class LowerMxLinear(LowerToTosa):
    """`stepwell_mx.linear` and `stepwell_mx.matmul_t`."""

    name: ClassVar[str] = "lower-mx-linear-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (MxLinearOp, MxMatmulOp)
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A form that TOSA has for these payloads and this element type."""
        x, other = op.operands[:2]
        held = element(x.type)
        blocks = "the axis of the blocks, of size"
        refusal = needs_known(x, (-1,), blocks) or needs_known(other, (-1,), blocks)
        if refusal is not None:
            return refusal
        if isinstance(op, MxMatmulOp):
            refusal = needs_known(x, (0,), "a batch") or needs_known(other, (0,), "a batch")
            if refusal is not None:
                return refusal
        if isinstance(op, MxMatmulOp) and {len(shape_of(x)), len(shape_of(other))} != {3}:
            return Refusal("MATMUL_T takes two batches of matrices")
        if held not in FLOATS or element(other.type) != held:
            return Refusal(
                f"TOSA has no MX product of {dtype_name(held)} by {dtype_name(element(other.type))}"
            )
        refused = form_refused(op.arg("form"), *payloads_of(op), torch_dtype(held))
        return Refusal(refused) if refused is not None else None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Casts, the product, the bias, and a cast back for bf16 and fp16."""
        x, other = op.operands[:2]
        is_linear = isinstance(op, MxLinearOp)
        (payload, second), form = payloads_of(op), op.arg("form")
        depth = shape_of(x)[-1]
        if is_linear:
            shape = shape_of(x)
            rows = shape if len(shape) == 3 else (1, elements(shape) // depth, depth)
            x = b.reshape(x, rows)
            other = b.reshape(other, (1, *shape_of(other)))
        elif shape_of(x)[0] < shape_of(other)[0]:
            # One matrix on the left of many: TOSA broadcasts the right side only.
            many = (shape_of(other)[0], *shape_of(x)[1:])
            x = b.op(t.TileOp, [x, b.sizes((many[0], 1, 1))], many, element(x.type))
        columns = shape_of(other)[1]
        result = (*shape_of(x)[:2], columns)
        held = element(op.results[0].type)
        summed = held if form == TYPES_BF16 else f32
        if form == OPERATORS:
            operands = [*_cast(x, payload, b), *_cast(other, payload, b)]
            y = b.op(t.MatMulTBlockScaledOp, operands, result, f32, block_size=OF_32)
        else:
            left, right = _typed(x, payload, b), _typed(other, second, b)
            zero = b.zero(f32)
            y = b.op(t.MatMulTOp, [left, right, zero, zero], result, summed)
        bias = op.operand("bias") if is_linear else None
        if bias is not None and not is_zero(bias, b):
            y = b.binary(t.AddOp, y, b.reshape(_held_as(bias, summed, b), (1, 1, columns)))
        return b.reshape(_held_as(y, held, b), shape_of(op.results[0]))


def is_zero(bias: SSAValue, b: Builder) -> bool:
    """Whether a bias is known to be zeros: adding them changes no bit, for sums start at +0."""
    key = weight_key(bias)
    if key is None:
        return False
    held = b.rw.weights.get(key)
    return not held.is_meta and not bool(held.any())


def payloads_of(op: SchemaOp) -> tuple[str, str]:
    """The payloads of the first and of the second operand."""
    second = "b_payload" if isinstance(op, MxMatmulOp) else "weight_payload"
    return op.arg("payload"), op.arg(second)


def _held_as(value: SSAValue, held: Attribute, b: Builder) -> SSAValue:
    """The value as an element type; a constant is cast at compile time."""
    if element(value.type) == held:
        return value
    key = weight_key(value)
    if key is not None:
        return b.weight(b.rw.weights.derive("mx_cast", [key], dtype=str(torch_dtype(held))[6:]))
    return b.op(t.CastOp, [value], shape_of(value), held)


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
    # CAST_TO_BLOCK_SCALED takes fp32 and bf16; fp16 is a part of fp32.
    wide = _held_as(x, f32, b) if element(x.type) == f16 else x
    wide = _padded(wide, b)
    shape = shape_of(wide)
    cast = b.rw.insert(
        t.CastToBlockScaledOp.create(
            operands=[wide],
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
        padded = _padded(x, b)
        return b.op(t.CastOp, [padded], shape_of(padded), held)
    whole = (*shape[:-1], shape[-1] + padding_to_block(shape[-1]))
    store = b.rw.weights
    codes = store.derive("mx_codes", [key], payload=payload)
    scales = store.derive("mx_scales", [key], payload=payload)
    return b.rw.insert(const_of_key(codes, tensor(whole, held), scales)).results[0]


@dataclass(frozen=True)
class LowerMxQuantize(LowerToTosa):
    """`stepwell_mx.quantize_dequantize`: CAST_TO_BLOCK_SCALED, then CAST_FROM_BLOCK_SCALED."""

    name: ClassVar[str] = "lower-mx-quantize-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (MxQuantizeOp,)
    takes_symbols: ClassVar[bool] = False
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats."""
        held = element(op.operands[0].type)
        return None if held in FLOATS else Refusal(f"TOSA has no MX cast of {dtype_name(held)}")

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """The values of whole blocks, of which the padding is cut off again."""
        (x,) = op.operands
        held, shape = element(x.type), shape_of(x)
        codes, scales = _cast(x, op.arg("payload"), b)
        given = f32 if held == f16 else held
        operands = [codes, scales]
        y = b.op(t.CastFromBlockScaledOp, operands, shape_of(codes), given, block_size=OF_32)
        return _held_as(_slice(y, len(shape) - 1, 0, shape[-1], b), held, b)


@dataclass(frozen=True)
class LowerMxConv2d(LowerToTosa):
    """`stepwell_mx.conv2d` to CONV2D_BLOCK_SCALED, one a group."""

    name: ClassVar[str] = "lower-mx-conv2d-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (MxConv2dOp,)
    takes_symbols: ClassVar[bool] = False
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A form that TOSA has, a weight known at compile time."""
        held = element(op.operands[0].type)
        if held not in FLOATS:
            return Refusal(f"TOSA has no MX convolution of {dtype_name(held)}")
        refused = form_refused(op.arg("form"), *payloads_of(op), torch_dtype(held), True)
        if refused is not None:
            return Refusal(refused)
        if weight_key(op.operands[1]) is None:
            return Refusal("the weight is computed at run time")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Cast in NHWC, convolve the groups, concatenate them."""
        image = b.transpose(op.operands[0], TO_NHWC)
        for axis, end in enumerate(_ends(op), 1):
            if end < 0:
                # Rows or columns at the end that no window reads.
                image = _slice(image, axis, 0, shape_of(image)[axis] + end, b)
        kernel = b.transpose(op.operands[1], TO_NHWC)
        groups = op.arg("groups")
        n, _, _, channels = shape_of(image)
        out = shape_of(kernel)[0]
        rows, columns = shape_of(op.results[0])[2:]
        bias = op.operand("bias")
        bias = b.constant(torch.zeros(out)) if bias is None else _held_as(bias, f32, b)
        parts: list[SSAValue] = []
        for group in range(groups):
            part = _slice(image, 3, group * channels // groups, channels // groups, b)
            weight = _slice(kernel, 0, group * out // groups, out // groups, b)
            shift = _slice(bias, 0, group * out // groups, out // groups, b)
            shape = (n, rows, columns, out // groups)
            parts.append(_convolved(op, (part, weight, shift), shape, b))
        y = parts[0] if groups == 1 else b.concat(parts, 3)
        return b.transpose(_held_as(y, element(op.results[0].type), b), TO_NCHW)


def _convolved(
    op: SchemaOp,
    operands: tuple[SSAValue, SSAValue, SSAValue],
    shape: Sequence[int],
    b: Builder,
) -> SSAValue:
    """One group: image and weight cast, convolved, the bias added."""
    image, weight, bias = operands
    payload, second = payloads_of(op)
    padding, (bottom, right) = list(op.arg("padding")), _ends(op)
    pad = (padding[0], max(bottom, 0), padding[1], max(right, 0))
    stride, dilation = list(op.arg("stride")), list(op.arg("dilation"))
    if op.arg("form") == OPERATORS:
        taken = [*_cast(image, payload, b), *_cast(weight, payload, b), bias]
        taken += [b.sizes(values) for values in (pad, stride, dilation)]
        return b.op(t.Conv2dBlockScaledOp, taken, shape, f32, block_size=OF_32)
    zero = b.zero(f32)
    return b.op(
        t.Conv2dOp,
        [_typed(image, payload, b), _typed(weight, second, b), bias, zero, zero],
        shape,
        f32,
        pad=i64s(pad),
        stride=i64s(stride),
        dilation=i64s(dilation),
        acc_type=f32,
    )


def _ends(op: SchemaOp) -> tuple[int, int]:
    """The padding at the bottom and on the right that makes the windows come out even.

    Negative where rows or columns are left over.
    """
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

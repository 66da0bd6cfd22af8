"""MX layers as torch operators, so that a module computes in PyTorch what the device computes.

    stepwell_mx::linear(x, weight, bias?, payload, weight_payload, form)
    stepwell_mx::matmul_t(a, b, payload, b_payload, form)
    stepwell_mx::conv2d(x, weight, bias?, stride, padding, …, payload, weight_payload, form)
    stepwell_mx::quantize_dequantize(x, payload)

Operands are ordinary float tensors. Each is cast to its payload in blocks of 32 along the
contracted axis (padded with zeros to a multiple of 32) and multiplied as in the reference model;
the bias is added in float32. Results have the type of the first operand.

`form` selects one of TOSA's forms, which round differently:
`operators` on separate data and scales, block-scaled `types`, and `types-bf16`, whose products are
accumulated in bfloat16 (linear and matmul_t of bfloat16 tensors).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from stepwell.dialects.tosa_mxfp.numerics import cast_to_block_scaled, fake_quantize
from stepwell.dialects.tosa_mxfp.payloads import BLOCK, payload_named
from stepwell.dialects.tosa_mxfp.products import (
    Scaled,
    conv2d_block_scaled,
    conv2d_of_types,
    matmul_t_block_scaled,
    matmul_t_of_types,
)
from stepwell.ir.diagnostics import StepwellError

NAMESPACE = "stepwell_mx"
OPERATORS, TYPES, TYPES_BF16 = "operators", "types", "types-bf16"
FORMS = (OPERATORS, TYPES, TYPES_BF16)


def padding_to_block(size: int) -> int:
    """Return the number of zeros that pad a size to a multiple of 32."""
    return -size % BLOCK


def scaled(x: Tensor, payload: str) -> Scaled:
    """Cast a tensor to MX codes and scales along its last axis, padded with zeros to blocks."""
    kind = payload_named(payload)
    return *cast_to_block_scaled(F.pad(x, (0, padding_to_block(x.shape[-1]))), kind), kind


def form_refused(
    form: str, payload: str, weight_payload: str, dtype: torch.dtype, convolution: bool = False
) -> str | None:
    """Return why a product does not support a form, or None."""
    if form not in FORMS:
        return f"there is no form {form!r}: forms are {', '.join(FORMS)}"
    if form == OPERATORS and payload != weight_payload:
        return f"{payload} by {weight_payload} needs block-scaled types, form={TYPES!r}"
    if form == OPERATORS and convolution and payload == "mxint8":
        return f"CONV2D_BLOCK_SCALED has no mxint8, which needs block-scaled types, form={TYPES!r}"
    if form == TYPES_BF16 and (convolution or dtype != torch.bfloat16):
        return f"the form {TYPES_BF16!r} is for matrix products of bfloat16"
    return None


def _held_to(
    form: str, payload: str, weight_payload: str, x: Tensor, convolution: bool = False
) -> None:
    refused = form_refused(form, payload, weight_payload, x.dtype, convolution)
    if refused is not None:
        raise StepwellError(refused)


def _product(a: Scaled, b: Scaled, form: str) -> Tensor:
    if form == OPERATORS:
        return matmul_t_block_scaled(a, b)
    return matmul_t_of_types(a, b, torch.bfloat16 if form == TYPES_BF16 else torch.float32)


@torch.library.custom_op(f"{NAMESPACE}::quantize_dequantize", mutates_args=())
def quantize_dequantize(x: Tensor, payload: str) -> Tensor:
    """Round `[..., C]` to the payload, in blocks of 32 along the last axis, and dequantize."""
    kind, size = payload_named(payload), x.shape[-1]
    padded = F.pad(x, (0, padding_to_block(size)))
    return fake_quantize(padded, kind)[..., :size].clone()


@quantize_dequantize.register_fake
def _(x: Tensor, payload: str) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op(f"{NAMESPACE}::matmul_t", mutates_args=())
def matmul_t(a: Tensor, b: Tensor, payload: str, b_payload: str, form: str = OPERATORS) -> Tensor:
    """Multiply `[B or 1, M, K]` by the transpose of `[B or 1, N, K]`: `[B, M, N]`."""
    _held_to(form, payload, b_payload, a)
    return _product(scaled(a, payload), scaled(b, b_payload), form).to(a.dtype)


@matmul_t.register_fake
def _(a: Tensor, b: Tensor, payload: str, b_payload: str, form: str = OPERATORS) -> Tensor:
    return a.new_empty(max(a.shape[0], b.shape[0]), a.shape[1], b.shape[1])


def matmul(
    a: Tensor,
    b: Tensor,
    payload: str = "fp8e4m3",
    b_payload: str | None = None,
    form: str = OPERATORS,
) -> Tensor:
    """Compute `torch.matmul` in MX: ranks 1 to 5, with broadcast batches."""
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(0) if b.dim() == 1 else b.transpose(-1, -2)
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    rows, columns, depth = left.shape[-2], right.shape[-2], left.shape[-1]
    if right.shape[:-2].numel() == 1:
        left = left.reshape(1, -1, depth)
        right = right.reshape(1, columns, depth)
    else:
        left = left.expand(*batch, rows, depth).reshape(-1, rows, depth)
        right = right.expand(*batch, columns, depth).reshape(-1, columns, depth)
    y = matmul_t(left, right, payload, b_payload or payload, form)
    shape = [*batch, *([rows] if a.dim() > 1 else []), *([columns] if b.dim() > 1 else [])]
    return y.reshape(shape)


@torch.library.custom_op(f"{NAMESPACE}::linear", mutates_args=())
def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    payload: str,
    weight_payload: str,
    form: str = OPERATORS,
) -> Tensor:
    """Multiply `[..., K]` by the transpose of `[N, K]` and add `[N]`: `[..., N]`."""
    _held_to(form, payload, weight_payload, x)
    rows = x.reshape(1, -1, x.shape[-1])
    y = _product(scaled(rows, payload), scaled(weight.unsqueeze(0), weight_payload), form)
    if bias is not None:
        y = y + bias.to(y.dtype)
    return y.reshape(*x.shape[:-1], weight.shape[0]).to(x.dtype)


@linear.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    payload: str,
    weight_payload: str,
    form: str = OPERATORS,
) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


@torch.library.custom_op(f"{NAMESPACE}::conv2d", mutates_args=())
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    payload: str,
    weight_payload: str,
    form: str = OPERATORS,
) -> Tensor:
    """Convolve an NCHW image with an OIHW weight and add `[O]`: NCHW; blocks run along the channels
    of a group.
    """
    _held_to(form, payload, weight_payload, x, convolution=True)
    product = conv2d_block_scaled if form == OPERATORS else conv2d_of_types
    image, kernel = x.permute(0, 2, 3, 1), weight.permute(0, 2, 3, 1)
    out = weight.shape[0] // groups
    pad = (padding[0], padding[0], padding[1], padding[1])
    shift = torch.zeros(weight.shape[0]) if bias is None else bias.to(torch.float32)
    parts = [
        product(
            scaled(channels, payload),
            scaled(kernel[group * out : (group + 1) * out], weight_payload),
            shift[group * out : (group + 1) * out],
            pad,
            (stride[0], stride[1]),
            (dilation[0], dilation[1]),
        )
        for group, channels in enumerate(image.chunk(groups, -1))
    ]
    return torch.cat(parts, -1).permute(0, 3, 1, 2).contiguous().to(x.dtype)


@conv2d.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    payload: str,
    weight_payload: str,
    form: str = OPERATORS,
) -> Tensor:
    like = F.conv2d(x, weight, bias, list(stride), list(padding), list(dilation), groups)
    return torch.empty_like(like, memory_format=torch.contiguous_format)

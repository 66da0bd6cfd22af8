"""MX layers as torch operators, so that a module computes in PyTorch what the device will.

    stepwell_mx::linear(x, weight, bias?, payload, weight_payload)
    stepwell_mx::matmul_t(a, b, payload, b_payload)
    stepwell_mx::conv2d(x, weight, bias?, stride, padding, dilation, groups, payload, …)

Operands are ordinary float tensors; each is cast to its payload in blocks of 32 along the
contracted axis (padded with zeros to a multiple of 32), multiplied as the reference model
multiplies, and the bias is added in float32.  Results have the type of the first operand.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from stepwell.dialects.tosa_mxfp.numerics import cast_to_block_scaled
from stepwell.dialects.tosa_mxfp.payloads import BLOCK, payload_named
from stepwell.dialects.tosa_mxfp.products import (
    Scaled,
    conv2d_block_scaled,
    matmul_t_block_scaled,
)

NAMESPACE = "stepwell_mx"


def padding_to_block(size: int) -> int:
    """How many zeros make a size a multiple of 32."""
    return -size % BLOCK


def scaled(x: Tensor, payload: str) -> Scaled:
    """A tensor cast along its last axis, padded with zeros to whole blocks."""
    kind = payload_named(payload)
    return *cast_to_block_scaled(F.pad(x, (0, padding_to_block(x.shape[-1]))), kind), kind


@torch.library.custom_op(f"{NAMESPACE}::matmul_t", mutates_args=())
def matmul_t(a: Tensor, b: Tensor, payload: str, b_payload: str) -> Tensor:
    """`[B, M, K]` by `[B or 1, N, K]` to `[B, M, N]`."""
    return matmul_t_block_scaled(scaled(a, payload), scaled(b, b_payload)).to(a.dtype)


@matmul_t.register_fake
def _(a: Tensor, b: Tensor, payload: str, b_payload: str) -> Tensor:
    return a.new_empty(a.shape[0], a.shape[1], b.shape[1])


@torch.library.custom_op(f"{NAMESPACE}::linear", mutates_args=())
def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, payload: str, weight_payload: str
) -> Tensor:
    """`[..., K]` by `[N, K]`, plus `[N]`, to `[..., N]`."""
    rows = x.reshape(1, -1, x.shape[-1])
    y = matmul_t_block_scaled(scaled(rows, payload), scaled(weight.unsqueeze(0), weight_payload))
    if bias is not None:
        y = y + bias.to(torch.float32)
    return y.reshape(*x.shape[:-1], weight.shape[0]).to(x.dtype)


@linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, payload: str, weight_payload: str) -> Tensor:
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
) -> Tensor:
    """NCHW image by OIHW weight, plus `[O]`, to NCHW; blocks run along the channels of a group."""
    image, kernel = x.permute(0, 2, 3, 1), weight.permute(0, 2, 3, 1)
    out = weight.shape[0] // groups
    pad = (padding[0], padding[0], padding[1], padding[1])
    shift = torch.zeros(weight.shape[0]) if bias is None else bias.to(torch.float32)
    parts = [
        conv2d_block_scaled(
            scaled(channels, payload),
            scaled(kernel[group * out : (group + 1) * out], payload),
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
) -> Tensor:
    like = F.conv2d(x, weight, bias, list(stride), list(padding), list(dilation), groups)
    return torch.empty_like(like, memory_format=torch.contiguous_format)

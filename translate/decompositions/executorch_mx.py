"""Convert ExecuTorch's MX operators, with quantized weights and activations cast at run time."""

from __future__ import annotations

from typing import Any

from stepwell.dialects.tosa_mxfp.executorch import codes_dtype, payload_of, weight_values
from stepwell.dialects.tosa_mxfp.operators import OPERATORS
from stepwell.dialects.tosa_mxfp.payloads import BLOCK
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import f32, torch_dtype
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.mxfp.choose_mxfp import MxConv2dOp, MxLinearOp


@recipe("mx_linear_weight")
def mx_linear_weight(codes: torch.Tensor, scales: torch.Tensor, *, payload: str) -> torch.Tensor:
    """Decode `[1, N, K]` codes to the `[N, K]` weight."""
    if codes.is_meta:
        return _meta(codes, payload).squeeze(0)
    return weight_values(codes, scales, payload).squeeze(0)


@recipe("mx_conv2d_weight")
def mx_conv2d_weight(codes: torch.Tensor, scales: torch.Tensor, *, payload: str) -> torch.Tensor:
    """Decode OHWI codes to the OIHW weight."""
    if codes.is_meta:
        return _meta(codes, payload).permute(0, 3, 1, 2).contiguous()
    return weight_values(codes, scales, payload).permute(0, 3, 1, 2).contiguous()


def _meta(codes: torch.Tensor, payload: str) -> torch.Tensor:
    size = codes.shape[-1] * (2 if payload == "fp4e2m1" else 1)
    return torch.empty(*codes.shape[:-1], size, device="meta")


@lowers(
    {"tosa_mxfp.linear.default": "linear", "tosa_mxfp.conv2d.default": "conv2d"},
    to="aten",
    bound=Bound(0.5, 1.0, "activations are cast with the specification's rule, not RCEIL"),
    sample="""
    %c = stepwell.weight <"codes"> "buffer" : tensor<1x3x32xf8E4M3FN>
    %s = stepwell.weight <"scales"> "buffer" : tensor<1x3x1xf8E8M0FNU>
    %y = tosa_mxfp.linear.default(%x, %c, %s, none, 32, "f8e4m3") : (tensor<2x32xf32>, tensor<1x3x32xf8E4M3FN>, tensor<1x3x1xf8E8M0FNU>) -> tensor<2x3xf32>
    """,
)
def adopt_executorch_mx(
    x: Value, codes: Value, scales: Value, *, form: str, op: Any, out: Out, b: Rewriter
) -> Value:
    """Convert the MX operators of ExecuTorch's Arm backend to those of stepwell.

    The weight becomes the float32 values of its codes and scales; casting them again gives the same
    values. The activation is cast with the specification's rule, where ExecuTorch's eager operator
    uses torchao's RCEIL: a block's scale may differ by a factor of two.
    """
    if (size := op.arg("block_size")) != BLOCK:
        refuse(f"the blocks have {size} elements, TOSA's have {BLOCK}")
    word = op.arg("weight_payload_dtype")
    dtype, scale = torch_dtype(codes.dtype), torch_dtype(scales.dtype)
    payload = payload_of(word, dtype)
    if payload is None:
        refuse(f"{word!r} is not an MX payload")
    if dtype != codes_dtype(payload):
        refuse(f"the codes are {dtype}; codes of {payload} are {codes_dtype(payload)}")
    if scale.itemsize != 1 or scale == torch.bool:
        refuse(f"the scales are {scale}, not bytes")
    if codes.key is None or scales.key is None:
        refuse("the weight is computed at run time")
    x, bias = x.cast(f32), op.operand("bias")
    recipe_name = f"mx_{form}_weight"
    weight = b.weight(b.weights.derive(recipe_name, [codes.key, scales.key], payload=payload))
    said = payload, payload, OPERATORS
    if form == "linear":
        return x.call(MxLinearOp, weight, bias, *said, shape=out.shape)
    lists = [op.arg(name) for name in ("stride", "padding", "dilation", "groups")]
    return x.call(MxConv2dOp, weight, bias, *lists, *said, shape=out.shape)


RULES = lowerings_of(__name__)

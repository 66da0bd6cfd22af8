"""Take over ExecuTorch's MX operators: weights that it quantised, activations cast as devices do.

The weight becomes the float32 values that its codes and scales stand for; casting them again
gives the same values. The activation is cast with the specification's rule, where ExecuTorch's
eager operator uses torchao's RCEIL: a block's scale may differ by a factor of two.

Before:
    %c = stepwell.weight <"codes"> "buffer" : tensor<1x3x32xf8E4M3FN>
    %s = stepwell.weight <"scales"> "buffer" : tensor<1x3x1xf8E8M0FNU>
    %y = tosa_mxfp.linear.default(%x, %c, %s, none, 32, "f8e4m3") : (tensor<2x32xf32>, tensor<1x3x32xf8E4M3FN>, tensor<1x3x1xf8E8M0FNU>) -> tensor<2x3xf32>
After:
    %0 = stepwell.weight <"codes#mx_linear_weight.000000000000"> "constant" : tensor<3x32xf32>
    %y = stepwell_mx.linear.default(%x, %0, none, "fp8e4m3", "fp8e4m3", "operators") : (tensor<2x32xf32>, tensor<3x32xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa_mxfp.executorch import (
    EtConv2dOp,
    EtLinearOp,
    codes_dtype,
    payload_of,
    weight_values,
)
from stepwell.dialects.tosa_mxfp.operators import OPERATORS
from stepwell.dialects.tosa_mxfp.payloads import BLOCK
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import f32, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.ir.weights import recipe
from stepwell.translate.rewrites.building import emit_as
from stepwell.translate.rewrites.mxfp.choose_mxfp import MxConv2dOp, MxLinearOp


@recipe("mx_linear_weight")
def mx_linear_weight(codes: torch.Tensor, scales: torch.Tensor, *, payload: str) -> torch.Tensor:
    """`[1, N, K]` codes to the `[N, K]` weight they stand for."""
    if codes.is_meta:
        return _meta(codes, payload).squeeze(0)
    return weight_values(codes, scales, payload).squeeze(0)


@recipe("mx_conv2d_weight")
def mx_conv2d_weight(codes: torch.Tensor, scales: torch.Tensor, *, payload: str) -> torch.Tensor:
    """OHWI codes to the OIHW weight they stand for."""
    if codes.is_meta:
        return _meta(codes, payload).permute(0, 3, 1, 2).contiguous()
    return weight_values(codes, scales, payload).permute(0, 3, 1, 2).contiguous()


def _meta(codes: torch.Tensor, payload: str) -> torch.Tensor:
    size = codes.shape[-1] * (2 if payload == "fp4e2m1" else 1)
    return torch.empty(*codes.shape[:-1], size, device="meta")


@dataclass(frozen=True)
class Adopted:
    """One of ExecuTorch's layers: its payload, and the keys of codes and scales."""

    op: SchemaOp
    payload: str
    codes: str
    scales: str


@dataclass(frozen=True)
class AdoptExecutorchMx(Rewrite[Adopted]):
    """`tosa_mxfp.linear` and `tosa_mxfp.conv2d` to ours."""

    name: ClassVar[str] = "adopt-executorch-mx"
    anchors: ClassVar[tuple[type[Operation], ...]] = (EtLinearOp, EtConv2dOp)
    bound: ClassVar[Bound] = Bound(
        0.5, 1.0, "activations are cast with the specification's rule, not RCEIL"
    )

    def match(self, op: SchemaOp, program: Program) -> Adopted | Refusal | None:
        """Guards: blocks of 32, a payload we know in its dtype, weights known at compile time."""
        if op.arg("block_size") != BLOCK:
            return Refusal(f"its blocks have {op.arg('block_size')} elements, TOSA's {BLOCK}")
        word = op.arg("weight_payload_dtype")
        payload = payload_of(word, torch_dtype(element(op.operands[1].type)))
        if payload is None:
            return Refusal(f"{word!r} is not an MX payload")
        held, scale = (torch_dtype(element(value.type)) for value in op.operands[1:3])
        if held != codes_dtype(payload):
            return Refusal(f"its codes are {held}, those of {payload} {codes_dtype(payload)}")
        if scale.itemsize != 1 or scale == torch.bool:
            return Refusal(f"its scales are {scale}, no bytes")
        codes, scales = weight_key(op.operands[1]), weight_key(op.operands[2])
        if codes is None or scales is None:
            return Refusal("the weight is computed at run time")
        return Adopted(op, payload, codes, scales)

    def build(self, match: Adopted, rw: Rewriter) -> None:
        """The activation as float32, in which ExecuTorch gives its result."""
        op, payload, result = match.op, match.payload, match.op.results[0]
        x = op.operands[0]
        if element(x.type) != f32:
            x = rw.insert(aten.ToDtype.make(x, f32)).results[0]
        recipe_name = "mx_linear_weight" if isinstance(op, EtLinearOp) else "mx_conv2d_weight"
        weight: SSAValue = rw.weight(
            rw.weights.derive(recipe_name, [match.codes, match.scales], payload=payload)
        )
        bias = op.operand("bias")
        said = payload, payload, OPERATORS
        if isinstance(op, EtLinearOp):
            new = MxLinearOp.make(x, weight, bias, *said, result_types=[result.type])
        else:
            lists = [op.arg(name) for name in ("stride", "padding", "dilation", "groups")]
            new = MxConv2dOp.make(x, weight, bias, *lists, *said, result_types=[result.type])
        rw.replace(op, [emit_as(rw, new, result)])

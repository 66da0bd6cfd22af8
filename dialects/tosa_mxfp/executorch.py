"""The MX operators that ExecuTorch's Arm backend registers, `tosa_mxfp::linear` and `::conv2d`.

Their classes come from the declarations below, so that a program with them can be read, printed and
rewritten without the backend. Only running such a program needs the backend
(`executorch.backends.arm.ao_ext`).

Weights are codes and scales chosen by torchao. Activations are cast in eager mode with torchao's
RCEIL, but a device follows the specification (`numerics`).
"""

from __future__ import annotations

import torch
from torch import Tensor
from xdsl.ir import Dialect

from stepwell.dialects.aten.registry import define
from stepwell.dialects.tosa_mxfp.numerics import cast_from_block_scaled
from stepwell.dialects.tosa_mxfp.payloads import payload_named

PAYLOADS = {
    "f8e4m3": "fp8e4m3",
    "f8e5m2": "fp8e5m2",
    "fp6e2m3": "fp6e2m3",
    "fp6e3m2": "fp6e3m2",
    "f4e2m1": "fp4e2m1",
}
"""ExecuTorch's names of payloads."""

EtLinearOp = define(
    "tosa_mxfp::linear(Tensor input, Tensor weight_qdata, Tensor weight_scale, Tensor? bias=None, "
    'SymInt block_size=32, str weight_payload_dtype="") -> Tensor'
)
EtConv2dOp = define(
    "tosa_mxfp::conv2d(Tensor input, Tensor weight_qdata, Tensor weight_scale, Tensor? bias=None, "
    "int[] stride, int[] padding, int[] dilation, SymInt groups=1, SymInt block_size=32, "
    'str weight_payload_dtype="") -> Tensor'
)

TosaMxfp = Dialect("tosa_mxfp", [EtLinearOp, EtConv2dOp])
"""ExecuTorch's namespace."""


def payload_of(word: str, dtype: torch.dtype) -> str | None:
    """Return stepwell's name of a payload from ExecuTorch's name or, if that is empty, the codes'
    dtype.
    """
    if word:
        return PAYLOADS.get(word)
    by_dtype = {torch.float8_e4m3fn: "fp8e4m3", torch.float8_e5m2: "fp8e5m2"}
    return by_dtype.get(dtype, "fp4e2m1" if dtype == torch.uint8 else None)


def codes_dtype(payload: str) -> torch.dtype:
    """Return the dtype of a payload's codes in ExecuTorch: bytes if torch lacks the type."""
    return payload_named(payload).torch_dtype or torch.uint8


def weight_values(codes: Tensor, scales: Tensor, payload: str) -> Tensor:
    """Dequantize ExecuTorch's codes and scales to a float32 weight `[..., C]`.

    Casting the weight again by the specification's rule preserves every value: the rule never
    chooses a larger scale than needed for the block's largest value, and a smaller scale has a
    finer grid.
    """
    codes = codes.view(torch.uint8)
    if payload == "fp4e2m1":
        # Two codes per byte, the first in the low half.
        codes = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
    return cast_from_block_scaled(codes, scales.view(torch.uint8), payload_named(payload))

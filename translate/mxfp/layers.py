"""Modules that compute in MX, bit for bit as the TOSA reference model does."""

from __future__ import annotations

from torch import Tensor, nn

from stepwell.dialects.tosa_mxfp import operators
from stepwell.dialects.tosa_mxfp.operators import TYPES
from stepwell.ir.diagnostics import StepwellError


class _OfWeights(nn.Module):
    """A float layer whose operands are rounded to their payloads."""

    def __init__(
        self, layer: nn.Linear | nn.Conv2d, payload: str, weight_payload: str, form: str = TYPES
    ) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.payload, self.weight_payload, self.form = payload, weight_payload, form

    def extra_repr(self) -> str:
        return f"payload={self.payload}, weight_payload={self.weight_payload}, form={self.form}"


class MxLinear(_OfWeights):
    """An `nn.Linear` that computes in an MX format."""

    def forward(self, x: Tensor) -> Tensor:
        """Map `[..., K]` to `[..., N]`."""
        return operators.linear(
            x, self.weight, self.bias, self.payload, self.weight_payload, self.form
        )


class MxConv2d(_OfWeights):
    """`nn.Conv2d` with zero padding, computed in MX.

    Raises:
        StepwellError: the padding mode is not zeros, or the padding is not numeric.
    """

    def __init__(
        self, conv: nn.Conv2d, payload: str, weight_payload: str, form: str = TYPES
    ) -> None:
        if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
            raise StepwellError(
                f"padding {conv.padding!r} of mode {conv.padding_mode!r} is not supported in MX",
                help="pad with zeros, by numbers",
            )
        super().__init__(conv, payload, weight_payload, form)
        self.stride, self.padding = list(conv.stride), list(conv.padding)
        self.dilation, self.groups = list(conv.dilation), conv.groups

    def forward(self, x: Tensor) -> Tensor:
        """Compute the convolution of an NCHW tensor; the result is NCHW too."""
        window = self.stride, self.padding, self.dilation, self.groups
        stated = self.payload, self.weight_payload, self.form
        return operators.conv2d(x, self.weight, self.bias, *window, *stated)


class MxMatmul(nn.Module):
    """`torch.matmul` of two activations computed in MX: ranks 1 to 5, with broadcast batches."""

    def __init__(
        self, payload: str = "fp8e4m3", b_payload: str | None = None, form: str = TYPES
    ) -> None:
        super().__init__()
        self.payload, self.b_payload, self.form = payload, b_payload or payload, form

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Map `[..., M, K]` and `[..., K, N]` to `[..., M, N]`."""
        return operators.matmul(a, b, self.payload, self.b_payload, self.form)

    def extra_repr(self) -> str:
        return f"payload={self.payload}, b_payload={self.b_payload}, form={self.form}"

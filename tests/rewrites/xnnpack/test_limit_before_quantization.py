"""Numbers of 2⁶³ steps and more, which ExecuTorch's kernels cannot quantize, are clamped first."""

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # It registers the operators.

import stepwell
from stepwell.translate.decompositions import floats
from stepwell.translate.lowerings.lowering import step

X = torch.tensor([torch.inf, -torch.inf, 3e38, -3e38, 1e20, -1e20, 1e10, -1e10, 0.25, 0.75, 0.0])
LIMITS = {torch.int8: (-127, 127), torch.uint8: (1, 255), torch.int16: (-30000, 30000)}


class Quantized(torch.nn.Module):
    def __init__(self, dtype: torch.dtype, by_channel: bool) -> None:
        super().__init__()
        self.dtype, self.by_channel = dtype, by_channel
        self.register_buffer("scales", torch.linspace(0.1, 2.0, len(X), dtype=torch.float64))
        self.register_buffer("zeros", torch.full((len(X),), 7, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops, limits = torch.ops.quantized_decomposed, (*LIMITS[self.dtype], self.dtype)
        if self.by_channel:
            return ops.quantize_per_channel(x, self.scales, self.zeros, 0, *limits)
        return ops.quantize_per_tensor(x, 0.5, 7, *limits)


@pytest.mark.parametrize("by_channel", [True, False])
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_infinities_and_large_numbers_saturate(dtype: torch.dtype, by_channel: bool) -> None:
    model = Quantized(dtype, by_channel)
    lowered = stepwell.lower(torch.export.export(model, (X,)), "xnnpack")
    assert torch.equal(lowered.run(X)[0], model(X))


QUANTIZE = (
    "%y = quantized_decomposed.quantize_per_tensor.default({}, {}, 3, {}, {}, {}) : "
    "(tensor<3xf32>) -> tensor<3x{}>"
)


@pytest.mark.parametrize(
    ("scale", "low", "high", "dtype", "before", "count"),
    [
        ("0.5", -127, 127, "i8", "", 1),
        ("0.5", -32768, 32767, "i16", "", 1),
        ("0.5", -127, 127, "i8", "sigmoid", 0),
        ("1.0e-30", -127, 127, "i8", "sigmoid", 1),
        ("0.5", -2147483648, 2147483647, "i32", "", 0),
        ("1.0e32", -127, 127, "i8", "", 0),
    ],
)
def test_what_may_be_too_large_is_clamped(
    scale: str, low: int, high: int, dtype: str, before: str, count: int, apply: Any, method: Any
) -> None:
    lines = [QUANTIZE.format("%s" if before else "%x", scale, low, high, dtype, dtype)]
    if before:
        lines.insert(0, f"%s = aten.{before}.default(%x) : (tensor<3xf32>) -> tensor<3xf32>")
    text = method("%x: tensor<3xf32>", *lines, gives=f"tensor<3x{dtype}>")
    assert apply(text, step(floats.limit_before_quantization)).count == count

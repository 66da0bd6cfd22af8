"""Numbers of 2⁶³ steps and more, which ExecuTorch's kernels cannot quantize, are clamped first."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # It registers the operators.
from eager import EXACT, assert_as_eager, lower
from rewrite_cases import cases

from stepwell.translate.decompositions import floats

X = torch.tensor([torch.inf, -torch.inf, 3e38, -3e38, 1e20, -1e20, 1e10, -1e10, 0.25, 0.75, 0.0])
LIMITS = {torch.int8: (-127, 127), torch.uint8: (1, 255), torch.int16: (-30000, 30000)}


SCALES = torch.linspace(0.1, 2.0, len(X), dtype=torch.float64)
ZEROS = torch.full((len(X),), 7)


@pytest.mark.parametrize("by_channel", [True, False])
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_infinities_and_large_numbers_saturate(dtype: torch.dtype, by_channel: bool) -> None:
    def quantized(x: torch.Tensor) -> torch.Tensor:
        ops, limits = torch.ops.quantized_decomposed, (*LIMITS[dtype], dtype)
        if by_channel:
            return ops.quantize_per_channel(x, SCALES, ZEROS, 0, *limits)
        return ops.quantize_per_tensor(x, 0.5, 7, *limits)

    assert_as_eager(lower(quantized, X), quantized, X, **EXACT)


test_limit_before_quantization = cases(floats)("""
limit-before-quantization: what may be too large is clamped -> applied once
    - %y = quantized_decomposed.quantize_per_tensor.default(%x: f32[3], 0.5, 3, -127, 127, i8)
    - %y = quantized_decomposed.quantize_per_tensor.default(%x: f32[3], 0.5, 3, -32768, 32767, i16)
    - %s = aten.sigmoid.default(%x: f32[3])
      %y = quantized_decomposed.quantize_per_tensor.default(%s, 1e-30, 3, -127, 127, i8)
limit-before-quantization: what may be too large is clamped -> applied 0 times
    - %s = aten.sigmoid.default(%x: f32[3])
      %y = quantized_decomposed.quantize_per_tensor.default(%s, 0.5, 3, -127, 127, i8)
    - %y = quantized_decomposed.quantize_per_tensor.default(%x: f32[3], 0.5, 3, -2147483648, 2147483647, i32)
    - %y = quantized_decomposed.quantize_per_tensor.default(%x: f32[3], 1e+32, 3, -127, 127, i8)
    - %y = quantized_decomposed.quantize_per_tensor.default(%x: f32[3], 0.5, 9223372036854775807, -127, 127, i8)
""")

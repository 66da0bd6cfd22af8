"""What special values of kernels explain in a quantized program, and what they do not."""

import math

import torch
import torch.ao.quantization.fx._decomposed  # It registers the operators.
from eager import lower

from .engines import QuantizingNaN, follow_an_engine


def roots(x: torch.Tensor) -> torch.Tensor:
    ops, kind = torch.ops.quantized_decomposed, (0.01, 3, -127, 127, torch.int8)
    return ops.dequantize_per_tensor(ops.quantize_per_tensor(torch.rsqrt(x), *kind), *kind)


def test_outputs_behind_a_quantized_nan_are_an_engines_and_others_are_not() -> None:
    x = torch.tensor([0.0, 4.0, 9.0, 100.0])
    lowered = lower(roots, x)
    with QuantizingNaN(-math.inf):
        outputs = lowered.program.run(x, engine="xnnpack/avx2")
    assert outputs[0][0] < 0 < lowered.program.run(x)[0][0]
    assert follow_an_engine(lowered, (x,), outputs)
    assert not follow_an_engine(lowered, (x,), (outputs[0] + 0.01,))

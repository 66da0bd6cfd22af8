"""Quantize and dequantize operators on their own give PyTorch's bits on the runtime."""

from typing import Any

import pytest
import torch
from eager import EXACT, assert_as_eager, lower
from torch import Tensor, nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  # registers the operators

from stepwell.ir.diagnostics import UnsupportedError

library: Any = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)
REALS = torch.linspace(-40.0, 40.0, 105).reshape(35, 3)
STORED = torch.arange(-127, 128).to(torch.int8).reshape(85, 3)


class Cast(nn.Module):
    """One operator, with scales for each of three channels if it is asked for them."""

    def __init__(self, name: str, scales: torch.dtype | None = None, **keywords: Any) -> None:
        super().__init__()
        self.name, self.channels, self.keywords = name, scales is not None, keywords
        self.register_buffer("scales", torch.tensor([0.25, 0.5, 0.3], dtype=scales))
        self.register_buffer("zeros", torch.tensor([0, 1, -2]))

    def forward(self, x: Tensor) -> Tensor:
        numbers = (self.scales, self.zeros, 1) if self.channels else (0.3, 3)
        return getattr(library, self.name)(x, *numbers, *INT8, **self.keywords)


HALF, WIDE = torch.float16, torch.float32
CASES: dict[str, tuple[Cast, Tensor]] = {
    "floats": (Cast("quantize_per_tensor"), REALS),
    "f16": (Cast("quantize_per_tensor"), REALS.half()),
    "bf16": (Cast("quantize_per_tensor"), REALS.bfloat16()),
    "channels": (Cast("quantize_per_channel", WIDE), REALS),
    "channels of f16": (Cast("quantize_per_channel", WIDE), REALS.half()),
    "from int8": (Cast("dequantize_per_tensor"), STORED),
    "from int8 to f16": (Cast("dequantize_per_tensor", out_dtype=HALF), STORED),
    "from int8 to bf16": (Cast("dequantize_per_tensor", out_dtype=torch.bfloat16), STORED),
    "from channels": (Cast("dequantize_per_channel", WIDE), STORED),
    "from channels to f16": (Cast("dequantize_per_channel", WIDE, out_dtype=HALF), STORED),
}


@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_pytorch_gives(name: str) -> None:
    module, x = CASES[name]
    assert_as_eager(lower(module, x), module, x, **EXACT)


def tokens(x: Tensor) -> Tensor:
    scales, zeros = library.choose_qparams_per_token_asymmetric(x, torch.int8)
    return library.quantize_per_token(x, scales, zeros, *INT8)


def test_a_kernel_that_would_end_the_process_is_not_called() -> None:
    with pytest.raises(UnsupportedError, match="ends the process for element types f64"):
        lower(tokens, REALS.double()).to_pte()


def test_steps_of_halves_are_measured_in_singles() -> None:
    x = REALS.half()
    assert torch.equal(lower(tokens, x).run(x)[0], tokens(x.float()))

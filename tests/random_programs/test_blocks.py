"""The judge of block-scaled programs: one mistake of the reference model is known, no other is."""

import torch
from eager import lower
from torch import Tensor

from stepwell.dialects.tosa_mxfp import operators  # noqa: F401  (registers stepwell_mx)

from .blocks import as_the_model_casts, expected
from .profiles import MX_TARGET


def rounded(x: Tensor) -> Tensor:
    return torch.ops.stepwell_mx.quantize_dequantize(x, "mxint8")


class Layer(torch.nn.Module):
    def __init__(self, payload: str) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 256).reshape(4, 64).sin())
        self.payload = payload

    def forward(self, x: Tensor) -> Tensor:
        probable = torch.softmax(x * 8, -1)
        return torch.ops.stepwell_mx.linear(
            probable, self.weight, None, self.payload, self.payload, "types"
        )


def test_what_the_reference_model_makes_of_small_mxint8_numbers_is_known_to_the_bit() -> None:
    def powers(*shape: int) -> Tensor:
        return torch.exp2(torch.rand(shape, generator=generator) * 150 - 150)

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 32, generator=generator) * powers(256, 32) / powers(256, 1).sqrt()
    (made,) = lower(rounded, x, target=MX_TARGET).run(x)
    assert not torch.equal(made, rounded(x)), "mended in this version: drop as_the_model_casts"
    with as_the_model_casts():
        assert torch.equal(made, rounded(x))


def test_a_code_of_another_payload_is_found_in_each_element() -> None:
    x = torch.linspace(-3, 3, 128).cos().reshape(2, 64)
    right = expected(Layer("fp8e4m3"), (x,))
    assert right.complaint([Layer("fp8e4m3")(x)]) is None
    for payload in ("fp8e5m2", "fp6e2m3", "mxint8"):
        assert "8 of 8" in str(right.complaint([Layer(payload)(x)]))

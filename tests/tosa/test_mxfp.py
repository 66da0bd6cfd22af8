"""MX models compute in PyTorch, bit for bit, what the reference model computes."""

from collections import Counter

import pytest
import torch
from torch import nn

import stepwell
from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS
from stepwell.translate.mxfp import MxLinear, to_mxfp

from .graphs import bits

TARGET = "tosa-1.1+fp+mxfp"


class Mlp(nn.Module):
    """Two linear layers with a relu between; 100 and 160 inputs: one padded, one whole."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(100, 160), nn.Linear(160, 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def lowered(module: nn.Module, x: torch.Tensor) -> "stepwell.Lowered":
    return stepwell.lower(torch.export.export(module.eval(), (x,)), TARGET)


def operators(low: "stepwell.Lowered") -> Counter[str]:
    return Counter(op.name for op in low.program.method().body.block.ops)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_an_eager_mx_model_equals_the_reference_model(payload: str) -> None:
    model, x = to_mxfp(Mlp(), payload), torch.randn(2, 7, 100)
    low = lowered(model, x)
    eager = model(x)
    assert torch.equal(bits(low.run(x)[0]), bits(eager))
    assert torch.equal(bits(low.program.run(x)[0]), bits(eager))


def test_mixed_payloads_equal_the_reference_model() -> None:
    model, x = to_mxfp(Mlp(), "fp8e4m3", weight_payload="fp4e2m1"), torch.randn(3, 100)
    low = lowered(model, x)
    assert operators(low)["tosa.matmul_t"] == 2
    assert torch.equal(bits(low.run(x)[0]), bits(model(x)))


def test_a_grouped_convolution_equals_the_reference_model() -> None:
    layers = nn.Sequential(
        nn.Conv2d(64, 32, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(32, 8, 1)
    )
    model, x = to_mxfp(layers, "fp6e3m2", convolutions=True), torch.randn(1, 64, 7, 7)
    low = lowered(model, x)
    assert operators(low)["tosa.conv2d_block_scaled"] == 3
    assert torch.equal(bits(low.run(x)[0]), bits(model(x)))


def test_no_weight_is_cast_at_run_time_and_a_shared_activation_once() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(64, 32), nn.Linear(64, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) + self.b(x)

    counts = operators(lowered(to_mxfp(Shared()), torch.randn(1, 4, 64)))
    assert counts["tosa.cast_to_block_scaled"] == 1
    assert counts["tosa.matmul_t_block_scaled"] == 2


def test_attention_products_become_mx_in_a_program() -> None:
    class Attention(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(q, k, v)

    inputs = tuple(torch.randn(1, 2, 8, 32) for _ in range(3))
    program = to_mxfp(torch.export.export(Attention(), inputs), attention=True)
    low = stepwell.lower(program, TARGET)
    counts = operators(low)
    assert counts["tosa.matmul_t_block_scaled"] == 2 and counts["tosa.matmul"] == 0
    (found,), (expected,) = low.program.run(*inputs), program.run(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_layers_are_chosen_by_name_and_the_original_keeps_its_own() -> None:
    original = Mlp()
    model = to_mxfp(original, layers="sec*")
    assert type(model.first) is nn.Linear and type(model.second) is MxLinear
    assert type(original.second) is nn.Linear
    assert model.second.weight is original.second.weight


def test_without_the_extension_an_mx_model_is_refused() -> None:
    exported = torch.export.export(to_mxfp(Mlp()).eval(), (torch.randn(3, 100),))
    with pytest.raises(stepwell.StepwellError, match="mxfp"):
        stepwell.lower(exported, "tosa-1.1+fp")


def test_a_model_without_a_layer_that_matches_is_an_error() -> None:
    with pytest.raises(stepwell.StepwellError, match="no layer"):
        to_mxfp(nn.ReLU())

"""Weights stored in 4 or 8 bits, by output or by group, as torchao and ExecuTorch write them."""

from collections.abc import Callable

import pytest
import torch
from eager import assert_as_eager, lower
from test_quantized import inputs_of, is_whole, kinds, lowered, stock
from torch import Tensor, nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401 (registers quantized_decomposed)
from torch.export import ExportedProgram
from torchao.core.config import AOBaseConfig
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import Granularity, PerAxis, PerGroup
from torchao.utils import unwrap_tensor_subclass

from stepwell.lowering import Lowered
from stepwell.validation.check import check

Q = torch.ops.quantized_decomposed


def dynamic(dtype: torch.dtype, by: Granularity) -> AOBaseConfig:
    """Activations by token at run time, weights of `dtype`."""
    return Int8DynamicActivationIntxWeightConfig(weight_dtype=dtype, weight_granularity=by)


def exported(config: AOBaseConfig, inputs: int = 64, *, bias: bool = True) -> ExportedProgram:
    """Two linear layers that torchao quantized."""
    torch.manual_seed(0)
    layers = (nn.Linear(inputs, 96, bias=bias), nn.ReLU(), nn.Linear(96, 32, bias=bias))
    module = nn.Sequential(*layers).eval()
    quantize_(module, config)
    unwrap_tensor_subclass(module)
    return torch.export.export(module, (inputs_of(3, inputs),))


def assert_equals_pytorch(made: Lowered, ep: ExportedProgram, inputs: int = 64) -> None:
    assert_as_eager(made, ep.module(), inputs_of(3, inputs, seed=1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("config", "weight"),
    [
        (dynamic(torch.int4, PerGroup(32)), "qbint4"),
        (dynamic(torch.int8, PerAxis(0)), "qcint8"),
    ],
    ids=["int4 groups", "int8 channels"],
)
def test_dynamic_layers_of_torchao_equal_stock_bit_for_bit(
    config: AOBaseConfig, weight: str
) -> None:
    made = lowered(exported(config))
    assert is_whole(made)
    assert kinds(made, "fully_connected") == [("qdint8", weight, "fp32", "fp32")] * 2
    trials = [inputs_of(3, 64, seed=seed) for seed in range(3)]
    for trial, want in zip(trials, stock(exported(config), trials), strict=True):
        assert torch.equal(made.run(trial)[0], want)


@pytest.mark.parametrize(
    ("config", "inputs", "weights"),
    [
        (dynamic(torch.int4, PerAxis(0)), 64, ("qcint4", "qcint4")),
        (dynamic(torch.int4, PerAxis(0)), 63, ("qcint8", "qcint4")),
        (dynamic(torch.int4, PerAxis(0)), 48, ("qcint4", "qcint4")),
    ],
    ids=["even rows", "odd rows", "rows of no whole groups of 32"],
)
def test_int4_with_a_scale_for_each_output_keeps_its_float32_scales(
    config: AOBaseConfig, inputs: int, weights: tuple[str, str]
) -> None:
    """Stock writes one group a row, with its scale rounded to bfloat16 (2.8e-3 off), or fails."""
    ep = exported(config, inputs)
    made = lowered(ep)
    assert is_whole(made)
    assert tuple(kind[1] for kind in kinds(made, "fully_connected")) == weights
    assert_equals_pytorch(made, ep, inputs)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "weight"), [(torch.int8, "qcint8"), (torch.int4, "qcint4")])
def test_weight_only_layers_keep_their_weights_stored(
    dtype: torch.dtype, weight: str, bias: bool
) -> None:
    """Stock fails: "Missing out variants: torchao::dequantize_affine"."""
    config = IntxWeightOnlyConfig(weight_dtype=dtype, granularity=PerAxis(0))
    ep = exported(config, bias=bias)
    made = lowered(ep)
    assert is_whole(made)
    assert [kind[:2] for kind in kinds(made, "fully_connected")] == [("fp32", weight)] * 2
    assert_equals_pytorch(made, ep)


def test_groups_under_float_inputs_become_floats() -> None:
    ep = exported(IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)))
    made = lowered(ep)
    assert is_whole(made)
    assert kinds(made, "fully_connected") == [("fp32", "fp32", "fp32", "fp32")] * 2
    assert any("no kernel for groups" in refusal.reason for refusal in made.report.refusals)
    assert_equals_pytorch(made, ep)


def test_groups_of_8_bit_weights_are_refused_and_run_as_written() -> None:
    """Stock fails: "Only 4b group quantization is supported"."""
    ep = exported(dynamic(torch.int8, PerGroup(32)))
    made = lowered(ep)
    assert any("groups of 4-bit weights only" in refusal.reason for refusal in made.report.refusals)
    assert_equals_pytorch(made, ep)


class ByToken(nn.Module):
    """Eight-bit tokens and 4-bit groups, as ExecuTorch's own operators write them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.register_buffer("w", torch.randint(-8, 8, (24, 64), dtype=torch.int8))
        self.register_buffer("s", (torch.rand(24, 2) * 0.1 + 0.01).bfloat16().float())
        self.register_buffer("z", torch.zeros(24, 2))

    def forward(self, x: Tensor) -> Tensor:
        scale, zero = Q.choose_qparams_per_token_asymmetric(x, torch.int8)
        held = Q.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
        x = Q.dequantize_per_token(held, scale, zero, -128, 127, torch.int8, torch.float32)
        w = Q.dequantize_per_channel_group(
            self.w, self.s, self.z, -8, 7, torch.int8, 32, torch.float32
        )
        return nn.functional.linear(x, w)


def test_tokens_and_groups_of_executorchs_operators_equal_stock_bit_for_bit() -> None:
    x = inputs_of(2, 5, 64)
    made = lowered(torch.export.export(ByToken(), (x,)))
    assert is_whole(made)
    assert kinds(made, "fully_connected") == [("qdint8", "qbint4", "fp32")]
    (want,) = stock(torch.export.export(ByToken(), (x,)), [x])
    assert torch.equal(made.run(x)[0], want)


@pytest.mark.parametrize(
    "make",
    [
        lambda: exported(dynamic(torch.int4, PerGroup(32))),
        lambda: exported(IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0))),
    ],
    ids=["scales rounded to bfloat16", "biases over scales"],
)
def test_the_bounds_of_stored_weights_hold(make: Callable[[], ExportedProgram]) -> None:
    ep = make()
    result = check(ep, "xnnpack", inputs=ep.example_inputs[0])
    assert result.ok, str(result)


def with_another_scale(x: Tensor) -> Tensor:
    scale, zero = Q.choose_qparams_per_token_asymmetric(x, torch.int8)
    held = Q.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
    w = torch.ones(4, 64) * torch.arange(4)[:, None]
    back = Q.dequantize_per_token(held, scale * 2, zero, -128, 127, torch.int8, torch.float32)
    return nn.functional.linear(back, w)


def test_tokens_dequantized_with_another_scale_are_not_taken_as_the_original_floats() -> None:
    made = lower(with_another_scale, inputs_of(2, 64))
    assert not any("qdint8" in kind for kind in kinds(made, "fully_connected"))

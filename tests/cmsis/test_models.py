"""Whole models: everything on CMSIS-NN but the doors, right on MVE and DSP, out and back."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import quantized
from mobilenet import mobilenet_v2_035
from resnet import resnet8
from stepwell.backends.cortex_m.emit import to_pte
from stepwell.backends.cortex_m.read import read_pte
from stepwell.targets import arm
from tiny import ds_cnn, mlp_autoencoder
from transformer import transformer_encoder_2layers

MODELS: dict[str, Callable[[], Any]] = {
    "ds_cnn": ds_cnn,
    "mlp_autoencoder": mlp_autoencoder,
    "resnet8": resnet8,
    "transformer_encoder_2layers": transformer_encoder_2layers,
    "mobilenet_v2_035": mobilenet_v2_035,
}
CORTEX_M = arm.find("cortex-m55")
DEEP = {"mobilenet_v2_035"}
"""Random weights through 53 layers, where int8 itself is a fifth of the range away from the float
model: each op is held to one unit, the result to be no further from the floats than PT2E's."""


@pytest.mark.parametrize(
    ("name", "core"),
    [(name, core) for name in MODELS for core in ("cortex-m55", "cortex-m4")[: 2 - (name in DEEP)]],
)
def test_a_model_lowers_whole_and_computes_what_its_pt2e_graph_does(
    name: str, core: str, lower_for: Any
) -> None:
    module, inputs = MODELS[name]()
    result = lower_for(core).module(module, *inputs)
    result.check(*inputs, lsb=128.0 if name in DEEP else 6.0)
    if name in DEEP:
        real = module(*inputs)
        theirs = (result.exported.module(check_guards=False)(*inputs) - real).abs().mean()
        assert (result.program.run(*inputs)[0] - real).abs().mean() <= 1.25 * theirs
    assert CORTEX_M.inventory(result.program) == (0, {})
    assert result.ops["cmsis.quantize_per_tensor"] == 1
    assert result.ops["cmsis.dequantize_per_tensor"] == 1
    back = read_pte(to_pte(result.program))
    assert torch.equal(back.run(*inputs)[0], result.program.run(*inputs)[0])


@pytest.mark.parametrize("name", ["cnn_per_tensor", "cnn_per_channel"])
def test_a_graph_of_another_quantizer_lowers_whole(name: str, lower: Any) -> None:
    exported = getattr(quantized, name)()
    result = lower(exported)
    result.check(*exported.example_inputs[0])
    assert CORTEX_M.inventory(result.program) == (0, {})


def test_dynamic_quantization_stays_float_and_says_why(lower: Any) -> None:
    exported = quantized.mlp_dynamic()
    result = lower(exported)
    inputs = exported.example_inputs[0]
    assert torch.equal(result.program.run(*inputs)[0], exported.module()(*inputs))
    assert any("computed at run time" in refusal.reason for refusal in result.refusals)

"""Quantized models become integer graphs, bit-exact on the reference model; Vela takes them."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from forking import Forks
from torch import nn

import stepwell
from mobilenet import mobilenet_v2_035
from quantized import quantize, small_conv_net
from stepwell.dialects.tosa.meaning.quantized import apply_scale_32
from stepwell.translate.rewrites.tosa.integers.integers import fixed_point

from .arm_quantized import parameters, stored
from .graphs import Of


def lowered_int8(make, per_channel: bool = True):
    model, inputs = make()
    exported = quantize(model.eval(), inputs, per_channel=per_channel)
    lowered = stepwell.lower(exported, "tosa-1.0+int")
    return lowered, exported, inputs, stored(inputs[0], *parameters(lowered, "input")[0], 8)


@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
def test_a_small_network_gives_the_integers_of_the_quantized_program(per_channel: bool) -> None:
    lowered, exported, inputs, integers = lowered_int8(small_conv_net, per_channel)
    (found,) = lowered.run(integers)
    assert torch.equal(found, lowered.program.run(integers)[0])
    expected = stored(exported.module()(*inputs), *parameters(lowered, "output")[0], 8)
    assert (found.int() - expected.int()).abs().max() <= 1


def test_no_float_is_left_in_an_integer_graph() -> None:
    lowered, _, _, _ = lowered_int8(small_conv_net)
    assert "f32" not in re.sub(r"%\w+", "", str(lowered.program.module).split("func.func")[1])


def test_mobilenet_is_bit_exact_on_the_reference_model_and_vela_compiles_it(
    tmp_path: Path, forks: Forks
) -> None:
    lowered, _, _, integers = lowered_int8(mobilenet_v2_035)
    data = lowered.to_tosa()
    (found,) = lowered.run(integers)
    assert torch.equal(found, lowered.program.run(integers)[0])
    counts = Counter(op.name for op in lowered.program.method().body.block.ops)
    assert counts["tosa.transpose"] == 1
    (tmp_path / "model.tosa").write_bytes(data)
    vela = Path(sys.executable).with_name("vela")
    options = ["--accelerator-config", "ethos-u85-256", "--output-format", "raw"]
    done = forks.run([vela, "model.tosa", *options, "--output-dir", "out"], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any((tmp_path / "out").iterdir())


def test_a_float_model_for_an_integer_target_is_refused() -> None:
    exported = torch.export.export(nn.Linear(4, 4).eval(), (torch.randn(2, 4),))
    with pytest.raises(stepwell.StepwellError):
        stepwell.lower(exported, "tosa-1.0+int")


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.1, 3.7, 1e-4, 1.9999999999, 2.0**-20, 100.0])
def test_a_fixed_point_factor_is_within_half_a_step_of_the_real_one(scale: float) -> None:
    multiplier, shift = (int(found) for found in fixed_point([scale]))
    assert 2 <= shift <= 62 and multiplier < 1 << 31
    assert abs(multiplier * 2.0**-shift / scale - 1) <= 2.0**-31
    value = torch.tensor([12345])
    found = apply_scale_32(value, torch.tensor([multiplier]), torch.tensor([shift]), False)
    assert abs(found.item() - 12345 * scale) <= 0.5 + 1e-4 * scale


IMAGES = [
    nn.Conv2d(8, 12, 3, stride=2, groups=4),
    nn.Conv2d(8, 12, 3, padding=1, groups=2, bias=False),
    nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1),
    nn.ConvTranspose2d(8, 4, 2, stride=1, padding=2),
]
LINES = [
    nn.Conv1d(8, 6, 5, stride=2, padding=2, dilation=2),
    nn.Conv1d(8, 16, 3, padding=1, groups=8),
    nn.Conv1d(8, 6, 3, groups=2),
    nn.ConvTranspose1d(8, 4, 4, stride=2, padding=1),
]
CONVOLUTIONS = {
    **{str(layer): nn.Sequential(layer, nn.ReLU()) for layer in IMAGES},
    **{str(layer): nn.Sequential(nn.Flatten(2), layer, nn.ReLU()) for layer in LINES},
}
"""Of images and lines: dense, depthwise, of groups, transposed, cut off."""


@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
def test_convolutions_of_every_form_are_integers(per_channel: bool) -> None:
    torch.manual_seed(0)
    for layer in (*IMAGES, *LINES):
        layer.reset_parameters()
    lowered, exported, inputs, integers = lowered_int8(
        lambda: (Of(CONVOLUTIONS), (torch.randn(1, 8, 7, 6),)), per_channel
    )
    given, run = lowered.run(integers), lowered.program.run(integers)
    expected = list(exported.module()(*inputs).values())
    assert len(given) == len(expected) == 8
    for index, (found, ours, real) in enumerate(zip(given, run, expected, strict=True)):
        assert torch.equal(found, ours)
        wanted = stored(real, *parameters(lowered, "output")[index], 8)
        assert (found.int() - wanted.int()).abs().max() <= 1
        assert wanted.unique().numel() > 20

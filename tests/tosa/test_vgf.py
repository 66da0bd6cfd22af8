"""The target vgf: the file that Arm's model converter makes, run on Arm's emulation of Vulkan."""

import importlib

import pytest
import torch
from torch import nn

import stepwell
from stepwell.backends.tosa import run_reference_model, vgf

from .arm_quantized import quantized_by_ours

X = torch.randn(1, 3, 8, 8)


@pytest.fixture(scope="module")
def lowered() -> "stepwell.Lowered":
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)).eval()
    return stepwell.lower(torch.export.export(model, (X,)), "vgf")


def test_without_the_converter_the_error_says_what_to_install(
    lowered: "stepwell.Lowered", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vgf, "CONVERTER", "no-such-command")
    with pytest.raises(stepwell.StepwellError, match=r"stepwell\[vgf\]"):
        lowered.to_vgf()


def test_without_the_emulation_the_error_names_what_is_missing(
    lowered: "stepwell.Lowered", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vgf, "RUNNER", "no-such-command")
    with pytest.raises(stepwell.StepwellError, match=r"no-such-command.*not installed"):
        vgf.run_vgf(b"", [X])


def test_the_graph_of_a_vgf_is_tosa(lowered: "stepwell.Lowered") -> None:
    program = stepwell.read_tosa(lowered.to_tosa())
    assert torch.equal(program.run(X, method="main")[0], lowered.program.run(X)[0])


def test_open_shapes_are_refused_before_the_converter_sees_them() -> None:
    rows = torch.export.Dim("rows", min=1, max=8)
    exported = torch.export.export(nn.ReLU(), (torch.randn(2, 3),), dynamic_shapes=({0: rows},))
    with pytest.raises(stepwell.StepwellError, match="shape"):
        stepwell.lower(exported, "vgf")


needs_emulation = pytest.mark.skipif(
    bool(vgf.missing()), reason=f"not installed: {', '.join(vgf.missing())}"
)
MODELS = {
    "ds_cnn": "tiny",
    "mlp_autoencoder": "tiny",
    "resnet8": "resnet",
    "mobilenet_v1_025": "microcontrollers",
    "mcunet_like": "microcontrollers",
    "tcn": "microcontrollers",
    "unet": "microcontrollers",
    "transformer_encoder_2layers": "transformer",
}


@needs_emulation
def test_inputs_that_are_not_the_files_are_refused(lowered: "stepwell.Lowered") -> None:
    with pytest.raises(stepwell.StepwellError, match=r"0 inputs given, the file takes 1"):
        vgf.run_vgf(lowered.to_vgf(), [])
    with pytest.raises(stepwell.StepwellError, match=r"input 0 is torch.float64"):
        vgf.run_vgf(lowered.to_vgf(), [X.double()])


@pytest.mark.slow
@needs_emulation
@pytest.mark.parametrize("name", MODELS)
def test_the_emulation_has_the_reference_models_bits(name: str) -> None:
    model, inputs = getattr(importlib.import_module(MODELS[name]), name)()
    lowered = stepwell.lower(quantized_by_ours(model, *inputs), "vgf")
    given = [torch.randn_like(x) for x in inputs]
    emulated = lowered.run(*given)
    modeled = run_reference_model(lowered.to_tosa(), given)
    assert len(emulated) == len(modeled)
    assert all(torch.equal(a, b) for a, b in zip(emulated, modeled, strict=True))

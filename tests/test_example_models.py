"""The models in examples/models export, compute something, and are the models they are named."""

import importlib
import importlib.util
import math
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

MODELS = [
    "control_flow:cond_model",
    "control_flow:while_loop_model",
    "convnext:convnext_atto",
    "convnext:convnext_atto_linear",
    "deit:deit_small_depth2",
    "deit:deit_tiny",
    "dynamic:dynamic_batch",
    "dynamic:dynamic_length",
    "efficientnet:efficientnet_b0",
    "gpt2:gpt2_2layers",
    "llama:llama_4layers",
    "llama:llama_4layers_prefill",
    "llama:llama_block",
    "mixer:mixer_s32",
    "mobilenet:mobilenet_v2",
    "mobilenet:mobilenet_v2_035",
    "mobilenet:mobilenet_v3_small",
    "mobilevit:mobilevit_xxs",
    "resnet:resnet18",
    "resnet:resnet50",
    "resnet:resnet8",
    "swin:swin_tiny",
    "tiny:ds_cnn",
    "tiny:mlp",
    "tiny:mlp_autoencoder",
    "transformer:transformer_encoder_2layers",
]

# All others are exported where they are lowered.
EXPORTED_HERE_ALONE = ["convnext:convnext_atto_linear"]


def make(name: str) -> tuple[nn.Module, tuple[Tensor, ...], object]:
    """The module, inputs and dynamic shapes (or None) that the callable ``name`` returns."""
    file, function = name.split(":")
    module, inputs, *shapes = getattr(importlib.import_module(file), function)()
    return module, inputs, shapes[0] if shapes else None


def other_input(x: Tensor) -> Tensor:
    return x.flip(-1) if x.is_floating_point() else (x + 1) % 50


@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_values_of_real_scale_that_depend_on_its_input(name: str) -> None:
    module, inputs, _ = make(name)
    with torch.no_grad():
        y = module(*inputs).clone()
        other = module(other_input(inputs[0]), *inputs[1:])
    assert torch.isfinite(y).all()
    assert 1e-2 < y.std() < 1e2
    assert (y - other).std() > 1e-2 * y.std()


@pytest.mark.parametrize("name", EXPORTED_HERE_ALONE)
def test_a_model_exports(name: str) -> None:
    module, inputs, shapes = make(name)
    program = torch.export.export(module, inputs, dynamic_shapes=shapes)
    assert isinstance(program, ExportedProgram)


def test_a_model_is_the_same_every_time_it_is_made() -> None:
    first, second = make("deit:deit_small_depth2")[0], make("deit:deit_small_depth2")[0]
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


def test_decoding_token_by_token_equals_reading_the_prompt_at_once() -> None:
    decoder, _, _ = make("llama:llama_4layers")
    prefill, (tokens, positions), _ = make("llama:llama_4layers_prefill")
    with torch.no_grad():
        expected = prefill(tokens, positions)
        steps = [decoder(tokens[:, i : i + 1], positions[i : i + 1]) for i in positions]
    torch.testing.assert_close(torch.cat(steps, dim=1), expected)


def test_gpt2_does_not_see_later_tokens() -> None:
    module, (tokens,), _ = make("gpt2:gpt2_2layers")
    with torch.no_grad():
        torch.testing.assert_close(module(tokens[:, :20]), module(tokens)[:, :20])


@pytest.mark.parametrize("name", ["cnn_per_tensor", "cnn_per_channel", "mlp_dynamic"])
def test_a_quantized_program_is_near_its_float_model(name: str) -> None:
    quantized = importlib.import_module("quantized")
    program = getattr(quantized, name)()
    operators = {str(node.target) for node in program.graph.nodes}
    assert any(operator.startswith("quantized_decomposed.quantize") for operator in operators)
    assert any("per_channel" in operator for operator in operators) == (name != "cnn_per_tensor")
    assert any("choose_qparams" in operator for operator in operators) == (name == "mlp_dynamic")
    inputs = program.example_inputs[0]
    module, _ = quantized.mlp() if name == "mlp_dynamic" else quantized.small_conv_net()
    expected, actual = module(*inputs), program.module()(*inputs)
    # Eight bits over a range of about six deviations leave an error of some hundredths of one.
    assert (actual - expected).std() < 0.1 * expected.std()


TIMM = {
    "convnext:convnext_atto": "convnext_atto",
    "deit:deit_tiny": "deit_tiny_patch16_224",
    "efficientnet:efficientnet_b0": "efficientnet_b0",
    "mixer:mixer_s32": "mixer_s32_224",
    "mobilenet:mobilenet_v2": "mobilenetv2_100",
    "mobilenet:mobilenet_v2_035": "mobilenetv2_035",
    "mobilenet:mobilenet_v3_small": "mobilenetv3_small_100",
    "mobilevit:mobilevit_xxs": "mobilevit_xxs",
    "resnet:resnet18": "resnet18",
    "resnet:resnet50": "resnet50",
    "swin:swin_tiny": "swin_tiny_patch4_window7_224",
}


# PyTorch's CPU build cannot load the operators of the torchvision on the package index, which
# torchvision needs only the schemas of to import.
TORCHVISION_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")


@pytest.fixture(scope="module")
def timm() -> ModuleType:
    for module in ("torchvision", "timm"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed; the extra 'models' holds it")
    try:
        return importlib.import_module("timm")
    except RuntimeError:
        for name in ("nms", "qnms"):
            schema = "(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor"
            TORCHVISION_OPERATORS.define(name + schema)
        return importlib.import_module("timm")


@pytest.mark.parametrize("name", sorted(TIMM))
def test_a_model_has_as_many_parameters_as_the_one_of_timm(name: str, timm: ModuleType) -> None:
    def count(module: nn.Module) -> int:
        return sum(math.prod(parameter.shape) for parameter in module.parameters())

    assert count(make(name)[0]) == count(timm.create_model(TIMM[name]))


def test_deit_tiny_exports_to_the_graph_of_timm(timm: ModuleType) -> None:
    def nodes(module: nn.Module) -> list[tuple[str, object]]:
        program = torch.export.export(module, inputs)
        return [
            (str(node.target), getattr(node.meta.get("val"), "shape", None))
            for node in program.graph.nodes
            if node.op == "call_function"
        ]

    module, inputs, _ = make("deit:deit_tiny")
    assert nodes(module) == nodes(timm.create_model(TIMM["deit:deit_tiny"]).eval())

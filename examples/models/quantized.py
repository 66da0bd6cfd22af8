"""Quantized programs: PT2E's, calibrated on random data and converted, and torchao's.

These callables return the ``ExportedProgram`` itself, with its quantize and dequantize nodes. PT2E
takes seconds, so the convolutional nets are quantized once per process: copy a program before
changing it.
"""

from functools import cache

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import Tensor, nn
from torch.export import ExportedProgram
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.utils import unwrap_tensor_subclass

from random_weights import random_input, randomize
from tiny import mlp


class SmallConvNet(nn.Module):
    """Images ``[1, 3, 16, 16]`` to logits ``[1, 10]``: full and depthwise convolution, residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.depthwise = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.pointwise = nn.Conv2d(16, 16, 1)
        self.pool = nn.AvgPool2d(8)
        self.fc = nn.Linear(16, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        x = x + self.pointwise(self.depthwise(x))
        return self.fc(torch.flatten(self.pool(x), 1))


def quantize(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    *,
    per_channel: bool = False,
    dynamic: bool = False,
) -> ExportedProgram:
    """Quantize ``module`` to int8 as annotated by ExecuTorch's ``XNNPACKQuantizer``,
    and export it.
    """
    config = get_symmetric_quantization_config(is_per_channel=per_channel, is_dynamic=dynamic)
    quantizer = XNNPACKQuantizer().set_global(config)
    # Patterns of training are exported for every model, and match nothing in eval mode.
    of_all = XNNPACKQuantizer.SUPPORTED_PATTERNS
    quantizer.SUPPORTED_PATTERNS = [pattern for pattern in of_all if not pattern.is_qat]
    # The quantizer rejects call_module, as which a plain .module() contains its guards.
    graph = torch.export.export(module, inputs).module(check_guards=False)
    prepared = prepare_pt2e(graph, quantizer)
    for seed in range(4):
        prepared(*(random_input(*tensor.shape, seed=seed) for tensor in inputs))
    return torch.export.export(convert_pt2e(prepared), inputs)


def by_groups(module: nn.Module, inputs: tuple[Tensor, ...], size: int = 32) -> ExportedProgram:
    """Quantize ``module`` with torchao's 8da4w: tokens in int8 at run time, weights in int4 by
    groups.
    """
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(size)
    )

    def falls_into_groups(layer: nn.Module, _: str) -> bool:
        return isinstance(layer, nn.Linear) and layer.in_features % size == 0

    quantize_(module, config, falls_into_groups)
    unwrap_tensor_subclass(module)
    return torch.export.export(module, inputs)


def small_conv_net() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The float model of ``cnn_per_tensor`` and ``cnn_per_channel``."""
    return randomize(SmallConvNet()), (random_input(1, 3, 16, 16),)


@cache
def cnn_per_tensor() -> ExportedProgram:
    """A convolutional net, one scale for each weight."""
    return quantize(*small_conv_net())


@cache
def cnn_per_channel() -> ExportedProgram:
    """A convolutional net, one scale for each output channel of a weight."""
    return quantize(*small_conv_net(), per_channel=True)


def mlp_dynamic() -> ExportedProgram:
    """``tiny.mlp`` with dynamically quantized activations."""
    return quantize(*mlp(), per_channel=True, dynamic=True)

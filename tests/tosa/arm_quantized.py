"""Programs as ExecuTorch's own quantizer for TOSA quantizes them, and the integers they take."""

from typing import Any

import torch
from executorch.backends.arm.quantizer.arm_quantizer import (
    TOSAQuantizer,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
from executorch.backends.arm.tosa.specification import TosaSpecification
from torch import Tensor, nn
from torch.export import ExportedProgram, export
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import stepwell
from stepwell.dialects.quant.ports import meanings
from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

WIDTHS = {8: torch.int8, 16: torch.int16}


def quantized(model: nn.Module, inputs: tuple[Tensor, ...], bits: int) -> ExportedProgram:
    """The model as PT2E quantizes its activations to 8 or 16 bits, and its weights to 8."""
    wide = bits == 16
    config = (
        get_symmetric_a16w8_quantization_config() if wide else get_symmetric_quantization_config()
    )
    name = "TOSA-1.0+INT" + "+int16" * wide
    quantizer = TOSAQuantizer(TosaSpecification.create_from_string(name))
    quantizer.set_global(config)
    return quantized_by(quantizer, model, *inputs)


def quantized_by_ours(model: nn.Module, *inputs: Tensor, sizes: Any = None) -> ExportedProgram:
    """The model as this project's quantizer has it, in 8 bits."""
    return quantized_by(CortexMQuantizer(), model, *inputs, sizes=sizes)


def quantized_by(
    quantizer: Any, model: nn.Module, *inputs: Tensor, sizes: Any = None
) -> ExportedProgram:
    """The model as PT2E quantizes it by what these inputs give."""
    graph = export(model.eval(), inputs, dynamic_shapes=sizes).module(check_guards=False)
    prepared = prepare_pt2e(graph, quantizer)
    prepared(*inputs)
    return export(convert_pt2e(prepared), inputs, dynamic_shapes=sizes)


def quantize(x: Tensor, scale: float, zero: int, bits: int = 8) -> Tensor:
    """The integers of a value, as an operator of the graph."""
    q = torch.ops.quantized_decomposed.quantize_per_tensor
    return q(x, scale, zero, -(1 << bits - 1), (1 << bits - 1) - 1, WIDTHS[bits])


def dequantize(x: Tensor, scale: float, zero: int, bits: int = 8) -> Tensor:
    """What integers stand for, as an operator of the graph."""
    q = torch.ops.quantized_decomposed.dequantize_per_tensor
    return q(x, scale, zero, -(1 << bits - 1), (1 << bits - 1) - 1, WIDTHS[bits])


def rounded(x: Tensor, scale: float, zero: int, bits: int = 8) -> Tensor:
    """A value quantized and back."""
    return dequantize(quantize(x, scale, zero, bits), scale, zero, bits)


def parameters(lowered: "stepwell.Lowered", side: str) -> list[tuple[float, int]]:
    """Scale and zero point of each input or output."""
    held = meanings(lowered.program.method(), side)
    return [(one.scale, one.zero_point) for one in held if one]


def stored(x: Tensor, scale: float, zero: int, bits: int) -> Tensor:
    high = 2 ** (bits - 1) - 1
    return (torch.round(x / scale) + zero).clamp(-high - 1, high).to(WIDTHS[bits])

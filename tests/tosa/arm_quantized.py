"""Programs as ExecuTorch's own quantizer for TOSA quantizes them, and the integers they take."""

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
    graph = export(model.eval(), inputs).module(check_guards=False)
    prepared = prepare_pt2e(graph, quantizer)
    prepared(*inputs)
    return export(convert_pt2e(prepared), inputs)


def parameters(lowered: "stepwell.Lowered", side: str) -> list[tuple[float, int]]:
    """Scale and zero point of each input or output."""
    held = meanings(lowered.program.method(), side)
    return [(one.scale, one.zero_point) for one in held if one]


def stored(x: Tensor, scale: float, zero: int, bits: int) -> Tensor:
    high = 2 ** (bits - 1) - 1
    return (torch.round(x / scale) + zero).clamp(-high - 1, high).to(WIDTHS[bits])

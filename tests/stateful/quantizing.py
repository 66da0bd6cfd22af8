"""Programs as quantizers leave them, with the numbers of their buffers as they were."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from ..random_programs.quantizing import fast, quantizer
from .source import Program, exported

GROUP = 32
"""Numbers that share a scale in 8da4w."""


def in_eight_bits(program: Program, ep: ExportedProgram, by: str) -> ExportedProgram:
    """The only method as PT2E quantizes it; ranges are those of all calls."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    graph = ep.module(check_guards=False)
    with fast() as convert:
        prepared = prepare_pt2e(graph, quantizer(by, dynamic=program.quantized == "dynamic"))
        state = {name: value.clone() for name, value in prepared.named_buffers()}
        for number in range(len(program.calls)):
            prepared(*program.given(number))
        own = {name for name, _ in graph.named_buffers()}
        for name, value in prepared.named_buffers():
            if name in own and "activation_post_process" not in name:
                value.copy_(state[name])
        converted = convert(prepared)
    return exported(converted, program, 0)


def in_four_bits(core: torch.nn.Module) -> None:
    """8da4w, in place: weights of linear layers in four bits by groups, what they take in eight."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.utils import unwrap_tensor_subclass

    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(GROUP)
    )
    quantize_(core, config)
    unwrap_tensor_subclass(core)

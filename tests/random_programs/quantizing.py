"""Programs as PT2E quantizes them, without what makes that slow.

Nine tenths of the time would go into three things that no finding depends on: a search for ranges
narrower than what was seen, patterns of quantization-aware training, and the export of the same
patterns for each program.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from stepwell.quantization.quantizers import without_training

from .source import Program, export_one

GROUP = 32
"""Numbers that share a scale in 8da4w."""


def in_eight_bits(program: Program, ep: ExportedProgram, by: str) -> ExportedProgram:
    """The only method as PT2E quantizes it, with the ranges that all calls show.

    The buffers of the program keep their first numbers.
    """
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    graph = ep.module(check_guards=False)
    own = {name: value.clone() for name, value in graph.named_buffers()}
    with fast() as convert:
        prepared = prepare_pt2e(graph, quantizer(by, dynamic=program.quantized == "dynamic"))
        for given in program.every_given():
            prepared(*given)
            prepared(*pytree.tree_map(lambda x: x * 0.7 if x.is_floating_point() else x, given))
        for name, value in prepared.named_buffers():
            if name in own and "activation_post_process" not in name:
                value.copy_(own[name])
        converted = convert(prepared)
    return export_one(converted, program, 0)


def in_four_bits(core: torch.nn.Module) -> None:
    """8da4w, in place: weights of linear layers in four bits by groups, their inputs in eight."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.utils import unwrap_tensor_subclass

    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(GROUP)
    )
    quantize_(core, config)
    unwrap_tensor_subclass(core)


def quantizer(by: str, dynamic: bool = False) -> Any:
    """The quantizer of `xnnpack` (which knows ranges of run time), `tosa` or `cortex-m`."""
    if by == "xnnpack":
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )

        config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
        return without_training(XNNPACKQuantizer().set_global(config))
    if by == "tosa":
        from executorch.backends.arm.quantizer import arm_quantizer
        from executorch.backends.arm.tosa.specification import TosaSpecification

        made = arm_quantizer.TOSAQuantizer(TosaSpecification.create_from_string("TOSA-1.0+INT"))
        return made.set_global(arm_quantizer.get_symmetric_quantization_config())
    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    return CortexMQuantizer()


@contextmanager
def fast() -> Iterator[Callable[[Any], Any]]:
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.observer import HistogramObserver

    with (
        patch.object(
            HistogramObserver, "_non_linear_param_search", lambda self: (self.min_val, self.max_val)
        ),
        patch.object(quantize_pt2e, "_fold_conv_bn_qat", lambda graph: graph),
    ):
        yield quantize_pt2e.convert_pt2e

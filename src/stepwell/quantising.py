"""Quantisers by name, for `--quantise NAME`: those of the house, as plug-ins register theirs.

Each takes a module and example inputs, on which it calibrates, and gives the module with quantize
and dequantize operators in it. Accuracy wants real data: calibrate in a callable of your own then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stepwell.plugins import registry
from stepwell.registry import Quantiser, unknown


def by_pt2e(make: Callable[[], Any]) -> Quantiser:
    """A quantiser of PT2E as a function: annotate, calibrate on the example inputs, convert."""

    def quantise(module: Any, inputs: Sequence[Any]) -> Any:
        import torch
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        graph = torch.export.export(module.eval(), tuple(inputs)).module(check_guards=False)
        prepared = prepare_pt2e(graph, make())
        prepared(*inputs)
        return convert_pt2e(prepared)

    return quantise


def _cortex_m() -> Any:
    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    return CortexMQuantizer()


def _xnnpack() -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))


QUANTISERS: dict[str, Quantiser] = {
    "int8-cortex-m": by_pt2e(_cortex_m),
    "int8-xnnpack": by_pt2e(_xnnpack),
}
"""Those of the house."""


def find_quantiser(name: str) -> Quantiser:
    """The quantiser of a name.

    Raises:
        StepwellError: naming those there are.
    """
    known = {**QUANTISERS, **registry().quantisers}
    if name not in known:
        raise unknown("quantiser", name, known)
    return known[name]

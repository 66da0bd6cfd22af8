"""Quantize for Cortex-M: PT2E with stepwell's quantizer, one int8 program for the core, checked.

A channels-first convolution needs no change in the model: the lowering assigns layouts.

Run: python examples/quantize_for_cortex_m.py
"""

from __future__ import annotations

import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import stepwell
from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer


class Model(torch.nn.Module):
    """A convolution, a global pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """`[1, 3, 12, 12]` to 5 scores."""
        seen = torch.relu(self.conv(image))
        return self.head(torch.nn.functional.adaptive_avg_pool2d(seen, 1).flatten(1))


def quantized(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]
) -> torch.export.ExportedProgram:
    """Annotate, calibrate on random images, convert, export again."""
    graph = torch.export.export(module, inputs).module(check_guards=False)
    prepared = prepare_pt2e(graph, CortexMQuantizer())
    for _ in range(8):
        prepared(*(torch.randn_like(value) for value in inputs))
    return torch.export.export(convert_pt2e(prepared), inputs)


def main() -> None:
    """Quantize, lower for a Cortex-M55, inspect, check every pass bit for bit, run."""
    torch.manual_seed(0)
    model, inputs = Model().eval(), (torch.randn(1, 3, 12, 12),)
    exported = quantized(model, inputs)
    lowered = stepwell.lower(exported, "cortex-m55", check=True)
    print(lowered.program)
    print(lowered.report)
    print(lowered.report.check)
    with torch.no_grad():
        expected = model(*inputs)
    given = lowered.run(*inputs)[0]
    noise = ((given - expected).norm() / expected.norm()).item()
    print(f"{len(lowered.to_pte()):,} bytes; {noise:.1%} from the float model")
    assert noise < 0.1


if __name__ == "__main__":
    main()

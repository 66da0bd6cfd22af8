"""Models of bfloat16 beside the stock flow: file, delegates, ops outside, error.

    python tools/bfloat16.py [--only NAME]

The stock flow runs with `XnnpackPartitioner(enable_bf16=True)`. An error is the largest difference
of the runtime's result from the model in float64 with the same weights, and from PyTorch's in
bfloat16, over the largest absolute result; infinite if the runtime refuses the file. Status 1 if a
file is more than 1 % larger than the stock flow's, or has more ops outside, or a larger error.
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import stepwell
from stepwell.integrations.executorch.stock import counted, stock_pte

sys.path.append(str(Path(__file__).parent.parent / "examples" / "models"))


def layers() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers and a rectifier."""
    net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
    return net, (torch.randn(8, 512),)


def perceptron() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A norm, and two layers with a curve between them."""
    net = nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
    return net, (torch.randn(1, 64, 256),)


def encoder() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers of a transformer."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(1, 32, 128),)


class Gated(nn.Module):
    """A gated layer with a residual connection, as language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(256)
        self.up, self.gate = (nn.Linear(256, 688, bias=False) for _ in range(2))
        self.down = nn.Linear(688, 256, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def gated() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A gated layer."""
    return Gated(), (torch.randn(1, 16, 256),)


def mixer() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Layers on the patches of an image."""
    net = nn.Sequential(nn.Conv2d(3, 128, 16, 16), nn.Flatten(2), nn.Linear(196, 196), nn.GELU())
    return nn.Sequential(net, nn.Linear(196, 10)), (torch.randn(1, 3, 224, 224),)


def of_example(file: str, function: str) -> Callable[[], tuple[nn.Module, Any]]:
    """A model of the folder `examples/models`."""

    def make() -> tuple[nn.Module, Any]:
        module, inputs, *_ = getattr(__import__(file), function)()
        return module, inputs

    return make


MODELS: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "two layers": layers,
    "perceptron": perceptron,
    "encoder": encoder,
    "gated layer": gated,
    "patches and layers": mixer,
    "DeiT-Tiny": of_example("deit", "deit_tiny"),
    "Mixer-S": of_example("mixer", "mixer_s32"),
    "GPT-2": of_example("gpt2", "gpt2_2layers"),
}


def narrowed(values: Any, dtype: torch.dtype) -> tuple[Any, ...]:
    """Inputs with their floats in another dtype."""
    return tuple(v.to(dtype) if v.is_floating_point() else v for v in values)


def measure(name: str) -> list[list[Any]]:
    """A row for each flow."""
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    module = module.eval().bfloat16()
    given = narrowed(inputs, torch.bfloat16)
    eager = module(*given)
    exact = copy.deepcopy(module).double()(*narrowed(given, torch.float64))
    flows: dict[str, Callable[[Any], bytes]] = {
        "stock": lambda exported: stock_pte(exported, enable_bf16=True),
        "stepwell": lambda exported: stepwell.lower(exported, "xnnpack").to_pte(),
    }
    rows: list[list[Any]] = []
    for flow, make in flows.items():
        size = float(exact.abs().max())
        pte = make(torch.export.export(module, given))
        try:
            result = stepwell.run_pte(pte, given)[0].double()
        except stepwell.StepwellError:
            result = torch.full_like(exact, torch.inf)  # The runtime refuses the file.
        errors = [float((result - other.double()).abs().max()) / size for other in (exact, eager)]
        counts = counted(pte)
        rows.append([name, flow, len(pte), counts["delegates"], counts["outside"], *errors])
    return rows


def main() -> int:
    """Measure every requested model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="part of a name")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    behind = 0
    print("model | flow | bytes | delegates | outside | error of float64 | error of PyTorch's")
    for name in MODELS:
        if options.only not in name:
            continue
        theirs, ours = measure(name)
        for row in (theirs, ours):
            print(" | ".join(f"{v:.2e}" if isinstance(v, float) else str(v) for v in row))
        behind += ours[2] > 1.01 * theirs[2] or ours[4] > theirs[4] or ours[5] > theirs[5]
    return int(behind > 0)


if __name__ == "__main__":
    sys.exit(main())

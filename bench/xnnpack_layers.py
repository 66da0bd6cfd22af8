"""Single layers on XNNPACK: linear layers in float32 and int8, patches as windows and as rows.

    python bench/xnnpack_layers.py [--rounds 60]

What int8 can gain on this machine is what its linear layers gain; the rest of a transformer stays
float. And a convolution over patches is run as XNNPACK's convolution and as `patches-to-linear`
writes it. Programs run turn by turn on one thread; the tenth percentile of each.
"""

from __future__ import annotations

import argparse
import logging
import statistics
from typing import Any

import torch
from _report import prepare, show
from torch import nn
from xnnpack import run_in_turn, set_threads

import stepwell
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.translate.rewrites.xnnpack.convolutions.patches_to_linear import PatchesToLinear

TOKENS = 197
LINEAR = ((192, 576), (192, 192), (192, 768), (768, 192))
"""Inputs and outputs of DeiT-Tiny's layers."""
PATCHES = (
    (3, 192, 16, 224),
    (3, 40, 4, 224),
    (3, 512, 32, 224),
    (16, 64, 2, 112),
    (96, 192, 2, 56),
)
"""Channels, outputs, kernel, size of the image."""


def p10(programs: dict[str, bytes], inputs: tuple[Any, ...], rounds: int) -> dict[str, float]:
    """Milliseconds of each program."""
    times, _ = run_in_turn(programs, inputs, rounds)
    return {name: statistics.quantiles(held, n=10)[0] for name, held in times.items()}


def linear(inputs: int, outputs: int, rounds: int) -> list[Any]:
    """Twelve layers side by side in float32, static and dynamic int8."""
    from quantized import quantize

    class Twelve(nn.Module):
        """As many layers of one input as a transformer has blocks, each with its output."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(inputs, outputs) for _ in range(12))

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [layer(x) for layer in self.layers]

    x = (torch.randn(1, TOKENS, inputs),)
    module = Twelve().eval()
    programs = {"fp32": torch.export.export(module, x)}
    for kind in ("static", "dynamic"):  # Static ones quantize their input and give back floats.
        programs[kind] = quantize(module, x, per_channel=True, dynamic=kind == "dynamic")
    ptes = {name: stepwell.lower(ep, "xnnpack").to_pte() for name, ep in programs.items()}
    ms = p10(ptes, x, rounds)
    ratios = [f"{ms['fp32'] / ms[kind]:.2f}" for kind in ("static", "dynamic")]
    return [f"{inputs} → {outputs}", *(f"{value:.2f}" for value in ms.values()), *ratios]


def patches(channels: int, outputs: int, kernel: int, size: int, rounds: int) -> list[Any]:
    """A convolution over patches, with and without the rewrite."""
    x = (torch.randn(1, channels, size, size),)
    exported = torch.export.export(nn.Conv2d(channels, outputs, kernel, kernel).eval(), x)
    own = stepwell.PIPELINES["xnnpack"]
    without = Pipeline(
        own.name, tuple(step for step in own.steps if not isinstance(step, PatchesToLinear))
    )
    ptes = {
        "windows": stepwell.lower(exported, "xnnpack", without).to_pte(),
        "rows": stepwell.lower(exported, "xnnpack").to_pte(),
    }
    ms = p10(ptes, x, rounds)
    name = f"{channels} → {outputs}, {kernel}×{kernel} of {size}×{size}"
    ratio = f"{ms['windows'] / ms['rows']:.2f}"
    return [name, *(f"{value:.2f}" for value in ms.values()), ratio]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60, help="runs of each program")
    options = parser.parse_args()
    prepare()
    logging.disable(logging.WARNING)
    set_threads(1)
    torch.manual_seed(0)
    rows = [linear(*sizes, options.rounds) for sizes in LINEAR]
    columns = (
        "12 linear layers, 197 tokens",
        "fp32 ms",
        "static ms",
        "dynamic ms",
        "gain (static)",
        "gain (dynamic)",
    )
    show("Linear layers, 1 thread", columns, rows, "gain: fp32 / int8")
    rows = [patches(*sizes, options.rounds) for sizes in PATCHES]
    columns = ("patches", "convolution ms", "rows ms", "gain")
    show("Convolutions over patches, 1 thread, float32", columns, rows, "gain: convolution / rows")


if __name__ == "__main__":
    main()

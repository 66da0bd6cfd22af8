"""What weights absorb, on and off: time and error of each model without one absorption at a time.

    python bench/xnnpack_absorption.py [--models deit_tiny,gpt2_2layers:128] [--rounds 60]

Each row is the full pipeline less one rewrite, run turn by turn with the full one on one thread. A
time below 1 says that the program is slower without it. Errors are the largest against eager
PyTorch. What a rewrite does when it is off, a later one may do in part: two rows need not add up.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from _report import prepare, show, write
from xnnpack import count, made, program_of, run_in_turn, set_threads

import stepwell
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import GreedyRewrites
from stepwell.translate.rewrites.layers import fold_batch_norm
from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer
from stepwell.translate.rewrites.layers.fold_constant_into_layer import (
    FoldBiasIntoLayer,
    FoldScaleIntoLayer,
)
from stepwell.translate.rewrites.norms.center_residual_stream import CenterResidualStream
from stepwell.translate.rewrites.xnnpack.nodes.merge_linears import MergeLinears

ABSORPTIONS: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "mean of residual stream": CenterResidualStream,
    "scale and shift of norms": FoldAffineIntoLayer,
    "scale of attention": FoldScaleIntoLayer,
    "added constants": FoldBiasIntoLayer,
    "batch norms": tuple(fold_batch_norm.RULES),
    "layers in a row": MergeLinears,
}
MODELS = "deit_tiny,gpt2_2layers,gpt2_2layers:128,llama_block:128,mobilenet_v2,resnet18"


@dataclass(frozen=True)
class Without:
    """A program without one absorption, against the full one."""

    p10_ms: float
    full_ms: float
    nodes: int
    delegates: int
    outside: int
    error: float


def without(pipeline: Pipeline, rewrite: type[Any] | tuple[type[Any], ...]) -> Pipeline:
    """The pipeline without any occurrence of a rewrite."""

    def kept(steps: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(
            GreedyRewrites(step.label, kept(step.rewrites))
            if isinstance(step, GreedyRewrites)
            else step
            for step in steps
            if not isinstance(step, rewrite)
        )

    return Pipeline(pipeline.name, kept(pipeline.steps))


@torch.no_grad()
def measure(name: str, rounds: int) -> dict[str, Without]:
    """The full program and each without one absorption that changes it."""
    module, inputs, kind, _ = made(name)
    expected = copy.deepcopy(module)(*inputs)
    exported = program_of(module, inputs, kind)
    full = stepwell.PIPELINES["xnnpack"]
    programs = {"all on": stepwell.lower(exported, "xnnpack", full).to_pte()}
    for what, rewrite in ABSORPTIONS.items():
        pte = stepwell.lower(exported, "xnnpack", without(full, rewrite)).to_pte()
        if pte != programs["all on"]:
            programs[what] = pte
    times, first = run_in_turn(programs, inputs, rounds)
    ms = {
        what: statistics.quantiles(held, n=10, method="inclusive")[0]
        for what, held in times.items()
    }
    found: dict[str, Without] = {}
    for what, pte in programs.items():
        counts = count(pte)
        found[what] = Without(
            ms[what],
            ms["all on"],
            counts["nodes"],
            counts["delegates"],
            counts["outside"],
            float((first[what][0] - expected).abs().max()),
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS, help="names as bench/xnnpack.py takes them")
    parser.add_argument("--threads", type=int, default=1, help="of the runtime; 0 is its default")
    parser.add_argument("--rounds", type=int, default=60, help="runs of each program")
    options = parser.parse_args()
    prepare()
    threads = set_threads(options.threads or None)
    rows: list[list[Any]] = []
    results: dict[str, Any] = {}
    for name in options.models.split(","):
        found = measure(name, options.rounds)
        results[name] = {what: asdict(held) for what, held in found.items()}
        for what, held in found.items():
            rows.append(
                [
                    name if what == "all on" else "",
                    what if what == "all on" else f"without {what}",
                    f"{held.p10_ms:.2f}",
                    f"{held.full_ms / held.p10_ms:.2f}",
                    held.nodes,
                    f"{held.delegates}/{held.outside}",
                    f"{held.error:.1e}",
                ]
            )
            print(*rows[-1], flush=True)
    columns = ("model", "absorbed", "p10 ms", "speed", "nodes", "delegates/outside", "max error")
    note = "speed: of the full program is 1; below 1 is slower than it"
    show(f"Weight absorption on and off, {threads} thread(s)", columns, rows, note)
    write(
        "xnnpack_absorption" if threads == 1 else f"xnnpack_absorption-{threads}-threads", results
    )


if __name__ == "__main__":
    main()

"""Peak memory, and time from file to first result: stock ExecuTorch compared with stepwell.

    python bench/loading.py [--models deit_tiny,…] [--stock FOLDER] [--repeat 5] [--numerics torch]
                            [--table docs/peers.md]

Both flows' files are loaded by the same runtime with the same options, each in forks of a process
that has the runtime in it, in turn (`bench/_memory.py`), the least
seconds of `--repeat`, and the median of the megabytes that loading and three runs add at the most.
Steady is what stays after the runs. One thread.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from _peer_tables import OURS
from _report import RESULTS, between_markers, prepare, show, write
from xnnpack import calls, made, program_of, resources, stock_of, warm_up

import stepwell

STOCK = "stock"
TWELVE = (
    "deit_tiny",
    "swin_tiny",
    "mixer_s32",
    "convnext_atto",
    "mobilevit_xxs",
    "gpt2_2layers:128",
    "llama_block:128",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "efficientnet_b0",
    "resnet18",
    "resnet50",
)


@dataclass(frozen=True)
class Loaded:
    """One flow's file."""

    seconds: float
    peak_mb: float
    steady_mb: float
    delegates: int
    outside: int
    bytes: int


def loaded(pte: bytes, said: list[dict[str, float] | None]) -> Loaded:
    """Of several times; a process that did not end well ends the bench."""
    held = [one for one in said if one is not None]
    assert len(held) == len(said), "a program ended its process"
    return Loaded(
        min(one["seconds"] for one in held),
        statistics.median(one["peak"] for one in held),
        statistics.median(one["steady"] for one in held),
        **calls(pte),
        bytes=len(pte),
    )


@torch.no_grad()
def measure(name: str, options: argparse.Namespace) -> dict[str, Loaded]:
    """Both flows on one model."""
    module, inputs, kind, _ = made(name)
    exported = program_of(module, inputs, kind)
    ours = stepwell.lower(exported, "xnnpack", numerics=options.numerics).to_pte()
    programs = {STOCK: stock_of(name, exported, options.stock)[1], OURS: ours}
    found = resources(programs, inputs, options.repeat)
    return {flow: loaded(programs[flow], said) for flow, said in found.items()}


COLUMNS = ("model", "delegates / outside", "peak MB", "ratio", "steady MB", "load s", "ratio")


def line(name: str, found: dict[str, Any]) -> list[str]:
    """Return a table line; stock's numbers are before the arrow, ratios are ours ÷ stock's."""
    stock, ours = found[STOCK], found[OURS]

    def both(form: str, *keys: str) -> str:
        return " → ".join(
            "/".join(form.format(flow[key]) for key in keys) for flow in (stock, ours)
        )

    return [
        name,
        both("{}", "delegates", "outside"),
        both("{:.1f}", "peak_mb"),
        f"{ours['peak_mb'] / stock['peak_mb']:.2f}",
        both("{:.1f}", "steady_mb"),
        both("{:.3f}", "seconds"),
        f"{ours['seconds'] / stock['seconds']:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(TWELVE))
    parser.add_argument("--stock", type=Path, help="folder that keeps the stock flow's programs")
    parser.add_argument("--repeat", type=int, default=5, help="processes of each file")
    parser.add_argument("--numerics", default="torch")
    parser.add_argument("--table", type=Path, help="write the table between this file's marks")
    options = parser.parse_args()
    prepare()
    logging.disable(logging.WARNING)
    if options.stock is None:
        warm_up()
    kept = RESULTS / "loading.json"
    results: dict[str, Any] = json.loads(kept.read_text())["results"] if kept.exists() else {}
    for name in options.models.split(","):
        found = measure(name, options)
        results[name] = {flow: asdict(held) for flow, held in found.items()}
        print(*line(name, results[name]), flush=True)
        write("loading", results)
    lines = [line(name, results[name]) for name in results]
    show("Loading, stock → stepwell, 1 thread", COLUMNS, lines)
    if options.table:
        head = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
        rows = ["| " + " | ".join(cells) + " |" for cells in lines]
        between_markers(options.table, "loading", [*head, *rows])


if __name__ == "__main__":
    main()

"""Tuned against untuned programs on XNNPACK, model by model, one thread.

    python bench/tuning.py --table tuned.json                 # measure choices, and keep them
    python bench/tuning.py --table tuned.json --compare       # what the table is worth

The second measures anew, with the table of all models, so that no model is judged by the runs that
chose for it. Times are those of the thread, pair by pair, the middle of them; below 1 the tuned
program is faster. `spread` is the same of two copies of the untuned program: noise.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from _report import prepare, show, write
from xnnpack import set_threads

import stepwell
from stepwell.cost_model.tuning import Measured, compared, table_of, tune, write_table
from stepwell.lowering import lower
from stepwell.model_zoo.catalogue.models import find

MODELS = (
    "torchvision/resnet18", "torchvision/mobilenet_v2", "torchvision/efficientnet_b0",
    "timm/repvgg_a0", "timm/densenet121", "timm/mnasnet_small", "examples/deit.deit_tiny",
    "examples/swin.swin_tiny", "examples/gpt2.gpt2_2layers:256", "examples/llama.llama_block:256",
    "smp/unet-resnet18", "examples/clip.clip",
)  # fmt: skip
"""One of each kind of choice and of network, by name in the zoo; `:256` is a prompt's length."""


def made(name: str) -> tuple[stepwell.Program, Sequence[Any]]:
    """A model of the zoo, imported, and its inputs."""
    plain, _, tokens = name.partition(":")
    if tokens:
        file, function = plain.removeprefix("examples/").split(".")
        module, inputs = getattr(importlib.import_module(file), function)(int(tokens))
    else:
        held = find(plain).make()
        assert held.module is not None
        module, inputs = held.module, held.inputs
    with torch.no_grad():
        exported = torch.export.export(module.eval(), inputs)
    return stepwell.from_exported_program(exported), inputs


def tune_all(names: Sequence[str], path: Path) -> None:
    """Tune each model, and keep what holds for all in a table."""
    found: list[Measured] = []
    for name in names:
        tuned = tune(*made(name))
        found.append(tuned.measured)
        print(f"{name}: {tuned.ratio:.3f} of {tuned.untuned_ms:.2f} ms", tuned.choices, flush=True)
        write_table(path, table_of(found))


def compare_all(names: Sequence[str], path: Path, pairs: int) -> None:
    """Hold each model with the whole table against itself without."""
    rows: list[dict[str, Any]] = []
    for name in names:
        program, inputs = made(name)
        untuned, again = lower(program, "xnnpack"), lower(program, "xnnpack")
        tuned = lower(program, "xnnpack", tuned=path)
        found = compared(untuned, tuned, inputs, pairs)
        noise = compared(untuned, again, inputs, pairs, even_if_equal=True)
        row = {"model": name, "untuned_ms": found.first_ms, "ratio": found.ratio}
        rows.append({**row, "spread": noise.ratio, "differs": untuned.artifact != tuned.artifact})
    mean = statistics.geometric_mean(row["ratio"] for row in rows)
    worst = max(row["ratio"] for row in rows)
    columns = ("model", "untuned_ms", "ratio", "spread", "differs")
    note = f"geometric mean {mean:.3f}, worst {worst:.3f}"
    show("tuned / untuned", columns, [[row[c] for c in columns] for row in rows], note)
    write("tuning", rows)


def main() -> None:
    """Tune or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, default=Path("tuned.json"))
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--pairs", type=int, default=41)
    parser.add_argument("models", nargs="*", default=MODELS)
    arguments = parser.parse_args()
    prepare()
    set_threads(1)
    if arguments.compare:
        compare_all(arguments.models, arguments.table, arguments.pairs)
    else:
        tune_all(arguments.models, arguments.table)


if __name__ == "__main__":
    main()

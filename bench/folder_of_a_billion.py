"""A published folder of 1.1 billion weights in bfloat16 → an 8da4w `.pte`: CPU time and memory.

    python bench/folder_of_a_billion.py [--keep FOLDER] [--table docs/language_models.md]

TinyLlama's sizes with random weights, a table of eight bits. CPU seconds from the folder's name to
the written file, after the imports; the peak resident memory above that of the imports
(`VmHWM`, Linux), and how much of it is beyond the checkpoint, whose pages count as they are read.
Takes 3 GB of disk.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from _report import between_markers, cpu_name, prepare, show, write

import stepwell
from stepwell.loaders.models import open_model
from stepwell.model_zoo.sweep.memory import peak

MEGABYTE = 1 << 20
TAKEN = (
    "transformers.models.llama.modeling_llama",
    "torchao.quantization",
    "stepwell.language_models",
)


def write_folder(folder: Path) -> None:
    """Write the `save_pretrained` folder of an untrained model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048,
        num_hidden_layers=22,
        intermediate_size=5632,
        num_attention_heads=32,
        num_key_value_heads=4,
        vocab_size=32000,
        max_position_embeddings=2048,
        dtype=torch.bfloat16,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model = model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.02, generator=generator)
            else:
                parameter.fill_(1)
    model.save_pretrained(folder)


def lowered(folder: Path) -> dict[str, Any]:
    """One row, in a process of its own."""
    prepare()
    for name in TAKEN:
        importlib.import_module(name)

    def work() -> float:
        began = time.process_time()
        model = open_model(str(folder), quantize="8da4w", language={"embedding": 8})
        stepwell.lower(model.program, "xnnpack").save(folder / "model.pte")
        return time.process_time() - began

    seconds, most = peak(work)
    if most is None:
        raise SystemExit("memory is measured on Linux only")
    checkpoint = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return {
        "cpu": cpu_name(),
        "seconds": seconds,
        "checkpoint_mb": checkpoint / MEGABYTE,
        "file_mb": (folder / "model.pte").stat().st_size / MEGABYTE,
        "resident_mb": most / MEGABYTE,
        "beyond_mb": (most - checkpoint) / MEGABYTE,
    }


HEADS = ("CPU", "CPU s", "checkpoint MB", "file MB", "resident +MB", "beyond the checkpoint MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="a folder in which the model stays")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--row", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        print(json.dumps(lowered(options.row)))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = options.keep or Path(place)
        if not (folder / "config.json").exists():
            write_folder(folder)
        command = [sys.executable, __file__, "--row", str(folder)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    row = json.loads(done.stdout.splitlines()[-1])
    name, seconds, *sizes = row.values()
    cells = [name, f"{seconds:.1f}", *(f"{size:.0f}" for size in sizes)]
    show("1.1 billion weights, bf16 → 8da4w with a table of 8 bits", HEADS, [cells])
    write("folder_of_a_billion", [row])
    if options.table is not None:
        lines = ["| " + " | ".join(line) + " |" for line in (HEADS, ["---"] * len(HEADS), cells)]
        between_markers(options.table, "folder-of-a-billion", lines)


if __name__ == "__main__":
    main()

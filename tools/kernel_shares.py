"""Show what a model's time on XNNPACK consists of, and the least that its kernels allow.

    python tools/kernel_shares.py [--models resnet18,…] [--options cpu=x86-64-avx2] [--table FILE]

Milliseconds of one call on one thread, from ExecuTorch's profiler (medians of 30 calls), by family
of kernel: products of matrices, convolutions that gather by pointers, depthwise convolutions,
copies (slices, concatenations, paddings, transposes, reshapes) and the rest. The floor is the time
without copies: what remains if a convolution's pixels were gathered for nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

from _models import made
from _report import between_markers, cpu_name, markdown, prepare, set_threads, show
from peers import ELEVEN

import stepwell

FAMILIES = {
    "products": ("GEMM",),
    "convolutions": ("IGEMM",),
    "depthwise": ("DWConv",),
    "copies": ("Slice", "Concat", "Pad", "Transpose", "Copy", "Split", "Reshape"),
}
"""Words in the names of XNNPACK's operators, by family; a later family overrides."""
COLUMNS = ("model", *FAMILIES, "rest", "in all", "floor")


def shares(called: str, options: dict[str, str]) -> Counter[str]:
    """Return the milliseconds of a model by family."""
    model = made(called)
    program = torch.export.export(model.module, model.inputs)
    profile = stepwell.lower(program, "xnnpack", **options).profile(*model.inputs, repeat=30)
    found: Counter[str] = Counter()
    for event in profile.events:
        names = [n for n, words in FAMILIES.items() if any(word in event.name for word in words)]
        found[names[-1] if names else "rest"] += event.milliseconds
    return found


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(ELEVEN))
    parser.add_argument("--options", default="", help="of lowering: numerics=finite,cpu=…")
    parser.add_argument("--table", type=Path, help="write the table between this file's marks")
    options = parser.parse_args()
    prepare()
    set_threads(1)
    chosen = dict(pair.split("=") for pair in options.options.split(",") if pair)
    rows: list[list[str]] = []
    for name in options.models.split(","):
        found = shares(name, chosen)
        whole = sum(found.values())
        times = (*(found[family] for family in (*FAMILIES, "rest")), whole, whole - found["copies"])
        rows.append([name, *(f"{time:.2f}" for time in times)])
        print(*rows[-1], flush=True)
    show(f"milliseconds on {cpu_name()}, {options.options}", COLUMNS, rows)
    if options.table:
        between_markers(options.table, "shares", markdown(COLUMNS, rows))


if __name__ == "__main__":
    main()

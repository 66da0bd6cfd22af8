"""Write a folder with a model of MLPerf Tiny as C and the submitter's side of the harness.

    python examples/mlperf_tiny/harness.py kws FOLDER [--target cortex-m4] [--kernels cmsis-nn]

Compile its files together with MLCommons' `benchmark/api/internally_implemented.cpp` and
`benchmark/reference_submissions/*/main.cpp` (README.md).
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from models import BENCHMARKS, quantized

import stepwell

HERE = Path(__file__).resolve().parent
FILES = ("submitter_implemented.cpp", "board.h", "board_stdio.cpp")


def quantization(name: str, lowered: stepwell.Lowered) -> str:
    """Return the header that states how the harness' bytes become the model's int8, and back."""
    sent, lines = BENCHMARKS[name].sent, ["#define SENT_FLOATS 1"]
    if sent is not None:
        scale, zero, kind = sent
        lines = [
            f"#define SENT_TYPE {kind}",
            f"#define SENT_SCALE {scale!r}f",
            f"#define SENT_ZERO_POINT {zero}",
        ]
    for side in ("input", "output"):
        scale, zero = ends(lowered, side)
        lines.append(f"#define {side.upper()}_SCALE {scale!r}f")
        lines.append(f"#define {side.upper()}_ZERO_POINT ({zero})")
    version = f'#define TH_MODEL_VERSION "{BENCHMARKS[name].version}"'
    return "\n".join([f"/* {version[8:]} */", *lines, ""])


def ends(lowered: stepwell.Lowered, side: str) -> tuple[float, int]:
    """Return the scale and zero point of the only input or output."""
    stated: Any = lowered.program.method().attributes[f"cmsis.{side}_quantization"]
    found = re.search(r"scale=(\S+) zero_point=(-?\d+)", str(stated))
    assert found is not None
    return float(found[1]), int(found[2])


def write(
    name: str, folder: Path, target: str = "cortex-m4", kernels: str = "portable"
) -> stepwell.Lowered:
    """Write the folder, and return the lowered program."""
    lowered = stepwell.lower(quantized(name), target, io="int8")
    sources = lowered.to_c("model", runtime=None, kernels=kernels)  # pyright: ignore[reportCallIssue, reportArgumentType]
    folder.mkdir(parents=True, exist_ok=True)
    files = {n: text for n, text in sources.files.items() if n in ("model.c", "model.h")}
    files["quantization.h"] = quantization(name, lowered)
    files |= {n: (HERE / n).read_text() for n in FILES}
    for file, text in files.items():
        (folder / file).write_text(text)
    return lowered


def main() -> None:
    """Write the folder, and say how to compile it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=list(BENCHMARKS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cortex-m4", help="cortex-m55, c-rv32imc, …")
    parser.add_argument("--kernels", default="portable", choices=["portable", "cmsis-nn", "mixed"])
    given = parser.parse_args()
    lowered = write(given.name, given.folder, given.target, given.kernels)
    print(f"{lowered!r}\ncompile {given.folder}/*.c* with -DTH_MODEL_VERSION="
          f'\'"{BENCHMARKS[given.name].version}"\'')  # fmt: skip


if __name__ == "__main__":
    main()

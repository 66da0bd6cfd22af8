"""Small nets as C without a runtime: what is refused, and elements off what they should be.

    python bench/c_programs.py [NET …] [--quantizers float ours stock] [--cpu cortex-m4] [--cxx]

Each net is quantised by this project's quantizer, by ExecuTorch's, and not at all; its C is built
with gcc (or g++) as strictly as the tests do and run three times, so that state counts. Quantised
programs are compared with the interpreter, which is CMSIS-NN's arithmetic bit for bit
(`tests/cmsis/test_kernels_golden.py`), float ones with ExecuTorch's runtime on the same `.pte`. An
integer is off if it differs, a float if it does by more than the bound (`_small_nets.BOUND`).
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram, export

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/cmsis"), str(ROOT / "bench")]

import _small_nets as small  # noqa: E402
import standalone_builds as builds  # noqa: E402

import stepwell  # noqa: E402
from stepwell.backends.executorch.running.runner import PteSession  # noqa: E402

CALLS = 3


def exported(name: str, quantizer: str) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    """A net by name, quantised by `ours` or `stock`, or as it is (`float`), and an input."""
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer as Stock
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    module, inputs = small.net(name)
    program = export(module, inputs)
    if quantizer == "float":
        return program, inputs
    chosen = CortexMQuantizer() if quantizer == "ours" else Stock()
    prepared = prepare_pt2e(program.module(check_guards=False), chosen)
    for seed in range(3):
        prepared(*(small.like(value, seed) for value in inputs))
    return export(convert_pt2e(prepared), inputs), inputs


def wanted(lowered: Any, calls: list[tuple[Tensor, ...]], quantizer: str) -> list[list[Tensor]]:
    """What each call should give."""
    if quantizer != "float":
        session = lowered.program.start()
        return [list(session.run(*given)) for given in calls]
    session = PteSession.load(lowered.to_pte())
    return [list(session.run(*given)) for given in calls]


def compare(name: str, quantizer: str, cpu: str, folder: Path, compiler: str) -> tuple[str, bool]:
    """What became of a net, and whether it is as it should be."""
    program, inputs = exported(name, quantizer)
    lowered = stepwell.lower(program, cpu)
    try:
        sources = lowered.to_c("model", runtime=None)
    except stepwell.StepwellError as error:
        return "refused: " + "; ".join(problem.fact for problem in error.problems), False
    calls = [tuple(small.like(value, 10 + at) for value in inputs) for at in range(CALLS)]
    try:
        data = builds.run_on_host(
            sources, folder, [v for given in calls for v in given], compiler=compiler
        )
    except subprocess.CalledProcessError as error:
        return f"does not build or run: {error.stderr}", False
    off, worst, at = 0, 0.0, 0
    for results in wanted(lowered, calls, quantizer):
        for value in results:
            lying = builds.in_memory(value).flatten()
            size = lying.numel() * lying.element_size()
            got = torch.frombuffer(bytearray(data[at : at + size]), dtype=lying.dtype)
            at += size
            scale = max(float(lying.abs().max()), 1e-6)
            apart = (got.double() - lying.double()).abs() / scale
            if not lying.is_floating_point():
                off += int((got != lying).sum())
            elif quantizer == "float":
                worst = max(worst, float(apart.max()))
            else:  # What the quantizer left a float may differ by roundings, never by a step.
                off += int((apart > small.BOUND).sum())
    distance = f"{worst:.1e} of the largest" if quantizer == "float" else f"{off} elements off"
    return f"{sources.arena:,} B, {distance}", off == 0 and worst < small.BOUND


def main() -> None:
    """Print a line for each net and quantizer, and how many are as they should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", metavar="NET")
    parser.add_argument("--quantizers", nargs="+", default=["ours", "stock", "float"])
    parser.add_argument("--cpu", default="cortex-m4")
    parser.add_argument("--cxx", action="store_true", help="build as C++20")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    right = count = 0
    for name in arguments.nets or small.nets():
        for quantizer in arguments.quantizers:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    told, is_right = compare(
                        name, quantizer, arguments.cpu, Path(folder),
                        "g++" if arguments.cxx else "gcc",
                    )  # fmt: skip
                except Exception as error:  # A row of the table.
                    told, is_right = f"{type(error).__name__}: {error}", False
            right, count = right + is_right, count + 1
            print(f"{name:16} {quantizer:6} {'  ' if is_right else '✗ '}{told}", flush=True)
    print(f"{right} of {count} as they should be")


if __name__ == "__main__":
    main()

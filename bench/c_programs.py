"""Small nets as C without a runtime: what is refused, and elements off what they should be.

    python bench/c_programs.py [NET …] [--quantizers float ours stock] [--cpu cortex-m4 …] [--cxx]
    python bench/c_programs.py --boards --cpu cortex-m0plus cortex-m4 cortex-m7 cortex-m55
    python bench/c_programs.py --boards --cpu c-rv32imc c-rv32imafc c-rv32gcv c-wasm32 c-wasm32-simd
    python bench/c_programs.py … --state STATE     kept; then: --state STATE --table PAGE

Each net is quantized by this project's quantizer, by ExecuTorch's, and not at all; its C is built
with gcc (or g++) as strictly as the tests do and run three times, so that state counts. Quantized
programs are compared with the interpreter, which is CMSIS-NN's arithmetic bit for bit
(`tests/cmsis/test_kernels_golden.py`), float ones with ExecuTorch's runtime on the same `.pte`. An
integer is off if it differs, a float if it does by more than the bound (`_small_nets.BOUND`). Of
quantized programs it says how many operators still compute with floats. With `--boards` the same
`main` is built by the core's compiler (`arm-none-eabi-gcc`, `riscv64-unknown-elf-gcc`, zig for
WebAssembly and for RISC-V with vectors) and run by qemu or wasmtime; on a Cortex-M with
`--cmsis-nn` over Arm's own kernels (`FOLDER/<cpu>/libcmsis-nn.a`, and its headers in
`FOLDER/<cpu>/Include`), with `--mixed` over both.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _report import between_markers
from torch import Tensor
from torch.export import ExportedProgram, export

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/cmsis"), str(ROOT / "bench")]

import _small_nets as small  # noqa: E402
import standalone_builds as builds  # noqa: E402

import stepwell  # noqa: E402
from stepwell.backends.executorch.running.runner import PteSession  # noqa: E402
from stepwell.ir.signature import get_signature  # noqa: E402
from stepwell.translate.rewrites.cmsis.operators.explain_floats import computes_floats  # noqa: E402

CALLS = 3
QUANTIZERS = ("ours", "stock", "float")


def exported(name: str, quantizer: str) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    """A net by name, quantized by `ours` or `stock`, or as it is (`float`), and an input."""
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


def wanted(
    program: ExportedProgram, lowered: Any, calls: list[tuple[Tensor, ...]], quantizer: str
) -> list[list[Tensor]]:
    """What each call should give."""
    if quantizer != "float":
        session = lowered.program.start()
        return [list(session.run(*given)) for given in calls]
    session = PteSession.load(stepwell.lower(program, "cortex-m4").to_pte())
    return [list(session.run(*given)) for given in calls]


@dataclass(frozen=True)
class Build:
    """A core, whether an emulator runs it or this machine the program, and as what it is built."""

    cpu: str
    emulated: bool
    cxx: bool
    kernels: str = "portable"
    library: tuple[str, ...] = ()

    def run(self, sources: Any, folder: Path, values: list[Tensor]) -> bytes:
        if self.emulated:
            given = list(self.library)
            return builds.run_on_core(
                self.cpu, sources, folder, values, cxx=self.cxx, library=given,
                flags=[f"-isystem{Path(given[0]).parent / 'Include'}"] if given else [],
            )  # fmt: skip
        compiler = "g++" if self.cxx else "gcc"
        return builds.run_on_host(sources, folder, values, compiler=compiler)


def compare(
    build: Build,
    quantizer: str,
    program: ExportedProgram,
    inputs: tuple[Tensor, ...],
    folder: Path,
) -> tuple[str, bool]:
    """What became of a net, and whether it is as it should be."""
    lowered = stepwell.lower(program, build.cpu)
    try:
        sources = lowered.to_c("model", runtime=None, kernels=build.kernels)
    except stepwell.StepwellError as error:
        return "refused: " + "; ".join(problem.fact for problem in error.problems), False
    calls = [tuple(small.like(value, 10 + at) for value in inputs) for at in range(CALLS)]
    try:
        data = build.run(sources, folder, [v for given in calls for v in given])
    except subprocess.CalledProcessError as error:
        return f"does not build or run: {error.stderr}", False
    off, worst, at = 0, 0.0, 0
    ports = get_signature(lowered.program.method()).outputs
    for results in wanted(program, lowered, calls, quantizer):
        for value, port in zip(results, ports, strict=True):
            order = port.dim_order or range(value.dim())
            lying = value.permute(*order).contiguous().flatten()
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
    floats = sum(computes_floats(op) for op in lowered.program.module.walk())
    left = "" if quantizer == "float" else f", {floats} ops on floats"
    return f"{sources.arena:,} B, {distance}{left}", off == 0 and worst < small.BOUND


def main() -> None:
    """Print a line for each net, quantizer and CPU, and how many are as they should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", metavar="NET")
    parser.add_argument("--quantizers", nargs="+", choices=QUANTIZERS, default=QUANTIZERS)
    parser.add_argument("--cpu", nargs="+", default=["cortex-m4"])
    parser.add_argument("--boards", action="store_true", help="on emulated cores, not here")
    parser.add_argument("--cxx", action="store_true", help="build as C++20")
    parser.add_argument(
        "--cmsis-nn", help="folder that holds, by CPU, a folder with CMSIS-NN built"
    )
    parser.add_argument(
        "--mixed", action="store_true", help="over both, whichever takes fewer instructions"
    )
    parser.add_argument(
        "--state", type=Path, help="a file of rows that are done, which is gone on with"
    )
    parser.add_argument("--table", type=Path, help="write the counts of --state into a page")
    arguments = parser.parse_args()
    if arguments.table:
        between_markers(arguments.table, "c programs", table(rows_of(arguments.state)))
        return
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    done = rows_of(arguments.state)
    library_kernels = "mixed" if arguments.mixed else "cmsis-nn"
    kernels = library_kernels if arguments.cmsis_nn else "portable"
    for name in arguments.nets or small.nets():
        for quantizer in arguments.quantizers:
            open_ = [cpu for cpu in arguments.cpu if (name, quantizer, cpu, kernels) not in done]
            try:
                net = exported(name, quantizer) if open_ else None
            except Exception as error:  # A row of the table.
                net = f"{type(error).__name__}: {error}"
            for cpu in arguments.cpu:
                key = (name, quantizer, cpu, kernels)
                if key not in done:
                    library = (
                        (f"{arguments.cmsis_nn}/{cpu}/libcmsis-nn.a",) if arguments.cmsis_nn else ()
                    )
                    build = Build(cpu, arguments.boards, arguments.cxx, kernels, library)
                    done[key] = judged(build, quantizer, net)
                    if arguments.state:
                        with arguments.state.open("a") as file:
                            file.write(json.dumps([key, done[key]]) + "\n")
                told, is_right = done[key]
                print(
                    f"{name:16} {quantizer:6} {cpu:13} {'  ' if is_right else '✗ '}{told}",
                    flush=True,
                )
    print(f"{sum(right for _, right in done.values())} of {len(done)} as they should be")


def table(rows: dict[tuple[str, ...], tuple[str, bool]]) -> list[str]:
    """Programs that are as they should be, and others, by kernels and CPU."""
    cpus = list(dict.fromkeys(cpu for _, _, cpu, _ in rows))
    lines = [f"| kernels, quantizer | {' | '.join(cpus)} |", "|---|" + "---|" * len(cpus)]
    for kernels, quantizer in dict.fromkeys((key[3], key[1]) for key in rows):
        cells = []
        for cpu in cpus:
            told = [row for key, row in rows.items() if key[1:] == (quantizer, cpu, kernels)]
            right = sum(is_right for _, is_right in told)
            refused = sum(text.startswith("refused") for text, _ in told)
            others = f"; {refused} refused, {len(told) - right - refused} off or ended"
            cells.append(
                f"{right} of {len(told)}{others if right < len(told) else ''}" if told else ""
            )
        lines.append(f"| {kernels}, {quantizer} | {' | '.join(cells)} |")
    return lines


def rows_of(state: Path | None) -> dict[tuple[str, ...], tuple[str, bool]]:
    """Rows that an earlier run left."""
    lines = state.read_text().splitlines() if state and state.exists() else []
    return {tuple(key): tuple(row) for key, row in map(json.loads, lines)}


def judged(build: Build, quantizer: str, net: Any) -> tuple[str, bool]:
    """A row of the table: an error is one, too."""
    if isinstance(net, str):
        return net, False
    with tempfile.TemporaryDirectory() as folder:
        try:
            return compare(build, quantizer, *net, Path(folder))
        except Exception as error:  # A row of the table.
            return f"{type(error).__name__}: {error}", False


if __name__ == "__main__":
    main()

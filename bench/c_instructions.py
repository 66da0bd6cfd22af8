"""Instructions of a call of the C without a runtime: our own kernels, and CMSIS-NN's.

    python bench/c_instructions.py --cmsis-nn FOLDER [NET …] [--cpu cortex-m55] [--table PAGE]

`FOLDER/<cpu>/libcmsis-nn.a` is CMSIS-NN built for the CPU (`-O2`), with its headers in
`FOLDER/<cpu>/Include`. Each net is quantized by this project's quantizer on channels-last images,
lowered with int8 at the boundary, built by `arm-none-eabi-gcc -O2` and run by qemu with `-icount
shift=0`, where an instruction takes a nanosecond of the board's clock. SysTick counts, and a loop
of known length says how many instructions a tick is. A count is of instructions, not of cycles.
The third column is `kernels="mixed"`: CMSIS-NN's, and our own where they take fewer.

`--cpu c-rv32imc`, `c-rv32imafc` or `c-rv32gcv` counts with a plug-in of qemu's user mode
(tools/arm64/count.c), `c-wasm32` and `c-wasm32-simd` with wasmtime's fuel, one for an operator of
WebAssembly, for code that zig builds. CMSIS-NN is then its plain C, built for that core (of a
program for a Cortex-M0+).
"""

from __future__ import annotations

import argparse
import logging
import statistics
import struct
import subprocess
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from _report import between_markers

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/cmsis"), str(ROOT / "bench")]

import cortex_m  # noqa: E402
import standalone_builds as builds  # noqa: E402

import stepwell  # noqa: E402
from stepwell.dialects.cmsis.target import C_TARGETS, CORES  # noqa: E402

NETS = (
    "ds_cnn",
    "mobilenet_v1_025",
    "resnet8",
    "mlp_autoencoder",
    "mcunet_like",
    "tcn",
    "unet",
    "crnn_gru",
    "crnn_lstm",
    "transformer_encoder",
)
_COUNT = """
#include <stdint.h>
#include <stdio.h>
#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)
void count_start(void);
int count_end(int status);
static uint32_t first;
void count_start(void)
{
    SYST_CSR = 0;
    SYST_RVR = 0xFFFFFFu;
    SYST_CVR = 0;
    SYST_CSR = 5;
    first = SYST_CVR;
}
int count_end(int status)
{
    const uint32_t taken = (first - SYST_CVR) & 0xFFFFFFu;
    uint32_t turns = 1000000;
    count_start();
    __asm__ volatile(".syntax unified\\n1: subs %0, %0, #1\\n bne 1b" : "+l"(turns) : : "cc");
    const uint32_t known = (first - SYST_CVR) & 0xFFFFFFu;
    FILE *file = fopen("count", "w");
    if (file != NULL) {
        (void)fprintf(file, "%lu %lu", (unsigned long)taken, (unsigned long)known);
        (void)fclose(file);
    }
    return status;
}
"""
_KNOWN = 2_000_000
_MARKS = """
void count_start(void);
int count_end(int status);
static void mark(long starts)
{
    register long which __asm__("a0") = 0x53570;
    register long first __asm__("a1") = starts;
    register long number __asm__("a7") = 141;
    __asm__ volatile("ecall" : "+r"(which) : "r"(first), "r"(number) : "memory");
}
void count_start(void) { mark(1); }
int count_end(int status) { mark(0); return status; }
"""
"""What tools/arm64/count.c takes for the start and the end of a count."""
_MACRO = """
void count_start(void);
int count_end(int status);
#define model_run(...) count_end((count_start(), model_run(__VA_ARGS__)))
"""


def instructions(lowered: Any, inputs: Any, cpu: str, kernels: str, folder: Path | None) -> float:
    """Of one call on zeros."""
    sources = lowered.to_c("model", runtime=None, kernels=kernels)
    if "wasm" in cpu:
        return wasm_operators(sources, cpu, folder)
    files = dict(sources.files)
    include = '#include "model.h"\n'
    files["main.c"] = files["main.c"].replace(include, include + _MACRO, 1)
    is_board = cpu in builds.BOARDS
    sources = replace(sources, files={**files, "count.c": _COUNT if is_board else _MARKS})
    zeros = [torch.zeros(value.shape, dtype=torch.int8) for value in inputs]
    library = [] if folder is None else [folder / cpu / "libcmsis-nn.a"]
    flags = [] if folder is None else ["-isystem", str(folder / cpu / "Include")]
    with tempfile.TemporaryDirectory() as place:
        counts = ["-icount", "shift=0"]
        if not is_board:
            plugin = f"{place}/count.so"
            source = str(ROOT / "tools/arm64/count.c")
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", plugin], check=True)
            counts = ["-plugin", f"{plugin},to={place}/count"]
        builds.run_on_core(
            cpu, sources, Path(place), zeros, library=library, flags=flags, emulator=counts
        )
        if not is_board:
            data = (Path(place) / "count").read_bytes()
            return sum(runs for _, runs in struct.iter_unpack("<IQ", data[4:]))
        taken, known = map(int, (Path(place) / "count").read_text().split())
    return taken * _KNOWN / known


def wasm_operators(sources: Any, cpu: str, folder: Path | None) -> float:
    """Operators of WebAssembly in one call on zeros."""
    import wasmtime

    library = [] if folder is None else [str(folder / cpu / "libcmsis-nn.a")]
    flags = [] if folder is None else ["-isystem", str(folder / cpu / "Include")]
    zig = [sys.executable, "-m", "ziglang", "cc", *CORES[cpu].flags, "-mexec-model=reactor"]
    exports = [f"-Wl,--export={name}" for name in ("model_run", "__heap_base")]
    built = ["-std=c99", "-O2", "-s", "-ffp-contract=off", *exports, *flags, "model.c", *library]
    with tempfile.TemporaryDirectory() as place:
        sources.save(place)
        subprocess.run([*zig, *built, "-o", "model.wasm"], cwd=place, check=True)
        config = wasmtime.Config()
        config.consume_fuel = True
        engine = wasmtime.Engine(config)
        store = wasmtime.Store(engine)
        store.set_fuel(1 << 60)
        module = wasmtime.Module.from_file(engine, f"{place}/model.wasm")
    exported = wasmtime.Instance(store, module, []).exports(store)
    (method,) = sources.methods.values()
    sizes = [method.values[index].nbytes for index in (*method.inputs, *method.outputs)]
    places = [exported["__heap_base"].value(store)]
    for size in sizes:
        places.append((places[-1] + size + 15) & ~15)
    exported["memory"].grow(store, places[-1] // 65536 + 1)
    before = store.get_fuel()
    assert exported["model_run"](store, *places[:-1]) == 0
    return before - store.get_fuel()


def main() -> None:
    """A line for each net, then the worst and the mean ratio."""
    from stepwell.translate.pt2e.cortex_m_quantizer import CortexMQuantizer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", metavar="NET")
    parser.add_argument("--cpu", default="cortex-m55")
    parser.add_argument("--cmsis-nn", type=Path, help="folder of CMSIS-NN as built, by CPU")
    parser.add_argument("--table", type=Path, help="write the rows into a page, by CPU")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows: list[tuple[str, list[float]]] = []
    folder = arguments.cmsis_nn
    for name in arguments.nets or NETS:
        given = cortex_m.prepared(name)
        exported = cortex_m.quantized(*given, CortexMQuantizer())
        core = arguments.cpu
        of_library = "cortex-m0plus" if core in C_TARGETS else core
        lowered = stepwell.lower(exported, core, io="int8")
        beside = lowered if of_library == core else stepwell.lower(exported, of_library, io="int8")
        kinds = ["portable", *(["cmsis-nn", "mixed"] if folder else [])]
        counts = [
            instructions(
                lowered if kernels == "portable" else beside,
                given[1],
                core,
                kernels,
                None if kernels == "portable" else folder,
            )
            for kernels in (kinds if of_library == core else kinds[:2])
        ]
        rows.append((name, counts))
        print(f"{name:20} {arguments.cpu} {'  '.join(told(counts))}", flush=True)
    if folder is not None:
        lines = table(rows)
        print("\n".join(lines[-2:]))
        if arguments.table:
            between_markers(arguments.table, f"instructions {arguments.cpu}", lines)


def told(counts: list[float]) -> list[str]:
    """Counts, then each by CMSIS-NN's."""
    shares = [f"{counts[k] / counts[1]:.2f}" for k in (0, 2) if len(counts) > max(k, 1)]
    return [*(f"{count:,.0f}".replace(",", " ") for count in counts), *shares]


def table(rows: list[tuple[str, list[float]]]) -> list[str]:
    """A row a net, then the worst and the geometric mean of the ratios."""
    kinds = len(rows[0][1])
    heads = ["own kernels", "CMSIS-NN", "mixed"][:kinds] + ["own ÷", "mixed ÷"][: kinds - 1]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(told(counts))} |" for name, counts in rows]
    shares = [[counts[k] / counts[1] for _, counts in rows] for k in (0, 2)[: kinds - 1]]
    for said, of in ((f"worst of {len(rows)}", max), ("geometric mean", statistics.geometric_mean)):
        ratios = " | ".join(f"{of(each):.2f}" for each in shares)
        lines.append(f"| {said} {'| ' * kinds}| {ratios} |")
    return lines


if __name__ == "__main__":
    main()

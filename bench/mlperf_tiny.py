"""MLPerf Tiny's four models: stepwell beside TensorFlow Lite Micro and ExecuTorch's own flow.

    python bench/mlperf_tiny.py --tiny CLONE --cmsis-nn FOLDER --tflm FOLDER
        [--targets cortex-m4 …] [--keep ROWS] [--table examples/mlperf_tiny/README.md]

`CLONE` is a clone of github.com/mlcommons/tiny: all flows compile its trained weights, and the
arena of TensorFlow Lite Micro is what its planner (the wheel `tflite-micro`, installed in the
folder of `--tflm`) takes for MLCommons' quantized file. `--cmsis-nn` is as for
`bench/c_instructions.py`. Without one of them, the weights are random, or cells are empty.

Of a CPU the table says bytes of RAM (arena, inputs and outputs), bytes of flash (constants, and
code of what is linked without the C library) and instructions of a call. TensorFlow Lite Micro's
flash is its file, its instructions are those of CMSIS-NN's kernels for the same layers: the
interpreter, which comes on top, cannot be built here. ExecuTorch's are its planned memory, its
`.pte`, and the same kernels for the program that is read from its `.pte`; its runtime comes on top
too. Of an Ethos-U it says Vela's SRAM, flash and cycles; for TensorFlow Lite Micro Vela compiles
MLCommons' file.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import logging
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from _report import between_markers, keep_rows, kept_rows, markdown
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / p) for p in ("tests/cmsis", "bench", "examples/mlperf_tiny")]

import c_instructions  # noqa: E402
import cortex_m  # noqa: E402
import ethos_u  # noqa: E402
import models  # noqa: E402
import standalone_builds as builds  # noqa: E402

import stepwell  # noqa: E402
from stepwell.dialects.cmsis.target import target as find_cpu  # noqa: E402
from stepwell.ir.rewriting.rewrite import History  # noqa: E402
from stepwell.translate.rewrites.cmsis import StateTarget  # noqa: E402

TARGETS = ("cortex-m4", "cortex-m55", "ethos-u55-128", "c-rv32imc", "c")
FOLDERS = {
    "kws": "keyword_spotting/trained_models/kws_ref_model",
    "vww": "visual_wake_words/trained_models/vww_96",
    "ic": "image_classification/trained_models/pretrainedResnet",
    "ad": "anomaly_detection/trained_models/ad01",
}
FLOAT = {"kws": "_float32", "vww": "_float", "ic": "", "ad": "_fp32"}
INT8 = {"kws": "", "vww": "_int8", "ic": "_quant", "ad": "_int8"}
Cell = list[int | None]
"""Bytes of RAM and of flash, instructions or cycles; None where it is not known here."""
NONE: Cell = [None, None, None]


def file_of(tiny: Path, name: str, kinds: dict[str, str]) -> Path:
    """A `.tflite` of a clone."""
    return tiny / "benchmark/training" / f"{FOLDERS[name]}{kinds[name]}.tflite"


@cache
def model(name: str, tiny: Path | None) -> nn.Module:
    """The float model, with the weights of MLCommons' float file if there is a clone.

    The file has its batch norms folded into layers, whose order is that of the module.
    """
    made = models.model(name)
    if tiny is None:
        return made
    from ai_edge_litert.interpreter import Interpreter

    read = Interpreter(str(file_of(tiny, name, FLOAT)), experimental_preserve_all_tensors=True)
    read.allocate_tensors()
    kinds = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    ops = [op for op in read._get_ops_details() if op["op_name"] in kinds]
    layers = [m for m in made.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    details = {held["index"]: held for held in read.get_tensor_details()}

    def values(at: int) -> torch.Tensor | None:
        if at < 0:
            return None
        value, own = torch.from_numpy(read.get_tensor(at).copy()), details[at]
        if value.dtype != torch.int8:
            return value
        parameters, shape = own["quantization_parameters"], [1] * value.dim()
        shape[parameters["quantized_dimension"]] = -1
        return value * torch.from_numpy(parameters["scales"]).reshape(shape)

    for op, layer in zip(ops, layers, strict=True):
        weight, bias = (values(at) for at in (*op["inputs"][1:], -1)[:2])
        assert weight is not None
        if weight.dim() == 4:
            weight = weight.permute(3, 0, 1, 2) if layer.groups > 1 else weight.permute(0, 3, 1, 2)
        assert weight.shape == layer.weight.shape, (name, weight.shape, layer.weight.shape)
        layer.weight = nn.Parameter(weight.contiguous())
        layer.bias = nn.Parameter(torch.zeros_like(layer.bias) if bias is None else bias)
    for module in list(made.modules()):
        for child, held in module.named_children():
            if isinstance(held, nn.BatchNorm1d | nn.BatchNorm2d):
                setattr(module, child, nn.Identity())
    is_image = len(models.BENCHMARKS[name].shape) == 4
    return made.to(memory_format=torch.channels_last) if is_image else made


@cache
def exported(name: str, tiny: Path | None, quantizer: str) -> Any:
    """The int8 program: of stepwell's quantizer (`ours`), or of ExecuTorch's for a device."""
    data = models.samples(name)
    if quantizer == "ours":
        module = stepwell.quantize(model(name, tiny), "int8-cortex-m", data)
        return torch.export.export(module, (data[1],))
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    graph = torch.export.export(model(name, tiny), (data[1],)).module(check_guards=False)
    prepared = prepare_pt2e(graph, stock_quantizer(quantizer))
    for value in data:
        prepared(value)
    return torch.export.export(convert_pt2e(prepared), (data[1],))


def stock_quantizer(target: str) -> Any:
    """ExecuTorch's quantizer for a Cortex-M or an Ethos-U."""
    if not target.startswith("ethos-u"):
        from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer

        return CortexMQuantizer()
    from executorch.backends.arm.ethosu import EthosUCompileSpec
    from executorch.backends.arm.quantizer.arm_quantizer import (
        EthosUQuantizer,
        get_symmetric_quantization_config,
    )

    quantizer = EthosUQuantizer(EthosUCompileSpec(target))
    quantizer.set_global(get_symmetric_quantization_config())
    return quantizer


def on_npu(estimates: Sequence[Any]) -> Cell:
    """Vela's SRAM, flash and cycles of all delegates."""
    return [
        max(e.sram for e in estimates),
        sum(e.flash for e in estimates),
        sum(e.cycles for e in estimates),
    ]


def ours(name: str, target: str, given: argparse.Namespace, optimize: str = "speed") -> Cell:
    """Of stepwell's program."""
    program, options = exported(name, given.tiny, "ours"), {"io": "int8", "optimize": optimize}
    if target.startswith("ethos-u") and optimize == "memory":
        return NONE
    lowered: Any = stepwell.lower(program, target, **options)
    if target.startswith("ethos-u"):
        return on_npu(lowered.estimate())
    has_library = given.cmsis_nn is not None and target.startswith("cortex-m")
    return on_cpu(name, lowered, target, "mixed" if has_library else "portable", given)


def on_cpu(name: str, lowered: Any, target: str, kernels: str, given: argparse.Namespace) -> Cell:
    """Arena, flash and instructions of a program as C."""
    folder = None if kernels == "portable" else given.cmsis_nn
    sources = lowered.to_c("model", runtime=None, kernels=kernels)
    stated = re.findall(
        r"_(?:ARENA_BYTES|INPUT_COUNT|OUTPUT_COUNT) (\d+)", sources.files["model.h"]
    )
    count = None
    if target != "c":
        given_as = re.search(r"^int model_run\(const (\w+) ", sources.files["model.h"], re.M)
        bytes_each = 4 if given_as is not None and given_as[1] == "float" else 1
        zeros = [torch.zeros(bytes_each * models.samples(name)[0].numel())]
        count = round(c_instructions.instructions(lowered, zeros, target, kernels, folder))
    return [sum(map(int, stated)), flash(sources, target, folder), count]


def flash(sources: Any, target: str, library: Path | None) -> int:
    """Bytes of code and constants of a program and of the kernels that it calls."""
    prefix, machine = "", ["-O2"]
    if target.startswith("cortex-m"):
        prefix = "arm-none-eabi-"
        machine += builds.CORES[target].flags
    elif target != "c":
        prefix, machine = "riscv64-unknown-elf-", [*machine, *builds.CORES[target].flags]
    linked: list[str] = []
    if library is not None:
        machine += ["-isystem", str(library / target / "Include")]
        linked = [str(library / target / "libcmsis-nn.a")]
    with tempfile.TemporaryDirectory() as place:
        sources.save(Path(place))
        specs = ["--specs=picolibc.specs"] if prefix.startswith("riscv") else []
        compiled = [f"{prefix}gcc", *specs, *machine, "-ffunction-sections", "-c", "model.c"]
        joined = [f"{prefix}gcc", *machine, "-nostdlib", "-r", "-Wl,--gc-sections,-e,model_run"]
        for command in (compiled, [*joined, "model.o", *linked, "-o", "part.o"]):
            subprocess.run(command, cwd=place, check=True, capture_output=True)
        sizes = subprocess.run(
            [f"{prefix}size", "-A", "part.o"], cwd=place, check=True, capture_output=True, text=True
        ).stdout
    return sum(int(size) for size in re.findall(r"^\.(?:text|rodata)\S*\s+(\d+)", sizes, re.M))


def tflm(name: str, target: str, given: argparse.Namespace) -> Cell:
    """Of TensorFlow Lite Micro, as far as it is known here."""
    if given.tiny is None:
        return NONE
    path = file_of(given.tiny, name, INT8)
    if target.startswith("ethos-u"):
        return by_vela(path, target)
    count = None
    if given.cmsis_nn is not None and target.startswith("cortex-m"):
        lowered = stepwell.lower(exported(name, given.tiny, "ours"), target, io="int8")
        count = on_cpu(name, lowered, target, "cmsis-nn", given)[2]
    return [arena_of(path, given.tflm), path.stat().st_size, count]


def by_vela(path: Path, target: str) -> Cell:
    """Vela's figures of a `.tflite`, with the configuration of ExecuTorch's flow."""
    from stepwell.backends.ethos_u.vela import OWN_FILE, compiler_flags, default_config

    flags = compiler_flags(target, default_config(target), OWN_FILE)
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "ethosu.vela", *flags, f"--output-dir={place}", str(path)]
        subprocess.run(
            [c for c in command if "output-format" not in c], check=True, capture_output=True
        )
        with next(Path(place).glob("*summary*.csv")).open() as file:
            row = next(csv.DictReader(file))
    sram, flash_, cycles = (
        float(row[key])
        for key in ("sram_memory_used", "off_chip_flash_memory_used", "cycles_total")
    )
    return [round(sram * 1024), round(flash_ * 1024), round(cycles)]


def arena_of(path: Path, folder: Path | None) -> int | None:
    """The arena that TensorFlow Lite Micro's planner takes, in a process of its own."""
    if folder is None:
        return None
    code = (
        "import sys; from tflite_micro.python.tflite_micro import runtime; "
        "runtime.Interpreter.from_file(sys.argv[1], arena_size=1 << 20).print_allocations()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    found = re.search(r"allocation total (\d+) bytes", done.stdout + done.stderr)
    return int(found[1]) if found else None


def stock(name: str, target: str, given: argparse.Namespace) -> Cell | str:
    """Of ExecuTorch's own flow; a text says why there is none."""
    if target.startswith("c"):
        if not target.startswith("cortex-m"):
            return "has no kernels for it"
        data = cortex_m.stock(exported(name, given.tiny, "cortex-m"), target)
        facts = cortex_m.examine(data)
        held: Cell = [facts["arena"], facts["bytes"], None]
        try:
            program = stepwell.read_pte(data)
            StateTarget(find_cpu(target)).apply(program, History())  # Scratch is not in the file.
            lowered = stepwell.lower(program, target)
        except stepwell.StepwellError as error:
            fact = error.problems[0].fact.partition(":")
            return f"{told([*held[:2]])}; wrong from {fact[0]} on"
        if given.cmsis_nn is not None:
            held[2] = on_cpu(name, lowered, target, "cmsis-nn", given)[2]
        return held
    from stepwell.backends.ethos_u.vela import compile_tosa

    with ethos_u.without_histories():
        delegates, left = ethos_u.stock(exported(name, given.tiny, target), target)
    cell = on_npu([compile_tosa(data, target).estimate for data in delegates])
    if not left:
        return cell
    return f"{told(cell)}; on the CPU {', '.join(left)}"


FLOWS: dict[str, Callable[[str, str, argparse.Namespace], Cell | str]] = {
    "stepwell": ours,
    '`optimize="memory"`': partial(ours, optimize="memory"),
    "TFLM": tflm,
    "ExecuTorch": stock,
}


def told(cell: Cell | str) -> str:
    """A cell of the table."""
    if isinstance(cell, str):
        return cell
    return ", ".join("–" if value is None else f"{value:,}".replace(",", " ") for value in cell)


def main() -> None:
    """Measure what is not kept, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", type=Path, help="a clone of github.com/mlcommons/tiny")
    parser.add_argument("--cmsis-nn", type=Path, help="folder of CMSIS-NN as built, by CPU")
    parser.add_argument("--tflm", type=Path, help="folder in which tflite-micro is installed")
    parser.add_argument("--models", nargs="*", default=list(models.BENCHMARKS))
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--keep", type=Path, help="a file of rows, which a run adds to")
    parser.add_argument("--table", type=Path, help="write the table into a page")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows = kept_rows(given.keep)
    for name in given.models:
        for target in given.targets:
            for flow, measure in FLOWS.items():
                key = f"{name}, {target}, {flow}"
                if key not in rows:
                    with contextlib.redirect_stdout(sys.stderr):
                        rows[key] = measure(name, target, given)
                    keep_rows(given.keep, rows)
                print(f"{key}: {told(rows[key])}", flush=True)
    lines = markdown(
        ("", *FLOWS),
        [
            (f"{name}, {target}", *(told(rows[f"{name}, {target}, {flow}"]) for flow in FLOWS))
            for name in given.models
            for target in given.targets
        ],
    )
    if given.table is not None:
        between_markers(given.table, "mlperf tiny", lines)


if __name__ == "__main__":
    main()

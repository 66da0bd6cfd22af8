"""`examples/mlperf_tiny`: the published graphs, and the harness' functions as compiled C++."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from . import standalone_builds as builds

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "examples/mlperf_tiny"
sys.path.insert(0, str(KIT))

import harness  # noqa: E402
import models  # noqa: E402

STUB = Path(__file__).with_name("mlperf_tiny")
TINY = os.environ.get("MLPERF_TINY")
"""A clone of github.com/mlcommons/tiny, whose own harness is then compiled as well."""
WARNINGS = "-Wall -Wextra -Werror -Wno-unused-parameter".split()


def layers(model: nn.Module) -> list[nn.Module]:
    return [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]


@pytest.mark.parametrize("name", models.BENCHMARKS)
def test_a_model_has_the_parameters_of_mlcommons_file(name: str) -> None:
    held = [p for layer in layers(models.BENCHMARKS[name].make()) for p in layer.parameters()]
    assert sum(p.numel() for p in held) == models.BENCHMARKS[name].parameters


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "made"),
    [(49, 10, 2, (4, 5, 25)), (10, 4, 2, (1, 1, 5)), (96, 3, 2, (0, 1, 48)), (32, 3, 1, (1, 1, 32)),
     (32, 1, 2, (0, 0, 16)), (5, 3, 2, (1, 1, 3))],
)  # fmt: skip
def test_same_padding_is_tensorflows(
    size: int, kernel: int, stride: int, made: tuple[int, int, int]
) -> None:
    """The numbers follow from TensorFlow's documentation of `tf.nn.convolution`."""
    assert models.same(size, kernel, stride) == made
    before, after, count = made
    assert (size + before + after - kernel) // stride + 1 == count


def sent_for(name: str, seed: int) -> tuple[bytes, Tensor]:
    """What the harness sends, and the reals that it means, in the model's shape."""
    benchmark = models.BENCHMARKS[name]
    random = torch.Generator().manual_seed(seed)
    if benchmark.sent is None:
        low, high = benchmark.span
        reals = low + (high - low) * torch.rand(benchmark.shape, generator=random)
        return reals.numpy().tobytes(), reals
    scale, zero, kind = benchmark.sent
    dtype = torch.int8 if kind == "int8_t" else torch.uint8
    ends = torch.iinfo(dtype)
    shape = [benchmark.shape[axis] for axis in (0, 2, 3, 1)]
    data = torch.randint(ends.min, ends.max + 1, shape, generator=random, dtype=dtype)
    return data.numpy().tobytes(), ((data.double() - zero) * scale).float().permute(0, 3, 1, 2)


def expected(name: str, lowered: Any, reals: Tensor) -> list[float]:
    """What the results say, by the interpreter on quantized reals."""
    (scale, zero), (by, around) = (harness.ends(lowered, side) for side in ("input", "output"))
    steps = (reals.double() / scale).float()
    away = torch.where(steps >= 0, (steps + 0.5).floor(), (steps - 0.5).ceil())
    (made,) = lowered.program.run((away + zero).clamp(-128, 127).to(torch.int8))
    results = (made.double() - around) * by
    if models.BENCHMARKS[name].sent is None:
        results = ((results - reals) ** 2).mean().reshape(1)
    return results.flatten().tolist()


def printed(text: str) -> list[float]:
    found = re.findall(r"m-results-\[(.*?)\]", text)
    assert found
    return [float(number) for number in found[-1].split(",")]


def build(
    folder: Path,
    name: str,
    api: Path,
    more: Sequence[Path],
    prefix: str = "",
    machine: Sequence[str] = (),
    end: Sequence[str] = (),
) -> Path:
    """The harness' program over the files of a folder."""
    c, cxx = [f"{prefix}gcc", *machine], [f"{prefix}g++", *machine, "-fno-exceptions"]
    version = f'-DTH_MODEL_VERSION="{models.BENCHMARKS[name].version}"'
    include = ["-I", str(api), "-I", str(folder)]
    subprocess.run([*c, *builds.STRICT, "-O2", "-c", "model.c"], cwd=folder, check=True)
    own = ["submitter_implemented.cpp", "board_stdio.cpp"]
    for file in [*own, *map(str, more)]:
        warned = WARNINGS if file in own else ["-w"]
        command = [*cxx, "-std=c++17", "-O2", *warned, version, *include, "-c", file]
        subprocess.run(command, cwd=folder, check=True)
    objects = [Path(file).with_suffix(".o").name for file in ["model.c", *own, *map(str, more)]]
    subprocess.run([*c, *objects, *end, "-lm", "-o", "program"], cwd=folder, check=True)
    return folder / "program"


@pytest.mark.skipif(not builds.HAS_GCC, reason="there is no gcc")
@pytest.mark.parametrize("name", ["kws", "ic", "ad"])
def test_the_harness_functions_give_what_the_program_computes(name: str, tmp_path: Path) -> None:
    lowered = harness.write(name, tmp_path)
    program = build(tmp_path, name, STUB, [STUB / "stub.cpp"])
    for seed in range(2):
        data, reals = sent_for(name, seed)
        done = subprocess.run([program], input=data, capture_output=True, check=True)
        wanted = expected(name, lowered, reals)
        assert printed(done.stdout.decode()) == pytest.approx(wanted, abs=0.0006, rel=1e-5)
        assert done.stdout.decode().count("m-lap-us-") == 2


@pytest.mark.skipif(not builds.HAS_GCC, reason="there is no gcc")
def test_an_input_of_another_length_is_named(tmp_path: Path) -> None:
    harness.write("kws", tmp_path)
    program = build(tmp_path, "kws", STUB, [STUB / "stub.cpp"])
    done = subprocess.run([program], input=b"12345", capture_output=True, check=True)
    assert b"Input db has 5 bytes, expected 490" in done.stdout


@pytest.mark.skipif(not builds.HAS_BOARDS, reason="there is no compiler or emulator for Arm")
def test_the_harness_functions_run_on_an_emulated_cortex_m4(tmp_path: Path) -> None:
    lowered = harness.write("kws", tmp_path)
    data, reals = sent_for("kws", 3)
    (tmp_path / "input").write_bytes(data)
    machine = [*builds.CORES["cortex-m4"].flags]
    (tmp_path / "startup.c").write_text(builds._STARTUP)
    (tmp_path / "link.ld").write_text(builds._LINK.format(**builds._PLACES["cortex-m4"]))
    compiler = ["arm-none-eabi-gcc", *machine]
    subprocess.run([*compiler, "-c", "startup.c"], cwd=tmp_path, check=True)
    end = ["startup.o", "--specs=rdimon.specs", "-nostartfiles", "-T", "link.ld"]
    build(tmp_path, "kws", STUB, [STUB / "stub.cpp"], "arm-none-eabi-", machine, end)
    quiet = "-display none -serial none -monitor none -semihosting -kernel program".split()
    board = ["qemu-system-arm", "-M", builds.BOARDS["cortex-m4"], *quiet]
    subprocess.run(board, cwd=tmp_path, check=True, capture_output=True, timeout=600)
    said = (tmp_path / "output").read_text()
    assert printed(said) == pytest.approx(expected("kws", lowered, reals), abs=0.0006)


@pytest.mark.skipif(TINY is None or not builds.HAS_GCC, reason="MLPERF_TINY names no clone")
@pytest.mark.parametrize("name", models.BENCHMARKS)
def test_mlcommons_own_harness_runs_the_model(name: str, tmp_path: Path) -> None:
    lowered = harness.write(name, tmp_path)
    benchmark = Path(TINY or "") / "benchmark"
    main = benchmark / "reference_submissions/image_classification/main.cpp"
    program = build(tmp_path, name, benchmark, [benchmark / "api/internally_implemented.cpp", main])
    data, reals = sent_for(name, 5)
    lines = [data[at : at + 32].hex() for at in range(0, len(data), 32)]
    commands = ["name", "profile", f"db load {len(data)}", *(f"db {line}" for line in lines)]
    given = "".join(f"{command}%" for command in [*commands, "infer 2 1", "results"])
    done = subprocess.run([program], input=given.encode(), capture_output=True, check=True)
    said = done.stdout.decode()
    assert "m-name-dut-[unspecified]" in said and "m-load-done" in said and "\ne-[" not in said
    assert f"m-model-[{models.BENCHMARKS[name].version}]" in said
    assert said.count("m-results-[") == 2
    assert printed(said) == pytest.approx(expected(name, lowered, reals), abs=0.0006, rel=1e-5)

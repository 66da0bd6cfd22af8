"""The targets `c…`: the same bits on RISC-V and WebAssembly, folders of build systems, refusals."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from eager import exported
from torch import Tensor, nn

import stepwell
from stepwell.backends.cortex_m.c.files import without_unused
from stepwell.cli.main import main
from stepwell.cost_model.budgets import measure
from stepwell.dialects.cmsis.target import C_TARGETS, CORES
from stepwell.ir.diagnostics import NoEngine

from . import standalone_builds as builds
from .test_standalone import IMAGES, ROWS, channels_last

CORE_NAMES = ("c-rv32imc", "c-rv32imafc", "c-rv32gcv", "c-wasm32", "c-wasm32-simd")
NODE, CMAKE, MAKE = map(shutil.which, ("node", "cmake", "make"))


class Ring(nn.Module):
    """The last four frames, kept between calls; a layer on floats."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frames", torch.zeros(1, 4, 6))
        self.layer = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        frames = torch.cat([self.frames[:, 1:], x], 1)
        self.frames.copy_(frames)
        return self.layer(frames.flatten(1)).tanh()


def lowered_ring(target: str, **options: Any) -> Any:
    torch.manual_seed(0)
    return stepwell.lower(torch.export.export(Ring().eval(), (torch.randn(1, 1, 6),)), target,
                          **options)  # fmt: skip


def needs(core: str) -> None:
    """Skip a test where the core's compiler or emulator is not installed."""
    if "wasm" in core and not builds.HAS_WASM:
        pytest.skip("ziglang and wasmtime are not installed")
    if core == "c-xtensa" and not builds.HAS_XTENSA:
        pytest.skip("gcc-xtensa-lx106, picolibc-xtensa-lx106-elf and qemu-user are not installed")
    if core == "c-rv32gcv" and not builds.HAS_RVV:
        pytest.skip("ziglang and qemu-user are not installed")
    if "rv32im" in core and not builds.HAS_RV32:
        pytest.skip("gcc-riscv64-unknown-elf, picolibc and qemu-user are not installed")


@pytest.mark.parametrize("core", [*CORE_NAMES, "c-xtensa"])
@pytest.mark.parametrize(
    ("module", "shape"), [(IMAGES, (1, 3, 13, 12)), (ROWS, (2, 5, 8))], ids=["images", "attention"]
)
def test_a_quantized_program_has_the_interpreters_bits_on_every_core(
    quantized: Any, tmp_path: Path, core: str, module: nn.Module, shape: tuple[int, ...]
) -> None:
    needs(core)
    is_image = len(shape) == 4
    if core == "c-xtensa" and not is_image:
        pytest.skip("the quotient is one of floats, which that compiler's library lacks")
    x = torch.randn(shape)
    given = (channels_last(module), (channels_last(x),)) if is_image else (module, (x,))
    lowered = stepwell.lower(quantized(*given), core, io="int8")
    x = torch.randint(-128, 128, shape, dtype=torch.int8)
    x = channels_last(x) if is_image else x
    data = builds.run_on_core(core, lowered.to_c(), tmp_path, [x])
    assert builds.equals(lowered.program.run(x)[0], data)


@pytest.mark.parametrize("core", CORE_NAMES)
def test_floats_and_state_agree_with_the_interpreter_on_every_core(
    tmp_path: Path, core: str
) -> None:
    needs(core)
    lowered = lowered_ring(core)
    calls = [torch.randn(1, 1, 6) for _ in range(3)]
    session = lowered.program.start()
    wanted = torch.cat([session.run(x)[0] for x in calls]).flatten()
    data = builds.run_on_core(core, lowered.to_c(), tmp_path, calls)
    got = torch.frombuffer(bytearray(data), dtype=torch.float32)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not builds.HAS_GCC, reason="gcc is not installed")
def test_the_artifact_runs_here_and_is_checked_as_the_compiler_builds_it() -> None:
    lowered = lowered_ring("c")
    x = torch.randn(1, 1, 6)
    torch.testing.assert_close(lowered.run(x), lowered.program.run(x))
    torch.testing.assert_close(lowered.run(x), lowered.program.run(x))  # from the initial state
    session = lowered.target.session(lowered.artifact)
    ours = lowered.program.start()
    for _ in range(3):
        torch.testing.assert_close(session("forward", [x]), ours.run(x))
    torch.manual_seed(0)
    program = torch.export.export(Ring().eval(), (torch.randn(1, 1, 6),))
    verdict = next(s for s in stepwell.check(program, "c").steps if s.name == "artifact (c)")
    assert verdict.samples and verdict.ok and "successive calls" in verdict.note


def test_without_a_compiler_the_artifact_has_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(NoEngine, match="no C compiler"):
        stepwell.lower(exported(lambda x: x * 1.25, torch.ones(3)), "c").run(torch.ones(3))


@pytest.mark.parametrize("core", C_TARGETS)
def test_c_is_the_only_artifact_and_refusals_name_it(core: str, tmp_path: Path) -> None:
    lowered = stepwell.lower(exported(lambda x: x * 1.5, torch.ones(3)), core)
    with pytest.raises(stepwell.StepwellError, match=r"no pte artifact(.|\n)*to_c\(\)"):
        lowered.to_pte()
    with pytest.raises(stepwell.StepwellError, match=r"writes a folder of C, not a \.pte file"):
        lowered.save(tmp_path / "m.pte")
    with pytest.raises(stepwell.StepwellError, match="has no runtime"):
        lowered.to_c(runtime="executorch")
    with pytest.raises(stepwell.StepwellError, match=f"{core} does not plan"):
        lowered.to_c(kernels="mixed")
    lowered.save(tmp_path / "m")
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == [
        "CMakeLists.txt", "main.c", "model.c", "model.h"
    ]  # fmt: skip
    flags = " ".join(CORES[core].flags)
    assert flags in lowered.artifact.files["CMakeLists.txt"]
    page = (Path(__file__).parents[2] / "docs/c.md").read_text()
    assert f"| `{core}` | {CORES[core].devices} | " in page and flags in page


def test_no_core_but_a_cortex_m_plans_scratch(quantized: Any) -> None:
    program = quantized(channels_last(IMAGES), (channels_last(torch.randn(1, 3, 13, 12)),))
    arenas = {t: stepwell.lower(program, t).to_c(runtime=None).arena for t in ("c", "cortex-m4")}
    text = str(stepwell.lower(program, "c").program)
    assert arenas["c"] == arenas["cortex-m4"]
    assert "scratch = 0 : i64" in text and 'cmsis.target = "c"' in text


def test_inline_functions_that_nothing_calls_are_left_out() -> None:
    text = "".join(
        f"/* About\n * {name}. */\nstatic inline int {name}(int x)\n{{\n    return {of};\n}}\n\n"
        for name, of in (("inner", "x"), ("outer", "inner(x)"), ("used", "x"))
    )
    assert without_unused(text, "used(1)").count("static inline") == 1
    assert without_unused(text, "outer(1) + used(1)") == text


# -- folders of build systems ---------------------------------------------------------------------


@pytest.mark.skipif(
    not builds.HAS_WASM or not NODE or not MAKE, reason="ziglang, node or make is not installed"
)
def test_the_loader_runs_the_module_in_javascript(tmp_path: Path) -> None:
    lowered = lowered_ring("c-wasm32-simd", project="wasm")
    lowered.to_c("ring").save(tmp_path)
    zig = f"CC={sys.executable} -m ziglang cc"
    subprocess.run(["make", zig], cwd=tmp_path, check=True, capture_output=True)
    calls = torch.randn(2, 6)
    (tmp_path / "run.mjs").write_text(
        'import { readFileSync } from "node:fs";\nimport { load } from "./ring.mjs";\n'
        'const net = await load(readFileSync("ring.wasm"));\n'
        f"const told = {json.dumps(calls.tolist())}.map((x) => [...net.ring_run(x)]);\n"
        f"net.reset();\ntold.push([...net.ring_run({json.dumps(calls[0].tolist())})]);\n"
        "let refused = 0;\n"
        "for (const given of [[], [[1, 2, 3, 4, 5]]]) {\n"
        "  try { net.ring_run(...given); } catch (error) {\n"
        "    refused += String(error).includes('input 0 takes 6 of float');\n  }\n}\n"
        "console.log(JSON.stringify(refused === 2 ? told : []));\n"
    )
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, check=True, capture_output=True)
    session = lowered.program.start()
    first, second = (session.run(x.view(1, 1, 6))[0].flatten().tolist() for x in calls)
    torch.testing.assert_close(
        torch.tensor(json.loads(done.stdout)), torch.tensor([first, second, first])
    )


_STUBS = {
    "cmake": "",
    "esp-idf": "function(idf_component_register)\n  add_library(part STATIC model.c)\n"
    "  target_include_directories(part PUBLIC .)\nendfunction()\nset(COMPONENT_LIB part)\n",
    "zephyr": "set(CONFIG_MODEL_MODEL y)\nfunction(zephyr_include_directories at)\n"
    "  include_directories(${at})\nendfunction()\nfunction(zephyr_library_named name)\n"
    "  add_library(${name} STATIC)\nendfunction()\nfunction(zephyr_library_sources)\n"
    "  target_sources(model PRIVATE ${ARGV})\nendfunction()\n"
    "function(zephyr_library_compile_options)\n"
    "  target_compile_options(model PRIVATE ${ARGV})\nendfunction()\n",
}
"""Project → the commands of its build system, as far as a component calls them."""


@pytest.mark.skipif(not CMAKE or not builds.HAS_GCC, reason="cmake or gcc is not installed")
@pytest.mark.parametrize("project", list(_STUBS))
def test_cmake_builds_the_component(tmp_path: Path, project: str) -> None:
    lowered_ring("c").to_c(project=project).save(tmp_path)
    text = (tmp_path / "CMakeLists.txt").read_text()
    head = "" if project == "cmake" else "cmake_minimum_required(VERSION 3.16)\nproject(p C)\n"
    (tmp_path / "CMakeLists.txt").write_text(head + _STUBS[project] + text)
    for command in (["cmake", "-B", "build", "."], ["cmake", "--build", "build"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "build").glob("**/lib*.a"))


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_the_sketch_of_an_arduino_library_builds(tmp_path: Path) -> None:
    lowered_ring("c-xtensa").to_c("ring", project="arduino").save(tmp_path)
    assert "architectures=*" in (tmp_path / "library.properties").read_text()
    sketch = (tmp_path / "examples/run/run.ino").read_text()
    board = (
        "#include <cstdio>\nstruct { void begin(long) {} void print(const char *x) "
        '{ printf("%s", x); } void print(int x) { printf("%d", x); } '
        "void println(unsigned long) {} } Serial;\n"
        "unsigned long micros() { return 0; }\nvoid delay(int) {}\n"
    )
    (tmp_path / "run.cpp").write_text(board + sketch + "int main() { setup(); loop(); }\n")
    for command in (
        "gcc -O2 -Wall -Wextra -Werror -Isrc -c src/ring.c -o ring.o",
        "g++ -Wall -Werror -Isrc run.cpp ring.o -lm -o run",
    ):
        done = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    told = subprocess.run(["./run"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert told.stdout.startswith("status 0")


def test_the_budget_of_c_is_its_constants_and_its_arena() -> None:
    lowered = lowered_ring("c")
    sources = lowered.to_c()
    found = measure(lowered)
    assert (found.bytes, found.arena) == (sources.constants, sources.arena)
    assert bytes(sources) == bytes(lowered.to_c()) and len(sources) > sources.constants


# -- what random programs found --------------------------------------------------------------------


def chosen(x: Tensor) -> Tensor:
    """Read a condition in a jump alone."""
    return torch.cond((x > 0).any(), lambda p: p * 2, lambda p: p - 1, (x,))


@pytest.mark.skipif(not builds.HAS_GCC, reason="gcc is not installed")
@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: nn.functional.pad(x, (1, 2), value=-2.5), torch.randn(2, 3)),
        (lambda x: nn.functional.pad(x, (1, 2), value=1), torch.randn(2, 3)),
        (lambda x: nn.functional.pad(x > 0, (1, 2), value=float("-inf")), torch.randn(2, 3)),
        (lambda x: x.masked_fill(x < 1, 1.5), torch.arange(4)),
        (lambda x: (x > 0).masked_fill(x > 0, float("-inf")), torch.randn(4)),
        (torch.sign, torch.tensor([float("nan"), -2.0, 0.0, -0.0, 3.0])),
        (chosen, torch.tensor([-1.0, 3.0])),
        (chosen, torch.tensor([-1.0, -3.0])),
    ],
    ids="pad pad-by-int pad-of-truth fill-of-int fill-of-truth sign true false".split(),
)
def test_what_the_c_computes_is_what_pytorch_does(function: Any, x: Tensor) -> None:
    lowered = stepwell.lower(exported(function, x), "c")
    assert torch.equal(lowered.run(x)[0], function(x))


@pytest.mark.skipif(not builds.HAS_GCC, reason="gcc is not installed")
@pytest.mark.parametrize("function", [torch.logical_and, torch.logical_or, torch.logical_xor])
@pytest.mark.parametrize(
    "kinds", [(torch.int32,) * 2, (torch.float32,) * 2, (torch.int8, torch.bool)]
)
def test_a_logical_operator_takes_numbers_as_truth(function: Any, kinds: Any) -> None:
    given = torch.tensor([[0, 1, 2, -3, 5, 0], [0, 2, 0, 4, 1, 0]])
    x, y = (row.to(kind) for row, kind in zip(given, kinds, strict=True))
    lowered = stepwell.lower(exported(function, x, y), "c")
    assert torch.equal(lowered.run(x, y)[0], function(x, y))


def test_a_view_of_a_permuted_state_is_read_row_by_row() -> None:
    class Rows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("...c,c->...", x, x.reshape(-1, 6)[0])

    x = torch.randn(6, 5, 6)
    lowered = stepwell.lower(exported(Rows(), x), "c")
    torch.testing.assert_close(lowered.run(x)[0], Rows()(x))


@pytest.mark.parametrize(
    ("program", "fact"),
    [
        (lambda: exported(lambda x: x + 1, torch.ones(3, dtype=torch.float16)), "half elements"),
        (
            lambda: exported(
                lambda x: x + 1, torch.ones(4, 3), dynamic=({0: torch.export.Dim("n", max=8)},)
            ),
            "dynamic",
        ),
        (lambda: exported(lambda x: x.argmax(0), torch.ones(())), "rank 0"),
    ],
    ids=["half", "dynamic", "rank"],
)
def test_what_cannot_be_written_in_c_is_refused(program: Any, fact: str) -> None:
    with pytest.raises(stepwell.StepwellError, match=fact):
        stepwell.lower(program(), "c")


@pytest.mark.parametrize(("target", "own"), [("c-rv32imc", "cmsis."), ("xnnpack", "xnnpack.")])
def test_int8_on_a_command_line_is_the_targets_own_quantizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, own: str
) -> None:
    (tmp_path / "m.py").write_text(
        "import torch\nmake = lambda: (torch.nn.Linear(4, 4).eval(), (torch.ones(2, 4),))\n"
    )
    assert main(["show", f"{tmp_path}/m.py:make", "-t", target, "--quantize", "int8"]) == 0
    assert own in capsys.readouterr().out


@pytest.mark.skipif(not builds.HAS_GCC, reason="gcc is not installed")
@pytest.mark.parametrize("shape", [(2, 1, 8, 11), (1, 3, 1, 1), (2, 3, 4, 5), (3, 4, 5)])
@pytest.mark.parametrize("kernels", ["portable", "cmsis-nn"])
def test_a_pad_is_that_of_the_interpreter_whatever_the_library_takes_it_for(
    quantized: Any, tmp_path: Path, shape: tuple[int, ...], kernels: str
) -> None:
    class Pad(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.pad(x, (0, 1, 1, 0)) * 2.0

    lowered = stepwell.lower(quantized(Pad(), (torch.randn(shape),)), "cortex-m4", io="int8")
    x = torch.randint(-128, 128, shape, dtype=torch.int8)
    library = builds.own_cmsis_nn(tmp_path / "nn") if kernels == "cmsis-nn" else []
    sources = lowered.to_c("model", runtime=None, kernels=kernels)
    data = builds.run_on_host(sources, tmp_path, [x], library)
    assert builds.equals(lowered.program.run(x)[0], data)


def test_names_that_c_or_a_project_has_already_are_refused() -> None:
    plain = exported(lambda x: x + 1.0, torch.ones(3))
    for name in ("main", "stdint", "all"):
        with pytest.raises(stepwell.StepwellError, match="header of C, or of a file or target"):
            stepwell.lower(plain, "c").to_c(name)
    for names, fact in (
        (("a.b", "c"), "no part of a C identifier"),
        (("reset", "other"), "restores the state"),
        (("a", "A"), "upper and lower case"),
    ):
        with pytest.raises(stepwell.StepwellError, match=fact):
            stepwell.lower(dict.fromkeys(names, plain), "c").to_c()


def test_an_output_without_elements_is_refused() -> None:
    with pytest.raises(stepwell.StepwellError, match="no elements"):
        stepwell.lower(exported(lambda x: (x[:0], x + 1), torch.ones(3)), "c")


def test_a_project_of_a_cortex_m_is_a_folder_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.py").write_text(
        "import torch\nmake = lambda: (torch.nn.Linear(4, 4).eval(), (torch.ones(2, 4),))\n"
    )
    lower = ["lower", f"{tmp_path}/m.py:make", "-t", "cortex-m4", "-O", "project=arduino", "-o"]
    assert main([*lower, f"{tmp_path}/out"]) == 0
    assert (tmp_path / "out/library.properties").exists()
    assert "arena" in capsys.readouterr().out
    assert main([*lower, f"{tmp_path}/out.pte"]) == 1
    assert "write a folder of C" in capsys.readouterr().err
    assert main(["lower", f"{tmp_path}/m.py:make", "-t", "c", "-o", f"{tmp_path}/c"]) == 0
    assert (tmp_path / "c/CMakeLists.txt").exists()

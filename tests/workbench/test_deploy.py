"""What an application needs to run a `.pte` is said, and an application in C++ runs it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import executorch
import pytest
import torch
import yaml
from executorch.codegen.tools.gen_oplist import gen_oplist
from executorch.extension.pybindings import portable_lib

import stepwell
from stepwell.backends.cortex_m.schemas import declarations
from stepwell.backends.executorch.reading.read import read_container
from stepwell.inspection.reports.deployment import SINCE

from .commands import Commands

ROOT = Path(__file__).parents[2]
MODELS = """
import torch

def convolutions():
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(288, 4)
    return torch.nn.Sequential(*layers).eval(), (torch.randn(1, 3, 8, 8),)

class Sorts(torch.nn.Module):
    def forward(self, x, y): return torch.sort(x + y)[0], torch.cumsum(x, 1)

class Gathers(torch.nn.Module):
    def forward(self, x, at): return x[:, at], torch.cat([x.double()] * 2), at.int()

def gathers():
    return Gathers(), (torch.randn(3, 4), torch.tensor([0, 2]))

def dynamic():
    shapes = {0: torch.export.Dim("batch", min=1, max=8)},
    return torch.nn.Linear(5, 5).eval(), (torch.randn(2, 5),), {}, shapes

def sorts():
    torch.manual_seed(0)
    return Sorts().eval(), (torch.randn(2, 5), torch.randn(2, 5))
"""


def made(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A model of `MODELS` and its inputs."""
    names: dict[str, Any] = {}
    exec(MODELS, names)
    return names[name]()


def lowered_to(target: str, model: Any, inputs: tuple[torch.Tensor, ...], **options: Any) -> Any:
    return stepwell.lower(torch.export.export(model, inputs), target, **options)


@pytest.fixture
def folder(command: Commands) -> Commands:
    command.write("m.py", MODELS)
    return command


def told(text: str, what: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"{what}: "))
    return line.removeprefix(f"{what}: ").replace(",", "").split()


def test_kernels_backends_and_ports_are_named(folder: Commands) -> None:
    folder("lower m.py:sorts -o m.pte")
    said = folder("explain m.pte --deploy").out
    kernels = told(said, "kernels")
    assert kernels == ["aten::topk.values"]
    assert set(kernels) <= set(portable_lib._get_operator_names())
    assert told(said, "link")[0] == "executorch" and "portable_ops_lib" in told(said, "link")
    assert 'EXECUTORCH_SELECT_OPS_LIST="aten::topk.values"' in said
    assert said.count("input ") == said.count("output ") == 2


@pytest.mark.parametrize("name", ["sorts", "gathers"])
def test_selection_is_that_of_executorchs_own_tool(folder: Commands, name: str) -> None:
    model, inputs = made(name)
    lowered = stepwell.lower(torch.export.export(model, inputs), "xnnpack")
    lowered.save(folder.folder / "m.pte")
    gen_oplist(folder.folder / "theirs.yaml", str(folder.folder / "m.pte"))
    theirs = yaml.safe_load(folder.read("theirs.yaml"))
    for operator in theirs["operators"].values():
        operator["debug_info"] = [None]  # The path of the file.
    for keys in theirs["et_kernel_metadata"].values():
        keys.sort()
    needs = lowered.deployment()
    assert yaml.safe_load(needs.selective_build_yaml()) == theirs
    folder("explain m.pte --deploy --json d.json")
    assert folder.json("d.json")["result"]["selective_build"] == needs.selective_build_yaml()


def test_dynamic_sizes_are_told_by_their_bounds(folder: Commands) -> None:
    folder("lower m.py:dynamic -o m.pte")
    said = folder("explain m.pte --deploy").out
    assert "input 0: float32 8 x 5 at most" in said and "output 0: float32 8 x 5 at most" in said
    assert "of XNNPACK's workspace" in said
    assert folder("explain m.py:dynamic --deploy").out == said


def test_newer_kernel_needs_a_newer_runtime() -> None:
    model, inputs = made("convolutions")
    assert lowered_to("xnnpack", model, inputs).deployment().runtime == "1.4"
    module = stepwell.quantize(model, "int8-cortex-m", [inputs])
    needs = lowered_to("cortex-m4", module, inputs).deployment()
    assert "cortex_m::quantized_conv2d_nhwc.out" in needs.kernels and needs.runtime == "1.5"
    known = {f"cortex_m::{name}.out" for name in declarations()}
    assert {name for name in SINCE if name.startswith("cortex_m")} <= known


def test_memory_is_that_of_the_files_parts() -> None:
    model, inputs = made("convolutions")
    lowered = lowered_to("xnnpack", model, inputs)
    needs = lowered.deployment()
    (method,) = read_container(lowered.artifact).methods
    assert needs.arena == {"forward": sum(method.arena_sizes[1:])}
    weights = sum(p.numel() * 4 for p in model.parameters())
    assert weights <= needs.constants < needs.size
    assert needs.packed >= weights
    assert needs.workspace is not None and needs.workspace >= 8 * 6 * 6 * 4
    total = needs.constants + needs.arena["forward"] + needs.packed + needs.workspace
    assert needs.resident == total


def test_header_holds_the_facts_as_macros() -> None:
    model, inputs = made("convolutions")
    module = stepwell.quantize(model, "int8-cortex-m", [inputs])
    lowered = lowered_to("cortex-m4", module, inputs, io="int8")
    needs, text = lowered.deployment(), lowered.to_c("net")
    port = needs.ports["forward", "input"][0]
    assert port.quantization is not None
    scale = text.partition("NET_INPUT_0_SCALE ")[2].split()[0]
    assert float.fromhex(scale.removesuffix("f")) == pytest.approx(port.quantization.scale, 1e-6)
    assert f"#define NET_INPUT_0_ZERO_POINT ({port.quantization.zero_point})" in text
    assert f"#define NET_ARENA_BYTES {needs.arena['forward']}" in text
    assert "cortex_m::quantized_conv2d_nhwc.out" in text


def test_program_in_c_needs_no_runtime() -> None:
    model, inputs = made("convolutions")
    module = stepwell.quantize(model, "int8-cortex-m", [inputs])
    lowered = lowered_to("c", module, inputs)
    needs = lowered.deployment()
    assert (needs.runtime, needs.kernels, needs.libraries) == (None, (), ())
    assert needs.resident == lowered.artifact.constants + lowered.artifact.arena
    with pytest.raises(stepwell.StepwellError, match=r"writes \.tosa"):
        lowered_to("tosa-1.0+fp", model, inputs).deployment()


def test_integers_of_a_port_are_explained(folder: Commands) -> None:
    line = "explain m.py:convolutions -t cortex-m4 --quantize int8 -O io=int8 --deploy"
    said = folder(line).out
    assert "input 0: int8 1 x 3 x 8 x 8, (q - " in said
    assert told(said, "link") == ["executorch", "cortex_m_ops_lib"]


def test_project_in_c_is_not_taken_for_its_pte(folder: Commands) -> None:
    line = "m.py:convolutions -t cortex-m4 --quantize int8 -O io=int8 -O project=cmake"
    folder(f"lower {line} -o net")
    folder(f"explain {line} --deploy --json d.json")
    found = folder.json("d.json")["result"]
    assert (found["runtime"], found["libraries"]) == (None, [])
    assert f"MODEL_ARENA_BYTES {found['arena']['forward']}\n" in folder.read("net/model.h")
    assert found["ports"]["forward input"][0].startswith("int8 1 x 3 x 8 x 8, (q - ")


def test_memory_of_several_methods_is_that_of_all_loaded() -> None:
    model, inputs = made("convolutions")
    exported = torch.export.export(model, inputs)
    one = stepwell.lower(exported, "xnnpack").deployment()
    needs = stepwell.lower({"a": exported, "b": exported}, "xnnpack").deployment()
    assert set(needs.arena) == {"a", "b"} and needs.packed == 2 * one.packed
    others = needs.constants + needs.packed + (needs.workspace or 0)
    assert needs.resident == others + 2 * one.arena["forward"]


def test_only_one_report_is_asked_for(folder: Commands) -> None:
    with pytest.raises(SystemExit, match="2"):
        folder("explain m.py:convolutions --deploy --memory")


def test_what_is_no_pte_is_refused(folder: Commands) -> None:
    folder("lower m.py:convolutions -t tosa-1.0+fp -o m.tosa")
    assert "m.tosa is not a .pte" in folder("explain m.tosa --deploy", 1).err


def test_advice_about_a_suffix_works(folder: Commands) -> None:
    for target in ("xnnpack", "tosa-1.0+fp", "cortex-m4", "c"):
        is_array = target == "cortex-m4"
        said = folder(f"lower m.py:convolutions -t {target} -o m.h", 0 if is_array else 1)
        assert is_array or "to_c" not in said.err, said.err
        if not is_array:
            name = said.err.partition("name it ")[2].split()[0]
            folder(f"lower m.py:convolutions -t {target} -o {name}")
    assert "#define M_ARENA_BYTES" in folder.read("m.h")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the application, and the library that leaves kernels out of its runtime."""
    if not (shutil.which("cmake") and shutil.which("g++") and sys.platform == "linux"):
        pytest.skip("cmake or g++ is not installed, or this is not Linux")
    folder = tmp_path_factory.mktemp("build")
    package = Path(executorch.__path__[0]) / "share/cmake"
    prefix = [f"-DCMAKE_PREFIX_PATH={package}", "-DCMAKE_BUILD_TYPE=Release"]
    make = ["cmake", "-S", ROOT / "bench/listed_kernels", "-B", folder, *prefix]
    subprocess.run(make, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", folder], check=True, capture_output=True)
    return folder


def ran(built: Path, pte: Path, inputs: Sequence[torch.Tensor], **settings: str) -> bytes | None:
    """The bytes of the application's outputs; None where it ends with an error."""
    given = b"".join(x.numpy().tobytes() for x in inputs)
    app = [built / "app/app", pte]
    done = subprocess.run(app, input=given, capture_output=True, env={**os.environ, **settings})
    return done.stdout if done.returncode == 0 else None


def floats(outputs: Any) -> torch.Tensor:
    held = outputs if isinstance(outputs, tuple) else (outputs,)
    return torch.cat([y.flatten() for y in held])


@pytest.mark.parametrize(
    ("name", "target"), [("convolutions", "xnnpack"), ("sorts", "xnnpack"), ("sorts", "cortex-m4")]
)
def test_application_in_cpp_runs_on_the_listed_kernels_alone(
    built: Path, tmp_path: Path, name: str, target: str
) -> None:
    model, inputs = made(name)
    lowered = lowered_to(target, model, inputs)
    lowered.save(pte := tmp_path / "m.pte")
    needs = lowered.deployment()
    names = [*needs.kernels, *needs.backends]
    wanted = floats(model(*inputs))
    alone = {"LD_PRELOAD": str(built / "liblisted_kernels.so"), "LISTED": " ".join(names)}
    for settings in ({}, alone):
        found = ran(built, pte, inputs, **settings)
        assert found is not None, settings
        torch.testing.assert_close(torch.frombuffer(bytearray(found), dtype=torch.float32), wanted)
    for left_out in names:
        fewer = " ".join(each for each in names if each != left_out)
        assert ran(built, pte, inputs, **{**alone, "LISTED": fewer}) is None, left_out

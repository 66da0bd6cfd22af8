"""What an application needs to run a `.pte` is said, and an application in C++ runs it."""

import shutil
import subprocess
from pathlib import Path

import executorch
import pytest
import torch
from executorch.extension.pybindings import portable_lib

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

def sorts():
    torch.manual_seed(0)
    return Sorts().eval(), (torch.randn(2, 5), torch.randn(2, 5))
"""


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


def test_integers_of_a_port_are_explained(folder: Commands) -> None:
    line = "explain m.py:convolutions -t cortex-m4 --quantize int8 -O io=int8 --deploy"
    said = folder(line).out
    assert "input 0: int8 1 x 3 x 8 x 8, (q - " in said
    assert told(said, "link") == ["executorch", "cortex_m_ops_lib"]


def test_what_is_no_pte_is_refused(folder: Commands) -> None:
    folder("lower m.py:convolutions -t tosa-1.0+fp -o m.tosa")
    assert "m.tosa is not a .pte" in folder("explain m.tosa --deploy", 1).err


@pytest.mark.skipif(
    not shutil.which("cmake") or not shutil.which("g++"), reason="cmake or g++ is not installed"
)
def test_an_application_in_cpp_computes_what_pytorch_does(folder: Commands) -> None:
    package = Path(executorch.__path__[0]) / "share/cmake"
    prefix = [f"-DCMAKE_PREFIX_PATH={package}", "-DCMAKE_BUILD_TYPE=Release"]
    make = ["cmake", "-S", ROOT / "examples/cpp_app", "-B", "build", *prefix]
    subprocess.run(make, cwd=folder.folder, check=True, capture_output=True)
    build = ["cmake", "--build", "build"]
    subprocess.run(build, cwd=folder.folder, check=True, capture_output=True)
    made: dict[str, object] = {}
    exec(MODELS, made)
    for name in ("convolutions", "sorts"):
        folder(f"lower m.py:{name} -o {name}.pte")
        model, inputs = made[name]()  # pyright: ignore[reportCallIssue]
        given = b"".join(x.numpy().tobytes() for x in inputs)
        app = ["build/app", f"{name}.pte"]
        done = subprocess.run(app, cwd=folder.folder, input=given, check=True, capture_output=True)
        wanted = model(*inputs)
        outputs = wanted if isinstance(wanted, tuple) else (wanted,)
        found = torch.frombuffer(bytearray(done.stdout), dtype=torch.float32)
        torch.testing.assert_close(found, torch.cat([y.flatten() for y in outputs]))

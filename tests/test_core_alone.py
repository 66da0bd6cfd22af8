"""The core lowers without the packages that are built on it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.ir.extensions import extension

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "cost_model",
    "inspection",
    "integrations",
    "language_models",
    "loaders",
    "model_zoo",
    "quantization",
    "validation",
    "cli",
)
CHILD = """
import json, sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:1] == ["stepwell"] and name.split(".")[1:2] in [[p] for p in ABSENT]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

ABSENT = sys.argv[1].split(",")
sys.meta_path.insert(0, Absent())
sys.path.insert(0, sys.argv[2])
import torch, stepwell
from deit import deit_small_depth2

module, inputs = deit_small_depth2()
program = stepwell.from_exported_program(torch.export.export(module, inputs))
found = {}
for target in ("xnnpack", "tosa-1.0+fp", "cortex-m55"):
    lowered = stepwell.lower(program, target)
    found[target] = len(lowered.artifact)
try:
    stepwell.lower(program, "xnnpack", check=True)
except stepwell.StepwellError as error:
    found["check"] = str(error)
found["imported"] = [p for p in ABSENT if f"stepwell.{p}" in sys.modules]
print(json.dumps(found))
"""


def test_the_core_lowers_without_the_packages_built_on_it() -> None:
    command = [sys.executable, "-c", CHILD, ",".join(PACKAGES), str(ROOT / "examples/models")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("imported") == []
    assert "no installed package provides 'check-steps'" in found.pop("check")
    assert set(found) == {"xnnpack", "tosa-1.0+fp", "cortex-m55"}
    assert min(found.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_the_core_lowers_without_each_package(package: str) -> None:
    command = [sys.executable, "-c", CHILD, package, str(ROOT / "examples/models")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_function_that_the_core_finds_by_name_exists() -> None:
    text = (ROOT / "src/stepwell/__init__.py").read_text(encoding="utf-8")
    names = re.findall(r'^provide\("([a-z-]+)"', text, re.MULTILINE)
    assert len(names) > 5
    for name in names:
        assert callable(extension(name))

"""Write a `.vgf` file for Vulkan's ML extensions with Arm's model converter, and run one.

The converter (0.11) supports static shapes and plain constants only: block-scaled ones are
"Unable to serialize constants", shape operators "explicitly marked illegal". The target `vgf` has
neither.

Arm's scenario runner (`ai-ml-sdk-scenario-runner`) runs the file as a Vulkan program. Two layers
(`ai-ml-emulation-layer-for-vulkan`) emulate the extensions by compute shaders, which lavapipe
(Debian's `mesa-vulkan-drivers`) runs on the CPU. `vgf_dump` (`ai-ml-sdk-vgf-library`) lists the
tensors of the file. Arrays are passed as `.npy` files.
"""

import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stepwell.backends.tosa.emit import to_tosa
from stepwell.backends.tosa.installed import command_path
from stepwell.ir.diagnostics import (
    ArtifactError,
    InputMismatch,
    NoEngine,
    StepwellError,
    UnsupportedError,
)
from stepwell.ir.program import Program

CONVERTER = "model-converter"
"""The command of `ai-ml-sdk-model-converter`."""


def to_vgf(program: Program, **options: Any) -> bytes:
    """Return the `.vgf` of a program at level `tosa`.

    Args:
        program: the program, lowered for the target `vgf`.
        options: as for `to_tosa`.

    Raises:
        StepwellError: the converter is not installed.
        UnsupportedError: the converter refuses the graph; the message is the converter's.
    """
    data = to_tosa(program, **options)
    command = command_path(CONVERTER)
    if command is None:
        raise StepwellError(
            "Arm's model converter is not installed", help="pip install 'stepwell[vgf]'"
        )
    with tempfile.TemporaryDirectory() as name:
        given, made = Path(name) / "graph.tosa", Path(name) / "graph.vgf"
        given.write_bytes(data)
        arguments = [command, "-i", str(given), "-o", str(made)]
        done = subprocess.run(arguments, capture_output=True, text=True)
        if done.returncode or not made.exists():
            raise UnsupportedError(f"the model converter refuses the graph: {_complaint(done)}")
        return made.read_bytes()


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    errors = [line for line in lines if "error:" in line or "Assertion" in line]
    return (errors or lines or [f"exit code {done.returncode}"])[0]


# -- runs on Arm's emulation -----------------------------------------------------------------------

RUNNER, DUMP, PACKAGE = "scenario_runner", "vgf_dump", "emulation_layer"
LAYERS = ("Graph", "Tensor")
"""The emulation layers; the Graph layer's folder must precede the Tensor layer's."""
SECONDS = 900
"""The time limit of a run, in seconds."""

_TYPES: Mapping[str, torch.dtype] = {
    "VK_FORMAT_R32_SFLOAT": torch.float32,
    "VK_FORMAT_R16_SFLOAT": torch.float16,
    "VK_FORMAT_R32_SINT": torch.int32,
    "VK_FORMAT_R16_SINT": torch.int16,
    "VK_FORMAT_R8_SINT": torch.int8,
    "VK_FORMAT_R8_BOOL_ARM": torch.bool,
}
_DRIVERS = Path("/usr/share/vulkan/icd.d")
_HELP = (
    "pip install 'stepwell[vgf]' and apt-get install mesa-vulkan-drivers libvulkan1; the same "
    "graph runs on the reference model: lower to tosa-1.0+fp+int"
)


def missing() -> list[str]:
    """Return the parts of the emulation that are not installed."""
    absent = [name for name in (RUNNER, DUMP) if command_path(name) is None]
    absent += [PACKAGE] if importlib.util.find_spec(PACKAGE) is None else []
    return absent + ([] if _driver() else ["Mesa's lavapipe"])


def run_vgf(data: bytes, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Run a `.vgf` file.

    Args:
        data: the file.
        inputs: one tensor per input, in the file's order and dtypes (int64 where the file
            has int32 and the values fit).

    Returns:
        The outputs.

    Raises:
        NoEngine: a part of the emulation is not installed.
        InputMismatch: the inputs do not match the file.
        ArtifactError: the runner fails; the message is the runner's.
    """
    if absent := missing():
        raise NoEngine(f"no .vgf runs here: {', '.join(absent)} not installed", help=_HELP)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "graph.vgf").write_bytes(data)
        dumped = _call([DUMP, "-i", "graph.vgf", "--scenario-template"], folder, {})
        scenario: dict[str, Any] = json.loads(dumped)
        tensors = [r["tensor"] for r in scenario["resources"] if "tensor" in r]
        taken = [tensor for tensor in tensors if "src" in tensor]
        if len(taken) != len(inputs):
            raise InputMismatch(f"{len(inputs)} inputs given, the file takes {len(taken)}")
        for index, (tensor, given) in enumerate(zip(taken, inputs, strict=True)):
            tensor["src"] = f"in{index}.npy"
            np.save(folder / tensor["src"], _converted(given, tensor, index).numpy())
        made = [tensor for tensor in tensors if "dst" in tensor]
        for index, tensor in enumerate(made):
            tensor["dst"] = f"out{index}.npy"
        (folder / "scenario.json").write_text(json.dumps(scenario))
        _call(
            [RUNNER, "--scenario", "scenario.json", "--output", "."], folder, _environment(folder)
        )
        return tuple(_load(folder / tensor["dst"], tensor) for tensor in made)


def _converted(given: torch.Tensor, tensor: Mapping[str, Any], index: int) -> torch.Tensor:
    """Return the input in the form in which the file stores it."""
    dtype = _TYPES.get(tensor["format"])
    if (
        dtype == torch.int32
        and given.dtype == torch.int64
        and torch.equal(given, given.int().long())
    ):
        given = given.int()
    # In Vulkan, a tensor of rank 0 has rank 1.
    shape = list(given.shape) or [1]
    if given.dtype != dtype or shape != tensor["dims"]:
        raise InputMismatch(
            f"input {index} is {given.dtype} {shape}, "
            f"the file takes {dtype or tensor['format']} {tensor['dims']}"
        )
    return given.detach().contiguous().reshape(shape)


def _load(path: Path, tensor: Mapping[str, Any]) -> torch.Tensor:
    return torch.from_numpy(np.load(path)).to(_TYPES[tensor["format"]])


def _environment(folder: Path) -> dict[str, str]:
    """Return the variables that load the layers into a Vulkan program, each from a separate
    folder.
    """
    spec = importlib.util.find_spec(PACKAGE)
    driver = _driver()
    assert spec is not None and spec.origin is not None and driver is not None
    deploy = Path(spec.origin).parent / "deploy"
    for layer in LAYERS:
        manifest = f"VkLayer_{layer}.json"
        held = json.loads((deploy / "share" / "vulkan" / "explicit_layer.d" / manifest).read_text())
        held["layer"]["library_path"] = str(deploy / "lib" / held["layer"]["library_path"])
        (folder / layer).mkdir()
        (folder / layer / manifest).write_text(json.dumps(held))
    return {
        "VK_LAYER_PATH": os.pathsep.join(str(folder / layer) for layer in LAYERS),
        "VK_INSTANCE_LAYERS": ":".join(f"VK_LAYER_ML_{layer}_Emulation" for layer in LAYERS),
        "VK_ICD_FILENAMES": str(driver),
        "LD_LIBRARY_PATH": str(deploy / "lib"),
    }


def _driver() -> Path | None:
    return next(iter(sorted(_DRIVERS.glob("lvp_icd*.json"))), None)


def _call(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    command = command_path(arguments[0])
    assert command is not None
    try:
        done = subprocess.run(
            [command, *arguments[1:]],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, **environment},
        )
    except subprocess.TimeoutExpired as error:
        raise ArtifactError(f"{arguments[0]} ran longer than {SECONDS} s") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        told = [line for line in lines if "ERROR" in line or "rror:" in line]
        reason = (told or lines or [f"exit code {done.returncode}"])[-1]
        raise ArtifactError(f"{arguments[0]} gave up: {reason}")
    return done.stdout

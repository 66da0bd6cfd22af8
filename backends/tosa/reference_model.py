"""Run a flatbuffer on the TOSA reference model, in a separate process.

Within this process, the model would abort the Python interpreter on some invalid graphs, and its
binding loses outputs of narrow types; the command line has neither problem. Arrays are passed as
`.npy` files, codes as bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from stepwell.backends.tosa.bind_sizes import bind_sizes, has_symbolic_sizes
from stepwell.backends.tosa.flatbuffer import read_graph, write_graph
from stepwell.backends.tosa.graph import Graph, Tensor
from stepwell.backends.tosa.installed import command_path
from stepwell.backends.tosa.storage import from_bytes, held_dtype, to_bytes
from stepwell.dialects.tosa.codes import element_of_code, i4, i48
from stepwell.dialects.tosa.limits import EIGHT_K, LevelLimits
from stepwell.dialects.tosa.structural import VariableWriteOp
from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.diagnostics import ArtifactError, InputMismatch, UnsupportedError
from stepwell.ir.dtypes import i32

ml_dtypes = OnDemand("ml_dtypes")


SECONDS = 600
"""The time limit of the model, in seconds."""


def run_reference_model(
    data: bytes, inputs: Sequence[torch.Tensor], level: LevelLimits = EIGHT_K
) -> tuple[torch.Tensor, ...]:
    """Run a `.tosa` file on the TOSA reference model.

    Args:
        data: the flatbuffer.
        inputs: one tensor per input in the file's order; element types that PyTorch lacks as one
            code per element (int4 in int8, int48 in int64, fp6, fp4 and mxint8 codes in uint8).
            A graph with symbolic sizes is bound to their sizes, since the model needs static ones.
        level: the level against which the model checks the graph.

    Returns:
        The outputs, in the same representation.

    Raises:
        ArtifactError: the model refused or failed to run the graph; the message is its reason.
        InputMismatch: the inputs do not match the graph.
    """
    return call_reference_model(data, inputs, level)[0]


def call_reference_model(
    data: bytes, inputs: Sequence[torch.Tensor], level: LevelLimits = EIGHT_K
) -> tuple[tuple[torch.Tensor, ...], bytes]:
    """Run a `.tosa` file; the second result is the file with the new values of its variables.

    The other arguments and errors are those of `run_reference_model`.
    """
    graph = read_graph(data)
    main = graph.regions[0]
    if len(inputs) == len(main.inputs) and has_symbolic_sizes(graph):
        graph = bind_sizes(graph, inputs)
        data, main = write_graph(graph), graph.regions[0]
    tensors = {tensor.name: tensor for tensor in main.tensors}
    # The model can return one variable only, so each written value becomes an output too.
    written = {
        op.outputs[0]: op.inputs[0] for op in main.operators if op.code == VariableWriteOp.CODE
    }
    if written:
        main.outputs = (*main.outputs, *written.values())
        data = write_graph(graph)
    if len(inputs) != len(main.inputs):
        raise InputMismatch(f"{len(inputs)} inputs given, the graph takes {len(main.inputs)}")
    _fits(graph)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "graph.tosa").write_bytes(data)
        for index, (given, tensor_name) in enumerate(zip(inputs, main.inputs, strict=True)):
            _save(folder / f"in{index}.npy", given, tensors[tensor_name])
        _call(folder, graph, level)
        outputs = tuple(
            _load(folder / f"out{index}.npy", tensors[tensor_name])
            for index, tensor_name in enumerate(main.outputs)
        )
    if not written:
        return outputs, data
    count = len(outputs) - len(written)
    for variable, value in zip(written, outputs[count:], strict=True):
        held = tensors[variable]
        element = element_of_code(held.dtype)
        assert element is not None
        held.data = to_bytes(value, element)
    main.outputs = main.outputs[:count]
    return outputs[:count], write_graph(graph)


@dataclass
class ReferenceSession:
    """A sequence of calls of one file, in which variables keep their values between calls."""

    data: bytes
    level: LevelLimits = EIGHT_K

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Run one call; the arguments and errors are those of `run_reference_model`."""
        outputs, left = call_reference_model(self.data, inputs, self.level)
        held = {tensor.variable_name: tensor.data for tensor in _variables(read_graph(left))}
        if held:  # The returned file is bound to the sizes of the call.
            graph = read_graph(self.data)
            for tensor in _variables(graph):
                tensor.data = held[tensor.variable_name]
            self.data = write_graph(graph)
        return outputs


def _variables(graph: Graph) -> list[Tensor]:
    return [tensor for region in graph.regions for tensor in region.tensors if tensor.variable]


def _fits(graph: Graph) -> None:
    """Refuse tensors with more axes than level 8K allows, because the model aborts on them at any
    level.
    """
    tensors = (tensor for region in graph.regions for tensor in region.tensors)
    rank = max((len(tensor.shape) for tensor in tensors), default=0)
    if rank > EIGHT_K.rank:
        raise ArtifactError(
            f"the TOSA reference model computes tensors of up to {EIGHT_K.rank} axes, "
            f"and this graph has one of {rank}",
            help="the interpreter computes it: lowered.program.run",
        )


def _call(folder: Path, graph: Graph, level: LevelLimits) -> None:
    main = graph.regions[0]
    description = {
        "tosa_file": "graph.tosa",
        "ifm_name": main.inputs,
        "ifm_file": [f"in{i}.npy" for i in range(len(main.inputs))],
        "ofm_name": main.outputs,
        "ofm_file": [f"out{i}.npy" for i in range(len(main.outputs))],
        "expected_failure": False,
    }
    (folder / "desc.json").write_text(json.dumps(description))
    named = "EIGHTK" if level == EIGHT_K else "NONE"
    program = command_path("tosa_reference_model")
    if program is None:
        raise ArtifactError(
            "the TOSA reference model is not installed", help="pip install 'stepwell[tosa]'"
        )
    arguments = [program, "--test_desc", "desc.json", "--tosa_level", named]
    try:
        # Without a debugger on its path, the model cannot attach one when it fails.
        environment = {**os.environ, "PATH": ""}
        done = subprocess.run(
            arguments, cwd=folder, capture_output=True, text=True, timeout=SECONDS, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise ArtifactError(f"the TOSA reference model ran longer than {SECONDS} s") from error
    if done.returncode != 0:
        reason = _reason(done)
        if "written to more than once" in reason:
            raise UnsupportedError(
                "SCATTER: the inputs write an element twice; TOSA defines no result for that, and "
                "PyTorch does not specify which value remains"
            )
        raise ArtifactError(f"the TOSA reference model gave up: {reason}")


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    for index, line in enumerate(lines[:-1]):
        if " fails AT " in line or " AT /" in line:
            return lines[index + 1]
    return lines[0] if lines else f"exit code {done.returncode}"


def _save(path: Path, given: torch.Tensor, tensor: Tensor) -> None:
    element = element_of_code(tensor.dtype)
    if element == i32 and given.dtype == torch.int64 and _fits_in_32_bits(given):
        given = given.to(torch.int32)  # PyTorch has int64; the values are the same.
    if element is None or given.dtype != held_dtype(element) or _differs(given, tensor):
        raise InputMismatch(
            f"input {tensor.name!r} is {given.dtype} {list(given.shape)}, "
            f"the graph takes {element} {list(tensor.shape)}"
        )
    held = given.detach().contiguous()
    if element in (i4, i48) or held.dtype in _NUMPY:
        np.save(path, held.numpy())
        return
    raw = np.frombuffer(to_bytes(held, element), np.uint8)
    narrow = _ML_DTYPES.get(held.dtype)
    if narrow is not None:
        np.save(path, raw.view(getattr(ml_dtypes, narrow)).reshape(tensor.shape))
    else:
        np.save(path, raw.reshape([*tensor.shape[:-1], -1]))


def _fits_in_32_bits(x: torch.Tensor) -> bool:
    return bool(torch.equal(x, x.to(torch.int32).to(torch.int64)))


def _differs(given: torch.Tensor, tensor: Tensor) -> bool:
    if tensor.is_unranked:
        return False
    return len(given.shape) != len(tensor.shape) or any(
        want not in (-1, have) for have, want in zip(given.shape, tensor.shape, strict=True)
    )


def _load(path: Path, tensor: Tensor) -> torch.Tensor:
    element = element_of_code(tensor.dtype)
    assert element is not None
    held = np.load(path)
    dtype = held_dtype(element)
    if dtype in _NUMPY or element in (i4, i48):
        return torch.from_numpy(held).to(dtype)
    return from_bytes(held.tobytes(), tensor.shape, element)


_NUMPY = frozenset(
    (
        torch.float32,
        torch.float16,
        torch.bool,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
    )
)
"""Types that NumPy has too."""

_ML_DTYPES = {
    torch.bfloat16: "bfloat16",
    torch.float8_e4m3fn: "float8_e4m3fn",
    torch.float8_e8m0fnu: "float8_e8m0fnu",
}
"""Types that the model recognizes by the `.npy` header of ml_dtypes, a dependency of tosa-tools;
others are bytes."""

"""Run single delegates on the real runtime, many in one child process.

Each trial becomes a method of one program. A payload that kills the process costs only its own
trial: the child is started again after it. The program is loaded from a file, as on a phone, and
the child overwrites freed memory, so that a constant which the runtime frees and XNNPACK still
reads shows as a wrong result.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from xdsl.ir import Attribute

from stepwell.backends.executorch.container import Container, Data, Delegate
from stepwell.backends.executorch.kernels.scalar_types import scalar_type
from stepwell.backends.executorch.writing.builder import ContainerBuilder, MethodBuilder
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.backends.flatbuffer import Record, read_root
from stepwell.backends.xnnpack.emit import payload
from stepwell.backends.xnnpack.nodes import input_names
from stepwell.backends.xnnpack.schema import schema, split_header
from stepwell.dialects.xnnpack import NODES, DelegateOp
from stepwell.ir.diagnostics import ArtifactError
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.types import dims, element
from stepwell.ir.weights import WeightStore


@dataclass(frozen=True)
class Trial:
    """A delegate with static shapes, its weights, and its inputs."""

    delegate: DelegateOp
    weights: WeightStore
    inputs: tuple[torch.Tensor, ...]


Outcome = tuple[torch.Tensor, ...] | ArtifactError


def run_alone(
    trials: Sequence[Trial], *, embed_unpacked_constants: bool = False, timeout: float = 300.0
) -> list[Outcome]:
    """Return the runtime's results for each trial, or the reason why there are none.

    Args:
        trials: the trials to run.
        embed_unpacked_constants: see `payload`.
        timeout: the time limit of a child, in seconds.

    """
    program = to_bytes(container_of(trials, embed_unpacked_constants=embed_unpacked_constants))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.pte").write_bytes(program)
        torch.save([list(trial.inputs) for trial in trials], folder / "inputs.pt")
        outcomes: list[Outcome] = []
        while len(outcomes) < len(trials):
            outcomes += _child(folder, len(outcomes), timeout)
    return outcomes[: len(trials)]


def container_of(trials: Sequence[Trial], *, embed_unpacked_constants: bool = False) -> Container:
    """A program with the method `trial_<i>` for each trial, which calls only the delegate."""
    container = ContainerBuilder()
    for number, trial in enumerate(trials):
        delegate = trial.delegate
        made = payload(delegate, trial.weights, embed_unpacked_constants=embed_unpacked_constants)
        container.add_named_data(made.named_data)
        method = container.method(f"trial_{number}")
        inputs = [_tensor(method, value.type) for value in delegate.operands]
        outputs = [_tensor(method, value.type) for value in delegate.results]
        for value in inputs:
            method.input(value)
        method.delegate(Delegate(made.backend, made.payload), [*inputs, *outputs])
        method.outputs(outputs)
    return container.finish()


def _tensor(method: MethodBuilder, type_: Attribute) -> int:
    shape = cast(tuple[int, ...], dims(type_))
    return method.tensor(scalar_type(torch_dtype(element(type_))), shape)


def _child(folder: Path, first: int, timeout: float) -> list[Outcome]:
    """Outcomes of the trials from `first` on, up to the one that killed the child, if any."""
    child = Path(__file__).with_name("isolated_run_child.py")
    done = subprocess.run(
        [sys.executable, str(child), str(folder), str(first)],
        capture_output=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "MALLOC_PERTURB_": "165"},
    )
    outcomes: list[Outcome] = []
    while (answer := folder / f"answer.{first + len(outcomes)}.pt").exists():
        outcomes.append(_outcome(torch.load(answer, weights_only=True)))
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        outcomes.append(
            ArtifactError(f"the runtime's process ended with {done.returncode}: {''.join(said)}")
        )
    return outcomes


def _outcome(answer: dict[str, Any]) -> Outcome:
    if "error" in answer:
        return ArtifactError(answer["error"])
    return tuple(answer["outputs"])


def unpacked_constants(data: Data) -> list[tuple[str, str, str]]:
    """The constants in a payload to which XNNPACK keeps pointers.

    Returns `(node, field of the node, key)` for each: `("XNNAdd", "input2_id", "3f…")`; the key
    of a constant inside the payload is `""`. Works on payloads of any origin.

    Raises:
        ParseFailure: the bytes are no payload.

    """
    graph, _ = split_header(memoryview(data).cast("B"))
    root = read_root(graph, schema(), what="XNNPACK payload", check_identifier=False)
    constants: Mapping[int, int] = _constant_values(root["xvalues"])
    keys: Sequence[Record] = root["constant_data"]
    found: list[tuple[str, str, str]] = []
    for node in root["xnodes"]:
        if node["xnode_union"] is None:
            continue
        name, fields = node["xnode_union"]
        cls = NODES.get(name)
        if cls is None:
            continue
        for index, field in enumerate(input_names(cls)):
            buffer = constants.get(fields[field])
            if buffer and index not in cls.PACKED:
                key = keys[buffer]["named_key"] if buffer < len(keys) else ""
                found.append((name, field, key or ""))
    return found


def _constant_values(values: Sequence[Record]) -> dict[int, int]:
    """Ids of constant values, with the index of their buffers."""
    constant_values: dict[int, int] = {}
    for value in values:
        if value["xvalue_union"] is None:
            continue
        name, record = value["xvalue_union"]
        tensor = record if name == "XNNTensorValue" else record["tensor_value"]
        if tensor is not None and tensor["constant_buffer_idx"]:
            constant_values[tensor["id_out"]] = tensor["constant_buffer_idx"]
    return constant_values

"""Bundled programs (`.bpte`): a `.pte` with inputs and their expected outputs.

ExecuTorch's own serializer (`executorch.devtools.bundled_program`) writes them, so that an unedited
file is written byte for byte.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from stepwell.backends.executorch.container import ScalarType
from stepwell.backends.executorch.kernels.scalar_types import torch_dtype
from stepwell.backends.executorch.reading.read import read_container, shipped
from stepwell.backends.flatbuffer import Record, parse_schema, read_root
from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.diagnostics import StepwellError

serialize = OnDemand("executorch.devtools.bundled_program.serialize")
devtools = OnDemand("executorch.devtools")
config = OnDemand("executorch.devtools.bundled_program.config")


Case = tuple[Sequence[Any], Sequence[torch.Tensor]]
"""Flat inputs of a call, and the expected output tensors."""
IDENTIFIER = b"BP"


def is_bundled(data: bytes) -> bool:
    """Whether bytes are a bundled program."""
    return data[4:6] == IDENTIFIER


def unbundled(data: bytes) -> bytes:
    """Return the `.pte` in a bundled program."""
    return bytes(_root(data)["program"])


def bundled_inputs(data: bytes, method: str) -> list[tuple[Any, ...]]:
    """Return the flat inputs of each case of a method in a bundled program."""
    return [
        tuple(_value(held["val"]) for held in case["inputs"])
        for suite in _root(data)["method_test_suites"]
        if suite["method_name"] == method
        for case in suite["test_cases"]
    ]


def _value(held: tuple[str, Record]) -> Any:
    name, fields = held
    if name != "Tensor":
        return next(iter(fields.values()))
    dtype = torch_dtype(ScalarType(fields["scalar_type"]))
    order = [*fields["dim_order"]] or [*range(len(fields["sizes"]))]
    flat = torch.frombuffer(bytearray(fields["data"]), dtype=dtype)
    lying = flat.reshape([fields["sizes"][axis] for axis in order])
    return lying.permute([order.index(axis) for axis in range(len(order))])


def _root(data: bytes) -> Record:
    folder = shipped("devtools", "bundled_program", "serialize")
    text = (folder / "bundled_program_schema.fbs").read_text()
    schema = parse_schema(text, lambda name: (folder / name).read_text())
    return read_root(data, schema, what="bundled program")


def rebundled(data: bytes, pte: bytes) -> bytes:
    """Return a bundled program with another `.pte`, and the same cases.

    Raises:
        ParseFailure: `data` is not a bundled program.
        StepwellError: the `.pte` lacks a method that the cases call.
    """
    if unbundled(data) == pte:
        return data
    held = serialize.deserialize_from_json_to_bundled_program(
        serialize.convert_from_flatbuffer(data)
    )
    _check([suite.method_name for suite in held.method_test_suites], pte)
    made = replace(held, program=pte)
    return serialize.convert_to_flatbuffer(serialize.serialize_from_bundled_program_to_json(made))


def bundled(pte: bytes, cases: Mapping[str, Sequence[Case]]) -> bytes:
    """Return a `.pte` with cases for its methods.

    Raises:
        StepwellError: the `.pte` lacks a method that the cases call.
    """
    _check(list(cases), pte)
    suites = [
        config.MethodTestSuite(
            name, [config.MethodTestCase(list(given), list(wanted)) for given, wanted in each]
        )
        for name, each in cases.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "program.pte"
        place.write_bytes(pte)
        bundled_program = devtools.BundledProgram(None, suites, pte_file_path=str(place))
        return serialize.serialize_from_bundled_program_to_flatbuffer(bundled_program)


def _check(names: Sequence[str], pte: bytes) -> None:
    methods = [method.name for method in read_container(bytearray(pte)).methods]
    missing = [name for name in names if name not in methods]
    if missing:
        raise StepwellError(
            f"the .pte has no method {', '.join(map(repr, missing))}, which the cases call",
            help="methods are " + ", ".join(methods),
        )

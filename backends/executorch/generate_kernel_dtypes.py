"""Writes `kernel_dtypes.py`: what element types the installed runtime's kernels refuse.

    python -m stepwell.backends.executorch.generate_kernel_dtypes

Each kernel is called on the real runtime, for every element type and for pairs of them where it
takes two tensors, with a program of one op; PyTorch says what it should compute. Probes run in a
child process, because some kernels abort: what kills it is refused like what fails.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Never, cast

import torch
from torch.utils import _pytree as pytree
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from stepwell.backends.executorch.builder import ContainerBuilder
from stepwell.backends.executorch.container import KernelCall
from stepwell.backends.executorch.emit import MethodEmitter
from stepwell.backends.executorch.kernel_calls import signature_text
from stepwell.backends.executorch.kernel_samples import (
    QUANTISED,
    QUANTISED_LIBRARY,
    SAMPLES,
    UNPROBED,
)
from stepwell.backends.executorch.serialize import to_bytes
from stepwell.backends.executorch.signatures import out_variant
from stepwell.dialects.aten.registry import of_overload
from stepwell.ir.dtypes import element_type
from stepwell.ir.program import Program
from stepwell.ir.types import tensor_like
from stepwell.ir.weights import WeightStore

DTYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool,
)  # fmt: skip

MIXED = torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.bool
"""Types that are tried in pairs."""

_NUMBERS: dict[str, Any] = {
    "Scalar": 2, "int": 0, "SymInt": 0, "float": 1.0, "bool": False,
}  # fmt: skip
_BY_NAME: dict[str, Any] = {"dim": 0, "size": [2, 3], "rounding_mode": "floor", "shape": [2, 3]}


@dataclass(frozen=True)
class Probe:
    """One call: a functional operator, its kernel, and the element types it is given."""

    overload: Any
    kernel: str
    dtypes: tuple[torch.dtype, ...]

    def arguments(self) -> tuple[list[Any], dict[str, Any]] | None:
        """Positional and keyword arguments; None where nothing is known to give."""
        torch.manual_seed(0)
        types = itertools.cycle(self.dtypes)

        def make(*shape: int) -> torch.Tensor:
            return _values(shape, next(types))

        schema = self.overload._schema
        name = schema.name.partition("::")[2]
        if schema.name.startswith(QUANTISED_LIBRARY):
            given = list(QUANTISED[_spelled(schema)][1](make, self.dtypes))
            return given, given.pop() if isinstance(given[-1], dict) else {}
        for key in (f"{name}.{schema.overload_name}", name):
            if key in SAMPLES:
                return list(SAMPLES[key](make, self.dtypes)), {}
        takes_no_tensor = not any("Tensor" in str(a.type) for a in schema.arguments)
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for argument in schema.arguments:
            text = str(argument.type)
            if text == "Tensor":
                value: Any = make(2, 3)
            elif argument.name == "dtype" and takes_no_tensor:
                value = self.dtypes[0]
            elif argument.has_default_value():
                continue
            elif argument.name in _BY_NAME:
                value = _BY_NAME[argument.name]
            elif text.startswith("Optional"):
                value = None
            elif text in ("number", "int", "float", "bool", "SymInt"):
                value = _NUMBERS.get(text, 2)
            else:
                return None
            if argument.kwarg_only:
                keywords[argument.name] = value
            else:
                positional.append(value)
        return positional, keywords


def _values(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_floating_point:
        return (torch.rand(shape) * 0.8 + 0.1).to(dtype)
    return torch.randint(1, 4, shape, dtype=dtype)


def _spelled(schema: Any) -> str:
    name, overload = schema.name.partition("::")[2], schema.overload_name
    return f"{name}.{overload}" if overload else name


@cache
def overloads() -> dict[str, Any]:
    """Kernel → the functional operator it is probed with."""
    found: dict[str, Any] = {}
    importlib.import_module("torch.ao.quantization.fx._decomposed")
    for qualified in sorted(torch._C._dispatch_get_all_op_names()):  # pyright: ignore
        namespace, _, rest = qualified.partition("::")
        if namespace != "aten" and rest not in QUANTISED:
            continue
        name, _, overload = rest.partition(".")
        signature = out_variant(f"{namespace}.{name}.{overload or 'default'}")
        if signature is None or name in UNPROBED or signature.schema.operator != name:
            continue  # Of some the signature found is another operator's.
        if signature.outputs:
            packet = getattr(getattr(torch.ops, namespace), name)
            found[signature.kernel] = getattr(packet, overload or "default")
    return found


def probes() -> list[Probe]:
    """Every call, in a fixed order: each type alone, then pairs where two tensors are data."""
    found: list[Probe] = []
    for kernel, overload in sorted(overloads().items()):
        tensors = [a for a in overload._schema.arguments if str(a.type) == "Tensor"]
        name = overload._schema.name.partition("::")[2]
        if overload._schema.name.startswith(QUANTISED_LIBRARY):
            types = QUANTISED[_spelled(overload._schema)][0]
            found += [Probe(overload, kernel, dtypes) for dtypes in itertools.product(*types)]
            continue
        pairs = len(tensors) == 2 and not any(key.split(".")[0] == name for key in SAMPLES)
        found += [Probe(overload, kernel, (dtype,)) for dtype in DTYPES]
        if pairs:
            mixed = itertools.permutations(MIXED, 2)
            found += [Probe(overload, kernel, dtypes) for dtypes in mixed]
    return found


@dataclass(frozen=True)
class Call:
    """A probe with PyTorch's answer."""

    probe: Probe
    positional: list[Any]
    keywords: dict[str, Any]
    inputs: list[torch.Tensor]
    results: list[torch.Tensor]

    @property
    def text(self) -> str:
        """The element types, as the table spells them."""
        return signature_text(
            [element_type(t.dtype) for t in self.inputs],
            [element_type(t.dtype) for t in self.results],
        )


def expected(probe: Probe) -> Call | None:
    """What PyTorch computes for a probe, or None where it refuses such a call."""
    arguments = probe.arguments()
    if arguments is None:
        return None
    positional, keywords = arguments
    try:
        wanted = probe.overload(*positional, **keywords)
    except (RuntimeError, TypeError, LookupError, AssertionError, ValueError, ArithmeticError):
        return None
    results: list[Any] = [wanted] if isinstance(wanted, torch.Tensor) else list(wanted)
    leaves: list[Any] = pytree.tree_leaves(positional)
    inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return Call(probe, positional, keywords, inputs, results)


def run_probe(probe: Probe) -> tuple[str, str] | None:
    """(signature, verdict) of one call, or None where there is nothing to call."""
    call = expected(probe)
    data = None if call is None else _program(call)
    if call is None or data is None:
        return None
    return call.text, _verdict(data, call.inputs, call.results)


def _program(call: Call) -> bytes | None:
    """A program of this one call; None where it needs no kernel (a view)."""
    tensors = call.inputs
    block = Block(arg_types=[tensor_like(t) for t in tensors])
    values: dict[int, SSAValue] = {
        id(t): arg for t, arg in zip(tensors, block.args, strict=True)
    }  # fmt: skip

    def held(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return values[id(value)]
        if isinstance(value, list):
            return [held(item) for item in cast(list[Any], value)]
        return element_type(value) if isinstance(value, torch.dtype) else value

    types = [tensor_like(result) for result in call.results]
    op = of_overload(call.probe.overload).make(
        *map(held, call.positional),
        result_types=types,
        **{name: held(value) for name, value in call.keywords.items()},
    )
    block.add_ops([op, ReturnOp(*op.results)])
    inputs = [argument.type for argument in block.args]
    func = FuncOp("forward", FunctionType.from_lists(inputs, types), Region(block))
    program = Program(ModuleOp([func]), WeightStore())
    builder = ContainerBuilder()
    MethodEmitter(builder, builder.method("forward"), program, func, {}).emit()
    container = builder.finish()
    calls = [i for m in container.methods for i in m.instructions if isinstance(i, KernelCall)]
    return to_bytes(container) if calls else None


def _verdict(data: bytes, tensors: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> str:
    from executorch.runtime import Runtime

    try:
        method = Runtime.get().load_program(data).load_method("forward")
        assert method is not None
        found = method.execute(list(tensors))
    except RuntimeError:
        return "fails"
    for mine, other in zip(found, wanted, strict=True):
        loose = 2e-2 if other.dtype in (torch.float16, torch.bfloat16) else 1e-4
        if mine.dtype != other.dtype or mine.shape != other.shape:
            return "differs"
        if not torch.allclose(mine.double(), other.double(), loose, loose, equal_nan=True):
            return "differs"
    return "runs"


def verdicts(chosen: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    """(index, signature, verdict) of probes by index, in a process of its own."""
    child = subprocess.run(
        [sys.executable, "-m", __spec__.name, "--probe"],
        input=json.dumps(list(chosen)), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if child.returncode:
        raise RuntimeError(f"the probing child failed:\n{child.stderr[-2000:]}")
    for line in child.stdout.splitlines():
        if line.startswith("PROBE "):
            index, text, verdict = json.loads(line.removeprefix("PROBE "))
            if verdict.startswith("raised"):
                raise RuntimeError(f"probe {index} {verdict}")
            yield index, text, verdict


def _probe_here() -> None:
    """Probe what standard input lists; each run of probes is a fork, whose death is a verdict."""
    every, left = probes(), list(json.loads(sys.stdin.read()))
    importlib.import_module("executorch.runtime")
    importlib.import_module("executorch.kernels.quantized")
    x = torch.ones(2, 3)
    first = Probe(torch.ops.aten.abs.default, "aten::abs.out", (torch.float32,))
    _program(Call(first, [x], {}, [x], [x]))  # Imports, once for all forks.
    while left:
        reader, writer = os.pipe()
        process = os.fork()
        if not process:
            os.close(reader)
            _report(every, left, writer)
        os.close(writer)
        with os.fdopen(reader) as stream:
            told = [json.loads(line) for line in stream if line.endswith("\n")]
        os.waitpid(process, 0)
        done = {index for index, _ in told}
        for index, found in told:
            if found is not None:
                print("PROBE " + json.dumps([index, *found]))
        died = [index for index in left if index not in done][:1]
        for index in died:
            call = expected(every[index])
            assert call is not None
            print("PROBE " + json.dumps([index, call.text, "aborts"]))
        left = [index for index in left if index not in done and index not in died]


def _report(every: Sequence[Probe], chosen: Sequence[int], writer: int) -> Never:
    with os.fdopen(writer, "w", buffering=1) as stream:
        for index in chosen:
            try:
                found = run_probe(every[index])
            except Exception as error:  # a fault of the probe, which the parent raises
                found = "", f"raised {type(error).__name__}: {error}"
            stream.write(json.dumps([index, found]) + "\n")
    os._exit(0)


def generate() -> str:
    """The text of `kernel_dtypes.py`."""
    every = probes()
    runs: dict[str, set[str]] = {}
    refused: dict[str, dict[str, str]] = {}
    for index, text, verdict in verdicts(range(len(every))):
        kernel = every[index].kernel
        if verdict == "runs":
            runs.setdefault(kernel, set()).add(text)
        else:
            refused.setdefault(kernel, {})[text] = verdict
    lines = [
        '"""What element types the runtime\'s kernels refuse; from generate_kernel_dtypes.py."""',
        "", "# fmt: off", "# ruff: noqa: E501", "",
        "PROBED = frozenset(",
        f"    {json.dumps(' '.join(sorted({*runs, *refused})))}.split()",
        ")", "",
        "REFUSED: dict[str, dict[str, str]] = {",
    ]  # fmt: skip
    for kernel, found in sorted(refused.items()):
        by_verdict: dict[str, list[str]] = {}
        for text, verdict in sorted(found.items()):
            by_verdict.setdefault(verdict, []).append(text)
        lines.append(f"    {json.dumps(kernel)}: {{")
        lines += [
            f"        {json.dumps(verdict)}: {json.dumps(', '.join(texts))},"
            for verdict, texts in sorted(by_verdict.items())
        ]
        lines.append("    },")
    return "\n".join([*lines, "}"]) + "\n"


if __name__ == "__main__":
    if "--probe" in sys.argv:
        _probe_here()
    else:
        Path(__file__).with_name("kernel_dtypes.py").write_text(generate())

"""Generate `backends/executorch/kernels/kernel_dtypes.json`: element types that kernels refuse.

    python tools/generate_kernel_dtypes.py

Each kernel is called on the real runtime, for every element type and for pairs of them if it
takes two tensors, with a program of one op; PyTorch computes the expected result. Probes run in a
child process, because some kernels abort: a probe that kills the process is refused like one that
fails.
"""

from __future__ import annotations

import importlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from generate_kernels import as_json
from kernel_samples import QUANTIZED, SAMPLES, UNPROBED
from kernel_situations import (
    ARGUMENTS,
    EDGES,
    SHAPES,
    UNRANKED,
    VALUES,
    VARIANTS,
    adapted,
    filled,
    numbers,
    shaped,
)
from kernel_trials import in_forks, out_variant, program_of

from stepwell.backends.executorch.container import KernelCall
from stepwell.backends.executorch.kernels.kernel_calls import (
    BROADCAST,
    EMPTY,
    EMPTY_RESULT,
    EXTREME,
    RANK,
    REFUSALS,
    SPECIAL,
    signature_text,
)
from stepwell.backends.executorch.kernels.kernel_tables import kernel_libraries
from stepwell.backends.executorch.kernels.signatures import Output
from stepwell.backends.executorch.running.engine import runtime
from stepwell.backends.executorch.writing.builder import ContainerBuilder
from stepwell.backends.executorch.writing.emit import MethodEmitter
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.dialects.aten.registry import FURTHER_LIBRARIES, LIBRARIES
from stepwell.ir.compat.torch.torch_private import operator_names, pytree, schema_of
from stepwell.ir.dtypes import element_type

DTYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool,
)  # fmt: skip

TOGETHER = "llama::"
"""Kernels whose shapes must match in one way; PyTorch's own abort the process otherwise."""

CAST = "cast"
"""The second type is passed as the keyword `dtype`."""

NAMESPACES = "aten", "dim_order_ops", "quantized_decomposed", "llama"
"""Probed namespaces: all kernels of the first two, of the others those with a sample."""

_NUMBERS: dict[str, Any] = {
    "Scalar": 2, "int": 0, "SymInt": 0, "float": 1.0, "bool": False,
}  # fmt: skip
_BY_NAME: dict[str, Any] = {"dim": 0, "size": [2, 3], "rounding_mode": "floor", "shape": [2, 3]}


@dataclass(frozen=True)
class Probe:
    """One call: a functional operator, its kernel, and the element types of its arguments."""

    overload: Any
    kernel: str
    dtypes: tuple[torch.dtype, ...]
    situation: str = ""
    variant: int = 0

    @property
    def name(self) -> str:
        """The operator and its overload, the key of its sample."""
        schema = schema_of(self.overload)
        return f"{schema.name.partition('::')[2]}.{schema.overload_name}".rstrip(".")

    def arguments(self) -> tuple[list[Any], dict[str, Any]] | None:
        """Positional and keyword arguments; None if no valid arguments are known."""
        torch.manual_seed(0)
        turns = itertools.count()

        def make(*shape: int) -> torch.Tensor:
            turn = next(turns)
            dtype = self.dtypes[turn % len(self.dtypes)]
            if self.situation in VALUES:
                every = numbers(self.situation, dtype, turn, max(self.variant, 0))
                return filled(shape, every, dtype) if every else _values(shape, dtype)
            if self.situation == BROADCAST and dtype == torch.bool:
                return filled(shaped(BROADCAST, self.variant, shape, turn), _BOOLS[turn % 2], dtype)
            if self.situation in SHAPES and self.variant >= 0:
                shape = shaped(self.situation, self.variant, shape, turn)
            return _values(shape, dtype)

        schema = schema_of(self.overload)
        if self.variant < 0:
            given = list(EDGES[self.name][-1 - self.variant][1](make))
            return given, given.pop() if isinstance(given[-1], dict) else {}
        if _spelled(schema) in QUANTIZED:
            given = list(QUANTIZED[_spelled(schema)][1](make, self.dtypes))
            return given, given.pop() if isinstance(given[-1], dict) else {}
        for key in (self.name, self.name.partition(".")[0]):
            if key in SAMPLES:
                given = list(SAMPLES[key](make, self.dtypes))
                named = given.pop() if isinstance(given[-1], dict) else {}
                return adapted(self.situation, self.variant, schema, given), named
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
                if text == "number":
                    value = ARGUMENTS.get(self.situation, value)
            else:
                return None
            if argument.kwarg_only:
                keywords[argument.name] = value
            else:
                positional.append(value)
        if self.situation == CAST:
            keywords["dtype"] = self.dtypes[1]
        return adapted(self.situation, self.variant, schema, positional), keywords


_BOOLS = [True, False, True, False, False, True], [False, True, True, True, False]


def _values(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_floating_point:
        return (torch.rand(shape, dtype=torch.float64) * 0.8 + 0.1).to(dtype)
    return torch.randint(1, 4, shape, dtype=dtype)


def _spelled(schema: Any) -> str:
    name, overload = schema.name.partition("::")[2], schema.overload_name
    return f"{name}.{overload}" if overload else name


@cache
def overloads() -> dict[str, Any]:
    """Kernel → the functional operator with which it is probed."""
    found: dict[str, Any] = {}
    for namespace in NAMESPACES:
        for libraries in (LIBRARIES, FURTHER_LIBRARIES):
            if namespace in libraries:
                importlib.import_module(libraries[namespace])
    for qualified in sorted(operator_names()):  # pyright: ignore
        namespace, _, rest = qualified.partition("::")
        named = rest in QUANTIZED or rest.partition(".")[0] in SAMPLES
        if namespace not in NAMESPACES[: None if named else 2]:
            continue
        name, _, overload = rest.partition(".")
        signature = out_variant(f"{namespace}.{name}.{overload or 'default'}")
        if signature is None or name in UNPROBED or signature.schema.operator != name:
            continue  # For some kernels the signature found is another operator's.
        chosen = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
        writes = any(isinstance(role, Output) for role in signature.arguments)
        if writes and not schema_of(chosen).is_mutable:
            found[signature.kernel] = chosen
    return found


def probes() -> list[Probe]:
    """Every call, in a fixed order: each type alone, then pairs if two tensors are data."""
    found: list[Probe] = []
    for kernel, overload in sorted(overloads().items()):
        tensors = [a for a in schema_of(overload).arguments if str(a.type) == "Tensor"]
        name = schema_of(overload).name.partition("::")[2]
        if _spelled(schema_of(overload)) in QUANTIZED:
            types = QUANTIZED[_spelled(schema_of(overload))][0]
            found += [Probe(overload, kernel, dtypes) for dtypes in itertools.product(*types)]
            continue
        pairs = len(tensors) == 2 and not any(key.split(".")[0] == name for key in SAMPLES)
        found += [Probe(overload, kernel, (dtype,)) for dtype in DTYPES]
        if pairs:
            mixed = itertools.permutations(DTYPES, 2)
            found += [Probe(overload, kernel, dtypes) for dtypes in mixed]
        if not kernel.startswith(TOGETHER):
            found += _edge_cases(overload, kernel)
    return found


def _edge_cases(overload: Any, kernel: str) -> Iterator[Probe]:
    """The calls of a kernel in every situation other than the usual one."""
    kinds = [str(argument.type) for argument in schema_of(overload).arguments]
    tensors = kinds.count("Tensor")
    plain = Probe(overload, kernel, ()).name
    is_sampled = plain in SAMPLES or plain.partition(".")[0] in SAMPLES
    for situation, dtype in itertools.product((*VALUES, *SHAPES), DTYPES):
        if situation == BROADCAST and (is_sampled or tensors < 2):
            continue
        if situation == RANK and (plain in UNRANKED or (tensors > 1 and not is_sampled)):
            continue  # For elementwise operators such shapes broadcast.
        for variant in range(VARIANTS.get(situation, 1)):
            if situation in SHAPES or numbers(situation, dtype, 0, variant):
                yield Probe(overload, kernel, (dtype,), situation, variant)
    if "number" in kinds:
        for situation, dtype in itertools.product(ARGUMENTS, DTYPES):
            yield Probe(overload, kernel, (dtype,), situation)
    if tensors and any(a.name == "dtype" and a.kwarg_only for a in schema_of(overload).arguments):
        pairs = itertools.product(DTYPES, DTYPES)
        yield from (Probe(overload, kernel, types, CAST) for types in pairs if not is_sampled)
    for index, (situation, _) in enumerate(EDGES.get(plain, ())):
        yield from (Probe(overload, kernel, (d,), situation, -1 - index) for d in DTYPES)


@dataclass(frozen=True)
class ProbeCall:
    """A probe with PyTorch's result."""

    probe: Probe
    positional: list[Any]
    keywords: dict[str, Any]
    inputs: list[torch.Tensor]
    results: list[torch.Tensor]

    @property
    def situation(self) -> str:
        """The table's name of the situation of this call; empty for the usual one."""
        named = self.probe.situation
        if named == EMPTY and not any(result.numel() for result in self.results):
            return EMPTY_RESULT
        if named == RANK and self.inputs:
            return RANK.format(self.inputs[0].dim())
        return "" if named == CAST else named

    @property
    def text(self) -> str:
        """The element types, in the notation of the table."""
        return signature_text(
            [element_type(t.dtype) for t in self.inputs],
            [element_type(t.dtype) for t in self.results],
        )


def expected(probe: Probe) -> ProbeCall | None:
    """PyTorch's result for a probe, or None if PyTorch refuses the call."""
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
    return ProbeCall(probe, positional, keywords, inputs, results)


def run_probe(probe: Probe) -> tuple[str, str, str] | None:
    """(situation, element types, verdict) of one call, or None if no call is possible."""
    call = expected(probe)
    data = None if call is None else _program(call)
    if call is None or data is None:
        return None
    return call.situation, call.text, _verdict(data, call.inputs, call.results)


def _program(call: ProbeCall) -> bytes | None:
    """A program of this one call; None if it needs no kernel (a view)."""
    program = program_of(call.probe.overload, call.positional, call.keywords, call.results)
    builder = ContainerBuilder()
    func = program.method()
    MethodEmitter(builder, builder.method("forward"), program, func, {}).emit()
    container = builder.finish()
    calls = [i for m in container.methods for i in m.instructions if isinstance(i, KernelCall)]
    return to_bytes(container) if calls else None


def _verdict(data: bytes, tensors: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> str:
    try:
        method = runtime().load_program(data).load_method("forward")
        assert method is not None
        found = method.execute(list(tensors))
    except RuntimeError:
        return "fails"
    for mine, other in zip(found, wanted, strict=True):
        if mine.dtype != other.dtype or mine.shape != other.shape:
            return "differs"
        if not _is_close(mine, other, _precision(tensors, other.dtype)):
            return "differs"
    return "runs"


LOOSE = {torch.float16: 2e-2, torch.bfloat16: 2e-2, torch.float64: 1e-12}
"""Tolerance of results, absolute at 1 and relative: for float64 below single precision's error."""


def _precision(tensors: Sequence[torch.Tensor], result: torch.dtype) -> torch.dtype:
    """The precision in which a result is computed; a wide result may have that of its operands."""
    floats = [tensor.dtype for tensor in tensors if tensor.dtype.is_floating_point]
    return floats[0] if floats and result not in floats else result


def _is_close(mine: torch.Tensor, other: torch.Tensor, precision: torch.dtype) -> bool:
    """Compare integers exactly; floats within rounding, and of the same class."""
    if not other.dtype.is_floating_point:
        return torch.equal(mine, other)
    loose = LOOSE.get(precision, 1e-4)
    return torch.allclose(mine.double(), other.double(), loose, loose, equal_nan=True)


def verdicts(chosen: Sequence[int]) -> Iterator[tuple[int, str, str, str]]:
    """(index, situation, element types, verdict) of probes by index, in a separate process."""
    child = subprocess.run(
        [sys.executable, __file__, "--probe"],
        input=json.dumps(list(chosen)), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if child.returncode:
        raise RuntimeError(f"the probing child failed:\n{child.stderr[-2000:]}")
    for line in child.stdout.splitlines():
        if line.startswith("PROBE "):
            index, situation, text, verdict = json.loads(line.removeprefix("PROBE "))
            if verdict.startswith("raised"):
                raise RuntimeError(f"probe {index} {verdict}")
            yield index, situation, text, verdict


def _probe_here() -> None:
    """Probe the list on standard input, in forks: an abort is a verdict."""
    every, chosen = probes(), list(json.loads(sys.stdin.read()))
    runtime()
    for library in kernel_libraries():
        importlib.import_module(library)
    x = torch.ones(2, 3)
    first = Probe(torch.ops.aten.abs.default, "aten::abs.out", (torch.float32,))
    _program(ProbeCall(first, [x], {}, [x], [x]))  # Imports, once for all forks.

    def outcome(index: int) -> tuple[str, ...]:
        try:
            return run_probe(every[index]) or ()
        except Exception as error:  # A fault of the probe, which the parent raises.
            return "", "", f"raised {type(error).__name__}: {error}"

    for index, found in in_forks(chosen, outcome):
        if found is None:
            call = expected(every[index])
            assert call is not None
            found = call.situation, call.text, "aborts"
        if found:
            print("PROBE " + json.dumps([index, *found]))


def is_limit(situation: str, text: str) -> bool:
    """Whether the verdict of a call means that the kernel must not be called in this way.

    Special floats and the largest floats are computed in the kernel's order or with its limits,
    which differ from eager's vectorized code; the stock flow has the same results.
    """
    if situation not in (EXTREME, SPECIAL):
        return True
    return not any(name in text for name in ("f16", "f32", "f64"))


def generate() -> str:
    """Return the text of `kernel_dtypes.json`."""
    every = probes()
    refused: dict[str, dict[str, dict[str, str]]] = {}
    for index, situation, text, verdict in verdicts(range(len(every))):
        kernel = every[index].kernel
        if verdict != "runs" and is_limit(situation, text):
            stated = refused.setdefault(situation, {}).setdefault(kernel, {})
            stated[text] = max(stated.get(text, verdict), verdict, key=SEVERITY.index)
    usual = refused.get("", {})
    for situation, stated in refused.items():  # Types that never run are listed once.
        for kernel, found in stated.items() if situation else ():
            for text in usual.get(kernel, {}).keys() & found.keys():
                del found[text]
    rows = {situation: dict(_rows(stated)) for situation, stated in sorted(refused.items())}
    return as_json({situation: stated for situation, stated in rows.items() if stated})


SEVERITY = ["differs", "fails", "aborts"]


def _rows(stated: dict[str, dict[str, str]]) -> Iterator[tuple[str, dict[str, str]]]:
    """Kernel, and verdict → element types."""
    for kernel, found in sorted(stated.items()):
        by_verdict = {
            verdict: ", ".join(sorted(text for text in found if found[text] == verdict))
            for verdict in sorted(set(found.values()))
        }
        if by_verdict:
            yield kernel, by_verdict


if __name__ == "__main__":
    if "--probe" in sys.argv:
        _probe_here()
    else:
        REFUSALS.write_text(generate(), encoding="utf-8")

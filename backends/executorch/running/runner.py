"""Run a `.pte` on the real ExecuTorch runtime, after checks that the runtime omits.

The runtime copies or borrows input bytes without looking at strides, so that a channels-last
program silently computes wrong numbers on a row-major tensor. Here every input is first checked
against the declared element type, sizes and dim order. An invalid file can kill the process;
`read_container` refuses invalid files.
"""

from __future__ import annotations

import importlib
import re
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stepwell.backends.executorch.container import (
    Container,
    Dynamism,
    KernelCall,
    Method,
    TensorValue,
    Value,
)
from stepwell.backends.executorch.kernels.kernel_tables import library_of
from stepwell.backends.executorch.kernels.scalar_types import torch_dtype
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.running.arm64 import EmulatedProgram, Measured, asked_for
from stepwell.backends.executorch.running.engine import RUNTIME_LOCK, runtime
from stepwell.ir.calls.calling import follows_dim_order, laid_out
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import ArtifactError, InputMismatch, NoEngine, Problem, StepwellError
from stepwell.ir.dtypes import dtype_name, element_type
from stepwell.ir.platform.process_settings import kept_stderr, without_native_lines

_CPU_WAS_LOOKED_AT = threading.Event()


@contextmanager
def _without_cpuinfo() -> Generator[None]:
    """Suppress messages on stderr about an Arm core's number when the first program is loaded."""
    if _CPU_WAS_LOOKED_AT.is_set():
        yield
        return
    with without_native_lines(lambda line: line.startswith(b"[cpuinfo_utils.cpp:")):
        yield
    _CPU_WAS_LOOKED_AT.set()


def _native_reason(repeat: Callable[[], object]) -> str:
    """Return the reason that the runtime logs when a failed call is repeated, after a colon; empty
    if it logs nothing. The runtime logs to Python's standard error, or to the process's.
    """
    native: list[str] = []

    def take(line: bytes) -> bool:
        """Drop what the runtime logs a second time; lines of others are kept."""
        text = line.decode(errors="replace")
        if is_logged := _LOGGED.match(text) is not None:
            native.append(text)
        return is_logged

    with kept_stderr() as kept, without_native_lines(take), suppress(RuntimeError, MemoryError):
        repeat()
    found = _LOGGED.search(kept.getvalue() + "".join(native))
    return f": {found[1]}" if found else ""


_LOGGED = re.compile(r"^\[[\w.]+:\d+\] (.*\S)", re.MULTILINE)


class _Here:
    """A program loaded by this machine's runtime, with the objects that its methods need."""

    def __init__(
        self, pte: bytes | Path, container: Container, external: Path | None, *, profile: bool
    ) -> None:
        engine = runtime()
        told: dict[str, Any] = {} if external is None else {"data_path": external}
        told |= {"enable_etdump": True} if profile else {}
        with RUNTIME_LOCK, _without_cpuinfo():
            self.program = engine.load_program(pte, **told)
            loaded = {m.name: self.program.load_method(m.name) for m in container.methods}
        self.methods = {name: m for name, m in loaded.items() if m is not None}

    def execute(self, method: Method, inputs: Sequence[Any]) -> Sequence[Any]:
        with RUNTIME_LOCK:
            return self.methods[method.name].execute(inputs)


@dataclass
class PteSession:
    """A loaded program, whose buffers keep their values between calls and between methods."""

    container: Container
    _engine: _Here | EmulatedProgram

    @classmethod
    def load(
        cls,
        pte: bytes | Path,
        *,
        external: bytes | Path | None = None,
        profile: bool = False,
        cpu: str | None = None,
        counting: bool = False,
    ) -> PteSession:
        """Load every method of a program.

        Args:
            pte: the program, in memory or as a file that the runtime reads.
            external: the `.ptd` with the program's external data.
            profile: record events for ExecuTorch's Inspector.
            cpu: an Arm64 core to emulate (`arm64.CORES`); None: the one in the environment variable
                `STEPWELL_CPU`, else this machine's CPU.
            counting: count instructions on the emulated core, for `measure`.

        All methods are loaded at once, because loading a method resets shared state.

        Raises:
            ArtifactError: the runtime refuses the program.
            StepwellError: the core is not available on this machine.
        """
        data = pte.read_bytes() if isinstance(pte, Path) else pte
        container = read_container(data)
        core = None if profile and cpu is None else asked_for(cpu, counting=counting)
        libraries = {
            library
            for method in container.methods
            for instruction in method.instructions
            if isinstance(instruction, KernelCall)
            and (library := library_of(instruction.kernel)) is not None
        }
        engine: _Here | EmulatedProgram
        try:
            if core is not None:
                engine = EmulatedProgram(
                    pte, core, external=external, modules=sorted(libraries), counting=counting
                )
                return cls(container, engine)
            with RUNTIME_LOCK:  # What registers kernels is loaded as a program is.
                for library in libraries:
                    importlib.import_module(library)
            with tempfile.TemporaryDirectory() as folder:
                if isinstance(external, bytes):
                    path = Path(folder) / "external.ptd"
                    path.write_bytes(external)
                    external = path
                load = partial(_Here, pte, container, external, profile=profile)
                try:
                    engine = load()
                except RuntimeError as error:
                    fact = f"the runtime refuses the program: {error}{_native_reason(load)}"
                    if "is not registered" in fact:  # ExecuTorch's words for a backend.
                        raise NoEngine(fact) from error
                    raise ArtifactError(fact) from error
        except (RuntimeError, MemoryError) as error:
            raise ArtifactError(f"the runtime refuses the program: {error}") from error
        return cls(container, engine)

    def run(self, *inputs: Any, method: str = "forward") -> tuple[Any, ...]:
        """Call a method with flat inputs; return its flat outputs, which belong to the caller.

        Raises:
            InputMismatch: inputs differ from the declared signature.
            ArtifactError: the runtime fails.
        """
        described, given = self._checked(inputs, method)
        call = partial(self._engine.execute, described, given)
        try:
            return tuple(call())
        except (RuntimeError, MemoryError) as error:
            reason = _native_reason(call) if isinstance(self._engine, _Here) else ""
            raise ArtifactError(f"the runtime fails in method {method}: {error}{reason}") from error

    def call(self, method: str, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Call a method like `run`, with tensors of any strides; written inputs are updated."""
        given = self.laid_out(inputs, method)
        outputs = self.run(*given, method=method)
        described = self.container.method(method)
        declared = [described.values[index] for index in described.inputs]
        for value, taken, held in zip(declared, with_frozen(described, inputs), given, strict=True):
            is_written = isinstance(value, TensorValue) and value.storage is None
            if is_written and held is not taken:
                taken.copy_(held)
        return outputs

    def measure(self, *inputs: Any, method: str = "forward", repeats: int = 1) -> Measured:
        """Call a method on an emulated core; also return the instructions of each call.

        Raises:
            StepwellError: the program was not loaded for an emulated core.
            InputMismatch, ArtifactError: as for `run`.
        """
        if not isinstance(self._engine, EmulatedProgram):
            raise StepwellError(
                "instructions are counted on emulated cores only",
                help="PteSession.load(data, cpu='cortex-a76', counting=True)",
            )
        described, given = self._checked(inputs, method)
        try:
            return self._engine.measure(described, given, repeats)
        except RuntimeError as error:
            raise ArtifactError(f"the runtime fails in method {method}: {error}") from error

    def _checked(self, inputs: Sequence[Any], method: str) -> tuple[Method, list[Any]]:
        described = self.container.method(method)
        given = with_frozen(described, inputs)
        check_inputs(described, given)
        return described, given

    def laid_out(self, inputs: Sequence[Any], method: str = "forward") -> list[Any]:
        """Return the flat inputs with every tensor in the dim order that the method declares.

        Applications pass memory in that order, so `run` refuses any other.
        """
        described = self.container.method(method)
        given = with_frozen(described, inputs)
        declared = [described.values[index] for index in described.inputs]
        if len(given) != len(declared):
            return given
        return [
            laid_out(x, value.dim_order)
            if isinstance(value, TensorValue)
            and isinstance(x, torch.Tensor)
            and x.dim() == len(value.sizes)
            else x
            for x, value in zip(given, declared, strict=True)
        ]

    def write_profile(self, path: Path) -> None:
        """Write the events of all calls so far as an ETDump, if loaded with `profile`."""
        if not isinstance(self._engine, _Here):
            raise StepwellError(
                "an emulated core records no profile",
                help="load the program with profile=True and without cpu=",
            )
        self._engine.program.write_etdump_result_to_file(str(path), str(path) + ".debug")


def run_pte(
    pte: bytes | Path,
    inputs: Sequence[Any],
    method: str = "forward",
    *,
    external: bytes | Path | None = None,
    cpu: str | None = None,
) -> tuple[Any, ...]:
    """Run one method of a program once, from its initial state.

    Args:
        pte: the program's bytes, or its file.
        inputs: flat inputs.
        method: the method's name.
        external: the `.ptd`, if weights are kept separately.
        cpu: an Arm64 core to emulate, in a separate process.
    """
    return PteSession.load(pte, external=external, cpu=cpu).run(*inputs, method=method)


def with_frozen(method: Method, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs; if only tensors were passed, add the constants of exported inputs."""
    tensors = sum(isinstance(method.values[index], TensorValue) for index in method.inputs)
    if len(inputs) != tensors or tensors == len(method.inputs):
        return list(inputs)
    given = iter(inputs)
    declared = (method.values[index] for index in method.inputs)
    return [next(given) if isinstance(value, TensorValue) else value for value in declared]


def check_inputs(method: Method, inputs: Sequence[Any]) -> None:
    """Raise `InputMismatch` with every difference between inputs and a method's signature."""
    if len(inputs) != len(method.inputs):
        raise InputMismatch(
            f"{len(inputs)} inputs given, {len(method.inputs)} needed", f"method {method.name}"
        )
    problems: list[Problem] = []
    for position, (index, given) in enumerate(zip(method.inputs, inputs, strict=True)):
        for fact in _input_faults(method.values[index], given):
            remedy = _remedy(method.values[index], given)
            problems.append(Problem(fact, f"method {method.name}, input {position}", remedy))
    if problems:
        raise InputMismatch(problems)


def _remedy(declared: Value, given: Any) -> str | None:
    """Return code that converts a tensor with another memory layout."""
    if not isinstance(declared, TensorValue) or not isinstance(given, torch.Tensor):
        return None
    if given.dim() != len(declared.sizes) or follows_dim_order(given, declared.dim_order):
        return None
    is_last = declared.dim_order == (0, 2, 3, 1)
    return f"pass x.{'to(memory_format=torch.channels_last)' if is_last else 'contiguous()'}"


def _input_faults(declared: Value, given: Any) -> list[str]:
    if not isinstance(declared, TensorValue):
        if isinstance(given, torch.Tensor):
            return [f"a value of type {type(declared).__name__} is needed, not a tensor"]
        if type(given) is not type(declared) or repr(given) != repr(declared):  # NaN is NaN.
            return [f"the program was made for {declared!r} here, not {given!r}"]
        return []
    if not isinstance(given, torch.Tensor):
        return [f"a tensor is needed, not {type(given).__name__}"]
    facts: list[str] = []
    wanted = torch_dtype(declared.scalar_type)
    if given.dtype != wanted:
        held, needed = (dtype_name(element_type(dtype)) for dtype in (given.dtype, wanted))
        facts.append(f"dtype is {held}, the program takes {needed}")
    if given.device.type != "cpu":
        facts.append(f"the tensor is on {given.device}, the runtime takes CPU tensors")
    if given.dim() != len(declared.sizes):
        return [*facts, f"rank is {given.dim()}, the program takes {len(declared.sizes)}"]
    for axis, (size, most) in enumerate(zip(given.shape, declared.sizes, strict=True)):
        if declared.dynamism is Dynamism.STATIC and size != most:
            facts.append(f"dimension {axis} is {size}, must be {most}")
        elif declared.dynamism is Dynamism.BOUNDED and size > most:
            facts.append(f"dimension {axis} is {size}, may be at most {most}")
    if not facts and not follows_dim_order(given, declared.dim_order):
        facts.append(
            f"strides {tuple(given.stride())} do not follow the declared "
            f"dim order {declared.dim_order}"
        )
    return facts

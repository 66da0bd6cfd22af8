"""Runs a `.pte` on the real ExecuTorch runtime, after checking what the runtime does not.

The runtime copies or borrows input bytes without looking at strides, so a channels-last program
given a row-major tensor computes rubbish in silence; here every input is checked against the
declared element type, sizes and dim order first. A file that is not sound can kill the process:
`read_container` refuses what it can see, and `in_child` isolates the rest.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from stepwell.backends.executorch.container import (
    Container,
    Dynamism,
    KernelCall,
    Method,
    ScalarType,
    TensorValue,
    Value,
)
from stepwell.backends.executorch.kernel_tables import load_library_of
from stepwell.backends.executorch.read import read_container
from stepwell.ir.calling import follows_dim_order, laid_out
from stepwell.ir.diagnostics import ArtefactError, InputMismatch, Problem, StepwellError
from stepwell.ir.dtypes import dtype_name, element_type
from stepwell.ir.switches import quiet_imports, without_native_lines

if TYPE_CHECKING:
    from executorch import runtime as et

_TORCH_DTYPE: dict[ScalarType, torch.dtype] = {
    ScalarType.BYTE: torch.uint8,
    ScalarType.CHAR: torch.int8,
    ScalarType.SHORT: torch.int16,
    ScalarType.INT: torch.int32,
    ScalarType.LONG: torch.int64,
    ScalarType.HALF: torch.float16,
    ScalarType.FLOAT: torch.float32,
    ScalarType.DOUBLE: torch.float64,
    ScalarType.BOOL: torch.bool,
    ScalarType.BFLOAT16: torch.bfloat16,
    ScalarType.FLOAT8E5M2: torch.float8_e5m2,
    ScalarType.FLOAT8E4M3FN: torch.float8_e4m3fn,
    ScalarType.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
    ScalarType.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    ScalarType.UINT16: torch.uint16,
    ScalarType.UINT32: torch.uint32,
    ScalarType.UINT64: torch.uint64,
}
_CPU_WAS_LOOKED_AT = threading.Event()


@contextmanager
def _without_cpuinfo() -> Generator[None]:
    """The first load in a process says on stderr how it looks for an ARM core's number."""
    if _CPU_WAS_LOOKED_AT.is_set():
        yield
        return
    with without_native_lines(lambda line: line.startswith(b"[cpuinfo_utils.cpp:")):
        yield
    _CPU_WAS_LOOKED_AT.set()


_SCALAR_TYPE = {dtype: scalar_type for scalar_type, dtype in _TORCH_DTYPE.items()}


def torch_dtype(scalar_type: ScalarType) -> torch.dtype:
    """The torch dtype of an ExecuTorch element type."""
    try:
        return _TORCH_DTYPE[scalar_type]
    except KeyError:
        raise StepwellError(f"element type {scalar_type.name} has no torch dtype") from None


def is_scalar_type(dtype: torch.dtype) -> bool:
    """Whether ExecuTorch has a torch dtype: it has no complex ones."""
    return dtype in _SCALAR_TYPE


def scalar_type(dtype: torch.dtype) -> ScalarType:
    """The ExecuTorch element type of a torch dtype."""
    try:
        return _SCALAR_TYPE[dtype]
    except KeyError:
        raise StepwellError(
            f"dtype {dtype} has no ExecuTorch element type",
            help="convert the tensor to one of " + ", ".join(str(d) for d in _SCALAR_TYPE),
        ) from None


@dataclass
class PteSession:
    """A loaded program; buffers keep their values between calls and between methods."""

    container: Container
    _program: et.Program
    _methods: dict[str, et.Method]

    @classmethod
    def load(
        cls, pte: bytes | Path, *, external: bytes | Path | None = None, profile: bool = False
    ) -> PteSession:
        """Load every method of a program.

        Args:
            pte: the program, in memory or as a file the runtime reads itself.
            external: the `.ptd` with its external data.
            profile: record events for ExecuTorch's Inspector.

        All methods are loaded at once because loading one resets the state it shares.

        Raises:
            ArtefactError: the runtime refuses the program.

        """
        data = pte.read_bytes() if isinstance(pte, Path) else pte
        container = read_container(data)
        with quiet_imports():
            from executorch.runtime import Runtime

        for kernel in {
            instruction.kernel
            for method in container.methods
            for instruction in method.instructions
            if isinstance(instruction, KernelCall)
        }:
            load_library_of(kernel)

        with tempfile.TemporaryDirectory() as folder:
            if isinstance(external, bytes):
                path = Path(folder) / "external.ptd"
                path.write_bytes(external)
                external = path
            try:
                with _without_cpuinfo():
                    program = Runtime.get().load_program(
                        pte, data_path=external, enable_etdump=profile
                    )
                    loaded = {m.name: program.load_method(m.name) for m in container.methods}
            except (RuntimeError, MemoryError) as error:
                raise ArtefactError(f"the runtime refuses the program: {error}") from error
        return cls(container, program, {name: m for name, m in loaded.items() if m is not None})

    def run(self, *inputs: Any, method: str = "forward") -> tuple[Any, ...]:
        """Call a method with flat inputs; gives its flat outputs, which are the caller's own.

        Raises:
            InputMismatch: inputs differ from the declared signature.
            ArtefactError: the runtime fails.

        """
        described = self.container.method(method)
        if described is None:
            raise StepwellError(
                f"there is no method {method!r}",
                help="methods are " + ", ".join(m.name for m in self.container.methods),
            )
        given = with_frozen(described, inputs)
        check_inputs(described, given)
        try:
            return tuple(self._methods[method].execute(given))
        except (RuntimeError, MemoryError) as error:
            raise ArtefactError(f"the runtime fails in method {method}: {error}") from error

    def laid_out(self, inputs: Sequence[Any], method: str = "forward") -> list[Any]:
        """The flat inputs with every tensor in the dim order that the method declares.

        An application hands over memory in that order; `run` therefore refuses any other.
        """
        described = self.container.method(method)
        if described is None:
            return list(inputs)
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
        self._program.write_etdump_result_to_file(str(path), str(path) + ".debug")


def run_pte(
    pte: bytes | Path,
    inputs: Sequence[Any],
    method: str = "forward",
    *,
    external: bytes | Path | None = None,
    in_child: bool = False,
    timeout: float = 300.0,
) -> tuple[Any, ...]:
    """Run one method of a program once, from its initial state.

    Args:
        pte: the program's bytes, or its file.
        inputs: flat inputs.
        method: the method's name.
        external: the `.ptd`, if weights are kept separately.
        in_child: run in a process of its own, so that a crash becomes an `ArtefactError`.
        timeout: seconds that the child may take.

    """
    if not in_child:
        return PteSession.load(pte, external=external).run(*inputs, method=method)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _put(folder / "program.pte", pte)
        if external is not None:
            _put(folder / "external.ptd", external)
        torch.save({"inputs": list(inputs), "method": method}, folder / "inputs.pt")
        command = [sys.executable, "-m", "stepwell.backends.executorch.run_child", name]
        try:
            done = subprocess.run(command, capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            raise ArtefactError(f"the runtime did not finish within {timeout:g} s") from None
        answer = folder / "outputs.pt"
        if done.returncode < 0:
            raise ArtefactError(
                f"the runtime's process was killed by {signal.Signals(-done.returncode).name}"
            )
        if not answer.exists():
            raise ArtefactError(f"the runtime's process failed: {_tail(done.stderr)}")
        outcome = cast(dict[str, Any], torch.load(answer, weights_only=True))
        if "outputs" not in outcome:
            kind = InputMismatch if outcome["kind"] == "InputMismatch" else ArtefactError
            raise kind(outcome["error"])
        return tuple(outcome["outputs"])


def _put(path: Path, data: bytes | Path) -> None:
    path.write_bytes(data if isinstance(data, bytes) else data.read_bytes())


def _tail(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def with_frozen(method: Method, inputs: Sequence[Any]) -> list[Any]:
    """The inputs, with the values the program was made for where only tensors were given."""
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
    """What a caller writes for a tensor that lies in memory in another way."""
    if not isinstance(declared, TensorValue) or not isinstance(given, torch.Tensor):
        return None
    if given.dim() != len(declared.sizes) or follows_dim_order(given, declared.dim_order):
        return None
    is_last = declared.dim_order == (0, 2, 3, 1)
    return f"pass x.{'to(memory_format=torch.channels_last)' if is_last else 'contiguous()'}"


def _input_faults(declared: Value, given: Any) -> list[str]:
    if not isinstance(declared, TensorValue):
        if isinstance(given, torch.Tensor):
            return [f"a {type(declared).__name__} is needed, not a tensor"]
        if type(given) is not type(declared) or given != declared:
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

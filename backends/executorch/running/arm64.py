"""Run programs on an emulated Arm64 core: ExecuTorch's own runtime for aarch64 under qemu.

`make arm64` installs the runtime, an emulator and the runner (`tools/arm64`) in a folder. This
module starts that runner once for each core. The runner forks a process for each program, with the
protocol of `tools/arm64/runner.cpp`.
Results equal an Arm core's; times do not, but instructions can be counted.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from stepwell.backends.executorch.container import Method, ScalarType, TensorValue
from stepwell.backends.executorch.kernels.scalar_types import scalar_type, torch_dtype
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import ArtifactError, StepwellError

VARIABLE = "STEPWELL_CPU"
"""The environment variable that names the core for every `.pte` without an explicit core."""
FOLDER = "STEPWELL_ARM64"
"""The environment variable for a folder other than the user's cache."""
COUNTED = "counts"
MADE = "version.txt"
FIRST = "first.pte"
"""A program with common kernels, run once so that the emulator translates their code once."""
VERSION = "6"
"""The version of the folder and of its runner's protocol (`tools/arm64`); others are replaced."""
Counts = Mapping[int, int]
"""The number of executions of each instruction word."""
_LIBRARIES = MappingProxyType(
    {"executorch.extension.llm.custom_ops.custom_ops": "libcustom_ops_aot_lib.so"}
)
"""Python modules that register kernels, and the wheel's library that each loads; the kernels of
other modules are in the runner."""


@dataclass(frozen=True)
class Core:
    """A core: the emulator's name for it, and its features for XNNPACK.

    Attributes:
        name: Arm's name of the core.
        has: the features beyond Armv8.0 that kernels query.
        counted_as: the equivalent for the older emulator that counts instructions.
    """

    name: str
    has: tuple[str, ...]
    counted_as: str


CORES = {
    core.name: core
    for core in (
        Core("cortex-a53", (), "cortex-a53"),
        Core("cortex-a55", ("half", "dot"), "cortex-a76"),
        Core("cortex-a72", (), "cortex-a72"),
        Core("cortex-a76", ("half", "dot"), "cortex-a76"),
        Core("cortex-a710", ("half", "dot", "i8mm", "bf16", "sve2"), "max,sve128=on,sme=off"),
        Core("neoverse-v1", ("half", "dot", "i8mm", "bf16", "sve"), "max,sve256=on,sme=off"),
        Core("max", ("half", "dot", "i8mm", "bf16", "sve2", "sme"), "max"),
    )
}


SET_UP = "once, in a clone of stepwell: make arm64 (docs/arm64.md)"
"""The advice where the emulator is missing; an installed wheel has no Makefile."""


def folder() -> Path:
    """Return the folder in which `make arm64` installs everything."""
    if given := os.environ.get(FOLDER):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "stepwell" / "arm64"


def version() -> str:
    """Return the version that `make arm64`'s folder must state: stepwell's of the runner, and that
    of the installed executorch.
    """
    return f"{VERSION} {importlib.metadata.version('executorch')}"


def missing(cpu: str = "cortex-a76", *, counting: bool = False) -> str | None:
    """Return why a program cannot run on an emulated core here; None if it can."""
    if cpu not in CORES:
        return f"{cpu} is none of the cores {', '.join(CORES)}"
    here = folder()
    if not (here / "runner").exists():
        why = here / "missing.txt"
        return why.read_text().strip() if why.exists() else "no emulator is set up"
    made = here / MADE
    if not made.exists() or made.read_text() != version():
        return "its folder is of another version of stepwell or executorch"
    if counting and not (here / "count.so").exists():
        return "no plug-in counts instructions here: it needs a C compiler and qemu 7"
    if not counting and cpu not in (here / "cores.txt").read_text().split():
        return f"the emulators here do not know {cpu}"
    return None


def asked_for(cpu: str | None, *, counting: bool = False) -> str | None:
    """Return the requested core, explicit or from the environment; None for this machine.

    Raises:
        StepwellError: the core is not available here.
    """
    name = cpu or os.environ.get(VARIABLE) or None
    if name is not None and (why := missing(name, counting=counting)) is not None:
        raise StepwellError(
            f"programs cannot run on {name} here: {why}",
            help=SET_UP if name in CORES else None,
        )
    return name


class EmulatedProgram:
    """A loaded program in a separate process, on a core.

    Args:
        pte: the program, as bytes or as a file.
        cpu: the core's name.
        external: the program's `.ptd`, if it has one.
        modules: Python modules that register further kernels.
        counting: count the instructions of measured calls.

    Raises:
        ArtifactError: the runtime refuses the program.
    """

    def __init__(
        self,
        pte: bytes | Path,
        cpu: str,
        *,
        external: bytes | Path | None = None,
        modules: Sequence[str] = (),
        counting: bool = False,
    ) -> None:
        self.cpu = cpu
        self._folder = Path(tempfile.mkdtemp(prefix="stepwell-"))
        self._counts = self._folder / COUNTED if counting else None
        libraries = tuple(_LIBRARIES[module] for module in modules if module in _LIBRARIES)
        data = () if external is None else ("--data", self._file("external.ptd", external))
        errors = self._folder / "errors"
        errors.touch()
        self._process = _started(
            *(cpu, libraries, self._counts),
            [*map(str, data), str(self._file("program.pte", pte))],
            errors,
        )
        self._close = weakref.finalize(self, _end, self._process, self._folder)
        self._answer("the program cannot be loaded")

    def _file(self, name: str, data: bytes | Path) -> Path:
        if isinstance(data, Path):
            return data.resolve()
        path = self._folder / name
        path.write_bytes(data)
        return path

    def execute(self, method: Method, inputs: Sequence[Any]) -> list[Any]:
        """Call a method once with these inputs.

        Raises:
            RuntimeError: the runtime fails.
            ArtifactError: the process died.
        """
        return self._call(method, inputs, 0)[0]

    def measure(self, method: Method, inputs: Sequence[Any], repeats: int = 1) -> Measured:
        """Call a method several times with the same inputs; return measurements of each call."""
        before = len(self.counts())
        outputs, times = self._call(method, inputs, repeats)
        return Measured(outputs, times, self.counts()[before:])

    @property
    def process(self) -> int:
        """Return the id of the process on this machine."""
        return self._process.number

    def counts(self) -> list[Counts]:
        """Return the executions of each instruction word, for every measured call so far."""
        if self._counts is None or not self._counts.exists():
            return []
        return list(read_counts(self._counts.read_bytes()))

    def close(self) -> None:
        """End the emulator's process."""
        self._close()

    def _call(
        self, method: Method, inputs: Sequence[Any], repeats: int
    ) -> tuple[list[Any], list[int]]:
        request = [struct.pack("<I", repeats), _text(method.name), struct.pack("<I", len(inputs))]
        for index, given in zip(method.inputs, inputs, strict=True):
            declared = method.values[index]
            order = declared.dim_order if isinstance(declared, TensorValue) else ()
            request.append(_packed(given, order))
        written = method.written_inputs
        request.append(struct.pack(f"<{len(written) + 1}I", len(written), *written))
        stdin, stdout = self._process.calls, self._process.answers
        try:
            stdin.write(b"".join(request))
            stdin.flush()
        except BrokenPipeError:
            pass  # The cause of its death is reported where its answer is read.
        self._answer(f"method {method.name}")
        outputs = [_read_value(stdout) for _ in range(_read(stdout, "<I"))]
        times = [_read(stdout, "<Q") for _ in range(_read(stdout, "<I"))]
        for place in written:
            inputs[place].copy_(_read_value(stdout))
        return outputs, times

    def _answer(self, doing: str) -> None:
        """Raise the error in the runner's answer, if any."""
        stdout = self._process.answers
        code = stdout.read(4)
        if len(code) < 4:
            died = self._process.ended()
            how = f"killed by {_signal(-died)}" if died < 0 else f"ended with {died}"
            raise ArtifactError(f"{doing}: the emulated process {how}: {self._said()}")
        if int.from_bytes(code, "little"):
            raise RuntimeError(f"{stdout.read(_read(stdout, '<I')).decode()}: {self._said()}")

    def _said(self) -> str:
        said = (self._folder / "errors").read_text(errors="replace")
        return "; ".join(said.strip().splitlines()[-3:]) or "it said nothing"


@dataclass(frozen=True)
class Measured:
    """Calls of a program with their measured times.

    Attributes:
        outputs: the outputs of the last call.
        nanoseconds: the time of each call, which is meaningful on a device only.
        counts: executions of each instruction word, for each call, if they were counted.
    """

    outputs: list[Any]
    nanoseconds: list[int]
    counts: list[Counts]

    @property
    def instructions(self) -> int:
        """Return the number of instructions of the last call; the first call fills caches."""
        return sum(self.counts[-1].values())


@dataclass(frozen=True)
class _Process:
    """A process that runs one program, and its pipes."""

    server: _Server
    number: int
    calls: IO[bytes]
    answers: IO[bytes]

    def ended(self) -> int:
        """Return the exit status, as `Popen.returncode`."""
        return os.waitstatus_to_exitcode(self.server.ask(struct.pack("<BI", 2, self.number), "<i"))


class _Server:
    """A persistent runner on a core: each program runs in a fork of it.

    The emulator starts, the runtime's libraries load and their code is translated only once.
    """

    def __init__(self, cpu: str, libraries: Sequence[str], counts: Path | None) -> None:
        loaded = [
            word for name in libraries for word in ("--library", str(folder() / "lib" / name))
        ]
        self._runner = subprocess.Popen(
            [*command(cpu, counts), *loaded, "--serve", str(folder() / FIRST)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._turn = threading.Lock()
        self._close = weakref.finalize(self, _close, self._runner)

    @property
    def is_alive(self) -> bool:
        """Whether the runner still answers."""
        return self._runner.poll() is None

    def start(self, arguments: Sequence[str], errors: Path) -> _Process:
        """Run a program in a fork of the runner."""
        theirs, calls = os.pipe()
        answers, ours = os.pipe()
        here = f"/proc/{os.getpid()}/fd"
        pipes = (f"{here}/{theirs}", f"{here}/{ours}", str(errors))
        request = [b"\x01", *map(_text, pipes), struct.pack("<I", len(arguments))]
        try:
            number = self.ask(b"".join([*request, *map(_text, arguments)]), "<I")
        finally:
            os.close(theirs)
            os.close(ours)
        return _Process(self, number, os.fdopen(calls, "wb"), os.fdopen(answers, "rb"))

    def ask(self, request: bytes, form: str) -> int:
        """Send a request to the runner, and return its answer."""
        assert self._runner.stdin is not None
        assert self._runner.stdout is not None
        try:
            with self._turn:
                self._runner.stdin.write(request)
                self._runner.stdin.flush()
                return _read(self._runner.stdout, form)
        except (BrokenPipeError, struct.error):
            raise ArtifactError(
                f"the emulated runner ended with {self._runner.wait()}", help=SET_UP
            ) from None


def _started(
    cpu: str,
    libraries: tuple[str, ...],
    counts: Path | None,
    arguments: Sequence[str],
    errors: Path,
) -> _Process:
    """Start a process for a program, on a shared server; with counting, on its own server."""
    if counts is not None:
        return _Server(cpu, libraries, counts).start(arguments, errors)
    where = (cpu, libraries, folder(), os.getpid())
    if not _server(*where).is_alive:
        _server.cache_clear()
    return _server(*where).start(arguments, errors)


@functools.cache
def _server(cpu: str, libraries: tuple[str, ...], where: Path, process: int) -> _Server:
    """Return the shared server of this process; `where` and `process` are part of the cache key."""
    return _Server(cpu, libraries, None)


def command(cpu: str, counts: Path | None = None) -> list[str]:
    """Return the command that starts the runner on a core, optionally counting instructions to a
    file.
    """
    here = folder()
    libraries = {"LD_LIBRARY_PATH": str(here / "lib")}
    return emulated(cpu, here / "root", libraries, [str(here / "runner")], counts)


def emulated(
    cpu: str,
    root: Path,
    environment: Mapping[str, str],
    program: Sequence[str],
    counts: Path | None = None,
) -> list[str]:
    """Return the command that starts a program on a core.

    Args:
        cpu: the core's name.
        root: the folder that contains the program's loader and libraries as under `/`.
        environment: environment variables in addition to those of this process.
        program: the program's path and first arguments.
        counts: a file to which instruction counts are written.
    """
    here = folder()
    emulator, core, counting = cpu, cpu, list[str]()
    if counts is not None:
        emulator, core = "counting", CORES[cpu].counted_as
        counting = ["-plugin", f"{here / 'count.so'},to={counts}"]
    variables = [word for pair in environment.items() for word in ("-E", "=".join(pair))]
    start = [str(here / "emulators" / emulator), "-L", str(root), *variables, "-cpu", core]
    return [*start, *counting, *program]


def read_counts(data: bytes) -> Iterator[Counts]:
    """Read the output of `tools/arm64/count.c`."""
    at = 0
    while at < len(data):
        (number,) = struct.unpack_from("<I", data, at)
        entries = struct.iter_unpack("<IQ", data[at + 4 : at + 4 + 12 * number])
        yield dict(entries)
        at += 4 + 12 * number


def _signal(number: int) -> str:
    """Return the signal's name; real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _end(process: _Process, where: Path) -> None:
    """Close the pipes, so that the process ends, and its server if nothing else uses it."""
    for pipe in (process.calls, process.answers):
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    shutil.rmtree(where, ignore_errors=True)


def _close(runner: subprocess.Popen[bytes]) -> None:
    """Stop a server; this is fast, since its programs are separate processes."""
    for pipe in (runner.stdin, runner.stdout):
        assert pipe is not None
        pipe.close()
    try:
        runner.wait(timeout=5)
    except subprocess.TimeoutExpired:
        runner.kill()
        runner.wait()


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data


def _packed(value: Any, order: Sequence[int]) -> bytes:
    match value:
        case None:
            return b"\x00"
        case torch.Tensor():
            return _packed_tensor(value, order)
        case bool():
            return struct.pack("<BB", 4, value)
        case int():
            return struct.pack("<Bq", 2, value)
        case float():
            return struct.pack("<Bd", 3, value)
        case str():
            return b"\x00"  # The runtime keeps the text with which the program was created.
        case _:
            raise StepwellError(
                f"a value of type {type(value).__name__} cannot be passed to a program"
            )


def _packed_tensor(value: torch.Tensor, order: Sequence[int]) -> bytes:
    data = value.permute(tuple(order)).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    head = struct.pack("<BBB", 1, scalar_type(value.dtype), value.dim())
    sizes = struct.pack(f"<{value.dim()}I", *value.shape)
    return head + sizes + bytes(order) + struct.pack("<Q", len(data)) + data


def _read(stream: IO[bytes], form: str) -> int:
    return struct.unpack(form, stream.read(struct.calcsize(form)))[0]


def _read_value(stream: IO[bytes]) -> Any:
    readers: dict[int, Callable[[], Any]] = {
        0: lambda: None,
        1: lambda: _read_tensor(stream),
        2: lambda: _read(stream, "<q"),
        3: lambda: _read(stream, "<d"),
        4: lambda: bool(_read(stream, "<B")),
        5: lambda: stream.read(_read(stream, "<I")).decode(),
    }
    return readers[_read(stream, "<B")]()


def _read_tensor(stream: IO[bytes]) -> torch.Tensor:
    dtype = torch_dtype(ScalarType(_read(stream, "<B")))
    rank = _read(stream, "<B")
    sizes = [_read(stream, "<I") for _ in range(rank)]
    order = tuple(stream.read(rank))
    data = bytearray(stream.read(_read(stream, "<Q")))
    if not data:
        return torch.empty(sizes, dtype=dtype)
    dense = torch.frombuffer(data, dtype=dtype).reshape([sizes[axis] for axis in order])
    return dense.permute([order.index(axis) for axis in range(rank)])

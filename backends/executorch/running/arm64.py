"""Programs on an emulated Arm64 core: ExecuTorch's own runtime for aarch64 under qemu.

`make arm64` puts the runtime, an emulator and the runner (`tools/arm64`) into a folder; here that
runner is started once a core, forks a process for each program, and is spoken to as
`tools/arm64/runner.cpp` says.
Results are an Arm's; how long it takes is not, but instructions can be counted.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
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

import torch

from stepwell.backends.executorch.container import Method, ScalarType, TensorValue
from stepwell.backends.executorch.kernels.scalar_types import scalar_type, torch_dtype
from stepwell.ir.diagnostics import ArtifactError, StepwellError

VARIABLE = "STEPWELL_CPU"
"""The environment variable that names the core every `.pte` runs on where none is asked for."""
FOLDER = "STEPWELL_ARM64"
"""The one that names another folder than the user's cache."""
COUNTED = "counts"
MADE = "version.txt"
FIRST = "first.pte"
"""A program that has a little of what most have: what runs it is translated once for all."""
VERSION = "6"
"""Of the folder, and of how its runner is spoken to (`tools/arm64`): another is made anew."""
Counts = Mapping[int, int]
"""How often each instruction word ran."""
_LIBRARIES = MappingProxyType(
    {"executorch.extension.llm.custom_ops.custom_ops": "libcustom_ops_aot_lib.so"}
)
"""Python's modules that register kernels, and the library of the wheel that each loads; those of
other modules are in the runner."""


@dataclass(frozen=True)
class Core:
    """A core to be: what an emulator calls it, and what XNNPACK finds there.

    Attributes:
        name: as Arm names it.
        has: the instructions beyond Armv8.0 that kernels ask for.
        counted_as: what the emulator that counts instructions, an older one, is told.

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


def folder() -> Path:
    """Where `make arm64` puts everything."""
    if given := os.environ.get(FOLDER):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "stepwell" / "arm64"


def version() -> str:
    """What the folder has to be: made by this stepwell, of the executorch that is installed."""
    return f"{VERSION} {importlib.metadata.version('executorch')}"


def missing(cpu: str = "cortex-a76", *, counting: bool = False) -> str | None:
    """Why a program cannot run on a core here; None if it can."""
    if cpu not in CORES:
        return f"{cpu} is none of the cores {', '.join(CORES)}"
    here = folder()
    if not (here / "runner").exists():
        why = here / "missing.txt"
        return why.read_text().strip() if why.exists() else "make arm64 has not been run"
    made = here / MADE
    if not made.exists() or made.read_text() != version():
        return "what is in its folder is of another version of stepwell or executorch"
    if counting and not (here / "count.so").exists():
        return "no plug-in counts instructions here: it takes a C compiler and qemu 7"
    if not counting and cpu not in (here / "cores.txt").read_text().split():
        return f"the emulators here do not know {cpu}"
    return None


def asked_for(cpu: str | None, *, counting: bool = False) -> str | None:
    """The core that a program is to run on, named or by the environment; None for this machine's.

    Raises:
        StepwellError: it cannot be had here.

    """
    name = cpu or os.environ.get(VARIABLE) or None
    if name is not None and (why := missing(name, counting=counting)) is not None:
        raise StepwellError(
            f"no program runs on {name} here: {why}",
            help="make arm64" if name in CORES else None,
        )
    return name


class EmulatedProgram:
    """A loaded program in a process of its own, on a core.

    Args:
        pte: the program, as bytes or as a file.
        cpu: the core's name.
        external: its `.ptd`, if it has one.
        modules: Python's names of what registers further kernels.
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
        """Call a method once with what it takes.

        Raises:
            RuntimeError: the runtime fails.
            ArtifactError: its process died.
        """
        return self._call(method, inputs, 0)[0]

    def measure(self, method: Method, inputs: Sequence[Any], repeats: int = 1) -> Measured:
        """Call a method several times with the same inputs; what each call took."""
        before = len(self.counts())
        outputs, times = self._call(method, inputs, repeats)
        return Measured(outputs, times, self.counts()[before:])

    @property
    def process(self) -> int:
        """The number of its process on this machine."""
        return self._process.number

    def counts(self) -> list[Counts]:
        """Executions of each instruction word, of every measured call so far."""
        if self._counts is None or not self._counts.exists():
            return []
        return list(read_counts(self._counts.read_bytes()))

    def close(self) -> None:
        """End the process."""
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
            pass  # What it died of is said where its answer is read.
        self._answer(f"method {method.name}")
        outputs = [_read_value(stdout) for _ in range(_read(stdout, "<I"))]
        times = [_read(stdout, "<Q") for _ in range(_read(stdout, "<I"))]
        for place in written:
            inputs[place].copy_(_read_value(stdout))
        return outputs, times

    def _answer(self, doing: str) -> None:
        """Raise what the runner's answer says is wrong."""
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
    """Calls that were measured.

    Attributes:
        outputs: of the last.
        nanoseconds: that each took, which mean something on a device alone.
        counts: executions of each instruction word, for each call, if they were counted.

    """

    outputs: list[Any]
    nanoseconds: list[int]
    counts: list[Counts]

    @property
    def instructions(self) -> int:
        """Of the last call: the first fills caches."""
        return sum(self.counts[-1].values())


@dataclass(frozen=True)
class _Process:
    """A process that runs one program, and what it is spoken to by."""

    server: _Server
    number: int
    calls: IO[bytes]
    answers: IO[bytes]

    def ended(self) -> int:
        """How it ended, as `Popen.returncode` says."""
        return os.waitstatus_to_exitcode(self.server.ask(struct.pack("<BI", 2, self.number), "<i"))


class _Server:
    """A runner that stays, on a core: each program runs in a fork of it.

    So the emulator starts, the runtime's libraries load and their code is translated once.
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
        """Whether it still answers."""
        return self._runner.poll() is None

    def start(self, arguments: Sequence[str], errors: Path) -> _Process:
        """Run a program in a fork."""
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
        """The answer to a request."""
        assert self._runner.stdin is not None
        assert self._runner.stdout is not None
        try:
            with self._turn:
                self._runner.stdin.write(request)
                self._runner.stdin.flush()
                return _read(self._runner.stdout, form)
        except (BrokenPipeError, struct.error):
            raise ArtifactError(
                f"the emulated runner ended with {self._runner.wait()}", help="make arm64"
            ) from None


def _started(
    cpu: str,
    libraries: tuple[str, ...],
    counts: Path | None,
    arguments: Sequence[str],
    errors: Path,
) -> _Process:
    """A process for a program, of a server that others may have; of its own where it counts."""
    if counts is not None:
        return _Server(cpu, libraries, counts).start(arguments, errors)
    where = (cpu, libraries, folder(), os.getpid())
    if not _server(*where).is_alive:
        _server.cache_clear()
    return _server(*where).start(arguments, errors)


@functools.cache
def _server(cpu: str, libraries: tuple[str, ...], where: Path, process: int) -> _Server:
    """The one of a process, as long as it lives: `where` and `process` are what it is one of."""
    return _Server(cpu, libraries, None)


def command(cpu: str, counts: Path | None = None) -> list[str]:
    """What starts the runner on a core; with instructions counted into a file."""
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
    """What starts a program on a core.

    Args:
        cpu: the core's name.
        root: a folder in which its loader and libraries lie as they do under `/`.
        environment: variables that it has besides this process's own.
        program: its path and its first arguments.
        counts: a file into which instructions are counted.
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
    """What `tools/arm64/count.c` wrote."""
    at = 0
    while at < len(data):
        (number,) = struct.unpack_from("<I", data, at)
        entries = struct.iter_unpack("<IQ", data[at + 4 : at + 4 + 12 * number])
        yield dict(entries)
        at += 4 + 12 * number


def _signal(number: int) -> str:
    """Its name; those of real time have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _end(process: _Process, where: Path) -> None:
    """Without calls a process ends, and its server when it is nobody's."""
    import contextlib
    import shutil

    for pipe in (process.calls, process.answers):
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    shutil.rmtree(where, ignore_errors=True)


def _close(runner: subprocess.Popen[bytes]) -> None:
    """End a server, which takes no time: its programs are processes of their own."""
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
            return b"\x00"  # The runtime keeps the text that the program was made with.
        case _:
            raise StepwellError(f"a {type(value).__name__} cannot be handed to a program")


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

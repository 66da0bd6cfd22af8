"""Run a `.pte` in another process: a wrong file may end the process that runs it.

One server imports the runtime. Each program runs in a fork of the server, in which it is loaded
once; its calls follow one another, so that buffers and sizes of earlier calls remain.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stepwell.backends.executorch.container import Container, Delegate, KernelCall, TensorValue
from stepwell.backends.executorch.kernels.kernel_tables import library_of
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.running.engine import runtime
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.ir.diagnostics import InputMismatch, StepwellError, UnsupportedError


@dataclass(frozen=True)
class Failure:
    """Why a call has no outputs.

    Attributes:
        fact: what the runtime says, or how its process ended.
        unsupported: whether this machine cannot run the program: a backend or kernel is missing.
        refused: whether the program declares that it does not take these inputs.
    """

    fact: str
    unsupported: bool = False
    refused: bool = False


@dataclass(frozen=True)
class EngineCall:
    """A call of a loaded program."""

    method: str
    inputs: tuple[Any, ...]


Outputs = tuple[Any, ...]


def run_calls(
    pte: bytes, calls: Sequence[EngineCall], external: bytes | None = None
) -> list[Outputs | Failure]:
    """Load a program once, and call it several times; after a call that ends the process, load it
    again.

    Args:
        pte: the program.
        calls: the calls, in order.
        external: the program's `.ptd`, if it has one.

    Returns:
        The outputs of each call and the inputs that it wrote, in order, or why it has none.
    """
    results: list[Outputs | Failure] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.pte"
        path.write_bytes(pte)
        data = None if external is None else Path(folder) / "program.ptd"
        if data is not None and external is not None:
            data.write_bytes(external)
        while len(results) < len(calls):
            results += _run(path, data, calls[len(results) :])
    return results


@dataclass
class _Server:
    """The process that has imported the runtime, and what it asks and answers by."""

    process: subprocess.Popen[bytes]
    requests: IO[bytes]
    answers: IO[bytes]


_LOCK = threading.Lock()
_SERVERS: list[_Server] = []
"""The process that runs, if any; one that did not answer completely is ended."""


def _run(path: Path, external: Path | None, calls: Sequence[EngineCall]) -> list[Outputs | Failure]:
    """Return the results of calls, until one ends the process."""
    with _LOCK:
        server = _SERVERS.pop() if _SERVERS else _started()
        found: list[Outputs | Failure] = []
        try:
            pickle.dump((path, external, list(calls)), server.requests)
            server.requests.flush()
            while (one := pickle.load(server.answers)) is not None:
                found.append(one)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            server.process.kill()
            raise StepwellError(
                f"the process that runs programs ended: {type(error).__name__}",
                help="stepwell run FILE shows what the runtime says",
            ) from error
        except BaseException:
            server.process.kill()
            raise
        _SERVERS.append(server)
    if not found:
        raise StepwellError("the process that runs programs gave no answer")
    return found


def _started() -> _Server:
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    return _Server(process, process.stdin, process.stdout)


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests, each in a fork, until the pipe is closed."""
    runtime()  # Imported before the first fork.

    while True:
        try:
            path, external, calls = pickle.load(requests)
        except EOFError:
            return
        child = os.fork()
        if not child:
            _call_all(path, external, calls, answers)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if (code := os.waitstatus_to_exitcode(status)) != 0:
            how = signal.Signals(-code).name if code < 0 else f"status {code}"
            pickle.dump(Failure(f"the runtime ends the process ({how})"), answers)
        pickle.dump(None, answers)
        answers.flush()


def _call_all(
    path: Path, external: Path | None, calls: Sequence[EngineCall], answers: IO[bytes]
) -> None:
    def send(found: Outputs | Failure) -> None:
        answers.write(pickle.dumps(found))
        answers.flush()

    try:
        if missing := _missing(read_container(path.read_bytes())):
            raise UnsupportedError(missing)
        session = PteSession.load(path, external=external)
    except StepwellError as error:
        for _ in calls:
            send(Failure(error.problems[0].fact, isinstance(error, UnsupportedError)))
        return
    for call in calls:
        method = session.container.method(call.method)
        inputs = [method.values[index] for index in method.inputs]
        written = [
            at
            for at in method.written_inputs
            if isinstance(value := inputs[at], TensorValue) and value.storage is None
        ]
        try:
            outputs = session.call(call.method, call.inputs)
            send((*outputs, *(call.inputs[at] for at in written)))
        except StepwellError as error:
            unsupported, refused = (isinstance(error, c) for c in (UnsupportedError, InputMismatch))
            send(Failure(error.problems[0].fact, unsupported, refused))


def _missing(container: Container) -> str | None:
    """Return what the runtime lacks for a program: it may crash on a missing kernel."""
    kernels, backends = runtime().operator_registry, runtime().backend_registry
    known = {*kernels.operator_names, *backends.registered_backend_names}
    for method in container.methods:
        for each in (*method.delegates, *method.instructions):
            if isinstance(each, Delegate) and each.backend not in known:
                return f"its backend {each.backend} is not in the installed runtime"
            is_unknown = isinstance(each, KernelCall) and each.kernel not in known
            if isinstance(each, KernelCall) and is_unknown and library_of(each.kernel) is None:
                return f"its kernel {each.kernel} is not in the installed runtime"
    return None


def main() -> None:
    """Serve the process that started this one; what the runtime prints is dropped."""
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    _serve(sys.stdin.buffer, answers)

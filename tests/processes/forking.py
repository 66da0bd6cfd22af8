"""Command lines in forks of a process that has imported what they import.

A fresh `python -m stepwell lower …` spends nine of ten CPU seconds on imports and on what torch
does once. A fork of a server that has lowered a layer costs a tenth of a second, and is otherwise a
process of its own: its environment, folder, streams, arguments, `__main__`, path, signals, exit
functions and exit status are those that a fresh one would have. What a test says about *fresh*
processes needs a real one: about what is imported or registered, what is said while importing,
`PYTHONHASHSEED`, another tree or another environment of packages.

The server forks with one thread and ends if it has more: a fork has none of the others, but waits
for what they have locked.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

NUMBER = struct.Struct("i")


class Forks:
    """A server of forks; it starts with the first command."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the server

    def run(
        self,
        arguments: Sequence[str | Path],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes = b"",
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run what `python ARGUMENTS` would: `-c CODE …`, `-m MODULE …` or `FILE …`.

        Returns:
            Exit status (a signal's number, negative, if that ended it) and what was said.

        Raises:
            subprocess.TimeoutExpired: after this many seconds; the process is killed.
        """
        channel = self._started()
        words = list(map(str, arguments))
        asked = {"arguments": words, "cwd": str(cwd or Path.cwd()), "env": {**(env or os.environ)}}
        with (
            tempfile.TemporaryFile() as request,
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            for file, data in ((request, json.dumps(asked).encode()), (given, input)):
                file.write(data)
                file.seek(0)
            files = [file.fileno() for file in (request, given, out, err)]
            socket.send_fds(channel, [b"x"], files)
            process = self._number(channel)
            channel.settimeout(timeout)
            try:
                status = self._number(channel)
            except TimeoutError:
                os.kill(process, signal.SIGKILL)
                channel.settimeout(None)
                self._number(channel)
                assert timeout is not None
                raise subprocess.TimeoutExpired(words, timeout) from None
            texts: list[str] = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(words, status, *texts)

    def _started(self) -> socket.socket:
        """The channel to the server."""
        if self._socket is None:
            self._socket, other = socket.socketpair()
            command = [sys.executable, __file__, str(other.fileno())]
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                pass_fds=[other.fileno()], env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            other.close()
        return self._socket

    def _number(self, channel: socket.socket) -> int:
        """What the server answers."""
        data = channel.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(data) < NUMBER.size:
            self._log.seek(0)
            raise RuntimeError(f"the server of forks ended: {self._log.read().decode()[-2000:]}")
        return NUMBER.unpack(data)[0]

    def close(self) -> None:
        """End the server."""
        if self._socket is not None and self._server is not None:
            self._socket.close()
            self._server.wait()


def warm() -> None:
    """Import what commands import, and do once what torch and stepwell do once in a process."""
    import torch

    import stepwell
    import stepwell.cli

    drawn = torch.get_rng_state()
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    exported = torch.export.export(layer, (torch.ones(1, 4),))
    stepwell.lower(exported, "xnnpack").to_pte()
    for target in ("cortex-m55", "tosa-1.0+fp"):
        stepwell.lower(exported, target)
    torch.set_rng_state(drawn)


def serve(channel: socket.socket) -> None:
    """Fork for each request, until the other end is closed."""
    import gc

    paths = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    base = [entry for entry in sys.path[1:] if entry not in paths]
    warm()
    gc.collect()
    gc.freeze()
    while True:
        data, files, _, _ = socket.recv_fds(channel, 1, 4)
        if not data:
            return
        threads = os.listdir("/proc/self/task")
        assert len(threads) == 1, f"{len(threads)} threads at a fork"
        process = os.fork()
        if process == 0:
            channel.close()
            become(files, base)
        for file in files:
            os.close(file)
        channel.sendall(NUMBER.pack(process))
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        channel.sendall(NUMBER.pack(status))


def become(files: list[int], base: list[str]) -> None:
    """Do what a request says, as a fresh process would, and end."""
    import atexit
    import random
    import threading

    import numpy

    from stepwell import plugins

    with open(files[0], encoding="utf-8") as request:
        asked = json.load(request)
    for at, file in enumerate(files[1:]):
        os.dup2(file, at)
        os.close(file)
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(
        2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    plugins._LOADED.clear()  # Installed plug-ins are looked for when somebody asks.
    random.seed()
    numpy.random.seed()
    status = 1
    try:
        status = _status(asked["arguments"], base)
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        if status == -signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(status)


def _status(arguments: list[str], base: list[str]) -> int:
    """Run a command line; the exit status that Python gives it."""
    import runpy
    import types

    paths = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    first, *rest = arguments
    path = {"-c": "", "-m": os.getcwd()}.get(first, str(Path(first).resolve().parent))
    sys.path[:] = [path, *paths, *base]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        if first == "-c":
            sys.argv = ["-c", *rest[1:]]
            exec(compile(rest[0], "<string>", "exec"), sys.modules["__main__"].__dict__)
        elif first == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        return -signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))

"""Command lines in forks of a process that has imported what they import.

A fresh `python -m stepwell lower …` spends nine of ten CPU seconds on imports and on what torch
does once. A fork of a server that has lowered a layer costs a tenth of a second, and is otherwise a
process of its own: its environment, folder, streams, arguments, `__main__`, path, signals, exit
functions and exit status are those that a fresh one would have.

What a test says about what stepwell imports or registers, and when, needs a process that has
nothing of it: a fork of a second server, which has exported a layer with torch alone. It saves two
of three CPU seconds. Only what is said of torch's own import, of `PYTHONHASHSEED` or of another
environment of packages needs a real one.

The servers fork with one thread and end if they have more: a fork has none of the others, but waits
for what they have locked.
"""

import gc
import importlib.util
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

NUMBER = struct.Struct("i")


class Forks:
    """Two servers of forks, which start with the first command; the second is one of the first."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._sockets: list[socket.socket] = []
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the server

    def run(
        self,
        arguments: Sequence[str | Path],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes = b"",
        timeout: float | None = None,
        with_torch_alone: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run what `python ARGUMENTS` would: `-c CODE …`, `-m MODULE …` or `FILE …`.

        Args:
            with_torch_alone: in a process that has nothing of stepwell and of ExecuTorch.

        Returns:
            Exit status (a signal's number, negative, if that ended it) and what was said.

        Raises:
            subprocess.TimeoutExpired: after this many seconds; the process is killed.
        """
        channel = self._started()[0 if with_torch_alone else 1]
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

    def in_place_of(
        self, run: Callable[..., subprocess.CompletedProcess[Any]]
    ) -> Callable[..., subprocess.CompletedProcess[Any]]:
        """`subprocess.run`, but that a command of this Python is a fork."""

        def forked(command: Sequence[str | Path], **given: Any) -> subprocess.CompletedProcess[Any]:
            if command[0] != sys.executable:
                return run(command, **given)
            sent = given.get("input", b"")
            done: subprocess.CompletedProcess[Any] = self.run(
                command[1:],
                given.get("cwd"), given.get("env"),
                sent.encode() if isinstance(sent, str) else sent, given.get("timeout"),
            )  # fmt: skip
            if not given.get("text"):
                done.stdout, done.stderr = done.stdout.encode(), done.stderr.encode()
            return done

        return forked

    def _started(self) -> list[socket.socket]:
        """The channels to the server with torch alone and to the one that has lowered."""
        if not self._sockets:
            pairs = [socket.socketpair() for _ in range(2)]
            others = [other.fileno() for _, other in pairs]
            command = [sys.executable, __file__, *map(str, others)]
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                pass_fds=others, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            for ours, other in pairs:
                other.close()
                self._sockets.append(ours)
        return self._sockets

    def _number(self, channel: socket.socket) -> int:
        """What the server answers."""
        data = channel.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(data) < NUMBER.size:
            self._log.seek(0)
            raise RuntimeError(f"the server of forks ended: {self._log.read().decode()[-2000:]}")
        return NUMBER.unpack(data)[0]

    def close(self) -> None:
        """End the servers."""
        for channel in self._sockets:
            channel.close()
        if self._server is not None:
            self._server.wait()


def warm_torch() -> None:
    """Import torch, and do what it does once in a process that exports."""
    import torch

    drawn = torch.get_rng_state()
    torch.export.export(torch.nn.Linear(4, 4), (torch.ones(1, 4),))
    torch.set_rng_state(drawn)


def warm() -> None:
    """Import what commands import, and do once what stepwell does once in a process."""
    import torch

    import stepwell
    import stepwell.cli.main

    drawn = torch.get_rng_state()
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    exported = torch.export.export(layer, (torch.ones(1, 4),))
    stepwell.lower(exported, "xnnpack").to_pte()
    for target in ("cortex-m55", "tosa-1.0+fp"):
        stepwell.lower(exported, target)
    if importlib.util.find_spec("ethosu"):
        importlib.import_module("ethosu.vela.vela")
    torch.set_rng_state(drawn)


def start(with_torch_alone: socket.socket, lowering: socket.socket) -> None:
    """Serve both channels, the second in a fork that warms itself when it is first asked."""
    paths = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    base = [entry for entry in sys.path[1:] if entry not in paths]
    warm_torch()
    if (process := os.fork()) == 0:
        with_torch_alone.close()
        serve(lowering, base, warm)
        return
    lowering.close()
    serve(with_torch_alone, base)
    os.waitpid(process, 0)


def serve(
    channel: socket.socket, base: list[str], prepare: Callable[[], object] = gc.collect
) -> None:
    """Fork for each request, until the other end is closed."""
    is_prepared = False
    while True:
        data, files, _, _ = socket.recv_fds(channel, 1, 4)
        if not data:
            return
        if not is_prepared:
            prepare()
            gc.collect()
            gc.freeze()
            is_prepared = True
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


def forget_plugins() -> None:
    """Unload all plug-ins; installed ones are looked for when somebody asks."""
    if plugins := sys.modules.get("stepwell.plugins.plugins"):
        for name in list(plugins.REGISTRY.plugins):
            plugins.unload_plugin(name)
        plugins._LOADED.clear()


def become(files: list[int], base: list[str]) -> None:
    """Do what a request says, as a fresh process would, and end."""
    import atexit
    import random
    import threading

    import numpy

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
    forget_plugins()
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
    start(*(socket.socket(fileno=int(number)) for number in sys.argv[1:]))
    os._exit(0)  # Nothing is worth tidying up.

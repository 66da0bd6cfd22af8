"""A process that has imported all modules and forks for each task.

    python -m stepwell.model_zoo.sweep.warm

This command reads tasks from its standard input and writes their results to its standard output,
one line of JSON each. The fork confines the effects of a task: a signal, a hang, a growing heap.
When the standard input closes, the fork and this process end.
"""

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch

from stepwell.lowering import lower
from stepwell.model_zoo.catalogue.models import find
from stepwell.model_zoo.catalogue.vision import imported
from stepwell.model_zoo.sweep.jobs import Task, jobs_of
from stepwell.model_zoo.sweep.measuring import FULL, measure, one_thread
from stepwell.model_zoo.sweep.memory import resident
from stepwell.translate.importer.export_call import export

STEP = 0.2
"""Seconds between two checks of a fork's memory."""
TAIL = 1500
"""Number of bytes that are kept of a fork's last output."""


@dataclass
class Fork:
    """A forked child process that works on a task."""

    process: int
    pipe: int
    log: BinaryIO
    memory: int
    stage: str = "starting"
    used: float = 0.0
    """Seconds of this stage: those that it computed and those that it slept, not those that it
    waited for a processor."""
    _clock: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ended: str = ""
    outcome: str = ""
    _text: bytes = b""

    def read(self) -> bool:
        """Read the child's new output. Return False at its end, and True if the child made
        progress.
        """
        data = os.read(self.pipe, 1 << 16)
        *lines, self._text = (self._text + data).split(b"\n")
        if lines:
            self.used = 0.0
        for line in lines:
            kind, value = json.loads(line)
            if kind == "row":
                self.rows.append(value)
            else:
                self.stage = value
        return bool(data)

    def kill(self, outcome: str, why: str) -> None:
        """Kill the child and all processes that it started."""
        self.outcome, self.ended = outcome, why
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)

    def look(self, passed: float) -> None:
        """Add the time since the last call of `look` to the child's working time."""
        try:
            fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            self.used += passed
            return
        clock = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.used += clock - self._clock if fields[0] == "R" else max(passed, clock - self._clock)
        self._clock = clock

    def too_large(self) -> bool:
        """Whether the child uses more memory than its limit."""
        held = resident("VmRSS", self.process)
        return held is not None and held > self.memory

    def last_words(self) -> str:
        """Return the end of the child's standard output and error."""
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - TAIL))
        return self.log.read().decode(errors="replace")


PRELOADED = (
    "executorch.exir",
    "executorch.extension.pybindings.portable_lib",
    "executorch.kernels.quantized",
    "executorch.runtime",
    "stepwell.backends.executorch.running.runner",
    "stepwell.model_zoo.sweep.measuring",
    "stepwell.model_zoo.catalogue.weights",
    "torch.nn.attention",
    "torchao.quantization.pt2e.quantize_pt2e",
)
"""Modules that every task imports; none starts a thread, because threads do not survive a fork."""


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Run a task in a fork; return its rows and, if it ended early, the reason."""
    with contextlib.suppress(Exception):  # The fork reports the fault.
        find(asked["model"])
        imported(asked["module"])
    fork = start(asked)
    watch(fork, asked["seconds"])
    os.close(fork.pipe)
    status = os.waitstatus_to_exitcode(os.waitpid(fork.process, 0)[1])
    said = fork.last_words()
    fork.log.close()
    if status and not fork.outcome:
        full = any(word in said for word in FULL)
        fork.outcome = "out of memory" if full else "crashed"
        fork.ended = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return {
        "rows": fork.rows,
        "outcome": fork.outcome,
        "stage": fork.stage if fork.outcome else "",
        "note": f"{fork.ended}\n{said}".strip() if fork.outcome else "",
    }


def start(asked: dict[str, Any]) -> Fork:
    """Fork a child process for a task."""
    read, write = os.pipe()
    log = tempfile.TemporaryFile()  # noqa: SIM115  (closed when the fork has ended)
    process = os.fork()
    if process == 0:
        os.close(read)
        child(asked, write, log.fileno())
    os.close(write)
    with contextlib.suppress(OSError):
        os.setpgid(process, process)
    memory = (resident("VmRSS", process) or 0) + asked["memory"]
    return Fork(process, read, log, memory)


def child(asked: dict[str, Any], pipe: int, log: int) -> None:
    """Work on a task in the child; never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        fence(asked["memory"])
        work(asked, pipe)
        code = 0
    except MemoryError:
        os.write(2, b"MemoryError\n")
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def fence(memory: int) -> None:
    """Limit further memory to this number of bytes, if the system supports it."""
    held = resident("VmData")
    if held is not None:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (held + memory, held + memory))


def work(asked: dict[str, Any], pipe: int) -> None:
    """Measure the jobs of a task and write the events to the pipe."""

    def tell(kind: str, value: Any) -> None:
        plain = value.to_json() if kind == "row" else value
        data = json.dumps([kind, plain], default=str).encode() + b"\n"
        while data:
            data = data[os.write(pipe, data) :]

    one_thread()
    warnings.simplefilter("ignore")
    entry = find(asked["model"])
    measure(Task(jobs_of(asked["jobs"]), tuple(asked["keys"]), entry), tell)


def watch(fork: Fork, seconds: float) -> None:
    """Read from a child until it ends; kill it at its limits, or when the worker is gone."""
    before = time.monotonic()
    while True:
        ready, _, _ = select.select([fork.pipe, 0], [], [], STEP)
        if fork.pipe in ready:
            if not fork.read():
                return
        elif 0 in ready:  # No request comes while a task runs: the other side is gone.
            fork.kill("lost", "the worker is gone")
            os._exit(1)
        now = time.monotonic()
        if now - before < STEP:
            continue
        fork.look(now - before)
        before = now
        if fork.used > seconds:
            fork.kill("out of time", f"ended after {seconds:g} s")
        elif fork.too_large():
            fork.kill("out of memory", f"ended at {fork.memory >> 20} MiB")


def preload() -> None:
    """Import everything and lower one model, so that forks need not."""
    torch.set_num_threads(1)
    for name in PRELOADED:
        importlib.import_module(name)
    for target in ("xnnpack", "tosa-1.0+fp"):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        exported = export(model.eval(), (torch.randn(2, 4),))
        assert lower(exported, target).artifact


def main() -> None:
    """Serve tasks until the standard input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The sweep handles Ctrl-C.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    preload()
    while line := sys.stdin.buffer.raw.readline():  # pyright: ignore[reportAttributeAccessIssue]
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()

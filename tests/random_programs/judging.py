"""Judging programs in a child process, and making findings small."""

from __future__ import annotations

import json
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from .source import Program, defined

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600.0
"""How long to wait for one program that computes nothing; what computes has `child.CPU_SECONDS`."""


DISTURBED = ("SIGTERM", "SIGHUP", "SIGINT")


class Judge:
    """A child that is started again when a program takes it down."""

    def __init__(self, seconds: float = SECONDS, by: str = "tests.random_programs.child") -> None:
        self.seconds, self.by = seconds, by
        self.child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None

    def ask(self, **question: Any) -> dict[str, Any]:
        """A verdict as the child gives it; `abort` or `hang` where it cannot."""
        if self.child is None:
            self.child = subprocess.Popen(
                [sys.executable, "-m", self.by],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,  # A line that Python had read ahead would not wake `select`.
            )
        child = self.child
        assert child.stdin is not None
        assert child.stdout is not None
        ours = False
        try:
            child.stdin.write(json.dumps(question).encode() + b"\n")
            while True:
                ready, _, _ = select.select([child.stdout], [], [], self.seconds)
                line = child.stdout.readline() if ready else b""
                answer = json.loads(line) if line else {}
                if "phase" not in answer:
                    break
                ours = True
        except BrokenPipeError:
            ready, answer = [child.stdout], {}
        if answer:
            return answer
        ended = child.wait() if ready else None
        self._stop()
        if ended is None:
            said = f"no answer within {self.seconds:g} s"
        else:
            said = signal.Signals(-ended).name if ended < 0 else f"exit {ended}"
        endless = ended is None or ended == -signal.SIGXCPU
        kind = ("hang" if endless else "abort") if ours else "no program"
        return {"kind": kind, "said": said, "refusals": [], "statements": 0}

    def seed(self, seed: int, lane: str) -> dict[str, Any]:
        """The verdict on a seed's program, which it says whatever becomes of the child.

        A child that waited without computing, or was ended by a signal that no program sends to
        itself, was disturbed from outside: it is asked again.
        """
        found = self.ask(seed=seed, lane=lane)
        if found["said"].startswith("no answer") or found["said"] in DISTURBED:
            found = self.ask(seed=seed, lane=lane)
        if "program" not in found:
            found |= self.ask(seed=seed, lane=lane, describe=True)
        return found

    def shrink(self, program: Program, lane: str, verdict: dict[str, Any]) -> Program:
        """The least program that fails in the same way."""
        wanted = signature(verdict)
        while True:
            for smaller in candidates(program):
                found = self.ask(program=smaller.as_json(), lane=lane)
                if signature(found) == wanted:
                    program = smaller
                    break
            else:
                return program


def signature(verdict: dict[str, Any]) -> tuple[str, str]:
    """What makes two findings the same: the kind, and what was said but for its numbers."""
    said = verdict.get("said", "")
    if verdict["kind"] == "mismatch":
        said = re.sub(r"output \d+.*", "", said)
    if verdict["kind"] == "traceback":
        said = said.split(":")[0] + said.split("[")[-1]
    return verdict["kind"], re.sub(r"\d+", "#", said)[:200]


def candidates(program: Program) -> Iterator[Program]:
    """Smaller programs: one output, fewer statements, plainer signatures."""
    if len(program.outputs) > 1:
        for output in program.outputs:
            yield replace(program, outputs=(output,)).tidy()
        for index in range(len(program.outputs)):
            kept = program.outputs[:index] + program.outputs[index + 1 :]
            yield replace(program, outputs=kept).tidy()
    for index in reversed(range(len(program.statements))):
        rest = program.without([index])
        if rest.outputs:
            yield rest.tidy()
        names = [n for text in rest.statements for n in sorted(defined(text))]
        if names and not rest.outputs:
            yield replace(rest, outputs=(names[-1],)).tidy()
        read = sorted(defined(program.statements[index]))
        sources = re.findall(r"\b[vx]\d+\b", program.statements[index].partition("=")[2])
        if len(read) == 1 and sources and "\n" not in program.statements[index]:
            texts = [
                re.sub(rf"\b{read[0]}\b", sources[0], text) if at > index else text
                for at, text in enumerate(program.statements)
                if at != index
            ]
            outs = tuple(sources[0] if o == read[0] else o for o in program.outputs)
            yield replace(program, statements=tuple(texts), outputs=outs).tidy()
    if (program.nesting != "flat" and len(program.inputs) > 1) or program.returned != "tuple":
        yield replace(program, nesting="flat", returned="tuple")
    if program.varying:
        inputs = tuple((name, _bound(text, program.sizes)) for name, text in program.inputs)
        yield replace(program, inputs=inputs, sizes={}, varying=(), others=())


def _bound(text: str, sizes: Any) -> str:
    for name, size in sizes.items():
        text = re.sub(rf"\b{name}\b", str(size), text)
    return text

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

from .source import Method, Program, defined

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600.0
"""How long to wait for one program that computes nothing; what computes has `child.CPU_SECONDS`."""


DISTURBED = ("SIGTERM", "SIGHUP", "SIGINT")


class Judge:
    """A child that is started again when a program takes it down."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
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
                [sys.executable, "-m", "tests.random_programs.child"],
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
    """Smaller programs: fewer outputs, statements, calls and methods, plainer signatures."""
    for number, method in enumerate(program.methods):
        for less in _smaller_methods(method):
            methods = (*program.methods[:number], less, *program.methods[number + 1 :])
            yield replace(program, methods=methods).tidy()
    many = range(len(program.methods))
    for gone in many if len(many) > 1 else ():
        kept = [number for number in many if number != gone]
        methods = tuple(program.methods[number] for number in kept)
        calls = tuple(
            replace(call, method=kept.index(call.method))
            for call in program.calls
            if call.method != gone
        )
        yield replace(program, methods=methods, calls=calls).tidy()
    for at in range(len(program.calls)):
        rest = program.calls[:at] + program.calls[at + 1 :]
        if {call.method for call in rest} == set(many):
            yield replace(program, calls=rest)
    if any(call.fed for call in program.calls):
        yield replace(program, calls=tuple(replace(call, fed=False) for call in program.calls))
    if (program.nesting != "flat" and len(program.inputs) > 1) or program.returned != "tuple":
        yield replace(program, nesting="flat", returned="tuple")
    if program.limits:
        sizes = program.calls[0].sizes
        inputs = tuple((name, _bound(text, sizes)) for name, text in program.inputs)
        calls = tuple(replace(call, sizes={}) for call in program.calls)
        yield replace(program, inputs=inputs, calls=calls, limits={}, varying=())


def _smaller_methods(method: Method) -> Iterator[Method]:
    """The method with one output or one fewer, and without each statement or its value."""
    outputs, statements = method.outputs, method.statements
    if len(outputs) > 1:
        for output in outputs:
            yield replace(method, outputs=(output,))
        for index in range(len(outputs)):
            yield replace(method, outputs=outputs[:index] + outputs[index + 1 :])
    for index in reversed(range(len(statements))):
        rest = method.without([index])
        if rest.outputs:
            yield rest
        made = sorted(defined(statements[index]))
        sources = re.findall(r"\b[vx]\d+\b", statements[index].partition("=")[2])
        if len(made) == 1 and sources and "\n" not in statements[index]:
            texts = [
                re.sub(rf"\b{made[0]}\b", sources[0], text) if at > index else text
                for at, text in enumerate(statements)
                if at != index
            ]
            yield Method(tuple(texts), tuple(sources[0] if o == made[0] else o for o in outputs))


def _bound(text: str, sizes: Any) -> str:
    for name, size in sizes.items():
        text = re.sub(rf"\b{name}\b", str(size), text)
    return text

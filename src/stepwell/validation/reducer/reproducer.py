"""Write and read reproducers: the program before a pass failed, and that pass, as text.

    // stepwell reproducer: `stepwell opt repro.mlir --load my_rewrite.py` runs the step again
    // step: my-rewrite{limit=4}
    // load: my_rewrite.py
    // context: {"target": "xnnpack", "numerics": "torch"}
    // fails: my-rewrite raises ZeroDivisionError in build

Passes are deterministic, so the cause of a failure is found by running them again, and nothing is
recorded in a successful run. `reduce.py` reduces a reproducer.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xdsl.ir import Operation

from stepwell.dialects import make_known
from stepwell.ir.context import Context
from stepwell.ir.diagnostics import Problem, StepwellError, VerificationError, describe_op, op_name
from stepwell.ir.platform.files import read_bytes, write_atomically
from stepwell.ir.program import Program
from stepwell.ir.rewriting.failures import REPRODUCER, StepFailure, first_line, placed
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import (
    History,
    Rewrite,
    Rewriter,
    Step,
    apply_step,
    parts_of,
    step_name,
)
from stepwell.ir.syntax.inline_values import take_values, too_large, with_values
from stepwell.ir.syntax.storage import pack_tensors, unpack_tensors, weights_path
from stepwell.ir.syntax.text import ask_for_more, parse_module, to_text
from stepwell.ir.verification import find_problems
from stepwell.ir.weights import WeightStore
from stepwell.pipelines.pass_pipeline.named_passes import given_to, weights_of
from stepwell.pipelines.pass_pipeline.pipeline_text import parse_steps, spell_step
from stepwell.plugins.plugins import load_entry_points, load_plugin
from stepwell.plugins.registry import REGISTRY

MOST_LOOKS = 1 << 22
"""The limit of verified ops in the search for the application that broke a program."""

Make = Callable[[], Program]
"""Creates a new copy of the program with which a pipeline began."""


@dataclass(frozen=True)
class Header:
    """The comment lines at the start of a reproducer: pass, files to load, context, failure."""

    step: str
    load: tuple[str, ...] = ()
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fails: tuple[str, str] | None = None

    @classmethod
    def read(cls, text: str) -> Header | None:
        """Return the header of a text, or None if it is not a reproducer."""
        if not text.startswith(REPRODUCER):
            return None
        lead = re.match(r"(?://.*\n)*", text)
        said = dict[str, list[str]]()
        for key, value in re.findall(r"^// (\w+): (.*)$", lead[0] if lead else "", re.M):
            said.setdefault(key, []).append(value.strip())
        if "step" not in said:
            return None
        try:
            context = json.loads(said.get("context", ["{}"])[0])
            step, kind = json.loads(said["fails"][0]) if "fails" in said else ("", "")
        except ValueError as error:
            raise StepwellError(f"the reproducer's header does not parse: {error}") from None
        fails = (step, kind) if step else None
        return cls(said["step"][0], tuple(said.get("load", ())), context, fails)

    def __str__(self) -> str:
        load = "".join(f" --load {file}" for file in self.load)
        lines = [
            f"{REPRODUCER}: `stepwell opt FILE{load}` runs the step again,",
            f"// `stepwell reduce FILE{load}` reduces it",
            f"// step: {self.step}",
            *(f"// load: {file}" for file in self.load),
            f"// context: {json.dumps(dict(self.context), default=str)}",
        ]
        if self.fails:
            lines.append(f"// fails: {json.dumps(list(self.fails))}")
        return "\n".join(lines) + "\n"

    def steps(self) -> tuple[Step, ...]:
        """Parse the pass that the reproducer names.

        Raises:
            StepwellError: the pass is defined in a file that was not loaded.
        """
        missing = [file for file in self.load if str(Path(file).resolve()) not in REGISTRY.plugins]
        if missing:
            raise StepwellError(
                f"the reproducer's pass is defined in {', '.join(missing)}, which is not loaded",
                help="--load it, if you trust its code: the text alone executes nothing",
            )
        return parse_steps(self.step)

    def lowering(self) -> Context:
        """Return the context of the lowering in which the pass failed."""
        held = dict(self.context)
        return Context(str(held.pop("target", "")), held)


@dataclass(frozen=True)
class Reproducer:
    """A program, the pass that fails on it, and the failure."""

    program: Program
    header: Header

    def text(self, constants: int = 64) -> str:
        """Return the reproducer's text; larger constants are only named in it."""
        module = with_values(self.program.module, self.program.weights, constants)
        return f"{self.header}{to_text(module, locations=True)}\n"

    def save(self, path: str | Path) -> None:
        """Write the reproducer's text, and a file with the larger constants."""
        place = Path(path)
        weights = self.program.weights
        large = sorted(too_large(self.program.module, weights, 64))
        if large:
            packed = pack_tensors({key: weights.get(key) for key in large})
            write_atomically(weights_path(place), packed)
        write_atomically(place, self.text().encode())

    def command(self, path: str | Path) -> str:
        """Return the command line that runs the reproducer again."""
        return " ".join(["stepwell opt", str(path), *(f"--load {f}" for f in self.header.load)])

    @classmethod
    def open(cls, path: Path, header: Header | None = None) -> Reproducer:
        """Read a reproducer from its file and the file with its constants.

        Args:
            path: the path of the text.
            header: replaces the header in the text.

        Raises:
            StepwellError: there is no header, or the file cannot be read.
        """
        text = read_bytes(path).decode(errors="replace")
        held = header or Header.read(text)
        if held is None:
            raise StepwellError(
                f"{path} is no reproducer", help=f"its first line begins {REPRODUCER!r}"
            )
        make_known()
        ask_for_more(load_entry_points)
        module = parse_module(text, name=path.name, locate=True)
        store, beside = WeightStore(), weights_path(path)
        for key, tensor in unpack_tensors(beside).items() if beside.exists() else ():
            store.add(key, tensor)
        take_values(module, store)
        given_to(module, store, held.lowering())
        return cls(Program(module, weights_of(module), context=held.lowering()), held)


def fails(program: Program, steps: Sequence[Step]) -> StepFailure | None:
    """Run passes on a copy of a program; return their failure, or None."""
    copy = program.clone()
    try:
        for step in steps:
            Pipeline("replayed", (step,)).run(copy)
            if problem := next(_problems(copy), None):
                return _broken(step, None, problem, 0)
    except StepFailure as failure:
        return failure
    except StepwellError:
        return None
    return None


def explained(
    make: Make, steps: Sequence[Step], error: StepwellError, *, reproduce: bool = True
) -> StepwellError:
    """Find the pass that caused an error; return the error with that pass and a reproducer.

    Args:
        make: creates the program on which the passes began.
        steps: the passes of the pipeline.
        error: the error of the pipeline. A `StepFailure` states its pass. For a `VerificationError`
            at the end, or a failure on a program that was invalid before, the pass that broke the
            program is searched.
        reproduce: whether to create a reproducer.
    """
    failure = error if isinstance(error, StepFailure) else None
    if failure is None and not isinstance(error, VerificationError):
        return error
    last = len(steps) if failure is None or failure.at is None else failure.at
    failure = _first_break(make, steps[:last]) or failure
    if reproduce and failure is not None and failure.at is not None:
        failure.reproducer = _reproducer(make, steps, failure.at, failure)
    return failure or error


class _Stop(Exception):
    """Raised to stop a pass just before the requested application of a rewrite."""


@dataclass
class _StopBefore:
    """An observer that stops a run before one application."""

    number: int
    made: int = 0

    def before(self, rewrite: Rewrite[Any], op: Operation, match: Any) -> None:
        if self.made == self.number:
            raise _Stop
        self.made += 1

    def after(self, rewrite: Rewrite[Any], rewriter: Rewriter) -> None:
        pass


def _problems(program: Program) -> Any:
    return find_problems(program.module, program.weights, membership=False)


def _first_break(make: Make, steps: Sequence[Step]) -> StepFailure | None:
    """Return the failure of the first pass after which the program does not verify."""
    program, history = make(), History()
    for at, step in enumerate(steps):
        try:
            apply_step(step, program, history)
        except StepwellError:
            return None
        if problem := next(_problems(program), None):
            failure = _breaking_application(make, steps, at) or _broken(step, None, problem, 0)
            failure.at = at
            return failure
    return None


@dataclass
class _Verifying:
    """An observer that verifies after each application, and records the first that broke the
    program.
    """

    program: Program
    left: int = MOST_LOOKS
    made: int = 0
    op: tuple[str, str | None] = ("", None)
    root: Operation | None = None

    def before(self, rewrite: Rewrite[Any], op: Operation, match: Any) -> None:
        self.op, self.root = (op_name(op), describe_op(op)), op

    def after(self, rewrite: Rewrite[Any], rewriter: Rewriter) -> None:
        self.left -= sum(1 for _ in self.program.module.walk())
        if self.left < 0:
            raise _Stop
        if problem := next(_problems(self.program), None):
            failure = _broken(rewrite, self.op, problem, self.made)
            assert self.root is not None
            raise placed(failure, rewrite.name, self.root, first_line(rewrite, "build"))
        self.made += 1


def _breaking_application(make: Make, steps: Sequence[Step], at: int) -> StepFailure | None:
    """Return the failure of the first application in a pass that broke the program."""
    program = _before(make, steps, at, 0)
    try:
        steps[at].apply(program, History(watch=_Verifying(program)))
    except StepFailure as failure:
        return failure
    except (_Stop, StepwellError):
        return None
    return None


def _broken(
    step: Step, op: tuple[str, str | None] | None, problem: Problem, applications: int
) -> StepFailure:
    name, where = op or (None, None)
    subject = f"{name}: " if name else ""
    phase = "build" if isinstance(step, Rewrite) else "apply"
    return StepFailure(
        f"{subject}{step_name(step)} breaks the program: {problem.fact}",
        where or problem.where,
        f"what it writes begins at {first_line(step, phase)}",
        step=step_name(step),
        kind="breaks",
        applications=applications,
    )


def _reproducer(
    make: Make, steps: Sequence[Step], at: int, failure: StepFailure
) -> Reproducer | None:
    """Return the smallest reproducer that fails in the same way: for one rewrite, for its pass, or
    for all passes.
    """
    part = next((p for p in parts_of(steps[at]) if step_name(p) == failure.step), None)
    tries: list[tuple[Program, Sequence[Step]]] = []
    if failure.kind != "endless" and (part is not None or isinstance(steps[at], Rewrite)):
        tries.append((_before(make, steps, at, failure.applications), [part or steps[at]]))
    tries.append((_before(make, steps, at, 0), [steps[at]]))
    tries.append((make(), steps[: at + 1]))
    for program, some in tries:
        again = fails(program, some)
        if again is not None and again.signature == failure.signature:
            text, files = _spelled(some)
            context = {"target": program.context.target, **program.context.options}
            return Reproducer(program, Header(text, files, context, failure.signature))
    return None


def _before(make: Make, steps: Sequence[Step], at: int, applications: int) -> Program:
    """Run a pass up to one application of a rewrite; return the program just before it."""
    program = make()
    for step in steps[:at]:
        apply_step(step, program, History())
    if applications:
        with suppress(_Stop, Exception):  # A match that raised an exception has changed nothing.
            steps[at].apply(program, History(watch=_StopBefore(applications)))
    return program


def _spelled(steps: Sequence[Step]) -> tuple[str, tuple[str, ...]]:
    """Return passes as a textual pipeline, and the files that must be loaded to parse it."""
    files: dict[str, None] = {}
    texts: list[str] = []
    for step in steps:
        for held in (*parts_of(step), step):
            files.update(dict.fromkeys(_files_of(type(held))))
        texts.append(spell_step(step, foreign=True) or step_name(step))
    return ",".join(texts), tuple(files)


def _files_of(cls: type[Step]) -> list[str]:
    """Return the file that must be loaded for a pass class; none for a registered pass."""
    for plugin in REGISTRY.plugins.values():
        if cls.name in plugin.brings.get("steps", ()) and REGISTRY.steps.get(cls.name) is cls:
            return [plugin.origin] if plugin.digest else []
    if f"{cls.__module__}.".startswith("stepwell."):
        return []
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return [file] if file else []


def load_for(header: Header, trust: bool) -> None:
    """Load the files that a reproducer names; the caller vouches that the user trusts them."""
    for file in header.load if trust else ():
        load_plugin(file)

"""Pipelines: one literal tuple of passes per target defines the order; experiments edit a copy.

stepwell.PIPELINES["xnnpack"].without("absorb/merge-linears").after("normalize", MyRewrite)
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from xdsl.ir import Operation

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.options import nearest
from stepwell.ir.program import Program
from stepwell.ir.renderers import Shown
from stepwell.ir.rewriting.failures import StepFailure
from stepwell.ir.rewriting.rewrite import (
    GreedyRewrites,
    History,
    NamedPass,
    Pass,
    Rewrite,
    Step,
    apply_step,
    is_driven,
    looks_at,
    parts_of,
    step_name,
)
from stepwell.ir.rewriting.xdsl_passes import AnyStep, as_step
from stepwell.ir.side_effects import is_one_of
from stepwell.ir.traversal import walk

Observer = Callable[[Step, Program, int], None]


@dataclass(frozen=True)
class StepRecord:
    """One pass of a run: its name, its number of applications, seconds, and the number of ops after
    it.
    """

    name: str
    applied: int
    seconds: float
    ops: int


@dataclass
class PipelineRun:
    """The records of one run of a pipeline, one for each pass."""

    steps: list[StepRecord] = field(default_factory=list[StepRecord])
    history: History = field(default_factory=History)


@dataclass(frozen=True)
class Pipeline(Shown):
    """An immutable sequence of passes with unique names.

    `after`, `before`, `without`, `replace` and `move` return a changed copy. They address a pass by
    its name (`absorb`), a rewrite of a pass by its path (`absorb/fold-bias-into-layer`), and either
    by the last part of its path if that is unique in the pipeline (`fold-bias-into-layer`). A
    leading slash selects a pass and not a rewrite of another pass (`/lower-matmul`).
    """

    name: str
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        """Reject two passes with the same name, because edits would be ambiguous."""
        object.__setattr__(self, "steps", tuple(map(as_step, self.steps)))
        for step in self.steps:
            if not is_one_of(type(step), (Rewrite, Pass)):
                raise StepwellError(
                    f"pipeline {self.name!r}: {step!r} is not a pass",
                    help="a pass is an instance of Rewrite or Pass, or a pass or pattern of xDSL",
                )
        counts = Counter(map(step_name, self.steps))
        twice = [name for name, count in counts.items() if count > 1]
        if twice:
            raise StepwellError(
                f"pipeline {self.name!r} has more than one pass named " + ", ".join(twice),
                help='give one of them another name: GreedyRewrites("name", (MyRewrite(),)), or '
                'NamedPass("name", MyPass())',
            )

    def __repr__(self) -> str:
        return f"<pipeline {self.name}: {', '.join(map(step_name, self.steps))}>"

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the path of every pass and of each of its rewrites, in order."""
        return tuple(path for path, _ in self._places())

    def find(self, path: str) -> tuple[int, int | None]:
        """Return the index of a pass, and of the rewrite within it if the path names one.

        Args:
            path: a name or a path, as in the class docstring.

        Raises:
            StepwellError: no pass or several passes have this path.
        """
        places = list(self._places())
        if path.startswith("/"):
            found = [(full, at) for full, at in places if full == path[1:]]
        elif "/" in path:
            found = [(full, at) for full, at in places if full == path]
        else:
            found = [(full, at) for full, at in places if full.rpartition("/")[2] == path]
        if len(found) == 1:
            return found[0][1]
        if found:
            paths = [full if "/" in full else f"/{full}" for full, _ in found]
            raise StepwellError(
                f"{path!r} occurs {len(found)} times in pipeline {self.name!r}",
                help="give its path: " + ", ".join(paths),
            )
        names = ", ".join(step_name(step) for step in self.steps)
        near = nearest(path, {*self.paths, *(full.rpartition("/")[2] for full in self.paths)})
        raise StepwellError(
            f"pipeline {self.name!r} has no pass {path!r}", help=f"{near}passes are {names}"
        )

    def after(self, path: str, *steps: AnyStep) -> Pipeline:
        """Return a pipeline with more passes after the named one, or more rewrites
        after a rewrite.
        """
        return self._spliced(path, (), _instances(steps))

    def before(self, path: str, *steps: AnyStep) -> Pipeline:
        """Return a pipeline with more passes before the named one, or more rewrites before a
        rewrite.
        """
        return self._spliced(path, _instances(steps), ())

    def without(self, *paths: str) -> Pipeline:
        """Return a pipeline without the named passes and rewrites; a pass that becomes empty is
        removed.
        """
        places = {self.find(path) for path in paths}
        whole = {at for at, part in places if part is None}
        parts = [(at, part) for at, part in places if part is not None and at not in whole]
        changed = self
        for at, part in sorted(parts + [(at, 0) for at in whole], reverse=True):
            changed = changed._replaced(at, None if at in whole else part, ())
        return changed

    def replace(self, path: str, step: AnyStep) -> Pipeline:
        """Return a pipeline with the named pass or rewrite replaced by another."""
        return self._replaced(*self.find(path), _instances((step,)))

    def move(self, path: str, ahead_of: str) -> Pipeline:
        """Return a pipeline with a pass or rewrite moved directly before another one.

        Raises:
            StepwellError: one of the two does not exist, or a pass would be among rewrites.
        """
        at, part = self.find(path)
        step = self.steps[at] if part is None else parts_of(self.steps[at])[part]
        if self.find(ahead_of) == (at, part):
            return self
        return self.without(path).before(ahead_of, step)

    def _places(self) -> Iterator[tuple[str, tuple[int, int | None]]]:
        for at, step in enumerate(self.steps):
            yield step_name(step), (at, None)
            for part, held in enumerate(parts_of(step)):
                yield f"{step_name(step)}/{step_name(held)}", (at, part)

    def _spliced(
        self, path: str, preceding: tuple[Step, ...], following: tuple[Step, ...]
    ) -> Pipeline:
        at, part = self.find(path)
        step = self.steps[at]
        here = step if part is None else parts_of(step)[part]
        return self._replaced(at, part, (*preceding, here, *following))

    def _replaced(self, at: int, part: int | None, steps: tuple[Step, ...]) -> Pipeline:
        """Return the pipeline in which these passes replace one pass or one of its rewrites."""
        step = self.steps[at]
        if part is not None:
            steps = _with_parts(step, part, steps)
        return replace(self, steps=(*self.steps[:at], *steps, *self.steps[at + 1 :]))

    def run(
        self,
        program: Program,
        observer: Observer | None = None,
        *,
        history: History | None = None,
    ) -> PipelineRun:
        """Apply every pass in order, changing the program in place.

        A pass whose anchors include no op class of the program is skipped: most programs contain no
        quantized casts, attention or group norm.
        """
        run = PipelineRun() if history is None else PipelineRun(history=history)
        history = run.history
        census = _census(program)
        for at, step in enumerate(self.steps):
            applied, seconds = 0, 0.0
            if looks_at(step, census):
                swept = history.swept
                started = time.perf_counter()
                try:
                    applied = apply_step(step, program, history)
                except StepFailure as failure:
                    failure.at = at
                    raise
                seconds = time.perf_counter() - started
                if applied or history.swept != swept or not is_driven(step):
                    census = _census(program)
            run.steps.append(StepRecord(step_name(step), applied, seconds, census.total()))
            if observer is not None:
                observer(step, program, applied)
        return run


def _census(program: Program) -> Counter[type[Operation]]:
    return Counter(map(type, walk(program.module)))


def _instances(steps: tuple[AnyStep, ...]) -> tuple[Step, ...]:
    """Instantiate passes that are passed as classes, with default fields.

    Raises:
        StepwellError: a class needs arguments.
    """
    try:
        return tuple(step() if isinstance(step, type) else step for step in map(as_step, steps))
    except TypeError as error:
        raise StepwellError(f"a pass cannot be created: {error}", help="pass an instance") from None


def _with_parts(step: Step, part: int, parts: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return a pass in which one rewrite is replaced by others; None if no rewrite is left."""
    held = (*parts_of(step)[:part], *parts, *parts_of(step)[part + 1 :])
    if not held:
        return ()
    rewrites = tuple(one for one in held if isinstance(one, Rewrite))
    if isinstance(step, GreedyRewrites) and len(rewrites) == len(held):
        return (replace(step, rewrites=rewrites),)
    if isinstance(step, NamedPass) and len(held) == 1 and isinstance(held[0], Pass):
        return (replace(step, held=held[0]),)
    wrong = ", ".join(step_name(one) for one in held if not isinstance(one, Rewrite))
    raise StepwellError(
        f"{wrong} cannot be part of {step_name(step)!r}, which consists of rewrites",
        help=f"put it before or after the pass: after('/{step_name(step)}', …)",
    )


def exact_ops(steps: Iterable[Step]) -> frozenset[tuple[str, str]]:
    """Return the ops, with dtypes, that a rewrite of a pipeline keeps exact (`Rewrite.exact`)."""
    found: set[tuple[str, str]] = set()
    for step in steps:
        found.update(step.exact if isinstance(step, Rewrite) else exact_ops(parts_of(step)))
    return frozenset(found)

"""Pipelines: the order of steps is one literal tuple per target, and experiments edit a copy."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from xdsl.ir import Operation

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting import History, Step, anchors_of, step_name
from stepwell.ir.walking import walk

Observer = Callable[[Step, Program, int], None]


@dataclass(frozen=True)
class StepRecord:
    """One step of a run: its name, how often it applied, seconds, and ops after it."""

    name: str
    applied: int
    seconds: float
    ops: int


@dataclass
class PipelineRun:
    """What running a pipeline did."""

    steps: list[StepRecord] = field(default_factory=list[StepRecord])
    history: History = field(default_factory=History)


@dataclass(frozen=True)
class Pipeline:
    """An immutable sequence of named steps."""

    name: str
    steps: tuple[Step, ...]

    def index(self, name: str) -> int:
        """Where a step stands."""
        names = [step_name(step) for step in self.steps]
        if name not in names:
            raise StepwellError(
                f"pipeline {self.name!r} has no step {name!r}", help="steps are " + ", ".join(names)
            )
        return names.index(name)

    def after(self, name: str, *steps: Step | type[Step]) -> Pipeline:
        """A pipeline with more steps behind the named one."""
        at = self.index(name) + 1
        return self._with(self.steps[:at] + _instances(steps) + self.steps[at:])

    def before(self, name: str, *steps: Step | type[Step]) -> Pipeline:
        """A pipeline with more steps ahead of the named one."""
        at = self.index(name)
        return self._with(self.steps[:at] + _instances(steps) + self.steps[at:])

    def without(self, *names: str) -> Pipeline:
        """A pipeline without the named steps."""
        gone = {self.index(name) for name in names}
        return self._with(tuple(s for i, s in enumerate(self.steps) if i not in gone))

    def replace(self, name: str, step: Step | type[Step]) -> Pipeline:
        """A pipeline with another step in the named one's place."""
        at = self.index(name)
        return self._with(self.steps[:at] + _instances((step,)) + self.steps[at + 1 :])

    def run(self, program: Program, observer: Observer | None = None) -> PipelineRun:
        """Apply every step in order, changing the program in place.

        A step whose anchors are no class of op in the program has nothing to look at and is passed
        by: most programs hold no quantised casts, no attention, no group norm.
        """
        run = PipelineRun()
        history = run.history
        census = _census(program)
        for step in self.steps:
            anchors = anchors_of(step)
            applied, seconds = 0, 0.0
            if anchors is None or any(issubclass(cls, anchors) for cls in census):
                swept = history.swept
                started = time.perf_counter()
                applied = step.apply(program, history)
                seconds = time.perf_counter() - started
                if anchors is None or applied or history.swept != swept:
                    census = _census(program)
            run.steps.append(StepRecord(step_name(step), applied, seconds, census.total()))
            if observer is not None:
                observer(step, program, applied)
        return run

    def _with(self, steps: tuple[Step, ...]) -> Pipeline:
        return replace(self, steps=steps)


def _census(program: Program) -> Counter[type[Operation]]:
    return Counter(map(type, walk(program.module)))


def _instances(steps: tuple[Step | type[Step], ...]) -> tuple[Step, ...]:
    return tuple(step() if isinstance(step, type) else step for step in steps)

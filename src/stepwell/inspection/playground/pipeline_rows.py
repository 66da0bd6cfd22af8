"""The pipeline that was asked for, and every step of it as a row of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Operation

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import Step, parts_of, step_name
from stepwell.pipelines.pass_pipeline.pipeline_text import Edit, EditKind, split
from stepwell.pipelines.pass_pipeline.stages import START, stages_of
from stepwell.report.report import Report

TORCH_LEVELS = ("aten", "quant", "stepwell")
"""Dialects that stand in a program as it comes."""


@dataclass(frozen=True)
class Way:
    """A target's pipeline as it was changed.

    Attributes:
        target: its name.
        whole: with what was left out.
        off: paths of what was.
    """

    target: str
    whole: Pipeline
    off: tuple[str, ...]

    @classmethod
    def of(
        cls,
        target: str,
        own: Pipeline,
        edits: Sequence[tuple[EditKind, str]],
        known: Mapping[str, Step],
    ) -> Way:
        """A pipeline with edits, which may name `known` steps.

        Raises:
            StepwellError: an edit names what there is not.
        """
        off: list[str] = []
        for kind, said in edits:
            edit = Edit.parse(kind, said)
            if kind == "without":
                off += split(edit.path)
            else:
                own = edit.apply(own, known)
        for path in off:
            own.find(path)
        return cls(target, own, tuple(off))

    @property
    def pipeline(self) -> Pipeline:
        """The steps that are taken."""
        return self.whole.without(*self.off)

    def step_of(self, at: str) -> str | None:
        """The step behind which a stage is, or the step of the name; None: as the program came.

        Raises:
            StepwellError: there is neither.
        """
        if at in ("", START):
            return None
        stages = stages_of(self.pipeline, self.target)
        if at in stages:
            return stages[at] or step_name(self.pipeline.steps[-1])
        index, _ = self.pipeline.find(f"/{at.removeprefix('/')}")
        return step_name(self.pipeline.steps[index])

    def place_for(
        self, anchors: Sequence[type[Operation]], behind: str | None
    ) -> tuple[EditKind, str]:
        """Where a rule that looks at such ops has something to do: the edit but for its name.

        Args:
            anchors: the ops.
            behind: the step that the program is behind when it comes; None: ahead of all.
        """
        names = [step_name(step) for step in self.pipeline.steps]
        stages = stages_of(self.pipeline, self.target)
        dialects = {anchor.name.partition(".")[0] for anchor in anchors}
        met = stages.get("nodes") or stages.get("operators") or ""
        after = "" if dialects & {*TORCH_LEVELS} or not met else met
        if behind is not None and (not after or names.index(after) < names.index(behind)):
            after = behind
        return ("after", f"/{after}") if after else ("before", f"/{names[0]}")

    def rows(self, report: Report) -> list[dict[str, Any]]:
        """A row a step: its path, whether it is taken, what it did, and its parts."""
        records = {record.name: record for record in report.steps}
        events = [event.rewrite for event in report.events]
        off = {self.whole.find(path) for path in self.off}
        found: list[dict[str, Any]] = []
        for at, step in enumerate(self.whole.steps):
            name = step_name(step)
            record = records.get(name)
            counts = _taken(events, step, 0 if record is None else record.applied)
            found.append(
                {
                    "name": name,
                    "path": f"/{name}",
                    "off": (at, None) in off,
                    "passed": record is None,
                    "applied": 0 if record is None else record.applied,
                    "ms": 0 if record is None else round(record.seconds * 1e3, 1),
                    "ops": 0 if record is None else record.ops,
                    "parts": [
                        {
                            "name": step_name(part),
                            "path": f"{name}/{step_name(part)}",
                            "off": (at, number) in off,
                            "applied": counts[step_name(part)],
                        }
                        for number, part in enumerate(parts_of(step))
                    ],
                }
            )
        return found


def _taken(events: list[str], step: Step, applied: int) -> Counter[str]:
    """How often each rewrite of a step applied; its events are taken off the front."""
    names = {step_name(part) for part in parts_of(step)}
    if not names or not applied:
        return Counter()
    first = next((at for at, name in enumerate(events) if name in names), len(events))
    taken = events[first : first + applied]
    del events[: first + applied]
    return Counter(taken)


def command(
    model: str, target: str, options: Sequence[str], edits: Sequence[tuple[EditKind, str]]
) -> str:
    """The command that lowers so."""
    words = ["stepwell", "lower", model, "-t", target]
    for option in options:
        words += ["-O", option]
    for kind, said in edits:
        words += [f"--{kind}", said]
    return " ".join(word if _is_plain(word) else f"'{word}'" for word in words)


def _is_plain(word: str) -> bool:
    return all(letter.isalnum() or letter in "-_=/.+:," for letter in word)


def told(error: StepwellError) -> list[dict[str, str | None]]:
    """An error as a page shows it."""
    return [{"fact": p.fact, "where": p.where, "help": p.help} for p in error.problems]

"""Edit a pipeline, and represent its passes as rows of the playground's page."""

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
"""The dialects of an imported program."""


@dataclass(frozen=True)
class EditedPipeline:
    """A target's pipeline with the user's changes.

    Attributes:
        target: the target's name.
        whole: the pipeline, including the passes that are switched off.
        off: the paths of the passes that are switched off.
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
    ) -> EditedPipeline:
        """Return a target's pipeline with edits applied, which may name passes of `known`.

        Raises:
            StepwellError: an edit names an unknown pass.
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
        """Return the edited pipeline without the passes that are switched off."""
        return self.whole.without(*self.off)

    def step_of(self, at: str) -> str | None:
        """Return the last pass of a stage, or the pass with a name; None for the source program.

        Raises:
            StepwellError: the stage or pass does not exist.
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
        """Return the edit, without the rule's name, by which a rule for these ops is inserted where
        it applies.

        Args:
            anchors: the ops that the rule matches.
            behind: the last pass that ran on the program; None: no pass ran.
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
        """Return a row for each pass: its path, whether it runs, its applications, and its
        rewrites.
        """
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
    """Count the applications of each rewrite of a pass, and consume its events from the list."""
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
    """Return the command line that lowers with the same edits."""
    words = ["stepwell", "lower", model, "-t", target]
    for option in options:
        words += ["-O", option]
    for kind, said in edits:
        words += [f"--{kind}", said]
    return " ".join(word if _is_plain(word) else f"'{word}'" for word in words)


def _is_plain(word: str) -> bool:
    return all(letter.isalnum() or letter in "-_=/.+:," for letter in word)


def told(error: StepwellError) -> list[dict[str, str | None]]:
    """Return an error in the JSON form that the page shows."""
    return [{"fact": p.fact, "where": p.where, "help": p.help} for p in error.problems]

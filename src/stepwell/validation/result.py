"""What a check found: verdicts of steps and, where one is bad, the op and both values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from textwrap import wrap
from typing import TYPE_CHECKING

from stepwell.ir.declared.numerics import TakenDeviation
from stepwell.ir.platform.bar_charts import Plot, plot
from stepwell.ir.platform.dataframes import frame
from stepwell.ir.renderers import Shown

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Finding:
    """One place where a program stopped computing what it did.

    Attributes:
        step: the pipeline's step, `import`, `artifact`, or `verify`.
        rewrite: the rewrite that was applied, None where only the whole step is known.
        op, node, where: the op it was applied to: name, node name and source line in the model.
        sample: on which inputs.
        what: what differs, with both values.
        largest: the largest absolute difference.
        bound: what the step had promised.
        replacement: the text of the op that took its place.
    """

    step: str
    rewrite: str | None
    op: str | None
    node: str | None
    where: str | None
    sample: str
    what: str
    largest: float = 0.0
    bound: str = "exact"
    replacement: str | None = None

    def __str__(self) -> str:
        by = f"{self.rewrite} (step {self.step})" if self.rewrite else f"step {self.step}"
        lines = [f"{by}: {self.op or 'the outputs'}: {self.what}"]
        if self.where:
            lines.append(f"  at {self.where}")
        lines.append(f"  on sample: {self.sample}; promised: {self.bound}")
        if self.replacement:
            lines.append(f"  now: {self.replacement}")
        return "\n".join(lines)


@dataclass(frozen=True)
class StepVerdict:
    """One step, compared before and after.

    Attributes:
        name: the step's.
        applied: how many changes it made; 0 means that nothing was there to compare.
        bound: what it promises.
        samples: on how many samples all outputs were compared.
        applications: how many applications were compared one by one, at the values they replaced.
        deviation: the largest difference seen, relative to the largest value of its tensor.
        seconds: what interpreting and comparing took.
        ok: whether everything stayed within the bound.
        note: what could not be compared, and why.
    """

    name: str
    applied: int
    bound: str
    samples: int
    applications: int
    deviation: float
    seconds: float
    ok: bool
    note: str = ""

    @property
    def mark(self) -> str:
        """✗ where something differs, ✓ where something was compared and nothing differs, else ·."""
        if not self.ok:
            return "✗"
        return "✓" if self.samples or self.applications else "·"


@dataclass(frozen=True)
class CheckResult(Shown):
    """The outcome of a check. `ok` is the answer; `findings[0]` is where to look first."""

    target: str
    steps: tuple[StepVerdict, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...]
    seconds: float
    model: str = ""
    accuracy: str = ""
    """For a target with MX: the error of each layer in each payload, as a table."""
    tried: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """What each method was tried on: inputs, sizes, and states that they began from."""
    deviations: tuple[TakenDeviation, ...] = ()
    """Classes of numbers that the lowering may lose (`docs/semantics.md`): they are no findings."""

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.findings

    def __repr__(self) -> str:
        text = "every step keeps its promise" if self.ok else f"{len(self.findings)} findings"
        return f"<check of a lowering to {self.target}: {text}; print it>"

    def _tried(self) -> list[str]:
        """What each method was tried on, in lines."""
        return [
            line
            for method, labels in self.tried.items()
            for line in wrap(
                f"tried @{method} on {len(labels)} samples: " + "; ".join(labels),
                100,
                subsequent_indent="  ",
            )
        ]

    def to_frame(self) -> DataFrame:
        """Every step as a row of a dataframe."""
        names = [field.name for field in fields(StepVerdict)]
        return frame(names, [[getattr(step, name) for name in names] for step in self.steps])

    def plot(self) -> Plot:
        """How far each step that was compared moved a result, relative to its largest value."""
        rows = [(s.name, [float(f"{s.deviation:.3g}")]) for s in self.steps if s.mark != "·"]
        return plot(f"Lowering to {self.target}: deviation of each step", ("relative",), rows, True)

    def to_json(self) -> str:
        """Everything, as JSON."""
        return json.dumps({"ok": self.ok, **asdict(self)}, indent=1, default=str)

    def to_html(self) -> str:
        """One self-contained page."""
        return self.render("page")

    def __str__(self) -> str:
        return self.text()

    def text(self, verbose: bool = False) -> str:
        """The result as a table.

        Args:
            verbose: every step; else those that did something.
        """
        head = f"{'step':34} {'applied':>7} {'one by one':>10} {'samples':>7} {'deviation':>9} "
        rows = [f"{head}{'ms':>7}  promised"]
        shown = [step for step in self.steps if verbose or step.applied or not step.ok or step.note]
        for step in shown:
            rows.append(
                f"{step.mark} {step.name:32} {step.applied:7} "
                f"{step.applications:10} {step.samples:7} {step.deviation:9.1e} "
                f"{step.seconds * 1e3:7.0f}  {step.bound}" + (f"; {step.note}" if step.note else "")
            )
        if idle := len(self.steps) - len(shown):
            rows.append(f"· {idle} steps had nothing to do")
        rows += ["", *self._tried()]
        rows += [*(f"not compared: {line}" for line in self.skipped)]
        if self.ok:
            rows.append(f"{self.target}: every step keeps its promise ({self.seconds:.1f} s)")
        else:
            rows.append(f"{self.target}: {len(self.findings)} findings; the first:")
            rows.append(str(self.findings[0]))
        if self.deviations:
            rows += ["", "classes of numbers that may be lost, by the choice of numerics:"]
            rows += [f"  {d.rewrite}: {d.op}: {d.loses}" for d in self.deviations]
        if self.accuracy:
            rows += ["", "relative error of each layer in each MX payload:", self.accuracy]
        return "\n".join(rows)

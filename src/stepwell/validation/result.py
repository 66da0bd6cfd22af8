"""The result of a check: the verdict of each pass and, for a wrong pass, the op and both values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from textwrap import wrap
from typing import TYPE_CHECKING

from stepwell.ir.declared.numerics import TakenDeviation
from stepwell.ir.diagnostics import counted
from stepwell.ir.platform.bar_charts import Plot, plot
from stepwell.ir.platform.dataframes import frame
from stepwell.ir.renderers import Shown

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Finding:
    """A place where a pass changed what a program computes.

    Attributes:
        step: the pass, or `import`, `artifact` or `verify`.
        sample: the label of the inputs.
        what: the difference, with both values.
        largest: the largest absolute difference.
        bound: the bound that the pass declared.
        rewrite: the rewrite that was applied; None if only the pass is known.
        op, node, where: the rewritten op's name, and its node name and source line in the model.
        replacement: the text of the new op.
    """

    step: str
    sample: str
    what: str
    largest: float = 0.0
    bound: str = "exact"
    rewrite: str | None = None
    op: str | None = None
    node: str | None = None
    where: str | None = None
    replacement: str | None = None

    def __str__(self) -> str:
        by = f"{self.rewrite} (step {self.step})" if self.rewrite else f"step {self.step}"
        lines = [f"{by}: {self.op or 'the outputs'}: {self.what}"]
        if self.where:
            lines.append(f"  at {self.where}")
        lines.append(f"  on sample: {self.sample}; bound: {self.bound}")
        if self.replacement:
            lines.append(f"  now: {self.replacement}")
        return "\n".join(lines)


@dataclass(frozen=True)
class StepVerdict:
    """The verdict on one pass, from comparing the program before and after it.

    Attributes:
        name: the pass's name.
        applied: the number of its applications; 0 means that there was nothing to compare.
        bound: the declared error bound of the pass.
        samples: the number of samples on which all outputs were compared.
        applications: the number of applications that were compared at the values they replaced.
        deviation: the largest difference, relative to the largest value of its tensor.
        seconds: the time of interpretation and comparison.
        ok: whether all differences are within the bound.
        note: values that could not be compared, and why.
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
        """Return ✗ if a value differs, ✓ if values were compared and none differs, else ·."""
        if not self.ok:
            return "✗"
        return "✓" if self.samples or self.applications else "·"


@dataclass(frozen=True)
class CheckResult(Shown):
    """The outcome of a check. `ok` is the verdict; `findings[0]` is the first place to look at."""

    target: str
    steps: tuple[StepVerdict, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...]
    seconds: float
    model: str = ""
    accuracy: str = ""
    """For a target with MX: the error of each layer in each payload, as a table."""
    tried: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The samples of each method: inputs, sizes, and initial states."""
    deviations: tuple[TakenDeviation, ...] = ()
    """Classes of numbers that the lowering may lose (`docs/semantics.md`); these are no findings.
    """
    of_file: bool = False
    """Whether an artifact was compared with the program in it, without its model."""

    @property
    def ok(self) -> bool:
        """Whether the check found no difference."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """What was found, as a clause; of a file, what was not looked at, too."""
        if not self.ok:
            return counted(len(self.findings), "finding")
        if self.of_file:
            return (
                "the engine computes what the program in the file says; whether that is the "
                "model's function was not looked at (`stepwell validate` compares both)"
            )
        if self.steps and not any(step.mark == "✓" for step in self.steps):
            return "nothing was compared"
        return "every pass is within its error bound"

    def __repr__(self) -> str:
        return f"<check of a lowering to {self.target}: {self.verdict}; print it>"

    def _tried(self) -> list[str]:
        """Return lines of text that list the samples on which each method was checked."""
        return [
            line
            for method, labels in self.tried.items()
            for line in wrap(
                f"tried @{method} on {len(labels)} samples: " + "; ".join(labels),
                100,
                subsequent_indent="  ",
            )
        ]

    @property
    def left_out(self) -> list[str]:
        """Return what was not compared: each reason once, with the samples that have it."""
        found: dict[tuple[str, str], list[str]] = {}
        for line in self.skipped:
            what, _, rest = line.partition(" on ")
            label, _, reason = rest.partition(": ")
            found.setdefault((what, reason) if reason else (line, ""), []).append(label)
        return [
            f"{what} on {labels[0] if len(labels) == 1 else f'{len(labels)} samples'}: {reason}"
            if reason
            else what + (f"  (× {len(labels)})" if len(labels) > 1 else "")
            for (what, reason), labels in found.items()
        ]

    def to_frame(self) -> DataFrame:
        """Return a dataframe with a row for each pass."""
        names = [field.name for field in fields(StepVerdict)]
        return frame(names, [[getattr(step, name) for name in names] for step in self.steps])

    def plot(self) -> Plot:
        """Plot how far each compared pass changed a result, relative to its largest value."""
        rows = [(s.name, [float(f"{s.deviation:.3g}")]) for s in self.steps if s.mark != "·"]
        return plot(f"Lowering to {self.target}: deviation of each step", ("relative",), rows, True)

    def to_json(self) -> str:
        """Return the complete result as JSON."""
        return json.dumps({"ok": self.ok, **asdict(self)}, indent=1, default=str)

    def to_html(self) -> str:
        """Return the result as one self-contained HTML page."""
        return self.render("page")

    def __str__(self) -> str:
        return self.text()

    def text(self, verbose: bool = False) -> str:
        """Return the result as a table.

        Args:
            verbose: list every pass; otherwise only those that were applied.
        """
        head = f"{'step':34} {'applied':>7} {'compared':>10} {'samples':>7} {'deviation':>9} "
        rows = [f"{head}{'ms':>7}  bound"]
        shown = [step for step in self.steps if verbose or step.applied or not step.ok or step.note]
        for step in shown:
            rows.append(
                f"{step.mark} {step.name:32} {step.applied:7} "
                f"{step.applications:10} {step.samples:7} {step.deviation:9.1e} "
                f"{step.seconds * 1e3:7.0f}  {step.bound}" + (f"; {step.note}" if step.note else "")
            )
        if idle := len(self.steps) - len(shown):
            rows.append(f"· {counted(idle, 'pass')} had no effect")
        rows += ["", *self._tried()]
        rows += [f"not compared: {line}" for line in self.left_out]
        if self.ok:
            rows.append(f"{self.target}: {self.verdict} ({self.seconds:.1f} s)")
        else:
            rows.append(f"{self.target}: {self.verdict}; the first:")
            rows.append(str(self.findings[0]))
        if self.deviations:
            rows += ["", "classes of numbers that may be lost, by the choice of numerics:"]
            lost = Counter(f"  {d.rewrite}: {d.op}: {d.loses}" for d in self.deviations)
            rows += [line + (f"  (× {n})" if n > 1 else "") for line, n in lost.items()]
        if self.accuracy:
            rows += ["", "relative error of each layer in each MX payload:", self.accuracy]
        return "\n".join(rows)

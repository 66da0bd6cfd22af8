"""Explain a lowering: to which ops each op of a model was lowered, or why it was not.

An op is tracked by its location: rewrites copy it to the ops that they create, so the final ops
with the name of a model's op are the result of its lowering. The history of rewrites states which
rewrites were applied to the op. For an op that is left to a runtime kernel, its refusals state why.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from stepwell.backends.inventory import CLOSED, places
from stepwell.ir.context import statistics_lines
from stepwell.ir.diagnostics import counted
from stepwell.ir.options import OptionValue
from stepwell.ir.platform.bar_charts import Plot, plot
from stepwell.ir.platform.dataframes import frame
from stepwell.ir.program import Program
from stepwell.ir.renderers import Shown
from stepwell.lowering import Lowered, lower_as_far
from stepwell.program import from_exported_program
from stepwell.report.advice import Left, advice_lines
from stepwell.report.outcomes import Fate, fate_of, fates
from stepwell.targets.target import PipelineLike, Target
from stepwell.translate.rewrites.sizes.pin_symbolic_sizes import Sizes

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch.export import ExportedProgram


_PLACES = {
    "delegate": "in delegates",
    "kernel": "left to kernels",
    "backend": "on the backend",
    "split": "partly in a delegate",
    "folded": "folded into others",
}


@dataclass(frozen=True)
class Explanation(Shown):
    """A table of what became of every op of a model in a lowering, the costliest first."""

    target: str
    fates: tuple[Fate, ...]
    lowered: Lowered | None = None
    """The lowering; None for a given artifact."""
    only_outside: bool = False
    """Whether the table lists the ops alone that kernels run; shares are of the whole work."""

    @property
    def shown(self) -> tuple[Fate, ...]:
        """Return the ops that the table lists."""
        return self.outside if self.only_outside else self.fates

    def fate(self, node: str) -> Fate:
        """Return what became of the op of one node of the model."""
        return next(fate for fate in self.fates if fate.node == node)

    @property
    def outside(self) -> tuple[Fate, ...]:
        """Return the ops that the runtime's own kernels run, the costliest first."""
        return tuple(fate for fate in self.fates if fate.where in ("kernel", "split"))

    @property
    def left(self) -> tuple[tuple[Left, ...], int]:
        """Return the ops that the runtime's kernels run, and the work of the whole program, in the
        form that `report.advice` takes: those of the lowered program, as its report has them.
        """
        if self.lowered is not None:
            return self.lowered.report.left, self.lowered.report.work
        left = (Left(fate.op, fate.line, fate.cost, fate.why) for fate in self.outside)
        return tuple(left), sum(fate.cost for fate in self.fates)

    def __repr__(self) -> str:
        return f"<explanation of a lowering to {self.target}: {len(self.fates)} ops; print it>"

    def to_frame(self) -> DataFrame:
        """Return a dataframe with a row for each op of the model."""
        names = [field.name for field in fields(Fate)]
        return frame(names, [[getattr(fate, name) for name in names] for fate in self.fates])

    def plot(self) -> Plot:
        """Plot the percentage of the model's work in each delegate and in kernels."""
        total = sum(fate.cost for fate in self.fates) or 1
        work: Counter[str] = Counter()
        for fate in self.fates:
            work[fate.where] += fate.cost
        rows = [
            (_PLACES.get(where, where), [round(100 * cost / total, 2)])
            for where, cost in work.most_common()
        ]
        return plot(f"Where the work goes on {self.target}, in percent", ("% of the work",), rows)

    def to_json(self) -> str:
        """Return what became of every op of the model as JSON."""
        return json.dumps(
            {"target": self.target, "ops": [asdict(fate) for fate in self.fates]}, indent=1
        )

    def __str__(self) -> str:
        total = sum(fate.cost for fate in self.fates if fate.op not in CLOSED) or 1
        counts = Counter(fate.where.split(" ")[0] for fate in self.fates)
        shown = self.shown
        closed = sorted({fate.op for fate in self.fates} & CLOSED)
        left, work = self.left
        names = [fate.op if fate.op == fate.node else f"{fate.op} {fate.node}" for fate in shown]
        head = ("op of the model" if self.lowered else "op", "line", "where")
        wide = max(map(len, (*names, head[0])))
        lines = max((len(at) + 2 for fate in shown if (at := fate.line or fate.path)), default=0)

        def row(work: str, name: str, line: str, where: str, became: str) -> str:
            at = f"  {line}"[:lines]
            return f"{work:>6}  {name:{wide}}{at:{lines}}  {where:10}  {became}".rstrip()

        traced = any(fate.became or fate.into for fate in shown)
        rows = [
            f"{counted(len(self.fates), 'op')} {'to' if self.lowered else 'in'} {self.target}: "
            + ", ".join(f"{n} {_PLACES.get(where, where)}" for where, n in counts.most_common()),
            *(["", *advice_lines(left, work)] if left and not closed else []),
            *(f"the work in {name} is not known; shares are of the other ops" for name in closed),
            *(["", row("work", *head, "became" if traced else "")] if shown else []),
        ]
        for fate, name in zip(shown, names, strict=True):
            became = _spelled(fate.became) or (f"into {fate.into}" if fate.into else "")
            by = f"  [{', '.join(fate.by)}]" if fate.by else ""
            share = "?" if fate.op in CLOSED else f"{fate.cost / total:.1%}"
            rows.append(row(share, name, fate.line or fate.path or "", fate.where, became + by))
            rows += [f"{'':{wide + lines + 22}}{reason}" for reason in fate.why]
        if self.lowered is not None and self.lowered.report.statistics:
            rows += ["", *statistics_lines(self.lowered.report.statistics)]
        return "\n".join(rows)


def explain(
    program: Program | ExportedProgram | Mapping[str, ExportedProgram],
    target: str,
    pipeline: PipelineLike | None = None,
    *,
    sizes: Sizes | None = None,
    check: bool = False,
    **options: OptionValue,
) -> Explanation:
    """Lower a program, and return what became of each of its ops.

    Args:
        program, target, pipeline, sizes, check, options: as for `stepwell.lower`, which does not
            change the program.
    """
    source = program if isinstance(program, Program) else from_exported_program(program)
    given: dict[str, Any] = {**options}
    lowered = lower_as_far(source, target, pipeline, sizes=sizes, check=check, **given)
    if source.level != "aten" and not lowered.report.events:
        return replace(explain_artifact(lowered.program, target, lowered.target), lowered=lowered)
    return Explanation(
        target, tuple(fates(source, lowered.program, lowered.target, lowered.report)), lowered
    )


def explain_artifact(program: Program, name: str, target: Target) -> Explanation:
    """Return where each op of an artifact runs: in which delegate, or in a kernel.

    Args:
        program: the program that was read from the artifact.
        name: the file's name.
        target: the target whose engine runs the artifact.
    """
    found = (
        fate_of(op, method, place) for method, op, place in places(program, target.outside(program))
    )
    return Explanation(name, tuple(sorted(found, key=lambda fate: -fate.cost)))


def _spelled(names: tuple[str, ...]) -> str:
    return ", ".join(f"{name}×{n}" if n > 1 else name for name, n in Counter(names).items())

"""The report of a lowering; `str(report)` is a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from stepwell.ir.context import statistics_lines
from stepwell.ir.declared.numerics import Numerics, TakenDeviation
from stepwell.ir.diagnostics import counted
from stepwell.ir.platform.bar_charts import Plot, plot
from stepwell.ir.platform.dataframes import frame
from stepwell.ir.renderers import Shown
from stepwell.ir.rewriting.failures import MISTAKE, SWITCH
from stepwell.ir.rewriting.history import Event, RefusalRecord
from stepwell.ir.rewriting.pipeline import StepRecord
from stepwell.report.advice import Advice, Left, advice_lines, advise
from stepwell.report.hints import Hint

if TYPE_CHECKING:
    from pandas import DataFrame


_PACKED = "memory     {:.1f} MB of packed weights, of {:.1f} MB: each node packs what it reads"
_CUT = ", {} of them split off to save memory on loading (optimize='speed': none)"


class CheckedSteps(Protocol):
    """The protocol of a check result, which `CheckResult` of `stepwell.validation` implements."""

    @property
    def ok(self) -> bool: ...
    @property
    def steps(self) -> Sequence[Any]: ...
    @property
    def findings(self) -> Sequence[Any]: ...


@dataclass(frozen=True)
class Report(Shown):
    """The outcome of a lowering by `stepwell.lower`.

    Attributes:
        target: the name of the target.
        delegates: the number of subgraphs that a backend runs as a whole.
        cuts: the number of delegates that directly follow another one and were split from it.
            XNNPACK then packs the weights of one after the other, which takes less memory
            (`optimize`).
        packed: the bytes of weights that XNNPACK packs on loading, once for each node that reads
            one, and the bytes of the distinct weights.
        outside: the counts by op name of the ops that the runtime's own kernels run.
        refusals: each rewrite that matched an op but did not apply, with the reason.
        steps: the pipeline's passes with applications, seconds and ops left.
        events: every application of a rewrite, in order.
        seconds: wall time of verification and rewriting, without emission.
        numerics: the contract for special values that was kept (`docs/semantics.md`).
        ranges: the declared minimum and maximum of inputs, which calls must respect.
        deviations: each class of special values that may be lost, and where.
        engine_losses: the families of CPUs, by node, on which its kernel returns another result
            than PyTorch for a NaN, an infinity or a large number (`docs/special_values.md`).
        check: the result of `lower(..., check=True)`.
        left: the ops that are left to the runtime's own kernels, with their refusals.
        work: the cost of the whole program, in the units of `left` (`costs.operations`); 0 if
            `left` is empty.
        hints: options that would make the program faster, by the cost model.
        estimates: the estimate of each delegate by the NPU's compiler: cycles, memory, board.
        statistics: the statistics of passes, by name of the pass or rewrite and of the statistic.
    """

    target: str
    delegates: int
    outside: Counter[str]
    refusals: tuple[RefusalRecord, ...]
    steps: tuple[StepRecord, ...]
    seconds: float
    events: tuple[Event, ...] = field(default=(), repr=False)
    numerics: Numerics = "torch"
    deviations: tuple[TakenDeviation, ...] = ()
    engine_losses: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    check: CheckedSteps | None = field(default=None, repr=False)
    left: tuple[Left, ...] = field(default=(), repr=False)
    work: int = 0
    cuts: int = 0
    packed: tuple[int, int] = (0, 0)
    hints: tuple[Hint, ...] = ()
    ranges: Mapping[str | int, tuple[float, float]] = field(
        default_factory=dict[str | int, tuple[float, float]]
    )
    estimates: tuple[Any, ...] = ()
    statistics: Mapping[str, Mapping[str, int]] = field(
        default_factory=dict[str, Mapping[str, int]]
    )

    def __repr__(self) -> str:
        return f"<report of a lowering to {self.target}: print it, or .text(verbose=True)>"

    def __str__(self) -> str:
        return self.text()

    @property
    def stages(self) -> int:
        """Return the number of delegates that the data flow requires, without splits for memory."""
        return self.delegates - self.cuts

    @property
    def advice(self) -> list[Advice]:
        """Return the model changes that leave fewer ops to kernels, the costliest first."""
        return advise(self.left, self.work)

    @property
    def figures(self) -> dict[str, Any]:
        """Return the report as plain data, without the history of applications and the check."""
        return {
            "target": self.target,
            "delegates": self.delegates,
            "cuts": self.cuts,
            "packed": self.packed[0],
            "outside": dict(self.outside),
            "estimates": self.estimates,
            "seconds": self.seconds,
            "numerics": self.numerics,
            "ranges": dict(self.ranges),
            "steps": self.steps,
            "refusals": self.refusals,
            "deviations": self.deviations,
            "engine_losses": dict(self.engine_losses),
            "statistics": {name: dict(counts) for name, counts in self.statistics.items()},
            "advice": self.advice,
            "hints": self.hints,
            "checked": len(self.check.steps) if self.check else 0,
        }

    def to_frame(self) -> DataFrame:
        """Return the passes as a dataframe: applications, ops left, seconds."""
        rows = [(s.name, s.applied, s.ops, s.seconds) for s in self.steps]
        return frame(("step", "applied", "ops after", "seconds"), rows)

    def plot(self) -> Plot:
        """Plot the milliseconds of each pass that was applied."""
        rows = [(s.name, [round(s.seconds * 1e3, 2)]) for s in self.steps if s.applied]
        return plot(f"Lowering to {self.target}: milliseconds a step", ("ms",), rows)

    def text(self, verbose: bool = False) -> str:
        """Return the report as text: model changes to make, then applications and refusals.

        Args:
            verbose: list every pass and every refusal with its place. Otherwise list the passes
                that were applied, and each distinct refusal once with the number of ops.
        """
        listed = ", ".join(f"{name} × {count}" for name, count in self.outside.most_common())
        rows = [
            f"target     {self.target}",
            f"delegates  {self.delegates}" + (_CUT.format(self.cuts) if self.cuts else ""),
            f"outside    {counted(self.outside.total(), 'op')}" + (f": {listed}" if listed else ""),
            *([_PACKED.format(*(size / 1e6 for size in self.packed))] * self._packs_copies),
            *(f"estimate   {estimate}" for estimate in self.estimates),
            f"seconds    {self.seconds:.3f}",
            f"numerics   {self.numerics}",
            *(f"input      {name}: {low} to {high}" for name, (low, high) in self.ranges.items()),
            *(f"hint       {hint}" for hint in self.hints),
            *self._engines(),
            *([f"checked    {counted(len(self.check.steps), 'pass')}"] if self.check else []),
            *self._mistakes(),
            "",
            *advice_lines(self.left, self.work),
            *([""] if self.left else []),
        ]
        shown = [step for step in self.steps if verbose or step.applied]
        rows += [f"{'step':36} {'applied':>8} {'ops after':>10} {'ms':>9}"] * bool(self.steps)
        rows += [
            f"{step.name:36} {step.applied:8} {step.ops:10} {step.seconds * 1e3:9.2f}"
            for step in shown
        ]
        if idle := len(self.steps) - len(shown):
            took = sum(step.seconds for step in self.steps if not step.applied) * 1e3
            without = f"{counted(idle, 'pass')} had no effect"
            rows.append(f"{without:36} {'':8} {'':10} {took:9.2f}")
        if self.statistics:
            rows += ["", *statistics_lines(self.statistics)]
        if self.numerics == "finite" and self.deviations:
            rows += ["", "kept for finite activations only:"]
            rows += [
                f"  {d.rewrite}: {d.op}: {d.loses}" + (f"  ({d.where})" if d.where else "")
                for d in self.deviations
            ]
        if self.refusals:
            rows += ["", "refused:"]
            rows += self._every_refusal() if verbose else self._refusals_once()
        return "\n".join(rows)

    @property
    def _packs_copies(self) -> bool:
        """Whether nodes that share weights take more than twice their memory."""
        packed, distinct = self.packed
        return packed > max(2 * distinct, 1e6)

    def _engines(self) -> list[str]:
        """Return which nodes treat special values differently from PyTorch, and on which CPUs."""
        nodes: dict[tuple[str, ...], list[str]] = {}
        for node, engines in self.engine_losses.items():
            nodes.setdefault(engines, []).append(node)
        return [
            f"engine     other special values on {', '.join(on)}: {', '.join(each)}"
            for on, each in nodes.items()
        ]

    def _mistakes(self) -> list[str]:
        """Return lines about passes that failed, and how to see the failures."""
        count = sum(r.reason.startswith(MISTAKE) for r in self.refusals)
        if not count:
            return []
        return [f"mistakes   {count} of steps, see refused; {SWITCH}=raise makes them errors"]

    def _every_refusal(self) -> list[str]:
        return [
            f"  {r.rewrite}: {r.op}: {r.reason}" + (f"  ({r.where})" if r.where else "")
            for r in self.refusals
        ]

    def _refusals_once(self) -> list[str]:
        """Return each distinct refusal with its op and count, the most frequent first."""
        counted = Counter((r.rewrite, r.op, r.reason) for r in self.refusals)
        return [
            f"  {rewrite}: {op}: {reason}" + (f"  (× {count})" if count > 1 else "")
            for (rewrite, op, reason), count in counted.most_common()
        ]

"""Translation validation of each application of a rewrite at the values that it replaces.

When a rewrite replaces a value, the new value is computed from the recorded values of its inputs
and compared with the recorded old one. A wrong rewrite is thus found at the op that it rewrote,
even if little of the error reaches the outputs, and only the new ops are evaluated.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from xdsl.ir import Operation, SSAValue

from stepwell.ir.diagnostics import StepwellError, describe_value, op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Event, History, Rewrite, Rewriter
from stepwell.ir.syntax.text import to_text
from stepwell.validation.compare import UNDERIVED, describe_bound, deviation, differs
from stepwell.validation.derived import Sides
from stepwell.validation.engine_trials import engine_losses
from stepwell.validation.error_rules import NoErrorRule
from stepwell.validation.recording import NotRecorded, Recording
from stepwell.validation.result import Finding

ONE_ROUNDING = Bound(2**-23, reason="a rounding")
NEAR = 3
"""How many ops after its anchor a rewrite may replace values: clamps and a cast."""
MOST_FINDINGS = 20
"""Findings kept per pass; one fault in a rewrite often appears at every application."""


Derived = Callable[[str, Bound, Any, Any, Any], None]
"""Called with a derived bound: the sample, the declared bound with the allowance for the actual
magnitudes, both values, and the derived bound; None if no difference is allowed.
"""


@dataclass
class Watcher:
    """An observer of rewrites that compares each replaced value with the new one, on every recorded
    run.
    """

    program: Program
    history: History
    recordings: dict[str, list[Recording]]
    """The recordings of each method."""
    step: str = ""
    findings: list[Finding] = field(default_factory=list[Finding])
    compared: int = 0
    """The number of applications of which at least one value was compared."""
    not_compared: int = 0
    """The number of applications whose replacement has another type, or cannot be evaluated where
    it is.
    """
    trusted: bool = True
    """Whether every application whose bound applies only to the replaced value was compared there.
    """
    largest: float = 0.0
    bounds: list[Bound] = field(default_factory=list[Bound])
    """The bound of every application, in order."""
    underived: list[str] = field(default_factory=list[str])
    """The reasons why bounds of some applications could not be derived."""
    derived: Derived | None = None
    """Called for every bound; without it, one is derived only if a rounding does not suffice."""
    engines: Sequence[str] = ()
    """The families of CPUs whose special values each application is tried on."""
    promised: dict[int, Bound] = field(default_factory=dict[int, Bound])
    """The bound of the current application for each recording (by identity)."""

    @property
    def _runs(self) -> list[Recording]:
        return [run for runs in self.recordings.values() for run in runs]

    def before(self, rewrite: Rewrite[Any], op: Operation, match: Any) -> None:
        """Evaluate the results of an op that a rewrite is about to replace, while its operands
        still exist.
        """
        self.promised.clear()
        for recording in self._runs:
            with suppress(NotRecorded):
                self.promised[id(recording)] = rewrite.bound_at(match, recording.value)
            if op in recording.stale:
                _refresh(recording, op)
            for result in op.results if recording.sample.state else ():
                # This must happen while its operands still exist.
                recording.has_history(result)

    def after(self, rewrite: Rewrite[Any], rewriter: Rewriter) -> None:
        """Compare the replaced values with the new ones after an application of a rewrite."""
        units = (bound.units for bound in self.promised.values())
        self.bounds.append(replace(rewrite.bound, units=max(units, default=rewrite.bound.units)))
        event, fresh = self.history.events[-1], set(rewriter.inserted)
        looked = False
        for recording in self._runs:
            sides = Sides(fresh, rewriter.gone, recording, self.program.weights)
            here = _Application(self, rewrite, rewriter, event, recording, sides)
            for value in rewriter.superseded:
                recording.invalidate(value)
            looked |= here.modified()
            looked |= here.replaced()
        if self.engines and not self._is_declared(rewrite, event):
            self._on_engines(rewrite, rewriter, event)
        self.trusted &= looked or not rewrite.bound.is_local
        self.compared += looked
        # An erased assertion has no value to compare, and changes none.
        self.not_compared += not looked and bool(rewriter.replaced or rewriter.modified)

    def _is_declared(self, rewrite: Rewrite[Any], event: Event) -> bool:
        """Whether the rewrite declared that this application loses NaN, infinities or signed
        zeros.
        """
        found = self.history.deviations
        return any((d.rewrite, d.op, d.node) == (rewrite.name, *event.root) for d in found)

    def _on_engines(self, rewrite: Rewrite[Any], rewriter: Rewriter, event: Event) -> None:
        """Try the application on special values, with the new nodes behaving as on each engine."""
        names = (event.root[0], *(name for name, _ in rewriter.erased))
        bound = "the classes of PyTorch's numbers"
        for recording in self._runs[:1]:
            program, engines = self.program, self.engines
            for new, lost in engine_losses(program, recording, rewriter, names, engines):
                sample = lost.operands or recording.sample.label
                self.add(rewrite, event, new, sample, str(lost), math.inf, bound)

    def add(
        self,
        rewrite: Rewrite[Any],
        event: Event,
        value: SSAValue,
        sample: str,
        what: str,
        largest: float,
        bound: str,
    ) -> None:
        """Record a finding: the new value differs from the one that it replaced."""
        if len(self.findings) < MOST_FINDINGS:
            place = (*event.root, event.where, _definition(value))
            found = Finding(self.step, sample, what, largest, bound, rewrite.name, *place)
            self.findings.append(found)


@dataclass
class _Application:
    """The comparison of one application of a rewrite on one recorded run."""

    watcher: Watcher
    rewrite: Rewrite[Any]
    rewriter: Rewriter
    event: Event
    recording: Recording
    sides: Sides

    def replaced(self) -> bool:
        """Compare an application's replaced values with the new ones; return whether any could be
        compared.
        """
        recording, looked = self.recording, False
        for old, new in self.rewriter.replaced:
            if old.type != new.type or old not in recording.values:
                continue
            held, is_known = recording.values[old], not recording.has_history(old)
            if is_known and self.rewrite.bound.exact:
                recording.values[new] = held
                looked = True
                continue
            try:
                value = recording.value(new)
            except NotRecorded:
                continue
            except StepwellError as error:
                self._failed(new, error)
                continue
            looked = True
            if not is_known:
                self._compare(held, value, new, old)
            if differs(held, value, EXACT) is not None:
                recording.invalidate(new)
        return looked

    def modified(self) -> bool:
        """Update ops that were changed in place: values stay unless an operand was replaced."""
        recording, looked = self.recording, False
        taking_over = {new for _, new in self.rewriter.replaced}
        for op in self.rewriter.modified:
            held = [recording.values.get(result, _MISSING) for result in op.results]
            if op.parent is None or not held or any(value is _MISSING for value in held):
                continue
            try:
                values = recording.evaluate(op)
            except NotRecorded:
                continue
            except StepwellError as error:
                self._failed(op.results[0], error)
                continue
            looked = True
            for result, old, new in zip(op.results, held, values, strict=True):
                if result not in taking_over:
                    self._compare(old, new, result)
                recording.values[result] = new
                if differs(old, new, EXACT) is not None:
                    recording.invalidate(result)
        return looked

    def _compare(self, old: Any, new: Any, value: SSAValue, of: SSAValue | None = None) -> None:
        """Compare the runtime value of the replaced value `of` with that of `value`."""
        watcher, bound = self.watcher, self.watcher.promised.get(id(self.recording))
        if bound is None or not (bound.exact or self.recording.sample.plain):
            return
        watcher.largest = max(watcher.largest, deviation(old, new))
        if bound.derived:
            bound = self._derived(bound, old, new, of, value)
        difference = differs(old, new, bound, against="slice")
        if difference is not None:
            self._add(value, str(difference), difference.largest)

    def _derived(
        self, stated: Bound, old: Any, new: Any, of: SSAValue | None, value: SSAValue
    ) -> Bound:
        """Return the error bound derived for a replaced value, or the bound of one rounding if that
        suffices.
        """
        watcher = self.watcher
        if watcher.derived is None and differs(old, new, ONE_ROUNDING) is None:
            return ONE_ROUNDING
        try:
            if of is None:
                raise NoErrorRule("an op that was changed in place")
            allowance = self.sides.tolerance(of, value)
        except (NoErrorRule, NotRecorded) as error:
            watcher.underived.append(str(error))
            return replace(UNDERIVED, reason=stated.reason)
        if watcher.derived is not None:
            watcher.derived(self.recording.sample.label, stated, old, new, allowance)
        return replace(stated, relative=0.0, absolute=0.0, allowance=allowance)

    def _failed(self, value: SSAValue, error: StepwellError) -> None:
        fact = f"the replacement fails where the original did not: {error.problems[0].fact}"
        self._add(value, fact, math.inf)

    def _add(self, value: SSAValue, what: str, largest: float) -> None:
        bound = self.watcher.promised.get(id(self.recording), self.rewrite.bound)
        sample, said = self.recording.sample.label, describe_bound(bound)
        self.watcher.add(self.rewrite, self.event, value, sample, what, largest, said)


_MISSING: Any = object()


def _refresh(recording: Recording, op: Operation, further: int = NEAR) -> None:
    """Evaluate a stale op and its users again: quantization after a layer may be replaced."""
    with suppress(NotRecorded, StepwellError):
        for result in op.results:
            recording.value(result)
            for use in [*result.uses] if further else ():
                if use.operation in recording.stale:
                    _refresh(recording, use.operation, further - 1)


def _definition(value: SSAValue) -> str:
    """Return the text of the op that computes a value, with the new ops around it."""
    owner = value.owner
    if isinstance(owner, Operation):
        text = to_text(owner).strip()
        return text if len(text) < 2000 else f"{op_name(owner)} …"
    return describe_value(value)

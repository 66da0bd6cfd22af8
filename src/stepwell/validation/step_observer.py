"""Translation validation of each application of a rewrite at the values that it replaces.

When a rewrite replaces a value, the new value is computed from the recorded values of its inputs
and compared with the recorded old one. A wrong rewrite is thus found at the op that it rewrote,
even if little of the error reaches the outputs, and only the new ops are evaluated.
"""

from __future__ import annotations

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
from stepwell.validation.compare import deviation, differs
from stepwell.validation.derived import Sides
from stepwell.validation.engine_trials import engine_losses
from stepwell.validation.error_rules import NoErrorRule
from stepwell.validation.recording import NotRecorded, Recording
from stepwell.validation.result import Finding

ONE_ROUNDING = Bound(2**-23, reason="a rounding")
UNDERIVED = Bound(2e-5, 1e-5)
"""The bound where an operator's rounding errors are unknown."""
NEAR = 3
"""How many ops after its anchor a rewrite may replace values: clamps and a cast."""
MOST_FINDINGS = 20
"""Findings kept per pass; one fault in a rewrite often appears at every application."""


@dataclass(frozen=True)
class Margin:
    """The margin of one replaced value to its bounds.

    Attributes:
        stated: the declared bound, with the allowance for the actual magnitudes.
        allowance: the derived bound; None if no difference is allowed.
    """

    sample: str
    stated: Bound
    old: Any
    new: Any
    allowance: Any


@dataclass
class Watcher:
    """An observer of a history that compares each replaced value on every recording."""

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
    margins: list[Margin] | None = None
    """If it is a list, every bound is derived, and its margin and that of the declared bound are
    added.
    """
    engines: Sequence[str] = ()
    """The families of CPUs whose special values each application is tried on."""
    _promised: dict[int, Bound] = field(default_factory=dict[int, Bound])
    """The bound of the current application for each recording (by identity)."""
    _sides: dict[int, Sides] = field(default_factory=dict[int, Sides])
    """The two sides of the current application, by recording."""

    def before(self, rewrite: Rewrite[Any], op: Operation, match: Any) -> None:
        """Update the values of the op while its operands still exist."""
        self._promised.clear()
        for recordings in self.recordings.values():
            for recording in recordings:
                with suppress(NotRecorded):
                    self._promised[id(recording)] = rewrite.bound_at(match, recording.value)
                if op in recording.stale:
                    _refresh(recording, op)
                for result in op.results if recording.sample.state else ():
                    # This must happen while its operands still exist.
                    recording.has_history(result)

    def after(self, rewrite: Rewrite[Any], rewriter: Rewriter) -> None:
        """Check one application."""
        units = (bound.units for bound in self._promised.values())
        self.bounds.append(replace(rewrite.bound, units=max(units, default=rewrite.bound.units)))
        event = self.history.events[-1]
        looked = False
        fresh = set(rewriter.inserted)
        weights = self.program.weights
        for recordings in self.recordings.values():
            for recording in recordings:
                self._sides[id(recording)] = Sides(fresh, rewriter.gone, recording, weights)
                for value in rewriter.superseded:
                    recording.invalidate(value)
                looked |= self._modified(recording, rewrite, rewriter, event)
                looked |= self._replaced(recording, rewrite, rewriter, event)
        self._sides.clear()
        if self.engines and not self._is_declared(rewrite, event):
            self._on_engines(rewrite, rewriter, event)
        self.trusted &= looked or not rewrite.bound.is_local
        self.compared += looked
        # An erased assertion has no value to compare, and changes none.
        self.not_compared += not looked and bool(rewriter.replaced or rewriter.modified)

    def _is_declared(self, rewrite: Rewrite[Any], event: Event) -> bool:
        """Whether the rewrite declared that this application loses special values."""
        found = self.history.deviations
        return any((d.rewrite, d.op, d.node) == (rewrite.name, *event.root) for d in found)

    def _on_engines(self, rewrite: Rewrite[Any], rewriter: Rewriter, event: Event) -> None:
        """Try the application on special values, as each engine treats its new nodes."""
        names = (event.root[0], *(name for name, _ in rewriter.erased))
        for recording in [run for runs in self.recordings.values() for run in runs][:1]:
            program, engines = self.program, self.engines
            for new, lost in engine_losses(program, recording, rewriter, names, engines):
                self._add(recording, rewrite, event, new, str(lost), math.inf, lost.operands)

    def _replaced(
        self, recording: Recording, rewrite: Rewrite[Any], rewriter: Rewriter, event: Event
    ) -> bool:
        looked = False
        for old, new in rewriter.replaced:
            if old.type == new.type and old in recording.values:
                is_known = not recording.has_history(old)
                if is_known and rewrite.bound.exact:
                    recording.values[new] = recording.values[old]
                    looked = True
                    continue
                try:
                    value = recording.value(new)
                except NotRecorded:
                    continue
                except StepwellError as error:
                    self._failed(recording, rewrite, event, new, error)
                    continue
                looked = True
                held = recording.values[old]
                if not is_known:
                    self._compare(recording, rewrite, event, held, value, new, old)
                if differs(held, value, EXACT) is not None:
                    recording.invalidate(new)
        return looked

    def _modified(
        self, recording: Recording, rewrite: Rewrite[Any], rewriter: Rewriter, event: Event
    ) -> bool:
        """Update ops that were changed in place: they keep their values, unless an operand was
        replaced.
        """
        looked = False
        taking_over = {new for _, new in rewriter.replaced}
        for op in rewriter.modified:
            held = [recording.values.get(result, _MISSING) for result in op.results]
            if op.parent is None or not held or any(value is _MISSING for value in held):
                continue
            try:
                values = recording.evaluate(op)
            except NotRecorded:
                continue
            except StepwellError as error:
                self._failed(recording, rewrite, event, op.results[0], error)
                continue
            looked = True
            for result, old, new in zip(op.results, held, values, strict=True):
                if result not in taking_over:
                    self._compare(recording, rewrite, event, old, new, result)
                recording.values[result] = new
                if differs(old, new, EXACT) is not None:
                    recording.invalidate(result)
        return looked

    def _compare(
        self,
        recording: Recording,
        rewrite: Rewrite[Any],
        event: Event,
        old: Any,
        new: Any,
        value: SSAValue,
        of: SSAValue | None = None,
    ) -> None:
        """Compare two runtime values: that of the replaced value `of`, and that of `value`."""
        bound = self._promised.get(id(recording))
        if bound is None or not (bound.exact or recording.sample.plain):
            return
        self.largest = max(self.largest, deviation(old, new))
        if bound.derived:
            bound = self._derived(recording, bound, old, new, of, value)
        difference = differs(old, new, bound, against="slice")
        if difference is not None:
            self._add(recording, rewrite, event, value, str(difference), difference.largest)

    def _derived(
        self,
        recording: Recording,
        stated: Bound,
        old: Any,
        new: Any,
        of: SSAValue | None,
        value: SSAValue,
    ) -> Bound:
        """Return the derived bound; that of a single rounding if it suffices, since any other is
        wider.
        """
        if self.margins is None and differs(old, new, ONE_ROUNDING) is None:
            return ONE_ROUNDING
        try:
            if of is None:
                raise NoErrorRule("an op that was changed in place")
            allowance = self._sides[id(recording)].tolerance(of, value)
        except (NoErrorRule, NotRecorded) as error:
            self.underived.append(str(error))
            return replace(UNDERIVED, reason=stated.reason)
        if self.margins is not None:
            self.margins.append(Margin(recording.sample.label, stated, old, new, allowance))
        return replace(stated, relative=0.0, absolute=0.0, allowance=allowance)

    def _failed(
        self,
        recording: Recording,
        rewrite: Rewrite[Any],
        event: Event,
        value: SSAValue,
        error: StepwellError,
    ) -> None:
        fact = f"the replacement fails where the original did not: {error.problems[0].fact}"
        self._add(recording, rewrite, event, value, fact, float("inf"))

    def _add(
        self,
        recording: Recording,
        rewrite: Rewrite[Any],
        event: Event,
        value: SSAValue,
        what: str,
        largest: float,
        sample: str | None = None,
    ) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(
                Finding(
                    step=self.step,
                    rewrite=rewrite.name,
                    op=event.root[0],
                    node=event.root[1],
                    where=event.where,
                    sample=sample or recording.sample.label,
                    what=what,
                    largest=largest,
                    bound=describe_bound(self._promised.get(id(recording), rewrite.bound))
                    if sample is None
                    else "the classes of PyTorch's numbers",
                    replacement=_definition(value),
                )
            )


_MISSING: Any = object()


def _refresh(recording: Recording, op: Operation, further: int = NEAR) -> None:
    """Evaluate a stale op and its users: a rewrite of a layer also replaces the quantization after
    it.
    """
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


def describe_bound(bound: Bound, spelled: Callable[[float], str] = "{:g}".format) -> str:
    """Return `exact`, `1 unit of its scale (why)`, or `2e-05 relative + 1e-05 absolute (why)`."""
    if bound.exact:
        return "exact"
    parts = [f"{spelled(bound.relative)} relative" if bound.relative else ""]
    parts.append(f"{spelled(bound.absolute)} absolute" if bound.absolute else "")
    parts += [
        f"{spelled(factor)} of {' + '.join(f'|{n}|' for n in names)}"
        for factor, names in bound.magnitudes
    ]
    if bound.derived and not any(parts):
        parts.append("the rounding errors of both sides")
    if bound.units:
        parts.append(f"{bound.units} unit{'s' * (bound.units > 1)} of its scale")
    parts.append("derived from the actual values" if bound.varies else "")
    why = f" ({bound.reason})" if bound.reason else ""
    return " + ".join(part for part in parts if part) + why


def total_bound(bounds: Sequence[Bound]) -> Bound:
    """Return the bound of a pass for an output: each application's bound once.

    Units are not added: `units` and `varies` state that an application has them. The outputs must
    then be compared with the recording that followed each application.
    """
    return Bound(
        sum(b.relative for b in bounds if not b.derived),
        sum(b.absolute for b in bounds if not b.derived),
        ", ".join(sorted({b.reason for b in bounds if b.reason})),
        max((b.units for b in bounds), default=0),
        any(b.varies for b in bounds),
        derived=any(b.derived for b in bounds),
    )


def tolerated(bounds: Sequence[Bound]) -> Bound:
    """Return the numeric bound of outputs if each derived bound was checked at its own value."""
    held = [UNDERIVED if bound.derived else bound for bound in bounds]
    return replace(total_bound(held), units=0, varies=False)

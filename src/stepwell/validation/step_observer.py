"""Each application of a rewrite, checked where it happens.

When a rewrite replaces a value, the new value is computed from the recorded values of its inputs
and compared with the recorded old one. So a wrong rewrite is caught at the op it was applied to,
however little of the fault reaches the outputs, and only the new ops are evaluated.
"""

from __future__ import annotations

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
from stepwell.validation.error_rules import NoErrorRule
from stepwell.validation.recording import NotRecorded, Recording
from stepwell.validation.result import Finding

ONE_ROUNDING = Bound(2**-23, reason="a rounding")
UNDERIVED = Bound(2e-5, 1e-5)
"""What is asked for where an operator's roundings are not known."""
NEAR = 3
"""How many ops behind its anchor the values are that a rewrite may replace: clamps and a cast."""
MOST_FINDINGS = 20
"""Findings kept per step; one fault in a rewrite often shows at every application."""


@dataclass(frozen=True)
class Margin:
    """What one value that was replaced leaves of its bounds.

    Attributes:
        stated: with the allowance of the magnitudes at hand.
        allowance: what was derived; None for nothing at all.
    """

    sample: str
    stated: Bound
    old: Any
    new: Any
    allowance: Any


@dataclass
class Watcher:
    """A history's watch: compares each replaced value on every recording."""

    program: Program
    history: History
    recordings: dict[str, list[Recording]]
    """By method."""
    step: str = ""
    findings: list[Finding] = field(default_factory=list[Finding])
    compared: int = 0
    """Applications of which at least one value was compared."""
    not_compared: int = 0
    """Applications whose replacement has another type, or cannot be evaluated where it stands."""
    trusted: bool = True
    """Whether every application whose bound holds at the replaced value only was compared there."""
    largest: float = 0.0
    bounds: list[Bound] = field(default_factory=list[Bound])
    """The bound of every application, in order."""
    underived: list[str] = field(default_factory=list[str])
    """Why bounds of some applications could not be derived."""
    margins: list[Margin] | None = None
    """Where a list stands, every bound is derived, and what it and the stated one leave is told."""
    _promised: dict[int, Bound] = field(default_factory=dict[int, Bound])
    """What the application at hand may do to each recording (by identity)."""
    _sides: dict[int, Sides] = field(default_factory=dict[int, Sides])
    """The two sides of the application at hand, by recording."""

    def before(self, rewrite: Rewrite[Any], op: Operation, match: Any) -> None:
        """Bring the values of the op up to date while everything it reads is still there."""
        self._promised.clear()
        for recordings in self.recordings.values():
            for recording in recordings:
                with suppress(NotRecorded):
                    self._promised[id(recording)] = rewrite.bound_at(match, recording.value)
                if op in recording.stale:
                    _refresh(recording, op)
                for result in op.results if recording.sample.state else ():
                    recording.has_history(result)  # While all that it hangs on is there.

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
        self.trusted &= looked or not rewrite.bound.is_local
        self.compared += looked
        # An assertion that goes leaves no value to compare, and moves none.
        self.not_compared += not looked and bool(rewriter.replaced or rewriter.modified)

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
        """Ops changed in place keep their values, but where a value now stands for another one."""
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
        """Compare two run-time values: of `of`, which went, and of `value`."""
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
        """The bound with numbers; that of one rounding where it is kept, since any is wider."""
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
    ) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(
                Finding(
                    step=self.step,
                    rewrite=rewrite.name,
                    op=event.root[0],
                    node=event.root[1],
                    where=event.where,
                    sample=recording.sample.label,
                    what=what,
                    largest=largest,
                    bound=describe_bound(self._promised.get(id(recording), rewrite.bound)),
                    replacement=_definition(value),
                )
            )


_MISSING: Any = object()


def _refresh(recording: Recording, op: Operation, further: int = NEAR) -> None:
    """Evaluate a stale op and those that read it: a layer replaces the quantization behind it."""
    with suppress(NotRecorded, StepwellError):
        for result in op.results:
            recording.value(result)
            for use in [*result.uses] if further else ():
                if use.operation in recording.stale:
                    _refresh(recording, use.operation, further - 1)


def _definition(value: SSAValue) -> str:
    """The text of the op that computes a value, with the ops around it that are as new."""
    owner = value.owner
    if isinstance(owner, Operation):
        text = to_text(owner).strip()
        return text if len(text) < 2000 else f"{op_name(owner)} …"
    return describe_value(value)


def describe_bound(bound: Bound, spelled: Callable[[float], str] = "{:g}".format) -> str:
    """`exact`, `1 unit of its scale (why)`, or `2e-05 relative + 1e-05 absolute (why)`."""
    if bound.exact:
        return "exact"
    parts = [f"{spelled(bound.relative)} relative" if bound.relative else ""]
    parts.append(f"{spelled(bound.absolute)} absolute" if bound.absolute else "")
    parts += [
        f"{spelled(factor)} of {' + '.join(f'|{n}|' for n in names)}"
        for factor, names in bound.magnitudes
    ]
    if bound.derived and not any(parts):
        parts.append("what both sides round")
    if bound.units:
        parts.append(f"{bound.units} unit{'s' * (bound.units > 1)} of its scale")
    parts.append("what the values at hand give" if bound.varies else "")
    why = f" ({bound.reason})" if bound.reason else ""
    return " + ".join(part for part in parts if part) + why


def total_bound(bounds: Sequence[Bound]) -> Bound:
    """What a whole step may move an output: each application's bound once.

    Units do not add up: `units` and `varies` say that some application has them, and that outputs
    are to be compared with the recording that followed each application.
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
    """What outputs may move by numbers, where each derived bound was asked for at its own value."""
    held = [UNDERIVED if bound.derived else bound for bound in bounds]
    return replace(total_bound(held), units=0, varies=False)

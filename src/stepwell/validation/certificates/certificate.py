"""A certificate: the source and the lowered program as texts, and the evidence for each
application.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.observed import changed_signature
from stepwell.ir.platform.files import as_path, write_atomically
from stepwell.ir.program import Program
from stepwell.ir.weight_descriptions import described
from stepwell.ir.weights import WeightStore
from stepwell.validation.certificates.application import (
    allowed,
    follows_rule,
    hash_of_rule,
    is_reproduced_by,
    runs,
)
from stepwell.validation.certificates.checker.check import VERSION, Entry, Text, digest_of
from stepwell.validation.certificates.checker.statements import (
    KINDS,
    STEPPED,
    Undecided,
    decide,
    is_constant,
)
from stepwell.validation.certificates.exhaustive import NotOfBytes, apart_on_all
from stepwell.validation.certificates.recorder import Application, StatementRecorder

VALUES = "values"
"""The label of statements whose two sides were run on all values of their bytes."""
PROVED = ("rule", *KINDS, VALUES, "step", "follows")
"""The labels of evidence that is a proof."""

QUOTED = re.compile(r'"([^"\n]*)"')
"""A quoted name in a text; only a weight's name is replaced."""


@dataclass(frozen=True)
class Certificate(Text):
    """The evidence that a lowering is right; `stepwell verify-certificate` verifies it from its
    texts.
    """

    weights: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def counts(self) -> Counter[str]:
        """Count the applications by label of evidence."""
        return Counter(entry.by for entry in self.entries)

    @property
    def proved(self) -> int:
        """The number of rewrite applications that are proved."""
        return sum(self.counts[by] for by in PROVED)

    def __str__(self) -> str:
        count, run = len(self.entries), self.counts["run"]
        left = count - self.proved - run
        text = f"{self.proved} of {count} applications proved, {run} run"
        return text + (f", {left} taken as they are" if left else "")

    def to_json(self) -> str:
        """Return the certificate as JSON, with its digest."""
        rows = {"version": VERSION, **asdict(self)}
        return json.dumps({**rows, "digest": digest_of(rows)}, indent=1)

    def save(self, path: Any) -> None:
        """Write the certificate to a file."""
        write_atomically(as_path(path), self.to_json().encode())


def certificate(recorder: StatementRecorder, target: str) -> Certificate:
    """Determine the evidence for each application of a lowering.

    Raises:
        StepwellError: the lowered program has other inputs or results than its source.
    """
    program = recorder.program
    if (problem := changed_signature(recorder.signatures, program)) is not None:
        raise StepwellError(f"this lowering has no certificate: {problem}", help=PORTS)
    entries = [_entry(made, recorder.weights) for made in recorder.applications]
    pairs = list(zip(recorder.applications, entries, strict=True))
    by_step = {made.step: entry.by for made, entry in pairs if made.op == "the program"}
    found: list[Entry] = []
    for application, entry in pairs:
        if entry.by == "nothing" and not application.statements:
            how = by_step.get(application.step, "bits")
            kind = "step" if how in PROVED else how
            entry = Entry(*_place(application), kind, reason="" if kind == "step" else entry.reason)
        found.append(entry)
    ends = [recorder.start, str(program)]
    texts = [*(entry.statement for entry in found), *ends]
    named, shown = ({n for text in some for n in QUOTED.findall(text)} for some in (texts, ends))
    kept = described(recorder.weights, named, shown, partial(is_constant, recorder.weights))
    held = program.weights.entries  # The verifier reads them from the program.
    held.update({key: each for key, each in recorder.weights.entries.items() if key not in held})
    return Certificate(target, recorder.start, str(program), tuple(found), kept)


PORTS = (
    "leave out io=, io_layout=, sizes=; a target without floats has none: `stepwell check` runs it"
)


def _place(application: Application) -> tuple[str, str, str, str | None]:
    return application.step, application.rewrite, application.op, application.node


def _decided(program: Program) -> str:
    """Return the arithmetic (bitwise, or over the reals) in which both sides of a statement are
    equal.

    Raises:
        Undecided: they are equal in neither; the reason is the one for arbitrary weights.
    """
    try:
        return decide(program, KINDS[:2])
    except Undecided as error:
        with suppress(Undecided):
            return decide(program, KINDS[2:])
        raise error


def _entry(application: Application, weights: WeightStore) -> Entry:
    entry = partial(Entry, *_place(application))
    if not application.claims:
        return entry("follows", next(iter(application.statements), ""))
    held = allowed(application.bound)
    reason = "values stand for others"
    hash_ = hash_of_rule(application.rule)
    programs = {text: Program.parse(text, weights) for text in application.statements}
    for text, program in programs.items():
        by = ""
        try:
            by = _decided(program)
        except Undecided as error:
            reason = str(error)
        may_cross = not by or STEPPED in by  # A rule's proof has no such assumption.
        if may_cross and hash_ is not None and follows_rule(program, hash_) is None:
            return entry("rule", text, hash_)
        if by:
            return entry(by, text)
    for text, program in programs.items():
        with suppress(NotOfBytes, StepwellError):
            if apart_on_all(program) is None or (
                apart_on_all(program, held) is None
                and is_reproduced_by(program, application.rewrite)
            ):
                return entry(VALUES, text)
    for text, program in programs.items():
        try:
            apart = runs(program, held)
            if not is_reproduced_by(program, application.rewrite):
                apart = apart or f"{application.rewrite}, applied again, does not write this"
            if apart is None:
                return entry("run", text, reason=reason)
            reason = f"{reason}; run: {apart}"
        except StepwellError as error:
            reason = f"{reason}; {error.problems[0].fact}"
    text = application.statements[0] if application.statements else ""
    return entry("nothing", text, reason=reason)

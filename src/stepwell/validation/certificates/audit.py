"""Verify a certificate: check it (`checker`), and audit what the check assumes.

The checker decides statements from their texts. A statement that it does not decide is an
assumption. This module may use the pipeline: an assumption is discharged by a rule that has a proof
and writes the statement again, or by all values of its bytes; or it is trusted, and counted by its
reason.
"""

import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import StringAttr

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.levels import level_of
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Rewrite, Step, bound_of
from stepwell.pipelines.pass_pipeline.named_passes import step_classes
from stepwell.targets.table import find_target
from stepwell.validation.certificates.application import (
    allowed,
    by_hash,
    follows_rule,
    is_reproduced_by,
    runs,
    writes_otherwise,
)
from stepwell.validation.certificates.certificate import VALUES, Certificate
from stepwell.validation.certificates.checker.check import Entry, check
from stepwell.validation.certificates.checker.statements import (
    NARROWED,
    STEPPED,
    TRIED,
    Undecided,
)
from stepwell.validation.certificates.exhaustive import NotOfBytes, apart_on_all

TRUSTED = {
    "run": "both sides were run on random inputs, and are as close as the rewrite's bound says",
    "values": "as close as the rewrite's bound says on all values of their bytes, not equal",
    "overflow": "equal if narrowed or masked integers of 64 bits are from 0 to 2147483647",
    "steps": "equal if no rounding crosses a step (of a comparison, floor, cast to integers)",
    "sizes": "equal at two choices of the symbolic sizes, not shown for all",
    "recipes": "weights of the last program are taken to be made of the first one's as they say",
    "assertions": "the last program no longer asserts what the first one does",
    "lower-dynamic-linear": "the kernel rounds activations in its own way",
    "lower-dynamic-convolution": "the kernel rounds activations in its own way",
}
"""The assumptions that are accepted without a proof, by label, and why; there are no others."""
_DECIDED = {NARROWED: "overflow", STEPPED: "steps", TRIED: "sizes"}
"""The label of each assumption of the checker's decisions."""
_REWRITES = ("lower-dynamic-linear", "lower-dynamic-convolution")
"""Those that are names of rewrites, not labels of evidence."""


@dataclass(frozen=True)
class Verified:
    """The result of verifying a certificate.

    Attributes:
        proved: the number of statements that the checker proved.
        audited: the number of statements that the audit proved: by a rule that has a proof, or on
            all values of their bytes.
        implied: the number of applications without a statement; their equality follows from the
            other ones.
        trusted: the number of unproved assumptions, by label of `TRUSTED`; a statement may rest on
            several.
        faults: the errors of the certificate; empty if it holds.
    """

    proved: int
    audited: int
    implied: int
    trusted: Mapping[str, int]
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether each step from the first program to the last is proved, or explicitly trusted."""
        return not self.faults

    @property
    def is_proved(self) -> bool:
        """Whether every step is proved, so that none is only trusted."""
        return self.ok and not self.trusted

    def __str__(self) -> str:
        if self.faults:
            return "refused: " + "; ".join(self.faults[:3])
        text = f"{self.proved} statements proved by the checker, {self.audited} by the audit, "
        text += f"{sum(self.trusted.values())} trusted"
        text += f"; {self.implied} applications state nothing" if self.implied else ""
        if self.is_proved:
            return f"proved: {text}"
        reasons = "; ".join(f"{n} {TRUSTED[label]}" for label, n in self.trusted.items())
        return f"holds, not proved: {text} ({reasons})"


def verify_certificate(
    certificate: Certificate,
    program: Program | None = None,
    seed: int | None = None,
    *,
    source: Program | None = None,
) -> Verified:
    """Check every statement of a certificate, audit what is assumed, and return the verdict.

    Args:
        certificate: the result of `lower(..., certify=True)`.
        program: the lowered program (`lowered.program`, or read from an artifact), which the
            certificate must describe. The elements of weights are read from it.
        seed: the seed of the variables, the prime and the digests; None: a random one.
        source: the source program; the first text must equal it, and so must its weights.
    """
    by_hash()  # Importing the rules registers the recipes.
    seed = secrets.randbits(62) if seed is None else seed
    found = check(certificate.to_json(), seed, program, source)
    faults, audited = [_with_remedy(fault) for fault in found.faults], 0
    trusted = Counter({"recipes": found.recipes, "assertions": len(found.dropped)})
    for number, entry, statement, decided in found.assumptions:
        if decided:
            trusted.update(label for said, label in _DECIDED.items() if said in decided)
            continue
        try:
            label = _rests_on(entry, statement, seed)
        except (Undecided, StepwellError) as error:
            said = error.problems[0].fact if isinstance(error, StepwellError) else str(error)
            said = f"application {number}, {entry.rewrite}: {said}"
            faults.append(said.encode(errors="backslashreplace").decode().splitlines()[0])
            continue
        audited += label is None
        trusted[label or ""] += label is not None
    if found.last is not None and (problem := _other_target(certificate.target, found.last)):
        faults.append(f"the target: {problem}")
    return Verified(found.proved, audited, found.implied, dict(+trusted), tuple(faults))


def _with_remedy(fault: str) -> str:
    """Return a fault; if elements of weights are missing, with the remedy."""
    return f"{fault}; give the source" if "are not known, only its type" in fault else fault


def _other_target(name: str, last: Program) -> str | None:
    """Return why a lowered program is not for a target, or None."""
    try:
        target = find_target(name)
        if (level := level_of(last.module)) not in ("aten", *target.stages):
            return f"a program at level {level!r} is none of target {name}"
        said: Any = last.module.attributes.get("tosa.target")
        if isinstance(said, StringAttr) and find_target(said.data).name != target.name:
            return f"the last program is for {said.data}, not {name}"
    except StepwellError as error:
        return error.problems[0].fact
    return None


def _bound_of(name: str) -> Bound:
    """Return the error bound that stepwell's rewrite declares; a certificate cannot define it."""
    found = [bound_of(cast(Step, each)) for each in step_classes().values() if each.name == name]
    if not found:
        raise Undecided(f"there is no step {name[:40]!r}, so nothing is run for it")
    return allowed(max(found, key=lambda each: (each.relative, each.absolute, each.units)))


def _rests_on(entry: Entry, program: Program, seed: int) -> str | None:
    """Return why a statement that is not decided is trusted; None if it is proved.

    Raises:
        Undecided: the statement is neither proved nor trusted.
    """
    why = None
    if entry.by == "rule":
        why = follows_rule(program, entry.rule) if entry.rule else "no rule is named"
    elif entry.by == VALUES:
        try:
            if apart_on_all(program) is None:
                return None
            why = apart_on_all(program, _bound_of(entry.rewrite))
            if why is None and is_reproduced_by(program, entry.rewrite):
                return "values"
            why = why or f"{entry.rewrite}, applied again, does not write this"
        except NotOfBytes as error:
            why = f"it is not of bytes: {error}"
    elif entry.by == "run":
        bound = _bound_of(entry.rewrite)
        if not is_reproduced_by(program, entry.rewrite):
            raise Undecided(f"{entry.rewrite}, applied again, does not write this")
        if (why := runs(program, bound, seed)) is None:
            return "run"
        why = f"it was run: {why}"
    elif entry.by == "nothing" and entry.rewrite in _REWRITES:
        step = cast("type[Rewrite[Any]]", step_classes()[entry.rewrite])
        if (why := writes_otherwise(program, step)) is None:
            return entry.rewrite
    else:
        why = f"it rests on {entry.by[:40]!r}, which is no proof"
    if why is not None:
        raise Undecided(why)
    return None

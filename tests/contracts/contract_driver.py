"""The test of all documented rewrites: the outcomes of their variants, and the errors."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from types import FrameType
from typing import Any

from xdsl.ir import Operation

from stepwell.ir.declared.engine_behavior import engines
from stepwell.ir.rewriting.rewrite import Pass, Rewrite, Step, parts_of
from stepwell.targets.table import PIPELINES
from stepwell.translate.rewrites.documentation import (
    examples_of,
    examples_of_rule,
    module_names,
    module_of,
    rewrites_of,
)
from stepwell.translate.rewrites.norms.center_residual_stream import CenterResidualStream
from stepwell.translate.rewrites.xnnpack.partitioning.narrow_to_what_is_read import (
    NarrowToWhatIsRead,
)
from stepwell.validation.contracts.draft import draft_of
from stepwell.validation.contracts.trial import (
    SAMPLES,
    Filling,
    Outcome,
    Verdict,
    try_variant,
)
from stepwell.validation.contracts.variants import Variant, variants_of

FINITE_ONLY = {
    "attention.row_guards": ("scores that overflow to −∞ in a whole row are not caught"),
    "xnnpack.quantized.lower_quantized_casts": (
        "ExecuTorch clamps to int32 in float32, where 2³¹ - 1 is 2³¹"
    ),
    "attention.limit_by_mask": "a NaN that the mask hides is found by what computes the value",
    "attention.add_mask_to_scores": "a score of +∞ or NaN under the mask stays NaN",
}
"""Rewrites that hold for finite values only, and why."""
SORTING = dict.fromkeys(
    ("tosa.indexed.orders", "experts.choose_by_rank"),
    "which of equal elements comes first, torch leaves open",
)
"""Rewrites of sorting ops."""
INDEXING = {"tosa.indexed.indices": "torch takes an index beyond the end as its remainder"}
"""Rewrites of ops with row indices; they are tried with indices near both ends."""
UNVARIED = {
    "xnnpack.resizing: resize-by-matrices": (
        "PyTorch infers no result of an upsampling to a symbolic size"
    ),
    "tosa.transforms": ("PyTorch's own transform ends the process on an axis far out of range"),
}
"""Rewrites whose example cannot be varied, because a variant's types are inferred, and why."""
DISTINCT: tuple[Filling, ...] = (("distinct", "distinct", "distinct", True),)
"""The sample for sorting ops."""
ROWS: tuple[Filling, ...] = tuple((label, real, "rows", plain) for label, real, _, plain in SAMPLES)
"""Samples whose integers are row indices."""
SECONDS = 20
"""The limit of a variant in CPU seconds; the usual one takes some ten milliseconds."""


@dataclass
class Tally:
    """The outcomes of one rewrite's variants."""

    name: str
    outcomes: Counter[Outcome] = field(default_factory=Counter[Outcome])
    wrong: list[tuple[Variant, str]] = field(default_factory=list[tuple[Variant, str]])

    def __str__(self) -> str:
        lines = [f"{self.name}: {dict(self.outcomes)}"]
        lines += [f"  {' + '.join(v.labels) or 'the example'}: {why}" for v, why in self.wrong]
        return "\n".join(lines)


PASSES: dict[str, type[Pass]] = {
    "norms.center_residual_stream": CenterResidualStream,
    "xnnpack.partitioning.narrow_to_what_is_read": NarrowToWhatIsRead,
}
"""Passes over a whole program that have an example and keep its signature."""


@dataclass(frozen=True)
class Subject:
    """The subject of a test: a rewrite, a rule or a pass, with example programs.

    Attributes:
        steps: the rewrites that are applied together, or one pass.
        examples: the texts of programs to which they apply.
    """

    steps: tuple[Rewrite[Any] | Pass, ...]
    examples: tuple[str, ...]

    @property
    def anchors(self) -> list[type[Operation]]:
        """Return the op classes that the rewrites match."""
        return [a for step in self.steps if isinstance(step, Rewrite) for a in step.anchors]


def documented() -> Iterator[str]:
    """What states an example: `views.merge_views`, or `canonicalize.sums: split-…` of rules."""
    for name in module_names():
        module = module_of(name)
        if rules := getattr(module, "RULES", ()):
            named = (f"{name}: {rule.name}" for rule in rules)
            yield from (rule for rule in named if rule not in UNVARIED)
        elif name not in UNVARIED and (name in PASSES or rewrites_of(module)):
            yield name


def subject_of(name: str) -> Subject:
    """Return the subject with a name of `documented`; the name of a module selects all of its
    rewrites.
    """
    place, _, rule = name.partition(": ")
    steps, module = steps_of(name), module_of(place)
    if rule and isinstance(steps[0], Rewrite):
        examples = examples_of_rule(type(steps[0]))
    else:
        examples = examples_of(module)
    return Subject(steps, tuple(before for before, _ in examples))


def steps_of(name: str) -> tuple[Rewrite[Any] | Pass, ...]:
    """Return the steps of a subject, without its examples, which take a while to build."""
    place, _, rule = name.partition(": ")
    if place in PASSES:
        return (PASSES[place](),)
    classes = [found for found in rewrites_of(module_of(place)) if rule in ("", found.name)]
    return tuple(rewrite() for rewrite in classes)


def tally(name: str, count: int, seed: int = 0) -> Tally:
    """Try the first `count` variants of a subject's examples, divided evenly among them."""
    subject = subject_of(name)
    found = Tally(name)
    for before in subject.examples:
        many = max(count // len(subject.examples), 1)
        for variant in islice(variants_of(draft_of(before), subject.anchors, seed), many):
            verdict = tried(subject.steps, variant, name)
            found.outcomes[verdict.outcome] += 1
            if verdict.outcome == "wrong":
                found.wrong.append((variant, verdict.why))
    return found


def families_for(rewrites: Sequence[Rewrite[Any] | Pass]) -> tuple[str, ...]:
    """Return the families of CPUs that run what rewrites make: those of XNNPACK's pipelines."""
    return engines() if any(type(rewrite) in _of_xnnpack() for rewrite in rewrites) else ()


@cache
def _of_xnnpack() -> frozenset[type[Step]]:
    waiting, found = (
        [*PIPELINES["xnnpack"].steps, *PIPELINES["xnnpack-published"].steps],
        set[Any](),
    )
    while waiting:
        step = waiting.pop()
        waiting += parts_of(step)
        found.add(type(step))
    return frozenset(found)


class _TooLong(BaseException):
    """A timeout that `except Exception` does not catch."""


def tried(rewrites: tuple[Rewrite[Any] | Pass, ...], variant: Variant, name: str) -> Verdict:
    """Return the outcome of one variant of a module's example; it may take `SECONDS`."""
    try:
        with _at_most(SECONDS):
            names = {name, name.partition(": ")[0]}
            samples = (
                DISTINCT if names & SORTING.keys() else ROWS if names & INDEXING.keys() else SAMPLES
            )
            if names & FINITE_ONLY.keys():
                samples = tuple(sample for sample in samples if sample[-1])
            return try_variant(rewrites, variant.draft, samples, families_for(rewrites))
    except _TooLong:
        return Verdict("wrong", f"takes more than {SECONDS} CPU seconds")


@contextmanager
def _at_most(seconds: int) -> Generator[None]:
    """Interrupt the main thread after a number of CPU seconds of this process."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)

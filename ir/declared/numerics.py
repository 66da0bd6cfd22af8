"""What a lowering may do to the class of a number: NaN, ±∞, ±0, finite.

`docs/semantics.md` states the contract of each mode and what was measured. A rewrite says itself
which class it may lose (`Rewrite.deviates`); the driver asks, and applies it, refuses it or records
it by the mode that `lower(..., numerics=...)` was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepwell.ir.context import Context

Numerics = Literal["torch", "finite", "strict"]
NUMERICS: tuple[Numerics, ...] = ("torch", "finite", "strict")
"""`torch`: classes are eager's, or no worse than those of the stock flow; `finite`: activations
are ordinary numbers; `strict`: no deviation that is known, whatever it costs."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A fact that holds for every input that a program admits.

    `stepwell.translate.range_analysis` makes them from intervals and from nothing else. An analysis that
    assumes ordinary activations returns a refusal or None (`values/trusting.py`), never this.
    """

    fact: str


@dataclass(frozen=True)
class Deviation:
    """A class of numbers that a rewrite does not keep.

    Attributes:
        loses: what becomes of what, in words: `a NaN may become the greatest number beside it`.
        accepted: whether the default takes it: because the stock flow's own form of the op does so
            too, or for a reason that `docs/semantics.md` gives.
    """

    loses: str
    accepted: bool = False
    everywhere: bool = False
    """Whether it is the engine's, in every op: then it is said once, and not listed by op."""

    def unless(self, *proofs: Proof | None) -> Deviation | None:
        """None where everything is proved that keeps it from occurring."""
        return self if None in proofs else None


FLUSHED = Deviation(
    "XNNPACK reads denormal numbers as zero and writes zero for them", True, everywhere=True
)
"""What any float arithmetic inside a delegate does."""
REORDERED = Deviation("numbers may overflow, or not, where torch's order of products does", True)
"""What folding a factor into constants, or another order of a sum, may do."""


@dataclass(frozen=True)
class TakenDeviation:
    """A deviation that a lowering took, and where."""

    rewrite: str
    op: str
    node: str | None
    where: str | None
    loses: str


FLUSHING = frozenset(("xnnpack",))
"""Targets whose engine reads denormal numbers as zero and writes zero for them."""
LOSING_NANS = frozenset(("xnnpack",))
"""Targets whose maximum, minimum and pooling may take a number where one of two is NaN."""


def flushes(context: Context) -> bool:
    """Whether the target's engine takes a number below the smallest normal one for zero."""
    return context.target in FLUSHING


def loses_nans(context: Context) -> bool:
    """Whether the target's maxima and minima do not say what becomes of a NaN."""
    return context.target in LOSING_NANS


def numerics_of(context: Context) -> Numerics:
    """The mode of a lowering.

    A rewrite that is applied by itself, outside a lowering, was asked for by name: it does what it
    says.
    """
    return context.option("numerics", "finite")


def forbidden(deviation: Deviation, context: Context) -> str | None:
    """Why a mode does not allow a deviation, or None if it does."""
    mode = numerics_of(context)
    if mode == "finite" or (mode == "torch" and deviation.accepted):
        return None
    if mode == "torch":
        return f"{deviation.loses}; numerics='finite' allows it"
    return f"{deviation.loses}; numerics='strict' allows no deviation"

"""The effects of a lowering on special values: NaN, ±∞, ±0, finite.

`docs/semantics.md` states the contract of each mode and the measurements. A rewrite declares which
special values it may lose (`Rewrite.deviates`). The driver applies it, refuses it or records it
according to the mode, `lower(..., numerics=...)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepwell.ir.context import Context

Numerics = Literal["torch", "finite", "strict"]
NUMERICS: tuple[Numerics, ...] = ("torch", "finite", "strict")
"""`torch`: special values are eager's, or no worse than those of the stock flow; `finite`:
activations are finite; `strict`: no known deviation, at any cost.
"""


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof of a fact for every input that a program admits.

    Only `stepwell.translate.range_analysis` constructs it, from intervals. An analysis that assumes
    ordinary activations returns a refusal or None (`range_analysis/assumptions.py`), never a proof.
    """

    fact: str


def all_of(*proofs: Proof | None) -> Proof | None:
    """Return a proof of several facts together; None if one of them is not proved."""
    facts = [proof.fact for proof in proofs if proof is not None]
    return Proof(", ".join(facts)) if len(facts) == len(proofs) else None


@dataclass(frozen=True)
class Deviation:
    """A class of values that a rewrite does not preserve.

    Attributes:
        loses: the effect, in words: `a NaN may become the greatest number beside it`.
        accepted: whether the default mode allows it, because ExecuTorch's own lowering of the
            op does the same, or for a reason in `docs/semantics.md`.
    """

    loses: str
    accepted: bool = False
    everywhere: bool = False
    """Whether the engine has it in every op: then it is reported once, and not by op."""

    def unless(self, *proofs: Proof | None) -> Deviation | None:
        """Return this deviation, or None if a proof shows that it cannot occur."""
        return None if all(isinstance(proof, Proof) for proof in proofs) else self


FLUSHED = Deviation(
    "XNNPACK reads denormal numbers as zero and writes zero for them", True, everywhere=True
)
"""The effect of any float arithmetic inside a delegate."""
REORDERED = Deviation("numbers may overflow, or not, where torch's order of products does", True)
"""The possible effect of folding a factor into constants, or of another order of a sum."""


@dataclass(frozen=True)
class TakenDeviation:
    """A deviation of a lowering, with the place where it may occur."""

    rewrite: str
    op: str
    node: str | None
    where: str | None
    loses: str


FLUSHING = frozenset(("xnnpack",))
"""Targets whose engine flushes denormal operands and results to zero."""
LOSING_NANS = frozenset(("xnnpack",))
"""Targets whose maximum, minimum and pooling may return a number if one operand is NaN."""


def flushes(context: Context) -> bool:
    """Whether the target's engine flushes denormals to zero."""
    return context.target in FLUSHING


def loses_nans(context: Context) -> bool:
    """Whether the target's maxima and minima may lose a NaN."""
    return context.target in LOSING_NANS


def numerics_of(context: Context) -> Numerics:
    """Return the mode of the option `numerics` of a lowering.

    A rewrite that is applied outside a lowering was requested by name, so it is always applied.
    """
    return context.option("numerics", "finite")


def forbidden(deviation: Deviation, context: Context) -> str | None:
    """Return why a mode of the option `numerics` does not allow a deviation; None if it does."""
    mode = numerics_of(context)
    if mode == "finite" or (mode == "torch" and deviation.accepted):
        return None
    if mode == "torch":
        return f"{deviation.loses}; numerics='finite' allows it"
    return f"{deviation.loses}; numerics='strict' allows no deviation"

"""Legalization: convert a program to the operations that a target has (MLIR's dialect conversion).

An operation is legal if it belongs to the target, or if a kernel outside the target runs it. The
lowerings define the former; the last decomposition defines the latter, by refusing such operations
with a reason. No list of legal operations is therefore needed besides the rewrites.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from xdsl.ir import Operation

from stepwell.ir.program import Program
from stepwell.ir.rewriting.dispatch import may_match
from stepwell.ir.rewriting.history import History
from stepwell.ir.rewriting.rewrite import GreedyRewrites, Rewrite, Rewriter, run_rewrites
from stepwell.ir.traversal import walk

ROUNDS = 16
"""The most rounds. Then a last decomposition makes what is left legal."""


@dataclass(frozen=True)
class Phase(Rewrite[None]):
    """A marker in a `Legalize`: the rewrites up to the next marker share a fixed point.

    Attributes:
        label: the phase's name, if a `Legalize` has several phases of a kind.
    """

    label: str = ""
    anchors: ClassVar[tuple[type[Operation], ...]] = ()

    def __post_init__(self) -> None:
        """Use the label, if there is one, as the name that reports show for the phase."""
        if self.label:
            object.__setattr__(self, "name", self.label)

    def match(self, op: Operation, program: Program) -> None:
        """Match no op: a marker changes nothing."""

    def build(self, match: None, rw: Rewriter) -> None:
        """Build nothing, since a marker matches no op."""


@dataclass(frozen=True)
class ThenLower(Phase):
    """A marker in a `Legalize`: lowerings to the target's operations follow."""

    name: ClassVar[str] = "then-lower"


@dataclass(frozen=True)
class ThenDecompose(Phase):
    """A marker in a `Legalize`: decompositions of operations without a lowering follow."""

    name: ClassVar[str] = "then-decompose"


@dataclass(frozen=True)
class ThenCanonicalize(Phase):
    """A marker in a `Legalize`: canonicalizations of the parts of decompositions follow."""

    name: ClassVar[str] = "then-canonicalize"


@dataclass(frozen=True)
class Legalize(GreedyRewrites):
    """Lower operations that have a lowering, decompose the rest, canonicalize the parts, and
    repeat.

    Whole operations are lowered before any is decomposed, because they need fewer operations of the
    target. The phases of a kind run in their order. Of several phases of decompositions, a later
    one runs only if the earlier ones change nothing. The first round runs all kinds in any case,
    because canonicalization after the lowerings makes some operations legal, too.
    """

    @cached_property
    def phases(self) -> dict[type[Phase], list[tuple[Rewrite[Any], ...]]]:
        """Return the rewrites of each phase, by the kind of phase, lowerings first."""
        found: dict[type[Phase], list[tuple[Rewrite[Any], ...]]] = {
            kind: [] for kind in (ThenLower, ThenDecompose, ThenCanonicalize)
        }
        kind, held = ThenLower, list[Rewrite[Any]]()
        for rewrite in (*self.rewrites, ThenLower()):
            if not isinstance(rewrite, Phase):
                held.append(rewrite)
                continue
            if held:
                found[kind].append(tuple(held))
            kind, held = type(rewrite), []
        return found

    def apply(self, program: Program, history: History) -> int:
        """Repeat until nothing is left to decompose or to canonicalize."""
        classes = set(map(type, walk(program.module)))

        def run_phase(rewrites: tuple[Rewrite[Any], ...]) -> int:
            """Run the rewrites of a phase, unless no op has one of their classes."""
            nonlocal classes
            if not may_match(rewrites, classes):
                return 0
            applied = run_rewrites(program, rewrites, history)
            if applied:
                classes = set(map(type, walk(program.module)))
            return applied

        def run(kind: type[Phase]) -> int:
            return sum(map(run_phase, self.phases[kind]))

        def decomposed() -> int:
            """Run the first phase of decompositions that changes something."""
            return next(filter(None, map(run_phase, self.phases[ThenDecompose])), 0)

        applied = run(ThenLower)
        for number in range(ROUNDS):
            changes = decomposed() + run(ThenCanonicalize)
            if number and not changes:
                return applied
            applied += changes + run(ThenLower)
        return applied + decomposed()

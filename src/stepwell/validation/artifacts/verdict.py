"""The verdict on an artifact: one sentence, then the facts behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from xml.sax.saxutils import quoteattr

from stepwell.validation.artifacts.script import Reproduction

Kind = Literal[
    "unknown", "runtime", "history", "special values", "declared deviation", "known fault",
    "quantization", "rounding", "tie", "crash",
]  # fmt: skip
"""What a difference is:

- `runtime`: the file's operators compute the model's values, the runtime does not;
- `history`: only after other calls of the same loaded program;
- `declared deviation`: the engine is known to treat special values in another way;
- `known fault`: a fault of another tool that docs/upstream.md lists;
- `quantization`: the artifact is quantized and the model is not, and the difference is what the
  artifact's integers imply;
- `rounding`: numbers near the middle of two integers were rounded otherwise, and every operator is
  right for the numbers that it gets;
- `tie`: equal scores were ranked in another order.
"""
ACCEPTED = ("quantization", "rounding", "tie")
"""Kinds of differences that are no faults."""


@dataclass(frozen=True)
class Wrong:
    """The first operator of the source whose result the artifact does not have.

    Attributes:
        op: the operator's name.
        node: the name of its node in the model's graph.
        module: its module in the model (`blocks.3.attn`).
        where: its source line in the model.
        nodes: the nodes that the artifact computes by one operator, of which this is one.
        by: the artifact's operator that computes the nearest value, with its attributes.
        error: the largest difference of the two results.
        allowed: the difference that rounding explains.
        kind: what the difference is.
        why: a known cause.
    """

    op: str
    node: str | None
    module: str | None
    where: str | None
    nodes: tuple[str, ...] = ()
    by: str | None = None
    error: float = float("inf")
    allowed: float = 0.0
    kind: Kind = "unknown"
    why: str | None = None

    def __str__(self) -> str:
        name = self.module or self.node
        place = " ".join(
            part for part in (f"`{name}`" if name else "", f"({self.where})" * bool(self.where))
            if part
        )  # fmt: skip
        by = f"the artifact computes {self.by}" if self.by else "the artifact has no value near it"
        fused = f" (of {', '.join(self.nodes)})" if len(self.nodes) > 1 else ""
        why = f"; {self.why}" if self.why else ""
        size = "" if self.error == float("inf") else (
            f"; up to {self.error:.2g} off"
            + (f", rounding explains {self.allowed:.2g}" if self.allowed else "")
        )  # fmt: skip
        return (
            f"{place + ': ' if place else ''}the model computes {self.op}{fused}, {by}{size}{why}"
        )


@dataclass(frozen=True)
class CallDifference:
    """A call whose results differ beyond rounding.

    Attributes:
        method, sample: the call.
        fact: how they differ, in a sentence.
        kind: what the difference is.
    """

    method: str
    sample: str
    fact: str
    kind: Kind = "unknown"

    def __str__(self) -> str:
        what = f"no fault, {self.kind}" if self.kind in ACCEPTED else "differs"
        return f"{what}: {self.method}({self.sample}): {self.fact}"


def _is_accepted(difference: CallDifference) -> bool:
    return difference.kind in ACCEPTED


@dataclass(frozen=True)
class Validation:
    """The comparison of an artifact with its source.

    Attributes:
        differences: the calls whose results differ beyond rounding.
        wrong: the first wrong operator, if it was found.
        calls: the number of calls that were compared.
        sizes: the number of different input shapes among them.
        matched: how many values of the source are in the artifact.
        inner: how many more are inside an operator whose result is in the artifact.
        values: the number of the source's values.
        engine: what ran the artifact: the runtime, or the interpreter of its operators.
        refused: the number of calls that the artifact declares not to take, and the model takes.
        opaque: delegates whose payloads no reader opens.
        notes: what was not compared, and why.
        errors: by the names of the model's nodes, how far the nearest value of the artifact is,
            relative to the largest number: 0 for values that are in the artifact.
        script: a program cut out around the wrong operator, as a script.
    """

    differences: tuple[CallDifference, ...]
    wrong: Wrong | None
    calls: int
    sizes: int
    matched: int
    inner: int
    values: int
    engine: str
    refused: int = 0
    opaque: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    errors: Mapping[str, float] = field(default_factory=dict[str, float], repr=False)
    script: Reproduction | None = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """Whether no result differs beyond rounding, and no operator is wrong."""
        faults = [one for one in self.differences if one.kind not in ACCEPTED]
        return not faults and self.wrong is None

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        closed = f"; not compared: {', '.join(self.opaque)}" if self.opaque else ""
        if self.ok:
            shapes = f" at {self.sizes} sizes" if self.sizes > 1 else ""
            several = "s" * (self.calls != 1)
            if self.refused:
                closed = f"; the artifact refuses {self.refused} more that the model takes{closed}"
            return f"No difference beyond rounding in {self.calls} sample{several}{shapes}{closed}."
        if self.wrong is not None:
            faults = [one for one in self.differences if one.kind not in ACCEPTED]
            first = faults[0] if faults else None
            sample = f" (first inputs: {first.sample})" if first else ""
            return f"Wrong: {self.wrong}{sample}{closed}."
        fault = next(one for one in self.differences if one.kind not in ACCEPTED)
        return f"Wrong: {fault.method}({fault.sample}): {fault.fact}{closed}."

    def __str__(self) -> str:
        inner = f", {self.inner} more inside operators whose result is" if self.inner else ""
        values = f"{self.matched} of {self.values} values of the model are in the artifact{inner}. "
        lines = [
            self.sentence,
            f"{values if self.values else ''}Run by {self.engine}.",
            *(f"  {one}" for one in sorted(self.differences, key=_is_accepted)[:8]),
            *(f"  note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)

    def to_junit(self, name: str) -> str:
        """Return the comparison as JUnit's XML: one test case.

        Args:
            name: the name of the test case.
        """
        body = "" if self.ok else f"<failure message={quoteattr(self.sentence)}/>"
        return (
            '<?xml version="1.0" encoding="utf-8"?>\n'
            f'<testsuite name="stepwell validate" tests="1" failures="{int(not self.ok)}">'
            f'<testcase classname="stepwell.validate" name={quoteattr(name)}>{body}</testcase>'
            "</testsuite>\n"
        )

"""Your first rewrite in 30 lines: `-(-x)` is x. Then one that looks as harmless, but is wrong.

Run: python examples/first_rewrite.py
"""

from dataclasses import dataclass
from typing import Any

import torch

import stepwell
from stepwell import Refusal, Rewrite, Rewriter
from stepwell.dialects import aten
from stepwell.ir.program import Program
from stepwell.validation.check import check


@dataclass(frozen=True)
class RemoveDoubleNegation(Rewrite[Any]):
    """`neg(neg(x))` to `x`, bit for bit: a negation only flips the sign."""

    name = "remove-double-negation"
    anchors = (aten.NegDefault,)

    def match(self, op: Any, program: Program) -> Any:
        """Return the match at a negation, a refusal with its reason, or None for other ops."""
        inner = op.operands[0].owner
        if isinstance(inner, aten.AbsDefault):
            return Refusal("what is negated is an absolute value, not a negation")
        return (op, inner.operands[0]) if isinstance(inner, aten.NegDefault) else None

    def build(self, match: Any, rw: Rewriter) -> None:
        """Replace all uses of the outer negation by x; ops that become dead are removed."""
        op, x = match
        rw.replace(op, [x])


@dataclass(frozen=True)
class ForgetDifference(Rewrite[Any]):
    """`x - x` to `x * 0`: equal for most numbers, and wrong for infinities."""

    name = "forget-difference"
    anchors = (aten.SubTensor,)

    def match(self, op: Any, program: Program) -> Any:
        """Match a value minus itself."""
        return op if op.operands[0] is op.operands[1] else None

    def build(self, match: Any, rw: Rewriter) -> None:
        """Build the product with zero."""
        new = aten.MulScalar.make(match.operands[0], 0.0, result_types=[match.results[0].type])
        rw.replace(match, [rw.insert(new).results[0]])


class Model(torch.nn.Module):
    """A model to rewrite."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`|-(-x)| + (x - x)`, and a `-|x|` that stays."""
        return torch.abs(torch.neg(torch.neg(x))) + (x - x) - torch.abs(x).neg()


def main() -> None:
    """Lower with each rewrite, look at the result, and check it."""
    inputs = (torch.randn(2, 3),)
    program = stepwell.from_exported_program(torch.export.export(Model(), inputs))
    print(program)

    own = stepwell.PIPELINES["xnnpack"]
    good = stepwell.Pipeline("good", (RemoveDoubleNegation(), *own.steps))
    lowered = stepwell.lower(program, "xnnpack", good, check=True)
    print(lowered.report.check)
    print(lowered.program)
    print([r.reason for r in lowered.report.refusals if r.rewrite == "remove-double-negation"])

    bold = stepwell.Pipeline("bold", (ForgetDifference(), *own.steps))
    result = check(program, "xnnpack", bold, inputs=inputs)
    print(result)
    assert result.findings[0].rewrite == "forget-difference"


if __name__ == "__main__":
    main()

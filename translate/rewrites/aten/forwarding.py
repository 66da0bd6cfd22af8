"""Rewrites that take an op away because its result is its first operand."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.aten.building import same_type


@dataclass(frozen=True)
class Forwarded:
    """`op` computes `value`, which is there already."""

    op: SchemaOp
    value: SSAValue


@dataclass(frozen=True)
class ForwardOperand(Rewrite[Forwarded]):
    """Base of the rewrites that remove an op without effect; subclasses say when it has none."""

    @abstractmethod
    def has_effect(self, op: SchemaOp, program: Program) -> Refusal | bool:
        """False if the op does nothing, True if it plainly does something, else why not."""

    def match(self, op: SchemaOp, program: Program) -> Forwarded | Refusal | None:
        """The first operand, if it has the result's type and the op has no other effect."""
        value = op.operands[0]
        if not same_type(value, op.results[0]):
            return None
        effect = self.has_effect(op, program)
        if isinstance(effect, Refusal):
            return effect
        return None if effect else Forwarded(op, value)

    def build(self, match: Forwarded, rw: Rewriter) -> None:
        """Let every user read the operand."""
        rw.replace(match.op, [match.value])

"""A rewrite restricted to the ops of a program that an NPU runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import Operation

from stepwell.dialects.quant.types import quantization
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.diagnostics import node_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter, Value
from stepwell.ir.types import element


@dataclass(frozen=True)
class OnNpu(Rewrite[Any]):
    """A rewrite that skips the model's ops that stay on the CPU, and optionally floats."""

    inner: Rewrite[Any]
    left: dict[str, str] = field(default_factory=dict[str, str], hash=False)
    """Node of the model → why it stays on the CPU."""
    integers: bool = False
    """Whether only ops on integers match."""

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the name of the rewrite that this one applies."""
        return self.inner.name

    @property
    def anchors(self) -> tuple[type[Operation], ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the inner rewrite's root operations."""
        return self.inner.anchors

    @property
    def bound(self) -> Bound:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the inner rewrite's error bound."""
        return self.inner.bound

    @property
    def takes_empty(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the inner rewrite supports empty tensors."""
        return self.inner.takes_empty

    def match(self, op: Any, program: Program) -> Any:
        """Return the inner rewrite's match, unless the NPU lacks a part of it."""
        node = node_name(op.location)
        if node is not None and node in self.left:
            return Refusal(self.left[node])
        if self.integers and not all(_is_stored(value) for value in (*op.operands, *op.results)):
            return None
        return self.inner.match(op, program)

    def deviates(self, match: Any, program: Program) -> Deviation | None:
        """Return the inner rewrite's deviation."""
        return self.inner.deviates(match, program)

    def bound_at(self, match: Any, value: Value) -> Bound:
        """Return the inner rewrite's bound at a match."""
        return self.inner.bound_at(match, value)

    def build(self, match: Any, rw: Rewriter) -> None:
        """Build the inner rewrite's replacement."""
        self.inner.build(match, rw)


def _is_stored(value: Any) -> bool:
    """Whether a value is a tensor of plain integers of at most 32 bits."""
    if not isinstance(value.type, TensorType) or quantization(value.type) is not None:
        return False
    value_element = element(value.type)
    return isinstance(value_element, IntegerType) and value_element.width.data <= 32

"""Merge a clamp of a clamp into one.

`relu6` decomposes to a clamp from below and one from above; a relu behind a clamp is one too.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %a = aten.clamp.default(%x, 0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.clamp.default(%a, none, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.clamp.default(%x, 0, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal
from stepwell.translate.rewrites.aten.building import same_type
from stepwell.translate.rewrites.aten.respelling import Respell, Respelled

Limit = int | float | None


@dataclass(frozen=True)
class MergeClamps(Respell):
    """`clamp(clamp(x, a, b), c, d)` to one clamp."""

    name: ClassVar[str] = "merge-clamps"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ClampDefault,)

    def match(self, op: SchemaOp, program: Program) -> Respelled | Refusal | None:
        """Two clamps in a row of one type, with bounds that are numbers in order."""
        inner = op.operands[0].owner
        if not isinstance(inner, aten.ClampDefault) or not same_type(
            inner.operands[0], op.results[0]
        ):
            return None
        pairs = [(clamp.arg("min"), clamp.arg("max")) for clamp in (inner, op)]
        if not all(is_interval(low, high) for low, high in pairs):
            return Refusal("the bounds are not numbers in order")
        (low, high), (lowest, highest) = pairs
        merged = {"min": moved_into(low, lowest, highest, lowest)}
        merged["max"] = moved_into(high, lowest, highest, highest)
        return Respelled(op, aten.ClampDefault, {"self": inner.operands[0], **merged})


def is_interval(low: object, high: object) -> bool:
    """Whether two bounds are plain numbers, or absent, and the lower is not above the upper."""
    given = [limit for limit in (low, high) if limit is not None]
    plain = [limit for limit in given if isinstance(limit, int | float) and not isnan(limit)]
    return len(plain) == len(given) and plain == sorted(plain)


def moved_into(limit: Limit, lowest: Limit, highest: Limit, absent: Limit) -> Limit:
    """A bound of the inner clamp after the outer one; `absent` if the inner has none."""
    if limit is None:
        return absent
    if lowest is not None and limit < lowest:
        return lowest
    return highest if highest is not None and limit > highest else limit

"""Let query heads share keys and values that were repeated for them.

Grouped-query attention (Ainslie et al. 2023) is mostly written with keys repeated G times along the
heads, `x[:, :, None].expand(…).reshape(…)` or `repeat_interleave`. Attention itself can say that
query head h reads key head h // G. Then nothing is copied, and the rows of G query heads are rows
of one product.

Before:
    func.func @forward(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x5x8xf32>) -> tensor<1x4x3x8xf32> {
      %0 = aten.view.default(%k, [1, 2, 1, 5, 8]) : (tensor<1x2x5x8xf32>) -> tensor<1x2x1x5x8xf32>
      %1 = aten.expand.default(%0, [1, 2, 2, 5, 8]) : (tensor<1x2x1x5x8xf32>) -> tensor<1x2x2x5x8xf32>
      %2 = aten.view.default(%1, [1, 4, 5, 8]) : (tensor<1x2x2x5x8xf32>) -> tensor<1x4x5x8xf32>
      %o = aten.scaled_dot_product_attention.default(%q, %2, %2) : (tensor<1x4x3x8xf32>, tensor<1x4x5x8xf32>, tensor<1x4x5x8xf32>) -> tensor<1x4x3x8xf32>
      func.return %o : tensor<1x4x3x8xf32>
    }
After:
    func.func @forward(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x5x8xf32>) -> tensor<1x4x3x8xf32> {
      %o = aten.scaled_dot_product_attention.default(%q, %k, %k, enable_gqa=true) : (tensor<1x4x3x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5x8xf32>) -> tensor<1x4x3x8xf32>
      func.return %o : tensor<1x4x3x8xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims
from stepwell.translate.rewrites.building import emit_as, view


@dataclass(frozen=True)
class Repeated:
    """A tensor whose heads are repeated: what is repeated, and its shape `[…, heads, rows, depth]`."""

    value: SSAValue
    shape: tuple[Dim, ...]


@dataclass(frozen=True)
class SharedHeads:
    """An attention with the keys and values that its query heads share."""

    op: SchemaOp
    keys: Repeated
    values: Repeated


@dataclass(frozen=True)
class ShareRepeatedHeads(Rewrite[SharedHeads]):
    """Attention over repeated keys and values to grouped-query attention."""

    name: ClassVar[str] = "share-repeated-heads"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ScaledDotProductAttentionDefault,)
    bound: ClassVar[Bound] = roundings("torch may run another kernel")

    def match(self, op: SchemaOp, program: Program) -> SharedHeads | Refusal | None:
        """Guards: keys and values are both repeated, and equally often."""
        keys, values = (repeated(value) for value in op.operands[1:3])
        if op.arg("enable_gqa") or keys is None or values is None:
            return None
        if len(dims(op.operands[0].type)) < 3:
            return Refusal("the queries have no heads")
        if keys.shape[:-2] != values.shape[:-2]:
            return Refusal("keys and values are not repeated equally often")
        if op.arg("dropout_p"):
            return Refusal(f"dropout_p is {op.arg('dropout_p')}; export the model in eval mode")
        return SharedHeads(op, keys, values)

    def build(self, match: SharedHeads, rw: Rewriter) -> None:
        """The same attention of fewer heads of keys and values."""
        op = match.op
        arguments: dict[str, Any] = op.present()
        for name, part in (("key", match.keys), ("value", match.values)):
            arguments[name] = view(rw, part.value, part.shape)
        arguments["enable_gqa"] = True
        new = type(op).make(**arguments, result_types=[op.results[0].type])
        rw.replace(op, [emit_as(rw, new, op.results[0])])


def repeated(value: SSAValue) -> Repeated | None:
    """What a tensor `[…, heads, rows, depth]` repeats along its heads, each head in turn.

    An expand of an axis of size one next to the heads, which a view then merges with them, the
    heads before it; or of the heads themselves, if there is one.
    """
    shape = dims(value.type)
    owner = value.owner
    if isinstance(owner, aten.ViewDefault):
        wide = dims(owner.operands[0].type)
        at = len(wide) - 3
        if len(wide) < 4:
            return None
        heads, times = wide[at - 1], wide[at]
        merged = heads * times if isinstance(heads, int) and isinstance(times, int) else None
        if shape != (*wide[: at - 1], merged, *wide[-2:]):
            return None
        owner = owner.operands[0].owner
    else:
        wide, at = shape, len(shape) - 3
    if not isinstance(owner, aten.ExpandDefault):
        return None
    narrow = dims(owner.operands[0].type)
    if wide[at] == 1 or narrow != (*wide[:at], 1, *wide[at + 1 :]):
        return None
    kept = narrow if wide is shape else (*narrow[:at], *narrow[at + 1 :])
    source = owner.operands[0]
    if isinstance(source.owner, aten.ViewDefault) and dims(source.owner.operands[0].type) == kept:
        source = source.owner.operands[0]
    return Repeated(source, kept)

"""Transposes that undo each other, that transpose constants, or that move nothing, are none.

Before:
    builtin.module {
      func.func @forward(%x: tensor<1x2x3x4xi8>) -> tensor<1x2x3x4xi8> {
        %a = cmsis.transpose(%x) {perm = array<i64: 0, 2, 3, 1>}
            : (tensor<1x2x3x4xi8>) -> tensor<1x3x4x2xi8>
        %b = cmsis.transpose(%a) {perm = array<i64: 0, 3, 1, 2>}
            : (tensor<1x3x4x2xi8>) -> tensor<1x2x3x4xi8>
        func.return %b : tensor<1x2x3x4xi8>
      }
    }
After:
    builtin.module {
      func.func @forward(%x: tensor<1x2x3x4xi8>) -> tensor<1x2x3x4xi8> {
        func.return %x : tensor<1x2x3x4xi8>
      }
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.cmsis.ops import Transpose
from stepwell.dialects.quant import StorageCast, UniformQuantizedType
from stepwell.ir.axes import lies_the_same
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.quantised.recognise import typed_weight
from stepwell.translate.rewrites.cmsis.reshape import reshaped, transposed


@dataclass(frozen=True)
class Shortcut:
    """A transpose that another value, another permutation, or a view can stand for."""

    op: Transpose
    source: SSAValue
    order: tuple[int, ...]
    weight: str | None = None
    is_view: bool = False


@dataclass(frozen=True)
class CancelTranspose(Rewrite[Shortcut]):
    """Compose, fold into constants, or turn into a view."""

    name: ClassVar[str] = "cancel-transpose"
    anchors: ClassVar[tuple[type[Operation], ...]] = (Transpose,)

    def match(self, op: Transpose, program: Program) -> Shortcut | Refusal | None:
        """The operand is a transpose or a constant, or only dimensions of size 1 move."""
        order = op.numbers("perm")
        maker = op.input.owner
        if isinstance(maker, Transpose):
            inner = maker.numbers("perm")
            return Shortcut(op, maker.input, tuple(inner[axis] for axis in order))
        typed = isinstance(element(op.input.type), UniformQuantizedType)
        if isinstance(maker, StorageCast) and typed:
            key = weight_key(maker.input)
            if key is not None:
                return Shortcut(op, op.input, order, key)
        if typed and lies_the_same(dims(op.input.type), order):
            return Shortcut(op, op.input, order, is_view=True)
        return None

    def build(self, match: Shortcut, rw: Rewriter) -> None:
        """The value, the derived weight, the view, or the one transpose that is left."""
        if match.weight is not None:
            key = rw.weights.derive("cmsis.permute", [match.weight], permutation=list(match.order))
            value = typed_weight(rw, key, match.op.output.type)  # pyright: ignore[reportArgumentType]
        elif match.is_view:
            value = reshaped(rw, match.source, dims(match.op.output.type))
        else:
            value = transposed(rw, match.source, match.order)
        rw.replace(match.op, [value])

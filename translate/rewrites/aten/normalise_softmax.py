"""Spell softmax one way: `aten._softmax.default` on a non-negative axis, cast first if asked to.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
      %a = aten.softmax.int(%x, -1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten.log_softmax.int(%x, 1) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %a, %b : tensor<2x3xf32>, tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
      %a = aten._softmax.default(%x, 1, false) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %b = aten._log_softmax.default(%x, 1, false) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %a, %b : tensor<2x3xf32>, tensor<2x3xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Attribute, Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, with_element
from stepwell.translate.rewrites.aten.building import axis, emit, emit_as


@dataclass(frozen=True)
class Softmax:
    """`form(operand.to(dtype), at)`."""

    op: SchemaOp
    form: type[SchemaOp]
    at: int
    dtype: Attribute | None


_FORMS: dict[type[SchemaOp], type[SchemaOp]] = {
    aten.SoftmaxInt: aten._SoftmaxDefault,
    aten._SoftmaxDefault: aten._SoftmaxDefault,
    aten.LogSoftmaxInt: aten._LogSoftmaxDefault,
    aten._LogSoftmaxDefault: aten._LogSoftmaxDefault,
}


@dataclass(frozen=True)
class NormaliseSoftmax(Rewrite[Softmax]):
    """`softmax` and `log_softmax` to `_softmax` and `_log_softmax`."""

    name: ClassVar[str] = "normalise-softmax"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(_FORMS)

    def match(self, op: SchemaOp, program: Program) -> Softmax | Refusal | None:
        """Any softmax that is not fused with a cast from half precision."""
        value, names = op.operands[0], op.SCHEMA.by_name
        if "half_to_float" in names and op.arg("half_to_float"):
            return Refusal("half_to_float casts within the softmax, which only CUDA does")
        at = axis(op.arg("dim"), max(len(dims(value.type)), 1))
        if isinstance(op, _FORMS[type(op)]) and op.arg("dim") == at:
            return None
        dtype = op.arg("dtype") if "dtype" in names else None
        if dtype == element(value.type):
            dtype = None
        return Softmax(op, _FORMS[type(op)], at, dtype)

    def build(self, match: Softmax, rw: Rewriter) -> None:
        """Write the cast, if any, and the softmax."""
        value, result = match.op.operands[0], match.op.results[0]
        if match.dtype is not None:
            cast_type = with_element(value.type, match.dtype)
            cast = aten._ToCopyDefault.make(value, dtype=match.dtype, result_types=[cast_type])
            value = emit(rw, cast)
        new = match.form.make(value, match.at, False, result_types=[result.type])
        rw.replace(match.op, [emit_as(rw, new, result)])

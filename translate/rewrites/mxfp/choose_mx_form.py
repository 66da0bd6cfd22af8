"""Give MX products the form that the target has.

Separate data and scales (`mxfp`, of convolutions `mxfp_conv` too) are added up block by block, block-scaled types (`mx_common` and
`mx_fp8e4m3`, …) over the whole axis.  A product keeps its form where the target has it; otherwise
it takes the other one, and its last bits may change.

Before:
    %z = stepwell_mx.matmul_t.default(%x, %y, "fp4e2m1", "fp4e2m1", "operators") : (tensor<1x2x32xf32>, tensor<1x3x32xf32>) -> tensor<1x2x3xf32>
After:
    %z = stepwell_mx.matmul_t.default(%x, %y, "fp4e2m1", "fp4e2m1", "types") : (tensor<1x2x32xf32>, tensor<1x3x32xf32>) -> tensor<1x2x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa.targets import MX_EXTENSIONS
from stepwell.dialects.tosa_mxfp.operators import OPERATORS, TYPES, form_refused
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.mxfp.choose_mxfp import (
    MxConv2dOp,
    MxLinearOp,
    MxMatmulOp,
    payload_fields,
)

_OPERATORS_NEED = (frozenset(("mxfp",)), frozenset(("mxfp", "mxfp_conv")))
"""Of operators on separate data and scales: products, convolutions."""


@dataclass(frozen=True)
class OtherForm:
    """A product and the form it takes."""

    op: SchemaOp
    form: str


@dataclass(frozen=True)
class ChooseMxForm(Rewrite[OtherForm]):
    """The form of MX products that the target's extensions allow."""

    extensions: frozenset[str] = frozenset(("mx_common", *MX_EXTENSIONS.values()))
    name: ClassVar[str] = "choose-mx-form"
    takes_empty: ClassVar[bool] = False
    anchors: ClassVar[tuple[type[Operation], ...]] = (MxLinearOp, MxMatmulOp, MxConv2dOp)
    bound: ClassVar[Bound] = roundings(
        "sums go over the axis instead of over blocks, or the other way"
    )

    def match(self, op: SchemaOp, program: Program) -> OtherForm | Refusal | None:
        """Guards: the target lacks this form, it has the other, and the product has it too."""
        if isinstance(op, MxMatmulOp) and any(len(dims(v.type)) != 3 for v in op.operands[:2]):
            return Refusal("it multiplies no two batches of matrices")
        held = op.arg("form")
        if self._has(held, op):
            return None
        other = TYPES if held == OPERATORS else OPERATORS
        if not self._has(other, op):
            return Refusal(f"the target has no form of this product: it needs {needed(op)}")
        dtype = torch_dtype(element(op.operands[0].type))
        refused = form_refused(other, *_payloads(op), dtype, isinstance(op, MxConv2dOp))
        if refused is not None:
            return Refusal(f"the target has only the form {other!r}: {refused}")
        return OtherForm(op, other)

    def _has(self, form: str, op: SchemaOp) -> bool:
        if form == OPERATORS:
            return _OPERATORS_NEED[isinstance(op, MxConv2dOp)] <= self.extensions
        return {"mx_common", *(MX_EXTENSIONS[name] for name in _payloads(op))} <= self.extensions

    def build(self, match: OtherForm, rw: Rewriter) -> None:
        """Another word in the op."""
        match.op.properties["form"] = StringAttr(match.form)
        rw.changed(match.op)


def _payloads(op: SchemaOp) -> tuple[str, str]:
    first, second = payload_fields(op)
    return op.arg(first), op.arg(second)


def needed(op: SchemaOp) -> str:
    """The extensions that a product's own form needs: `+mx_common+mx_fp8e4m3`."""
    if op.arg("form") == OPERATORS:
        return "+" + "+".join(sorted(_OPERATORS_NEED[isinstance(op, MxConv2dOp)]))
    return "+" + "+".join(["mx_common", *sorted({MX_EXTENSIONS[p] for p in _payloads(op)})])

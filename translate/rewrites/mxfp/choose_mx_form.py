"""Legalization: give MX products the form that the target has.

Products of separate data and scales (`mxfp`, of convolutions `mxfp_conv` too) are summed block by
block, products of block-scaled types (`mx_common` and `mx_fp8e4m3`, …) over the whole axis.  A
product keeps its form where the target has it; otherwise it takes the other form, and its last bits
may change.

rule choose-mx-form
    The form of MX products that the target's extensions allow.
Before:
    %y = $product of PRODUCTS(%a, %b, …, form=$form)
After:
    %y = $product(%a, %b, …, form=$other)
unless multiplies_no_batches(%y) for target
with $other = other_form(%y, $form, $extensions)
not of empty tensors
option $extensions = ALL: "what the target has"
bound of roundings: "sums go over the axis instead of over blocks, or the other way"
for $product = "stepwell_mx.matmul_t.default", $form = "operators"
for $payload = "fp4e2m1", $b_payload = "fp4e2m1"
for %a = "tensor<1x2x32xf32>", %b = "tensor<1x3x32xf32>"
"""

from __future__ import annotations

from typing import cast

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa.targets import MX_EXTENSIONS
from stepwell.dialects.tosa_mxfp.operators import OPERATORS, TYPES, form_refused
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.mxfp.choose_mxfp import (
    MxConv2dOp,
    MxLinearOp,
    MxMatmulOp,
    payload_fields,
)
from stepwell.translate.rules import read_rules

PRODUCTS = (MxLinearOp, MxMatmulOp, MxConv2dOp)
ALL = frozenset(("mx_common", *MX_EXTENSIONS.values()))


def multiplies_no_batches(value: SSAValue) -> Refusal | None:
    """Refuse unless the product is of two batches of matrices."""
    op = cast(SchemaOp, value.owner)
    if isinstance(op, MxMatmulOp) and any(len(dims(v.type)) != 3 for v in op.operands[:2]):
        return Refusal("the op multiplies no two batches of matrices")
    return None


def other_form(value: SSAValue, form: str, extensions: frozenset[str]) -> str | Refusal | None:
    """Return the other form of an MX product if the target lacks `form`; None if it has it.

    Returns a `Refusal` if the target has neither form, or the product cannot take the other one.
    """
    op = cast(SchemaOp, value.owner)
    if needed(op, form) <= extensions:
        return None
    other = TYPES if form == OPERATORS else OPERATORS
    if not needed(op, other) <= extensions:
        listed = "".join(f"+{name}" for name in sorted(needed(op, form)))
        return Refusal(f"the target has no form of this product: it needs the extensions {listed}")
    dtype = torch_dtype(element(op.operands[0].type))
    refused = form_refused(other, *_payloads(op), dtype, isinstance(op, MxConv2dOp))
    if refused is not None:
        return Refusal(f"the target has only the form {other!r}: {refused}")
    return other


def needed(op: SchemaOp, form: str) -> frozenset[str]:
    """Return the extensions that a form of a product needs."""
    if form == OPERATORS:
        return frozenset(("mxfp", "mxfp_conv") if isinstance(op, MxConv2dOp) else ("mxfp",))
    return frozenset(("mx_common", *(MX_EXTENSIONS[name] for name in _payloads(op))))


def _payloads(op: SchemaOp) -> tuple[str, str]:
    first, second = payload_fields(op)
    return op.arg(first), op.arg(second)


(ChooseMxForm,) = RULES = read_rules(__doc__, globals())

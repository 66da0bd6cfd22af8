"""Rewrite a constant int32 operand as int8 values and a RESCALE, if int8 represents it.

Vela fuses RESCALE, ADD (or SUB, MUL) and RESCALE into one int8 operator if both operands are
rescaled int8 values. With an int32 operand it creates four operators on int32.

rule rescale-constant
    The bytes, in the operand's shape, and one RESCALE by one factor.
Before:
    %r = tosa.rescale(%x, %m, %s, %z, %o, …) : (…) -> tensor<$*S x i32>
    %c = weight : tensor<$*C x i32>
    %y = $op of TERMS($left, $right, …)
After:
    %b = rescaled($bytes, $C)
    %y = $op($new_left, $new_right, …)
with $bytes = bytes_behind(%c)
for each $left, $right, $new_left, $new_right of (%r, %c, %r, %b), (%c, %r, %b, %r)
for %m = weight : tensor<1 x i32>
for %s = weight : tensor<1 x i8>
for %z = weight : tensor<1 x i8>
for %o = weight : tensor<1 x i32>
for %x = "tensor<2x4xi8>", $S = [2, 4], $C = [1, 4], $op = "tosa.add", $per_channel = false, $scale32 = true
for $input_unsigned = false, $output_unsigned = false, $rounding_mode = "SINGLE_ROUND"
for %s = "s#ones", %z = "z", %o = "o#zeros"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import i8, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import Dim
from stepwell.ir.types import dims, element
from stepwell.ir.weights import WeightStore, recipe
from stepwell.translate.rewrites.tosa.integers.integers import fixed_point, rescale_op
from stepwell.translate.rewrites.tosa.operators.building import Builder
from stepwell.translate.rules import read_rules

TERMS = (t.AddOp, t.SubOp, t.MulOp)
"""Operators that Vela runs on two operands of bytes."""

Bytes = tuple[str, dict[str, Any]]
"""The key of a weight, and the parameters of the RESCALE of its bytes."""


def bytes_behind(constant: SSAValue, program: Program) -> Bytes | None:
    """Return the int8 values from which one RESCALE computes an int32 constant."""
    key = weight_key(constant)
    return None if key is None else bytes_of(key, program.weights)


def bytes_of(key: str, weights: WeightStore) -> Bytes | None:
    """Return the int8 weight from which a RESCALE computes an int32 weight, and its parameters."""
    made_by = weights.recipe_of(key)
    if made_by is not None and made_by[0] == "tosa_reshape":
        made_by = weights.recipe_of(made_by[1][0])
    if made_by and made_by[0] == "tosa_rescale" and len(made_by[2]["multipliers"]) == 1:
        source = made_by[1][0]
        if element(weights.type_of(source)) == i8:
            return source, made_by[2]
    if not weights.is_known(key):
        return None
    values = weights.get(key)
    if values.numel() == 0 or int(values.min()) < -128 or int(values.max()) > 127:
        return None
    multipliers, shifts = fixed_point([1.0])
    one = {"multipliers": multipliers.tolist(), "shifts": shifts.tolist(), "zero_points": [0, 0]}
    return key, one


def rescaled(rw: Rewriter, source: Bytes, shape: Sequence[Dim]) -> SSAValue:
    """Build an int8 constant of a shape, and its RESCALE to int32."""
    (key, numbers), b = source, Builder(rw)
    if element(rw.weights.type_of(key)) == i32:
        key = rw.weights.derive("tosa_bytes", [key])
    if tuple(dims(rw.weights.type_of(key))) != tuple(shape):
        key = rw.weights.derive("tosa_reshape", [key], shape=list(shape))
    factors = torch.tensor(numbers["multipliers"]), torch.tensor(numbers["shifts"])
    return rescale_op(b.weight(key), factors, i32, tuple(numbers["zero_points"]), b)


@recipe("tosa_bytes")
def tosa_bytes(weight: torch.Tensor) -> torch.Tensor:
    """Convert small integers to int8."""
    return weight.to(torch.int8)


(RescaleConstant,) = RULES = read_rules(__doc__, globals())

"""A constant operand of int32 that a RESCALE made of bytes, or that bytes hold, is bytes again.

Vela makes one operator on bytes of RESCALE, ADD (or SUB, MUL) and RESCALE, where both operands are
rescaled bytes. With an operand of int32 it makes four, on int32.

Before:
    %m = stepwell.weight <"m"> "constant" : tensor<1xi32>
    %s = stepwell.weight <"s#ones"> "constant" : tensor<1xi8>
    %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
    %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
    %c = stepwell.weight <"c"> "constant" : tensor<1x4xi32>
    %r = tosa.rescale %x, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x4xi32>
    %y = tosa.add %r, %c : (tensor<2x4xi32>, tensor<1x4xi32>) -> tensor<2x4xi32>
After:
    %m = stepwell.weight <"m"> "constant" : tensor<1xi32>
    %s = stepwell.weight <"s#ones"> "constant" : tensor<1xi8>
    %z = stepwell.weight <"z"> "constant" : tensor<1xi8>
    %o = stepwell.weight <"o#zeros"> "constant" : tensor<1xi32>
    %r = tosa.rescale %x, %m, %s, %z, %o {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<2x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<2x4xi32>
    %0 = stepwell.weight <"c#tosa_bytes.3feb8f78ba5d"> "constant" : tensor<1x4xi8>
    %1 = tosa.rescale %0, dense<1073741824>, dense<30>, dense<0>, dense<0> {input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND, scale32 = true} : (tensor<1x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x4xi32>
    %y = tosa.add %r, %1 : (tensor<2x4xi32>, tensor<1x4xi32>) -> tensor<2x4xi32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from xdsl.ir import Operation

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import i8, i32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element
from stepwell.ir.weights import WeightStore, recipe
from stepwell.translate.rewrites.tosa.integers.integers import fixed_point, rescale_op
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of


@dataclass(frozen=True)
class Rescaled:
    """Operand `place` of `op` is what `numbers` make of weight `key`, as bytes."""

    op: TosaOp
    place: int
    key: str
    numbers: dict[str, Any]


@dataclass(frozen=True)
class RescaleConstant(Rewrite[Rescaled]):
    """`add(x, 3·c)` to `add(x, rescale(c))` for bytes c."""

    name: ClassVar[str] = "rescale-constant"
    anchors: ClassVar[tuple[type[Operation], ...]] = (t.AddOp, t.SubOp, t.MulOp)

    def match(self, op: TosaOp, program: Program) -> Rescaled | Refusal | None:
        """A constant whose recipe is a RESCALE of bytes by one factor, perhaps reshaped."""
        for place, operand in enumerate(op.operands[:2]):
            key = weight_key(operand)
            if key is None or element(operand.type) != i32:
                continue
            if isinstance(op.operands[1 - place].owner, t.RescaleOp):
                found = bytes_of(key, program.weights)
                return Rescaled(op, place, *found) if found is not None else None
        return None

    def build(self, match: Rescaled, rw: Rewriter) -> None:
        """The bytes, reshaped as the operand was, and one RESCALE."""
        op, b = match.op, Builder(rw)
        operand, numbers = op.operands[match.place], match.numbers
        key = match.key
        if element(rw.weights.type_of(key)) == i32:
            key = rw.weights.derive("tosa_bytes", [key])
        if tuple(dims(rw.weights.type_of(key))) != tuple(shape_of(operand)):
            key = rw.weights.derive("tosa_reshape", [key], shape=list(shape_of(operand)))
        factors = torch.tensor(numbers["multipliers"]), torch.tensor(numbers["shifts"])
        value = rescale_op(b.weight(key), factors, i32, tuple(numbers["zero_points"]), b)
        replaced = list(op.operands)
        replaced[match.place] = value
        rw.replace(op, [b.op(type(op), replaced, shape_of(op.results[0]), i32)])


def bytes_of(key: str, weights: WeightStore) -> tuple[str, dict[str, Any]] | None:
    """The weight whose bytes one RESCALE makes into this one, and the RESCALE's numbers."""
    found = weights.recipe_of(key)
    if found is not None and found[0] == "tosa_reshape":
        found = weights.recipe_of(found[1][0])
    if found is not None and found[0] == "tosa_rescale" and len(found[2]["multipliers"]) == 1:
        source = found[1][0]
        if element(weights.type_of(source)) == i8:
            return source, found[2]
    if not weights.is_known(key):
        return None
    values = weights.get(key)
    if values.numel() == 0 or int(values.min()) < -128 or int(values.max()) > 127:
        return None
    multipliers, shifts = fixed_point([1.0])
    one = {"multipliers": multipliers.tolist(), "shifts": shifts.tolist(), "zero_points": [0, 0]}
    return key, one


@recipe("tosa_bytes")
def tosa_bytes(weight: torch.Tensor) -> torch.Tensor:
    """Small integers in a byte each."""
    return weight.to(torch.int8)

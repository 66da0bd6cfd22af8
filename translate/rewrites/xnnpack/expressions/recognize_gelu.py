"""Recognize a GELU that is written with erf: XNNPACK has gelu and no erf.

BERT, Megatron and ESM write it as `x * 0.5 * (1 + erf(x / sqrt(2)))`, in various orders. The factor
may be at any place and may be any number: the rule matches `x * (1 + erf(x / sqrt(2)))`, which is
twice a GELU, and products with numbers merge.

Before:
    %a = aten.mul.Scalar(%x, 0.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %b = aten.div.Scalar(%x, 1.4142135623730951) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %c = aten.erf.default(%b) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %d = aten.add.Scalar(%c, 1.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = aten.mul.Tensor(%a, %d) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
After:
    %y = aten.gelu.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.rewrites.building import emit, emit_as

NEAR = 1e-5
"""The relative tolerance for the root of two, which models write with as few digits as 1.4142."""


@dataclass(frozen=True)
class WrittenGelu:
    """`op` is `factor` times the GELU of `x`."""

    op: SchemaOp
    x: SSAValue
    factor: float


@dataclass(frozen=True)
class RecognizeGelu(Rewrite[WrittenGelu]):
    """`x * (1 + erf(x / sqrt(2)))` to twice `gelu(x)`."""

    name: ClassVar[str] = "recognize-gelu"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MulTensor,)
    bound: ClassVar[Bound] = Bound(
        1e-6,
        4e-6,
        "1 + erf cancels where x is below -2, and a root of two may be written with four digits",
    )

    def match(self, op: SchemaOp, program: Program) -> WrittenGelu | Refusal | None:
        """Match a product of x and 1 + erf of the same x, apart from constant factors."""
        for side in (0, 1):
            for outer, gate in _scaled(op.operands[1 - side]):
                inside = _in_erf(gate)
                if inside is not None:
                    return _found(op, op.operands[side], outer, inside)
        return None

    def build(self, match: WrittenGelu, rw: Rewriter) -> None:
        """The GELU, scaled unless the factor is one."""
        result = match.op.results[0]
        gelu = aten.GeluDefault.make(match.x, result_types=[result.type])
        if match.factor != 1:
            value = emit(rw, gelu)
            gelu = aten.MulScalar.make(value, match.factor, result_types=[result.type])
        rw.replace(match.op, [emit_as(rw, gelu, result)])


def _found(op: SchemaOp, other: SSAValue, outer: float, inside: SSAValue) -> WrittenGelu | Refusal:
    """Guards: float32, one value on both sides, and the root of two."""
    if element(op.results[0].type) != f32:
        return Refusal("the error bound of this rewrite holds for float32 only")
    for factor, x in _scaled(other):
        for scale, same in _scaled(inside):
            if same is not x or x.type != op.results[0].type:
                continue
            if abs(scale * sqrt(2) - 1) <= NEAR:
                return WrittenGelu(op, x, 2 * factor * outer)
    return Refusal("it is no product of x and 1 + erf(x / sqrt(2))")


def _in_erf(gate: SSAValue) -> SSAValue | None:
    """Return `u` of `1 + erf(u)`."""
    owner = gate.owner
    if not isinstance(owner, aten.AddScalar) or (owner.arg("other"), owner.arg("alpha")) != (1, 1):
        return None
    erf = owner.operands[0].owner
    return erf.operands[0] if isinstance(erf, aten.ErfDefault) else None


def _scaled(value: SSAValue) -> Iterator[tuple[float, SSAValue]]:
    """Yield every decomposition of a value into a number times another value."""
    factor = 1.0
    yield factor, value
    while isinstance(value.owner, aten.MulScalar | aten.DivScalar):
        number = value.owner.arg("other")
        if not isinstance(number, int | float) or not number:
            return
        factor = factor * number if isinstance(value.owner, aten.MulScalar) else factor / number
        value = value.owner.operands[0]
        yield factor, value

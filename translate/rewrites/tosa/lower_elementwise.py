"""Elementwise ops, one for one where TOSA has the operator, else spelled out.

Before:
    %y = aten.tanh.default(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %y = tosa.tanh %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import copysign, frexp, isinf
from typing import ClassVar

import torch
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, IntegerType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import NanModeAttr
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.dtypes import dtype_name, f16, i1, i32, i64, torch_dtype
from stepwell.ir.rewriting import EXACT, Bound, Refusal
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.building import (
    FLOATS,
    Builder,
    shape_of,
)
from stepwell.translate.rewrites.tosa.lowering import LowerToTosa, is_number, needs_floats

UNARY: dict[type[Operation], type[TosaOp]] = {
    aten.AbsDefault: t.AbsOp,
    aten.CeilDefault: t.CeilOp,
    aten.CosDefault: t.CosOp,
    aten.ErfDefault: t.ErfOp,
    aten.ExpDefault: t.ExpOp,
    aten.FloorDefault: t.FloorOp,
    aten.LogDefault: t.LogOp,
    aten.ReciprocalDefault: t.ReciprocalOp,
    aten.RsqrtDefault: t.RsqrtOp,
    aten.SigmoidDefault: t.SigmoidOp,
    aten.SinDefault: t.SinOp,
    aten.TanhDefault: t.TanhOp,
    aten.LogicalNotDefault: t.LogicalNotOp,
    aten.BitwiseNotDefault: t.LogicalNotOp,
}

BINARY: dict[type[Operation], type[TosaOp]] = {
    aten.AddTensor: t.AddOp,
    aten.SubTensor: t.SubOp,
    aten.MulTensor: t.MulOp,
    aten.MaximumDefault: t.MaximumOp,
    aten.MinimumDefault: t.MinimumOp,
    aten.LogicalAndDefault: t.LogicalAndOp,
    aten.LogicalOrDefault: t.LogicalOrOp,
    aten.LogicalXorDefault: t.LogicalXorOp,
    aten.BitwiseAndTensor: t.LogicalAndOp,
    aten.BitwiseOrTensor: t.LogicalOrOp,
    aten._AndTensor: t.LogicalAndOp,
    aten._OrTensor: t.LogicalOrOp,
    aten._XorTensor: t.LogicalXorOp,
    aten.BitwiseXorTensor: t.LogicalXorOp,
    aten.NeTensor: t.EqualOp,
    aten.EqTensor: t.EqualOp,
    aten.GtTensor: t.GreaterOp,
    aten.GeTensor: t.GreaterEqualOp,
}

SWAPPED: dict[type[Operation], type[TosaOp]] = {
    aten.LtTensor: t.GreaterOp,
    aten.LeTensor: t.GreaterEqualOp,
}
"""a < b is b > a."""

SCALAR: dict[type[Operation], type[TosaOp]] = {
    aten.AddScalar: t.AddOp,
    aten.SubScalar: t.SubOp,
    aten.RsubScalar: t.SubOp,
    aten.MulScalar: t.MulOp,
    aten.EqScalar: t.EqualOp,
    aten.GtScalar: t.GreaterOp,
    aten.GeScalar: t.GreaterEqualOp,
    aten.LtScalar: t.GreaterOp,
    aten.LeScalar: t.GreaterEqualOp,
    aten.NeScalar: t.EqualOp,
}

_FLIPPED = (aten.LtScalar, aten.LeScalar, aten.RsubScalar)
_NEGATED = (aten.NeScalar, aten.NeTensor)
_LOGICAL = (t.LogicalNotOp, t.LogicalAndOp, t.LogicalOrOp, t.LogicalXorOp)
_COMPARISONS = (t.EqualOp, t.GreaterOp, t.GreaterEqualOp, *_LOGICAL)
_ON_INTEGERS = (t.AddOp, t.SubOp, t.MulOp, t.MaximumOp, t.MinimumOp, t.AbsOp, *_COMPARISONS[:3])
"""Operators that compute on i32 as torch does; i64 needs the extension, or a proof that i32 does."""


@dataclass(frozen=True)
class LowerElementwise(LowerToTosa):
    """`aten.tanh` to `tosa.tanh`, `aten.add` to `tosa.add`, and so on."""

    name: ClassVar[str] = "lower-elementwise-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (*UNARY, *BINARY, *SWAPPED, *SCALAR)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """One element type throughout, numbers known, no scaled addition."""
        if "alpha" in op.SCHEMA.by_name and op.arg("alpha") != 1:
            return Refusal(f"alpha is {op.arg('alpha')}, not 1")
        if type(op) in SCALAR:
            number = op.SCHEMA.arguments[1].name
            if not is_number(op.arg(number)):
                return Refusal(f"{number} is known only at run time")
        held = {element(value.type) for value in op.operands}
        if len(held) > 1:
            return Refusal("the operands have several dtypes")
        cls = operator_of(op)
        if (held == {i1}) != (cls in _LOGICAL):
            return Refusal(f"{cls.name} does not take {', '.join(map(dtype_name, held))}")
        if any(isinstance(one, IntegerType) and one != i1 for one in held):
            if not held <= {i32, i64} or cls not in _ON_INTEGERS:
                return Refusal(f"{cls.name} does not take {', '.join(map(dtype_name, held))}")
            if cls not in _COMPARISONS and element(op.results[0].type) not in held:
                return Refusal("its operands are integers, its result is not")
            if type(op) in SCALAR and not float(op.arg(op.SCHEMA.arguments[1].name)).is_integer():
                return Refusal("integers are compared with a fraction")
            if type(op) in SCALAR:
                number, reach = op.arg(op.SCHEMA.arguments[1].name), 31 if i32 in held else 53
                if not -(1 << reach) <= number < 1 << reach:
                    return Refusal(f"{number} does not fit {reach + 1} bits")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One operator; a number becomes a constant of one element."""
        if type(op) in UNARY:
            return b.unary(UNARY[type(op)], op.operands[0])
        if type(op) in SCALAR:
            cls = SCALAR[type(op)]
            x = op.operands[0]
            number = b.splat(float(op.arg(op.SCHEMA.arguments[1].name)), x)
            sides = (number, x) if isinstance(op, _FLIPPED) else (x, number)
            y = b.binary(cls, *sides, i1 if cls in _COMPARISONS else None)
            return b.unary(t.LogicalNotOp, y) if isinstance(op, _NEGATED) else y
        swapped = type(op) in SWAPPED
        cls = SWAPPED[type(op)] if swapped else BINARY[type(op)]
        left, right = op.operands[1::-1] if swapped else op.operands[:2]
        y = b.binary(cls, left, right, i1 if cls in _COMPARISONS else None)
        return b.unary(t.LogicalNotOp, y) if isinstance(op, _NEGATED) else y


def operator_of(op: SchemaOp) -> type[TosaOp]:
    """The operator an elementwise op becomes."""
    for table in (UNARY, BINARY, SWAPPED, SCALAR):
        if type(op) in table:
            return table[type(op)]
    raise AssertionError(op.name)


def _negate(x: SSAValue, b: Builder) -> SSAValue:
    return b.negate(x) if element(x.type) in FLOATS else b.binary(t.SubOp, b.splat(0, x), x)


def _hardswish(x: SSAValue, b: Builder) -> SSAValue:
    gate = clamp(b.scalar(t.AddOp, x, 3.0), 0.0, 6.0, b)
    return b.binary(t.MulOp, b.scalar(t.MulOp, x, 1 / 6), gate)


_SPELLED: dict[type[Operation], Callable[[SSAValue, Builder], SSAValue]] = {
    aten.NegDefault: _negate,
    aten.HardswishDefault: _hardswish,
}


@dataclass(frozen=True)
class SpellOutElementwise(LowerToTosa):
    """Elementwise ops that are several TOSA operators, or one with constants."""

    name: ClassVar[str] = "spell-out-elementwise-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(_SPELLED)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats; integers are negated too."""
        is_whole = element(op.operands[0].type) in (i32, i64)
        return None if is_whole and isinstance(op, aten.NegDefault) else needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """The operators of the table."""
        return _SPELLED[type(op)](op.operands[0], b)


@dataclass(frozen=True)
class LowerGelu(LowerToTosa):
    """Exact gelu: x/2 · (1 + erf(x/√2)); the tanh form with its polynomial."""

    name: ClassVar[str] = "lower-gelu-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.GeluDefault,)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats only."""
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """Five operators, or eight for the tanh form."""
        x = op.operands[0]
        half = b.scalar(t.MulOp, x, 0.5)
        if op.arg("approximate") == "tanh":
            cubic = b.scalar(t.MulOp, b.binary(t.MulOp, x, x), 0.044715 * 0.7978845608028654)
            inner = b.binary(t.MulOp, b.scalar(t.AddOp, cubic, 0.7978845608028654), x)
            curve = b.unary(t.TanhOp, inner)
        else:
            curve = b.unary(t.ErfOp, b.scalar(t.MulOp, x, 0.7071067811865476))
        return b.binary(t.AddOp, b.binary(t.MulOp, half, curve), half)


@dataclass(frozen=True)
class LowerDivision(LowerToTosa):
    """`a / b` as a · (1/b); a number as divisor is inverted at compile time."""

    name: ClassVar[str] = "lower-division-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.DivTensor, aten.DivScalar)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats, and a divisor that is known if it is a number."""
        if isinstance(op, aten.DivScalar) and not is_number(op.arg("other")):
            return Refusal("the divisor is known only at run time")
        if any(element(value.type) not in FLOATS for value in op.operands):
            return Refusal("integer division is not lowered yet")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """A product."""
        x = op.operands[0]
        if isinstance(op, aten.DivScalar):
            for factor in inverse(
                float(op.arg("other")), torch.finfo(torch_dtype(element(x.type)))
            ):
                x = b.scalar(t.MulOp, x, factor)
            return x
        divisor = op.operands[1]
        if isinstance(divisor.owner, t.ReciprocalOp):
            return b.binary(t.MulOp, x, divisor.owner.input)
        if element(x.type) == f16:  # 1 / x of a half below 2 ** -16 is no half
            y = b.binary(t.MulOp, b.single(x), b.unary(t.ReciprocalOp, b.single(divisor)))
            return b.op(t.CastOp, [y], shape_of(y), f16)
        return b.binary(t.MulOp, x, b.unary(t.ReciprocalOp, divisor))


def inverse(number: float, info: torch.finfo) -> tuple[float, ...]:
    """Factors whose product is 1 / number: one, or two where it is no normal number of the type."""
    if number == 0:
        return (copysign(float("inf"), number),)
    if isinf(number) or info.tiny <= abs(1 / number) <= info.max:
        return (1 / number,)
    share, exponent = frexp(number)
    return 1 / share * 2.0 ** -(exponent // 2), 2.0 ** -(exponent - exponent // 2)


def clamp(x: SSAValue, low: float, high: float, b: Builder) -> SSAValue:
    """CLAMP to two numbers."""
    held = element(x.type)
    low_attr: Attribute
    high_attr: Attribute
    if isinstance(held, IntegerType):
        low_attr = IntegerAttr(int(low), held)
        high_attr = IntegerAttr(int(high), held)
    else:
        low_attr = FloatAttr(low, held)  # pyright: ignore
        high_attr = FloatAttr(high, held)  # pyright: ignore
    bounds = {"min_val": low_attr, "max_val": high_attr}
    return b.op(t.ClampOp, [x], shape_of(x), held, **bounds)


@dataclass(frozen=True)
class LowerClamp(LowerToTosa):
    """`clamp` with numbers: CLAMP of floats, MAXIMUM and MINIMUM of integers."""

    name: ClassVar[str] = "lower-clamp-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.ClampDefault,)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats or integers of at least 32 bits, numbers."""
        for side in (op.arg("min"), op.arg("max")):
            if side is not None and not is_number(side):
                return Refusal("a bound is known only at run time")
        whole = all(
            side is None or isinstance(side, int) for side in (op.arg("min"), op.arg("max"))
        )
        is_whole = element(op.operands[0].type) in (i32, i64)
        return None if whole and is_whole else needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """One CLAMP, or one operator a side."""
        low, high = op.arg("min"), op.arg("max")
        if element(op.operands[0].type) not in FLOATS:
            y = op.operands[0]
            for cls, side in ((t.MaximumOp, low), (t.MinimumOp, high)):
                y = y if side is None else b.scalar(cls, y, side)
            return y
        infinity = float("inf")
        least = -infinity if low is None else float(low)
        most = infinity if high is None else float(high)
        return clamp(op.operands[0], min(least, most), most, b)  # torch's greatest number wins


@dataclass(frozen=True)
class LowerWhere(LowerToTosa):
    """`where` to SELECT."""

    name: ClassVar[str] = "lower-where-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.WhereSelf,)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """One element type for both choices."""
        if element(op.operands[1].type) != element(op.operands[2].type):
            return Refusal("the operands have several dtypes")
        return None

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """SELECT on operands of one rank."""
        condition, a, other = op.operands
        return b.select(condition, a, other)


@dataclass(frozen=True)
class LowerMaskedFill(LowerToTosa):
    """`masked_fill` by a number to SELECT."""

    name: ClassVar[str] = "lower-masked-fill-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.MaskedFillScalar,)
    bound: ClassVar[Bound] = EXACT

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """A number known ahead of time."""
        is_known = is_number(op.arg("value"))
        return None if is_known else Refusal("the value is known only at run time")

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """SELECT on operands of one rank."""
        x, mask = op.operands[:2]
        return b.select(mask, b.splat(op.arg("value"), x), x)


NUMBERS: dict[type[Operation], type[TosaOp]] = {
    op_class("aten.fmax.default"): t.MaximumOp,
    op_class("aten.fmin.default"): t.MinimumOp,
}


@dataclass(frozen=True)
class LowerOfNumbers(LowerToTosa):
    """`fmax` and `fmin`: a number wins over a NaN."""

    name: ClassVar[str] = "lower-of-numbers-to-tosa"
    anchors: ClassVar[tuple[type[Operation], ...]] = tuple(NUMBERS)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Floats of one type."""
        if element(op.operands[0].type) != element(op.operands[1].type):
            return Refusal("the operands have several dtypes")
        return needs_floats(op)

    def lower(self, op: SchemaOp, b: Builder) -> SSAValue:
        """MAXIMUM or MINIMUM that ignores NaN."""
        shape = shape_of(op.results[0])
        operands = [b.of_rank(value, len(shape)) for value in op.operands]
        held = element(op.results[0].type)
        ignore = NanModeAttr("IGNORE")
        return b.op(NUMBERS[type(op)], operands, shape, held, nan_mode=ignore)

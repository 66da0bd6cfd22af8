"""Nodes that work on each element: one input, or two that broadcast.

Quantized operands and results may have different parameters: the node computes on the real values
and rounds once.
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr, TensorType
from xdsl.irdl import (
    operand_def,
    opt_prop_def,
    prop_def,
)
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.xnnpack.base import (
    XnnpackOp,
    full_range,
    node,
    same_everywhere,
    same_parameters,
)
from stepwell.dialects.xnnpack.datatypes import FLOATS, STATIC_INT8, DynamicInt8Type, datatype
from stepwell.ir.axes.forms import along_rows, elementwise, mapped
from stepwell.ir.axes.maps import AxisMap
from stepwell.ir.declared.families import Family
from stepwell.ir.types import dims, element

ALL = FLOATS + STATIC_INT8


class _Elementwise(XnnpackOp):
    """The base class of nodes on tensors of one datatype, whose axes are the result's."""

    FAMILY: ClassVar[Family | None] = "elementwise"
    DATATYPES: ClassVar[tuple[str, ...]] = ALL

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        same_everywhere(given, made, self.DATATYPES, self.name)
        full_range(self.result.type)

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return elementwise(self)


class Unary(_Elementwise):
    """The base class of nodes with one tensor and a result of the same shape."""

    TORCH: ClassVar[str] = ""
    """The function of torch with the node's semantics on reals; empty if it has its own."""
    MIXED: ClassVar[tuple[int, ...]] = ()
    """The axes along which elements depend on each other: arguments of `TORCH` too."""
    STARTS_FROM_DOUBLES: ClassVar[bool] = False
    """Whether torch's function of float32 overflows where XNNPACK's kernel does not."""
    EVENT: ClassVar[str] = ""
    """The profiler's name of the node; empty if it is the class's."""
    input = operand_def(TensorType)

    def axis_map(self, result: int = 0) -> AxisMap | None:
        if not self.MIXED:
            return super().axis_map(result)
        rank = len(dims(self.input.type))
        return mapped(self, along_rows(rank, (rank + axis for axis in self.MIXED)))


class Binary(_Elementwise):
    """The base class of nodes with two tensors whose shapes broadcast as in numpy."""

    left = operand_def(TensorType)
    right = operand_def(TensorType)


class ClampedBinary(Binary):
    """A binary node whose result is clamped if `output_min` or `output_max` is set."""

    output_min = opt_prop_def(FloatAttr)
    output_max = opt_prop_def(FloatAttr)


@node
class Abs(Unary):
    """The absolute value `|x|`."""

    name = "xnnpack.abs"
    TORCH: ClassVar[str] = "abs"


@node
class Ceiling(Unary):
    """The least integer not below x."""

    name = "xnnpack.ceiling"
    TORCH: ClassVar[str] = "ceil"


@node
class Copy(Unary):
    """The input, unchanged."""

    name = "xnnpack.copy"
    FAMILY: ClassVar[Family | None] = "reshape"

    def check(self) -> None:
        same_parameters(self)


@node
class Cosine(Unary):
    """`cos(x)`, x in radians."""

    name = "xnnpack.cosine"
    TORCH: ClassVar[str] = "cos"
    NODE: ClassVar[str] = "XNNCos"


@node
class Exp(Unary):
    """The exponential `e**x`."""

    name = "xnnpack.exp"
    TORCH: ClassVar[str] = "exp"


@node
class Floor(Unary):
    """The greatest integer not above x."""

    name = "xnnpack.floor"
    TORCH: ClassVar[str] = "floor"


@node
class Gelu(Unary):
    """`x · Φ(x)` with the normal distribution Φ, computed by erf."""

    name = "xnnpack.gelu"
    TORCH: ClassVar[str] = "nn.functional.gelu"
    STARTS_FROM_DOUBLES: ClassVar[bool] = True
    EVENT: ClassVar[str] = "GELU"


@node
class Hardswish(Unary):
    """`x · clamp(x + 3, 0, 6) / 6`."""

    name = "xnnpack.hardswish"
    EVENT: ClassVar[str] = "HardSwish"


@node
class Log(Unary):
    """The natural logarithm."""

    name = "xnnpack.log"
    TORCH: ClassVar[str] = "log"


@node
class Negate(Unary):
    """The negative `−x`."""

    name = "xnnpack.negate"
    TORCH: ClassVar[str] = "neg"


@node
class ReciprocalSquareRoot(Unary):
    """The reciprocal square root `1 / √x`."""

    name = "xnnpack.reciprocal_square_root"
    TORCH: ClassVar[str] = "rsqrt"
    EVENT: ClassVar[str] = "Reciprocal Square Root"


@node
class Sigmoid(Unary):
    """`1 / (1 + e**−x)`."""

    name = "xnnpack.sigmoid"
    TORCH: ClassVar[str] = "sigmoid"


@node
class Sine(Unary):
    """`sin(x)`, x in radians."""

    name = "xnnpack.sine"
    TORCH: ClassVar[str] = "sin"
    NODE: ClassVar[str] = "XNNSin"


@node
class Square(Unary):
    """The square `x²`."""

    name = "xnnpack.square"


@node
class SquareRoot(Unary):
    """`√x`. NaN for a negative number, but −0 from the half-precision kernel."""

    name = "xnnpack.square_root"
    TORCH: ClassVar[str] = "sqrt"
    EVENT: ClassVar[str] = "Square Root"


@node
class Tanh(Unary):
    """The hyperbolic tangent."""

    name = "xnnpack.tanh"
    TORCH: ClassVar[str] = "tanh"
    EVENT: ClassVar[str] = "TanH"


@node
class Clamp(Unary):
    """`min(max(x, output_min), output_max)`; at least one bound is set.

    XNNPACK merges a clamp into the node that computes x, if x has no other use, and that node then
    writes the clamp's result. If the two are quantized differently, x is never rounded to its own
    scale. The semantics here are those of the clamp alone.
    """

    name = "xnnpack.clamp"
    output_min = opt_prop_def(FloatAttr)
    output_max = opt_prop_def(FloatAttr)

    def check(self) -> None:
        if self.output_range is None:
            raise VerifyException("a clamp needs output_min or output_max")

    def measured_as(self) -> tuple[str, str]:
        return self.name, super().measured_as()[1]


@node
class LeakyReLU(Unary):
    """`x` where x ≥ 0, else `negative_slope · x`."""

    name = "xnnpack.leaky_relu"
    negative_slope = prop_def(FloatAttr)


@node
class ELU(Unary):
    """`x` where x ≥ 0, else `alpha · (e**x − 1)`; alpha is positive."""

    name = "xnnpack.elu"
    alpha = prop_def(FloatAttr)

    def check(self) -> None:
        if not self.number("alpha", 0.0) > 0.0:
            raise VerifyException("alpha must be positive")


@node
class Convert(Unary):
    """Convert to another datatype: float to float, quantize, dequantize, requantize.

    For `!xnnpack.dynamic_int8<n>`, the scale and zero point of each token are computed here.
    """

    name = "xnnpack.convert"
    FAMILY: ClassVar[Family | None] = "cast"

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        if (given[0], made[0]) not in CONVERSIONS:
            raise VerifyException(f"XNNPACK does not convert {given[0]} to {made[0]}")
        full_range(self.result.type)

    def axis_map(self, result: int = 0) -> AxisMap | None:
        rank, result_element = len(dims(self.input.type)), element(self.result.type)
        shared = result_element.data if isinstance(result_element, DynamicInt8Type) else 0
        return mapped(self, along_rows(rank, range(rank - shared, rank)))

    def measured_as(self) -> tuple[str, str]:
        made = datatype(self.result.type) or "unknown"
        return f"{self.name} to {made.replace('fp', 'f')}", super().measured_as()[1]

    def does_as_family(self, family: Family) -> bool:
        """Whether this Convert is an elementwise cast: not if it computes a scale per token."""
        return not isinstance(element(self.result.type), DynamicInt8Type)


CONVERSIONS = frozenset(
    {
        *((a, b) for a in FLOATS for b in (*FLOATS, "qdint8") if a != b),
        ("bf16", "fp32"),
        ("fp32", "bf16"),
        *((a, b) for a in FLOATS for b in STATIC_INT8),
        *((b, a) for a in FLOATS for b in STATIC_INT8),
        *((a, b) for a in STATIC_INT8 for b in STATIC_INT8),
    }
)
"""(from, to) pairs for which XNNPACK has kernels."""


@node
class Softmax(Unary):
    """`e**x / Σ e**x` over the last axis, the maximum subtracted first."""

    name = "xnnpack.softmax"
    FAMILY: ClassVar[Family | None] = "distribution"
    DATATYPES: ClassVar[tuple[str, ...]] = FLOATS
    TORCH: ClassVar[str] = "softmax"
    MIXED: ClassVar[tuple[int, ...]] = (-1,)


@node
class Add(ClampedBinary):
    """The sum `a + b`."""

    name = "xnnpack.add"


@node
class Subtract(ClampedBinary):
    """The difference `a − b`."""

    name = "xnnpack.subtract"


@node
class Multiply(ClampedBinary):
    """`a · b`. XNNPACK replaces a quantized value times itself by a `xnnpack.square`, rounded as
    one.
    """

    name = "xnnpack.multiply"


@node
class Divide(ClampedBinary):
    """The quotient `a / b`."""

    name = "xnnpack.divide"
    NODE: ClassVar[str] = "XNNDiv"


@node
class Minimum(Binary):
    """The lesser of a and b."""

    name = "xnnpack.minimum"


@node
class Maximum(Binary):
    """The greater of a and b."""

    name = "xnnpack.maximum"


@node
class PReLU(Binary):
    """`a` where a ≥ 0, else `a · b`; b is the slope."""

    name = "xnnpack.prelu"

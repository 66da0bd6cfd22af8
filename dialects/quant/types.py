"""`!quant.uniform`: the quantization of a tensor's integers, in upstream MLIR's notation.

    !quant.uniform<i8:f32, 0.05:-3>                              per tensor
    !quant.uniform<i8<-127:127>:f32:0, {0.1, 0.2, 0.3:4}>        per axis (axis 0)
    !quant.uniform<u8:f32:{0:1, 1:2}, {{2.0:10, 3.0:20}, {4.0:30, 5.0:40}}>   sub-channel

A real value is `(stored − zero_point) · scale`. A range is printed if it is not that of the storage
type, a zero point if it is not 0. Source: MLIR, `mlir/Dialect/Quant/IR/QuantBase.td`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

from xdsl.dialects.builtin import AnyFloat, IntegerType, Signedness
from xdsl.ir import Attribute, Data, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.quant.numbers import Numbers, all_positive, compact, extent
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.xdsl.xdsl_private import current_text
from stepwell.ir.dtypes import element_type, f32, torch_dtype
from stepwell.ir.identity_cache import once_each
from stepwell.ir.types import dims, element

STORAGE_BITS = (4, 8, 16, 32)


@dataclass(frozen=True)
class Quantization:
    """The parameters of a uniform quantized type.

    Attributes:
        bits, signed: the storage type, `i8` or `u8` …
        low, high: the range of the stored values, inclusive.
        expressed: the float type of the real values.
        scales, zero_points: one per tensor, per slice of the axis, or per block (row-major).
        blocks: (axis, block size) pairs; none for per tensor; block size 1 on the axis of a
            per-axis type.
        grid: the number of blocks along each axis of `blocks`; their product is the number of
            scales.
        sub_channel: whether the type is printed with block sizes.
    """

    bits: int
    signed: bool
    low: int
    high: int
    expressed: AnyFloat
    scales: Sequence[float]
    zero_points: Sequence[int]
    blocks: tuple[tuple[int, int], ...] = ()
    grid: tuple[int, ...] = ()
    sub_channel: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", compact(self.scales, float))
        object.__setattr__(self, "zero_points", compact(self.zero_points, int))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Return the hash, cached because types are looked up often and may have a thousand
        scales.
        """
        return hash((self.bits, self.low, self.scales, self.zero_points, self.blocks))

    def scale_values(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return the scales as a vector, of float32 by default."""
        return _vector(self.scales, dtype or torch.float32)

    def zero_point_values(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return the zero points as a vector, of int32 by default."""
        return _vector(self.zero_points, dtype or torch.int32)

    @property
    def is_symmetric(self) -> bool:
        """Whether every zero point is 0."""
        return extent(self.zero_points) == (0, 0)

    @property
    def is_per_tensor(self) -> bool:
        """Whether the tensor has a single scale."""
        return not self.blocks

    @property
    def axis(self) -> int | None:
        """Return the axis of a per-axis type."""
        return self.blocks[0][0] if self.blocks and not self.sub_channel else None

    @property
    def scale(self) -> float:
        """Return the scale of a per-tensor type."""
        assert self.is_per_tensor
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """Return the zero point of a per-tensor type."""
        assert self.is_per_tensor
        return self.zero_points[0]

    @property
    def storage(self) -> IntegerType:
        """The element type of the stored tensor: `i8`, `ui8`, …"""
        return IntegerType(self.bits, Signedness.SIGNLESS if self.signed else Signedness.UNSIGNED)

    @property
    def default_range(self) -> tuple[int, int]:
        """The range of the storage type."""
        if self.signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    def problem(self) -> str | None:
        """Return why these parameters are invalid, or None."""
        least, most = self.default_range
        if self.bits not in STORAGE_BITS:
            allowed = ", ".join(map(str, STORAGE_BITS))
            return f"the storage has {self.bits} bits; it must have {allowed}"
        if not least <= self.low < self.high <= most:
            return f"the storage range {self.low}:{self.high} is not within {least}:{most}"
        if len(self.scales) != len(self.zero_points) or not self.scales:
            return f"{len(self.scales)} scales with {len(self.zero_points)} zero points"
        if len(self.scales) != math.prod(self.grid):
            return f"{len(self.scales)} scales do not fill a grid of {list(self.grid)}"
        if not all_positive(self.scales):
            scale = next(s for s in self.scales if not 0 < s < math.inf)
            return f"scale {scale} is not a positive number"
        for zero_point in extent(self.zero_points):
            if not self.low <= zero_point <= self.high:
                return f"zero point {zero_point} is outside {self.low}:{self.high}"
        return None

    def shape_problem(self, shape: Sequence[object]) -> str | None:
        """Return why a tensor of this shape cannot have this quantization, or None."""
        for (axis, block), count in zip(self.blocks, self.grid, strict=True):
            if axis >= len(shape):
                return f"its axis {axis} is not one of a tensor of rank {len(shape)}"
            size = shape[axis]
            if isinstance(size, int) and size != block * count:
                return f"axis {axis} has {size} elements, its quantization {block * count}"
        return None


@irdl_attr_definition
class UniformQuantizedType(Data[Quantization], TypeAttribute):
    """`!quant.uniform<…>`, per tensor, per axis or sub-channel."""

    name = "quant.uniform"

    def verify(self) -> None:
        if problem := self.data.problem():
            raise VerifyException(f"!quant.uniform: {problem}")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Quantization:
        """Parse the parameters, such as `<i8<-127:127>:f32:axis, {scale:zero, …}>`."""
        with parser.in_angle_brackets():
            bits, signed = _parse_storage(parser)
            low, high = _default_range(bits, signed)
            if parser.parse_optional_punctuation("<") is not None:
                low = parser.parse_integer(allow_boolean=False)
                parser.parse_punctuation(":")
                high = parser.parse_integer(allow_boolean=False)
                parser.parse_punctuation(">")
            parser.parse_punctuation(":")
            expressed = cast(AnyFloat, parser.parse_type())
            blocks, sub_channel = _parse_blocks(parser)
            parser.parse_punctuation(",")
            scales: list[float] = []
            zero_points: list[int] = []
            grid = _parse_values(parser, scales, zero_points) if blocks else ()
            if not blocks:
                _parse_value(parser, scales, zero_points)
            return Quantization(
                bits,
                signed,
                low,
                high,
                expressed,
                scales,
                zero_points,
                blocks,
                grid,
                sub_channel,
            )

    def print_parameter(self, printer: Printer) -> None:
        """Print the parameters, such as `<i8:f32, 0.05:-3>`."""
        held = self.data
        with printer.in_angle_brackets():
            printer.print_string(f"{'i' if held.signed else 'u'}{held.bits}")
            if (held.low, held.high) != held.default_range:
                printer.print_string(f"<{held.low}:{held.high}>")
            printer.print_string(":")
            printer.print_attribute(held.expressed)
            values = [
                float_literal(scale) + (f":{zero}" if zero else "")
                for scale, zero in zip(held.scales, held.zero_points, strict=True)
            ]
            if held.sub_channel:
                pairs = ", ".join(f"{axis}:{block}" for axis, block in held.blocks)
                printer.print_string(f":{{{pairs}}}, {_nested(iter(values), held.grid)}")
            elif held.blocks:
                printer.print_string(f":{held.blocks[0][0]}, {{{', '.join(values)}}}")
            else:
                printer.print_string(f", {values[0]}")


def per_tensor(
    dtype: torch.dtype,
    scale: float,
    zero_point: int = 0,
    low: int | None = None,
    high: int | None = None,
    expressed: AnyFloat = f32,
) -> UniformQuantizedType:
    """Return the type of elements stored as `dtype` with one scale."""
    made = per_axis(dtype, 0, (scale,), (zero_point,), low, high, expressed).data
    return UniformQuantizedType(replace(made, blocks=(), grid=()))


def per_axis(
    dtype: torch.dtype,
    axis: int,
    scales: Sequence[float],
    zero_points: Sequence[int] | None = None,
    low: int | None = None,
    high: int | None = None,
    expressed: AnyFloat = f32,
) -> UniformQuantizedType:
    """Return the type of elements stored as `dtype` with a scale for every index of `axis`."""
    limits = torch.iinfo(dtype)
    return UniformQuantizedType(
        Quantization(
            limits.bits,
            limits.min < 0,
            limits.min if low is None else low,
            limits.max if high is None else high,
            expressed,
            [float(scale) for scale in scales],
            [int(zero) for zero in zero_points or [0] * len(scales)],
            ((axis, 1),),
            (len(scales),),
        )
    )


def _vector(values: Sequence[float], dtype: torch.dtype) -> torch.Tensor:
    if not isinstance(values, Numbers):
        return torch.tensor(values, dtype=dtype)
    return torch.from_numpy(values.held.copy()).to(dtype)


@once_each
def quantization(type_: Attribute) -> Quantization | None:
    """Return the quantization of a tensor type, or None if its elements are plain."""
    type_element = element(type_)
    return type_element.data if isinstance(type_element, UniformQuantizedType) else None


def storage_dtype(parameters: Quantization) -> torch.dtype:
    """Return the torch dtype of the stored integers (int8 or uint8 for 4 bits)."""
    if parameters.bits < 8:
        return torch.int8 if parameters.signed else torch.uint8
    return torch_dtype(parameters.storage)


def stored_dtype(type_: Attribute) -> torch.dtype:
    """Return the torch dtype of a tensor type's elements; of stored integers if quantized."""
    parameters = quantization(type_)
    return torch_dtype(element(type_)) if parameters is None else storage_dtype(parameters)


def storage_element(parameters: Quantization) -> Attribute:
    """Return the element type of the stored tensor in the IR."""
    return element_type(storage_dtype(parameters))


def type_problem(type_: Attribute) -> str | None:
    """Return why a quantized tensor type contradicts its shape, or None."""
    type_quantization = quantization(type_)
    return None if type_quantization is None else type_quantization.shape_problem(dims(type_))


def float_literal(value: float) -> str:
    """Format a double as the shortest decimal that parses back, with the point that MLIR's grammar
    requires.

    Python's `repr(1e-10)` has no point and would not parse.
    """
    text = repr(float(value))
    if "." in text or "inf" in text or "nan" in text:
        return text
    mantissa, exponent_mark, exponent = text.partition("e")
    return f"{mantissa}.0{exponent_mark}{exponent}"


def _default_range(bits: int, signed: bool) -> tuple[int, int]:
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def _parse_storage(parser: AttrParser) -> tuple[int, bool]:
    word = parser.parse_identifier(context_msg="a storage type such as i8 or u8")
    kind, digits = word[:1], word[1:]
    if word.startswith(("si", "ui")):
        kind, digits = "i" if word[0] == "s" else "u", word[2:]
    if kind not in ("i", "u") or not digits.isdecimal():
        parser.raise_error(f"{word} is not a storage type such as i8, u8, i16")
    return int(digits), kind == "i"


def _parse_blocks(parser: AttrParser) -> tuple[tuple[tuple[int, int], ...], bool]:
    if parser.parse_optional_punctuation(":") is None:
        return (), False
    if parser.parse_optional_punctuation("{") is None:
        return ((parser.parse_integer(allow_boolean=False, allow_negative=False), 1),), False
    pairs: list[tuple[int, int]] = []
    while True:
        axis = parser.parse_integer(allow_boolean=False, allow_negative=False)
        parser.parse_punctuation(":")
        pairs.append((axis, parser.parse_integer(allow_boolean=False, allow_negative=False)))
        if parser.parse_optional_punctuation(",") is None:
            break
    parser.parse_punctuation("}")
    return tuple(pairs), True


def _parse_value(parser: AttrParser, scales: list[float], zero_points: list[int]) -> None:
    scales.append(float(parser.parse_number()))
    has_zero_point = parser.parse_optional_punctuation(":") is not None
    zero_points.append(parser.parse_integer(allow_boolean=False) if has_zero_point else 0)


def _parse_values(
    parser: AttrParser, scales: list[float], zero_points: list[int]
) -> tuple[int, ...]:
    """Parse nested braces of `scale:zero`, and return their number at each depth."""
    parser.parse_punctuation("{")
    count, inner = 0, cast(tuple[int, ...] | None, None)
    while True:
        if parser.parse_optional_punctuation("}") is not None:
            break
        if count:
            parser.parse_punctuation(",")
        shape: tuple[int, ...] = ()
        if _at_brace(parser):
            shape = _parse_values(parser, scales, zero_points)
        else:
            _parse_value(parser, scales, zero_points)
        if inner is not None and shape != inner:
            parser.raise_error("the nested lists of scales differ in length")
        inner = shape
        count += 1
    return (count, *(inner or ()))


def _at_brace(parser: AttrParser) -> bool:
    return current_text(parser) == "{"


def _nested(values: Iterator[str], grid: Sequence[int]) -> str:
    if not grid:
        return next(values)
    return "{" + ", ".join(_nested(values, grid[1:]) for _ in range(grid[0])) + "}"

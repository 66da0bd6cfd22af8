"""XNNPACK's datatypes and the element types that represent them.

| XNNPACK  | element type                                             |
|----------|----------------------------------------------------------|
| fp32     | `f32`                                                    |
| fp16     | `f16`                                                    |
| bf16     | `bf16`                                                   |
| qint8    | `!quant.uniform<i8:f32, s:z>`                            |
| quint8   | `!quant.uniform<u8:f32, s:z>`                            |
| qint32   | `!quant.uniform<i32:f32, s>`, a bias                     |
| qcint8   | `!quant.uniform<i8:f32:axis, {s, …}>`, a weight          |
| qcint32  | `!quant.uniform<i32:f32:0, {s, …}>`, a bias              |
| qcint4   | `!quant.uniform<i4:f32:0, {s, …}>`, a weight             |
| qbint4   | `!quant.uniform<i4:f32:{0:1, 1:g}, {{…}, …}>`, a weight  |
| qdint8   | `!xnnpack.dynamic_int8<n>`                               |
| int32    | `i32`, and `i64` where ExecuTorch widens an output       |

Source: `enum xnn_datatype` of XNNPACK's xnnpack.h; XNNCompiler.cpp of ExecuTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from xdsl.dialects.builtin import bf16, f16, f32, i32, i64
from xdsl.ir import Attribute, Data, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.quant.numbers import Numbers
from stepwell.dialects.quant.types import Quantization, UniformQuantizedType
from stepwell.ir.identity_cache import once_each
from stepwell.ir.types import element

MAX_RANK = 6


@irdl_attr_definition
class DynamicInt8Type(Data[int], TypeAttribute):
    """`!xnnpack.dynamic_int8<n>`: int8 with a scale and zero point computed at run time.

    The last `n` dimensions share one scale and zero point; each index of the dimensions before (a
    token) has a separate pair. The pairs are part of the value, not of the type.
    """

    name = "xnnpack.dynamic_int8"

    def verify(self) -> None:
        if not 1 <= self.data <= MAX_RANK:
            raise VerifyException(f"{self.name}<{self.data}>: must be 1 to {MAX_RANK} dimensions")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> int:
        """Parse the number of dimensions, such as `<1>`."""
        with parser.in_angle_brackets():
            return parser.parse_integer(allow_boolean=False, allow_negative=False)

    def print_parameter(self, printer: Printer) -> None:
        """Print the number of dimensions, such as `<1>`."""
        with printer.in_angle_brackets():
            printer.print_string(str(self.data))


_PLAIN: dict[Attribute, str] = {
    f32: "fp32",
    f16: "fp16",
    bf16: "bf16",
    i32: "int32",
    i64: "int32",
}
_PER_TENSOR = {(8, True): "qint8", (8, False): "quint8", (32, True): "qint32"}
_PER_AXIS = {8: "qcint8", 32: "qcint32", 4: "qcint4"}

FLOATS = ("fp32", "fp16")
STATIC_INT8 = ("qint8", "quint8")
INT4 = ("qcint4", "qbint4")


@once_each
def datatype(type_: Attribute) -> str | None:
    """Return XNNPACK's name of a tensor type's elements, or None if it has none."""
    return element_datatype(element(type_))


def element_datatype(attribute: Attribute) -> str | None:
    """Return XNNPACK's name of an element type, or None if it has none."""
    plain = _PLAIN.get(attribute)
    if plain is not None:
        return plain
    if isinstance(attribute, DynamicInt8Type):
        return "qdint8"
    return _quantized(attribute.data) if isinstance(attribute, UniformQuantizedType) else None


@lru_cache(maxsize=4096)
def _quantized(held: Quantization) -> str | None:
    if held.expressed != f32:
        return None
    if held.is_per_tensor:
        return _PER_TENSOR.get((held.bits, held.signed))
    if not held.signed:
        return None
    if not held.sub_channel:
        return _PER_AXIS.get(held.bits)
    return "qbint4" if held.bits == 4 and group_size(held) is not None else None


def group_size(quantization: Quantization) -> int | None:
    """Return how many inputs of a `[outputs, inputs]` weight share a scale; None if it is not
    grouped.
    """
    blocks = dict(quantization.blocks)
    if not quantization.sub_channel or set(blocks) != {0, 1} or blocks[0] != 1:
        return None
    return blocks[1] if quantization.blocks[0][0] == 0 else None


def quantization_problem(quantization: Quantization, what: str) -> str | None:
    """Return why XNNPACK does not support these quantization parameters for a datatype, or None."""
    if (
        what in ("qcint8", "qcint32", "qcint4", "qbint4", "qint32")
        and not quantization.is_symmetric
    ):
        return f"XNNPACK's {what} has no zero point"
    if what == "qbint4":
        size = group_size(quantization)
        assert size is not None
        if size % 32:
            return f"its groups have {size} elements; XNNPACK requires multiples of 32"
        if not are_bfloat16(quantization.scales):
            return "a group's scale is not a bfloat16 number, as which XNNPACK stores it"
    return None


def are_bfloat16(values: Sequence[float]) -> bool:
    """Whether all numbers are exact in bfloat16."""
    held = np.asarray(values.held if isinstance(values, Numbers) else values)
    single = held.astype(np.float32)
    return bool((single == held).all() and not (single.view(np.uint32) & 0xFFFF).any())

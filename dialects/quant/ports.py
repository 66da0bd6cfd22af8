"""Quantization parameters of a method's integer inputs and outputs, as text in its attributes.

In `tosa.input_quantization = ["scale=0.5 zero_point=3", ""]`, the first input has integers that
represent the model's floats; the empty text means that the second one is the model's own input.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IntegerType, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from stepwell.dialects.quant.types import Quantization, quantization
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import f32, torch_dtype
from stepwell.ir.types import element

INPUT, OUTPUT = "input", "output"
LEVELS = ("tosa", "cmsis")
"""Levels whose methods may have integer inputs and outputs."""


def attribute_name(level: str, side: str) -> str:
    """Return the attribute's name for a level and side, such as `tosa.input_quantization`."""
    return f"{level}.{side}_quantization"


def state_meanings(func: FuncOp, level: str, side: str, types: Sequence[Attribute | None]) -> None:
    """Record the quantized types of all inputs or outputs; None if one is the model's own."""
    func.attributes[attribute_name(level, side)] = ArrayAttr(
        [StringAttr("" if type_ is None else _described(type_)) for type_ in types]
    )


def meanings(func: FuncOp, side: str) -> list[Quantization | None]:
    """Return the quantization of all inputs or outputs, None for one that is the model's own.

    The list is empty if the method has no such attribute.
    """
    attribute = next(
        filter(None, (func.attributes.get(attribute_name(x, side)) for x in LEVELS)), None
    )
    if not isinstance(attribute, ArrayAttr):
        return []
    typed = func.function_type
    ports = (typed.inputs if side == INPUT else typed.outputs).data
    texts = [text.data for text in attribute if isinstance(text, StringAttr)]
    return [_read(text, type_) for text, type_ in zip(texts, ports, strict=True)]


def _described(type_: Attribute) -> str:
    type_quantization = quantization(type_)
    assert type_quantization is not None
    return f"scale={type_quantization.scale!r} zero_point={type_quantization.zero_point}"


def _read(text: str, type_: Attribute) -> Quantization | None:
    if not text:
        return None
    numbers = dict(part.split("=") for part in text.split())
    stored = element(type_)
    assert isinstance(stored, IntegerType)
    limits = torch.iinfo(torch_dtype(stored))
    return Quantization(
        limits.bits,
        limits.min < 0,
        limits.min,
        limits.max,
        f32,
        (float(numbers["scale"]),),
        (int(numbers["zero_point"]),),
    )

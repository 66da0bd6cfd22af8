"""The values of a model as an integer program takes and gives them.

A target of integers takes quantised inputs as their integers and gives such outputs; one without
64 bits gives them in 32. The program's attributes say which, and what the integers mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from xdsl.dialects.builtin import ArrayAttr, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from stepwell.ir.calling import flatten_inputs
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.signature import get_signature
from stepwell.ir.types import element
from stepwell.translate.rewrites.tosa.narrow_indices import NARROWED_OUTPUTS

QUANTISED = "tosa.{}_quantization", "cmsis.{}_quantization"
"""Attributes of a method: of each input or output "scale=… zero_point=…", or ""."""


def taken(func: FuncOp, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """A call's inputs, floats as the integers that the program takes in their place.

    Args:
        func: the program's method.
        inputs: nested as the model takes them.
    """
    said = meanings(func, "input")
    if not any(said):
        return inputs
    flat = flatten_inputs(func, inputs)
    facts = iter(zip(said, func.function_type.inputs.data, strict=True))
    frozen = ("", None)
    ports = get_signature(func).inputs
    each = [next(facts) if port.constant is None else frozen for port in ports]
    return tuple(
        quantised(value, text, type_) if text else value
        for value, (text, type_) in zip(flat, each, strict=True)
    )


def given_back(func: FuncOp, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs as the model gives them: floats for integers, 64 bits for 32."""
    said = meanings(func, "output") or [""] * len(outputs)
    names = texts(func, NARROWED_OUTPUTS) or [""] * len(outputs)
    floats = [dequantised(v, text) if text else v for v, text in zip(outputs, said, strict=True)]
    return [
        value.to(getattr(torch, name)) if name else value
        for value, name in zip(floats, names, strict=True)
    ]


def meanings(func: FuncOp, side: str) -> list[str]:
    """What each integer of a side means; nothing where all are as in the model."""
    return next(filter(None, (texts(func, name.format(side)) for name in QUANTISED)), [])


def texts(func: FuncOp, name: str) -> list[str]:
    """The texts of an attribute, or none."""
    held = func.attributes.get(name)
    if not isinstance(held, ArrayAttr):
        return []
    return [text.data for text in held if isinstance(text, StringAttr)]


def quantised(value: torch.Tensor, said: str, type_: Attribute | None) -> torch.Tensor:
    """clamp(round(x / scale) + zero_point), ties to even, in the integers of a tensor type."""
    assert isinstance(type_, TensorType)
    scale, zero = _numbers(said)
    held = torch.iinfo(torch_dtype(element(type_)))
    steps = torch.round(value * (1.0 / scale)) + zero
    return steps.clamp(held.min, held.max).to(torch_dtype(element(type_)))


def dequantised(value: torch.Tensor, said: str) -> torch.Tensor:
    """The real numbers that integers stand for."""
    scale, zero = _numbers(said)
    return (value.int() - zero).float() * scale


def _numbers(said: str) -> tuple[float, int]:
    of = dict(part.split("=") for part in said.split())
    return float(of["scale"]), int(of["zero_point"])

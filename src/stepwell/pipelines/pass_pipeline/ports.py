"""The values of a model as an integer program takes and gives them.

A target of integers takes quantized inputs as their integers and gives such outputs; one without
64 bits gives them in 32. The program's attributes say which, and what the integers mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.dialects.func import FuncOp

from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.ports import INPUT, OUTPUT, meanings
from stepwell.ir.calls.calling import flatten_inputs
from stepwell.ir.signature import get_signature
from stepwell.translate.rewrites.tosa.legalize_boundary.narrow_indices import NARROWED_OUTPUTS


def taken(func: FuncOp, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """A call's inputs, floats as the integers that the program takes in their place.

    Args:
        func: the program's method.
        inputs: nested as the model takes them.
    """
    said = meanings(func, INPUT)
    if not said:
        return inputs
    facts = iter(said)
    ports = get_signature(func).inputs
    each = [next(facts) if port.constant is None else None for port in ports]
    flat = flatten_inputs(func, inputs)
    return tuple(
        value if held is None else quantize(value, held)
        for value, held in zip(flat, each, strict=True)
    )


def given_back(func: FuncOp, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs as the model gives them: floats for integers, 64 bits for 32."""
    said = meanings(func, OUTPUT) or [None] * len(outputs)
    names = texts(func, NARROWED_OUTPUTS) or [""] * len(outputs)
    floats = [
        value if held is None else dequantize(value, held)
        for value, held in zip(outputs, said, strict=True)
    ]
    return [
        value.to(getattr(torch, name)) if name else value
        for value, name in zip(floats, names, strict=True)
    ]


def texts(func: FuncOp, name: str) -> list[str]:
    """The texts of an attribute, or none."""
    attribute = func.attributes.get(name)
    if not isinstance(attribute, ArrayAttr):
        return []
    return [text.data for text in attribute if isinstance(text, StringAttr)]

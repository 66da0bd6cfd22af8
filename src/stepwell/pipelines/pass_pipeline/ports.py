"""Convert a model's inputs and outputs to those of an integer program.

An integer-only target takes the integers of quantized inputs and returns those of quantized
outputs. A target without 64-bit integers returns 32 bits. Attributes of the program state which
inputs and outputs are converted, and their quantization parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.dialects.func import FuncOp

from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.ports import INPUT, OUTPUT, meanings
from stepwell.ir.calls.calling import flatten_inputs
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.signature import get_signature
from stepwell.translate.rewrites.tosa.legalize_boundary.narrow_indices import NARROWED_OUTPUTS


def taken(func: FuncOp, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a call's inputs, with floats quantized where the program takes integers.

    Args:
        func: the program's method.
        inputs: the inputs in the nesting that the model takes.
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
    """Return the outputs as the model returns them: floats for integers, 64 bits for 32."""
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
    """Return the strings of an array attribute; empty if it is missing."""
    attribute = func.attributes.get(name)
    if not isinstance(attribute, ArrayAttr):
        return []
    return [text.data for text in attribute if isinstance(text, StringAttr)]

"""The flows that run a variant: the interpreter and stepwell's targets, each on its own engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import stepwell
from stepwell.dialects.quant.ports import meanings

Run = Callable[[Any, Sequence[Any]], Tensor]
"""Maps a program of torch's operators and inputs to the first result."""


@dataclass(frozen=True)
class Flow:
    """A function that runs a program, and the `kind` of programs that it accepts."""

    kind: str
    run: Run


def _interpreted(program: Any, inputs: Sequence[Any]) -> Tensor:
    return program.run(*inputs)[0]


def _lowered(target: str) -> Run:
    return lambda program, inputs: stepwell.lower(program, target).run(*inputs)[0]


def _integers(program: Any, inputs: Sequence[Any]) -> Tensor:
    """Run on TOSA's integer inputs and outputs, with their scales."""
    lowered = stepwell.lower(program, "tosa-1.0+int")
    func = lowered.program.method()
    stored = [
        x
        if it is None
        else torch.clamp(torch.round(x / it.scale) + it.zero_point, -128, 127).to(torch.int8)
        for x, it in zip(inputs, meanings(func, "input"), strict=True)
    ]
    result, it = lowered.run(*stored)[0], meanings(func, "output")[0]
    return result if it is None else (result.float() - it.zero_point) * it.scale


FLOWS = {
    "program": Flow("float32", _interpreted),
    "xnnpack": Flow("float32", _lowered("xnnpack")),
    "tosa-1.0+fp": Flow("float32", _lowered("tosa-1.0+fp")),
    "xnnpack-int8": Flow("int8-xnnpack", _lowered("xnnpack")),
    "cortex-m55": Flow("int8-cortex-m", _lowered("cortex-m55")),
    "tosa-1.0+int": Flow("int8-tosa", _integers),
}

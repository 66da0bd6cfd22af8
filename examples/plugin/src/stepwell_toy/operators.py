"""A custom operator of torch, and a quantizer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

import stepwell


@torch.library.custom_op("toy_ops::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    """Two times x."""
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _added(x: torch.Tensor) -> torch.Tensor:
    return x + x


def register_twice(registry: stepwell.Registry) -> None:
    """Register its implementation for the interpreter."""
    registry.op(torch.ops.toy_ops.twice.default, meaning=_added)


def halve_weights(module: torch.nn.Module, inputs: Sequence[Any]) -> torch.nn.Module:
    """A quantizer: round every parameter to half precision, and store it in f32."""
    rounded = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(parameter.half().float())
    return rounded

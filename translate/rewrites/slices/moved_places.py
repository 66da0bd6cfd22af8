"""Compute, for ops that only move elements, the operand element of each result element."""

from __future__ import annotations

from math import gcd

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import torch_overload
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.translate.rewrites.building import element_count, static_dims

MOST_PLACES = 1 << 22
"""The most positions of a pattern: an index is a constant of the graph, four bytes each."""


def places(op: SchemaOp) -> torch.Tensor:
    """Return the operand position of each result element, -1 for padding: `i64[N]`."""
    shape = static_dims(op.operands[0])
    assert shape is not None, "a pattern is for known sizes"
    numbers = torch.arange(1, element_count(shape) + 1, dtype=torch.float64).reshape(shape)
    positional, keywords = op.bind()
    moved = torch_overload(type(op))(numbers, *positional[1:], **keywords)
    return moved.reshape(-1).long() - 1


def longest_run(pattern: torch.Tensor, count: int) -> int:
    """Return the largest number of adjacent elements that always move together."""
    breaks = (pattern.diff() != 1).nonzero().reshape(-1) + 1
    run = gcd(count, pattern.numel())
    for place in [*breaks.tolist(), *pattern[breaks].tolist(), int(pattern[0])]:
        run = gcd(run, place)
    return run

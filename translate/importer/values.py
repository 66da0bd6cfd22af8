"""Conversion of call arguments to attributes, and of example inputs to dim orders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute

from stepwell.dialects.aten.attributes import attribute
from stepwell.dialects.aten.schema import Argument
from stepwell.ir.calls.argument_marshalling import overlaps_itself
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.torch.torch_private import is_traceable_wrapper_subclass
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import element_type

_SCALARS: dict[tuple[type, Any, float, bool], Attribute] = {}
_LISTS: dict[tuple[bool, tuple[Any, ...]], Attribute] = {}
_NUMBERS = (int, float, bool)


def constant(value: Any, argument: Argument) -> Attribute:
    """Return the attribute of an argument that contains no graph node."""
    kind = type(value)
    wants_float = argument.type.base == "float"
    if kind in _NUMBERS:
        key = (kind, value, math.copysign(1.0, value), wants_float)
        scalar = _SCALARS.get(key)
        if scalar is None:
            scalar = _SCALARS[key] = attribute(value, argument)
        return scalar
    if isinstance(value, list | tuple):
        if all(type(item) is int for item in value):
            listed = (wants_float, tuple(value))
            scalar = _LISTS.get(listed)
            if scalar is None:
                scalar = _LISTS[listed] = attribute(list(value), argument)
            return scalar
        return attribute([_plain(item) for item in value], argument)
    return attribute(_plain(value), argument)


def _plain(value: Any) -> Any:
    """Return the IR's form of a PyTorch object: an element type, or the object's name."""
    if isinstance(value, torch.dtype):
        return element_type(value)
    if isinstance(value, torch.layout | torch.memory_format):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return str(value)
    return value


def why_not_plain(tensor: torch.Tensor) -> tuple[str, str] | None:
    """Return why a weight is not a plain array of numbers in memory, and the remedy; or None."""
    if tensor.layout != torch.strided:
        return (
            f"has layout {str(tensor.layout).removeprefix('torch.').removeprefix('_')}",
            "make it dense before the export: weight.to_dense()",
        )
    if is_traceable_wrapper_subclass(tensor):
        return (
            f"has type {type(tensor).__name__}, which wraps other tensors",
            "unwrap it before the export: torchao.utils.unwrap_tensor_subclass(model)",
        )
    return None


def dim_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """Return dimensions from outermost to innermost in memory, None if row-major.

    Axes of size 1 are ignored, so a tensor that is row-major except for them counts as row-major.

    Raises:
        StepwellError: the tensor is not dense: it overlaps itself or has gaps.
    """
    shape = [_hint(size) for size in value.shape]
    strides = [_hint(stride) for stride in value.stride()]
    rank = len(shape)
    candidates = [tuple(range(rank))]
    if rank in (4, 5):
        candidates.append((0, *range(2, rank), 1))
    candidates.append(tuple(sorted(range(rank), key=lambda axis: -strides[axis])))
    for order in candidates:
        if _is_dense(shape, strides, order):
            return None if order == candidates[0] else order
    raise StepwellError(
        f"an input of shape {shape} has strides {strides}: not dense",
        help="export with a .contiguous() example input",
    )


def has_shared_elements(value: torch.Tensor) -> bool:
    """Whether elements of an example input share memory."""
    return overlaps_itself(list(map(_hint, value.shape)), list(map(_hint, value.stride())))


def _is_dense(shape: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    if 0 in shape:
        return True
    expected = 1
    for axis in reversed(order):
        if shape[axis] != 1:
            if strides[axis] != expected:
                return False
            expected *= shape[axis]
    return True


def _hint(size: int | torch.SymInt) -> int:
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return 2 if hint is None else int(hint)

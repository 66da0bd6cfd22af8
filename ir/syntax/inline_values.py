"""Inline constants of a text: `stepwell.weight <"scale"> "constant" = dense<[0.5, 2.0]> : …`.

A text in which every constant is small enough to be inline needs no other file. In a program all
constants are in the store: parsing a text moves them there, and printing one may inline them again.
"""

from __future__ import annotations

from typing import Any, cast

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp, TensorType
from xdsl.ir import Operation

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import StateOp, WeightOp
from stepwell.ir.diagnostics import StepwellError, describe_op, quoted
from stepwell.ir.dtypes import has_torch_dtype, torch_dtype
from stepwell.ir.types import AnyTensor, dims, element
from stepwell.ir.weight_bytes import dense_bytes
from stepwell.ir.weights import WeightStore

LIMIT = 16
"""The default limit of the elements of an inline constant."""

Holder = WeightOp | StateOp


def with_values(module: ModuleOp, weights: WeightStore, limit: int = LIMIT) -> ModuleOp:
    """Copy a module with its small constants inline, each at the first op with its key.

    Args:
        module: the module; it is not changed.
        weights: the weight store of the module; a weight of which only the type is known stays a
            key.
        limit: the largest number of elements of an inline constant.
    """
    copy, seen = module.clone(), set[str]()
    for op in copy.walk():
        if isinstance(op, Holder) and op.key.data not in seen:
            seen.add(op.key.data)
            value = _small_value(op, weights, limit)
            if value is not None:
                op.properties["value"] = value
    return copy


def take_values(module: ModuleOp, weights: WeightStore) -> None:
    """Move the inline constants of a module into the store.

    Raises:
        StepwellError: a constant has another type than its op states, or its key has other
            elements.
    """
    for op in module.walk():
        if isinstance(op, Holder) and (value := op.properties.pop("value", None)) is not None:
            tensor = _tensor_of(op, cast(DenseIntOrFPElementsAttr, value))
            key = op.key.data
            if key not in weights:
                weights.add(key, tensor)
            elif dense_bytes(weights.get(key)) != dense_bytes(tensor):
                raise StepwellError(
                    f"weight {quoted(key)} has other elements in the text than in the store",
                    describe_op(op),
                    "read the text without the weights, or remove the value from it",
                )


def too_large(module: ModuleOp, weights: WeightStore, limit: int = LIMIT) -> set[str]:
    """List the keys of constants that are known and too large to be inline."""
    holders = (op for op in module.walk() if isinstance(op, Holder))
    return {
        op.key.data
        for op in holders
        if weights.is_known(op.key.data) and _small_value(op, weights, limit) is None
    }


def _small_value(op: Holder, weights: WeightStore, limit: int) -> DenseIntOrFPElementsAttr | None:
    type_ = op.result.type
    shape = [size for size in dims(type_) if isinstance(size, int)]
    count = 1
    for size in shape:
        count *= size
    if count > limit or len(shape) < len(dims(type_)) or not weights.is_known(op.key.data):
        return None
    tensor = weights.get(op.key.data)
    plain: Any = TensorType(element(type_), shape)
    try:
        value = DenseIntOrFPElementsAttr.from_list(plain, tensor.reshape(-1).tolist())
        again = _read(value, shape, tensor.dtype)
    except (TypeError, ValueError, AttributeError, RuntimeError, OverflowError):
        return None  # Complex, packed and block-scaled elements have no such text.
    return value if dense_bytes(again) == dense_bytes(tensor) else None


def _read(value: DenseIntOrFPElementsAttr, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    wide = torch.float64 if dtype.is_floating_point else None
    return torch.tensor(list(value.get_values()), dtype=wide).to(dtype).reshape(shape)


def _tensor_of(op: Operation, value: DenseIntOrFPElementsAttr) -> torch.Tensor:
    stated = cast(AnyTensor, op.results[0].type)
    value_type = value.type
    fact = f"the inline constant has type {value_type}, but the op states {stated}"
    if not isinstance(value_type, TensorType) or value_type.element_type != element(stated):
        raise StepwellError(fact, describe_op(op))
    shape = list(value_type.get_shape())
    if shape != list(dims(stated)) or not has_torch_dtype(element(stated)):
        raise StepwellError(fact, describe_op(op))
    return _read(value, shape, torch_dtype(element(stated)))

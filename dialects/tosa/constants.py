"""Constants of a TOSA program: small ones are inline, large ones in the weight store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.tosa.attributes import ShapeType
from stepwell.dialects.tosa.generated import ConstShapeOp
from stepwell.dialects.tosa.structural import ConstOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import element_type
from stepwell.ir.types import AnyTensor, WeightAttr, tensor

INLINE = 16
"""The largest number of elements of an inline constant."""


def dense(values: torch.Tensor, element: Attribute | None = None) -> DenseIntOrFPElementsAttr:
    """Convert a tensor to an attribute; `element` is the type if torch stores another
    one (int4).
    """
    type_ = tensor(values.shape, element or element_type(values.dtype))
    held = values.detach().cpu().reshape(-1)
    if isinstance(type_.element_type, IntegerType):
        return DenseIntOrFPElementsAttr.from_list(type_, [int(v) for v in held.tolist()])  # pyright: ignore
    assert isinstance(type_.element_type, AnyFloat)
    return DenseIntOrFPElementsAttr.from_list(type_, held.to(torch.float64).tolist())  # pyright: ignore


def const(values: torch.Tensor, element: Attribute | None = None) -> ConstOp:
    """Create a CONST with inline elements."""
    attribute = dense(values, element)
    return ConstOp.create(properties={"values": attribute}, result_types=[attribute.type])


def const_of_key(key: str, type_: AnyTensor, scales: str | None = None) -> ConstOp:
    """Create a CONST whose elements, or codes and scales, are in the weight store."""
    properties: dict[str, Attribute] = {"values": WeightAttr(key)}
    if scales is not None:
        properties["scales"] = WeightAttr(scales)
    return ConstOp.create(properties=properties, result_types=[type_])


def const_shape(sizes: Sequence[int]) -> ConstShapeOp:
    """Create a CONST_SHAPE operator for a list of sizes."""
    return ConstShapeOp.create(
        properties={"values": _shape_attribute(tuple(sizes))},
        result_types=[ShapeType.of(len(sizes))],
    )


@lru_cache(maxsize=4096)
def _shape_attribute(sizes: tuple[int, ...]) -> DenseIntOrFPElementsAttr:
    """Convert sizes to an attribute; cached because a lowering needs the same few many times."""
    type_ = tensor([len(sizes)], IndexType())
    return DenseIntOrFPElementsAttr.from_list(type_, list(sizes))  # pyright: ignore


def tensor_of_dense(attribute: DenseIntOrFPElementsAttr, dtype: torch.dtype) -> torch.Tensor:
    """Convert a dense attribute to a tensor."""
    shape = list(attribute.get_shape())
    values = list(attribute.get_values())
    count = 1
    for size in shape:
        count *= size
    if len(values) == 1 and count != 1:
        values = values * count
    return torch.tensor(values).to(dtype).reshape(shape)


def shape_value(value: SSAValue) -> tuple[int, ...] | None:
    """Return the sizes of a CONST_SHAPE; None if `value` is computed."""
    owner = value.owner
    if isinstance(owner, ConstShapeOp):
        return tuple(int(v) for v in tensor_of_dense(owner.values, torch.int64).tolist())
    return None


def is_constant(op: Operation | Attribute) -> bool:
    """Whether an op is a constant, which is not counted as an operator."""
    return isinstance(op, ConstOp | ConstShapeOp | WeightOp)

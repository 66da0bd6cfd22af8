"""Constants of a TOSA program: small ones stand in the text, large ones in the weight store."""

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
"""Constants of up to this many elements are written into the text."""


def dense(values: torch.Tensor, element: Attribute | None = None) -> DenseIntOrFPElementsAttr:
    """The elements of a tensor as an attribute; `element` if torch holds another type (int4)."""
    type_ = tensor(values.shape, element or element_type(values.dtype))
    held = values.detach().cpu().reshape(-1)
    if isinstance(type_.element_type, IntegerType):
        return DenseIntOrFPElementsAttr.from_list(type_, [int(v) for v in held.tolist()])  # pyright: ignore
    assert isinstance(type_.element_type, AnyFloat)
    return DenseIntOrFPElementsAttr.from_list(type_, held.to(torch.float64).tolist())  # pyright: ignore


def const(values: torch.Tensor, element: Attribute | None = None) -> ConstOp:
    """A CONST whose elements stand in the text."""
    attribute = dense(values, element)
    return ConstOp.create(properties={"values": attribute}, result_types=[attribute.type])


def const_of_key(key: str, type_: AnyTensor, scales: str | None = None) -> ConstOp:
    """A CONST whose elements, or their codes and scales, the weight store holds."""
    properties: dict[str, Attribute] = {"values": WeightAttr(key)}
    if scales is not None:
        properties["scales"] = WeightAttr(scales)
    return ConstOp.create(properties=properties, result_types=[type_])


def const_shape(sizes: Sequence[int]) -> ConstShapeOp:
    """A CONST_SHAPE."""
    return ConstShapeOp.create(
        properties={"values": _shape_attribute(tuple(sizes))},
        result_types=[ShapeType.of(len(sizes))],
    )


@lru_cache(maxsize=4096)
def _shape_attribute(sizes: tuple[int, ...]) -> DenseIntOrFPElementsAttr:
    """The sizes as an attribute: a lowering asks for the same few again and again."""
    type_ = tensor([len(sizes)], IndexType())
    return DenseIntOrFPElementsAttr.from_list(type_, list(sizes))  # pyright: ignore


def tensor_of_dense(attribute: DenseIntOrFPElementsAttr, dtype: torch.dtype) -> torch.Tensor:
    """The tensor that a dense attribute stands for."""
    shape = list(attribute.get_shape())
    values = list(attribute.get_values())
    count = 1
    for size in shape:
        count *= size
    if len(values) == 1 and count != 1:
        values = values * count
    return torch.tensor(values).to(dtype).reshape(shape)


def shape_value(value: SSAValue) -> tuple[int, ...] | None:
    """The sizes of a CONST_SHAPE; None if `value` is computed."""
    owner = value.owner
    if isinstance(owner, ConstShapeOp):
        return tuple(int(v) for v in tensor_of_dense(owner.values, torch.int64).tolist())
    return None


def is_constant(op: Operation | Attribute) -> bool:
    """Whether an op only names a constant, as the counts of operators leave out."""
    return isinstance(op, ConstOp | ConstShapeOp | WeightOp)

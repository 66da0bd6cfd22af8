"""Run-time values, and the conversions that several operators share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.tosa.attributes import EnumerationAttr
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.codes import i4, i48, payload_of_element
from stepwell.dialects.tosa_mxfp.payloads import Payload, payload_named
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import has_torch_dtype, torch_dtype

if TYPE_CHECKING:
    from torch import Tensor

    from stepwell.ir.declared.interpretation import Interpreter, Value

    Rule = tuple[TosaOp, Sequence[Value], Interpreter]


@dataclass(frozen=True)
class BlockScaled:
    """A tensor of a block-scaled type: codes `[..., C]`, scales `[..., C / 32]`, both uint8."""

    codes: Tensor
    scales: Tensor
    payload: Payload


def element_of(value: SSAValue) -> Attribute:
    """Return the element type of a tensor value."""
    type_ = value.type
    assert isinstance(type_, TensorType), f"{type_} is not a tensor type"
    return type_.element_type


def result_element(op: Operation) -> Attribute:
    """Return the element type of an op's first result."""
    return element_of(op.results[0])


def run_dtype(element: Attribute) -> torch.dtype:
    """Return the dtype in which elements of this type are stored at run time."""
    if element == i4:
        return torch.int8
    if element == i48:
        return torch.int64
    name = payload_of_element(element)
    if name in ("fp6e2m3", "fp6e3m2", "fp4e2m1", "mxint8"):
        return torch.uint8
    return torch_dtype(element)


def payload_of(element: Attribute) -> Payload:
    """Return the MX payload of an element type."""
    name = payload_of_element(element)
    assert name is not None, f"{element} is not a payload"
    return payload_named(name)


def is_integer(element: Attribute) -> bool:
    """Whether elements are integers (and not bools)."""
    return isinstance(element, IntegerType) and element.width.data > 1


def bounds(element: Attribute, unsigned: bool = False) -> tuple[int, int]:
    """Return the least and greatest value of an integer element type."""
    assert isinstance(element, IntegerType)
    width = element.width.data
    return (0, 2**width - 1) if unsigned else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)


def wide(x: Tensor) -> Tensor:
    """Convert floats of less than 32 bits to float32, in which operators compute before rounding
    once.
    """
    if x.dtype.is_floating_point and x.dtype.itemsize < 4:
        return x.to(torch.float32)
    return x


def narrow(x: Tensor, op: Operation) -> Tensor:
    """Convert a result to its declared element type."""
    element = result_element(op)
    dtype = run_dtype(element) if not has_torch_dtype(element) else torch_dtype(element)
    return x if x.dtype == dtype else x.to(dtype)


def ints(attribute: Attribute) -> list[int]:
    """Return the elements of `array<i64: …>`."""
    assert isinstance(attribute, DenseArrayBase)
    return [int(v) for v in attribute.get_values()]


def ignores_nan(op: TosaOp) -> bool:
    """Whether the operator's `nan_mode` is IGNORE."""
    mode = op.properties.get("nan_mode")
    return isinstance(mode, EnumerationAttr) and mode.data == "IGNORE"


def zero_point(value: Tensor) -> float:
    """Return the number in a zero-point operand."""
    return wide(value).reshape(-1)[0].item()

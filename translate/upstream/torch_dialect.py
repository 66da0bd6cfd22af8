"""torch-mlir's `torch` dialect: PyTorch's operators by their own names, for import and export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    Signedness,
    StringAttr,
)
from xdsl.ir import Attribute, Operation

from stepwell.dialects.aten.attributes import MEMORY_FORMATS, scalar_type
from stepwell.dialects.aten.registry import find
from stepwell.dialects.torch_mlir import UNKNOWN_SIZE, NonValueTensor, VTensor
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import element_type
from stepwell.ir.sizes.size import UNKNOWN
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.upstream.meanings import CannotImport, elements_of

Constant = Callable[[torch.Tensor], Operation]
_AS_IT_IS = (
    "torch_c.to_builtin_tensor",
    "torch_c.from_builtin_tensor",
    "torch.copy.to_vtensor",
    "torch.tensor_static_info_cast",
    "torch.derefine",
    "torch.prim.unchecked_cast",
)
"""Ops that only change a type."""
_DROPPED = ("layout", "device", "pin_memory")
"""Arguments that determine a tensor's placement."""


def builtin_type(type_: Attribute) -> Attribute:
    """Convert a torch-mlir type to MLIR's: `!torch.vtensor<[2,?],si64>` to `tensor<2x?xi64>`."""
    if not isinstance(type_, VTensor | NonValueTensor):
        return type_
    if isinstance(type_.shape, StringAttr) or isinstance(type_.element, StringAttr):
        return type_
    integer_type = type_.element
    if isinstance(integer_type, IntegerType) and integer_type.signedness.data is Signedness.SIGNED:
        integer_type = IntegerType(integer_type.width.data)
    shape = [UNKNOWN if d.data == UNKNOWN_SIZE else d.data for d in type_.shape.data]
    return tensor(shape, integer_type)


def taken(op: Operation, given: Sequence[Any], constant: Constant) -> Sequence[Any]:
    """Return the results of a torch-mlir op: ops, values, or known numbers.

    Args:
        op: the op.
        given: the operands: values, numbers, lists, None.
        constant: a function that creates a constant.

    Raises:
        Refused: the op has no equivalent.
    """
    word = op.name.removeprefix("torch.")
    value = op.properties.get("value")
    if op.name in _AS_IT_IS:
        return list(given)
    if word == "constant.none":
        return [None]
    if word.startswith("constant."):
        return [_python(value, word)]
    if word.endswith(".literal"):
        return [constant(_tensor(value))]
    if word in ("prim.ListConstruct", "prim.TupleConstruct"):
        return [list(given)]
    if word == "prim.ListUnpack":
        return list(given[0])
    if word.startswith("operator"):
        raise CannotImport(f"{value} is an operator of no library of torch's")
    return [_call(op, word, given)]


def _python(value: Attribute | None, word: str) -> Any:
    if isinstance(value, StringAttr):
        return value.data
    if isinstance(value, FloatAttr):
        return value.value.data
    if isinstance(value, IntegerAttr):
        number = cast("IntegerAttr[Any]", value).value.data
        return bool(number) if word == "constant.bool" else number
    raise CannotImport("its number is none that is known")


def _tensor(value: Attribute | None) -> torch.Tensor:
    if not isinstance(value, DenseIntOrFPElementsAttr):
        raise CannotImport("its elements are not in the text")
    held = value.type.element_type
    if isinstance(held, IntegerType) and held.signedness.data is Signedness.SIGNED:
        plain = tensor(list(value.get_shape()), IntegerType(held.width.data))
        value = DenseIntOrFPElementsAttr.new([plain, value.data])
    return elements_of(value)


def _call(op: Operation, word: str, given: Sequence[Any]) -> Operation:
    """Call the PyTorch operator of the same name with the same arguments."""
    name = word if word.count(".") >= 2 else f"{word}.default"
    cls = find(name)
    if cls is None:
        raise CannotImport(f"torch has no operator {name}")
    if len(given) > len(cls.SCHEMA.arguments):
        raise CannotImport(f"{name} takes {len(cls.SCHEMA.arguments)} arguments")
    arguments: dict[str, Any] = {}
    for argument, value in zip(cls.SCHEMA.arguments, given, strict=False):
        if argument.name in _DROPPED:
            continue
        if value is None and (argument.default or argument.type.is_tensor):
            continue
        base = argument.type.base
        if base == "ScalarType" and isinstance(value, int):
            value = scalar_type(value)
        elif base == "MemoryFormat" and isinstance(value, int):
            value = MEMORY_FORMATS[value]
        elif argument.type.is_tensor and isinstance(value, int | float):
            raise CannotImport(f"{argument.name} is a number")
        arguments[argument.name] = value
    try:
        return cls.from_arguments(arguments)
    except StepwellError as error:
        raise CannotImport(error.problems[0].fact) from error


def literal(value: torch.Tensor) -> str:
    """Return a constant in torch-mlir's syntax."""
    type_: Any = tensor(list(value.shape), element_type(value.dtype))
    wide = value.double() if value.is_floating_point() else value
    dense = DenseIntOrFPElementsAttr.from_list(type_, wide.reshape(-1).tolist())
    return f"torch.vtensor.literal({dense}) : {spelled(type_)}"


def spelled(type_: Any) -> str:
    """Return a tensor's type in torch-mlir's syntax: integers except booleans are signed."""
    type_element = element(type_)
    text = str(type_element)
    if (
        isinstance(type_element, IntegerType)
        and type_element.width.data > 1
        and text.startswith("i")
    ):
        text = f"s{text}"
    shape = ",".join("?" if not isinstance(d, int) else str(d) for d in dims(type_))
    return f"!torch.vtensor<[{shape}],{text}>"

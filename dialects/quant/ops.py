"""`quant.qcast`, `quant.dcast`, `quant.scast`: casts to, from and between quantized types and their
storage.

These are upstream MLIR's three casts. At run time a quantized value is its stored integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.quant.types import (
    Quantization,
    UniformQuantizedType,
    quantization,
    storage_dtype,
    storage_element,
    type_problem,
)
from stepwell.ir.axes.forms import elementwise
from stepwell.ir.axes.maps import AxisMap, HasAxes
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.families import belong
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.types import AnyTensor, dims, element, with_element


class _Cast(HasAxes, IRDLOperation):
    """The base class of casts, whose operand and result are tensors of the same shape."""

    input = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$input attr-dict `:` type($input) `to` type($result)"

    def __init__(self, input: SSAValue, type_: Attribute) -> None:
        # IRDL's general constructor has nothing to do here, and a program has many casts.
        Operation.__init__(self, operands=(input,), result_types=(type_,))

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return elementwise(self)

    def _check(self) -> None:
        given, result_type = self.input.type, self.result.type
        if dims(given) != dims(result_type):
            raise VerifyException(f"casts {given} to another shape, {result_type}")
        for type_ in (given, result_type):
            if problem := type_problem(type_):
                raise VerifyException(problem)


def _check_expressed(real: Attribute, quantized: Attribute) -> None:
    expressed = _quantized(quantized).expressed
    if element(real) != expressed:
        raise VerifyException(f"{real} is not the type's expressed type, {expressed}")


def _quantized(type_: Attribute) -> Quantization:
    type_quantization = quantization(type_)
    if type_quantization is None:
        raise VerifyException(f"{type_} is not quantized")
    return type_quantization


@irdl_op_definition
class QuantizeCast(_Cast):
    """Quantize real values: round to nearest even, clamp to the storage range."""

    name = "quant.qcast"

    def verify_(self) -> None:
        self._check()
        _check_expressed(self.input.type, self.result.type)


@irdl_op_definition
class DequantizeCast(_Cast):
    """Dequantize to the real values that the integers represent."""

    name = "quant.dcast"

    def verify_(self) -> None:
        self._check()
        _check_expressed(self.result.type, self.input.type)


@irdl_op_definition
class StorageCast(_Cast):
    """Cast between stored integers and the quantized type of which they are the storage, without
    computation.
    """

    name = "quant.scast"

    def verify_(self) -> None:
        self._check()
        given, result_quantization = quantization(self.input.type), quantization(self.result.type)
        if (given is None) == (result_quantization is None):
            raise VerifyException("one side must be quantized, and the other its stored integers")
        held, plain = (given, self.result) if given else (result_quantization, self.input)
        assert held is not None
        if element(plain.type) != storage_element(held):
            raise VerifyException(f"{plain.type} is not the storage type, {storage_element(held)}")


belong("cast", QuantizeCast.name, DequantizeCast.name)


def quantized_type(type_: Attribute, uniform_quantized_type: UniformQuantizedType) -> AnyTensor:
    """Return the tensor type of the same shape with quantized elements."""
    return with_element(type_, uniform_quantized_type)


def block_values(
    parameters: Quantization, values: torch.Tensor, shape: Sequence[int]
) -> torch.Tensor:
    """Expand a number for each block to a tensor that is broadcastable against a shape."""
    if parameters.is_per_tensor:
        return values.reshape(())
    view = [1] * len(shape)
    order = sorted(range(len(parameters.blocks)), key=lambda index: parameters.blocks[index][0])
    grid = values.reshape(parameters.grid).permute(order)
    for index in order:
        axis, block = parameters.blocks[index]
        view[axis] = parameters.grid[index]
        if block > 1:
            position = order.index(index)
            grid = grid.repeat_interleave(block, dim=position)
            view[axis] *= block
    return grid.reshape(view)


def quantize(real: torch.Tensor, parameters: Quantization) -> torch.Tensor:
    """Quantize real values: clamp(round(x / scale) + zero_point), ties to even."""
    scales = block_values(parameters, parameters.scale_values(torch.float64), real.shape)
    zeros = block_values(parameters, parameters.zero_point_values(torch.float32), real.shape)
    inverse = (1.0 / scales).to(torch.float32)
    stored = torch.round(real.to(torch.float32) * inverse) + zeros
    return stored.clamp(parameters.low, parameters.high).to(storage_dtype(parameters))


def dequantize(stored: torch.Tensor, parameters: Quantization) -> torch.Tensor:
    """Dequantize stored integers to float32."""
    scales = block_values(parameters, parameters.scale_values(), stored.shape)
    zeros = block_values(parameters, parameters.zero_point_values(), stored.shape)
    return (stored.to(torch.int32) - zeros).to(torch.float32) * scales


@interprets(QuantizeCast)
def _qcast(op: QuantizeCast, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (quantize(args[0], _quantized(op.result.type)),)


@interprets(DequantizeCast)
def _dcast(op: DequantizeCast, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    held = _quantized(op.input.type)
    return (dequantize(args[0], held).to(torch_dtype(held.expressed)),)


@interprets(StorageCast)
def _scast(op: StorageCast, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (args[0],)


Quant = Dialect("quant", [QuantizeCast, DequantizeCast, StorageCast], [UniformQuantizedType])

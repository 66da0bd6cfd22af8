"""Boundary legalization: a quantized program takes and returns integers if its caller wants them.

A float input takes four times the bytes of the int8 input of the first layer, and both are in the
arena at once. If an input is only quantized, the caller may pass the integers. If an output was
dequantized last, the caller may take the integers. The function's attributes
`cmsis.input_quantization` and `cmsis.output_quantization` state their quantization.

Before:
    builtin.module {
      func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {
        %q = quant.qcast %x : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
        %y = quant.dcast %q : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xf32>
        func.return %y : tensor<4xf32>
      }
    }
After:
    builtin.module {
      func.func @forward(%x: tensor<4xi8>) -> tensor<4xi8> attributes
          {cmsis.input_quantization = ["scale=0.5 zero_point=3"],
           cmsis.output_quantization = ["scale=0.5 zero_point=3"]} {
        %q = quant.scast %x : tensor<4xi8> to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
        %y = quant.scast %q : tensor<4x!quant.uniform<i8:f32, 0.5:3>> to tensor<4xi8>
        func.return %y : tensor<4xi8>
      }
    }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.dialects.builtin import AnyFloat, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute

from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.diagnostics import Problem, StepwellError, UnsupportedError
from stepwell.ir.dtypes import dtype_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History
from stepwell.ir.signature import get_signature
from stepwell.ir.types import element
from stepwell.translate.quantized.ports import (
    TakeIntegers,
    Types,
    quantized_input,
    quantized_output,
)

FLOAT, INTEGERS = "float32", ("int8", "int16")

Io = str | Mapping[str, str]
"""One element type for every float port, or one for each named port."""


@dataclass(frozen=True)
class IntegerPorts(TakeIntegers):
    """Turn inputs and outputs that are only quantized or dequantized into integers."""

    name: ClassVar[str] = "integer-ports"
    LEVEL: ClassVar[str] = "cmsis"
    io: Io = "int8"

    def apply(self, program: Program, history: History) -> int:
        """Return the number of inputs and outputs changed.

        Raises:
            StepwellError: a port or an element type does not exist.
            UnsupportedError: lists every port that cannot have the requested type, and why.
        """
        methods = program.methods.values()
        names = {name for func in methods for _, name, *_ in _ports(func)}
        _check(self.io, names)
        if problems := [p for func in methods for p in self._problems(func)]:
            raise UnsupportedError(problems)
        return super().apply(program, history)

    def _wanted(self, port: str, type_: Attribute) -> str:
        """Return the element type requested for a port; by default, and for non-floats, float32."""
        if not isinstance(type_, TensorType) or not isinstance(element(type_), AnyFloat):
            return FLOAT
        return self.io if isinstance(self.io, str) else self.io.get(port, FLOAT)

    def types(self, func: FuncOp) -> Types:
        sides: dict[str, list[Attribute | None]] = {"input": [], "output": []}
        for side, name, type_, found in _ports(func):
            is_float = self._wanted(name, type_) == FLOAT
            sides[side].append(None if is_float or isinstance(found, str) else found)
        return sides["input"], sides["output"]

    def _problems(self, func: FuncOp) -> Iterator[Problem]:
        for side, name, type_, found in _ports(func):
            wanted = self._wanted(name, type_)
            if wanted == FLOAT:
                continue
            fact = found if isinstance(found, str) else _other(found, wanted)
            if fact is not None:
                where = f"method @{func.sym_name.data}, {side} {name}"
                remedy = f'leave it a float: io={{"{name}": "{FLOAT}", …}}, others by name'
                yield Problem(f"the port cannot be {wanted}: {fact}", where, remedy)


def _ports(func: FuncOp) -> Iterator[tuple[str, str, Attribute, Attribute | str]]:
    """Yield each port's side, name and type, and its quantized type or why it has none."""
    signature, block = get_signature(func), func.body.block
    for port, value in zip(signature.runtime_inputs, block.args, strict=True):
        yield "input", port.name, value.type, quantized_input(value)
    returned = cast(ReturnOp, block.last_op).operands
    for port, value in zip(signature.runtime_outputs, returned, strict=True):
        yield "output", port.name, value.type, quantized_output(value)


def _check(io: Io, names: set[str]) -> None:
    kinds = [io] if isinstance(io, str) else list(io.values())
    if unknown := [kind for kind in kinds if kind not in (FLOAT, *INTEGERS)]:
        raise StepwellError(
            f"io: there is no element type {unknown[0]!r}",
            help="ports are " + ", ".join((*INTEGERS, FLOAT)),
        )
    if not isinstance(io, str) and (strangers := sorted(set(io) - names)):
        raise StepwellError(
            f"io: there is no input or output {strangers[0]!r}",
            help="there are " + ", ".join(sorted(names)),
        )


def _other(typed: Attribute, wanted: str) -> str | None:
    """Return why a quantized type is not stored as the requested element type, or None."""
    typed_quantization = quantization(typed)
    assert typed_quantization is not None
    stored = dtype_name(storage_element(typed_quantization))
    if stored != wanted:
        return f"the program quantizes it to {stored}"
    return None if typed_quantization.is_per_tensor else "it has scales along an axis"

"""Delegates for tests, built from a function that writes their nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from isolated_run import Trial
from xdsl.dialects.test import TestOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects.quant import Quantization, StorageCast, UniformQuantizedType, quantization
from stepwell.dialects.quant.types import storage_element
from stepwell.dialects.xnnpack import DelegateOp, DynamicInt8Type, YieldOp
from stepwell.dialects.xnnpack.elementwise import Convert
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.dtypes import f32
from stepwell.ir.types import tensor_like, with_element
from stepwell.ir.weights import WeightStore


class Writer:
    """Adds ops to a delegate's block."""

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        self.weights = WeightStore()
        self.block = Block(arg_types=[tensor_like(value) for value in inputs])

    def __call__(self, op: Operation) -> SSAValue:
        """Verify and add an op; gives its first result."""
        self.block.add_op(op)
        op.verify()
        return op.results[0]

    def weight(self, value: torch.Tensor, held: UniformQuantizedType | None = None) -> SSAValue:
        """A constant, with the quantized type its stored integers have."""
        key = self.weights.constant(value)
        constant = self(WeightOp(key, tensor_like(value)))
        return constant if held is None else self.cast(constant, held)

    def cast(self, value: SSAValue, held: UniformQuantizedType) -> SSAValue:
        """Stored integers as the quantized values they are."""
        return self(StorageCast(value, with_element(value.type, held)))

    def dynamic(self, value: SSAValue, count: int = 1) -> SSAValue:
        """A float tensor, quantized at run time."""
        return self(Convert.make(value, element=DynamicInt8Type(count)))

    def finish(self, outputs: Sequence[SSAValue]) -> DelegateOp:
        """The delegate that yields these values, quantized ones as stored integers."""
        plain: list[SSAValue] = []
        for output in outputs:
            held = quantization(output.type)
            plain.append(
                output
                if held is None
                else self(StorageCast(output, with_element(output.type, storage_element(held))))
            )
        self.block.add_op(YieldOp.create(operands=plain))
        source = TestOp(result_types=[arg.type for arg in self.block.args])
        return DelegateOp.make(source.results, [value.type for value in plain], self.block)


Body = Callable[..., SSAValue | list[SSAValue]]


@dataclass(frozen=True)
class Case:
    """A delegate to be run: its name says what, `write(writer, *inputs)` adds its nodes."""

    name: str
    inputs: tuple[torch.Tensor, ...]
    write: Body

    def trial(self) -> Trial:
        """The delegate with its inputs."""
        writer = Writer(self.inputs)
        made = self.write(writer, *writer.block.args)
        outputs = made if isinstance(made, list) else [made]
        return Trial(writer.finish(outputs), writer.weights, self.inputs)


def interpreted(trial: Trial) -> tuple[torch.Tensor, ...]:
    """What the interpreter makes of a trial."""
    with torch.no_grad():
        return Interpreter(trial.weights).run_region(trial.delegate.body, list(trial.inputs))


def per_channel(bits: int, scales: Sequence[float], axis: int = 0) -> UniformQuantizedType:
    """The type of signed numbers with a scale for each index of an axis."""
    count = len(scales)
    low = -(1 << (bits - 1))
    return UniformQuantizedType(
        Quantization(
            bits, True, low, -low - 1, f32, tuple(scales), (0,) * count, ((axis, 1),), (count,)
        )
    )


def bias(scales: Sequence[float]) -> UniformQuantizedType:
    """The type of a bias in int32: one scale, or one for each output."""
    if len(scales) > 1:
        return per_channel(32, scales)
    low = -(1 << 31)
    return UniformQuantizedType(Quantization(32, True, low, -low - 1, f32, tuple(scales), (0,)))


def grouped(scales: torch.Tensor, size: int) -> UniformQuantizedType:
    """The type of 4-bit weights whose rows have a scale for every `size` numbers."""
    flat = tuple(scales.flatten().tolist())
    blocks = ((0, 1), (1, size))
    grid = tuple(scales.shape)
    return UniformQuantizedType(
        Quantization(4, True, -8, 7, f32, flat, (0,) * len(flat), blocks, grid, True)
    )

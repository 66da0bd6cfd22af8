"""Delegates written node by node, and the time of one node.

A trial runs the same node several times in parallel on one input, or in a chain. A slice of one
element reads each otherwise unused result, so that the delegate has small outputs. The difference
between a longer and a shorter trial, divided by the number of additional nodes, is the time of one
node: the input, the output and the call of the delegate cancel out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from xdsl.dialects.test import TestOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.backends.executorch.running.runner import PteSession
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.dialects import xnnpack
from stepwell.dialects.quant import StorageCast, UniformQuantizedType, quantization
from stepwell.dialects.quant.types import storage_element
from stepwell.dialects.xnnpack import DelegateOp, DynamicInt8Type, YieldOp
from stepwell.ir.core import WeightOp
from stepwell.ir.types import dims, tensor_like, with_element
from stepwell.ir.weights import WeightStore

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "xnnpack"))

from isolated_run import Trial, container_of

Node = Callable[..., SSAValue]
"""Writes one node: `node(writer, *inputs)` gives its result."""


class Writer:
    """Adds ops to a delegate's block."""

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        self.weights = WeightStore()
        self.block = Block(arg_types=[tensor_like(value) for value in inputs])

    def __call__(self, op: Operation) -> SSAValue:
        """Add an op; gives its first result."""
        self.block.add_op(op)
        return op.results[0]

    def weight(self, value: torch.Tensor, held: UniformQuantizedType | None = None) -> SSAValue:
        """A constant, with the quantized type its stored integers have."""
        constant = self(WeightOp(self.weights.constant(value), tensor_like(value)))
        return constant if held is None else self.cast(constant, held)

    def cast(self, value: SSAValue, held: UniformQuantizedType) -> SSAValue:
        """Stored integers as the quantized values they are."""
        return self(StorageCast(value, with_element(value.type, held)))

    def dynamic(self, value: SSAValue, count: int = 1) -> SSAValue:
        """A float tensor, quantized at run time."""
        return self(xnnpack.Convert.make(value, element=DynamicInt8Type(count)))

    def corner(self, value: SSAValue) -> SSAValue:
        """The first element."""
        rank = len(dims(value.type))
        return self(xnnpack.StaticSlice.make(value, offsets=[0] * rank, sizes=[1] * rank))

    def finish(self, outputs: Sequence[SSAValue]) -> DelegateOp:
        """The delegate that yields these values, quantized ones as stored integers."""
        plain = [
            value
            if (held := quantization(value.type)) is None
            else self(StorageCast(value, with_element(value.type, storage_element(held))))
            for value in outputs
        ]
        self.block.add_op(YieldOp.create(operands=plain))
        source = TestOp(result_types=[arg.type for arg in self.block.args])
        return DelegateOp.make(source.results, [value.type for value in plain], self.block)


@dataclass(frozen=True)
class Form:
    """A node to be timed.

    Attributes:
        inputs: its inputs.
        node: writes it once.
        chained: whether one runs on another's result; else all run on the inputs.

    """

    inputs: tuple[torch.Tensor, ...]
    node: Node
    chained: bool = False

    def trial(self, count: int) -> Trial:
        """A delegate that runs the node `count` times."""
        writer = Writer(self.inputs)
        first, *rest = writer.block.args
        made: list[SSAValue] = []
        for _ in range(count):
            made.append(self.node(writer, made[-1] if self.chained and made else first, *rest))
        read = made[-1:] if self.chained else made
        return Trial(
            writer.finish([writer.corner(value) for value in read]), writer.weights, self.inputs
        )


@dataclass
class Device:
    """A remote machine: programs are written for it, or its measurements of them are read.

    Attributes:
        folder: the folder of the written programs.
        times: nanoseconds that it printed, by program and method; None while they are written.
        programs: the number of programs.

    """

    folder: Path | None = None
    times: Mapping[str, Mapping[str, float]] | None = None
    programs: int = 0

    def seconds(self, form: Form) -> float | None:
        """Seconds of one node; any number while programs are written."""
        name = f"{self.programs:03}.pte"
        self.programs += 1
        if self.times is None:
            assert self.folder is not None
            (self.folder / name).write_bytes(_trials(form))
            return 1.0
        taken = self.times[name]
        if not taken:
            return None
        return 1e-9 * max(0.0, taken["trial_1"] - taken["trial_0"]) / FURTHER


FURTHER = 3


def seconds_here(form: Form, rounds: int = 12, least: float = 2e-4) -> float | None:
    """Seconds of one node on this machine; None where the runtime does not take it.

    Trials of one and of four nodes run in turn, each for `least` seconds at a time; of `rounds`
    times, the least counts.
    """
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(_trials(form))
    try:
        methods = [program.load_method(f"trial_{index}") for index in range(2)]
        best = [_once(method, form.inputs, 1) for method in methods]
    except RuntimeError:
        return None
    repeat = [max(1, round(least / taken)) for taken in best]
    for _ in range(rounds):
        for index, method in enumerate(methods):
            best[index] = min(best[index], _once(method, form.inputs, repeat[index]))
    return max(0.0, best[1] - best[0]) / FURTHER


def _trials(form: Form) -> bytes:
    """A program of two methods: one node, and some more."""
    trials = [form.trial(1), form.trial(1 + FURTHER)]
    return to_bytes(container_of(trials, embed_unpacked_constants=True))


def seconds_on(core: str, form: Form) -> float:
    """What the instructions of one node take at least on a core (`bench/_arm_cycles.py`)."""
    from _arm_cycles import seconds as least_seconds

    session = PteSession.load(_trials(form), cpu=core, counting=True)
    one, more = (
        least_seconds(
            session.measure(*form.inputs, method=f"trial_{index}", repeats=2).counts[-1], core
        )
        for index in range(2)
    )
    return max(0.0, more - one) / FURTHER


def _once(method: Any, inputs: Sequence[torch.Tensor], repeat: int) -> float:
    started = time.thread_time()
    for _ in range(repeat):
        method.execute(inputs)
    return (time.thread_time() - started) / repeat

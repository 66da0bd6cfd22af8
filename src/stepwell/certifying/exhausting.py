"""Pairs that one or two bytes decide, element by element: run on all values that there are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from stepwell.certifying.statements import pairs_of
from stepwell.dialects.quant.types import quantization, storage_dtype
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound
from stepwell.ir.sizes.size import number_of
from stepwell.ir.types import dims, is_static

_MOST_RUNS = 1024
_BYTE = 256


class NotOfBytes(Exception):
    """Pairs that are no elementwise functions of one or two bytes, in the order of elements."""


def apart_on_all(
    program: Program,
    bound: Bound = EXACT,
    pairs: Sequence[tuple[SSAValue, SSAValue]] | None = None,
) -> str | None:
    """What differs by more than a bound, for some values of the bytes; None where nothing does.

    Args:
        program: of one method.
        bound: how far results may be off.
        pairs: those of the method's results, where no others are given.

    Raises:
        NotOfBytes: it cannot be decided so.
    """
    from stepwell.checking.compare import differs

    pairs = pairs_of(program) if pairs is None else pairs
    ops = _ops_of([value for pair in pairs for value in pair])
    (method,) = program.methods.values()
    inputs = [a for a in method.body.block.args if _is_read(a, ops, pairs)]
    count = _count(inputs, ops, pairs)
    numbers = [_all_of(value) for value in inputs]
    total = len(numbers[0]) * (len(numbers[1]) if len(numbers) > 1 else 1)
    if -(-total // count) > _MOST_RUNS:
        raise NotOfBytes("too many runs")
    interpreter = Interpreter(program.weights)
    for begin in range(0, total, count):
        places = torch.arange(begin, begin + count) % total
        picked = [places // (total // len(numbers[0])), places % len(numbers[-1])]
        environment: dict[SSAValue, Any] = {}
        for value, held, at in zip(inputs, numbers, picked, strict=False):
            environment[value] = held[at].reshape([*map(number_of, dims(value.type))])
        with torch.no_grad():
            for op in method.body.block.ops:
                if op in ops and not isinstance(op, ReturnOp):
                    try:
                        interpreter.step(op, environment)
                    except (StepwellError, RuntimeError, NotImplementedError) as error:
                        raise NotOfBytes(str(error)) from error
        for old, new in pairs:
            difference = differs(environment[old], environment[new], bound, against="tensor")
            if difference is not None:
                return str(difference)
    return None


def _count(
    inputs: Sequence[SSAValue],
    ops: dict[Operation, None],
    pairs: Sequence[tuple[SSAValue, SSAValue]],
) -> int:
    """The elements of each tensor, as many in all, of which each is a function of those before."""
    if not 1 <= len(inputs) <= 2:
        raise NotOfBytes("it has not one input, or two")
    values = [*inputs, *(v for op in ops for v in op.results), *(v for pair in pairs for v in pair)]
    if not all(isinstance(value.type, TensorType) for value in values):
        raise NotOfBytes("a number of run time")
    if not all(is_static(value.type) for value in values):
        raise NotOfBytes("a symbolic size")
    shapes = {dims(value.type) for value in values}
    counts = {prod(map(number_of, shape)) for shape in shapes}
    for op in ops:
        keeps_places = is_of(op, "elementwise", "cast", "reshape") and op.regions == ()
        if isinstance(op, WeightOp) or not keeps_places:
            raise NotOfBytes(f"{op.name} is not elementwise")
    if len(counts) != 1 or (len(inputs) > 1 and len(shapes) > 1):
        raise NotOfBytes("shapes broadcast")
    return counts.pop() or 1


def _all_of(value: SSAValue) -> Any:
    held = quantization(value.type)
    if held is None or not held.is_per_tensor or held.high - held.low >= _BYTE:
        raise NotOfBytes(f"{value.type} has more values than a byte")
    return torch.arange(held.low, held.high + 1).to(storage_dtype(held))


def _is_read(
    value: SSAValue, ops: dict[Operation, None], pairs: Sequence[tuple[SSAValue, SSAValue]]
) -> bool:
    return any(value in op.operands for op in ops) or any(value in pair for pair in pairs)


def _ops_of(values: Sequence[SSAValue]) -> dict[Operation, None]:
    found: dict[Operation, None] = {}
    waiting = [value.owner for value in values]
    while waiting:
        owner = waiting.pop()
        if isinstance(owner, Operation) and owner not in found:
            found[owner] = None
            waiting += [value.owner for value in owner.operands]
    return found

"""Compare elementwise functions of a few 8-bit or bool operands on all values of the operands.

Scalar constants are part of the functions, and so are lookup tables.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.op_text import is_repeatable
from stepwell.dialects.quant.ops import StorageCast
from stepwell.dialects.quant.types import quantization, storage_dtype
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import i1, i8, torch_dtype, ui8
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound
from stepwell.ir.sizes.size import number_of
from stepwell.ir.traversal import producers
from stepwell.ir.types import dims, element, is_static
from stepwell.validation.certificates.checker.statements import is_constant, pairs_of
from stepwell.validation.compare import differs

_MOST_RUNS = 1024
_MOST_INPUTS = 3
_MOST_VALUES = 1 << 18
_BYTE = 256
_TABLES = ("tosa.table", "cmsis.quantized_activation")
"""Ops whose second operand is a table for lookups of the first."""


class NotOfBytes(Exception):
    """Raised if the values to compare are not elementwise functions of a few 8-bit operands."""


class _Comparison:
    """Pairs of values of a program to compare, with the ops and arguments that they depend on.

    Attributes:
        ops: the ops that compute them, in the program's order.
        inputs: the arguments that are read.
    """

    def __init__(
        self, program: Program, pairs: Sequence[tuple[SSAValue, SSAValue]], bound: Bound
    ) -> None:
        self.program, self.pairs, self.bound = program, pairs, bound
        self.values = [value for pair in pairs for value in pair]
        found = producers(self.values)
        if not all(map(is_repeatable, found)):
            raise NotOfBytes("it draws random numbers")
        (method,) = program.methods.values()
        block = method.body.block
        self.ops = [op for op in block.ops if op in found and not isinstance(op, ReturnOp)]
        read = {*self.values, *(value for op in self.ops for value in op.operands)}
        self.inputs = [argument for argument in block.args if argument in read]

    def run(self, ops: Sequence[Operation], environment: dict[SSAValue, Any]) -> None:
        """Evaluate the ops of a comparison on the current inputs, and record their results."""
        interpreter = Interpreter(self.program.weights)
        with torch.no_grad():
            for op in ops:
                try:
                    interpreter.step(op, environment)
                except (StepwellError, RuntimeError, NotImplementedError) as error:
                    raise NotOfBytes(str(error)) from error

    def apart(self, environment: dict[SSAValue, Any], has_shape: bool) -> str | None:
        """Describe the first difference of the pairs on the current inputs, or return None."""
        self.run(self.ops, environment)
        for old, new in self.pairs:
            if has_shape and environment[old].shape != environment[new].shape:
                raise NotOfBytes("an op computes in its own shape")
            difference = differs(environment[old], environment[new], self.bound, against="tensor")
            if difference is not None:
                return str(difference)
        return None


def apart_on_all(
    program: Program,
    bound: Bound = EXACT,
    pairs: Sequence[tuple[SSAValue, SSAValue]] | None = None,
) -> str | None:
    """Return a difference beyond the bound for some values of the 8-bit operands; None if there is
    none.

    Args:
        program: a program with one method.
        bound: the error bound of the results.
        pairs: the pairs to compare; by default those of the method's results.

    Raises:
        NotOfBytes: the pairs are not functions of a few 8-bit operands.
    """
    comparison = _Comparison(program, pairs_of(program) if pairs is None else pairs, bound)
    try:
        count, shape = _count(comparison)
    except NotOfBytes as error:
        return _apart_by_places(comparison, error)
    numbers = [_all_of(value) for value in comparison.inputs]
    total = prod(map(len, numbers))
    if total > _MOST_VALUES:
        raise NotOfBytes("too many values")
    if shape:  # All tensors have this axis, which may be longer for elementwise computations.
        shape = (-(-total * shape[0] // count), *shape[1:])
        count = prod(shape)
    if -(-total // count) > _MOST_RUNS:
        raise NotOfBytes("too many runs")
    for begin in range(0, total, count):
        places = torch.arange(begin, begin + count) % total
        environment: dict[SSAValue, Any] = {}
        for value, number in zip(comparison.inputs, numbers, strict=True):
            picked, places = number[places % len(number)], places // len(number)
            environment[value] = picked.reshape(shape or _shape(value))
        difference = comparison.apart(environment, has_shape=bool(shape))
        if difference is not None:
            return difference
    return None


def _shape(value: SSAValue) -> list[int]:
    return [*map(number_of, dims(value.type))]


# -- one byte, at another place ------------------------------------------------------------------

_FIRST = 1 << 40
"""The index number of the first element; no constant equals it."""


def _apart_by_places(comparison: _Comparison, otherwise: NotOfBytes) -> str | None:
    """Decide pairs in which each result element is a function of one byte, which may be at another
    index.

    If both sides read the same index, all inputs are filled with each value in turn.
    """
    inputs = comparison.inputs
    moving = {op for op in comparison.ops if is_of(op, "movement", "padding") or _is_shape(op)}
    if not moving or not inputs or not all(is_static(v.type) for v in inputs):
        raise otherwise
    numbers = [_all_of(value) for value in inputs]
    places: dict[SSAValue, Any] = {}
    first = _FIRST
    for value in inputs:
        count = prod(_shape(value))
        places[value] = torch.arange(first, first + count).reshape(_shape(value))
        first += count
    for op in comparison.ops:
        if isinstance(op, WeightOp):
            _is_part(op, comparison.program)
            places[op.result] = torch.zeros(_shape(op.result), dtype=torch.int64)
        elif op in moving:
            comparison.run([op], places)
        else:
            places[op.results[0]] = _place_of_operand(op, places, otherwise)
    for old, new in comparison.pairs:
        one, other = (torch.where(places[v] < _FIRST, 0, places[v]) for v in (old, new))
        if not torch.equal(one, other):
            raise otherwise
    for at in range(max(map(len, numbers))):
        environment: dict[SSAValue, Any] = {
            value: number[at % len(number)].expand(_shape(value))
            for value, number in zip(inputs, numbers, strict=True)
        }
        difference = comparison.apart(environment, has_shape=True)
        if difference is not None:
            return difference
    return None


def _is_shape(op: Operation) -> bool:
    """Whether an op computes a shape: it has no operands and no tensor result."""
    return not op.operands and not any(isinstance(v.type, TensorType) for v in op.results)


def _place_of_operand(op: Operation, places: dict[SSAValue, Any], otherwise: NotOfBytes) -> Any:
    """Return the index numbers of an elementwise op's only operand that depends on the inputs."""
    read = [v for v in op.operands if bool((places[v] >= _FIRST).any())]
    if not _is_elementwise(op) or len(op.results) != 1 or len(read) != 1:
        raise otherwise
    if dims(read[0].type) != dims(op.results[0].type):
        raise otherwise
    return places[read[0]]


def _is_elementwise(op: Operation) -> bool:
    """Whether an op computes each result element from the operands' elements at the same index."""
    is_one = is_of(op, "elementwise") or isinstance(op, StorageCast) or op.name in _TABLES
    return is_one and not op.regions


# -- what decides --------------------------------------------------------------------------------


def _count(comparison: _Comparison) -> tuple[int, tuple[int, ...]]:
    """Return the number of elements that all tensors have, if the ops between them are elementwise.

    If the tensors also have one shape, return it as well.
    """
    inputs = comparison.inputs
    if not 1 <= len(inputs) <= _MOST_INPUTS:
        raise NotOfBytes("it has no input, or many")
    computed = [op for op in comparison.ops if not _is_part(op, comparison.program)]
    made = [v for op in computed for v in op.results]
    values = [*inputs, *made, *comparison.values]
    if not all(isinstance(value.type, TensorType) for value in values):
        raise NotOfBytes("a runtime number")
    if not all(is_static(value.type) for value in values):
        raise NotOfBytes("a symbolic size")
    shapes = {dims(value.type) for value in values}
    counts = {prod(map(number_of, shape)) for shape in shapes}
    for op in computed:
        if not _is_elementwise(op) and (not is_of(op, "reshape") or op.regions):
            raise NotOfBytes(f"{op.name} is not elementwise")
    if len(counts) != 1 or (len(inputs) > 1 and len(shapes) > 1):
        raise NotOfBytes("shapes broadcast")
    first = tuple(map(number_of, shapes.pop()))
    return counts.pop() or 1, () if shapes or 0 in first else first


def _is_part(op: Operation, program: Program) -> bool:
    """Whether an op is a scalar constant or a lookup table.

    Raises:
        NotOfBytes: the op is a weight of another kind.
    """
    if not isinstance(op, WeightOp):
        return False
    known = is_constant(program.weights, op.key.data, True)
    is_table = all(u.operation.name in _TABLES and u.index == 1 for u in op.result.uses)
    count = prod(map(number_of, dims(op.result.type)))
    if known and (count == 1 or is_table):
        return True
    raise NotOfBytes(f"the weight {op.key.data} is arbitrary")


def _all_of(value: SSAValue) -> Any:
    stored = quantization(value.type)
    if stored is None and element(value.type) in (i1, i8, ui8):
        dtype = torch_dtype(element(value.type))
        info = torch.iinfo(dtype) if dtype != torch.bool else None
        return torch.arange(*((info.min, info.max + 1) if info else (0, 2))).to(dtype)
    if stored is None or not stored.is_per_tensor or stored.high - stored.low >= _BYTE:
        raise NotOfBytes(f"{value.type} has more values than a byte")
    return torch.arange(stored.low, stored.high + 1).to(storage_dtype(stored))

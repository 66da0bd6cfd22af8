"""Constant folding of sizes: pin sizes that weights, or all permitted inputs, determine.

Examples are a graph's edges without its loops, and the positions of nonzero elements of a mask.
`torch.export` does not inspect a buffer, and gives the result of indexing by a boolean mask `u0`
rows. The program holds the buffer, so the size is a number, also where `item()` reads it. Values
that are computed from the size are then computed from a number, most of them at compile time.

Before:
    %e = stepwell.weight <"e"> "buffer" : tensor<4xi64>
    %p = aten.nonzero.default(%e) : (tensor<4xi64>) -> tensor<?x1xi64, #stepwell.shape<["u0", 1]>>
    %y = aten.index_select.default(%x, 0, %p) …
After, where three elements of `e` are not 0:
    %p = stepwell.weight <"known.0"> "constant" : tensor<3x1xi64>
    %y = aten.index_select.default(%x, 0, %p) …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from stepwell.dialects.aten.inference import by_torch
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.sym import ConstantOp, SymOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.xdsl.xdsl_private import operands_of, put_before, replace_uses
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.ir.side_effects import is_pure
from stepwell.ir.signature import get_signature
from stepwell.ir.sizes.size import Size, is_unbacked
from stepwell.ir.sizes.size_ranges import settled_within
from stepwell.ir.traversal import walk
from stepwell.ir.types import Dim, IntType, dims, is_static
from stepwell.translate.rewrites.sizes.pin_symbolic_sizes import Pinning


@dataclass(frozen=True)
class PinKnownSizes(Pass):
    """Replace data-dependent sizes that weights alone determine by numbers."""

    name: ClassVar[str] = "pin-known-sizes"

    @staticmethod
    def concerns(program: Program) -> bool:
        """Whether a method has a data-dependent size, or a size that is the same in all calls."""
        return any(
            _has_settled_sizes(func) or any(map(_has_sizes_of_data, walk(func)))
            for func in program.methods.values()
        )

    def apply(self, program: Program, history: History) -> int:
        """Pin one size after another; return the number of pinned symbols."""
        return sum(self._pinned(func, program) for func in program.methods.values())

    def _pinned(self, func: FuncOp, program: Program) -> int:
        count = 0
        if _has_settled_sizes(func):
            _Settling(func, {}).apply()
            count += 1
        while (found := _decided(func, program)) is not None:
            pins, known = found
            Pinning(func, pins).apply()
            for result, value in known.items():
                if isinstance(result.type, TensorType):
                    _stands_for(result, value, program)
            count += len(pins)
        return count


class _Settling(Pinning):
    """Return the sizes that have one value for every permitted input."""

    def new_type(self, type_: Attribute) -> Attribute:
        if isinstance(type_, IntType):
            size = settled_within(type_.size, self.ranges)
            return type_ if isinstance(size, Size) else IntType(str(size))
        return super().new_type(type_) if isinstance(type_, TensorType) else type_

    def new_size(self, dim: Dim) -> Dim:
        return settled_within(dim, self.ranges)


def _has_settled_sizes(func: FuncOp) -> bool:
    """Whether a size is the same in all calls, or a number is written as arithmetic on sizes."""
    ranges = get_signature(func).ranges
    return any(
        (isinstance(op, SymOp) and not _is_dynamic(result.type))
        or any(
            isinstance(size, Size) and settled_within(size, ranges) != size
            for size in _sizes(result.type)
        )
        for op in walk(func)
        for result in op.results
    )


def _is_dynamic(type_: Attribute) -> bool:
    return not isinstance(type_, IntType) or isinstance(type_.size, Size)


def _sizes(type_: Attribute) -> Sequence[Dim]:
    """Return the sizes of a tensor type, or the size that a number type states."""
    if isinstance(type_, TensorType):
        return dims(type_)
    return [type_.size] if isinstance(type_, IntType) else [0]


def _is_symbol_of_data(size: Dim) -> bool:
    """Whether a size is a symbol whose value depends on data."""
    return isinstance(size, Size) and is_unbacked(str(size))


def _has_sizes_of_data(op: Operation) -> bool:
    return any(_is_symbol_of_data(size) for result in op.results for size in _sizes(result.type))


def _decided(func: FuncOp, program: Program) -> tuple[dict[str, int], dict[SSAValue, Any]] | None:
    """Yield data-dependent sizes that ops compute from weights and numbers, with their values."""
    interpreter = Interpreter(program.weights)
    for op in func.body.block.ops:
        if not _has_sizes_of_data(op):
            continue
        values = _values(op, interpreter)
        known: dict[SSAValue, Any] = (
            {result: values[result] for result in op.results} if values is not None else {}
        )
        if values is not None:
            given = [
                list(value.shape) if isinstance(value, torch.Tensor) else [value]
                for value in known.values()
            ]
        else:
            given = [_sizes(type_) for type_ in _inferred(op)]
        pins = {
            str(size): int(number)
            for result, numbers in zip(op.results, given, strict=False)
            for size, number in zip(_sizes(result.type), numbers, strict=True)
            if _is_symbol_of_data(size) and not isinstance(number, Size)
        }
        if pins:
            return pins, known
    return None


def _inferred(op: Operation) -> Sequence[Attribute]:
    """Return torch's result for an op of numbers alone, such as a slice up to a known number."""
    given = [value.type for value in op.operands]
    if not isinstance(op, SchemaOp) or not all(
        isinstance(type_, TensorType) and is_static(type_) for type_ in given
    ):
        return ()
    try:
        return by_torch(op)
    except StepwellError:
        return ()


def _stands_for(result: SSAValue, value: torch.Tensor, program: Program) -> None:
    """Replace a computed value by a weight."""
    key = program.weights.constant(value.contiguous(), "known")
    weight = WeightOp(key, program.weights.type_of(key), "constant")
    put_before(weight, cast(Operation, result.owner))
    weight.result.name_hint = result.name_hint
    replace_uses(result, weight.result)


def _values(op: Operation, interpreter: Interpreter) -> dict[SSAValue, Any] | None:
    """Compute an op's result and all values on which it depends, if these are weights alone."""
    way: set[Operation] = set()
    waiting = [op]
    while waiting:
        maker = waiting.pop()
        if maker in way:
            continue
        if not isinstance(maker, SchemaOp | SymOp | ConstantOp | WeightOp) or not is_pure(maker):
            return None
        way.add(maker)
        owners = [operand.owner for operand in operands_of(maker)]
        if any(isinstance(owner, Block) for owner in owners):
            return None
        waiting += [owner for owner in owners if isinstance(owner, Operation)]
    block = op.parent
    assert block is not None
    values: dict[SSAValue, Any] = {}
    for maker in block.ops:
        if maker in way:
            interpreter.step(maker, values)
    return values

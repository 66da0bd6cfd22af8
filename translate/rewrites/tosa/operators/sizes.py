"""Dynamic sizes: an expression of symbols, computed by shape operators.

Where an operator needs such a size as a value, DIM reads each symbol from the argument whose
dimension it is, and ADD_SHAPE, MUL_SHAPE, … compute the rest: the extension `shape`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeGuard

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import IsolatedFromAbove

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import ShapeType
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.constants import const_shape
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import i32
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import UNKNOWN, Computed, Dim, Size, settled
from stepwell.ir.sizes.size_values import computed
from stepwell.ir.types import dims, is_static

_BINARY: Final[dict[str, type[TosaOp]]] = {
    "add": t.AddShapeOp,
    "mul": t.MulShapeOp,
    "max": t.MaxShapeOp,
    "min": t.MinShapeOp,
    "floordiv": t.DivFloorShapeOp,
    "mod": t.ModShapeOp,
}


def is_known(shape: Sequence[Dim]) -> TypeGuard[Sequence[int]]:
    """Whether every size is static."""
    return all(isinstance(size, int) for size in shape)


def is_spelled(*values: SSAValue) -> bool:
    """Whether types state every size, as a number or as an expression."""
    return all(UNKNOWN not in dims(value.type) for value in values)


def inexpressible(value: SSAValue) -> str | None:
    """Return why the sizes of a tensor cannot be computed by shape operators, or None."""
    for dim in dims(value.type):
        if isinstance(dim, int):
            continue
        if dim == UNKNOWN:
            return "a dimension is not known, not even as an expression"
        for symbol in sorted(dim.symbols):
            if _source(symbol, value) is None:
                return f"the size {symbol} is not a dimension of an input"
        if any(isinstance(atom, Computed) for atom in dim.atoms):
            return f"the size {dim} is not an expression that shape operators compute"
    return None


def _source(symbol: str, near: SSAValue | Operation) -> tuple[SSAValue, int] | None:
    """Return the function or region argument, and its axis, whose size is the symbol."""
    size = Size.symbol(symbol)
    for argument in _arguments_around(near):
        if is_static_or_scalar(argument) or size == UNKNOWN:
            continue
        for axis, dim in enumerate(dims(argument.type)):
            if dim == size:
                return argument, axis
    return None


def _arguments_around(near: SSAValue | Operation) -> Iterator[SSAValue]:
    """Yield the arguments of the blocks around an op or value, up to an isolated region."""
    at = near.owner if isinstance(near, SSAValue) else near
    block = at if isinstance(at, Block) else at.parent_block()
    while block is not None:
        yield from block.args
        owner = block.parent_op()
        is_last = owner is None or owner.has_trait(IsolatedFromAbove)
        block = None if is_last or owner is None else owner.parent_block()


def is_static_or_scalar(value: SSAValue) -> bool:
    """Whether a value is a tensor of static sizes, or not a tensor."""
    return not hasattr(value.type, "element_type") or is_static(value.type)


def shape_constant(sizes: Sequence[int | Size], rw: Rewriter) -> SSAValue:
    """Build a list of sizes as a value: a CONST_SHAPE, or shape operators and CONCAT_SHAPE."""
    stated = [settled(size) for size in sizes]
    if is_known(stated):
        return rw.insert(const_shape(stated)).results[0]
    parts: list[SSAValue] = []
    run: list[int] = []
    for size in [*stated, None]:
        if isinstance(size, int):
            run.append(size)
            continue
        if run:
            parts.append(rw.insert(const_shape(run)).results[0])
            run = []
        if size is not None:
            parts.append(_computed(size, rw))
    if len(parts) == 1:
        return parts[0]
    return _put(t.ConcatShapeOp, parts, len(sizes), rw)


def _put(cls: type[TosaOp], operands: Sequence[SSAValue], rank: int, rw: Rewriter) -> SSAValue:
    return rw.insert(
        cls.create(operands=list(operands), result_types=[ShapeType.of(rank)])
    ).results[0]


def _computed(size: Size, rw: Rewriter) -> SSAValue:
    """Build one size as a value of type `!tosa.shape<1>`."""

    def leaf(part: Size) -> SSAValue | None:
        if part.number is not None:
            return rw.insert(const_shape([part.number])).results[0]
        argument = _source(str(part), rw.root)
        if argument is None:
            return None
        op = t.DimOp.create(
            operands=[argument[0]],
            properties={"axis": IntegerAttr(argument[1], i32)},
            result_types=[ShapeType.of(1)],
        )
        return rw.insert(op).results[0]

    def apply(name: str, one: SSAValue, other: SSAValue) -> SSAValue:
        return _put(_BINARY[name], [one, other], 1, rw)

    value = computed(size, leaf, apply)
    if value is None:
        raise StepwellError(f"the size {size} is not computed from dimensions of inputs")
    return value

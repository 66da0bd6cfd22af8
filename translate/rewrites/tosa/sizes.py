"""Sizes that only the run knows: an expression of symbols, computed by shape operators.

A size is an int, or the sympy expression that the tensor's type spells (`s77`, `4*s77 + 1`), which
multiplies and adds like one.  Where an operator needs it as a value, DIM reads each symbol off the
argument whose dimension it is, and ADD_SHAPE, MUL_SHAPE, … compute the rest: the extension `shape`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import sympy
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.symbols import Symbols
from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import ShapeType
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.constants import const_shape
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import i32
from stepwell.ir.rewriting import Rewriter
from stepwell.ir.signature import method_of
from stepwell.ir.torch_private import sympy_functions as torch_functions
from stepwell.ir.types import Dim, dims, is_static

Size = Any
"""An int, or a sympy expression."""

_BINARY: tuple[tuple[Any, type[TosaOp]], ...] = (
    (sympy.Add, t.AddShapeOp),
    (sympy.Mul, t.MulShapeOp),
    (torch_functions.Max, t.MaxShapeOp),
    (torch_functions.Min, t.MinShapeOp),
    (torch_functions.FloorDiv, t.DivFloorShapeOp),
    (torch_functions.Mod, t.ModShapeOp),
)


@lru_cache(maxsize=4096)
def size_of(dim: Dim) -> Size:
    """The size that a dimension of a type spells."""
    return dim if isinstance(dim, int) else Symbols().expression(dim)


def dimension(size: Size) -> Dim:
    """A size as a type spells it."""
    if isinstance(size, int):
        return size
    return int(size) if size.is_number else str(size)


def settled(size: Size) -> Size:
    """A size that arithmetic has made: an int where its symbols cancelled."""
    return size if isinstance(size, int) or not size.is_Integer else int(size)


def whole_quotient(size: Size, divisor: int) -> Size:
    """A size divided by a number, rounded down: what DIV_FLOOR_SHAPE computes."""
    return size // divisor if isinstance(size, int) else torch_functions.FloorDiv(size, divisor)


def is_known(shape: Sequence[Size]) -> bool:
    """Whether every size is a number."""
    return all(isinstance(size, int) for size in shape)


def is_spelled(*values: SSAValue) -> bool:
    """Whether types say every size, as a number or as an expression."""
    return all("?" not in dims(value.type) for value in values)


def magnitude(size: Size) -> int:
    """A number that orders sizes: a symbol counts as a large prime of its own."""
    if isinstance(size, int):
        return size
    symbols = sorted(size.free_symbols, key=str)
    return int(size.subs({s: sympy.prime(1000 + n) for n, s in enumerate(symbols)}))


def inexpressible(value: SSAValue) -> str | None:
    """Why the sizes of a tensor cannot be computed by shape operators, or None."""
    for dim in dims(value.type):
        if isinstance(dim, int):
            continue
        if dim == "?":
            return "a dimension is not known, not even as an expression"
        found: Any = size_of(dim)
        for symbol in found.free_symbols:
            if _source(str(symbol), value) is None:
                return f"the size {symbol} is not a dimension of an input"
        if not all(_is_expressible(node) for node in sympy.preorder_traversal(found)):
            return f"the size {dim} is not an expression that shape operators compute"
    return None


def _is_expressible(node: Any) -> bool:
    if node.is_Symbol or node.is_Integer:
        return True
    if node.is_Pow:
        return bool(node.exp.is_Integer and node.exp > 0)
    return any(isinstance(node, kind) for kind, _ in _BINARY)


def _source(symbol: str, near: SSAValue | Operation) -> tuple[SSAValue, int] | None:
    """The argument and the axis whose size a symbol is."""
    method = method_of(near)
    if method is None:
        return None
    for argument in method.body.block.args:
        if is_static_or_scalar(argument):
            continue
        for axis, dim in enumerate(dims(argument.type)):
            if dim == symbol:
                return argument, axis
    return None


def is_static_or_scalar(value: SSAValue) -> bool:
    """Whether a value is no tensor, or one whose sizes are numbers."""
    return not hasattr(value.type, "element_type") or is_static(value.type)


def shape_constant(sizes: Sequence[Size], rw: Rewriter) -> SSAValue:
    """A list of sizes as a value: a CONST_SHAPE, or shape operators and a CONCAT_SHAPE."""
    if is_known(sizes):
        return rw.insert(const_shape(sizes)).results[0]
    parts: list[SSAValue] = []
    run: list[int] = []
    for size in [*sizes, None]:
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


def _computed(size: Any, rw: Rewriter) -> SSAValue:
    """One size as a value of type `!tosa.shape<1>`."""
    if size.is_Integer:
        return rw.insert(const_shape([int(size)])).results[0]
    if size.is_Symbol:
        found = _source(str(size), rw.root)
        if found is None:
            raise StepwellError(f"the size {size} is no dimension of an input")
        argument, axis = found
        op = t.DimOp.create(
            operands=[argument],
            properties={"axis": IntegerAttr(axis, i32)},
            result_types=[ShapeType.of(1)],
        )
        return rw.insert(op).results[0]
    if size.is_Pow:
        value = factor = _computed(size.base, rw)
        for _ in range(int(size.exp) - 1):
            value = _put(t.MulShapeOp, [value, factor], 1, rw)
        return value
    cls = next(found for kind, found in _BINARY if isinstance(size, kind))
    value, *rest = [_computed(part, rw) for part in size.args]
    for part in rest:
        value = _put(cls, [value, part], 1, rw)
    return value

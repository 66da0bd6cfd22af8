"""The interface of shape rules: a rule returns the sizes that it knows, and raises
`StepwellError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from xdsl.dialects.builtin import ModuleOp, TensorType, UnrankedTensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import ShapeType
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.constants import shape_value as constant_shape
from stepwell.dialects.tosa.constants import tensor_of_dense
from stepwell.dialects.tosa.forms import has_form, no_form
from stepwell.dialects.tosa.meaning.shapes import BINARY, UNARY
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.dialects.tosa.structural import ConstOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.inference import infers
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import i64
from stepwell.ir.levels import stopped_after
from stepwell.ir.sizes.size import GUESS, UNKNOWN, Size
from stepwell.ir.types import Dim, WeightAttr, dims, element, tensor

Shape = tuple[Dim, ...] | None
"""Sizes, with strings for unknown ones; None if the rank is unknown."""

Expected = tuple[Shape, Attribute | None]
"""What a rule infers of a result: its shape, and its element type if the operands determine it."""

LARGEST_RANK = 32
"""The rank limit of any level; `limits.py` has that of a target's level."""

_F = TypeVar("_F", bound=Callable[..., Sequence[Expected]])


def shaped(*classes: type[TosaOp]) -> Callable[[_F], _F]:
    """Register a shape rule for operators; its results are checked against the stated types."""

    def register(rule: _F) -> _F:
        def inference(op: Operation) -> Sequence[Attribute]:
            assert isinstance(op, TosaOp)
            expected = rule(op)
            if not has_form(op) and not _awaits_narrowing(op):
                raise StepwellError(no_form(op))
            if len(expected) != len(op.results):
                raise StepwellError(
                    f"the operator has {len(op.results)} results, expected {len(expected)}"
                )
            return [
                _merged(result, *found) for result, found in zip(op.results, expected, strict=True)
            ]

        infers(*classes)(inference)
        return rule

    return register


def _merged(result: SSAValue, shape: Shape, attribute: Attribute | None) -> Attribute:
    """Merge a rule's type with the stated type, which supplies the sizes that the rule does not
    know.
    """
    stated = result.type
    if isinstance(stated, UnrankedTensorType) or not isinstance(stated, TensorType):
        return stated
    element = attribute if attribute is not None else stated.element_type
    sizes = dims(stated)
    if shape is None:
        return tensor(sizes, element) if attribute is not None else stated
    if len(shape) != len(sizes):
        return tensor(shape, element)
    known = [
        stated_dim
        if stated_dim != GUESS and (isinstance(dim, Size) or isinstance(stated_dim, Size))
        else dim
        for dim, stated_dim in zip(shape, sizes, strict=True)
    ]
    if tuple(known) == tuple(sizes) and element == stated.element_type:
        return stated
    return tensor(known, element)


def shape_of(value: SSAValue) -> Shape:
    """Return the sizes in a tensor's type."""
    type_ = value.type
    if isinstance(type_, UnrankedTensorType):
        return None
    if not isinstance(type_, TensorType):
        raise StepwellError(f"an operand is {type_}, must be a tensor")
    type_dims = dims(type_)
    if len(type_dims) > LARGEST_RANK:
        raise StepwellError(f"rank {len(type_dims)} is above {LARGEST_RANK}")
    return type_dims


def ranked(value: SSAValue, rank: int, what: str) -> tuple[Dim, ...]:
    """Return the sizes of an operand of a fixed rank."""
    shape = shape_of(value)
    if shape is None:
        return (UNKNOWN,) * rank
    if len(shape) != rank:
        raise StepwellError(f"{what} has rank {len(shape)}, must have rank {rank}")
    return shape


def sizes_of(value: SSAValue, what: str, rank: int | None = None) -> tuple[int, ...] | None:
    """Return the sizes in a shape operand; None if computed at run time."""
    type_ = value.type
    if not isinstance(type_, ShapeType):
        raise StepwellError(f"{what} is {type_}, must be a shape")
    if rank is not None and type_.rank.data != rank:
        raise StepwellError(f"{what} has {type_.rank.data} sizes, must have {rank}")
    sizes = known_sizes(value)
    held = type_.rank.data
    need(sizes is None or len(sizes) == held, f"{what} has {held} sizes, its value {sizes}")
    return sizes


def known_sizes(value: SSAValue) -> tuple[int, ...] | None:
    """Return the sizes of a shape value that is constant or computed from constants; else None."""
    owner = value.owner
    constant = constant_shape(value)
    if constant is not None or not isinstance(owner, TosaOp):
        return constant
    if isinstance(owner, t.DimOp):
        shape = shape_of(owner.input)
        axis = owner.axis.value.data
        size = shape[axis] if shape is not None and 0 <= axis < len(shape) else None
        return (size,) if isinstance(size, int) else None
    if isinstance(owner, t.SliceShapeOp):
        held, first, count = known_sizes(owner.input), _number(owner.start), _number(owner.size)
        if held is None or first is None or count is None:
            return None
        return held[first : first + count]
    if not isinstance(owner, (t.ConcatShapeOp, *BINARY, *UNARY)):
        return None
    operands: list[tuple[int, ...]] = []
    for operand in owner.operands:
        sizes = known_sizes(operand)
        if sizes is None:
            return None
        operands.append(sizes)
    if isinstance(owner, t.ConcatShapeOp):
        return tuple(size for part in operands for size in part)
    if len({len(part) for part in operands}) > 1:
        return None
    function = BINARY.get(type(owner)) or UNARY[type(owner)]
    try:
        return tuple(function(*sizes) for sizes in zip(*operands, strict=True))
    except (ZeroDivisionError, ValueError):
        raise StepwellError(f"{owner.name} is undefined for {operands}") from None


def _number(value: SSAValue) -> int | None:
    """Return the integer of an inline CONST."""
    owner = value.owner
    if not isinstance(owner, ConstOp) or isinstance(owner.values, WeightAttr):
        return None
    return int(tensor_of_dense(owner.values, torch.int64).reshape(-1)[0])


def need(condition: bool, fact: str, *values: object) -> None:
    """Raise unless a condition holds; `values` are formatted into the fact only on failure."""
    if not condition:
        raise StepwellError(fact.format(*values) if values else fact)


def same(a: Dim, b: Dim) -> bool:
    """Whether two sizes may be equal."""
    return isinstance(a, Size) or isinstance(b, Size) or a == b


def counts(op: Operation, operands: int, results: int) -> None:
    """Check the number of operands and results of an operator with lists."""
    need(
        len(op.operands) == operands, f"there are {len(op.operands)} operands, expected {operands}"
    )
    need(len(op.results) == results, f"there are {len(op.results)} results, expected {results}")


def listed(attribute: Attribute, count: int, what: str) -> list[int]:
    """Return the numbers of an `array` attribute of a fixed length."""
    values = ints(attribute)
    need(len(values) == count, f"{what} has {len(values)} numbers, {count} are needed")
    return values


def broadcast(a: Shape, b: Shape) -> Shape:
    """Return the common shape of operands of one rank."""
    if a is None or b is None:
        return a or b
    need(len(a) == len(b), f"the operands have ranks {len(a)} and {len(b)}")
    result: list[Dim] = []
    for first, second in zip(a, b, strict=True):
        ok = same(first, second) or first == 1 or second == 1
        need(ok, f"sizes {first} and {second} do not broadcast")
        if first == 1:
            result.append(second)
        elif second == 1:
            result.append(first)
        else:
            result.append(second if isinstance(first, Size) else first)
    return tuple(result)


def _awaits_narrowing(op: Operation) -> bool:
    """Whether a later pass narrows an operator's 64-bit integers, or refuses them."""
    top = op
    while (parent := top.parent_op()) is not None:
        top = parent
    elements = [element(value.type) for value in (*op.operands, *op.results) if _is_tensor(value)]
    return isinstance(top, ModuleOp) and stopped_after(top) is not None and i64 in elements


def _is_tensor(value: SSAValue) -> bool:
    """Whether a value is a tensor and not a shape."""
    return isinstance(value.type, TensorType)

"""Conditions on operands that every rewrite into the xnnpack dialect checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.sym import ConstantOp
from stepwell.dialects.xnnpack.datatypes import MAX_RANK
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.dtypes import bf16, dtype_name, f16, f32, is_float
from stepwell.ir.identity_cache import once_each
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.signature import least_of, ranges_around
from stepwell.ir.sizes.size import UNKNOWN, Size, is_of_data
from stepwell.ir.sizes.size_ranges import interval
from stepwell.ir.traversal import reached
from stepwell.ir.types import Dim, IntType, dims, element

MAX_SIZE = 2**31 - 1
FLOATS = (f32, f16)
MOVED = (*FLOATS, bf16)
"""Elements that nodes move, which need no arithmetic."""


def not_for_xnnpack(op: SchemaOp, allowed: Sequence[Attribute] = FLOATS) -> Refusal | None:
    """Refuse unless all tensors have one of the allowed elements, rank at most 6, and elements."""
    return not_floats((*op.operands, *op.results), allowed)


def not_floats(values: Iterable[SSAValue], allowed: Sequence[Attribute] = FLOATS) -> Refusal | None:
    """Refuse unless all values are tensors of a float type and shape that XNNPACK supports."""
    seen = None
    for value in values:
        type_ = value.type
        if not isinstance(type_, TensorType):
            return Refusal("an operand is a number known only at run time")
        type_element = element(type_)
        if type_element not in allowed:
            return Refusal(
                f"XNNPACK computes in float32 or float16, not {dtype_name(type_element)}"
            )
        if seen is not None and type_element != seen:
            return Refusal(
                f"operands are {dtype_name(seen)} and {dtype_name(type_element)}; cast one of them"
            )
        seen = type_element
        refusal = _not_held(type_)
        if refusal is not None:
            return refusal
    return None


def not_held(value: SSAValue) -> Refusal | None:
    """Refuse a rank above 6, an empty dimension, or an unknown dimension."""
    return _not_held(value.type)


@once_each
def _not_held(type_: Attribute) -> Refusal | None:
    shape = dims(type_)
    if len(shape) > MAX_RANK:
        return Refusal(f"rank {len(shape)} is above XNNPACK's limit of {MAX_RANK}")
    if 0 in shape:
        return Refusal("a dimension is 0, which XNNPACK cannot hold")
    if UNKNOWN in shape:
        return Refusal("a dimension is not known, not even as an expression")
    largest = max((d for d in shape if isinstance(d, int)), default=0)
    if largest > MAX_SIZE:
        return Refusal(f"a dimension is {largest}, above XNNPACK's limit of {MAX_SIZE}")
    return None


def may_be_empty(near: Operation | SSAValue, sizes: Iterable[Dim]) -> Refusal | None:
    """Refuse a data-dependent size that may be 0, because a node of an empty tensor fails."""
    for size in sizes:
        if is_of_data(size) and least_of(size, near) < 1:
            return Refusal(
                f"the data-dependent size {size} may be 0, for which XNNPACK fails; a torch._check in the model excludes this"
            )
    return None


def may_cut_all(near: Operation, size: Dim) -> Refusal | None:
    """Refuse a slice of a dynamic axis that may keep no row; a text without ranges says nothing."""
    ranges = ranges_around(near)
    least = size if isinstance(size, int) else interval(size, ranges)[0]
    if (least is None and not ranges) or (least is not None and least > 0):
        return None
    return Refusal(f"{size} rows may be none, for which XNNPACK fails")


def not_static(value: SSAValue) -> Refusal | None:
    """Refuse a dimension that is not a number."""
    symbolic = [d for d in dims(value.type) if isinstance(d, Size)]
    return Refusal(f"dimension {symbolic[0]} is symbolic") if symbolic else None


def not_constant(value: SSAValue | None, what: str) -> Refusal | None:
    """Refuse an operand that is not a weight; an absent operand is accepted."""
    if value is None or weight_key(value) is not None:
        return None
    return Refusal(f"the {what} is computed at run time; XNNPACK packs constant ones only")


def stands_among_integers(op: SchemaOp) -> bool:
    """Whether an op computes a few floats from integers, and only integer ops read them.

    An example is the computation of positions relative to a query, which T5 sorts into buckets by
    their logarithm. A delegate that computes them returns them at once. The nodes that it could
    contain later would wait for ops outside and become a delegate of their own.
    """
    return (
        all(is_made_of_integers(value) for value in op.operands)
        and bool(op.results[0].uses)
        and _is_read_outside(op.results[0])
    )


def moves_among_integers(op: SchemaOp) -> bool:
    """Whether an op moves data that comes from integers or inputs and is read outside delegates.

    Outside a delegate a view costs nothing. Inside, it would need one more delegate, before the
    others. An image that is cut into patches is viewed, permuted, and viewed again. Views with
    several dynamic sizes after the last delegate stay outside, with the ops between them and the
    results.
    """
    given = op.operands[0]
    while _is_of_several_sizes(given.owner):
        given = given.owner.operands[0]
    readers = [use.operation for use in op.results[0].uses]
    is_view = given is not op.operands[0]
    if is_view and all(isinstance(r, ReturnOp) or _stays_outside(r) for r in readers):
        return True
    is_given = isinstance(given.owner, Block) or is_made_of_integers(given)
    return is_given and any(map(_stays_outside, readers))


def _is_of_several_sizes(op: Operation | Block) -> TypeGuard[SchemaOp]:
    """Whether an op is a view with several dynamic sizes that changes more than axes of size 1."""
    if not isinstance(op, SchemaOp) or op.name != "aten.view.default":
        return False
    shape, source = dims(op.results[0].type), dims(op.operands[0].type)
    is_open = sum(isinstance(size, Size) for size in shape) > 1
    return is_open and [d for d in shape if d != 1] != [d for d in source if d != 1]


def _picks_by_computed_indices(op: SchemaOp) -> bool:
    return op.name == "aten.index.Tensor" and any(
        index is not None and weight_key(index) is None for index in op.arg("indices")
    )


def _stays_outside(reader: Operation) -> bool:
    if not isinstance(reader, SchemaOp) or not isinstance(reader.results[0].type, TensorType):
        return False
    if _is_of_several_sizes(reader) or _picks_by_computed_indices(reader):
        return True
    if _chooses_by_computed(reader):
        return True
    return not is_float(element(reader.results[0].type)) or (
        reader.name in _SMALL and stands_among_integers(reader)
    )


def is_made_of_integers(value: SSAValue) -> bool:
    """Whether a value is constant, or computed from integers by ops that no delegate contains."""
    for count, part in enumerate(reached(value, _operands_of_small), 1):
        if _is_constant(part):
            continue
        if count > _FAR or not (_reads_integers(part) or _is_small(part)):
            return False
    return True


def _operands_of_small(value: SSAValue) -> Sequence[SSAValue]:
    if isinstance(value.owner, Block) or _is_constant(value) or _reads_integers(value):
        return ()
    return value.owner.operands


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, WeightOp | ConstantOp) or isinstance(value.type, IntType)


def _reads_integers(value: SSAValue) -> bool:
    owner = value.owner
    if not isinstance(owner, SchemaOp) or not owner.operands:
        return False
    source = owner.operands[0].type
    is_floats = isinstance(source, TensorType) and is_float(element(source))
    return owner.name in _LOOKS_UP or not is_floats


def _is_small(value: SSAValue) -> bool:
    return isinstance(value.owner, SchemaOp) and value.owner.name in _SMALL


def is_made_before(mask: SSAValue) -> bool:
    """Whether no delegate must have ended before a mask: integers and truth values are computed
    from inputs, constants, and few floats of integers.
    """

    def operands(value: SSAValue) -> Sequence[SSAValue]:
        return () if isinstance(value.owner, Block) else value.owner.operands

    return all(
        isinstance(value.owner, Block)
        or not (isinstance(value.type, TensorType) and is_float(element(value.type)))
        or is_made_of_integers(value)
        for value in reached(mask, operands)
    )


def _is_read_outside(value: SSAValue) -> bool:
    """Whether kernels read a value, directly or behind ops that no delegate contains."""

    def results(value: SSAValue) -> Iterable[SSAValue]:
        readers = [use.operation for use in value.uses]
        return [reader.results[0] for reader in readers if not _is_of_kernels(reader)]

    for count, part in enumerate(reached(value, results), 1):
        readers = [use.operation for use in part.uses]
        if count > _FAR or not all(
            isinstance(reader, SchemaOp) and (_is_of_kernels(reader) or reader.name in _SMALL)
            for reader in readers
        ):
            return False
    return True


def _is_of_kernels(reader: Operation) -> bool:
    """Whether an op computes no floats, or chooses them by computed truth values."""
    type_ = reader.results[0].type
    is_floats = isinstance(type_, TensorType) and is_float(element(type_))
    return not is_floats or (isinstance(reader, SchemaOp) and _chooses_by_computed(reader))


def _chooses_by_computed(reader: SchemaOp) -> bool:
    """Whether an op selects by truth values that are not constant."""
    at = _CHOOSES.get(reader.name)
    return at is not None and weight_key(reader.operands[at]) is None


_CHOOSES = {f"aten.where.{name}": 0 for name in ("self", "ScalarOther", "ScalarSelf")} | {
    f"aten.masked_fill.{name}": 1 for name in ("Scalar", "Tensor")
}
"""Ops that select by truth values, with the operand that holds those values."""

_FAR = 32
"""How many values are searched: there are few between integers and integers."""

_LOOKS_UP = frozenset({"aten.embedding.default"})
_SMALL = frozenset(
    f"aten.{name}"
    for name in (
        "log.default add.Tensor mul.Tensor div.Tensor sub.Tensor mul.Scalar add.Scalar div.Scalar "
        "sub.Scalar permute.default view.default unsqueeze.default abs.default neg.default "
        "floor.default ceil.default"
    ).split()
)

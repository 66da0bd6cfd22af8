"""Build the layout ops that rewrites write, each in the one canonical form that every target reads.

`aten.view.default` with explicit sizes, `aten.permute.default` with non-negative axes,
`aten.slice.Tensor` with every argument, `aten.cat.default`, `aten.expand.default`. Result types are
stated, not inferred: they follow from the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.shapes import TO_THE_END as TO_THE_END
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import dtype_name, is_float, torch_dtype
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.sizes.size import UNKNOWN, Size, settled
from stepwell.ir.types import Dim, FloatType, IntType, dims, element, tensor, with_element
from stepwell.ir.types import is_known as has_known_sizes


def axis(number: int, rank: int) -> int:
    """Return a dimension counted from the front."""
    return number + rank if number < 0 else number


def axes(numbers: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return dimensions counted from the front, in rising order."""
    return tuple(sorted(axis(number, rank) for number in numbers))


def overflows(number: float, attribute: Attribute) -> Refusal | None:
    """Refuse a finite number that becomes infinite as a constant of a float type."""
    if abs(number) < inf and abs(number) > torch.finfo(torch_dtype(attribute)).max:
        return Refusal(f"{number!r} does not fit {dtype_name(attribute)}")
    return None


def promotes(number: object, attribute: Attribute) -> Refusal | None:
    """Refuse a float number for an integer tensor, whose type it would promote to float."""
    is_late = isinstance(number, SSAValue) and isinstance(number.type, FloatType)
    if (is_late or isinstance(number, float)) and not is_float(attribute):
        said = "of run time" if is_late else repr(number)
        return Refusal(f"the float {said} would promote {dtype_name(attribute)} to a float type")
    return None


def static_dims(value: SSAValue) -> tuple[int, ...] | None:
    """Return the dimensions of a tensor if all are static."""
    known = tuple(d for d in dims(value.type) if isinstance(d, int))
    return known if len(known) == len(dims(value.type)) else None


def is_known(shape: Sequence[Dim]) -> bool:
    """Whether every dimension is a number or an expression (a bare `?` is unknown)."""
    return not any(d == UNKNOWN for d in shape if not isinstance(d, int))


def is_open_once(shape: Sequence[Dim]) -> bool:
    """Whether XNNPACK can infer a shape, that is, at most one size is symbolic."""
    return sum(isinstance(size, Size) for size in shape) <= 1


def same_type(one: SSAValue, other: SSAValue) -> bool:
    """Whether two values provably have the same shape and element type."""
    return one.type == other.type and has_known_sizes(one.type)


def emit(rw: Rewriter, op: SchemaOp) -> SSAValue:
    """Insert an op with one result and return that result."""
    return rw.insert(op).results[0]


def emit_as(rw: Rewriter, op: SchemaOp, like: SSAValue) -> SSAValue:
    """Insert the op that replaces a value, and keep the value's name."""
    op.results[0].name_hint = like.name_hint
    return rw.insert(op).results[0]


def cannot_be_viewed_as(value: SSAValue, shape: Sequence[Dim]) -> Refusal | None:
    """Refuse a view with several sizes that the operand lacks: only one can be written as -1."""
    if not is_known(shape):
        return Refusal("the shape is not known, not even as an expression")
    value_dims = dims(value.type)
    loose = [d for d in shape if isinstance(d, Size) and d not in value_dims]
    if len(loose) > 1:
        return Refusal("the sizes " + ", ".join(map(str, loose)) + " are computed at run time")
    if 0 in shape and any(isinstance(d, Size) for d in shape):
        return Refusal("a view of an empty tensor cannot infer a size written as -1")
    return None


def view(rw: Rewriter, value: SSAValue, shape: Sequence[Dim]) -> SSAValue:
    """Build `aten.view.default`; the first symbolic size is -1, others come from the operand."""
    if tuple(shape) == dims(value.type) and is_known(shape):
        return value
    return emit(rw, view_op(rw, value, shape))


def view_op(rw: Rewriter, value: SSAValue, shape: Sequence[Dim]) -> SchemaOp:
    """Build the view as an op that is not inserted yet, unlike the size queries for its sizes."""
    value_dims = dims(value.type)
    symbolic = [d for d in shape if isinstance(d, Size)]
    loose = [d for d in symbolic if d not in value_dims]
    free = (loose or symbolic or [None])[0]
    sizes: list[int | SSAValue] = []
    for dim in shape:
        if isinstance(dim, int):
            sizes.append(dim)
        elif dim == free:
            sizes.append(-1)
            free = None
        else:
            sizes.append(size_of(rw, value, value_dims.index(dim)))
    return aten.ViewDefault.make(value, sizes, result_types=[tensor(shape, element(value.type))])


def size_of(rw: Rewriter, value: SSAValue, at: int) -> SSAValue:
    """Return the run-time size of a symbolic dimension."""
    expression = dims(value.type)[at]
    types: list[Attribute] = [IntType(str(expression))]
    return emit(rw, aten.SymSizeInt.make(value, at, result_types=types))


def kept(shape: Sequence[Dim], over: Sequence[int]) -> tuple[Dim, ...]:
    """Return the shape of a reduction that keeps the reduced axes with size 1."""
    return tuple(1 if at in over else size for at, size in enumerate(shape))


def reduced(rw: Rewriter, cls: type[SchemaOp], value: SSAValue, over: Sequence[int]) -> SSAValue:
    """Insert a reduction that keeps the reduced axes; axes are counted from the front."""
    types = [tensor(kept(dims(value.type), over), element(value.type))]
    return emit(rw, cls.make(value, list(over), True, result_types=types))


def cast(rw: Rewriter, value: SSAValue, attribute: Attribute) -> SSAValue:
    """Build `aten._to_copy.default` to an element type, unless the value has that type already."""
    if element(value.type) == attribute:
        return value
    types = [with_element(value.type, attribute)]
    return emit(rw, aten._ToCopyDefault.make(value, dtype=attribute, result_types=types))


def permute(rw: Rewriter, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """Build `aten.permute.default`, or return the value itself if the permutation moves nothing."""
    if list(order) == list(range(len(order))):
        return value
    return emit(rw, permute_op(value, order))


def permute_op(value: SSAValue, order: Sequence[int]) -> SchemaOp:
    """Build the permutation op without inserting it."""
    value_dims = dims(value.type)
    result = tensor([value_dims[i] for i in order], element(value.type))
    return aten.PermuteDefault.make(value, list(order), result_types=[result])


def slice_op(value: SSAValue, at: int, start: int, stop: int, length: Dim) -> SchemaOp:
    """Build `value[..., start:stop, ...]` on axis `at`; `length` is `stop - start`."""
    shape = list(dims(value.type))
    shape[at] = length
    result = tensor(shape, element(value.type))
    return aten.SliceTensor.make(value, at, start, stop, 1, result_types=[result])


def slice_axis(rw: Rewriter, value: SSAValue, at: int, start: int, stop: int) -> SSAValue:
    """Build a slice with static bounds; return the value itself if the slice is all of it."""
    if start == 0 and dims(value.type)[at] == stop:
        return value
    return emit(rw, slice_op(value, at, start, stop, stop - start))


def cat(rw: Rewriter, values: Sequence[SSAValue], at: int) -> SSAValue:
    """Build `aten.cat.default` on axis `at`."""
    if len(values) == 1:
        return values[0]
    shape = list(dims(values[0].type))
    shape[at] = settled(sum((dims(value.type)[at] for value in values), Size.of(0)))
    result = tensor(shape, element(values[0].type))
    return emit(rw, aten.CatDefault.make(list(values), at, result_types=[result]))


def expand(rw: Rewriter, value: SSAValue, shape: Sequence[Dim]) -> SSAValue:
    """Build `aten.expand.default`, or return the value itself if it has the shape already.

    An axis of symbolic size is unchanged.
    """
    if tuple(shape) == dims(value.type):
        return value
    result = tensor(shape, element(value.type))
    sizes = [size if isinstance(size, int) else -1 for size in shape]
    return emit(rw, aten.ExpandDefault.make(value, sizes, result_types=[result]))


def element_count(shape: Sequence[int]) -> int:
    """Return the number of elements of a static shape."""
    return prod(shape)


def is_depthwise(weight: Sequence[object], groups: int) -> bool:
    """Whether each of several groups has one input channel; the weight is `[O, C / groups, …]`.

    A convolution of a one-channel image is not depthwise: it has only one group.
    """
    return groups > 1 and weight[1] == 1

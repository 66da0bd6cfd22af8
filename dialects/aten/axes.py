"""The axis maps of ATen operators: which axis of which operand each axis of a result corresponds
to.

Dynamic sizes follow the tensors among the operands; maps do not cover them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.forms import (
    along_rows,
    broadcast,
    concatenated,
    elementwise,
    mapped,
    moved,
    permuted,
    reduced,
    reshaped,
)
from stepwell.ir.axes.maps import All, Along, AxisMap, AxisRule, Link, Links, Once, kept, maps
from stepwell.ir.dtypes import i32, i64
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import Dim, dims, element

_F = TypeVar("_F", bound=AxisRule)


def _maps(*names: str) -> Callable[[_F], _F]:
    return maps(*(f"aten.{name}" for name in names))


def _shape(value: SSAValue) -> tuple[Dim, ...]:
    return dims(value.type)


def _at(number: int, rank: int) -> int:
    return number + rank if number < 0 else number


def _tensors(op: SchemaOp) -> int:
    """Return the number of operands that are tensors; they precede all dynamic numbers."""
    return sum(isinstance(value.type, TensorType) for value in op.operands)


@_maps(
    # Data movements and casts that keep the shape; comparisons and choices without PyTorch's tag.
    "alias.default", "contiguous.default", "copy.default", "detach.default", "expand.default",
    "alias_copy.default", "detach_copy.default", "expand_copy.default", "expand_as.default",
    "broadcast_to.default",
    "lift_fresh_copy.default", "_to_copy.default", "to.dtype", "dropout.default",
    "alpha_dropout.default", "feature_dropout.default", "feature_alpha_dropout.default",
    "native_dropout.default",
    "greater.Scalar", "greater.Tensor", "greater_equal.Scalar", "greater_equal.Tensor",
    "isclose.default", "less.Scalar", "less.Tensor", "less_equal.Scalar", "less_equal.Tensor",
    "masked_fill.Tensor", "not_equal.Scalar", "not_equal.Tensor", "where.Scalar",
    "where.ScalarOther", "where.ScalarSelf",
)  # fmt: skip
def elementwise_axes(op: SchemaOp, result: int) -> AxisMap | None:
    """Return the map of an elementwise op; `registry.define` registers it by PyTorch's tag."""
    return elementwise(op, _tensors(op))


maps(*(f"quantized_decomposed.{kind}_per_tensor.default" for kind in ("quantize", "dequantize")))(
    elementwise_axes
)


@_maps("view.default", "reshape.default", "_unsafe_view.default", "flatten.using_ints",
      "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "unflatten.int",
      "_reshape_copy.default", "view_copy.default")  # fmt: skip
def _reshape(op: SchemaOp, result: int) -> AxisMap | None:
    return mapped(op, reshaped(_shape(op.operands[0]), _shape(op.results[0])))


@_maps("prelu.default")
def _prelu(op: SchemaOp, result: int) -> AxisMap | None:
    """Map PReLU's result axes to its operands' axes; there is one slope, or one per channel."""
    shape, slopes = _shape(op.operands[0]), _shape(op.operands[1])
    along = 1 if len(shape) > 1 else 0
    reads = tuple(Once() if size == 1 or not shape else Along(along) for size in slopes)
    return mapped(op, tuple(map(Along, range(len(shape)))), reads)


@_maps("permute.default", "permute_copy.default")
def _permute(op: SchemaOp, result: int) -> AxisMap | None:
    rank = len(_shape(op.operands[0]))
    return mapped(op, permuted([_at(number, rank) for number in op.arg("dims")]))


@_maps("t.default", "t_copy.default", "numpy_T.default")
def _turn(op: SchemaOp, result: int) -> AxisMap | None:
    return mapped(op, permuted(range(len(_shape(op.operands[0])))[::-1]))


@_maps("movedim.int", "movedim.intlist", "moveaxis.int", "moveaxis.intlist")
def _move(op: SchemaOp, result: int) -> AxisMap | None:
    rank = len(_shape(op.operands[0]))
    both = [op.arg(name) for name in ("source", "destination")]
    source, destination = (
        [_at(a, rank) for a in (b if isinstance(b, list) else [b])] for b in both
    )
    rest = iter(axis for axis in range(rank) if axis not in source)
    moves = dict(zip(destination, source, strict=True))
    return mapped(op, permuted([moves[a] if a in moves else next(rest) for a in range(rank)]))


@_maps("transpose.int", "transpose_copy.int", "swapaxes.default", "swapdims.default",
       "mT.default", "adjoint.default")  # fmt: skip
def _transpose(op: SchemaOp, result: int) -> AxisMap | None:
    order = list(range(len(_shape(op.operands[0]))))
    names = [argument.name for argument in op.SCHEMA.arguments[1:]]
    one, other = (_at(op.arg(name), len(order)) for name in names) if names else (-2, -1)
    if order:
        order[one], order[other] = order[other], order[one]
    return mapped(op, permuted(order))


@_maps("slice.Tensor", "slice_copy.Tensor", "narrow.default")
def _slice(op: SchemaOp, result: int) -> AxisMap | None:
    shape = _shape(op.operands[0])
    at = _at(op.arg("dim"), len(shape))
    step = 1 if op.name == "aten.narrow.default" else op.arg("step")
    link = _sliced(at, op.arg("start"), step, shape[at])
    return mapped(op, tuple(link if axis == at else Along(axis) for axis in range(len(shape))))


def _sliced(axis: int, start: object, step: object, size: Dim) -> Link:
    """Return the link of a slice from `start` on; a negative start counts from the end, and starts
    are clamped to the axis.
    """
    start = 0 if start is None else start
    if not isinstance(start, int) or not isinstance(step, int):
        return All(axis)
    if isinstance(size, int):
        return Along(axis, step, min(max(_at(start, size), 0), size))
    return Along(axis, step, start) if start >= 0 else All(axis)


@_maps("select.int", "select_copy.int")
def _select(op: SchemaOp, result: int) -> AxisMap | None:
    return mapped(op, _without(len(_shape(op.operands[0])), op.arg("dim")))


def _without(rank: int, number: int) -> Links:
    return reduced(rank, (_at(number, rank),), keep=False)


@_maps("cat.default")
def _cat(op: SchemaOp, result: int) -> AxisMap | None:
    shapes = [_shape(value) for value in op.operands]
    if len({len(shape) for shape in shapes}) > 1:
        return None  # Empty tensors of rank 1, which torch ignores.
    return mapped(op, *concatenated(shapes, _at(op.arg("dim"), len(shapes[0]))))


@_maps("stack.default")
def _stack(op: SchemaOp, result: int) -> AxisMap | None:
    rank = len(_shape(op.results[0]))
    at = _at(op.arg("dim"), rank)
    links = tuple(Along(axis) for axis in range(rank) if axis != at)
    return mapped(op, *(links for _ in op.operands))


@_maps("split.Tensor", "split_with_sizes.default", "unsafe_split.Tensor", "chunk.default")
def _split(op: SchemaOp, result: int) -> AxisMap | None:
    shape = _shape(op.operands[0])
    at = _at(op.arg("dim"), len(shape))
    before = [_shape(other)[at] for other in op.results[:result]]
    known = [size for size in before if isinstance(size, int)]
    offset = [0] * len(shape)
    offset[at] = sum(known)
    if len(known) < len(before):
        return None
    return mapped(op, moved(offset), result=result)


@_maps("unbind.int")
def _unbind(op: SchemaOp, result: int) -> AxisMap | None:
    return mapped(op, _without(len(_shape(op.operands[0])), op.arg("dim")), result=result)


@_maps("flip.default")
def _flip(op: SchemaOp, result: int) -> AxisMap | None:
    shape = _shape(op.operands[0])
    turned = {_at(number, len(shape)) for number in op.arg("dims")}
    return mapped(op, tuple(_flipped(a, shape[a], a in turned) for a in range(len(shape))))


def _flipped(axis: int, size: Dim, is_turned: bool) -> Link:
    if not is_turned:
        return Along(axis)
    return Along(axis, -1, size - 1) if isinstance(size, int) else All(axis)


@_maps("roll.default")
def _roll(op: SchemaOp, result: int) -> AxisMap | None:
    rank = len(_shape(op.operands[0]))
    turned = [_at(number, rank) for number in op.arg("dims") or ()]
    return mapped(op, along_rows(rank, turned)) if turned else None


@_maps("constant_pad_nd.default")
def _pad(op: SchemaOp, result: int) -> AxisMap | None:
    rank, widths = len(_shape(op.operands[0])), op.arg("pad")
    if not all(isinstance(width, int) for width in widths):
        return None
    offsets = [0] * rank
    for index, width in enumerate(cast(Sequence[int], widths)[::2]):
        offsets[rank - 1 - index] = -width
    return mapped(op, moved(offsets))


@_maps("linear.default")
def _linear(op: SchemaOp, result: int) -> AxisMap | None:
    last = len(_shape(op.operands[0])) - 1
    if len(_shape(op.operands[1])) != 2:
        return None
    return mapped(op, (*kept(last), All(last)), (Along(last), All()), (Along(last),))


@_maps("mm.default", "bmm.default")
def _product(op: SchemaOp, result: int) -> AxisMap | None:
    rank = len(_shape(op.operands[0]))
    batch, rows, columns = kept(rank - 2), Along(rank - 2), Along(rank - 1)
    return mapped(op, (*batch, rows, All()), (*batch, All(), columns))


@_maps("matmul.default")
def _matmul(op: SchemaOp, result: int) -> AxisMap | None:
    left, right, made = (_shape(value) for value in (*op.operands, op.results[0]))
    if len(left) < 2 or len(right) < 2:
        return None
    batch, rank = made[:-2], len(made)
    return mapped(
        op,
        (*broadcast(left[:-2], batch), Along(rank - 2), All()),
        (*broadcast(right[:-2], batch), All(), Along(rank - 1)),
    )


@_maps("addmm.default")
def _addmm(op: SchemaOp, result: int) -> AxisMap | None:
    added = broadcast(_shape(op.operands[0]), _shape(op.results[0]))
    return mapped(op, added, (Along(0), All()), (All(), Along(1)))


@_maps("convolution.default", "conv1d.default", "conv2d.default", "conv3d.default")
def _convolution(op: SchemaOp, result: int) -> AxisMap | None:
    image, weight = _shape(op.operands[0]), _shape(op.operands[1])
    spatial = len(weight) - 2
    if len(image) != len(weight) or (
        op.name == "aten.convolution.default" and op.arg("transposed")
    ):
        return None
    numbers = [op.arg(name) for name in ("stride", "padding", "dilation")]
    if any(isinstance(number, Size) for number in numbers):
        return None
    stride, padding, dilation = (list(n) * spatial if len(n) == 1 else n for n in numbers)
    windows: list[Link] = []
    for index in range(spatial):
        size = weight[2 + index]
        if not isinstance(size, int):
            return None
        reach = (size - 1) * dilation[index] + 1
        windows.append(Along(2 + index, stride[index], -padding[index], reach))
    each = op.arg("groups") == image[1] == weight[0]
    channels = Along(1) if each else All(1)
    filter = (Along(1), *(All() for _ in weight[1:]))
    return mapped(op, (Along(0), channels, *windows), filter, (Along(1),))


@_maps("embedding.default")
def _embedding(op: SchemaOp, result: int) -> AxisMap | None:
    rank = len(_shape(op.operands[1]))
    return mapped(op, (All(), Along(rank)), kept(rank))


@_maps("index_select.default")
def _index_select(op: SchemaOp, result: int) -> AxisMap | None:
    rank = len(_shape(op.operands[0]))
    at = _at(op.arg("dim"), rank)
    return mapped(op, along_rows(rank, (at,)), (Along(at),))


@_maps("index.Tensor")
def _index(op: SchemaOp, result: int) -> AxisMap | None:
    """Return the map of an indexed tensor: the axes of the indices replace adjacent indexed axes,
    or else come first.
    """
    indices = op.arg("indices")
    at = [axis for axis, index in enumerate(indices) if index is not None]
    if not at or any(element(indices[axis].type) not in (i32, i64) for axis in at):
        return None
    shapes = [_shape(indices[axis]) for axis in at]
    wide = max(map(len, shapes))
    first = at[0] if at == list(range(at[0], at[-1] + 1)) else 0
    common = _shape(op.results[0])[first : first + wide]
    others = [axis for axis in range(len(_shape(op.operands[0]))) if axis not in at]
    positions = {axis: n if n < first else n + wide for n, axis in enumerate(others)}
    links = tuple(
        Along(positions[axis]) if axis in positions else All()
        for axis in range(len(others) + len(at))
    )
    places = [tuple(_shifted(link, first) for link in broadcast(s, common)) for s in shapes]
    return mapped(op, links, *places)


def _shifted(link: Link, by: int) -> Link:
    assert isinstance(link, Along | Once) and link.axis is not None
    return Along(link.axis + by) if isinstance(link, Along) else Once(link.axis + by)


@_maps("gather.default")
def _gather(op: SchemaOp, result: int) -> AxisMap | None:
    rank = len(_shape(op.operands[0]))
    return mapped(op, along_rows(rank, (_at(op.arg("dim"), rank),)), kept(rank))


@_maps("cumsum.default")
def _along_axis(op: SchemaOp, result: int) -> AxisMap | None:
    rank = len(_shape(op.operands[0]))
    return mapped(op, along_rows(rank, (_at(op.arg("dim"), rank),)))


@_maps("diff.default", "slice_scatter.default", "scatter.value", "scatter.src",
      "scatter_add.default")  # fmt: skip
def _mixed(op: SchemaOp, result: int) -> AxisMap | None:
    """Return the map of ops that combine elements along `dim`, along which their tensors may
    differ in size.
    """
    rank = len(_shape(op.operands[0]))
    rows = along_rows(rank, (_at(op.arg("dim"), rank),))
    return mapped(op, *[rows] * _tensors(op))


@_maps("select_scatter.default")
def _select_scatter(op: SchemaOp, result: int) -> AxisMap | None:
    rank = len(_shape(op.operands[0]))
    at = _at(op.arg("dim"), rank)
    return mapped(
        op, along_rows(rank, (at,)), tuple(Along(axis) for axis in range(rank) if axis != at)
    )


@_maps("tril.default", "triu.default")
def _triangle(op: SchemaOp, result: int) -> AxisMap | None:
    rank = len(_shape(op.operands[0]))
    return mapped(op, along_rows(rank, (rank - 2, rank - 1)))


@_maps("one_hot.default")
def _one_hot(op: SchemaOp, result: int) -> AxisMap | None:
    return mapped(op, kept(len(_shape(op.operands[0]))))


@_maps("mean.dim", "sum.dim_IntList", "logsumexp.default", "amax.default", "amin.default",
       "argmax.default", "any.dim", "all.dim", "any.dims", "all.dims", "prod.dim_int")  # fmt: skip
def _reduction(op: SchemaOp, result: int) -> AxisMap | None:
    rank, arg = len(_shape(op.operands[0])), op.arg("dim")
    numbers = [arg] if isinstance(arg, int) else arg or range(rank)
    return mapped(op, reduced(rank, (_at(n, rank) for n in numbers), bool(op.arg("keepdim"))))


def normalization_axes(op: SchemaOp, result: int) -> AxisMap | None:
    """Return the map of a normalization of rows: along `dim`, or along the trailing axes."""
    if result:
        return None
    if "dim" in op.SCHEMA.by_name:
        return _along_axis(op, result)
    rank = len(_shape(op.operands[0]))
    mixed = range(rank - len(op.arg("normalized_shape")), rank)
    parameters: Links = tuple(Along(axis) for axis in mixed)
    return mapped(op, along_rows(rank, mixed), *(parameters for _ in op.operands[1:]))


_TRAINS = ("training", "use_input_stats")


@_maps("batch_norm.default", "_native_batch_norm_legit_no_training.default",
       "native_batch_norm.default", "_batch_norm_no_update.default",
       "instance_norm.default")  # fmt: skip
def _batch_norm(op: SchemaOp, result: int) -> AxisMap | None:
    if result or any(op.arg(name) for name in _TRAINS if name in op.SCHEMA.by_name):
        return None
    channels: Links = (Along(1),)
    image = kept(len(_shape(op.operands[0])))
    return mapped(op, image, *(channels for _ in op.operands[1:]))


@_maps("max_pool2d.default", "avg_pool2d.default")
def _pool(op: SchemaOp, result: int) -> AxisMap | None:
    shape = _shape(op.operands[0])
    rank, kernel = len(shape), _pair(op.arg("kernel_size"))
    stride, padding = _pair(op.arg("stride")) or kernel, _pair(op.arg("padding"))
    dilation = _pair(op.arg("dilation")) if op.name == "aten.max_pool2d.default" else [1, 1]
    windows = [
        Along(rank - 2 + i, stride[i], -padding[i], (kernel[i] - 1) * dilation[i] + 1)
        for i in range(2)
    ]
    return mapped(op, (*kept(rank - 2), *windows))


def _pair(numbers: Sequence[int]) -> list[int]:
    return list(numbers) * 2 if len(numbers) == 1 else list(numbers)

"""Shape rules of data movement, reductions, gathers, resizing and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import BlockScaledType, ShapeType
from stepwell.dialects.tosa.axes import REDUCTIONS
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.codes import i48
from stepwell.dialects.tosa.meaning.values import element_of, ints
from stepwell.dialects.tosa.shapes.rules import (
    Expected,
    Shape,
    need,
    ranked,
    same,
    shape_of,
    shaped,
    sizes_of,
)
from stepwell.dialects.tosa.shapes.zero_points import constant_number
from stepwell.ir.dtypes import i8, i16, i32, i64
from stepwell.ir.sizes.size import UNKNOWN, Size
from stepwell.ir.types import Dim


def _axis(op: TosaOp, shape: Shape) -> int:
    axis = op.properties["axis"].value.data  # pyright: ignore
    need(axis >= 0, f"axis {axis} is negative")
    if shape is not None:
        need(bool(shape), "a scalar has no axes")
        need(axis < len(shape), f"axis {axis} is beyond rank {len(shape)}")
    return axis


@shaped(*REDUCTIONS)
def _reduce(op: TosaOp) -> Sequence[Expected]:
    shape = shape_of(op.operands[0])
    axis = _axis(op, shape)
    if shape is not None:
        shape = (*shape[:axis], 1, *shape[axis + 1 :])
    return [(shape, element_of(op.operands[0]))]


@shaped(t.ArgMaxOp)
def _argmax(op: t.ArgMaxOp) -> Sequence[Expected]:
    shape = shape_of(op.input)
    axis = _axis(op, shape)
    need(element_of(op.output) in (i32, i64), "the result is not an index")
    return [(None if shape is None else (*shape[:axis], *shape[axis + 1 :]), None)]


@shaped(t.ReverseOp)
def _reverse(op: t.ReverseOp) -> Sequence[Expected]:
    shape = shape_of(op.input)
    _axis(op, shape)
    return [(shape, element_of(op.input))]


@shaped(t.TransposeOp)
def _transpose(op: t.TransposeOp) -> Sequence[Expected]:
    shape, perms = shape_of(op.input), ints(op.perms)
    if shape is None:
        return [(None, element_of(op.input))]
    need(sorted(perms) == list(range(len(shape))), f"{perms} is not an order of {len(shape)} axes")
    return [(tuple(shape[axis] for axis in perms), element_of(op.input))]


@shaped(t.ConcatOp)
def _concat(op: t.ConcatOp) -> Sequence[Expected]:
    need(bool(op.operands), "there are no operands")
    first = shape_of(op.operands[0])
    axis = _axis(op, first)
    total: Dim = 0
    for value in op.operands:
        shape = shape_of(value)
        need(element_of(value) == element_of(op.operands[0]), "the element types differ")
        if shape is None or first is None:
            return [(None, element_of(value))]
        need(len(shape) == len(first), f"the ranks {len(first)} and {len(shape)} differ")
        for index, (a, b) in enumerate(zip(first, shape, strict=True)):
            need(index == axis or same(a, b), f"the sizes {a} and {b} of axis {index} differ")
        size = shape[axis]
        total = UNKNOWN if isinstance(total, Size) or isinstance(size, Size) else total + size
    assert first is not None
    return [((*first[:axis], total, *first[axis + 1 :]), element_of(op.operands[0]))]


@shaped(t.ReshapeOp)
def _reshape(op: t.ReshapeOp) -> Sequence[Expected]:
    sizes = sizes_of(op.shape, "the shape")
    assert isinstance(op.shape.type, ShapeType)
    unknown = (UNKNOWN,) * op.shape.type.rank.data
    return [(reshaped(shape_of(op.input1), sizes) or unknown, element_of(op.input1))]


def reshaped(shape: Shape, sizes: tuple[int, ...] | None) -> Shape:
    """Return the shape of a reshape; TOSA does not allow -1."""
    if sizes is None:
        return None
    need(
        all(size >= 1 or size == -1 for size in sizes), f"sizes {list(sizes)} are not all positive"
    )
    if shape is not None and all(isinstance(d, int) for d in shape):
        held = prod(d for d in shape if isinstance(d, int))
        need(prod(sizes) == held, f"{held} elements do not fill the shape {list(sizes)}")
    return sizes


@shaped(t.SliceOp)
def _slice(op: t.SliceOp) -> Sequence[Expected]:
    shape = shape_of(op.input1)
    rank = len(shape) if shape is not None else None
    need(rank != 0, "a scalar has no slices")
    start, size = sizes_of(op.start, "the start", rank), sizes_of(op.size, "the size", rank)
    if size is None:
        return [(None, element_of(op.input1))]
    need(all(n > 0 for n in size), f"size {list(size)} is not all positive")
    if start is not None:
        need(all(n >= 0 for n in start), f"start {list(start)} has a negative element")
        for first, length, held in zip(start, size, shape or (), strict=False):
            fits = isinstance(held, Size) or first + length <= held
            need(fits, f"elements {first} to {first + length} are not within {held}")
    return [(size, element_of(op.input1))]


@shaped(t.TileOp)
def _tile(op: t.TileOp) -> Sequence[Expected]:
    shape = shape_of(op.input1)
    multiples = sizes_of(op.multiples, "the multiples", None if shape is None else len(shape))
    if shape is None or multiples is None:
        return [(None, element_of(op.input1))]
    need(all(n > 0 for n in multiples), f"multiples {list(multiples)} are not all positive")
    tiled = tuple(
        d if isinstance(d, Size) else d * n for d, n in zip(shape, multiples, strict=True)
    )
    return [(tiled, element_of(op.input1))]


@shaped(t.PadOp)
def _pad(op: t.PadOp) -> Sequence[Expected]:
    shape = shape_of(op.input1)
    need(shape != (), "a scalar has no padding")
    padding = sizes_of(op.padding, "the padding", None if shape is None else 2 * len(shape))
    element = element_of(op.input1)
    need(element_of(op.pad_const) == element, "the padding value has another element type")
    (size,) = ranked(op.pad_const, 1, "the padding value")
    need(isinstance(size, Size) or size == 1, f"there are {size} padding values, not one")
    if shape is None or padding is None:
        return [(None, element)]
    need(all(n >= 0 for n in padding), f"padding {list(padding)} has a negative element")
    padded = tuple(
        d if isinstance(d, Size) else d + padding[2 * i] + padding[2 * i + 1]
        for i, d in enumerate(shape)
    )
    return [(padded, element)]


def _indexed(indices: SSAValue, batch: Dim, what: str) -> Dim:
    shape = ranked(indices, 2, "the indices")
    need(same(shape[0], batch), f"{what}: the batches {batch} and {shape[0]} differ")
    need(element_of(indices) in (i32, i64), "the indices are not i32 or i64")
    return shape[1]


@shaped(t.GatherOp)
def _gather(op: t.GatherOp) -> Sequence[Expected]:
    batch, _, channels = ranked(op.values, 3, "the values")
    return [((batch, _indexed(op.indices, batch, "gather"), channels), element_of(op.values))]


@shaped(t.RowGatherOp)
def _row_gather(op: t.RowGatherOp) -> Sequence[Expected]:
    batch, _, channels = ranked(op.values, 3, "the values")
    wanted = _indexed(op.indices, batch, "row_gather")
    return [((batch, repeated(wanted, op.row_count), channels), element_of(op.values))]


def repeated(wanted: Dim, row_count: SSAValue) -> Dim:
    """Return the number of gathered rows, `row_count` for each index."""
    (size,) = ranked(row_count, 1, "the row count")
    need(isinstance(size, Size) or size == 1, f"there are {size} row counts, not one")
    count = constant_number(row_count)
    if count is None or isinstance(wanted, Size):
        return UNKNOWN
    need(count > 0, f"the row count {count:g} is not positive")
    return wanted * int(count)


@shaped(t.ScatterOp)
def _scatter(op: t.ScatterOp) -> Sequence[Expected]:
    batch, rows, channels = ranked(op.values_in, 3, "the values")
    wanted = _indexed(op.indices, batch, "scatter")
    source = ranked(op.input, 3, "the input")
    due = (batch, wanted, channels)
    fits = all(same(a, b) for a, b in zip(source, due, strict=True))
    need(fits, f"the input is {list(source)}, expected {list(due)}")
    need(element_of(op.input) == element_of(op.values_in), "the element types differ")
    both = isinstance(rows, int) and isinstance(wanted, int)
    need(not both or rows >= wanted, f"{wanted} rows do not fit into {rows}")  # pyright: ignore
    return [((batch, rows, channels), element_of(op.values_in))]


@shaped(t.ResizeOp)
def _resize(op: t.ResizeOp) -> Sequence[Expected]:
    n, height, width, channels = ranked(op.input, 4, "the input")
    scale = sizes_of(op.scale, "the scale", 4)
    offset = sizes_of(op.offset, "the offset", 2)
    border = sizes_of(op.border, "the border", 2)
    if scale is None or offset is None or border is None:
        return [((n, UNKNOWN, UNKNOWN, channels), None)]
    need(min(scale) > 0, f"scale {list(scale)} is not all positive")
    need(max(scale[0], scale[2]) <= 1 << 11, f"scale {list(scale)} is too large")
    dims: list[Dim] = []
    for axis, held in enumerate((height, width)):
        up, down = scale[2 * axis], scale[2 * axis + 1]
        need(down < 16 * up, f"scale {up}/{down} is below 1/16")
        need(-up <= offset[axis] < 16 * up, f"offset {offset[axis]} is outside [{-up}, {16 * up})")
        need(-16 * up <= border[axis] < up, f"border {border[axis]} is outside [{-16 * up}, {up})")
        if isinstance(held, Size):
            dims.append(UNKNOWN)
            continue
        need(held <= 16384, f"the image has {held} rows or columns, more than 16384")
        span = (held - 1) * up - offset[axis] + border[axis]
        need(span % down == 0, "the parameters imply no integer size")
        need(span // down + 1 > 0, "the result would be empty")
        dims.append(span // down + 1)
    source, target = element_of(op.input), element_of(op.output)
    bilinear = op.mode.data == "BILINEAR"
    need(
        not (bilinear and isinstance(source, BlockScaledType)),
        "block-scaled values have no bilinear resize",
    )
    wider: dict[Attribute, Attribute] = {i8: i32, i16: i48}
    due = wider.get(source, source) if bilinear else source
    need(target == due, "{} resize of {} gives {}, not {}", op.mode.data, source, due, target)
    return [((n, *dims, channels), None)]


@shaped(t.FFT2dOp)
def _fft2d(op: t.FFT2dOp) -> Sequence[Expected]:
    real, imaginary = ranked(op.input_real, 3, "the input"), ranked(op.input_imag, 3, "the input")
    need(real == imaginary, "the real and imaginary parts differ in shape")
    _powers_of_two(real)
    return [(real, element_of(op.input_real))] * 2


@shaped(t.RFFT2dOp)
def _rfft2d(op: t.RFFT2dOp) -> Sequence[Expected]:
    shape = ranked(op.input_real, 3, "the input")
    _powers_of_two(shape)
    last = shape[2] // 2 + 1 if isinstance(shape[2], int) else UNKNOWN
    return [((*shape[:2], last), element_of(op.input_real))] * 2


def _powers_of_two(shape: Sequence[Dim]) -> None:
    for size in shape[1:]:
        need(isinstance(size, Size) or size & (size - 1) == 0, f"{size} is not a power of two")

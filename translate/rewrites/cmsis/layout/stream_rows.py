"""Tiling: run a sequence of image ops row by row, with the same kernels called on runs of rows.

The kernels do not change. CMSIS-NN takes the height of a result and the padding above it as
arguments, and reads cells past the last row as padding. A run of rows of an NHWC tensor is a tensor
over a part of its bytes (`cmsis.part`), the tiles of a result are written at their final place
(`cmsis.join`), and rows that the next tile reads again are copied (`cmsis.copy`).

    %y = conv(%x) : 6 rows → 6 rows, kernel 3, padding 1          in tiles of 3 rows:

    %x0 = cmsis.part(%x) {axis = 1, start = 0} : 4 rows
    %y0 = conv(%x0) {padding above 1} : 3 rows
    %x1 = cmsis.part(%x) {axis = 1, start = 2} : 4 rows
    %y1 = conv(%x1) {padding above 0} : 3 rows
    %y  = cmsis.join(%y0, %y1) {axis = 1}

A transposed convolution whose windows do not overlap returns `stride` rows for each of its
operand's. A concatenation of channels uses the same rows of all its operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten import CatDefault
from stepwell.dialects.cmsis.ops import (
    CmsisOp,
    Copy,
    Join,
    Maximum,
    Minimum,
    Part,
    QuantizedActivation,
    QuantizedAdd,
    QuantizedAvgPool2dNhwc,
    QuantizedConv2dNhwc,
    QuantizedDepthwiseConv2dNhwc,
    QuantizedMaxPool2dNhwc,
    QuantizedMul,
    QuantizedTransposeConv2dNhwc,
)
from stepwell.dialects.cmsis.ops.base import to_attribute
from stepwell.dialects.cmsis.ops.places import writes_its_own
from stepwell.dialects.cmsis.target import Target
from stepwell.dialects.quant import StorageCast
from stepwell.dialects.quant.types import quantization
from stepwell.ir.axes.maps import Along, Links, axis_map
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import i8
from stepwell.ir.types import dims, element, is_static, tensor, with_element
from stepwell.translate.memory.rows import Image, RowCall, RowChain, RowOp

ROWS = 1
"""The axis of an NHWC tensor that counts rows."""

CHANNELS = 3
"""The axis that counts them."""

SPATIAL = (QuantizedConv2dNhwc, QuantizedDepthwiseConv2dNhwc)
POOLS = (QuantizedMaxPool2dNhwc, QuantizedAvgPool2dNhwc)
ELEMENTWISE = (QuantizedAdd, QuantizedMul, Minimum, Maximum, QuantizedActivation)
WHOLE_ROWS = (QuantizedTransposeConv2dNhwc, CatDefault)


def images(op: Operation) -> tuple[SSAValue, ...]:
    """Return the operands of an op whose rows determine the result's rows; an empty tuple if the op
    cannot run on runs of rows.

    It can if it reads and writes images of batch 1 with at least two rows, and its kernel writes
    the whole result.
    """
    if not isinstance(op, SPATIAL + POOLS + ELEMENTWISE + WHOLE_ROWS) or not writes_its_own(op):
        return ()
    if not all(is_static(value.type) for value in (*op.operands, *op.results)):
        return ()
    made, axes = dims(op.results[0].type), axis_map(op)
    if len(made) != 4 or made[0] != 1 or cast(int, made[ROWS]) < 2 or axes is None:
        return ()
    if isinstance(op, QuantizedTransposeConv2dNhwc):
        return (stored(op.operands[0]),) if rows_given(op) is not None else ()
    links = [rows_read(operand) for operand in axes.links]
    read = [stored(v) for v, link in zip(op.operands, links, strict=True) if link is not None]
    if any(map(_is_constant, read)):
        return ()
    if isinstance(op, CatDefault):
        return tuple(read) if _joins_channels(op) and len(read) == len(op.operands) else ()
    if isinstance(op, ELEMENTWISE):
        return tuple(read) if all(dims(value.type) == made for value in read) else ()
    if isinstance(op, POOLS) and (any(op.numbers("padding")) or op.flag("ceil_mode")):
        return ()
    window = links[0]
    is_window = window is not None and 0 <= -window.offset < window.reach
    return tuple(read) if is_window and dims(read[0].type)[0] == 1 else ()


def stored(value: SSAValue) -> SSAValue:
    """Return the value whose bytes a chain of casts to and from quantized types refers to."""
    while isinstance(value.owner, StorageCast):
        value = value.owner.operands[0]
    return value


def rows_given(op: QuantizedTransposeConv2dNhwc) -> int | None:
    """Return the number of result rows per operand row, for windows without overlap or crop."""
    stride, kernel = op.numbers("stride"), dims(op.weight.type)[1:3]
    is_apart = kernel[0] == stride[0] and not any(op.numbers("padding"))
    return stride[0] if is_apart and dims(op.operands[0].type)[0] == 1 else None


def _joins_channels(op: CatDefault) -> bool:
    of_bytes = all(element(value.type) == i8 for value in op.operands)
    return of_bytes and op.arg("dim") % 4 == CHANNELS


def rows_read(links: Links | None) -> Along | None:
    """Return the operand rows that a result row reads, if its row number determines them."""
    link = links[ROWS] if links is not None and len(links) == 4 else None
    return link if isinstance(link, Along) and link.axis == ROWS else None


def _is_constant(value: SSAValue) -> bool:
    return isinstance(stored(value).owner, WeightOp)


def row_op(op: Operation, inputs: tuple[int, ...], output: int) -> RowOp:
    """Describe an op by the rows of its operands that each row of its result reads, with its
    scratch size.
    """
    scratch = scratch_of(op)
    if isinstance(op, QuantizedTransposeConv2dNhwc):
        return RowOp(inputs, output, scratch=scratch, gives=rows_given(op) or 1)
    axes = axis_map(op)
    window = None if axes is None else rows_read(axes.links[0])
    assert window is not None
    return RowOp(inputs, output, window.reach, window.stride, -window.offset, scratch)


def scratch_of(op: Operation) -> int:
    """Return the scratch bytes that a call needs while it runs."""
    if not isinstance(op, CmsisOp):
        return 0
    return sum(op.number(name) for name in op.properties if name.endswith("scratch"))


def image_of(value: SSAValue) -> Image:
    """Return the number of rows of an int8 NHWC tensor of batch 1, and the bytes of a row."""
    _, rows, width, channels = cast("tuple[int, ...]", dims(value.type))
    return Image(rows, width * channels)


@dataclass(frozen=True)
class Segment:
    """Consecutive ops of a program, and the stream of row operations that they form."""

    ops: tuple[Operation, ...]
    values: tuple[SSAValue, ...]
    """Values by number, as the stream names them."""
    stream: RowChain


def segment_of(ops: Sequence[Operation]) -> Segment | None:
    """Return a sequence of ops as a stream that runs row by row; None unless ops outside read its
    last result and no other.
    """
    numbers: dict[SSAValue, int] = {}
    results = {op.results[0] for op in ops}
    steps: list[RowOp] = []
    for op in ops:
        read = tuple(numbers.setdefault(value, len(numbers)) for value in images(op))
        steps.append(row_op(op, read, numbers.setdefault(op.results[0], len(numbers))))
    inside = set(ops)
    last = ops[-1].results[0]
    for value in results:
        escapes = any(reader not in inside for reader in _readers(value))
        if escapes != (value is last):
            return None
    outside = tuple(number for value, number in numbers.items() if value not in results)
    stream = RowChain(
        tuple(steps), {n: image_of(v) for v, n in numbers.items()}, outside, numbers[last]
    )
    return Segment(tuple(ops), tuple(numbers), stream)


def _readers(value: SSAValue) -> Iterator[Operation]:
    """Return the ops that read a value, also through casts."""
    for use in value.uses:
        if isinstance(use.operation, StorageCast):
            yield from _readers(use.operation.results[0])
        else:
            yield use.operation


def write_stream(segment: Segment, calls: Sequence[RowCall], target: Target) -> None:
    """Replace a segment's ops by the calls of a schedule."""
    last = segment.ops[-1]
    block = last.parent
    assert block is not None
    stream, values = segment.stream, segment.values
    held: dict[int, tuple[SSAValue, int]] = {n: (values[n], 0) for n in stream.inputs}
    """Value → the value that holds its rows now, and its first row."""
    tiles: list[tuple[int, SSAValue]] = []

    def put(op: Operation, like: Operation) -> SSAValue:
        op.location = like.location
        block.insert_op_before(op, last)
        return op.results[0]

    def rows(number: int, run: tuple[int, int], like: Operation) -> SSAValue:
        source, first = held[number]
        if run == (first, first + cast(int, dims(source.type)[ROWS])):
            return source
        return put(part(source, run[0] - first, run[1] - run[0]), like)

    def typed(value: SSAValue, wanted: Attribute, like: Operation) -> SSAValue:
        if element(value.type) == wanted:
            return value
        if quantization(value.type) is not None:
            value = put(StorageCast(value, with_element(value.type, i8)), like)
        if element(value.type) == wanted:
            return value
        return put(StorageCast(value, with_element(value.type, wanted)), like)

    for call in calls:
        op, shape = segment.ops[call.op], stream.ops[call.op]
        kept: SSAValue | None = None
        if call.kept is not None:
            source = rows(shape.output, call.kept, op)
            kept = put(Copy.make(source, result=source.type), op)
        read = [rows(v, run, op) for v, run in zip(shape.inputs, call.reads, strict=True)]
        read = [
            typed(v, element(operand.type), op)
            for v, operand in zip(read, op.operands, strict=False)
        ]
        made = put(_over_rows(op, shape, call.rows, read, target), op)
        if shape.output == stream.output:
            tiles.append((call.rows[0], made))
            continue
        if kept is not None:
            assert call.kept is not None
            pair = [kept, made] if call.kept[0] < call.rows[0] else [made, kept]
            made = put(join(pair), op)
        held[shape.output] = made, call.window[0]
    ordered = [value for _, value in sorted(tiles, key=lambda tile: tile[0])]
    whole = ordered[0] if len(ordered) == 1 else put(join(ordered), last)
    last.results[0].replace_all_uses_with(whole)
    for op in reversed(segment.ops):
        for use in tuple(op.results[0].uses):  # These are casts between values inside.
            _erase(use.operation)
        _erase(op)


def _erase(op: Operation) -> None:
    for use in tuple(op.results[0].uses):
        _erase(use.operation)
    op.detach()
    op.erase()


def part(value: SSAValue, start: int, length: int) -> Part:
    """Return a run of rows of an NHWC tensor."""
    shape = dims(value.type)
    result_type = tensor([*shape[:ROWS], length, *shape[ROWS + 1 :]], element(value.type))
    return Part.make(value, result=result_type, axis=ROWS, start=start)


def join(values: Sequence[SSAValue]) -> Join:
    """Join runs of rows into one tensor."""
    shape = dims(values[0].type)
    rows = sum(cast(int, dims(value.type)[ROWS]) for value in values)
    result_type = tensor([*shape[:ROWS], rows, *shape[ROWS + 1 :]], element(values[0].type))
    return Join.of(values, ROWS, result_type)


def _over_rows(
    op: Operation,
    shape: RowOp,
    run: tuple[int, int],
    read: Sequence[SSAValue],
    target: Target,
) -> Operation:
    """Build the op for some rows of its result."""
    result_dims = dims(op.results[0].type)
    result_type = tensor(
        [result_dims[0], run[1] - run[0], *result_dims[2:]], element(op.results[0].type)
    )
    operands = [*read, *op.operands[len(read) :]]
    properties = dict(op.properties)
    if isinstance(op, SPATIAL):
        above = max(0, shape.padding - run[0] * shape.stride)
        properties["padding"] = to_attribute([above, op.numbers("padding")[1]])
    new = type(op).create(
        operands=operands,
        result_types=[result_type],
        properties=properties,
        attributes=dict(op.attributes),
    )
    if isinstance(new, CmsisOp):
        for field, size in new.needed_scratch(target).items():
            new.properties[field] = to_attribute(size)
    return new

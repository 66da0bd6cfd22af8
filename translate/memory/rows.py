"""Schedule ops that run row by row: the order of calls, and the live bytes at each call.

Ops over images (convolutions, pools, elementwise) need a window of operand rows for each result
row. A *stream* computes its last result in tiles of rows. Before each tile it computes the missing
rows that the tile needs, op by op. No row is computed twice: rows that the next tile reads again
are copied to the position before the new rows. The inputs of a stream are released row by row, and
its result is allocated row by row.

This module is arithmetic on row numbers; `stream_rows` writes the ops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class RowOp:
    """An op as a function from rows of its inputs to rows of its output.

    Attributes:
        inputs: the numbers of the values whose rows it reads.
        output: the number of its result.
        reach: input rows that one output row reads, `stride` apart, from `-padding` on.
        scratch: bytes that its kernel needs while it runs.
        gives: output rows per input row, for an op that computes several at once; other ops use
            `reach`, `stride` and `padding`.
    """

    inputs: tuple[int, ...]
    output: int
    reach: int = 1
    stride: int = 1
    padding: int = 0
    scratch: int = 0
    gives: int = 1

    def whole(self, stop: int) -> int:
        """Return the end of the output rows that are computed to obtain the rows before `stop`."""
        return -(-stop // self.gives) * self.gives

    def reads(self, first: int, last: int, rows: int) -> tuple[int, int]:
        """Return the input rows (of `rows` in all) for output rows `first` to `last`
        (exclusive).
        """
        if self.gives > 1:
            return first // self.gives, self.whole(last) // self.gives
        low = first * self.stride - self.padding
        high = (last - 1) * self.stride - self.padding + self.reach
        return max(0, low), min(rows, high)

    def mirrored(self, rows_in: int, rows_out: int) -> RowOp:
        """Return the same op with rows counted from the other end."""
        if self.gives > 1:
            return self
        return replace(
            self, padding=(rows_out - 1) * self.stride + self.reach - rows_in - self.padding
        )


@dataclass(frozen=True)
class Image:
    """The number of rows of a value, and the bytes of one row."""

    rows: int
    row_bytes: int


@dataclass(frozen=True)
class RowCall:
    """One op over some rows: the rows that it computes, and the rows of its inputs.

    `kept` are rows of the output that were computed earlier and are copied next to the new ones.
    `window` is all contiguous rows after that; without kept rows they are the new ones.
    """

    op: int
    rows: tuple[int, int]
    reads: tuple[tuple[int, int], ...]
    kept: tuple[int, int] | None
    window: tuple[int, int]


@dataclass(frozen=True)
class RowChain:
    """Ops in order, the values that they read from outside, and their result."""

    ops: tuple[RowOp, ...]
    images: Mapping[int, Image]
    inputs: tuple[int, ...]
    output: int


def schedule(stream: RowChain, height: int, *, upwards: bool = False) -> list[RowCall]:
    """Return the calls of a stream whose result is computed in tiles of `height` rows.

    Args:
        stream: the stream.
        height: rows per tile of the result; the last one may have fewer.
        upwards: from the last row to the first.
    """
    ops, images = stream.ops, stream.images
    if upwards:
        ops = tuple(op.mirrored(images[op.inputs[0]].rows, images[op.output].rows) for op in ops)
    consumers: dict[int, list[int]] = defaultdict(list)
    for index, op in enumerate(ops):
        for value in set(op.inputs):
            consumers[value].append(index)
    done = {op.output: 0 for op in ops}
    window: dict[int, tuple[int, int]] = {}
    calls: list[RowCall] = []
    total = images[stream.output].rows
    for end in range(height, total + height, height):
        wanted = _wanted(ops, images, done, {stream.output: min(end, total)})
        for index, op in enumerate(ops):
            value, start, stop = op.output, done[op.output], wanted.get(op.output, 0)
            if stop <= start:
                continue
            kept = None
            if value != stream.output and value in window:
                oldest = min(
                    ops[c].reads(done[ops[c].output], done[ops[c].output] + 1, images[value].rows)[
                        0
                    ]
                    for c in consumers[value]
                )
                oldest = max(oldest, window[value][0])
                kept = (oldest, start) if oldest < start else None
            held = (kept[0] if kept else start, stop)
            reads = tuple(op.reads(start, stop, images[v].rows) for v in op.inputs)
            calls.append(RowCall(index, (start, stop), reads, kept, held))
            window[value], done[value] = held, stop
    return [_turned(call, stream) for call in calls] if upwards else calls


def _wanted(
    ops: Sequence[RowOp],
    images: Mapping[int, Image],
    done: Mapping[int, int],
    wanted: dict[int, int],
) -> dict[int, int]:
    """Return, for each value, the end of the rows that are required for a tile of the result."""
    for op in reversed(ops):
        stop, start = op.whole(wanted.get(op.output, 0)), done[op.output]
        if stop <= start:
            continue
        wanted[op.output] = stop
        for value in op.inputs:
            if value in done:
                need = op.reads(start, stop, images[value].rows)[1]
                wanted[value] = max(wanted.get(value, 0), need)
    return wanted


def _turned(call: RowCall, stream: RowChain) -> RowCall:
    op = stream.ops[call.op]

    def turn(value: int, rows: tuple[int, int]) -> tuple[int, int]:
        count = stream.images[value].rows
        return count - rows[1], count - rows[0]

    return RowCall(
        call.op,
        turn(op.output, call.rows),
        tuple(turn(v, rows) for v, rows in zip(op.inputs, call.reads, strict=True)),
        None if call.kept is None else turn(op.output, call.kept),
        turn(op.output, call.window),
    )


@dataclass(frozen=True)
class Usage:
    """The costs of a schedule: peak bytes alive, calls, and bytes copied."""

    peak: int
    calls: int
    copied: int


def usage(stream: RowChain, calls: Sequence[RowCall], dying: frozenset[int]) -> Usage:
    """Return the peak number of live bytes while a stream runs, without values that outlive it.

    Args:
        stream: the stream.
        calls: the stream's schedule, from the first row to the last.
        dying: the inputs that are not used after the stream; other inputs are not counted.
    """
    change: dict[int, int] = defaultdict(int)

    def alive(size: int, first: int, last: int) -> None:
        change[first] += size
        change[last + 1] -= size

    images, step, copied = stream.images, 0, 0
    last_read: dict[tuple[int, int], int] = {}
    born: dict[int, tuple[int, int]] = {}
    read_at: dict[int, int] = {}
    for call in calls:
        op = stream.ops[call.op]
        size = images[op.output].row_bytes
        first = step
        if call.kept is not None:
            copied += (call.kept[1] - call.kept[0]) * size
            read_at[op.output] = step
            step += 1
        for value, rows in zip(op.inputs, call.reads, strict=True):
            if value in born:
                read_at[value] = step
            elif value in dying:
                for row in range(*rows):
                    last_read[value, row] = step
        alive(op.scratch, step, step)
        if op.output == stream.output:
            alive((call.rows[1] - call.rows[0]) * size, step, len(calls) * 2)
        else:
            if op.output in born:
                since, held = born[op.output]
                alive(held, since, read_at.get(op.output, since))
            born[op.output] = first, (call.window[1] - call.window[0]) * size
            read_at[op.output] = step
        step += 1
    for value, (since, held) in born.items():
        alive(held, since, read_at[value])
    for value in dying:
        image = images[value]
        for row in range(image.rows):
            alive(image.row_bytes, 0, last_read.get((value, row), 0))
    now = peak = 0
    for when in sorted(change):
        now += change[when]
        peak = max(peak, now)
    return Usage(peak, step, copied)

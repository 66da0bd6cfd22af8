"""Plans of buffers whose parts live at different times: no byte is held twice, and how small."""

import random

import pytest

from stepwell.backends.executorch.reading.arena import Arena
from stepwell.backends.executorch.writing.memory import ALIGNMENT, busiest_moment
from stepwell.backends.executorch.writing.partial_lifetimes import (
    Buffer,
    Piece,
    plan_pieces,
)


def held(buffers: list[Buffer], offsets: tuple[int, ...], step: int) -> list[int]:
    return [
        byte
        for buffer, offset in zip(buffers, offsets, strict=True)
        for piece in buffer.pieces
        if piece.first <= step <= piece.last
        for byte in range(offset + piece.start, offset + piece.end)
    ]


def test_no_byte_is_held_twice_at_a_time() -> None:
    drawing = random.Random(0)
    for _ in range(30):
        buffers: list[Buffer] = []
        for _ in range(drawing.randrange(2, 9)):
            pieces: list[Piece] = []
            start = 0
            for _ in range(drawing.randrange(1, 6)):
                end, first = start + drawing.randrange(1, 40), drawing.randrange(12)
                pieces.append(Piece(start, end, first, first + drawing.randrange(4)))
                start = end
            buffers.append(Buffer(tuple(pieces)))
        plan = plan_pieces(buffers)
        pieces = (piece for buffer in buffers for piece in buffer.pieces)
        lives = ((piece.end - piece.start, piece.first, piece.last) for piece in pieces)
        assert plan.arena_size >= busiest_moment(lives)
        for step in range(16):
            found = held(buffers, plan.offsets, step)
            assert len(set(found)) == len(found)
            assert all(0 <= byte < plan.arena_size for byte in found)


def test_a_result_slides_over_its_operand() -> None:
    """Row t of the result is written at step t, when row t of the operand is read last."""
    rows, size = 25, 4 * ALIGNMENT
    operand = Buffer(tuple(Piece(r * size, (r + 1) * size, -1, r) for r in range(rows)))
    result = Buffer(tuple(Piece(r * size, (r + 1) * size, r, rows) for r in range(rows)))
    plan = plan_pieces([operand, result])
    assert plan.arena_size == (rows + 1) * size == plan.lower_bound


def test_what_is_overwritten_in_part_is_read_in_part() -> None:
    arena: Arena[str] = Arena()
    arena.write(0, 100, "a")
    arena.write(20, 40, "b")
    assert arena.read(0) is None
    found = arena.covering(10, 60)
    assert found is not None
    assert [(h.content, h.start, h.end, h.origin) for h in found] == [
        ("a", 0, 20, 0),
        ("b", 20, 40, 20),
        ("a", 40, 100, 0),
    ]
    assert arena.covering(90, 110) is None


def cut(drawing: random.Random, start: int, end: int, first: int, last: int) -> list[Buffer]:
    """A rectangle of bytes and steps in buffers that fill it without a gap."""
    small = (end - start) * (last - first + 1) <= 90
    if not small and drawing.random() < 0.5 and end - start > 4:
        at = drawing.randrange(start + 2, end - 1)
        return cut(drawing, start, at, first, last) + cut(drawing, at, end, first, last)
    if not small and last - first > 2:
        at = drawing.randrange(first, last)
        return cut(drawing, start, end, first, at) + cut(drawing, start, end, at + 1, last)
    return [Buffer((Piece(0, ALIGNMENT * (end - start), first, last),))]


@pytest.mark.parametrize("seed", range(8))
def test_what_fills_an_arena_is_planned_near_it(seed: int) -> None:
    """Some fifty buffers; placed by their sizes or lifetimes they take up to 1.4 of it."""
    buffers = cut(random.Random(seed), 0, 64, 0, 40)
    plan = plan_pieces(buffers)
    assert plan.lower_bound == 64 * ALIGNMENT
    assert plan.arena_size <= 1.1 * plan.lower_bound

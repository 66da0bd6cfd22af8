"""Transposes that meet: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.cmsis import MERGE_TRANSPOSES


def turn(words: Any, name: str, source: str, order: str, given: str, made: str) -> str:
    return (
        f"%{name} = cmsis.transpose(%{source}) {{perm = array<i64: {order}>}} : "
        f"({words.typed(given)}) -> {words.typed(made)}"
    )


def test_two_that_do_not_cancel_are_one(apply: Any):
    assert apply(
        """
        %x: i8<0.5>[2, 3, 4]
        %a = cmsis.transpose(%x) {perm = array<i64: 1, 0, 2>} : (i8<0.5>[2, 3, 4]) -> i8<0.5>[3, 2, 4]
        %y = cmsis.transpose(%a) {perm = array<i64: 0, 2, 1>} : (i8<0.5>[3, 2, 4]) -> i8<0.5>[3, 4, 2]
        """,
        *MERGE_TRANSPOSES,
    ).ops() == ["cmsis.transpose"]


def test_a_constant_is_transposed_ahead_of_time(apply: Any):
    assert apply(
        """
        %w = quant.scast(%ws: weight "w" i8[2, 3]) -> i8<0.5>[2, 3]
        %y = cmsis.transpose(%w) {perm = array<i64: 1, 0>} : (i8<0.5>[2, 3]) -> i8<0.5>[3, 2]
        """,
        *MERGE_TRANSPOSES,
    ).ops() == ["quant.scast"]


def test_where_only_single_elements_move_it_is_a_view(apply: Any):
    assert (
        "cmsis.transpose"
        not in apply(
            """
        %x: i8<0.5>[2, 1, 4]
        %y = cmsis.transpose(%x) {perm = array<i64: 1, 0, 2>} : (i8<0.5>[2, 1, 4]) -> i8<0.5>[1, 2, 4]
        """,
            *MERGE_TRANSPOSES,
        ).ops()
    )


def test_one_that_moves_something_stays(refused: Any, method: Any, words: Any):
    text = method(
        f"%x: {words.typed('2x3')}",
        turn(words, "y", "x", "1, 0", "2x3", "3x2"),
        gives=words.typed("3x2"),
    )
    for rule in MERGE_TRANSPOSES:
        refused(text, rule)

"""Transposes that meet: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.cmsis import MERGE_TRANSPOSES


def turn(words: Any, name: str, source: str, order: str, given: str, made: str) -> str:
    return (
        f"%{name} = cmsis.transpose(%{source}) {{perm = array<i64: {order}>}} : "
        f"({words.typed(given)}) -> {words.typed(made)}"
    )


def test_two_that_do_not_cancel_are_one(apply: Any, method: Any, words: Any):
    text = method(
        f"%x: {words.typed('2x3x4')}",
        turn(words, "a", "x", "1, 0, 2", "2x3x4", "3x2x4"),
        turn(words, "y", "a", "0, 2, 1", "3x2x4", "3x4x2"),
        gives=words.typed("3x4x2"),
    )
    assert apply(text, *MERGE_TRANSPOSES).ops() == ["cmsis.transpose"]


def test_a_constant_is_transposed_ahead_of_time(apply: Any, method: Any, words: Any):
    text = method(
        "%x: tensor<1xf32>",
        f'%ws = stepwell.weight <"w"> "parameter" : {words.raw("2x3")}',
        f"%w = quant.scast %ws : {words.raw('2x3')} to {words.typed('2x3')}",
        turn(words, "y", "w", "1, 0", "2x3", "3x2"),
        gives=words.typed("3x2"),
    )
    assert apply(text, *MERGE_TRANSPOSES).ops() == ["quant.scast"]


def test_where_only_single_elements_move_it_is_a_view(apply: Any, method: Any, words: Any):
    text = method(
        f"%x: {words.typed('2x1x4')}",
        turn(words, "y", "x", "1, 0, 2", "2x1x4", "1x2x4"),
        gives=words.typed("1x2x4"),
    )
    assert "cmsis.transpose" not in apply(text, *MERGE_TRANSPOSES).ops()


def test_one_that_moves_something_stays(refused: Any, method: Any, words: Any):
    text = method(
        f"%x: {words.typed('2x3')}",
        turn(words, "y", "x", "1, 0", "2x3", "3x2"),
        gives=words.typed("3x2"),
    )
    for rule in MERGE_TRANSPOSES:
        refused(text, rule)

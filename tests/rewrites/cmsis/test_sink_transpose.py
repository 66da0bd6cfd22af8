"""SinkTranspose: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.cmsis.sink_transpose import SinkTranspose


def turn(name: str, source: str, order: str, given: str, made: str) -> str:
    return (
        f"%{name} = cmsis.transpose(%{source}) {{perm = array<i64: {order}>}} : "
        f"(tensor<{given}xi8>) -> tensor<{made}xi8>"
    )


def least(first: str, second: str, a: str, b: str, made: str) -> str:
    return (
        f"%y = cmsis.minimum(%{first}, %{second}) : (tensor<{a}xi8>, tensor<{b}xi8>) "
        f"-> tensor<{made}xi8>"
    )


def test_two_alike_become_one_behind_the_op(apply: Any, method: Any):
    text = method(
        "%a: tensor<2x3x4xi8>, %b: tensor<2x3x4xi8>",
        turn("s", "a", "0, 2, 1", "2x3x4", "2x4x3"),
        turn("t", "b", "0, 2, 1", "2x3x4", "2x4x3"),
        least("s", "t", "2x4x3", "2x4x3", "2x4x3"),
        gives="tensor<2x4x3xi8>",
    )
    assert apply(text, SinkTranspose()).ops() == ["cmsis.minimum", "cmsis.transpose"]


def test_a_pad_pads_the_dimensions_where_they_lie(apply: Any, method: Any, words: Any):
    text = method(
        f"%a: {words.typed('1x2x3x4')}",
        f"%s = cmsis.transpose(%a) {{perm = array<i64: 0, 3, 1, 2>}} : ({words.typed('1x2x3x4')}) "
        f"-> {words.typed('1x4x2x3')}",
        "%y = cmsis.pad(%s) {pre_pad = array<i64: 0, 1, 0, 0>, post_pad = array<i64: 0, 0, 2, 0>, "
        f"pad_value = 0 : i64}} : ({words.typed('1x4x2x3')}) -> {words.typed('1x5x4x3')}",
        gives=words.typed("1x5x4x3"),
    )
    done = apply(text, SinkTranspose())
    assert done.ops() == ["cmsis.pad", "cmsis.transpose"]


def test_different_orders_stay(refused: Any, method: Any):
    text = method(
        "%a: tensor<2x3x4xi8>, %b: tensor<4x3x2xi8>",
        turn("s", "a", "0, 2, 1", "2x3x4", "2x4x3"),
        turn("t", "b", "2, 0, 1", "4x3x2", "2x4x3"),
        least("s", "t", "2x4x3", "2x4x3", "2x4x3"),
        gives="tensor<2x4x3xi8>",
    )
    refused(text, SinkTranspose())


def test_another_operand_that_is_computed_stays(refused: Any, method: Any):
    text = method(
        "%a: tensor<2x3x4xi8>, %b: tensor<2x4x3xi8>",
        turn("s", "a", "0, 2, 1", "2x3x4", "2x4x3"),
        least("s", "b", "2x4x3", "2x4x3", "2x4x3"),
        gives="tensor<2x4x3xi8>",
    )
    refused(text, SinkTranspose())


def test_operands_of_different_ranks_stay(refused: Any, method: Any):
    text = method(
        "%a: tensor<2x3x4xi8>",
        '%c = stepwell.weight <"c"> "parameter" : tensor<4x3xi8>',
        turn("s", "a", "0, 2, 1", "2x3x4", "2x4x3"),
        least("s", "c", "2x4x3", "4x3", "2x4x3"),
        gives="tensor<2x4x3xi8>",
    )
    refused(text, SinkTranspose())


def test_operands_that_broadcast_stay(refused: Any, method: Any):
    text = method(
        "%a: tensor<2x3x4xi8>",
        '%c = stepwell.weight <"c"> "parameter" : tensor<1x4x3xi8>',
        turn("s", "a", "0, 2, 1", "2x3x4", "2x4x3"),
        least("s", "c", "2x4x3", "1x4x3", "2x4x3"),
        gives="tensor<2x4x3xi8>",
    )
    refused(text, SinkTranspose())


def test_a_cast_behind_another_movement_stays(refused: Any, method: Any, words: Any):
    text = method(
        f"%a: {words.typed('2x3')}",
        f"%s = cmsis.transpose(%a) {{perm = array<i64: 1, 0>}} : ({words.typed('2x3')}) "
        f"-> {words.typed('3x2')}",
        f"%r = quant.scast %s : {words.typed('3x2')} to {words.raw('3x2')}",
        "%v = aten.view.default(%r, [6]) : (tensor<3x2xi8>) -> tensor<6xi8>",
        f"%y = quant.scast %v : {words.raw('6')} to {words.typed('6')}",
        gives=words.typed("6"),
    )
    refused(text, SinkTranspose())


def test_beside_an_empty_constant_of_another_rank_it_stays(refused: Any, method: Any, words: Any):
    text = method(
        f"%a: {words.typed('2x3')}",
        '%es = stepwell.weight <"e"> "parameter" : tensor<0xi8>',
        f"%s = cmsis.transpose(%a) {{perm = array<i64: 1, 0>}} : ({words.typed('2x3')}) "
        f"-> {words.typed('3x2')}",
        f"%r = quant.scast %s : {words.typed('3x2')} to {words.raw('3x2')}",
        f"%e = quant.scast %es : {words.raw('0')} to {words.typed('0')}",
        f"%er = quant.scast %e : {words.typed('0')} to {words.raw('0')}",
        "%v = aten.cat.default([%r, %er]) : (tensor<3x2xi8>, tensor<0xi8>) -> tensor<3x2xi8>",
        f"%y = quant.scast %v : {words.raw('3x2')} to {words.typed('3x2')}",
        gives=words.typed("3x2"),
    )
    refused(text, SinkTranspose())

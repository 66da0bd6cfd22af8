"""AssignLayouts: transposes stand where a minimum cut puts them, and what keeps its axes keeps them."""

from typing import Any

from rewrite_cases import cases

from stepwell.translate.rewrites.cmsis import MERGE_TRANSPOSES
from stepwell.translate.rewrites.cmsis.layout.assign_layouts import AssignLayouts
from stepwell.translate.rewrites.documentation import module_of


def turn(name: str, source: str, order: str, given: str, made: str) -> str:
    return (
        f"%{name} = cmsis.transpose(%{source}) {{perm = array<i64: {order}>}} : ({given}) -> {made}"
    )


def least(first: str, second: str, a: str, b: str, made: str) -> str:
    return f"%y = cmsis.minimum(%{first}, %{second}) : ({a}, {b}) -> {made}"


def placed(apply: Any, text: str) -> list[str]:
    """The ops of a text after its transposes are placed and merged."""
    return apply(apply(text, AssignLayouts()).text, *MERGE_TRANSPOSES).ops()


A, B = "tensor<2x3x4xi8>", "tensor<2x4x3xi8>"


def test_the_documented_example_loses_both_transposes(apply: Any):
    before = module_of("cmsis.layout.assign_layouts").__doc__ or ""
    text = before[before.index("Before:") + 7 : before.index("After,")]
    assert placed(apply, text) == ["cmsis.quantized_activation"]


def test_two_alike_become_one_behind_the_op(apply: Any, method: Any):
    text = method(
        f"%a: {A}, %b: {A}",
        turn("s", "a", "0, 2, 1", A, B),
        turn("t", "b", "0, 2, 1", A, B),
        least("s", "t", B, B, B),
        gives=B,
    )
    assert placed(apply, text) == ["cmsis.minimum", "cmsis.transpose"]


def test_one_is_not_moved_to_where_more_is_copied(apply: Any, method: Any, words: Any):
    small, turned, wide = (words.typed(shape) for shape in ("1x2x3x4", "1x4x2x3", "1x5x4x3"))
    text = method(
        f"%a: {small}",
        turn("s", "a", "0, 3, 1, 2", small, turned),
        "%y = cmsis.pad(%s) {pre_pad = array<i64: 0, 1, 0, 0>, post_pad = array<i64: 0, 0, 2, 0>, "
        f"pad_value = 0 : i64}} : ({turned}) -> {wide}",
        gives=wide,
    )
    assert placed(apply, text) == ["cmsis.transpose", "cmsis.pad"]


def test_a_pad_pads_the_dimensions_where_they_lie(apply: Any, method: Any, words: Any):
    small, turned, wide, back = (
        words.typed(shape) for shape in ("1x2x3x4", "1x4x2x3", "1x5x4x3", "1x4x3x5")
    )
    text = method(
        f"%a: {small}",
        turn("s", "a", "0, 3, 1, 2", small, turned),
        "%p = cmsis.pad(%s) {pre_pad = array<i64: 0, 1, 0, 0>, post_pad = array<i64: 0, 0, 2, 0>, "
        f"pad_value = 0 : i64}} : ({turned}) -> {wide}",
        turn("y", "p", "0, 2, 3, 1", wide, back),
        gives=back,
    )
    assert placed(apply, text) == ["cmsis.pad"]


def test_a_concatenation_runs_along_the_dimension_where_it_lies(
    apply: Any, method: Any, words: Any
):
    typed, raw = words.typed, words.raw
    text = method(
        f"%a: {typed('2x3x4')}, %b: {typed('2x3x5')}",
        turn("s", "a", "0, 2, 1", typed("2x3x4"), typed("2x4x3")),
        turn("t", "b", "0, 2, 1", typed("2x3x5"), typed("2x5x3")),
        f"%sr = quant.scast %s : {typed('2x4x3')} to {raw('2x4x3')}",
        f"%tr = quant.scast %t : {typed('2x5x3')} to {raw('2x5x3')}",
        f"%c = aten.cat.default([%sr, %tr], 1) : ({raw('2x4x3')}, {raw('2x5x3')}) "
        f"-> {raw('2x9x3')}",
        f"%d = quant.scast %c : {raw('2x9x3')} to {typed('2x9x3')}",
        turn("y", "d", "0, 2, 1", typed("2x9x3"), typed("2x3x9")),
        gives=typed("2x3x9"),
    )
    assert "cmsis.transpose" not in placed(apply, text)


test_assign_layouts = cases(AssignLayouts)("""
next to another operand it -> unchanged
    - %s = cmsis.transpose(%a: i8[2, 3, 4], perm=[0, 2, 1]) -> i8[2, 4, 3]
      %t = cmsis.transpose(%b: i8[4, 3, 2], perm=[2, 0, 1]) -> i8[2, 4, 3]
      %y = cmsis.minimum(%s, %t) -> i8[2, 4, 3]
    - %s = cmsis.transpose(%a: i8[2, 3, 4], perm=[0, 2, 1]) -> i8[2, 4, 3]
      %y = cmsis.minimum(%s, %b: i8[2, 4, 3]) -> i8[2, 4, 3]
    - %s = cmsis.transpose(%a: i8[2, 3, 4], perm=[0, 2, 1]) -> i8[2, 4, 3]
      %y = cmsis.minimum(%s, %b: i8[4, 3]) -> i8[2, 4, 3]
    - %s = cmsis.transpose(%a: i8[2, 3, 4], perm=[0, 2, 1]) -> i8[2, 4, 3]
      %y = cmsis.minimum(%s, %b: i8[1, 4, 3]) -> i8[2, 4, 3]
a cast of channels -> unchanged
    # Scales belong to an axis, and a cast of the transposed integers would name another.
    %s = cmsis.transpose(%a: i8[2, 3], perm=[1, 0]) -> i8[3, 2]
    %y = quant.scast(%s) -> i8<:0, {0.5, 0.25, 0.125}>[3, 2]
a cast after another movement -> unchanged
    %s = cmsis.transpose(%a: i8<0.5>[2, 3], perm=[1, 0]) -> i8<0.5>[3, 2]
    %r = quant.scast(%s) -> i8[3, 2]; %v = aten.view.default(%r, [6])
    %y = quant.scast(%v) -> i8<0.5>[6]
next to an empty constant of another rank it -> unchanged
    %s = cmsis.transpose(%a: i8<0.5>[2, 3], perm=[1, 0]) -> i8<0.5>[3, 2]
    %r = quant.scast(%s) -> i8[3, 2]; %e = quant.scast(%es: weight "e" i8[0]) -> i8<0.5>[0]
    %er = quant.scast(%e) -> i8[0]; %v = aten.cat.default([%r, %er])
    %y = quant.scast(%v) -> i8<0.5>[3, 2]
""")

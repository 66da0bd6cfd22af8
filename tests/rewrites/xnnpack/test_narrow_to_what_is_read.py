"""NarrowToWhatIsRead: what is computed of a tensor read in part, and where nothing is gained."""

from typing import Any

import pytest

from stepwell.ir.axes.alignment import aligned
from stepwell.translate.rewrites.documentation import examples_of, module_of
from stepwell.translate.rewrites.xnnpack.partitioning.narrow_to_what_is_read import (
    NarrowToWhatIsRead,
)

X, ROW = "tensor<1x6x8xf32>", "tensor<1x1x8xf32>"
W = "tensor<8x8xf32>"
WEIGHT = f'%w = stepwell.weight <"w"> "parameter" : {W}'


def unary(kind: str, given: str, made: str, type_: str = X) -> str:
    return f"%{made} = xnnpack.{kind}(%{given}) : ({type_}) -> {type_}"


def linear(given: str, made: str) -> str:
    return f"%{made} = xnnpack.fully_connected(%{given}, %w) : ({X}, {W}) -> {X}"


def first_row(given: str, made: str = "y") -> str:
    return (
        f"%{made} = xnnpack.static_slice(%{given}, offsets=[0, 2, 0], sizes=[1, 1, 8])"
        f" : ({X}) -> {ROW}"
    )


def shapes(done: Any, kind: str) -> list[str]:
    return [
        str(op.results[0].type) for op in done.program.module.walk() if op.name == f"xnnpack.{kind}"
    ]


def test_the_documented_before_becomes_the_documented_after(apply: Any):
    ((before, _),) = examples_of(module_of("xnnpack.partitioning.narrow_to_what_is_read"))
    done = apply(before, NarrowToWhatIsRead())
    assert done.count == 1 and done.ops() == ["xnnpack.static_slice", "xnnpack.exp"]


def test_a_residual_block_read_in_one_row_computes_that_row(apply: Any, method: Any):
    lines = (
        linear("x", "a"),
        unary("gelu", "a", "b"),
        linear("b", "c"),
        f"%d = xnnpack.add(%x, %c) : ({X}, {X}) -> {X}",
        first_row("d"),
    )
    done = apply(method(f"%x: {X}", WEIGHT, *lines, gives=ROW), NarrowToWhatIsRead())
    assert shapes(done, "static_slice") == [ROW]
    assert {*shapes(done, "fully_connected"), *shapes(done, "gelu"), *shapes(done, "add")} == {ROW}


def test_attention_read_in_one_row_has_one_query_and_all_keys(apply: Any, method: Any):
    scores = "tensor<1x6x6xf32>"
    lines = (
        linear("x", "q"),
        f"%s = xnnpack.batch_matrix_multiply(%q, %x, transpose_b) : ({X}, {X}) -> {scores}",
        unary("softmax", "s", "p", scores),
        f"%o = xnnpack.batch_matrix_multiply(%p, %x) : ({scores}, {X}) -> {X}",
        first_row("o"),
    )
    done = apply(method(f"%x: {X}", WEIGHT, *lines, gives=ROW), NarrowToWhatIsRead())
    assert shapes(done, "softmax") == ["tensor<1x1x6xf32>"]
    assert shapes(done, "fully_connected") == [ROW]


def test_heads_are_followed_through_reshape_and_transpose(apply: Any, method: Any):
    lines = (
        linear("x", "a"),
        f"%h = xnnpack.static_reshape(%a, new_shape=[1, 6, 2, 4]) : ({X}) -> tensor<1x6x2x4xf32>",
        "%t = xnnpack.static_transpose(%h, perm=[0, 2, 1, 3])"
        " : (tensor<1x6x2x4xf32>) -> tensor<1x2x6x4xf32>",
        "%y = xnnpack.static_slice(%t, offsets=[0, 0, 5, 0], sizes=[1, 2, 1, 4])"
        " : (tensor<1x2x6x4xf32>) -> tensor<1x2x1x4xf32>",
    )
    gives = "tensor<1x2x1x4xf32>"
    done = apply(method(f"%x: {X}", WEIGHT, *lines, gives=gives), NarrowToWhatIsRead())
    assert shapes(done, "fully_connected") == [ROW]


def test_a_constant_is_cut_at_compile_time(apply: Any, method: Any):
    constant = f'%k = stepwell.weight <"k"> "constant" : {X}'
    lines = (f"%a = xnnpack.add(%x, %k) : ({X}, {X}) -> {X}", first_row("a"))
    done = apply(method(f"%x: {X}", constant, *lines, gives=ROW), NarrowToWhatIsRead())
    assert shapes(done, "static_slice") == [ROW] and shapes(done, "add") == [ROW]


def test_what_is_read_whole_elsewhere_is_computed_whole(apply: Any, method: Any):
    text = method(
        f"%x: {X}", WEIGHT, linear("x", "a"), first_row("a", "b"),
        f"%y = xnnpack.add(%a, %b) : ({X}, {ROW}) -> {X}", gives=X,
    )  # fmt: skip
    assert apply(text, NarrowToWhatIsRead()).count == 0


def test_parts_that_make_the_whole_narrow_nothing(apply: Any, method: Any):
    half = "tensor<1x3x8xf32>"
    lines = (
        unary("exp", "x", "a"),
        f"%b = xnnpack.static_slice(%a, offsets=[0, 0, 0], sizes=[1, 3, 8]) : ({X}) -> {half}",
        f"%c = xnnpack.static_slice(%a, offsets=[0, 3, 0], sizes=[1, 3, 8]) : ({X}) -> {half}",
        f"%y = xnnpack.add(%b, %c) : ({half}, {half}) -> {half}",
    )
    assert apply(method(f"%x: {X}", *lines, gives=half), NarrowToWhatIsRead()).count == 0


def test_a_softmax_over_the_sliced_axis_stays_whole(apply: Any, method: Any):
    part = "tensor<1x6x2xf32>"
    lines = (
        unary("softmax", "x", "a"),
        f"%y = xnnpack.static_slice(%a, offsets=[0, 0, 2], sizes=[1, 6, 2]) : ({X}) -> {part}",
    )
    assert apply(method(f"%x: {X}", *lines, gives=part), NarrowToWhatIsRead()).count == 0


def test_a_slice_that_saves_less_than_two_slices_cost_stays(apply: Any, method: Any):
    most = "tensor<1x5x8xf32>"
    text = method(
        f"%x: {X}, %z: {X}", f"%a = xnnpack.add(%x, %z) : ({X}, {X}) -> {X}",
        f"%y = xnnpack.static_slice(%a, offsets=[0, 1, 0], sizes=[1, 5, 8]) : ({X}) -> {most}",
        gives=most,
    )  # fmt: skip
    assert apply(text, NarrowToWhatIsRead()).count == 0


def test_a_reshape_of_symbolic_rows_is_computed_whole(apply: Any, method: Any):
    rows = 'tensor<?x8xf32, #stepwell.shape<["s0", 8]>>'
    split = 'tensor<?x2x4xf32, #stepwell.shape<["s0", 2, 4]>>'
    part = 'tensor<?x1x4xf32, #stepwell.shape<["s0", 1, 4]>>'
    lines = (
        unary("exp", "x", "a", rows),
        f"%b = xnnpack.static_reshape(%a, new_shape=[0, 2, 4]) : ({rows}) -> {split}",
        f"%y = xnnpack.static_slice(%b, offsets=[0, 1, 0], sizes=[0, 1, 4]) : ({split}) -> {part}",
    )
    assert apply(method(f"%x: {rows}", *lines, gives=part), NarrowToWhatIsRead()).count == 0


@pytest.mark.parametrize(
    ("before", "after", "groups"),
    [
        ((4, 6), (4, 2, 3), [((0,), (0,)), ((1,), (1, 2))]),
        ((2, 2), (4,), [((0, 1), (0,))]),
        ((1, 4), (4, 1), [((1,), (0,))]),
        ((4, 6), (6, 4), [((0, 1), (0, 1))]),
        ((3, 4, 4), (3, 4, 4), [((0,), (0,)), ((1,), (1,)), ((2,), (2,))]),
    ],
)
def test_axes_of_a_reshape_are_matched_by_the_order_of_elements(
    before: tuple[int, ...], after: tuple[int, ...], groups: list[Any]
):
    assert aligned(before, after) == groups


def joined(count: int, *, rows: tuple[int, int]) -> tuple[list[str], str]:
    """`count` tensors made of `%x`, one after another, and a slice of rows of them as `%y`."""
    parts = [linear("x", f"p{index}") for index in range(count)]
    names = ", ".join(f"%p{index}" for index in range(count))
    held = f"tensor<1x{6 * count}x8xf32>"
    start, stop = rows
    gives = f"tensor<1x{stop - start}x8xf32>"
    types = ", ".join([X] * count)
    cat = f"%c = xnnpack.concatenate{count}({names}, axis=1) : ({types}) -> {held}"
    cut = (
        f"%y = xnnpack.static_slice(%c, offsets=[0, {start}, 0], sizes=[1, {stop - start}, 8])"
        f" : ({held}) -> {gives}"
    )
    return [*parts, cat, cut], gives


def test_of_tensors_one_after_another_those_that_nobody_reads_are_not_made(apply: Any, method: Any):
    lines, gives = joined(3, rows=(13, 15))
    done = apply(method(f"%x: {X}", WEIGHT, *lines, gives=gives), NarrowToWhatIsRead())
    assert done.ops() == ["xnnpack.static_slice", "xnnpack.fully_connected"]
    assert shapes(done, "fully_connected") == ["tensor<1x2x8xf32>"]


def test_what_is_read_of_two_neighbors_is_put_together(apply: Any, method: Any):
    lines, gives = joined(4, rows=(5, 8))
    done = apply(method(f"%x: {X}", WEIGHT, *lines, gives=gives), NarrowToWhatIsRead())
    assert sorted(shapes(done, "fully_connected")) == [ROW, "tensor<1x2x8xf32>"]
    assert shapes(done, "concatenate2") == ["tensor<1x3x8xf32>"]


def test_on_another_axis_all_tensors_are_read_in_part(apply: Any, method: Any):
    lines = (
        linear("x", "a"),
        linear("a", "b"),
        f"%c = xnnpack.concatenate2(%a, %b, axis=2) : ({X}, {X}) -> tensor<1x6x16xf32>",
        "%y = xnnpack.static_slice(%c, offsets=[0, 2, 0], sizes=[1, 1, 16])"
        " : (tensor<1x6x16xf32>) -> tensor<1x1x16xf32>",
    )
    done = apply(
        method(f"%x: {X}", WEIGHT, *lines, gives="tensor<1x1x16xf32>"), NarrowToWhatIsRead()
    )
    assert shapes(done, "fully_connected") == [ROW, ROW]


def test_tensors_of_any_length_one_after_another_are_made_whole(apply: Any, method: Any):
    late = 'tensor<1x?x8xf32, #stepwell.shape<[1, "n", 8]>>'
    both = 'tensor<1x?x8xf32, #stepwell.shape<[1, "n + 6", 8]>>'
    lines = (
        f"%a = xnnpack.exp(%z) : ({late}) -> {late}",
        linear("x", "b"),
        f"%c = xnnpack.concatenate2(%b, %a, axis=1) : ({X}, {late}) -> {both}",
        f"%y = xnnpack.static_slice(%c, offsets=[0, 0, 0], sizes=[1, 1, 8]) : ({both}) -> {ROW}",
    )
    text = method(f"%x: {X}, %z: {late}", WEIGHT, *lines, gives=ROW)
    assert apply(text, NarrowToWhatIsRead()).count == 0

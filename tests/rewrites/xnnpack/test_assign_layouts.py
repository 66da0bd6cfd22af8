"""AssignLayouts: transposes stand where a minimum cut puts them, axes are followed by order."""

import random
from itertools import product
from math import prod
from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.ir.axes.forms import reshaped
from stepwell.ir.axes.maps import AxisMap, Order
from stepwell.ir.sizes.size_text import dim_of
from stepwell.translate.layout.table import are_alike
from stepwell.translate.rewrites.documentation import module_of
from stepwell.translate.rewrites.xnnpack import MERGES
from stepwell.translate.rewrites.xnnpack.partitioning.assign_layouts import AssignLayouts, stretches

LAST, FIRST = "tensor<1x6x5x8xf32>", "tensor<1x8x6x5xf32>"
BACK, TO = (0, 3, 1, 2), (0, 2, 3, 1)


def reshaped_order(before: Any, after: Any, order: Order) -> Order | None:
    """The order of a reshape's result if its input has `order`."""
    return AxisMap(after, (before,), (reshaped(before, after),)).order_after(0, order)


def turn(given: str, made: str, perm: tuple[int, ...], before: str, after: str) -> str:
    return (
        f"%{made} = xnnpack.static_transpose(%{given}, perm={list(perm)}) : ({before}) -> {after}"
    )


def unary(kind: str, given: str, made: str, type_: str = FIRST) -> str:
    return f"%{made} = xnnpack.{kind}(%{given}) : ({type_}) -> {type_}"


def binary(kind: str, one: str, other: str, made: str, types: tuple[str, str], result: str) -> str:
    return f"%{made} = xnnpack.{kind}(%{one}, %{other}) : ({types[0]}, {types[1]}) -> {result}"


def placed(apply: Any, text: str) -> Any:
    """The text with its transposes placed and merged, twice as in the pipeline."""
    for _ in range(2):
        text = apply(apply(text, AssignLayouts()).text, *MERGES).text
    return apply(text, *MERGES)


def transposes(done: Any) -> int:
    return done.ops().count("xnnpack.static_transpose")


def test_the_documented_example_loses_both_transposes(apply: Any):
    before = module_of("xnnpack.partitioning.assign_layouts").__doc__ or ""
    text = before[before.index("Before:") + 7 : before.index("After,")]
    assert transposes(placed(apply, text)) == 0


@pytest.mark.parametrize("length", [1, 7, 200])
def test_chains_of_any_length_work_before_the_transpose(length: int, apply: Any, method: Any):
    lines = [turn("x", "v0", BACK, LAST, FIRST)]
    lines += [unary("abs", f"v{i}", f"v{i + 1}") for i in range(length)]
    lines.append(turn(f"v{length}", "y", TO, FIRST, LAST))
    assert transposes(placed(apply, method(f"%x: {LAST}", *lines, gives=LAST))) == 0


def test_a_residual_of_two_channels_last_branches_stays_channels_last(apply: Any, method: Any):
    lines = (
        turn("x", "a", BACK, LAST, FIRST),
        turn("z", "b", BACK, LAST, FIRST),
        binary("add", "a", "b", "c", (FIRST, FIRST), FIRST),
        unary("tanh", "c", "d"),
        binary("add", "c", "d", "e", (FIRST, FIRST), FIRST),
        turn("e", "y", TO, FIRST, LAST),
    )
    assert transposes(placed(apply, method(f"%x: {LAST}, %z: {LAST}", *lines, gives=LAST))) == 0


def test_an_operand_in_the_other_order_is_transposed_where_it_is_smallest(apply: Any, method: Any):
    gate = "tensor<1x8x1x5xf32>"
    lines = (
        turn("x", "a", BACK, LAST, FIRST),
        unary("sigmoid", "g", "h", gate),
        binary("multiply", "a", "h", "c", (FIRST, gate), FIRST),
        turn("c", "y", TO, FIRST, LAST),
    )
    done = placed(apply, method(f"%x: {LAST}, %g: {gate}", *lines, gives=LAST))
    assert transposes(done) == 1
    assert f"static_transpose(%h, perm=[0, 2, 3, 1]) : ({gate})" in done.text


def test_a_squeezed_gate_needs_no_reshape_between_channels_last_layers(apply: Any, method: Any):
    last, first = "tensor<1x1x1x8xf32>", "tensor<1x8x1x1xf32>"
    lines = (
        turn("g", "a", BACK, last, first),
        unary("sigmoid", "a", "b", first),
        turn("x", "c", BACK, LAST, FIRST),
        binary("multiply", "c", "b", "d", (FIRST, first), FIRST),
        turn("d", "y", TO, FIRST, LAST),
    )
    done = placed(apply, method(f"%x: {LAST}, %g: {last}", *lines, gives=LAST))
    assert done.ops() == ["xnnpack.sigmoid", "xnnpack.multiply"]


def test_constants_follow_at_compile_time_whatever_their_rank(apply: Any, method: Any):
    lines = (
        f'%k = stepwell.weight <"k"> "constant" : {FIRST}',
        '%s = stepwell.weight <"s"> "constant" : tensor<6x1xf32>',
        turn("x", "a", BACK, LAST, FIRST),
        binary("add", "a", "k", "b", (FIRST, FIRST), FIRST),
        binary("multiply", "b", "s", "c", (FIRST, "tensor<6x1xf32>"), FIRST),
        turn("c", "y", TO, FIRST, LAST),
    )
    assert placed(apply, method(f"%x: {LAST}", *lines, gives=LAST)).ops() == [
        "xnnpack.add",
        "xnnpack.multiply",
    ]


def test_a_restore_that_does_not_restore_keeps_a_transpose(apply: Any, method: Any):
    other = "tensor<1x5x6x8xf32>"
    lines = (
        turn("x", "a", BACK, LAST, FIRST),
        unary("tanh", "a", "b"),
        turn("b", "y", (0, 3, 2, 1), FIRST, other),
    )
    assert transposes(placed(apply, method(f"%x: {LAST}", *lines, gives=other))) == 1


def test_a_softmax_over_the_moved_axis_stays_where_it_is(apply: Any, method: Any):
    lines = (
        turn("x", "a", BACK, LAST, FIRST),
        unary("softmax", "a", "b"),
        turn("b", "y", TO, FIRST, LAST),
    )
    assert transposes(placed(apply, method(f"%x: {LAST}", *lines, gives=LAST))) == 2


def test_a_linear_layer_along_another_axis_stays_where_it_is(apply: Any, method: Any):
    square = "tensor<1x4x4x4xf32>"
    lines = (
        '%w = stepwell.weight <"w"> "parameter" : tensor<4x4xf32>',
        turn("x", "a", BACK, square, square),
        binary("fully_connected", "a", "w", "b", (square, "tensor<4x4xf32>"), square),
        turn("b", "y", TO, square, square),
    )
    assert transposes(placed(apply, method(f"%x: {square}", *lines, gives=square))) == 2


def test_a_linear_layer_on_rows_passes_what_moves_rows(apply: Any, method: Any):
    square = "tensor<4x4x4xf32>"
    lines = (
        '%w = stepwell.weight <"w"> "parameter" : tensor<4x4xf32>',
        turn("x", "a", (1, 0, 2), square, square),
        binary("fully_connected", "a", "w", "b", (square, "tensor<4x4xf32>"), square),
        turn("b", "y", (1, 0, 2), square, square),
    )
    assert transposes(placed(apply, method(f"%x: {square}", *lines, gives=square))) == 0


def test_slices_pads_and_joins_take_their_axes_along(apply: Any, method: Any):
    cut, wide = "tensor<1x8x2x5xf32>", "tensor<1x8x4x5xf32>"
    lines = (
        turn("x", "a", BACK, LAST, FIRST),
        f"%b = xnnpack.static_slice(%a, offsets=[0, 0, 3, 0], sizes=[1, 8, 2, 5]) : ({FIRST}) -> {cut}",
        f"%c = xnnpack.concatenate2(%b, %b, axis=2) : ({cut}, {cut}) -> {wide}",
        "%d = xnnpack.static_constant_pad(%c, pre_paddings=[0, 0, 1, 0], post_paddings=[0, 0, 1, 0],"
        f" padding_value=0.5) : ({wide}) -> {FIRST}",
        turn("d", "y", TO, FIRST, LAST),
    )
    assert transposes(placed(apply, method(f"%x: {LAST}", *lines, gives=LAST))) == 0


def test_a_transpose_does_not_pass_a_reshape_that_splits_what_it_moves(apply: Any, method: Any):
    flat = "tensor<1x48x5xf32>"
    lines = (
        unary("tanh", "x", "a", flat),
        f"%b = xnnpack.static_reshape(%a, new_shape=[1, 8, 6, 5]) : ({flat}) -> {FIRST}",
        turn("b", "y", TO, FIRST, LAST),
    )
    assert transposes(placed(apply, method(f"%x: {flat}", *lines, gives=LAST))) == 1


def test_a_value_read_in_both_orders_is_transposed_once(apply: Any, method: Any):
    lines = (
        turn("x", "a", BACK, LAST, FIRST),
        unary("tanh", "a", "b"),
        turn("b", "c", TO, FIRST, LAST),
        unary("exp", "c", "y", LAST),
    )
    text = method(f"%x: {LAST}", *lines, gives=LAST)
    text = text.replace(f"-> {LAST} {{\n", f"-> ({LAST}, {FIRST}) {{\n", 1)
    text = text.replace(f"return %y : {LAST}", f"return %y, %b : {LAST}, {FIRST}")
    assert transposes(placed(apply, text)) == 1


@pytest.mark.parametrize("length", [0, 1, 40])
def test_nothing_is_done_behind_an_order_that_moves_no_axis(
    length: int, apply: Any, method: Any
) -> None:
    """Where only an axis of size one is moved, a reshape has the axes as they are before it."""
    row, heads, apart = "tensor<1x1x12xf32>", "tensor<1x1x3x4xf32>", "tensor<1x3x1x4xf32>"
    body = [turn("x", "a", (0, 2, 1, 3), apart, heads)]
    body += [f"%v0 = xnnpack.static_reshape(%a, new_shape=[1, 1, 12]) : ({heads}) -> {row}"]
    body += [unary("abs", f"v{i}", f"v{i + 1}", row) for i in range(length)]
    body += [
        f"%h = xnnpack.static_reshape(%v{length}, new_shape=[1, 1, 3, 4]) : ({row}) -> {heads}",
        turn("h", "y", (0, 2, 1, 3), heads, apart),
    ]
    done = apply(method(f"%x: {apart}", *body, gives=apart), AssignLayouts())
    assert done.count <= 2  # The reshapes, and no node between them.


@pytest.mark.parametrize(
    ("before", "after", "order", "found"),
    [
        ((1, 8, 6, 5), (1, 8, 30), (0, 3, 1, 2), (0, 2, 1)),
        ((1, 8, 30), (1, 8, 6, 5), (0, 2, 1), (0, 3, 1, 2)),
        ((1, 8, 6, 5), (1, 48, 5), (0, 3, 1, 2), None),
        ((1, 8, 6, 5), (1, 48, 5), (0, 1, 3, 2), None),
        ((2, 3, 5, 7), (6, 35), (0, 3, 2, 1), None),
        ((2, 2, 2), (4, 2), (1, 0, 2), None),
        ((2, 2, 2), (4, 2), (1, 2, 0), (1, 0)),
        ((1, 2, 3, 4), (12, 2), (0, 3, 1, 2), None),
        ((4, 4, 4), (4, 2, 2, 4), (2, 1, 0), (3, 1, 2, 0)),
        (("n", 4), (4, "n"), (1, 0), None),
        (("n", 4), (8,), (1, 0), None),
        ((8,), ("n", 4), (0,), None),
        ((2, 3, "n"), (2, 3, 1, "n"), (0, 2, 1), (0, 3, 2, 1)),
        ((6, "n"), (2, 3, "n"), (1, 0), (1, 2, 0)),
        (("n", 6), ("n", 2, 3), (1, 0), (2, 0, 1)),
        ((2, "n"), ("2*n",), (0, 1), (0,)),
        ((2, "n"), ("2*n",), (1, 0), None),
        ((4, "n"), (2, "2*n"), (0, 1), (0, 1)),
        ((4, "n"), (2, "3*n"), (0, 1), None),
    ],
)
def test_a_reshape_carries_an_order_by_the_order_of_elements(
    before: tuple[Any, ...],
    after: tuple[Any, ...],
    order: tuple[int, ...],
    found: tuple[int, ...] | None,
):
    before, after = (tuple(dim_of(str(size)) for size in shape) for shape in (before, after))
    assert reshaped_order(before, after, order) == found


def test_an_order_that_passes_a_reshape_comes_back() -> None:
    """Up to where axes of size one stand, whatever the shapes."""
    draw = random.Random(0)
    shapes = [s for rank in range(1, 5) for s in product((1, 2, 3, 4, 6), repeat=rank)]
    passed = 0
    for _ in range(4000):
        after = draw.choice(shapes)
        before = draw.choice([s for s in shapes if prod(s) == prod(after)])
        order = tuple(draw.sample(range(len(after)), len(after)))
        found = reshaped_order(after, before, order)
        if found is not None:
            again = reshaped_order(before, after, found)
            assert again is not None and are_alike(after, again, order)
            passed += 1
    assert passed > 1000


test_assign_layouts = cases(AssignLayouts)("""
an op of another level that reads a transposed value stays -> applied 0 times
    %n = aten.sym_size.int(%z: f32[1, 8, n, 5], 2); %x: f32[1, 1, 5, 8]
    %a = xnnpack.static_transpose(%x, perm=[0, 3, 1, 2]) : (f32[1, 1, 5, 8]) -> f32[1, 8, 1, 5]
    %y = aten.expand.default(%a, [1, 8, %n, 5])
""")


def test_one_element_of_fewer_axes_passes_no_order_on(apply: Any, method: Any):
    one, few = "tensor<1x1x1x1xf32>", "tensor<f32>"
    lines = (
        turn("x", "a", BACK, LAST, FIRST),
        f"%r = xnnpack.static_reshape(%z, new_shape=[1]) : ({one}) -> tensor<1xf32>",
        f"%s = xnnpack.static_reshape(%r, new_shape=[]) : (tensor<1xf32>) -> {few}",
        binary("subtract", "a", "s", "b", (FIRST, few), FIRST),
        turn("b", "y", TO, FIRST, LAST),
    )
    assert transposes(placed(apply, method(f"%x: {LAST}, %z: {one}", *lines, gives=LAST))) == 0


def quarters(axis: int, method: Any) -> str:
    """Quarters of a channels-last image along an axis of the image, and their sum channels-last."""
    shape = [1, 32, 16, 16]
    part = [size // 4 if at == axis else size for at, size in enumerate(shape)]
    whole, held = ("tensor<" + "x".join(map(str, s)) + "xf32>" for s in (shape, part))
    result = "tensor<" + "x".join(str(part[at]) for at in TO) + "xf32>"
    lines = [turn("x", "v", BACK, "tensor<1x16x16x32xf32>", whole)]
    for at in range(4):
        offsets = [at * part[axis] if a == axis else 0 for a in range(4)]
        of = f"%v, offsets={offsets}, sizes={part}) : ({whole}) -> {held}"
        lines += [f"%s{at} = xnnpack.static_slice({of}", unary("tanh", f"s{at}", f"q{at}", held)]
    for at in range(1, 4):
        left = "q0" if at == 1 else f"a{at - 1}"
        lines.append(binary("multiply", left, f"q{at}", f"a{at}", (held, held), held))
    lines.append(turn("a3", "y", TO, held, result))
    return str(method("%x: tensor<1x16x16x32xf32>", *lines, gives=result))


def test_channels_are_cut_where_they_are_planes(apply: Any, method: Any) -> None:
    assert transposes(placed(apply, quarters(1, method))) == 2


def test_rows_of_pixels_are_cut_channels_last(apply: Any, method: Any) -> None:
    assert transposes(placed(apply, quarters(2, method))) == 0


@pytest.mark.parametrize(
    ("part", "count"),
    [((2, 4, 6), 1), ((1, 4, 6), 1), ((2, 3, 6), 2), ((2, 4, 5), 8), ((1, 3, 5), 3)],
)
def test_a_part_is_so_many_stretches(part: tuple[int, ...], count: int) -> None:
    assert stretches((2, 4, 6), part) == count

"""A slice goes ahead of a layout op only where it cuts the leading part of one axis."""

from typing import Any

import pytest

from stepwell.translate.rewrites.slices import hoist_slice_over_layout

X, V, LATE = "tensor<4x6xf32>", "tensor<4x2x3xf32>", "tensor<?x6xf32>"
VIEW = f"%v = aten.view.default(%x, [4, 2, 3]) : ({X}) -> {V}"
N = '!stepwell.int<"n">'


def late(*dims: str) -> str:
    """The type of a tensor with a symbolic dimension `n`."""
    held = "x".join(d if d.isdigit() else "?" for d in dims)
    return f"tensor<{held}xf32, #stepwell.shape<[{', '.join(d if d.isdigit() else repr(d) for d in dims)}]>>".replace(
        "'", '"'
    )


def sliced(how: str, given: str, made: str) -> str:
    """The slice of `%v`."""
    more = f", {N}" * how.count("%n")
    return f"%y = aten.slice.Tensor(%v, {how}) : ({given}{more}) -> {made}"


def test_the_leading_part_of_an_axis_is_cut_before_the_view(apply: Any, method: Any):
    made = "tensor<4x1x3xf32>"
    done = apply(
        method(f"%x: {X}", VIEW, sliced("1, 1, 2", V, made), gives=made), hoist_slice_over_layout
    )
    assert done.ops() == ["aten.slice.Tensor", "aten.view.default"]


def test_an_axis_without_elements_behind_it_has_no_leading_part(refused: Any, method: Any):
    view = "%v = aten.view.default(%x, [4, 0, 1]) : (tensor<4x0xf32>) -> tensor<4x0x1xf32>"
    made = "tensor<2x0x1xf32>"
    text = method(
        "%x: tensor<4x0xf32>", view, sliced("0, 0, 2", "tensor<4x0x1xf32>", made), gives=made
    )
    refused(text, hoist_slice_over_layout, "leading")


NEAR_MISSES = {
    "the trailing part of an axis": ("2, 0, 2", "tensor<4x2x2xf32>", "leading part"),
    "steps": ("1, 0, 2, 2", "tensor<4x1x3xf32>", ""),
    "a start of run time": ("0, %n", "tensor<0x2x3xf32>", ""),
    "an end of run time": ("0, 0, %n", "tensor<4x2x3xf32>", ""),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_behind_the_view_stay(name: str, refused: Any, method_of_n: Any):
    how, made, reason = NEAR_MISSES[name]
    text = method_of_n(f"%x: {X}", VIEW, sliced(how, V, made), gives=made)
    refused(text, hoist_slice_over_layout, reason)


def test_a_slice_of_a_symbolic_axis_stays(refused: Any, method: Any):
    x, v = late("n", "6"), late("6", "n")
    made = "tensor<6x2xf32>"
    permute = f"%v = aten.permute.default(%x, [1, 0]) : ({x}) -> {v}"
    refused(
        method(f"%x: {x}", permute, sliced("1, 0, 2", v, made), gives=made), hoist_slice_over_layout
    )


def test_a_slice_to_nothing_of_a_symbolic_length_is_refused(refused: Any, method: Any):
    x, v, made = late("n", "6"), late("n", "2", "3"), late("n", "0", "3")
    view = f"%v = aten.view.default(%x, [-1, 2, 3]) : ({x}) -> {v}"
    text = method(f"%x: {x}", view, sliced("1, 0, 0", v, made), gives=made)
    refused(text, hoist_slice_over_layout, "empty")


def test_a_view_that_is_read_whole_too_keeps_its_slices(refused: Any, method: Any):
    one, made = "tensor<4x1x3xf32>", V
    both = f"%y = aten.add.Tensor(%v, %s) : ({V}, {one}) -> {made}"
    cut = sliced("1, 1, 2", V, one).replace("%y", "%s")
    refused(method(f"%x: {X}", VIEW, cut, both, gives=made), hoist_slice_over_layout)


def test_parts_that_are_together_the_whole_are_cut_where_they_are(refused: Any, method: Any):
    """Each would be permuted for itself: no less is moved."""
    made = "tensor<3x4xf32>"
    lines = (
        f"%v = aten.permute.default(%x, [1, 0]) : ({X}) -> tensor<6x4xf32>",
        f"%a = aten.slice.Tensor(%v, 0, 0, 3) : (tensor<6x4xf32>) -> {made}",
        f"%b = aten.slice.Tensor(%v, 0, 3, 6) : (tensor<6x4xf32>) -> {made}",
        f"%y = aten.sub.Tensor(%a, %b) : ({made}, {made}) -> {made}",
    )
    refused(method(f"%x: {X}", *lines, gives=made), hoist_slice_over_layout, "no less would")


def test_parts_of_a_layers_outputs_are_cut_ahead_of_a_permute(apply: Any, method: Any):
    made = "tensor<3x4xf32>"
    lines = (
        '%w = stepwell.weight <"w"> "parameter" : tensor<6x5xf32>',
        f"%l = aten.linear.default(%i, %w) : (tensor<4x5xf32>, tensor<6x5xf32>) -> {X}",
        f"%v = aten.permute.default(%l, [1, 0]) : ({X}) -> tensor<6x4xf32>",
        f"%a = aten.slice.Tensor(%v, 0, 0, 3) : (tensor<6x4xf32>) -> {made}",
        f"%b = aten.slice.Tensor(%v, 0, 3, 6) : (tensor<6x4xf32>) -> {made}",
        f"%y = aten.sub.Tensor(%a, %b) : ({made}, {made}) -> {made}",
    )
    assert (
        apply(method("%i: tensor<4x5xf32>", *lines, gives=made), hoist_slice_over_layout).count == 2
    )


def test_a_part_of_what_is_laid_out_whole_elsewhere_is_cut_where_it_is(refused: Any, method: Any):
    """Keys of an attention in blocks: one block reads some of them, another all."""
    turned, made = "tensor<6x4xf32>", "tensor<6x4xf32>"
    lines = (
        f"%v = aten.permute.default(%x, [1, 0]) : ({X}) -> {turned}",
        f"%a = aten.slice.Tensor(%v, 0, 0, 1) : ({turned}) -> tensor<1x4xf32>",
        f"%w = aten.permute.default(%x, [1, 0]) : ({X}) -> {turned}",
        f"%y = aten.sub.Tensor(%w, %a) : ({turned}, tensor<1x4xf32>) -> {made}",
    )
    refused(method(f"%x: {X}", *lines, gives=made), hoist_slice_over_layout, "no less would")


def test_a_layout_op_cut_into_very_many_parts_is_left_and_its_readers_are_not_counted(
    refused: Any, method: Any
):
    """Each slice would count all others: what a thousand steps of a recurrence may not cost."""
    x, turned, made = "tensor<4x99xf32>", "tensor<99x4xf32>", "tensor<1x4xf32>"
    cuts = [
        f"%s{at} = aten.slice.Tensor(%v, 0, {at}, {at + 1}) : ({turned}) -> {made}"
        for at in range(70)
    ]
    parts = ", ".join(f"%s{at}" for at in range(70))
    types = ", ".join([made] * 70)
    lines = (
        f"%v = aten.permute.default(%x, [1, 0]) : ({x}) -> {turned}",
        *cuts,
        f"%y = aten.cat.default([{parts}], 0) : ({types}) -> tensor<70x4xf32>",
    )
    text = method(f"%x: {x}", *lines, gives="tensor<70x4xf32>")
    refused(text, hoist_slice_over_layout, "no less would")

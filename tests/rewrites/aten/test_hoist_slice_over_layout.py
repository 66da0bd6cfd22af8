"""A slice goes ahead of a layout op only where it cuts the leading part of one axis."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.rewrites.slices import hoist_slice_over_layout

X, V, LATE = "tensor<4x6xf32>", "tensor<4x2x3xf32>", "tensor<?x6xf32>"
VIEW = f"%v = aten.view.default(%x, [4, 2, 3]) : ({X}) -> {V}"
N = '!stepwell.int<"n">'


def sliced(how: str, given: str, made: str) -> str:
    """The slice of `%v`."""
    more = f", {N}" * how.count("%n")
    return f"%y = aten.slice.Tensor(%v, {how}) : ({given}{more}) -> {made}"


test_hoist_slice_over_layout = cases(hoist_slice_over_layout)("""
the leading part of an axis is cut before the view -> aten.slice.Tensor, aten.view.default
    %v = aten.view.default(%x: f32[4, 6], [4, 2, 3]); %y = aten.slice.Tensor(%v, 1, 1, 2)
an axis without elements after it has no leading part -> refused: leading
    %v = aten.view.default(%x: f32[4, 0], [4, 0, 1]); %y = aten.slice.Tensor(%v, 0, 0, 2)
a slice of a symbolic axis -> unchanged
    %v = aten.permute.default(%x: f32[n, 6], [1, 0]); %y = aten.slice.Tensor(%v, 1, 0, 2)
a slice to nothing of a symbolic length -> refused: empty
    %v = aten.view.default(%x: f32[n, 6], [-1, 2, 3]); %y = aten.slice.Tensor(%v, 1, 0, 0)
a view that is read whole too keeps its slices -> unchanged
    %v = aten.view.default(%x: f32[4, 6], [4, 2, 3]); %s = aten.slice.Tensor(%v, 1, 1, 2)
    %y = aten.add.Tensor(%v, %s)
parts that are together the whole are cut where they are -> refused: no less would
    # Each would be permuted for itself: no less is moved.
    %v = aten.permute.default(%x: f32[4, 6], [1, 0]); %a = aten.slice.Tensor(%v, 0, 0, 3)
    %b = aten.slice.Tensor(%v, 0, 3, 6); %y = aten.sub.Tensor(%a, %b)
parts of a layers outputs are cut ahead of a permute -> applied 2 times
    %l = aten.linear.default(%i: f32[4, 5], %w: weight f32[6, 5])
    %v = aten.permute.default(%l, [1, 0]); %a = aten.slice.Tensor(%v, 0, 0, 3)
    %b = aten.slice.Tensor(%v, 0, 3, 6); %y = aten.sub.Tensor(%a, %b)
a part of what is laid out whole elsewhere is cut where it is -> refused: no less would
    # Keys of an attention in blocks: one block reads some of them, another all.
    %v = aten.permute.default(%x: f32[4, 6], [1, 0]); %a = aten.slice.Tensor(%v, 0, 0, 1)
    %w = aten.permute.default(%x, [1, 0]); %y = aten.sub.Tensor(%w, %a)
""")


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

"""A slice goes ahead of a layout op only where it cuts the leading part of one axis."""

from typing import Any

from rewrite_cases import cases

from stepwell.translate.rewrites.slices import hoist_slice_over_layout

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


test_behind_the_view_stay = cases(hoist_slice_over_layout)("""
the trailing part of an axis -> refused: leading part
    %v = aten.view.default(%x: f32[4, 6], [4, 2, 3]); %y = aten.slice.Tensor(%v, 2, 0, 2)
steps -> unchanged
    %v = aten.view.default(%x: f32[4, 6], [4, 2, 3]); %y = aten.slice.Tensor(%v, 1, 0, 2, 2)
a start or an end of run time -> unchanged
    - %v = aten.view.default(%x: f32[4, 6], [4, 2, 3]); %n: int<n>
      %y = aten.slice.Tensor(%v, 0, %n) -> f32[0, 2, 3]
    - %v = aten.view.default(%x: f32[4, 6], [4, 2, 3]); %n: int<n>
      %y = aten.slice.Tensor(%v, 0, 0, %n) -> f32[4, 2, 3]
""")


def test_a_layout_op_cut_into_very_many_parts_is_left_and_its_readers_are_not_counted(refused: Any):
    """Each slice would count all others: what a thousand steps of a recurrence may not cost."""
    cuts = "; ".join(f"%s{at} = aten.slice.Tensor(%v, 0, {at}, {at + 1})" for at in range(70))
    parts = ", ".join(f"%s{at}" for at in range(70))
    text = f"""
        %v = aten.permute.default(%x: f32[4, 99], [1, 0]); {cuts}
        %y = aten.cat.default([{parts}], 0)
    """
    refused(text, hoist_slice_over_layout, "no less would")

"""NarrowToWhatIsRead: what is computed of a tensor read in part, and where nothing is gained."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.ir.axes.alignment import aligned
from stepwell.translate.rewrites.xnnpack.partitioning.narrow_to_what_is_read import (
    NarrowToWhatIsRead,
)

X, ROW = "tensor<1x6x8xf32>", "tensor<1x1x8xf32>"


def shapes(done: Any, kind: str) -> list[str]:
    return [
        str(op.results[0].type) for op in done.program.module.walk() if op.name == f"xnnpack.{kind}"
    ]


test_narrow_to_what_is_read = cases(NarrowToWhatIsRead)("""
the documented before becomes the documented after -> xnnpack.static_slice, xnnpack.exp
    %a = xnnpack.exp(%x: f32[1, 5, 4])
    %y = xnnpack.static_slice(%a, offsets=[0, 0, 0], sizes=[1, 1, 4])
what is read whole elsewhere is computed whole -> applied 0 times
    %a = xnnpack.fully_connected(%x: f32[1, 6, 8], %w: weight f32[8, 8])
    %b = xnnpack.static_slice(%a, offsets=[0, 2, 0], sizes=[1, 1, 8]); %y = xnnpack.add(%a, %b)
parts that make the whole narrow nothing -> applied 0 times
    %a = xnnpack.exp(%x: f32[1, 6, 8])
    %b = xnnpack.static_slice(%a, offsets=[0, 0, 0], sizes=[1, 3, 8])
    %c = xnnpack.static_slice(%a, offsets=[0, 3, 0], sizes=[1, 3, 8]); %y = xnnpack.add(%b, %c)
a softmax over the sliced axis stays whole -> applied 0 times
    %a = xnnpack.softmax(%x: f32[1, 6, 8])
    %y = xnnpack.static_slice(%a, offsets=[0, 0, 2], sizes=[1, 6, 2])
a slice that saves less than two slices cost stays -> applied 0 times
    %a = xnnpack.add(%x: f32[1, 6, 8], %z: f32[1, 6, 8])
    %y = xnnpack.static_slice(%a, offsets=[0, 1, 0], sizes=[1, 5, 8])
a reshape of symbolic rows is computed whole -> applied 0 times
    %a = xnnpack.exp(%x: f32[s0, 8])
    %b = xnnpack.static_reshape(%a, new_shape=[0, 2, 4]) -> f32[s0, 2, 4]
    %y = xnnpack.static_slice(%b, offsets=[0, 1, 0], sizes=[0, 1, 4])
tensors of any length one after another are made whole -> applied 0 times
    %a = xnnpack.exp(%z: f32[1, n, 8])
    %b = xnnpack.fully_connected(%x: f32[1, 6, 8], %w: weight f32[8, 8])
    %c = xnnpack.concatenate2(%b, %a, axis=1)
    %y = xnnpack.static_slice(%c, offsets=[0, 0, 0], sizes=[1, 1, 8])
""")


def test_a_residual_block_read_in_one_row_computes_that_row(apply: Any):
    done = apply(
        """
        %a = xnnpack.fully_connected(%x: f32[1, 6, 8], %w: weight f32[8, 8]); %b = xnnpack.gelu(%a)
        %c = xnnpack.fully_connected(%b, %w); %d = xnnpack.add(%x, %c)
        %y = xnnpack.static_slice(%d, offsets=[0, 2, 0], sizes=[1, 1, 8])
        """,
        NarrowToWhatIsRead(),
    )
    assert shapes(done, "static_slice") == [ROW]
    assert {*shapes(done, "fully_connected"), *shapes(done, "gelu"), *shapes(done, "add")} == {ROW}


def test_attention_read_in_one_row_has_one_query_and_all_keys(apply: Any):
    done = apply(
        """
        %q = xnnpack.fully_connected(%x: f32[1, 6, 8], %w: weight f32[8, 8])
        %s = xnnpack.batch_matrix_multiply(%q, %x, transpose_b) : (f32[1, 6, 8], f32[1, 6, 8]) -> f32[1, 6, 6]
        %p = xnnpack.softmax(%s); %o = xnnpack.batch_matrix_multiply(%p, %x)
        %y = xnnpack.static_slice(%o, offsets=[0, 2, 0], sizes=[1, 1, 8])
        """,
        NarrowToWhatIsRead(),
    )
    assert shapes(done, "softmax") == ["tensor<1x1x6xf32>"]
    assert shapes(done, "fully_connected") == [ROW]


def test_heads_are_followed_through_reshape_and_transpose(apply: Any):
    done = apply(
        """
        %a = xnnpack.fully_connected(%x: f32[1, 6, 8], %w: weight f32[8, 8])
        %h = xnnpack.static_reshape(%a, new_shape=[1, 6, 2, 4])
        %t = xnnpack.static_transpose(%h, perm=[0, 2, 1, 3])
        %y = xnnpack.static_slice(%t, offsets=[0, 0, 5, 0], sizes=[1, 2, 1, 4])
        """,
        NarrowToWhatIsRead(),
    )
    assert shapes(done, "fully_connected") == [ROW]


def test_a_constant_is_cut_at_compile_time(apply: Any):
    done = apply(
        """
        %a = xnnpack.add(%x: f32[1, 6, 8], %k: constant f32[1, 6, 8])
        %y = xnnpack.static_slice(%a, offsets=[0, 2, 0], sizes=[1, 1, 8])
        """,
        NarrowToWhatIsRead(),
    )
    assert shapes(done, "static_slice") == [ROW] and shapes(done, "add") == [ROW]


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


def test_of_tensors_one_after_another_those_that_nobody_reads_are_not_made(apply: Any):
    done = apply(
        """
        %p0 = xnnpack.fully_connected(%x: f32[1, 6, 8], %w: weight f32[8, 8])
        %p1 = xnnpack.fully_connected(%x, %w); %p2 = xnnpack.fully_connected(%x, %w)
        %c = xnnpack.concatenate3(%p0, %p1, %p2, axis=1)
        %y = xnnpack.static_slice(%c, offsets=[0, 13, 0], sizes=[1, 2, 8])
        """,
        NarrowToWhatIsRead(),
    )
    assert done.ops() == ["xnnpack.static_slice", "xnnpack.fully_connected"]
    assert shapes(done, "fully_connected") == ["tensor<1x2x8xf32>"]


def test_what_is_read_of_two_neighbors_is_put_together(apply: Any):
    done = apply(
        """
        %p0 = xnnpack.fully_connected(%x: f32[1, 6, 8], %w: weight f32[8, 8])
        %p1 = xnnpack.fully_connected(%x, %w); %p2 = xnnpack.fully_connected(%x, %w)
        %p3 = xnnpack.fully_connected(%x, %w); %c = xnnpack.concatenate4(%p0, %p1, %p2, %p3, axis=1)
        %y = xnnpack.static_slice(%c, offsets=[0, 5, 0], sizes=[1, 3, 8])
        """,
        NarrowToWhatIsRead(),
    )
    assert sorted(shapes(done, "fully_connected")) == [ROW, "tensor<1x2x8xf32>"]
    assert shapes(done, "concatenate2") == ["tensor<1x3x8xf32>"]


def test_on_another_axis_all_tensors_are_read_in_part(apply: Any):
    done = apply(
        """
        %a = xnnpack.fully_connected(%x: f32[1, 6, 8], %w: weight f32[8, 8])
        %b = xnnpack.fully_connected(%a, %w); %c = xnnpack.concatenate2(%a, %b, axis=2)
        %y = xnnpack.static_slice(%c, offsets=[0, 2, 0], sizes=[1, 1, 16])
        """,
        NarrowToWhatIsRead(),
    )
    assert shapes(done, "fully_connected") == [ROW, ROW]

"""SplitBatch: what does not stay in the cache is computed in pieces, and what must not is whole."""

from typing import Any

from rewrite_cases import cases

from stepwell.dialects.xnnpack.costs import COSTS
from stepwell.translate.rewrites.xnnpack.partitioning.split_batch import SplitBatch

IMAGES, THIN = "tensor<4x512x16x256xf32>", "tensor<4x512x16x1xf32>"
PIECE = "tensor<1x512x16x256xf32>"


def types(done: Any, kind: str) -> list[str]:
    return [
        str(op.results[0].type) for op in done.program.module.walk() if op.name == f"xnnpack.{kind}"
    ]


def test_the_documented_before_becomes_pieces(apply: Any):
    done = apply(
        """
        %a = xnnpack.batch_matrix_multiply(%x: f32[2, 16384, 1], %w: f32[1, 1, 128])
        %b = xnnpack.negate(%a)
        %y = xnnpack.batch_matrix_multiply(%b, %v: f32[1, 128, 1])
        """,
        SplitBatch(),
    )
    assert done.count == 3
    assert types(done, "negate") == ["tensor<1x16384x128xf32>"] * 2


def test_a_wide_middle_is_computed_image_by_image(apply: Any):
    done = apply(
        """
        %a = xnnpack.fully_connected(%x: f32[4, 512, 16, 1], %w: weight f32[256, 1])
        %b = xnnpack.gelu(%a)
        %y = xnnpack.fully_connected(%b, %v: weight f32[1, 256])
        """,
        SplitBatch(),
    )
    assert types(done, "gelu") == [PIECE] * 4
    assert types(done, "static_slice") == ["tensor<1x512x16x1xf32>"] * 4
    assert types(done, "concatenate4") == [THIN]


def test_pieces_are_as_many_as_fit_and_no_more(apply: Any):
    most = COSTS.cache // (4 * 1024)
    done = apply(
        """
        %a = xnnpack.batch_matrix_multiply(%x: f32[6, 591, 1], %k: f32[1, 1, 1024])
        %b = xnnpack.gelu(%a)
        %y = xnnpack.batch_matrix_multiply(%b, %l: f32[1, 1024, 1])
        """,
        SplitBatch(),
    )
    assert types(done, "gelu") == [f"tensor<3x{most // 3}x1024xf32>"] * 2


def test_what_is_read_across_the_batch_is_joined_first(apply: Any):
    turned = "tensor<512x4x16x256xf32>"
    done = apply(
        """
        %a = xnnpack.fully_connected(%x: f32[4, 512, 16, 1], %w: weight f32[256, 1])
        %b = xnnpack.gelu(%a); %t = xnnpack.static_transpose(%b, perm=[1, 0, 2, 3])
        %y = xnnpack.abs(%t)
        """,
        SplitBatch(),
    )
    assert types(done, "static_transpose") == types(done, "abs") == [turned]


test_split_batch = cases(SplitBatch)("""
one image -> applied 0 times
    %a = xnnpack.fully_connected(%x: f32[1, 2048, 16, 1], %w: weight f32[256, 1])
    %b = xnnpack.gelu(%a); %y = xnnpack.fully_connected(%b, %v: weight f32[1, 256])
images that stay in the cache -> applied 0 times
    %a = xnnpack.fully_connected(%x: f32[4, 32, 16, 1], %w: weight f32[256, 1])
    %b = xnnpack.gelu(%a); %y = xnnpack.fully_connected(%b, %v: weight f32[1, 256])
a single node between large ports stays whole -> applied 0 times
    %y = xnnpack.gelu(%x: f32[4, 512, 16, 256])
what no node is stays whole and so does all around -> applied 0 times
    %a = xnnpack.fully_connected(%x: f32[4, 512, 16, 1], %w: weight f32[256, 1])
    %b = aten.erf.default(%a); %y = xnnpack.fully_connected(%b, %v: weight f32[1, 256])
""")


def test_a_number_is_the_same_for_every_piece(apply: Any):
    done = apply(
        """
        %a = xnnpack.fully_connected(%x: f32[4, 512, 16, 1], %w: weight f32[256, 1])
        %l = xnnpack.abs(%k: f32[])
        %b = xnnpack.multiply(%a, %l)
        %y = xnnpack.fully_connected(%b, %v: weight f32[1, 256])
        """,
        SplitBatch(),
    )
    assert types(done, "multiply") == [PIECE] * 4 and types(done, "abs") == ["tensor<f32>"]

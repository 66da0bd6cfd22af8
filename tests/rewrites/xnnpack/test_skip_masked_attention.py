"""Scores that a constant mask closes are not computed, where that is worth the slices it takes."""

import math
from typing import Any

import pytest
import torch
from rewrite_cases import cases

from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.attention.skip_masked_attention import (
    AttentionSizes,
    Block,
    Scores,
    band,
    blocks_under,
    causal,
    cost,
    kept_scores,
    skip_masked_attention,
)
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants

NAME = "aten.scaled_dot_product_attention.default"
LEAST = torch.finfo(torch.float32).min

test_skip_masked_attention = cases(step(skip_masked_attention))("""
a causal mask -> applied once; contains aten.cat.default; 1 aten.mul.Scalar
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k, none, 0.0, true)
a mask that is boolean -> applied once; contains aten.cat.default; 1 aten.mul.Scalar
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k, %m: buffer "m#causal" i1[192, 192])
a mask that is added -> applied once; contains aten.cat.default; 1 aten.mul.Scalar
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k, %m: buffer "m#causal" f32[192, 192])
a mask for a head each -> applied once; contains aten.cat.default; 1 aten.mul.Scalar
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k, %m: buffer "m#causal" f32[1, 4, 192, 192])
a mask with another scale -> applied once; contains aten.cat.default; 1 aten.mul.Scalar
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k, %m: buffer "m#causal" i1[192, 192], scale=0.3)
a mask with no scale -> applied once; contains aten.cat.default; 0 aten.mul.Scalar
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k, %m: buffer "m#causal" i1[192, 192], scale=1.0)
a mask of shared keys -> applied once; contains aten.cat.default; 1 aten.mul.Scalar
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 2, 192, 32], %k, %m: buffer "m#causal" i1[192, 192], enable_gqa=true)
blocks are not cut again -> aten.mul.Scalar, aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.scaled_dot_product_attention.default, aten.slice.Tensor, aten.slice.Tensor, aten.slice.Tensor, aten.scaled_dot_product_attention.default, aten.slice.Tensor, aten.scaled_dot_product_attention.default, aten.cat.default
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 16, 512, 16], %k: f32[1, 16, 512, 16], %k, none, 0.0, true)
an attention next to another tensor is cut -> applied once
    # Not every concatenation is of blocks: this one holds the queries too.
    %a = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k, none, 0.0, true)
    %y = aten.cat.default([%a, %q], 2)
nothing masked -> unchanged
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k)
attention stays whole with -> unchanged
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k, none, 1.0, true)
a mask that is an argument -> unchanged
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k, %m: i1[192, 192])
nothing closed -> unchanged
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k, %m: buffer "m#ones" i1[192, 192])
closed rows -> refused: hides a whole row
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k, %m: buffer "m#zeros" i1[192, 192])
a length known only at run time -> refused: symbolic
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, n, 32], %k: f32[2, 4, n, 32], %k, none, 0.0, true)
a depth known only at run time -> refused: symbolic
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, n], %k: f32[2, 4, 192, n], %k, none, 0.0, true)
few tokens -> refused: cost less
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 16, 8], %k: f32[1, 2, 16, 8], %k, none, 0.0, true)
a scale computed at run time -> refused: run time
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 4, 192, 32], %k: f32[2, 4, 192, 32], %k, none, 0.0, true, scale=%s)
""")


def test_queries_after_the_last_key_look_at_all_and_need_no_mask(apply: Any) -> None:
    line = f"%y = {NAME}(%q: f32[1, 64, 384, 32], %k: f32[1, 64, 128, 32], %k, none, 0.0, true)"
    done = apply(line, step(skip_masked_attention))
    masked = [len(op.operands) for op in done.program.module.walk() if op.name == NAME]
    assert masked[0] == 4 and masked[-1] == 3


def test_keys_that_no_query_may_see_are_left_out_at_both_ends() -> None:
    kept = torch.zeros(64, 512, dtype=torch.bool)
    kept[:, 100:130] = True
    blocks = best_blocks(Scores(kept, kept), AttentionSizes(8, 8, 64, 512, 64))
    assert blocks == (Block((0, 64), (100, 130)),)


def test_a_window_that_slides_needs_a_band_of_keys() -> None:
    distance = torch.arange(1024)[:, None] - torch.arange(1024)
    kept = (distance >= 0) & (distance < 64)
    blocks = best_blocks(Scores(kept, kept), AttentionSizes(8, 8, 1024, 1024, 128))
    assert blocks is not None
    assert len(blocks) > 3
    assert all(stop - start <= 64 + rows[1] - rows[0] for rows, (start, stop) in ranges(blocks))
    assert torch.equal(covered(blocks, kept.shape) & kept, kept)


def ranges(blocks: tuple[Block, ...]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """(queries, keys) of each block."""
    return [(block.rows, block.columns) for block in blocks]


def best_blocks(scores: Scores, sizes: AttentionSizes) -> tuple[Block, ...]:
    """The blocks of least cost."""
    found = blocks_under(scores, sizes)
    assert found is not None, "the mask hides scores"
    return found.blocks[found.best]


def covered(blocks: tuple[Block, ...], shape: torch.Size) -> torch.Tensor:
    """The scores that are computed."""
    made = torch.zeros(shape, dtype=torch.bool)
    for rows, columns in ranges(blocks):
        made[slice(*rows), slice(*columns)] = True
    return made


@pytest.mark.parametrize("queries", [1, 17, 48, 200, 777])
def test_whatever_is_kept_is_computed(queries: int) -> None:
    torch.manual_seed(queries)
    kept = torch.rand(queries, 300) > 0.99
    kept[:, 70] = True
    kept[:, :60] = False
    sizes = AttentionSizes(2000, 20, queries, 300, 256)
    blocks = best_blocks(Scores(kept, kept), sizes)
    assert blocks is not None
    assert [a for (a, _), _ in ranges(blocks)[1:]] == [b for (_, b), _ in ranges(blocks)[:-1]]
    assert blocks[-1].rows[1] == queries
    assert torch.equal(covered(blocks, kept.shape) & kept, kept)
    assert cost(blocks, sizes) < cost((Block((0, queries), (0, 300)),), sizes)


def test_the_longer_the_prompt_the_more_blocks() -> None:
    counts: list[int] = []
    for length in (32, 128, 512):
        sizes = AttentionSizes(4, 4, length, length, 128)
        scores = kept_scores(causal(sizes))
        assert isinstance(scores, Scores)
        counts.append(len(best_blocks(scores, sizes) or "1"))
    assert counts == [1, 2, 3]


def test_heads_that_share_keys_ask_more_of_a_block() -> None:
    """A block of those is reshaped on its way in and out."""
    for key_heads, count in ((8, 3), (2, 2)):
        sizes = AttentionSizes(8, key_heads, 512, 512, 64)
        scores = kept_scores(causal(sizes))
        assert isinstance(scores, Scores)
        assert len(best_blocks(scores, sizes) or ()) == count


@pytest.mark.parametrize(
    ("dtype", "number", "closes"),
    [
        (torch.float32, -math.inf, True),
        (torch.float32, LEAST, True),
        (torch.float32, LEAST / 2, False),
        (torch.bfloat16, torch.finfo(torch.bfloat16).min, True),
        (torch.float16, torch.finfo(torch.float16).min, False),
        (torch.float16, -math.inf, True),
        (torch.float32, math.nan, False),
    ],
)
def test_a_number_closes_only_where_no_score_outweighs_it(
    dtype: torch.dtype, number: float, closes: bool
) -> None:
    scores = kept_scores(torch.tensor([[0.0, number]], dtype=dtype))
    assert isinstance(scores, Scores)
    assert scores.kept.tolist() == [[True, not closes]]
    assert scores.free.tolist() == [[True, False]]


@pytest.mark.parametrize("row", [[LEAST, LEAST], [LEAST, LEAST * 0.9], [-math.inf, -math.inf]])
def test_a_row_of_least_numbers_is_closed(row: list[float]) -> None:
    assert isinstance(kept_scores(torch.tensor([row, [0.0, 0.0]])), Refusal)


def test_a_score_is_kept_if_any_head_keeps_it_and_free_if_all_do() -> None:
    scores = kept_scores(torch.tensor([[[[True, False, True]]], [[[False, True, True]]]]))
    assert isinstance(scores, Scores)
    assert scores.kept.tolist() == [[True, True, True]]
    assert scores.free.tolist() == [[False, False, True]]


def test_what_a_mask_adds_to_scores_that_it_keeps_is_added(apply: Any) -> None:
    text = f"""
        %m = aten.add.Tensor(%c: buffer "c#causal" f32[384, 128], %b: buffer f32[128])
        %y = {NAME}(%q: f32[1, 64, 384, 32], %k: f32[1, 64, 128, 32], %k, %m)
    """
    done = apply(text, FoldConstants(), step(skip_masked_attention))
    parts = [op for op in done.program.module.walk() if op.name == NAME]
    assert len(parts) > 1 and all(len(op.operands) == 4 for op in parts)


@pytest.mark.parametrize("shape", [(6,), (1, 6), (4, 1), (2, 4, 6)])
def test_a_block_of_a_mask_keeps_the_axes_that_it_repeats(shape: tuple[int, ...]) -> None:
    mask = torch.randn(shape)
    block = band(mask, rows=[1, 3], columns=[2, 5])
    assert torch.equal(block.expand(2, 2, 3), mask.expand(2, 4, 6)[:, 1:3, 2:5])

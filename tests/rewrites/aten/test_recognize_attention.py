"""Attention is put together only where it computes what stood there."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.rewrites.attention.recognize_attention import RecognizeAttention

T = "tensor<1x2x4x8xf32>"
S = "tensor<1x2x4x4xf32>"
K = "tensor<1x2x8x4xf32>"


def text(
    *between: str, last: str = "scores", axis: int = -1, after: str = "", gives: str = T
) -> str:
    return "\n".join(
        (
            f"func.func @forward(%q: {T}, %k: {K}, %v: {T}, %m: {S}) -> {gives} {{",
            f"%scores = aten.matmul.default(%q, %k) : ({T}, {K}) -> {S}",
            *between,
            f"%w = aten._softmax.default(%{last}, {axis}, false) : ({S}) -> {S}",
            f"%o = aten.matmul.default(%w, %v) : ({S}, {T}) -> {T}",
            after or f"func.return %o : {T}",
            "}",
        )
    )


def test_a_scale_on_the_scores_becomes_the_scale(apply: Any) -> None:
    done = apply(
        """
        %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
        %a = aten.mul.Scalar(%scores, 0.5)
        %w = aten._softmax.default(%a, -1, false)
        %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
        """,
        RecognizeAttention(),
    )
    assert done.count == 1
    assert "scale=0.5" in done.text


test_recognize_attention = cases(
    RecognizeAttention,
    """
a softmax over another axis is no attention -> unchanged
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %w = aten._softmax.default(%scores, -2, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a mask that may close a row needs the guard -> refused: all −inf
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %b = aten.add.Tensor(%scores, %m: f32[1, 2, 4, 4])
    %w = aten._softmax.default(%b, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a scaled mask -> refused: scaled
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %b = aten.add.Tensor(%scores, %m: f32[1, 2, 4, 4])
    %c = aten.mul.Scalar(%b, 0.5)
    %w = aten._softmax.default(%c, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
weights read elsewhere keep the softmax -> refused: used elsewhere
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %w = aten._softmax.default(%scores, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
    %z = aten.sum.default(%o)
    %u = aten.sum.default(%w)
    %y = aten.add.Tensor(%u, %z)
a multiple of a mask is no mask -> refused: no mask
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %a = aten.add.Tensor(%scores, %c: constant f32[4, 4], alpha=2)
    %w = aten._softmax.default(%a, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
positions that depend on the queries are a mask -> aten.matmul.default, aten.neg.default, aten.permute.default, aten.scaled_dot_product_attention.default
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %p = aten.matmul.default(%q, %r: weight f32[8, 4])
    %n = aten.neg.default(%p)
    %a = aten.add.Tensor(%scores, %n)
    %w = aten._softmax.default(%a, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a constant mask beside bounded numbers decides which rows are open -> applied once
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %p = aten.tanh.default(%m: f32[1, 2, 4, 4])
    %n = aten.add.Tensor(%p, %c: constant "c#causal" f32[4, 4])
    %a = aten.add.Tensor(%scores, %n)
    %w = aten._softmax.default(%a, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a constant mask beside bounded numbers decides which rows are open -> refused: only at run time
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %p = aten.exp.default(%m: f32[1, 2, 4, 4])
    %n = aten.add.Tensor(%p, %c: constant "c#causal" f32[4, 4])
    %a = aten.add.Tensor(%scores, %n)
    %w = aten._softmax.default(%a, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a number of run time is no mask -> refused: no mask
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %n = aten.sym_size.int(%q, 0)
    %a = aten.add.Tensor(%scores, %n)
    %w = aten._softmax.default(%a, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a term that repeats the only key is no mask -> refused: no mask
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 1])
    %a = aten.add.Tensor(%scores, %m: f32[1, 2, 4, 4])
    %w = aten._softmax.default(%a, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
columns picked out of a mask may close a row -> refused: may cut rows
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %p = aten.index_select.default(%c: constant "c#causal" f32[4, 4], 1, %i: constant "i#ones" i64[4])
    %a = aten.add.Tensor(%scores, %p)
    %w = aten._softmax.default(%a, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
something between -> unchanged
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %w = aten._softmax.default(%scores, -1, false)
    %n = aten.neg.default(%w)
    %o = aten.matmul.default(%n, %v: f32[1, 2, 4, 8])
weights on the right -> unchanged
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %w = aten._softmax.default(%scores, -1, false)
    %o = aten.matmul.default(%k, %w)
weights regrouped -> unchanged
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %w = aten._softmax.default(%scores, -1, false)
    %n = aten.view.default(%w, [1, 2, 2, 8])
    %o = aten.matmul.default(%n, %k)
a softmax that casts is no attention -> unchanged
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %w = aten.softmax.int(%scores, -1, f64)
    %d = aten._to_copy.default(%v: f32[1, 2, 4, 8], dtype=f64)
    %o = aten.matmul.default(%w, %d)
keys shared by all heads -> refused: broadcast
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[8, 4])
    %w = aten._softmax.default(%scores, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
on the scores -> refused: adds a third
    %s = aten.baddbmm.default(%x: f32[2, 4, 4], %x, %x)
    %w = aten._softmax.default(%s, 2, false)
    %y = aten.bmm.default(%w, %x)
with the weights -> unchanged
    %s = aten.bmm.default(%x: f32[2, 4, 4], %x)
    %w = aten._softmax.default(%s, 2, false)
    %y = aten.baddbmm.default(%w, %x, %x)
""",
)


@pytest.mark.parametrize("op", ["relu", "tanh"])
def test_other_arithmetic_on_the_scores_is_no_attention(op: str, refused: Any) -> None:
    refused(text(f"%a = aten.{op}.default(%scores) : ({S}) -> {S}", last="a"), RecognizeAttention())


@pytest.mark.parametrize(
    ("sum_", "reason"),
    [
        ("add.Tensor(%m, %m)", ""),
        ("add.Tensor(%scores, %scores)", "no mask"),
        ("add.Tensor(%m, %scores, alpha=2)", "no mask"),
    ],
)
def test_a_sum_that_masks_no_product_is_no_attention(sum_: str, reason: str, refused: Any) -> None:
    refused(text(f"%a = aten.{sum_} : ({S}, {S}) -> {S}", last="a"), RecognizeAttention(), reason)


@pytest.mark.parametrize("element", ["i1", "i64", "f16"])
def test_a_term_of_another_dtype_is_no_mask(element: str, refused: Any) -> None:
    held = f"tensor<4x4x{element}>"
    term = f'%c = stepwell.weight <"c#ones"> "constant" : {held}'
    total = f"%a = aten.add.Tensor(%scores, %c) : ({S}, {held}) -> {S}"
    refused(text(term, total, last="a"), RecognizeAttention(), "no mask")


def test_a_mask_is_added_where_its_heads_stand(apply: Any) -> None:
    """Heads and batch are split for the mask and merged again for the softmax."""
    done = apply(
        """
        %p = aten.bmm.default(%q: f32[6, 4, 8], %k: f32[6, 8, 4])
        %a = aten.view.default(%p, [2, 3, 4, 4])
        %b = aten.add.Tensor(%a, %m: buffer f32[2, 1, 4, 4])
        %c = aten.view.default(%b, [6, 4, 4])
        %w = aten._softmax.default(%c, -1, false)
        %o = aten.bmm.default(%w, %v: f32[6, 4, 8])
        """,
        RecognizeAttention(),
    )
    assert done.count == 1
    assert "tensor<2x3x4x8xf32>" in done.text

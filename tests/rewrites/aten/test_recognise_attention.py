"""Attention is put together only where it computes what stood there."""

from typing import Any

import pytest

from stepwell.translate.rewrites.aten.recognise_attention import RecogniseAttention

T = "tensor<1x2x4x8xf32>"
S = "tensor<1x2x4x4xf32>"


def text(
    *between: str, last: str = "scores", axis: int = -1, after: str = "", gives: str = T
) -> str:
    return "\n".join(
        (
            f"func.func @forward(%q: {T}, %k: tensor<1x2x8x4xf32>, %v: {T}, %m: {S}) -> {gives} {{",
            f"%scores = aten.matmul.default(%q, %k) : ({T}, tensor<1x2x8x4xf32>) -> {S}",
            *between,
            f"%w = aten._softmax.default(%{last}, {axis}, false) : ({S}) -> {S}",
            f"%o = aten.matmul.default(%w, %v) : ({S}, {T}) -> {T}",
            after or f"func.return %o : {T}",
            "}",
        )
    )


SCALED = f"%a = aten.mul.Scalar(%scores, 0.5) : ({S}) -> {S}"
MASKED = f"%b = aten.add.Tensor(%{{}}, %m) : ({S}, {S}) -> {S}"


def test_a_scale_on_the_scores_becomes_the_scale(apply: Any) -> None:
    done = apply(text(SCALED, last="a"), RecogniseAttention())
    assert done.count == 1
    assert "scale=0.5" in done.text


def test_a_softmax_over_another_axis_is_no_attention(refused: Any) -> None:
    refused(text(axis=-2), RecogniseAttention())


def test_a_mask_that_may_close_a_row_needs_the_guard(refused: Any) -> None:
    refused(text(MASKED.format("scores"), last="b"), RecogniseAttention(), "all −inf")


def test_a_scaled_mask_is_refused(refused: Any) -> None:
    scaled = f"%c = aten.mul.Scalar(%b, 0.5) : ({S}) -> {S}"
    refused(text(MASKED.format("scores"), scaled, last="c"), RecogniseAttention(), "scaled")


def test_weights_read_elsewhere_keep_the_softmax(refused: Any) -> None:
    after = f"%y = aten.sum.default(%w) : ({S}) -> tensor<f32>\nfunc.return %y : tensor<f32>"
    both = text(after=after, gives="tensor<f32>")
    done = both.replace(
        "%y = aten.sum.default(%w)",
        f"%z = aten.sum.default(%o) : ({T}) -> tensor<f32>\n%u = aten.sum.default(%w)",
    ).replace(
        "func.return %y",
        "%y = aten.add.Tensor(%u, %z) : (tensor<f32>, tensor<f32>) -> tensor<f32>\nfunc.return %y",
    )
    refused(done, RecogniseAttention(), "used elsewhere")


@pytest.mark.parametrize("op", ["relu", "tanh"])
def test_other_arithmetic_on_the_scores_is_no_attention(op: str, refused: Any) -> None:
    refused(text(f"%a = aten.{op}.default(%scores) : ({S}) -> {S}", last="a"), RecogniseAttention())

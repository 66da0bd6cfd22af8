"""Attention is written out only where the plain softmax gives what torch gives."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.decompositions import attention
from stepwell.translate.lowerings.lowering import step

NAME = "aten.scaled_dot_product_attention.default"
T = "tensor<1x2x4x8xf32>"


test_expand_attention = cases(
    attention,
    """
expand-attention: a mask that closes a row -> refused: row
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %q, %q, %m: buffer "m#zeros" i1[4, 4])
expand-attention: a mask with one open cell in each row is added -> applied once
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %q, %q, %m: buffer "m#causal" i1[4, 4])
expand-attention: any number is a scale -> applied once
    - %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %q, %q, scale=0.0)
    - %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %q, %q, scale=-2.0)
expand-attention: a causal mask of more keys than queries begins at the first -> applied once
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 6, 8], %k, none, 0.0, true)
expand-attention: attention stays whole with -> refused: eval mode
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 4, 8], %k, none, 1.0)
expand-attention: a causal mask of any length -> refused: is_causal
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 4, n, 8], %k: f32[1, 4, n, 8], %k, none, 0.0, true)
expand-attention: any number of heads -> refused: number of heads
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, n, 4, 8], %k: f32[1, n, 4, 8], %k, enable_gqa=true)
expand-attention: groups of any length -> refused: queries
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 4, n, 8], %k: f32[1, 2, 4, 8], %k, enable_gqa=true)
expand-attention: a scale of any head size -> refused: head size
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, n], %k: f32[1, 2, 4, n], %k)
expand-attention: a scale of run time -> refused: run time
    %s = sym.constant 5.000000e-01 : f64 : !stepwell.float<"0.5">
    %y = aten.scaled_dot_product_attention.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 4, 8], %k, scale=%s)
""",
)


@pytest.mark.parametrize(("keys", "sees_heads"), [(6, False), (70_000, True)])
def test_the_rows_of_a_small_mask_are_repeated_for_heads_that_share_keys(
    keys: int, sees_heads: bool, apply: Any, method: Any
) -> None:
    """So that scores are never seen head by head: no view stands before the softmax."""
    k = f"tensor<1x1x{keys}x8xf32>"
    mask = f'%m = stepwell.weight <"m#causal"> "buffer" : tensor<4x{keys}xi1>'
    line = f"%y = {NAME}(%q, %k, %k, %m, enable_gqa=true) : ({T}, {k}, {k}, tensor<4x{keys}xi1>) -> {T}"
    done = apply(method(f"%q: {T}, %k: {k}", mask, line, gives=T), step(attention.expand_attention))
    ops = done.ops()
    assert ("aten.view.default" in ops[ops.index("aten.matmul.default") : -2]) == sees_heads


MASKS = {
    "a head each": "tensor<1x2x4x6xf32>",
    "one row for all": "tensor<1x6xf32>",
    "an argument": "",
}


@pytest.mark.parametrize("name", MASKS)
def test_scores_are_seen_head_by_head_where_the_mask_is(name: str, apply: Any, method: Any) -> None:
    k, type_ = "tensor<1x1x6x8xf32>", MASKS[name] or "tensor<4x6xf32>"
    given = f'%m = stepwell.weight <"m"> "buffer" : {type_}'
    line = f"%y = {NAME}(%q, %k, %k, %m, enable_gqa=true) : ({T}, {k}, {k}, {type_}) -> {T}"
    if name == "an argument":
        given = f"%m = aten.neg.default(%r) : ({type_}) -> {type_}"
    arguments = f"%q: {T}, %k: {k}" + (f", %r: {type_}" if name == "an argument" else "")
    done = apply(method(arguments, given, line, gives=T), step(attention.expand_attention))
    ops = done.ops()
    assert done.count == (name != "an argument")
    assert "aten.view.default" in ops[ops.index("aten.matmul.default") : -2] if done.count else True

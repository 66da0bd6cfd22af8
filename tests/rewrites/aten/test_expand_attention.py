"""Attention is written out only where the plain softmax gives what torch gives."""

from typing import Any

import pytest

from stepwell.translate.decompositions.aten import attention
from stepwell.translate.lowerings.lowering import step

NAME = "aten.scaled_dot_product_attention.default"
T = "tensor<1x2x4x8xf32>"


def test_a_mask_that_closes_a_row_stays(refused: Any, method: Any) -> None:
    mask = '%m = stepwell.weight <"m#zeros"> "buffer" : tensor<4x4xi1>'
    line = f"%y = {NAME}(%q, %q, %q, %m) : ({T}, {T}, {T}, tensor<4x4xi1>) -> {T}"
    refused(method(f"%q: {T}", mask, line, gives=T), step(attention.expand_attention), "row")


def test_a_mask_with_one_open_cell_in_each_row_is_added(apply: Any, method: Any) -> None:
    mask = '%m = stepwell.weight <"m#causal"> "buffer" : tensor<4x4xi1>'
    line = f"%y = {NAME}(%q, %q, %q, %m) : ({T}, {T}, {T}, tensor<4x4xi1>) -> {T}"
    assert (
        apply(method(f"%q: {T}", mask, line, gives=T), step(attention.expand_attention)).count == 1
    )


@pytest.mark.parametrize("scale", ["0.0", "-2.0"])
def test_any_number_is_a_scale(scale: str, apply: Any, method: Any) -> None:
    line = f"%y = {NAME}(%q, %q, %q, scale={scale}) : ({T}, {T}, {T}) -> {T}"
    assert apply(method(f"%q: {T}", line, gives=T), step(attention.expand_attention)).count == 1


def test_a_causal_mask_of_more_keys_than_queries_begins_at_the_first(
    apply: Any, method: Any
) -> None:
    keys = "tensor<1x2x6x8xf32>"
    line = f"%y = {NAME}(%q, %k, %k, none, 0.0, true) : ({T}, {keys}, {keys}) -> {T}"
    assert (
        apply(method(f"%q: {T}, %k: {keys}", line, gives=T), step(attention.expand_attention)).count
        == 1
    )


LATE_LENGTH = 'tensor<1x4x?x8xf32, #stepwell.shape<[1, 4, "n", 8]>>'
LATE_HEADS = 'tensor<1x?x4x8xf32, #stepwell.shape<[1, "n", 4, 8]>>'
LATE_DEPTH = 'tensor<1x2x4x?xf32, #stepwell.shape<[1, 2, 4, "n"]>>'
NEAR_MISSES = {
    "dropout": (T, T, "none, 1.0", "eval mode"),
    "a causal mask of any length": (LATE_LENGTH, LATE_LENGTH, "none, 0.0, true", "is_causal"),
    "any number of heads": (LATE_HEADS, LATE_HEADS, "enable_gqa=true", "number of heads"),
    "groups of any length": (LATE_LENGTH, "tensor<1x2x4x8xf32>", "enable_gqa=true", "queries"),
    "a scale of any head size": (LATE_DEPTH, LATE_DEPTH, "none", "head size"),
    "a scale of run time": (T, T, "scale=%s", "run time"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_attention_stays_whole_with(name: str, refused: Any, method: Any) -> None:
    q, k, how, reason = NEAR_MISSES[name]
    number = '%s = sym.constant 0.5 : f64 : !stepwell.float<"0.5">'
    more = ', !stepwell.float<"0.5">' if "%s" in how else ""
    line = f"%y = {NAME}(%q, %k, %k, {how}) : ({q}, {k}, {k}{more}) -> {q}"
    refused(
        method(f"%q: {q}, %k: {k}", number, line, gives=q), step(attention.expand_attention), reason
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

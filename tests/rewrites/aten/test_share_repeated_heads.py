"""Keys and values repeated for groups of query heads are shared by them instead."""

from typing import Any

import pytest

from stepwell.translate.rewrites.attention.share_repeated_heads import ShareRepeatedHeads

NAME = "aten.scaled_dot_product_attention.default"
Q, K, WIDE, KEYS = (
    "tensor<2x6x3x8xf32>",
    "tensor<2x2x5x8xf32>",
    "tensor<2x2x3x5x8xf32>",
    "tensor<2x6x5x8xf32>",
)


def repeated(name: str, source: str, *, narrow: str = "[2, 2, 1, 5, 8]") -> tuple[str, str, str]:
    """Each head of `%source` three times in turn."""
    unit = f"tensor<{narrow.strip('[]').replace(', ', 'x')}xf32>"
    return (
        f"%{name}0 = aten.view.default(%{source}, {narrow}) : ({K}) -> {unit}",
        f"%{name}1 = aten.expand.default(%{name}0, [2, 2, 3, 5, 8]) : ({unit}) -> {WIDE}",
        f"%{name} = aten.view.default(%{name}1, [2, 6, 5, 8]) : ({WIDE}) -> {KEYS}",
    )


def attention(more: str = "", types: str = "", keys: str = KEYS, values: str = KEYS) -> str:
    return f"%y = {NAME}(%q, %k, %v{more}) : ({Q}, {keys}, {values}{types}) -> {Q}"


def test_repeated_heads_are_shared_and_the_rest_of_the_call_stays(apply: Any, method: Any) -> None:
    mask = '%m = stepwell.weight <"m#causal"> "buffer" : tensor<3x5xf32>'
    line = attention(", %m, scale=0.5", ", tensor<3x5xf32>")
    text = method(
        f"%q: {Q}, %a: {K}, %b: {K}", mask, *repeated("k", "a"), *repeated("v", "b"), line, gives=Q
    )
    done = apply(text, ShareRepeatedHeads())
    assert done.ops() == [NAME]
    assert "enable_gqa=true" in done.text and "scale=0.5" in done.text


def test_one_head_for_all_is_an_expand_alone(apply: Any, method: Any) -> None:
    one = "tensor<2x1x5x8xf32>"
    lines = (
        f"%k = aten.expand.default(%a, [2, 6, 5, 8]) : ({one}) -> {KEYS}",
        f"%v = aten.expand.default(%b, [2, 6, 5, 8]) : ({one}) -> {KEYS}",
    )
    done = apply(
        method(f"%q: {Q}, %a: {one}, %b: {one}", *lines, attention(), gives=Q), ShareRepeatedHeads()
    )
    assert done.ops() == [NAME]


HALF = "tensor<2x3x5x8xf32>"
STAYS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "keys that are not repeated": (f"%k: {KEYS}, %b: {K}", repeated("v", "b"), ""),
    "values that are not repeated": (f"%v: {KEYS}, %a: {K}", repeated("k", "a"), ""),
    "heads repeated one after another": (
        f"%a: {K}, %b: {K}",
        (
            f"%k0 = aten.view.default(%a, [2, 1, 2, 5, 8]) : ({K}) -> tensor<2x1x2x5x8xf32>",
            "%k1 = aten.expand.default(%k0, [2, 3, 2, 5, 8])"
            " : (tensor<2x1x2x5x8xf32>) -> tensor<2x3x2x5x8xf32>",
            f"%k = aten.view.default(%k1, [2, 6, 5, 8]) : (tensor<2x3x2x5x8xf32>) -> {KEYS}",
            *repeated("v", "b"),
        ),
        "",
    ),
    "a view of something else": (
        f"%a: {K}, %b: {K}",
        (
            f"%k0 = aten.view.default(%a, [2, 2, 1, 5, 8]) : ({K}) -> tensor<2x2x1x5x8xf32>",
            f"%k1 = aten.expand.default(%k0, [2, 2, 3, 5, 8]) : (tensor<2x2x1x5x8xf32>) -> {WIDE}",
            f"%k2 = aten.relu.default(%k1) : ({WIDE}) -> {WIDE}",
            f"%k = aten.view.default(%k2, [2, 6, 5, 8]) : ({WIDE}) -> {KEYS}",
            *repeated("v", "b"),
        ),
        "",
    ),
    "other groups for the values": (
        f"%a: {K}, %b: {HALF}",
        (
            *repeated("k", "a"),
            f"%v0 = aten.view.default(%b, [2, 3, 1, 5, 8]) : ({HALF}) -> tensor<2x3x1x5x8xf32>",
            "%v1 = aten.expand.default(%v0, [2, 3, 2, 5, 8])"
            " : (tensor<2x3x1x5x8xf32>) -> tensor<2x3x2x5x8xf32>",
            f"%v = aten.view.default(%v1, [2, 6, 5, 8]) : (tensor<2x3x2x5x8xf32>) -> {KEYS}",
        ),
        "equally often",
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_attention_stays_as_it_is_with(name: str, refused: Any, method: Any) -> None:
    arguments, lines, reason = STAYS[name]
    text = method(f"%q: {Q}, {arguments}", *lines, attention(), gives=Q)
    refused(text, ShareRepeatedHeads(), reason)


def test_attention_whose_heads_are_shared_already_stays(refused: Any, method: Any) -> None:
    line = attention(", enable_gqa=true")
    text = method(
        f"%q: {Q}, %a: {K}, %b: {K}", *repeated("k", "a"), *repeated("v", "b"), line, gives=Q
    )
    refused(text, ShareRepeatedHeads())


OTHER: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "the batch merged with the heads": (
        "tensor<4x3x5x8xf32>",
        "%a: tensor<2x2x1x5x8xf32>",
        (
            f"%w = aten.expand.default(%a, [2, 2, 3, 5, 8]) : (tensor<2x2x1x5x8xf32>) -> {WIDE}",
            f"%k = aten.view.default(%w, [4, 3, 5, 8]) : ({WIDE}) -> tensor<4x3x5x8xf32>",
        ),
    ),
    "an expand to what it was": (
        KEYS,
        "%a: tensor<2x6x1x5x8xf32>",
        (
            "%w = aten.expand.default(%a, [2, 6, 1, 5, 8])"
            " : (tensor<2x6x1x5x8xf32>) -> tensor<2x6x1x5x8xf32>",
            f"%k = aten.view.default(%w, [2, 6, 5, 8]) : (tensor<2x6x1x5x8xf32>) -> {KEYS}",
        ),
    ),
    "rows of a flat tensor": (
        KEYS,
        "%a: tensor<1xf32>",
        (
            "%w = aten.expand.default(%a, [480]) : (tensor<1xf32>) -> tensor<480xf32>",
            f"%k = aten.view.default(%w, [2, 6, 5, 8]) : (tensor<480xf32>) -> {KEYS}",
        ),
    ),
    "repeated rows": (
        KEYS,
        "%a: tensor<2x6x1x8xf32>",
        (f"%k = aten.expand.default(%a, [2, 6, 5, 8]) : (tensor<2x6x1x8xf32>) -> {KEYS}",),
    ),
}


@pytest.mark.parametrize("name", OTHER)
def test_no_heads_are_shared_that_are_not_repeated(name: str, refused: Any, method: Any) -> None:
    keys, argument, lines = OTHER[name]
    line = f"%y = {NAME}(%k, %k, %k) : ({keys}, {keys}, {keys}) -> {keys}"
    refused(method(argument, *lines, line, gives=keys), ShareRepeatedHeads())


def test_queries_of_one_head_are_broadcast_and_stay(refused: Any, method: Any) -> None:
    one = Q.replace("x6x", "x1x")
    text = method(
        f"%q: {one}, %a: {K}, %b: {K}",
        *repeated("k", "a"),
        *repeated("v", "b"),
        attention().replace(f"({Q},", f"({one},"),
        gives=Q,
    )
    refused(text, ShareRepeatedHeads(), "other heads")

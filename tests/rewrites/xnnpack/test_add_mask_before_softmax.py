"""A constant mask that fills scores with −∞ before a softmax is added to them."""

from typing import Any

import pytest

from stepwell.translate.rewrites.xnnpack.add_mask_before_softmax import AddMaskBeforeSoftmax

Q, K, S = "tensor<2x3x4xf32>", "tensor<2x4x3xf32>", "tensor<2x3x3xf32>"
M = "tensor<3x3xi1>"
LEAST = "-3.4028234663852886e+38"
MASK = f'%m = stepwell.weight <"m#causal"> "buffer" : {M}'
PRODUCT = f"%s = aten.bmm.default(%q, %k) : ({Q}, {K}) -> {S}"
FILLED = f"%f = aten.where.ScalarOther(%m, %s, {{}}) : ({M}, {S}) -> {S}"
SOFTMAX = f"%y = aten._softmax.default(%f, 2, false) : ({S}) -> {S}"


def text(method: Any, *lines: str, gives: str = S) -> str:
    return method(f"%q: {Q}, %k: {K}, %z: {S}, %late: {M}", MASK, PRODUCT, *lines, gives=gives)


@pytest.mark.parametrize("number", ["-inf", LEAST])
def test_what_closes_a_score_is_added(number: str, apply: Any, method: Any) -> None:
    done = apply(text(method, FILLED.format(number), SOFTMAX), AddMaskBeforeSoftmax())
    assert done.ops() == ["aten.bmm.default", "aten.add.Tensor", "aten._softmax.default"]


def test_a_mask_says_what_is_filled_or_what_is_kept(apply: Any, method: Any) -> None:
    """`masked_fill` fills where the mask is true: nowhere here."""
    held = '%c = stepwell.weight <"c#zeros"> "buffer" : tensor<3x3xi1>'
    fill = f"%f = aten.masked_fill.Scalar(%s, %c, -inf) : ({S}, {M}) -> {S}"
    done = apply(text(method, held, fill, SOFTMAX), AddMaskBeforeSoftmax())
    assert done.ops() == ["aten.bmm.default", "aten.add.Tensor", "aten._softmax.default"]


def test_views_of_the_heads_may_stand_in_front_of_the_softmax(apply: Any, method: Any) -> None:
    wide = "tensor<1x2x3x3xf32>"
    lines = (
        FILLED.format("-inf"),
        f"%v = aten.view.default(%f, [1, 2, 3, 3]) : ({S}) -> {wide}",
        f"%y = aten._softmax.default(%v, -1, false) : ({wide}) -> {wide}",
    )
    assert apply(text(method, *lines, gives=wide), AddMaskBeforeSoftmax()).count == 1


NEAR_MISSES: dict[str, tuple[str, ...]] = {
    "another number": (FILLED.format("-10000.0"), SOFTMAX),
    "a mask of run time": (FILLED.format("-inf").replace("%m", "%late"), SOFTMAX),
    "a softmax over the queries": (FILLED.format("-inf"), SOFTMAX.replace(", 2,", ", 1,")),
    "no softmax": (FILLED.format("-inf").replace("%f", "%y"),),
    "a view of the rows in front of the softmax": (
        FILLED.format("-inf"),
        f"%v = aten.view.default(%f, [2, 9]) : ({S}) -> tensor<2x9xf32>",
        "%w = aten._softmax.default(%v, 1, false) : (tensor<2x9xf32>) -> tensor<2x9xf32>",
        f"%y = aten.view.default(%w, [2, 3, 3]) : (tensor<2x9xf32>) -> {S}",
    ),
    "scores that are read elsewhere too": (
        FILLED.format("-inf"),
        SOFTMAX.replace("%y", "%w"),
        f"%r = aten.relu.default(%f) : ({S}) -> {S}",
        f"%y = aten.add.Tensor(%w, %r) : ({S}, {S}) -> {S}",
    ),
    "no product": (FILLED.format("-inf").replace("%s", "%z"), SOFTMAX),
    "another tensor instead of a number": (
        f"%f = aten.where.self(%m, %s, %z) : ({M}, {S}, {S}) -> {S}",
        SOFTMAX,
    ),
    "scores that the mask repeats": (
        f"%l = aten.bmm.default(%q, %j) : ({Q}, tensor<2x4x1xf32>) -> tensor<2x3x1xf32>",
        f"%f = aten.where.ScalarOther(%m, %l, -inf) : ({M}, tensor<2x3x1xf32>) -> {S}",
        SOFTMAX,
    ),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_the_fill_stays_with(name: str, refused: Any, method: Any) -> None:
    held = '%j = stepwell.weight <"j"> "buffer" : tensor<2x4x1xf32>'
    refused(text(method, held, *NEAR_MISSES[name]), AddMaskBeforeSoftmax())


def test_the_least_half_does_not_absorb_a_score(refused: Any, method: Any) -> None:
    q, k, s = (type_.replace("f32", "f16") for type_ in (Q, K, S))
    lines = (line.replace("f32", "f16") for line in (PRODUCT, FILLED.format("-65504.0"), SOFTMAX))
    refused(method(f"%q: {q}, %k: {k}", MASK, *lines, gives=s), AddMaskBeforeSoftmax())

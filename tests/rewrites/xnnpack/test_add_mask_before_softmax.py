"""A constant mask that fills scores with −∞ before a softmax is added to them."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import export

import stepwell
from stepwell.translate.rewrites.attention.add_mask_before_softmax import AddMaskBeforeSoftmax

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


def test_a_mask_of_run_time_chooses_between_two_numbers(apply: Any, method: Any) -> None:
    """An element for each of its own: heads that share it are not filled one by one."""
    wide, narrow = "tensor<2x3x3xi1>", "tensor<1x1x3xi1>"
    lines = (
        f"%e = aten.expand.default(%l, [2, 3, 3]) : ({narrow}) -> {wide}",
        f"%f = aten.masked_fill.Scalar(%s, %e, {LEAST}) : ({S}, {wide}) -> {S}",
        SOFTMAX,
    )
    given = method(f"%q: {Q}, %k: {K}, %l: {narrow}", PRODUCT, *lines, gives=S)
    done = apply(given, AddMaskBeforeSoftmax())
    assert done.ops() == [
        "aten.bmm.default", "aten.where.self", "aten.add.Tensor", "aten._softmax.default",
    ]  # fmt: skip
    assert "-> tensor<1x1x3xf32>" in done.text


def test_a_constant_that_scores_are_the_sum_with_takes_the_mask(apply: Any, method: Any) -> None:
    slopes = "tensor<2x1x3xf32>"
    lines = (
        f'%a = stepwell.weight <"slopes"> "buffer" : {slopes}',
        f"%b = aten.add.Tensor(%s, %a) : ({S}, {slopes}) -> {S}",
        FILLED.format(LEAST).replace("%s", "%b"),
        SOFTMAX,
    )
    done = apply(text(method, *lines), AddMaskBeforeSoftmax())
    assert done.ops() == ["aten.bmm.default", "aten.add.Tensor", "aten._softmax.default"]


def test_a_mask_that_attention_adds_is_masked_by_a_sum(apply: Any, method: Any) -> None:
    lines = (
        FILLED.format("-inf"),
        f"%w = aten.scaled_dot_product_attention.default(%z, %z, %z, %f) : ({S}, {S}, {S}, {S}) "
        f"-> {S}",
        f"%y = aten.neg.default(%w) : ({S}) -> {S}",
    )
    assert apply(text(method, *lines), AddMaskBeforeSoftmax()).count == 1


class Masked(nn.Module):
    """Attention over what ids do not pad, its scores behind a norm or not."""

    def __init__(self, norm: nn.Module, fill: float) -> None:
        super().__init__()
        self.norm, self.fill = norm, fill
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        pads = (ids == 0).unsqueeze(1).expand_as(scores)
        return torch.softmax(scores.masked_fill(pads, self.fill), -1) @ x


@pytest.mark.parametrize("fill", [-torch.inf, torch.finfo(torch.float32).min])
def test_padding_is_masked_within_one_delegate_of_numbers(fill: float) -> None:
    """Also where all is padding: NaN, or all alike, is what eager has."""
    model = Masked(nn.LayerNorm(8), fill).eval()
    ids, x = torch.tensor([[1, 2, 0, 0], [0, 0, 0, 0]]), torch.randn(2, 4, 8)
    lowered = stepwell.lower(export(model, (ids, x)), "xnnpack", numerics="finite")
    assert lowered.report.delegates == 1
    assert "a score of NaN that the mask hides is seen" in str(lowered.report.deviations)
    default = stepwell.lower(export(model, (ids, x)), "xnnpack").report
    assert "mask hides" not in str(default.deviations)
    (found,) = lowered.run(ids, x)
    torch.testing.assert_close(found, model(ids, x), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_scores_that_may_be_infinite_are_filled_outside() -> None:
    model = Masked(nn.Identity(), -torch.inf).eval()
    given = torch.tensor([[1, 2, 0, 0]]), torch.randn(1, 4, 8)
    lowered = stepwell.lower(export(model, given), "xnnpack")
    assert dict(lowered.report.outside)["aten.masked_fill.Scalar"] == 1
    freely = stepwell.lower(export(model, given), "xnnpack", numerics="finite")
    assert freely.report.delegates == 1


NEAR_MISSES: dict[str, tuple[str, ...]] = {
    "another number": (FILLED.format("-10000.0"), SOFTMAX),
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

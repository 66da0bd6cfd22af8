"""LimitByMask: choices by a constant mask are minima and maxima, exact for every number."""

from typing import Any

import pytest
import torch
from torch.export import export

import stepwell
from stepwell.translate.rewrites.attention.limit_by_mask import LimitByMask

X = "tensor<2x3xf32>"
MASK = '%m = stepwell.weight <"#causal"> "constant" : tensor<2x3xi1>'
FILL = f"%y = aten.masked_fill.Scalar(%z, %m, -inf) : ({X}, tensor<2x3xi1>) -> {X}"


@pytest.mark.parametrize("fill", [0.0, -torch.inf, torch.inf, 3.5])
def test_infinities_and_signs_of_what_is_kept_stay(fill: float):
    mask = torch.tensor([True, False] * 4)

    class Choice(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.masked_fill(mask, fill), torch.where(mask, x, y)

    inf, far = torch.inf, 3.4e38
    x = torch.tensor([inf, inf, -inf, -inf, far, far, -0.5, -far])
    y = x.flip(0)
    lowered = stepwell.lower(export(Choice(), (x, y)), "xnnpack", numerics="finite")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    for found, wanted in zip(lowered.run(x, y), Choice()(x, y), strict=True):
        assert torch.equal(found, wanted)


def test_a_root_that_may_be_nan_stays_hidden(refused: Any, method: Any):
    root = f"%z = aten.sqrt.default(%x) : ({X}) -> {X}"
    refused(method(f"%x: {X}", f"{MASK}\n{root}\n{FILL}", gives=X), LimitByMask(), "may make a NaN")


def test_a_mask_of_run_time_stays(apply: Any, method: Any):
    text = method(f"%z: {X}, %m: tensor<2x3xi1>", FILL, gives=X)
    assert apply(text, LimitByMask()).count == 0


def test_a_side_of_another_dtype_is_refused(refused: Any, method: Any):
    choice = "%y = aten.where.self(%m, %x, %z) : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf64>)"
    text = method(
        f"%x: {X}, %z: tensor<2x3xf64>",
        f"{MASK}\n{choice} -> tensor<2x3xf64>",
        gives="tensor<2x3xf64>",
    )
    refused(text, LimitByMask(), "XNNPACK cannot hold")


def test_integers_are_refused(refused: Any, method: Any):
    fill = "%y = aten.masked_fill.Scalar(%x, %m, 3) : (tensor<2x3xi64>, tensor<2x3xi1>)"
    text = method(
        "%x: tensor<2x3xi64>", f"{MASK}\n{fill} -> tensor<2x3xi64>", gives="tensor<2x3xi64>"
    )
    refused(text, LimitByMask(), "XNNPACK cannot hold")


def filled(given: str, mask: str, line: str) -> tuple[str, ...]:
    held = f'%m = stepwell.weight <"#causal"> "constant" : tensor<{mask}xi1>'
    return (
        held,
        f"%y = aten.masked_fill.Scalar(%x, %m, {line}) : ({given}, tensor<{mask}xi1>) -> {given}",
    )


@pytest.mark.parametrize(
    ("given", "fill", "reason"),
    [
        ("tensor<1x1x1x1x1x2x3xf32>", "0.0", "cannot hold"),
        (X, "nan", "NaN"),
    ],
    ids=["seven axes", "a fill that is no number"],
)
def test_what_no_node_limits_stays(given: str, fill: str, reason: str, refused: Any, method: Any):
    refused(method(f"%x: {given}", *filled(given, "2x3", fill), gives=given), LimitByMask(), reason)


@pytest.mark.parametrize("mask", ["2x3", "1x3"])
def test_a_mask_of_all_of_an_open_batch_limits_it(mask: str, apply: Any, method: Any):
    given = 'tensor<?x2x3xf32, #stepwell.shape<["s0", 2, 3]>>'
    made = apply(method(f"%x: {given}", *filled(given, mask, "0.0"), gives=given), LimitByMask())
    assert made.count == 1


def test_a_side_of_halves_is_refused(refused: Any, method: Any):
    choice = "%y = aten.where.self(%m, %x, %z) : (tensor<2x3xi1>, tensor<2x3xf16>, tensor<2x3xf32>)"
    text = method(f"%x: tensor<2x3xf16>, %z: {X}", f"{MASK}\n{choice} -> {X}", gives=X)
    refused(text, LimitByMask(), "one side has another dtype than the result")


NUMBER = '%n = stepwell.weight <"#ones"> "constant" : tensor<{}f32>'


def test_two_numbers_are_folded_and_no_limits(refused: Any, method: Any):
    choice = "%y = aten.where.ScalarOther(%m, %n, 2.0) : (tensor<2x3xi1>, tensor<f32>)"
    text = method(f"%x: {X}", MASK, NUMBER.format(""), f"{choice} -> {X}", gives=X)
    refused(text, LimitByMask(), "both sides are numbers")


def test_axes_that_a_number_brings_are_not_lost(refused: Any, method: Any):
    gives = "tensor<1x2x3xf32>"
    types = f"(tensor<2x3xi1>, {X}, tensor<1x1x1xf32>) -> {gives}"
    line = f"%y = aten.where.self(%m, %x, %n) : {types}"
    text = method(f"%x: {X}", MASK, NUMBER.format("1x1x1x"), line, gives=gives)
    refused(text, LimitByMask(), "broadcast further")

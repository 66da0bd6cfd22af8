"""Clamps: beyond their examples, and what stays."""

from typing import Any

import pytest
import torch

from stepwell.translate.canonicalize.clamps import RULES

ALL = {rule.name: rule() for rule in RULES}
SPECIAL = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.25, -0.25, 1e-40])


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(7.0, 8.0, 9.0), other.nan_to_num(7.0, 8.0, 9.0))


def test_a_threshold_that_jumps_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.threshold.default(%x, 1, 0) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["threshold-to-clamp"],
        "jumps",
    )


def test_bounds_that_promote_integers_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xi64>",
            "%y = aten.clamp_min.default(%x, 0.5) : (tensor<2x3xi64>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["clamp-min-to-clamp"],
        "promote",
    )


def test_a_tensor_as_bound_is_a_maximum(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>, %z: tensor<2x3xf32>",
            "%y = aten.clamp_min.Tensor(%x, %z) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        *ALL.values(),
    )
    assert done.ops() == ["aten.maximum.default"]


def test_bounds_out_of_order_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.clamp.default(%x, 2, 1) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.clamp.default(%a, 0, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["merge-clamps"],
        "in order",
    )


def test_an_inner_range_outside_the_outer_one_is_its_nearest_end(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.clamp.default(%x, -2, -1) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.clamp.default(%a, 0.5, 6) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        ALL["merge-clamps"],
    )
    assert done.ops() == ["aten.clamp.default"]


@pytest.mark.parametrize(
    "bounds", ["-2, -1|-0.0, 5", "-2, -1|0.0, 5", "1, 2|-1, 0", "-1, 1|-0.0, 5"]
)
def test_clamps_of_which_a_zero_would_take_another_sign_stay(
    bounds: str, refused: Any, method: Any
):
    inner, outer = bounds.split("|")
    first = f"%a = aten.clamp.default(%x, {inner}) : (tensor<2x3xf32>) -> tensor<2x3xf32>"
    second = f"%y = aten.clamp.default(%a, {outer}) : (tensor<2x3xf32>) -> tensor<2x3xf32>"
    text = method("%x: tensor<2x3xf32>", first, second, gives="tensor<2x3xf32>")
    refused(text, ALL["merge-clamps"], "other sign")


def test_a_clamp_that_promotes_stays(refused: Any, method: Any):
    first = "%a = aten.clamp.default(%x, 0.5) : (tensor<3xi64>) -> tensor<3xf32>"
    second = "%y = aten.clamp.default(%a, 1) : (tensor<3xf32>) -> tensor<3xf32>"
    rule = ALL["merge-clamps"]
    refused(method("%x: tensor<3xi64>", first, second, gives="tensor<3xf32>"), rule, "not the same")


def test_a_clamp_between_tensors_keeps_every_nan(apply: Any, method: Any):
    held = "tensor<8xf32>"
    done = apply(
        method(
            f"%x: {held}, %a: {held}, %b: {held}",
            f"%y = aten.clamp.Tensor(%x, %a, %b) : ({held}, {held}, {held}) -> {held}",
            gives=held,
        ),
        *ALL.values(),
    )
    low, high = SPECIAL.roll(3), SPECIAL.roll(5)
    assert same(done.program.run(SPECIAL, low, high)[0], torch.clamp(SPECIAL, low, high))


def test_a_bound_that_promotes_the_tensor_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<8xi32>, %a: tensor<8xf32>",
            "%y = aten.clamp.Tensor(%x, %a) : (tensor<8xi32>, tensor<8xf32>) -> tensor<8xf32>",
            gives="tensor<8xf32>",
        ),
        ALL["clamp-to-maximum"],
        "promotes",
    )


@pytest.mark.parametrize(
    ("bounds", "op"), [("%a, none", "aten.maximum.default"), ("none, %a", "aten.minimum.default")]
)
def test_a_bound_on_one_side_is_one_extremum(bounds: str, op: str, apply: Any, method: Any):
    held = "tensor<8xf32>"
    line = f"%y = aten.clamp.Tensor(%x, {bounds}) : ({held}, {held}) -> {held}"
    done = apply(method(f"%x: {held}, %a: {held}", line, gives=held), *ALL.values())
    assert done.ops() == [op]


def test_a_bound_known_only_at_run_time_stays_one(apply: Any, method_of_n: Any):
    held = "tensor<8xf32>"
    line = f'%y = aten.clamp_min.default(%x, %n) : ({held}, !stepwell.int<"n">) -> {held}'
    done = apply(method_of_n(f"%x: {held}", line, gives=held), *ALL.values())
    assert "aten.clamp.default" in done.ops()

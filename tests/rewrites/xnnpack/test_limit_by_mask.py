"""LimitByMask: choices by a constant mask are minima and maxima, exact for every number."""

from typing import Any

import pytest
import torch
from torch.export import export

import stepwell
from stepwell.translate.rewrites.xnnpack.limit_by_mask import LimitByMask

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
    lowered = stepwell.lower(export(Choice(), (x, y)), "xnnpack")
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
    refused(text, LimitByMask(), "not held by XNNPACK")


def test_integers_are_refused(refused: Any, method: Any):
    fill = "%y = aten.masked_fill.Scalar(%x, %m, 3) : (tensor<2x3xi64>, tensor<2x3xi1>)"
    text = method(
        "%x: tensor<2x3xi64>", f"{MASK}\n{fill} -> tensor<2x3xi64>", gives="tensor<2x3xi64>"
    )
    refused(text, LimitByMask(), "not held by XNNPACK")

"""The root of an infinity is one on every CPU, and what is finite keeps its plain root."""

from typing import Any

import torch

import stepwell
from stepwell.translate.decompositions import statistics
from stepwell.translate.lowerings.lowering import step


class Roots(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sqrt()


def test_infinities_and_nans_have_their_roots() -> None:
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, 4.0, -1.0])
    found = stepwell.lower(torch.export.export(Roots(), (x,)), "xnnpack").run(x)[0]
    torch.testing.assert_close(found, x.sqrt(), equal_nan=True, rtol=1e-5, atol=0.0)


def test_the_root_of_a_negative_zero_keeps_its_sign(apply: Any, method: Any) -> None:
    line = "%y = aten.sqrt.default(%x) : (tensor<3xf32>) -> tensor<3xf32>"
    text = method("%x: tensor<3xf32>", line, gives="tensor<3xf32>")
    x = torch.tensor([-0.0, 0.0, 4.0])
    done = apply(text, step(statistics.keep_root_of_infinity), inputs=(x,))
    assert done.count == 1
    assert done.program.run(x)[0].signbit().tolist() == [True, False, False]


def test_roots_of_bounded_numbers_stay(apply: Any, method: Any) -> None:
    lines = (
        "%s = aten.sigmoid.default(%x) : (tensor<3xf32>) -> tensor<3xf32>",
        "%y = aten.sqrt.default(%s) : (tensor<3xf32>) -> tensor<3xf32>",
    )
    text = method("%x: tensor<3xf32>", *lines, gives="tensor<3xf32>")
    assert apply(text, step(statistics.keep_root_of_infinity)).count == 0


def test_roots_of_doubles_stay(refused: Any, method: Any) -> None:
    line = "%y = aten.sqrt.default(%x) : (tensor<3xf64>) -> tensor<3xf64>"
    text = method("%x: tensor<3xf64>", line, gives="tensor<3xf64>")
    refused(text, step(statistics.keep_root_of_infinity), "float32 or float16")

"""The root of an infinity is one on every CPU, and what is finite keeps its plain root."""

from typing import Any

import torch
from rewrite_cases import cases

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


def test_the_root_of_a_negative_zero_keeps_its_sign(apply: Any) -> None:
    x = torch.tensor([-0.0, 0.0, 4.0])
    done = apply(
        "%y = aten.sqrt.default(%x: f32[3])", step(statistics.keep_root_of_infinity), inputs=(x,)
    )
    assert done.count == 1
    assert done.program.run(x)[0].signbit().tolist() == [True, False, False]


test_keep_root_of_infinity = cases(
    statistics,
    """
keep-root-of-infinity: roots of bounded numbers stay -> applied 0 times
    %s = aten.sigmoid.default(%x: f32[3])
    %y = aten.sqrt.default(%s)
keep-root-of-infinity: roots of doubles -> refused: float32 or float16
    %y = aten.sqrt.default(%x: f64[3])
""",
)

"""Functions by others that XNNPACK has: what runs in the delegate, and what stays."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.translate.decompositions import activations, logarithms


def test_what_a_softmax_rounds_to_zero_has_a_logarithm_on_the_runtime() -> None:
    module, x = nn.LogSoftmax(-1), torch.tensor([[0.0, 500.0, -500.0]])
    lowered = stepwell.lower(export(module, (x,)), "xnnpack")
    torch.testing.assert_close(lowered.run(x)[0], module(x), rtol=1e-6, atol=1e-5)


test_logarithms = cases(
    logarithms,
    activations,
    """
expand-log-softmax: halves -> refused: float32
    %y = aten._log_softmax.default(%x: f16[2, 3], 1, false)
expand-logarithm: logarithms of other types -> refused: float32 only
    - %y = aten.log10.default(%x: f16[3])
    - %y = aten.log10.default(%x: f64[3])
    - %y = aten.log10.default(%x: i64[3])
expand-tanh-gelu: a gelu by erf is not one by tanh -> unchanged
    %y = aten.gelu.default(%x: f32[2, 4])
""",
)


@pytest.mark.parametrize(("axes", "keeps"), [(-1, False), ((1,), True), ((0, 1), False)])
def test_a_sum_of_exponentials_has_eagers_class(axes: Any, keeps: bool) -> None:
    """The rows that torch guards, and those whose NaN it keeps."""

    class Sum(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.logsumexp(x, axes, keeps)

    inf, nan, far = torch.inf, torch.nan, 3e38
    rows = [[1, 2, 3], [inf, 1, 2], [-inf, -inf, -inf], [inf, -inf, 0], [nan, inf, 0]]
    rows += [
        [-inf, nan, -inf],
        [far, far, -far],
        [-far, -far, -inf],
        [500.0, 0, -500],
        [0, nan, nan],
    ]
    for x in (torch.tensor(rows), torch.tensor(rows[6:7] + rows[8:9])):
        lowered = stepwell.lower(export(Sum(), (x,)), "xnnpack")
        assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
        torch.testing.assert_close(
            lowered.run(x)[0], Sum()(x), rtol=2e-6, atol=2e-6, equal_nan=True
        )


class Levels(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return 10.0 * torch.log10(torch.clamp(x, min=1e-10)), torch.log2(x)


def test_levels_run_in_one_delegate() -> None:
    x = torch.tensor([0.0, 1e-30, 0.999999, 1.0, 1.000001, 2.0, 10.0, 1e30])
    lowered = stepwell.lower(export(Levels(), (x,)), "xnnpack", numerics="finite")
    assert lowered.report.delegates == 1
    assert not lowered.report.outside
    for found, wanted in zip(lowered.run(x), Levels()(x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("cpu", [None, "x86-64", "arm64"])
def test_a_logarithm_of_what_may_be_infinite_stands_beside_it(cpu: str | None) -> None:
    class Level(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.log10(torch.clamp(x, min=1e-10))

    x = torch.tensor([torch.nan, torch.inf, 3.0, 0.0])
    lowered = stepwell.lower(export(Level(), (x,)), "xnnpack", cpu=cpu)
    assert str(lowered.program).count("= xnnpack.subtract") == 1
    torch.testing.assert_close(lowered.run(x)[0], Level()(x), equal_nan=True)

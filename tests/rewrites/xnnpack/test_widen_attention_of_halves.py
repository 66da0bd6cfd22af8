"""WidenAttentionOfHalves, WidenProductsOfHalves: as exact as torch, on every CPU."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases
from torch import Tensor, nn
from torch.nn import functional

import stepwell
from stepwell.backends.executorch.running import arm64
from stepwell.translate.decompositions import floats
from stepwell.translate.decompositions.floats import IN_SINGLE

CPUS = [None, "cortex-a53", "cortex-a76", "neoverse-v1"]


class Attends(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, **self.options)


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).abs().max() / exact.abs().max())


@pytest.fixture(params=CPUS)
def cpu(request: pytest.FixtureRequest) -> str | None:
    if request.param is not None and (why := arm64.missing(request.param)):
        pytest.skip(why)
    return request.param


def halves(heads: int, *, rows: int = 64, size: float) -> Tensor:
    return (torch.randn(1, heads, rows, 64) * size).half()


@pytest.mark.parametrize("size", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"enable_gqa": True}, {"scale": 0.1}])
@torch.no_grad()
def test_attention_of_halves_is_as_exact_as_eagers(
    size: float, options: dict[str, Any], cpu: str | None
) -> None:
    keys = 1 if "enable_gqa" in options else 3
    given = halves(3, size=size), halves(keys, size=size), halves(keys, size=1.0)
    module = Attends(**options)
    lowered = stepwell.lower(torch.export.export(module, given), "xnnpack")
    assert lowered.report.delegates == 1
    exact = module(*(value.double() for value in given))
    assert error(lowered.run(*given, cpu=cpu)[0], exact) <= 2 * error(module(*given), exact)


@pytest.mark.parametrize("cpu", ["cortex-a76"], indirect=True)
@torch.no_grad()
def test_a_product_of_halves_may_be_asked_to_add_up_in_singles(cpu: str) -> None:
    """All positive, so that sums kept in halves grow past their steps."""
    layer, x = nn.Linear(4096, 64).half(), torch.rand(1, 4096).half()
    layer.weight.abs_()
    exact = functional.linear(x.double(), layer.weight.double(), layer.bias.double())
    program = torch.export.export(layer, (x,))
    errors = [
        error(stepwell.lower(program, "xnnpack", **options).run(x, cpu=cpu)[0], exact)
        for options in ({}, {"half": IN_SINGLE})
    ]
    assert errors[1] < 2**-10 < errors[0]


def test_only_what_is_asked_for_adds_up_in_singles() -> None:
    layer, x = nn.Linear(64, 64).half(), torch.rand(1, 64).half()
    program = torch.export.export(layer, (x,))
    text = [
        str(stepwell.lower(program, "xnnpack", **options).program)
        for options in ({}, {"half": IN_SINGLE})
    ]
    assert [part.count("xnnpack.convert") for part in text] == [0, 2]


test_widen_attention_of_halves = cases(
    floats,
    """
widen-attention-of-halves: attention of singles -> unchanged
    %y = aten.scaled_dot_product_attention.default(%x: f32[1, 2, 4, 8], %x, %x)
widen-attention-of-halves: attention that drops weights -> refused: dropout_p is 1.0
    %y = aten.scaled_dot_product_attention.default(%x: f16[1, 2, 4, 8], %x, %x, none, 1.0)
widen-products-of-halves: a product of singles -> unchanged
    %y = aten.linear.default(%x: f32[2, 4], %x)
""",
)

"""Halves, NaNs and infinities are computed as PyTorch does."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from eager import EXACT, Function, assert_as_eager, assert_whole, lower
from rewrite_cases import cases
from torch import Tensor, nn
from torch.nn import functional

from stepwell.backends.executorch.running import arm64
from stepwell.ir.declared.engine_behavior import engines
from stepwell.translate.decompositions import (
    activations_of_targets,
    floats,
    logarithms,
    promotions,
    statistics,
)
from stepwell.translate.decompositions.floats import IN_SINGLE
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.xnnpack.floats.cancel_narrowing import CancelNarrowing

X = torch.tensor([[torch.nan, torch.inf, -torch.inf, -0.0], [1.0, torch.nan, 3e38, -3e38]])
Y = torch.tensor([[0.0, torch.nan, -torch.inf, -0.0], [torch.nan, torch.inf, -3e38, 3e38]])


def limits(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Everything that takes an extremum of tensors and has no node of its own in the stock flow."""
    of_tensors = torch.clamp(x, min=y), torch.clamp(x, max=y), torch.clamp(x, -y, y)
    return *of_tensors, x.amax(-1), x.amin(0), x.amax((0, 1)), x.log_softmax(-1)


def test_nans_stay_within_one_delegate() -> None:
    lowered = lower(limits, X, Y)
    assert_whole(lowered)
    assert_as_eager(lowered, limits, X, Y, rtol=1e-6, atol=0)


@pytest.mark.parametrize("numerics", ["finite", "strict"])
def test_in_other_modes_no_term_is_added(numerics: Any) -> None:
    lowered = lower(limits, X, Y, numerics=numerics)
    assert "divide" not in str(lowered.program) and "aten.div" not in str(lowered.program)


test_carry_nans = cases(floats)("""
carry-nans: what is never nan needs no term -> applied 0 times
    %b = aten.ge.Scalar(%x: f32[4], 0.0); %f = aten._to_copy.default(%b, dtype=f32)
    %y = aten.clamp.Tensor(%f, %w: constant f32[4])
carry-nans: doubles -> refused: float32 or float16
    %y = aten.clamp.Tensor(%x: f64[4], %x)
widen-attention-of-halves: attention of singles -> unchanged
    %y = aten.scaled_dot_product_attention.default(%x: f32[1, 2, 4, 8], %x, %x)
widen-attention-of-halves: attention that drops weights -> refused: dropout_p is 1.0
    %y = aten.scaled_dot_product_attention.default(%x: f16[1, 2, 4, 8], %x, %x, none, 1.0)
widen-products-of-halves: a product of singles -> unchanged
    %y = aten.linear.default(%x: f32[2, 4], %x)
""")


CPUS = [None, "cortex-a53", "cortex-a76", "neoverse-v1"]


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
    module = partial(functional.scaled_dot_product_attention, **options)
    lowered = lower(module, *given)
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
    errors = [
        error(lower(layer, x, **options).run(x, cpu=cpu)[0], exact)
        for options in ({}, {"half": IN_SINGLE})
    ]
    assert errors[1] < 2**-10 < errors[0]


def test_only_what_is_asked_for_adds_up_in_singles() -> None:
    layer, x = nn.Linear(64, 64).half(), torch.rand(1, 64).half()
    text = [str(lower(layer, x, **options).program) for options in ({}, {"half": IN_SINGLE})]
    assert [part.count("xnnpack.convert") for part in text] == [0, 2]


test_widen_floats = cases(floats, promotions, CancelNarrowing)("""
widen-bfloat: arithmetic of halves -> unchanged
    %y = aten.sigmoid.default(%x: f16[4])
widen-bfloat: an input that is moved -> unchanged
    %y = aten.permute.default(%x: bf16[4], [0])
widen-bfloat: a truth value of bfloat16s -> unchanged
    %y = aten.gt.Scalar(%x: bf16[4], 0.5)
widen-mixed-floats: operands of one width -> unchanged
    %y = aten.mul.Tensor(%x: f32[4], %x)
widen-mixed-floats: a quotient of integers -> unchanged
    %y = aten.div.Tensor(%x: i64[4], %x)
widen-mixed-floats: a single number next to halves -> unchanged
    %y = aten.mul.Tensor(%x: f16[4], %s: f32[])
cancel-narrowing: a cast that rounds nothing -> unchanged
    %y = aten._to_copy.default(%x: bf16[4], dtype=f32)
cancel-narrowing: a rounding to halves -> unchanged
    %h = aten._to_copy.default(%x: f32[4], dtype=f16); %y = aten._to_copy.default(%h, dtype=f32)
""")


def test_a_rounding_that_the_model_asks_for_stays() -> None:
    def rounded(x: Tensor) -> Tensor:
        return x.bfloat16().float() * 2

    x = torch.tensor([1.001, torch.finfo(torch.float32).max, -0.3])
    assert_as_eager(lower(rounded, x), rounded, x, **EXACT)


class Block(nn.Module):
    """A gated layer behind a norm computed in single precision, as language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(64, 96), nn.Linear(64, 96), nn.Linear(96, 64)
        self.scale = nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x)
        y = normed * self.scale
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def test_a_block_in_bfloat16_is_one_delegate_and_no_further_from_the_exact_result_than_torch() -> (
    None
):
    torch.manual_seed(0)
    model = Block().eval().to(torch.bfloat16)
    x = torch.randn(1, 5, 64).to(torch.bfloat16)
    lowered = lower(model, x)
    assert lowered.report.delegates == 1
    assert not lowered.report.outside
    exact = model.double()(x.double())
    ours, torchs = lowered.run(x)[0], model.to(torch.bfloat16)(x)
    last_rounding = exact.abs().max() * 2**-8
    assert (ours - exact).abs().max() <= (torchs - exact).abs().max() + last_rounding


def test_a_float_mask_meets_scores_in_halves_in_one_delegate() -> None:
    def masked(q: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(q @ q.transpose(-1, -2) + mask, -1)

    q, mask = torch.randn(2, 4, 8).half(), torch.randn(4, 4)
    lowered = lower(masked, q, mask)
    assert_whole(lowered)
    # Eight products are summed in halves, each sum off by at most half a unit: 8 · 2^-11 · 8 · 16.
    assert_as_eager(lowered, masked, q, mask, atol=0.05, rtol=0.05)


def test_integers_and_truths_meet_singles_in_one_delegate() -> None:
    at = torch.arange(6)
    model = Function(lambda x, sizes, layer: (layer(x) / sizes + at) * (sizes > 2), nn.Linear(6, 6))
    inputs = torch.randn(3, 6), torch.randint(1, 5, (3, 1))
    lowered = lower(model, *inputs)
    assert lowered.report.delegates == 1
    assert set(lowered.report.outside) == {"aten._to_copy.default", "aten.gt.Scalar"}
    assert_as_eager(lowered, model, *inputs)


def test_what_a_softmax_rounds_to_zero_has_a_logarithm_on_the_runtime() -> None:
    module, x = nn.LogSoftmax(-1), torch.tensor([[0.0, 500.0, -500.0]])
    assert_as_eager(lower(module, x), module, x, rtol=1e-6, atol=1e-5)


test_logarithms = cases(logarithms, activations_of_targets)("""
expand-log-softmax: halves -> refused: float32
    %y = aten._log_softmax.default(%x: f16[2, 3], 1, false)
expand-logarithm: logarithms of other types -> refused: float32 only
    - %y = aten.log10.default(%x: f16[3])
    - %y = aten.log10.default(%x: f64[3])
    - %y = aten.log10.default(%x: i64[3])
expand-tanh-gelu: a gelu by erf is not one by tanh -> unchanged
    %y = aten.gelu.default(%x: f32[2, 4])
""")


@pytest.mark.parametrize(("axes", "keeps"), [(-1, False), ((1,), True), ((0, 1), False)])
def test_a_sum_of_exponentials_has_eagers_class(axes: Any, keeps: bool) -> None:
    """The rows that torch guards, and those whose NaN it keeps."""
    inf, nan, far = torch.inf, torch.nan, 3e38
    rows = [[1, 2, 3], [inf, 1, 2], [-inf, -inf, -inf], [inf, -inf, 0], [nan, inf, 0]]
    rows += [[-inf, nan, -inf], [far, far, -far], [-far, -far, -inf], [500.0, 0, -500]]
    rows += [[0, nan, nan]]
    summed = partial(torch.logsumexp, dim=axes, keepdim=keeps)
    for x in (torch.tensor(rows), torch.tensor(rows[6:7] + rows[8:9])):
        lowered = lower(summed, x)
        assert_whole(lowered)
        assert_as_eager(lowered, summed, x, rtol=2e-6, atol=2e-6)


def test_levels_run_in_one_delegate() -> None:
    def levels(x: Tensor) -> tuple[Tensor, Tensor]:
        return 10.0 * torch.log10(torch.clamp(x, min=1e-10)), torch.log2(x)

    x = torch.tensor([0.0, 1e-30, 0.999999, 1.0, 1.000001, 2.0, 10.0, 1e30])
    lowered = lower(levels, x, numerics="finite")
    assert_whole(lowered)
    assert_as_eager(lowered, levels, x, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("cpu", [None, "x86-64", "arm64"])
def test_a_logarithm_of_what_may_be_infinite_stands_beside_it(cpu: str | None) -> None:
    def level(x: Tensor) -> Tensor:
        return torch.log10(torch.clamp(x, min=1e-10))

    x = torch.tensor([torch.nan, torch.inf, 3.0, 0.0])
    lowered = lower(level, x, cpu=cpu)
    assert str(lowered.program).count("= xnnpack.subtract") == 1
    assert_as_eager(lowered, level, x)


NUMBERS = [math.inf, -math.inf, math.nan, 0.0, 4.0, -1.0, 3.4028235e38, 8.6e37, 2.0**126, 2.0**124]
ROOTS: dict[str, Callable[[Tensor], Tensor]] = {
    "a root": torch.sqrt,
    "a power": lambda x: x**0.5,
    "an inverse power": lambda x: (x.abs() + 1e-5) ** -0.5,
    "a root of squares": lambda x: (x * x) ** 0.5,
}


@pytest.mark.parametrize("name", ROOTS)
def test_roots_are_right_for_infinities_nans_and_numbers_near_overflow(name: str) -> None:
    """XNNPACK's own root of 3e38 is 2.6e19 on x86, and that of infinity NaN."""
    x = torch.cat([torch.tensor(NUMBERS), torch.logspace(-15, 38.5, 500)])
    lowered = lower(ROOTS[name], x)
    assert_whole(lowered)
    assert_as_eager(lowered, ROOTS[name], x, rtol=1e-6, atol=0.0)
    (found,) = lowered.run(x)
    for engine in engines():
        (followed,) = lowered.program.run(x, engine=engine)
        torch.testing.assert_close(followed, found, equal_nan=True, rtol=1e-6, atol=0.0)


def test_the_root_of_a_negative_zero_keeps_its_sign(apply: Any) -> None:
    x = torch.tensor([-0.0, 0.0, 4.0])
    done = apply(
        "%y = aten.sqrt.default(%x: f32[3])", step(statistics.keep_large_roots), inputs=(x,)
    )
    assert done.count == 1
    assert done.program.run(x)[0].signbit().tolist() == [True, False, False]


test_keep_large_roots = cases(statistics)("""
keep-large-roots: roots of bounded numbers stay -> applied 0 times
    %s = aten.sigmoid.default(%x: f32[3]); %y = aten.sqrt.default(%s)
keep-large-roots: roots of doubles -> refused: float32 or float16
    %y = aten.sqrt.default(%x: f64[3])
""")

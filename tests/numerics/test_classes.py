"""Classes of numbers: NaN, infinities and finite numbers stay what eager makes of them."""

import sys
from pathlib import Path

import pytest
import torch
from eager import EXACT, Function, assert_as_eager, lower
from torch import nn

import stepwell

sys.path.insert(0, str(Path(__file__).parent))
from forms import FORMS, declared
from measuring import exported, judge, stepwells, stock
from specials import classes, severity

KEPT = (
    "amax(x, -1)",
    "amin(x, -1)",
    "max(x, -1).values",
    "min(x, -1).values",
    "clamp(x, min=tensor)",
    "clamp(x, low, high)",
    "logsumexp(x, -1)",
    "log_softmax(x, -1)",
    "where(mask, x, 0)",
    "masked_fill(x, mask, -inf)",
    "x ** 0.5",
    "gelu(x, tanh)",
    "normalize(x, -1)",
    "norm(x, 2, -1)",
    "log2(x)",
    "log10(x)",
    "reciprocal(x)",
    "1 / x",
    "linear(x) * 0.5",
    "linear(x) * 2",
    "(x @ W) * 0.125",
    "linear(x * 0.125)",
    "addcmul(x, x, y)",
    "layer_norm(x)",
)
"""Forms that once ended in a class which neither eager nor the stock flow gives."""


KEPT_OF_HALVES = (
    "sum(x, -1)",
    "mean(image, all)",
    "amax(x, -1)",
    "addcdiv(x, x, y)",
    "masked mean",
)
"""Forms of halves that once did: XNNPACK limits a NaN to −∞, or each step was rounded."""


@pytest.mark.parametrize(
    ("kept", "dtype"), [(KEPT, torch.float32), (KEPT_OF_HALVES, torch.float16)], ids=["f32", "f16"]
)
def test_forms_that_once_lost_a_class_keep_it(kept: tuple[str, ...], dtype: torch.dtype) -> None:
    forms = [form for form in FORMS if form.name in kept]
    assert len(forms) == len(kept)
    found = stepwells(forms, dtype, "xnnpack")
    verdicts = {f.name: judge(r, None, f, dtype) for f, r in zip(forms, found, strict=True)}
    assert [name for name, v in verdicts.items() if v is None or bool(v.worse.any())] == []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_no_form_is_worse_than_the_stock_flow(dtype: torch.dtype) -> None:
    forms = [form for form in FORMS if not declared(form.name, dtype)]
    worse: list[str] = []
    for start in range(0, len(forms), 40):
        some = forms[start : start + 40]
        ours, beside = stepwells(some, dtype, "xnnpack"), stock(some, dtype)
        for form, found, theirs in zip(some, ours, beside, strict=True):
            if isinstance(theirs, str):
                continue
            verdict = judge(found, theirs, form, dtype)
            if verdict is not None and bool(verdict.worse.any()):
                worse.append(form.name)
    assert worse == []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_strict_gives_what_the_kernels_of_the_runtime_give(dtype: torch.dtype) -> None:
    """Of every form, the class that eager has, or the stock flow without any delegate."""
    deviating: list[str] = []
    for start in range(0, len(FORMS), 40):
        some = FORMS[start : start + 40]
        ours = stepwells(some, dtype, "xnnpack", numerics="strict")
        kernels = stock(some, dtype, delegates=False)
        for form, found, theirs in zip(some, ours, kernels, strict=True):
            verdict = judge(found, theirs, form, dtype)
            if verdict is not None and bool(verdict.worse.any()):
                deviating.append(form.name)
    assert deviating == []


def test_no_rewrite_deviates_where_none_may() -> None:
    forms = [form for form in FORMS if form.name in KEPT]
    lowered = stepwell.lower(exported(forms, torch.float32), "xnnpack", numerics="strict")
    assert lowered.report.deviations == ()


def test_a_class_is_told_by_the_number() -> None:
    numbers = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e-40, 1.0])
    assert classes(numbers).tolist() == list(range(7))


def test_where_eager_overflows_the_exact_class_is_right() -> None:
    one, infinite, nan = (torch.tensor([n]) for n in (1.0, torch.inf, torch.nan))
    assert severity(one, infinite, one).item() == 0
    assert severity(infinite, infinite, one).item() == 0
    assert severity(infinite, one, one).item() == 2
    assert severity(one, nan, nan).item() == 3
    assert severity(infinite, nan, one).item() == 0  # Nearer to the truth than eager.


X = torch.randn(3, 4)


def greatest(x: torch.Tensor) -> torch.Tensor:
    return x.amax(-1)


def test_a_deviation_is_taken_for_finite_activations_and_listed() -> None:
    report = lower(greatest, X, numerics="finite").report
    assert report.delegates == 1 and not report.outside
    assert [(d.rewrite, d.loses) for d in report.deviations] == [
        ("lower-greatest", "a NaN may be lost beside a number")
    ]
    assert "a NaN may be lost beside a number" in str(report)


def test_the_greatest_keeps_a_nan_within_the_delegate_by_default() -> None:
    done = lower(greatest, X)
    assert (done.report.delegates, dict(done.report.outside), done.report.deviations) == (1, {}, ())
    x = torch.tensor(
        [[1.0, torch.nan, 3.0, 2.0], [-torch.inf] * 4, [torch.inf, -torch.inf, 0, -0.0]]
    )
    assert_as_eager(done, greatest, x, **EXACT)


def test_a_deviation_is_refused_by_default_with_the_remedy() -> None:
    """A reciprocal is infinite for a denormal number that is read as zero."""
    report = lower(torch.reciprocal, X).report
    assert report.outside == {"aten.reciprocal.default": 1} and not report.deviations
    assert any("numerics='finite' allows it" in refusal.reason for refusal in report.refusals)


def test_a_deviation_that_is_proven_not_to_occur_is_none() -> None:
    report = lower(lambda x: torch.reciprocal(x.square() + 0.5), X).report
    assert (report.delegates, dict(report.outside), report.deviations) == (1, {}, ())


def attends(x: torch.Tensor, norm: nn.Module, project: nn.Module) -> torch.Tensor:
    """Attention, behind a norm or not."""
    q, k, v = project(norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
    return nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize(
    ("norm", "taken"),
    [(nn.LayerNorm(8), []), (nn.RMSNorm(8), []), (nn.Identity(), ["expand-attention"])],
    ids=["layer norm", "root mean square", "none"],
)
def test_scores_behind_a_norm_are_proven_to_be_finite(norm: nn.Module, taken: list[str]) -> None:
    report = lower(Function(attends, norm, nn.Linear(8, 24)), torch.randn(1, 5, 8)).report
    assert report.delegates == 1
    found = [d.rewrite for d in report.deviations if "overflow to −∞" in d.loses]
    assert found == taken


def test_nothing_in_floats_is_delegated_where_no_deviation_is_allowed() -> None:
    assert lower(torch.tanh, X, numerics="strict").report.delegates == 0

"""What XNNPACK cannot hold or run stays outside, named with its reason; what is emitted runs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager import assert_as_eager, exported, lower
from torch import nn

import stepwell
from stepwell.backends.executorch.running.runner import run_pte
from stepwell.backends.tosa import emit as emit_tosa
from stepwell.backends.xnnpack import emit


def explained(function: Callable[..., Any], *inputs: torch.Tensor) -> stepwell.Lowered:
    """As far as it comes, where it cannot be emitted."""
    made = stepwell.explain(exported(function, *inputs), "xnnpack").lowered
    assert made is not None
    return made


def far(x: torch.Tensor) -> torch.Tensor:
    """Rank seven between two layers of rank one, where no two axes can be one."""
    y = (x * 2).reshape([2] * 7)
    return (y * y.permute(6, 5, 4, 3, 2, 1, 0)).reshape(128).sigmoid()


def empty(x: torch.Tensor) -> torch.Tensor:
    """A tensor without elements beside one with some."""
    return torch.cat([(x[:, :0] * 2).tanh(), x.tanh()], 1).sigmoid()


Case = tuple[Callable[..., Any], tuple[int, ...], str, str, int]
CASES: dict[str, Case] = {
    "rank 7": (far, (128,), "aten.mul.Tensor", "rank 7 is above XNNPACK's limit of 6", 2),
    "nothing but rank 7": (
        lambda x: (x * 2).relu(),
        (1, 2, 1, 2, 1, 2, 1),
        "aten.mul.Tensor",
        "rank 7",
        0,
    ),
    "nothing but no elements": (
        lambda x: x.sum(0, keepdim=True),
        (0, 4),
        "aten.sum.dim_IntList",
        "is 0",
        0,
    ),
    "no node": (lambda x: (x * 2).atan() * 2, (2, 6), "aten.atan.default", "", 2),
    "doubles": (lambda x: x.double() * 2, (3,), "aten.mul.Tensor", "not float64", 0),
}  # fmt: skip
"""Function, shape, what stays outside, why, and how many delegates there are at most."""


def test_what_has_no_elements_goes_away_where_something_is_beside_it() -> None:
    x = torch.randn(2, 4)
    made = lower(empty, x)
    assert (made.report.delegates, sum(made.report.outside.values())) == (1, 0)
    torch.testing.assert_close(made.run(x)[0], empty(x))


@pytest.mark.parametrize("name", CASES)
def test_what_has_no_form_is_portable_and_named_and_the_rest_runs(name: str) -> None:
    function, shape, outside, reason, most = CASES[name]
    x = torch.randn(shape)
    made = lower(function, x)
    assert outside in made.report.outside
    assert made.report.delegates <= most
    assert any(reason in refusal.reason for refusal in made.report.refusals) or not reason
    assert outside in str(made.report)
    (found,) = run_pte(made.to_pte(), [x])
    torch.testing.assert_close(found, function(x))


def strange(x: torch.Tensor) -> torch.Tensor:
    return torch.special.airy_ai(torch.linalg.svdvals((x * 2).tanh())) + 1


def test_operators_that_nothing_runs_are_all_named_and_are_explained() -> None:
    x = torch.randn(2, 6)
    names = ("aten.linalg_svdvals.default", "aten.special_airy_ai.default")
    with pytest.raises(stepwell.StepwellError) as raised:
        lower(strange, x)
    assert all(name in str(raised.value) for name in names)
    made = explained(strange, x)
    assert set(names) <= set(made.report.outside)
    assert made.report.delegates > 0
    made.program.verify()
    torch.testing.assert_close(made.program.run(x)[0], strange(x))


def test_a_constant_beyond_the_format_is_an_error_with_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = exported(nn.Linear(64, 64), torch.randn(1, 64))
    made = [stepwell.lower(program, target) for target in ("xnnpack", "tosa-1.0+fp")]
    emitted = [each.emit() for each in made]
    assert all(emitted)
    monkeypatch.setattr(emit, "_LIMIT", 64 * 64 * 4 - 1)  # Two gibibytes, scaled down.
    monkeypatch.setattr(emit_tosa, "LARGEST", 64 * 65 * 4 - 1)
    for each in made:
        for again in (each.emit, lambda each=each: stepwell.lower(program, each.target.name)):
            with pytest.raises(stepwell.StepwellError, match=r"16\d\d\d bytes.*2 GiB"):
                again()


LONG = 10**10
TOO_LARGE: dict[str, tuple[Callable[..., Any], str]] = {
    "a repeated number": (
        lambda x: torch.full((1,), 2.0).expand(LONG).sum() + x,
        "an axis of 10000000000 elements is above 2147483647",
    ),
    "a padded row": (
        lambda x: nn.functional.pad(torch.ones(1), (0, LONG))[:4] + x,
        "an axis of 10000000001 elements is above 2147483647",
    ),
    "a data-dependent size": (
        lambda x: torch.bincount(x.long().abs()).sum() + x,
        "aten.bincount.default: the ExecuTorch runtime has no kernel for it, and PyTorch "
        "computes it by no others that have one",
    ),
    "a causal mask of 2^34 elements": (
        lambda x: nn.functional.scaled_dot_product_attention(
            *[x.reshape(1, 1, 2).expand(1, 1 << 17, 2)] * 3, is_causal=True
        ),
        "",
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_is_too_large_for_the_runtime_is_refused_before_it_is_made(name: str) -> None:
    """None of these constants is ever in memory: the largest would take 17 GB."""
    function, fact = TOO_LARGE[name]
    x = torch.randn(2 if "causal" in name else 4)
    if fact:
        with pytest.raises(stepwell.StepwellError, match=fact):
            lower(function, x)
    else:
        made = lower(function, x)
        assert any("is_causal" in refusal.reason for refusal in made.report.refusals)


def test_a_constant_that_torch_cannot_compute_is_refused_in_words() -> None:
    """Taken apart, a large eye counts its rows in uint16, of which torch has no `arange`."""
    made = explained(lambda x: torch.eye(60000)[:2, :4] + x, torch.ones(4))
    reasons = [refusal.reason for refusal in made.report.refusals]
    assert any("a constant cannot be computed: aten.arange" in reason for reason in reasons)


@pytest.mark.parametrize("target", ["xnnpack", "cortex-m55"])
@torch.no_grad()
def test_strides_are_followed_where_memory_is_known_and_refused_elsewhere(target: str) -> None:
    def windows(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x / 3.0, (2, 3), (3, 1), 1)

    for x in (torch.randn(9, 6), torch.randn(6, 9).t()):
        if x.is_contiguous():
            assert_as_eager(lower(windows, x, target=target), windows, x)
        else:
            with pytest.raises(stepwell.StepwellError, match="how its operand lies is not known"):
                lower(windows, x, target=target).to_pte()

"""Every node on ExecuTorch's runtime, against what the dialect says it computes."""

import pytest
import torch
from dialect_building import interpreted
from dialect_cases import all_cases

from stepwell.backends.xnnpack.alone import Outcome, Trial, run_alone
from stepwell.dialects.xnnpack import NODES, ScaledDotProductAttention

CASES = all_cases()
RELATIVE = {torch.float32: 2.0**-19, torch.float16: 2.0**-9}
"""Bounds, as parts of the largest number in the result. Float kernels add in another order than
torch (sums of up to 64 products here), and half kernels round after every step."""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[Trial, Outcome]]:
    trials = [case.trial() for case in CASES]
    found = run_alone(trials, embed_unpacked_constants=True)
    names = [case.name for case in CASES]
    return dict(zip(names, zip(trials, found, strict=True), strict=True))


def test_case_names_are_distinct() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_every_node_but_attention_has_a_case() -> None:
    tried = {
        op.NODE for case in CASES for op in case.trial().delegate.block.ops if hasattr(op, "NODE")
    }
    assert tried == set(NODES) - {ScaledDotProductAttention.NODE}


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_runtime_computes_what_the_dialect_says(
    name: str, outcomes: dict[str, tuple[Trial, Outcome]]
) -> None:
    trial, outcome = outcomes[name]
    if isinstance(outcome, Exception):
        raise outcome
    wanted = interpreted(trial)
    assert len(outcome) == len(wanted)
    for got, want in zip(outcome, wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        if not want.dtype.is_floating_point:
            assert torch.equal(got, want)
            continue
        assert torch.equal(got.isnan(), want.isnan())
        finite = want.isfinite()
        assert torch.equal(got[~finite & ~want.isnan()], want[~finite & ~want.isnan()])
        error = (got.double() - want.double())[finite].abs()
        largest = want.double()[finite].abs().max()
        assert error.max() <= RELATIVE[want.dtype] * largest

"""Every node on ExecuTorch's runtime, against what the dialect says it computes."""

from collections.abc import Callable

import pytest
import torch
from dialect_building import interpreted
from dialect_cases import all_cases
from isolated_run import Outcome, Trial, run_alone

from stepwell.dialects import xnnpack as xnn
from stepwell.dialects.xnnpack import NODES, ScaledDotProductAttention
from stepwell.ir.weights import WeightStore

pytestmark = pytest.mark.kernels
CASES = all_cases()
RELATIVE = {torch.float32: 2.0**-19, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-7}
"""Bounds, as parts of the largest number in the result, where no products are summed. Half kernels
round after every step."""
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""The largest relative error of one operation."""
PRODUCTS = (
    xnn.BatchMatrixMultiply,
    xnn.Convolution2d,
    xnn.Deconvolution2d,
    xnn.DepthwiseConvolution2d,
    xnn.FullyConnected,
)


def of_sums(trial: Trial, dtype: torch.dtype) -> torch.Tensor | None:
    """How far sums of products of floats may be from each other, computed in any order; else None.

    A kernel may keep its sum in the type of its operands, and round after every product and every
    addition: `terms` products and a bias move a sum by at most `terms + 1` roundings of the sum of
    their sizes, twice, since both results are computed so. Both numbers are the node's own, asked
    of ones and of the absolute values, without the clamp that comes last.
    """
    nodes = [op for op in trial.delegate.block.ops if isinstance(op, xnn.XnnpackOp)]
    if len(nodes) != 1 or not isinstance(nodes[0], PRODUCTS):
        return None
    given = (*trial.inputs, *map(trial.weights.get, trial.weights))
    if not all(tensor.is_floating_point() for tensor in given):
        return None
    delegate = trial.delegate.clone()
    for op in delegate.block.ops:
        for bound in ("output_min", "output_max"):
            op.properties.pop(bound, None)

    def asked(of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        weights = WeightStore()
        for key in trial.weights:
            weights.add(key, of(trial.weights.get(key)))
        (out,) = interpreted(Trial(delegate, weights, tuple(map(of, trial.inputs))))
        return out.double()

    terms, sizes = asked(torch.ones_like), asked(torch.abs)
    return 2 * (terms + 1) * ROUNDING[dtype] * sizes


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
        error = (got.double() - want.double()).abs()
        allowed = of_sums(trial, want.dtype)
        if allowed is None:
            largest = want.double()[finite].abs().max()
            allowed = (RELATIVE[want.dtype] * largest).expand_as(error)
        assert bool((error <= allowed)[finite].all())

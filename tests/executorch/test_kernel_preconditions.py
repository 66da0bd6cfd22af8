"""Forms that a kernel of the runtime refuses are not emitted: other operators compute them."""

from collections.abc import Callable

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # It registers the operators.
from eager import EXACT, assert_as_eager, lower
from torch import nn

from stepwell.ir.diagnostics import StepwellError

OPS = torch.ops.quantized_decomposed


FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "narrow from the end": lambda x: torch.ops.aten.narrow_copy.default(x, -1, 1, 2),
    "a vector as weight": lambda x: nn.functional.linear(x, x[0]),
    "a copy that does not block": lambda x: x.to(torch.float64, non_blocking=True).floor() * 3,
    "an empty piece": lambda x: torch.split(x, [1, 0, 2])[2] + 1,
    "a negative bound of bytes": lambda x: torch.ops.aten.hardtanh.default(x.to(torch.uint8), -0.5),
    "whole steps from a fraction": lambda x: x + torch.arange(0.9, 4.9, 1.0, dtype=torch.int64),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_what_a_kernel_refuses_is_computed_by_others(name: str, dtype: torch.dtype) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype)
    assert_as_eager(lower(FORMS[name], x), FORMS[name], x, **EXACT)


def test_a_dynamic_range_of_integers_takes_whole_steps_given_as_floats() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x.sum() + torch.arange(x.shape[0], -x.shape[0], -1.0, dtype=torch.int64)

    lowered = lower(model, torch.ones(5, 2), dynamic={0: torch.export.Dim("n", min=3, max=16)})
    for length in (3, 5, 16):
        assert_as_eager(lowered, model, torch.ones(length, 2), **EXACT)


QUANTIZED: dict[str, tuple[Callable[[torch.Tensor], object], str]] = {
    "scales of float32": (
        lambda x: OPS.quantize_per_token(
            x.double(), x[:, :1], torch.ones(3, 1, dtype=torch.int64), -128, 127, torch.int8
        ),
        "takes scales of float64 only",
    ),
    "steps past 32 bits": (
        lambda x: OPS.choose_qparams.tensor(x, -(2**31), 2**31 - 1, 1e-5, torch.int32),
        "counts the steps between quant_min and quant_max in 32 bits",
    ),
    "a token without axes": (
        lambda x: OPS.choose_qparams_per_token_asymmetric(x[0, 0], torch.int8),
        "needs an axis",
    ),
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_what_no_other_operator_computes_is_refused_when_it_is_lowered(name: str) -> None:
    function, reason = QUANTIZED[name]
    with pytest.raises(StepwellError, match=reason):
        lower(function, torch.rand(3, 4) + 1)

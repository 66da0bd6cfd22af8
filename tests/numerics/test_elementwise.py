"""Every elementwise operator of ATen on special values: the class of eager, or a declared one."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from elementwise import compared, measurable

ONCE_WRONG = (
    "digamma", "nextafter", "polygamma.default(self, n=3)", "sigmoid_backward", "tanh_backward",
    "sinc", "special_spherical_bessel_j0", "i0.default", "special_i1.default",
    "special_modified_bessel_k1", "special_bessel_y1",
    "special_chebyshev_polynomial_t.n_scalar(x, n=3)",
    "special_chebyshev_polynomial_u.n_scalar(x, n=3)",
)  # fmt: skip
"""Operators that once gave an undeclared class: NaN or infinity for a number, or the reverse."""


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp"])
def test_operators_that_once_lost_a_class_keep_it(target: str) -> None:
    forms = measurable(torch.float32, ONCE_WRONG)
    assert len(forms) >= len(ONCE_WRONG)
    found = compared(forms, torch.float32, target)
    assert (found.undeclared, found.refused) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        ("xnnpack", torch.float32),
        ("xnnpack", torch.float16),
        ("tosa-1.0+fp", torch.float32),
        ("cortex-m55", torch.float32),
    ],
    ids=str,
)
def test_no_elementwise_operator_has_an_undeclared_class(target: str, dtype: torch.dtype) -> None:
    found = compared(measurable(dtype), dtype, target)
    assert found.undeclared == []
    assert len(found.as_eager) > len(found.refused)

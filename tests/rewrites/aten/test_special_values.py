"""What claims to be exact is exact in every bit, on NaN, infinities, −0.0 and subnormals too."""

from typing import Any

import pytest
import torch

from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.translate.rewrites.documentation import (
    examples_of,
    module_names,
    module_of,
    rewrites_of,
)

FINITE_ONLY = {
    "attention.add_mask_to_scores": "a score of NaN or ∞ that the mask hides is seen: declared",
    "attention.row_guards": "scores that overflow to −∞ in a whole row are not caught",
}
"""Rewrites whose docstring, or `deviates`, excludes values that are not finite."""

SPECIAL = (0.0, -0.0, 1.0, -1.0, torch.nan, torch.inf, -torch.inf, 1e-40, -3e38, 3e38, 6.0, -3.0)

OF_TARGETS = ("cmsis.", "ethosu.", "mxfp.", "quant.", "tosa.", "xnnpack.")
EXACT = [
    name for name in module_names() if not name.startswith(OF_TARGETS) and name not in FINITE_ONLY
]


def special_like(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape that cycles through the special values."""
    if not tensor.is_floating_point():
        return tensor
    values = torch.tensor(SPECIAL, dtype=tensor.dtype).repeat(tensor.numel() // len(SPECIAL) + 1)
    return values[torch.randperm(tensor.numel())].reshape(tensor.shape)


@pytest.mark.parametrize("name", EXACT)
def test_an_exact_rewrite_keeps_every_bit_of_special_values(name: str, programs: Any):
    module = module_of(name)
    rewrites = [rewrite() for rewrite in rewrites_of(module)]
    if not rewrites or not all(rewrite.bound.exact for rewrite in rewrites):
        return
    for before, _ in examples_of(module):
        for _ in range(2):
            source, example = programs(before)
            program = source.clone()
            run_rewrites(program, rewrites)
            for _ in range(10):
                inputs = [special_like(tensor) for tensor in example]
                assert_same_bits(source.run(*inputs), program.run(*inputs))


def assert_same_bits(wanted: Any, given: Any) -> None:
    for one, other in zip(wanted, given, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=0, equal_nan=True)
        if isinstance(one, torch.Tensor) and one.is_floating_point():
            signs = one.signbit() == other.signbit()
            assert bool((signs | one.isnan()).all()), (one, other)

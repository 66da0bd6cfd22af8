"""ReciprocalToDivision: special values, and near misses."""

from typing import Any

import torch
from rewrite_cases import cases

from stepwell.translate.decompositions import arithmetic
from stepwell.translate.lowerings.lowering import step

SPECIAL = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.25, -0.25, 1e-40])


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(7.0, 8.0, 9.0), other.nan_to_num(7.0, 8.0, 9.0))


def test_the_reciprocal_of_special_values_is_what_it_was(apply: Any):
    done = apply(
        "%y = aten.reciprocal.default(%x: f32[8])", step(arithmetic.reciprocal_to_division)
    )
    assert same(done.program.run(SPECIAL)[0], SPECIAL.reciprocal())


test_reciprocal_to_division = cases(
    arithmetic,
    """
reciprocal-to-division: the reciprocal of an integer -> refused: is f32
    %y = aten.reciprocal.default(%x: i64[8])
reciprocal-to-division: the reciprocal of a complex number -> refused: is complex
    %y = aten.reciprocal.default(%x: complex<f32>[8])
""",
)

"""Sums with factors: beyond their examples, and what stays."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases

from stepwell.translate.canonicalize import sums as canonical
from stepwell.translate.decompositions import sums

RULES = (*canonical.RULES, *sums.RULES)
ALL = {rule.name: rule() for rule in RULES}


def of_two(call: str, method: Any, first: str = "f32", second: str = "f32") -> str:
    one, other = f"tensor<2x3x{first}>", f"tensor<2x3x{second}>"
    line = f"%y = aten.{call} : ({one}, {other}) -> {one}"
    return method(f"%x: {one}, %z: {other}", line, gives=one)


test_sums = cases(
    RULES,
    """
split-alpha-of-add | drop-alpha-of-add: a sum without a factor -> unchanged
    %y = aten.add.Tensor(%x: f32[2, 3], %z: f32[2, 3])
split-alpha-of-add: operands of two dtypes -> refused: several dtypes
    %y = aten.add.Tensor(%x: f32[2, 3], %z: f16[2, 3], alpha=2)
split-alpha-of-sub: operands of two dtypes -> refused: several dtypes
    %y = aten.sub.Tensor(%x: f32[2, 3], %z: f16[2, 3], alpha=2)
split-alpha-of-rsub: operands of two dtypes -> refused: several dtypes
    %y = aten.rsub.Tensor(%x: f32[2, 3], %z: f16[2, 3], alpha=2)
lerp-from-start: an interpolation of halves -> refused: float32
    %y = aten.lerp.Scalar(%x: f16[2, 3], %z: f16[2, 3], 0.25)
lerp-from-end: an interpolation of halves -> refused: float32
    %y = aten.lerp.Scalar(%x: f16[2, 3], %z: f16[2, 3], 0.75)
lerp-from-start: a weight known only at run time -> refused: run time
    %y = aten.lerp.Scalar(%x: f32[2, 3], %x, %n: int<n>)
split-addcmul: several dtypes -> refused: dtypes
    %y = aten.addcmul.default(%x: f32[2, 3], %z: f32[2, 3], %h: f16[2, 3])
addcdiv is a quotient and a sum -> aten.div.Tensor, aten.add.Tensor
    %y = aten.addcdiv.default(%x: f32[2, 3], %z: f32[2, 3], %w: f32[3])
split-scaled-addcmul: a factor known only at run time -> refused: known only at run time
    %y = aten.addcmul.default(%x: f32[2, 3], %x, %x, value=%n: int<n>)
""",
)


@pytest.mark.parametrize(
    ("call", "ops"),
    [
        ("add.Tensor(%x, %z, alpha=1)", ["aten.add.Tensor"]),
        ("sub.Tensor(%x, %z, alpha=1)", ["aten.sub.Tensor"]),
        ("rsub.Tensor(%x, %z)", ["aten.sub.Tensor"]),
        ("rsub.Tensor(%x, %z, alpha=0.5)", ["aten.mul.Scalar", "aten.sub.Tensor"]),
    ],
)
def test_a_factor_becomes_a_product_and_one_is_dropped(
    call: str, ops: list[str], apply: Any, method: Any
):
    done = apply(of_two(call, method), *ALL.values())
    assert done.ops() == ops
    assert "alpha" not in done.text


@pytest.mark.parametrize("weight", [0.0, 0.49, 0.5, 1.0, -0.75, 3.0])
def test_an_interpolation_starts_from_the_nearer_end(weight: float, apply: Any, method: Any):
    done = apply(of_two(f"lerp.Scalar(%x, %z, {weight})", method), *ALL.values())
    last = "aten.add.Tensor" if abs(weight) < 0.5 else "aten.sub.Tensor"
    assert done.ops() == ["aten.sub.Tensor", "aten.mul.Scalar", last]
    a, b = torch.full((2, 3), 1e8), torch.full((2, 3), 1.0)
    wanted = torch.lerp(a, b, weight)
    torch.testing.assert_close(done.program.run(a, b)[0], wanted, rtol=1e-6, atol=1e-6)

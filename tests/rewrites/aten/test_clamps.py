"""Clamps: beyond their examples, and what stays."""

from typing import Any

import torch
from rewrite_cases import cases

from stepwell.translate.canonicalize.clamps import RULES

ALL = {rule.name: rule() for rule in RULES}
SPECIAL = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.25, -0.25, 1e-40])


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(7.0, 8.0, 9.0), other.nan_to_num(7.0, 8.0, 9.0))


test_clamps = cases(
    RULES,
    """
threshold-to-clamp: a threshold that jumps -> refused: jumps
    %y = aten.threshold.default(%x: f32[2, 3], 1, 0)
clamp-min-to-clamp: bounds that promote integers -> refused: promote
    %y = aten.clamp_min.default(%x: i64[2, 3], 0.5)
a tensor as bound is a maximum -> aten.maximum.default
    %y = aten.clamp_min.Tensor(%x: f32[2, 3], %z: f32[2, 3])
merge-clamps: bounds out of order -> refused: in order
    %a = aten.clamp.default(%x: f32[2, 3], 2, 1)
    %y = aten.clamp.default(%a, 0, 6)
merge-clamps: an inner range outside the outer one is its nearest end -> aten.clamp.default
    %a = aten.clamp.default(%x: f32[2, 3], -2, -1)
    %y = aten.clamp.default(%a, 0.5, 6)
merge-clamps: clamps of which a zero would take another sign -> refused: other sign
    - %a = aten.clamp.default(%x: f32[2, 3], -2, -1); %y = aten.clamp.default(%a, -0.0, 5)
    - %a = aten.clamp.default(%x: f32[2, 3], -2, -1); %y = aten.clamp.default(%a, 0.0, 5)
    - %a = aten.clamp.default(%x: f32[2, 3], 1, 2); %y = aten.clamp.default(%a, -1, 0)
    - %a = aten.clamp.default(%x: f32[2, 3], -1, 1); %y = aten.clamp.default(%a, -0.0, 5)
merge-clamps: a clamp that promotes -> refused: not the same
    %a = aten.clamp.default(%x: i64[3], 0.5)
    %y = aten.clamp.default(%a, 1)
clamp-to-maximum: a bound that promotes the tensor -> refused: promotes
    %y = aten.clamp.Tensor(%x: i32[8], %a: f32[8])
a bound on one side is one extremum -> aten.maximum.default
    %y = aten.clamp.Tensor(%x: f32[8], %a: f32[8])
a bound on one side is one extremum -> aten.minimum.default
    %y = aten.clamp.Tensor(%x: f32[8], none, %a: f32[8])
a bound known only at run time stays one -> aten.sym_size.int, aten.clamp.default
    %y = aten.clamp_min.default(%x: f32[8], %n: int<n>)
""",
)


def test_a_clamp_between_tensors_keeps_every_nan(apply: Any):
    done = apply(
        "%y = aten.clamp.Tensor(%x: f32[8], %a: f32[8], %b: f32[8])",
        *ALL.values(),
    )
    low, high = SPECIAL.roll(3), SPECIAL.roll(5)
    assert same(done.program.run(SPECIAL, low, high)[0], torch.clamp(SPECIAL, low, high))

"""Arithmetic, clamps, copies and norms in one form, and what keeps its own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager import EXACT, assert_as_eager, lower
from rewrite_cases import cases
from torch import Tensor

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.canonicalize import (
    clamps,
    copies,
    noops,
    normalize_embedding,
    norms,
    powers,
)
from stepwell.translate.canonicalize import sums as canonical
from stepwell.translate.decompositions import arithmetic, statistics, sums
from stepwell.translate.lowerings.lowering import step

test_canonical_forms = cases(copies, normalize_embedding, powers, statistics)("""
remove-copy: a copy to channels last -> refused: memory format
    %y = aten.contiguous.default(%x: f32[1, 2, 3, 4], memory_format="torch.channels_last")
remove-copy: a copy whose strides are read -> refused: reads the strides
    %t = aten.permute.default(%x: f32[2, 3], [1, 0]); %c = aten.contiguous.default(%t)
    %v = aten.view.default(%c, [6]); %y = aten.as_strided.default(%v, [2], [3])
remove-noop-cast: a cast to another dtype -> unchanged
    %y = aten.to.dtype(%x: f32[2, 3], f16)
remove-noop-cast: a cast that asks for channels last -> refused: memory format
    %y = aten._to_copy.default(%x: f32[1, 2, 3, 4], memory_format="torch.channels_last")
type-as-to-copy: a cast to the dtype it has is not respelled -> unchanged
    %y = aten.type_as.default(%x: f32[2, 3], %z: f32[4])
normalize-embedding: an embedding of two operands -> unchanged
    %y = aten.embedding.default(%w: f32[3, 4], %i: i64[2])
power-to-square | power-to-cube | power-to-root | power-to-inverse-root | power-to-inverse-of-root | power-to-reciprocal | power-to-inverse-square: a fourth power -> unchanged
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], 4)
power-to-square: half precision is rounded once -> refused: rounds
    %y = aten.pow.Tensor_Scalar(%x: f16[2, 3], 2)
power-to-square: an exponent that promotes -> refused: rounds
    %y = aten.pow.Tensor_Scalar(%x: i64[2, 3], 2.0)
powers: a cube is two products -> aten.mul.Tensor, aten.mul.Tensor
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], 3.0)
powers: an inverse square is a product and a reciprocal -> aten.mul.Tensor, aten.reciprocal.default
    %y = aten.pow.Tensor_Scalar(%x: f32[2, 3], -2)
division-to-multiplication: a third is not exact -> refused: not exact
    %y = aten.div.Scalar(%x: f32[2, 3], 3.0)
division-to-multiplication: a power of two whose reciprocal is subnormal -> refused: not exact
    %y = aten.div.Scalar(%x: f32[2, 3], 1.7014118346046923e+38)
division-to-multiplication: integers divided -> unchanged
    %y = aten.div.Scalar(%x: i64[2, 3], 2)
division-to-multiplication: a divisor known only at run time -> refused: known only at run time
    %y = aten.div.Scalar(%x: f32[3], %n: int<n>)
merge-scalar-products: a product read twice -> unchanged
    %a = aten.mul.Scalar(%x: f32[2, 3], 2); %b = aten.mul.Scalar(%a, 3)
    %y = aten.add.Tensor(%a, %b)
merge-scalar-products: a factor that underflows -> refused: underflow
    %a = aten.mul.Scalar(%x: f32[2, 3], 1e-10); %y = aten.mul.Scalar(%a, 1e-30)
merge-scalar-products: integers -> unchanged
    %a = aten.mul.Scalar(%x: i64[2, 3], 2); %y = aten.mul.Scalar(%a, 3)
merge-scalar-products: a first product that overflows -> refused: overflow
    %a = aten.mul.Scalar(%x: f32[2, 3], 1e+30); %y = aten.mul.Scalar(%a, 1e-30)
merge-scalar-products: factors of which one grows and one shrinks -> refused: shrinks and one grows
    - %a = aten.mul.Scalar(%x: f32[2, 3], 1e-10); %y = aten.mul.Scalar(%a, 10000000000.0)
    - %a = aten.mul.Scalar(%x: f32[2, 3], 1000000000000000.0); %y = aten.mul.Scalar(%a, 1e-15)
merge-scalar-products: a factor known only at run time -> unchanged
    - %a = aten.mul.Scalar(%x: f32[3], %n: int<n>); %y = aten.mul.Scalar(%a, 2.0)
    - %a = aten.mul.Scalar(%x: f32[3], 2.0); %y = aten.mul.Scalar(%a, %n: int<n>)
variance-to-means: a variance of one element has nothing to divide by -> refused: is a divisor of 0
    %y = aten.var.correction(%x: f32[2, 1], [1], correction=1)
variance-to-means: half precision -> refused: accumulates
    %y = aten.var.dim(%x: f16[2, 3], [1])
variance-to-means: a biased deviation needs no factor -> aten.mean.dim, aten.sub.Tensor, aten.mul.Tensor, aten.mean.dim, aten.sqrt.default
    %y = aten.std.dim(%x: f32[2, 3], [1], false, true)
""")


ALL = {rule.name: rule() for rule in (*clamps.RULES, *noops.RULES, *norms.RULES)}
SPECIAL = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.25, -0.25, 1e-40])


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(7.0, 8.0, 9.0), other.nan_to_num(7.0, 8.0, 9.0))


test_clamps = cases(clamps.RULES)("""
threshold-to-clamp: a threshold that jumps -> refused: jumps
    %y = aten.threshold.default(%x: f32[2, 3], 1, 0)
clamp-min-to-clamp: bounds that promote integers -> refused: promote
    %y = aten.clamp_min.default(%x: i64[2, 3], 0.5)
a tensor as bound is a maximum -> aten.maximum.default
    %y = aten.clamp_min.Tensor(%x: f32[2, 3], %z: f32[2, 3])
merge-clamps: bounds out of order -> refused: in order
    %a = aten.clamp.default(%x: f32[2, 3], 2, 1); %y = aten.clamp.default(%a, 0, 6)
merge-clamps: an inner range outside the outer one is its nearest end -> aten.clamp.default
    %a = aten.clamp.default(%x: f32[2, 3], -2, -1); %y = aten.clamp.default(%a, 0.5, 6)
merge-clamps: clamps of which a zero would take another sign -> refused: other sign
    - %a = aten.clamp.default(%x: f32[2, 3], -2, -1); %y = aten.clamp.default(%a, -0.0, 5)
    - %a = aten.clamp.default(%x: f32[2, 3], -2, -1); %y = aten.clamp.default(%a, 0.0, 5)
    - %a = aten.clamp.default(%x: f32[2, 3], 1, 2); %y = aten.clamp.default(%a, -1, 0)
    - %a = aten.clamp.default(%x: f32[2, 3], -1, 1); %y = aten.clamp.default(%a, -0.0, 5)
merge-clamps: a clamp that promotes -> refused: not the same
    %a = aten.clamp.default(%x: i64[3], 0.5); %y = aten.clamp.default(%a, 1)
clamp-to-maximum: a bound that promotes the tensor -> refused: promotes
    %y = aten.clamp.Tensor(%x: i32[8], %a: f32[8])
a bound on one side is one extremum -> aten.maximum.default
    %y = aten.clamp.Tensor(%x: f32[8], %a: f32[8])
a bound on one side is one extremum -> aten.minimum.default
    %y = aten.clamp.Tensor(%x: f32[8], none, %a: f32[8])
a bound known only at run time stays one -> aten.sym_size.int, aten.clamp.default
    %y = aten.clamp_min.default(%x: f32[8], %n: int<n>)
""")


def test_a_clamp_between_tensors_keeps_every_nan(apply: Any):
    done = apply(
        "%y = aten.clamp.Tensor(%x: f32[8], %a: f32[8], %b: f32[8])",
        clamps,
    )
    low, high = SPECIAL.roll(3), SPECIAL.roll(5)
    assert same(done.program.run(SPECIAL, low, high)[0], torch.clamp(SPECIAL, low, high))


@pytest.mark.parametrize("bounds", ["-1, none", "none, -3", "-255, -1"])
def test_every_negative_bound_is_wrapped(bounds: str, apply: Any):
    done = apply(f"%y = aten.clamp.default(%x: ui8[4], {bounds})", ALL["wrap-clamp-bounds"])
    assert "-" not in done.text.split("clamp")[1].partition(":")[0]


test_wrap_clamp_bounds = cases(clamps)("""
wrap-clamp-bounds: 0, 255-ui8-ui8 -> unchanged
    %y = aten.clamp.default(%x: ui8[4], 0, 255)
wrap-clamp-bounds: -1, 3-i8-i8 -> unchanged
    %y = aten.clamp.default(%x: i8[4], -1, 3)
wrap-clamp-bounds: -1.5, 3-ui8-f32 -> unchanged
    %y = aten.clamp.default(%x: ui8[4], -1.5, 3)
merge-clamps: clamps of bounds that wrap are not merged -> refused: wrap
    %a = aten.clamp.default(%x: ui8[4], 0, 5); %y = aten.clamp.default(%a, -1, 3)
""")


CLAMPS: dict[str, Callable[[Tensor], Tensor]] = {
    "both": lambda x: x.clamp(-1, 1),
    "below": lambda x: x.clamp_min(-1),
    "above": lambda x: x.clamp_max(-200),
    "twice": lambda x: x.clamp(0, 5).clamp(-1, 3),
}


@pytest.mark.parametrize("form", CLAMPS)
def test_unsigned_bytes_are_clamped_as_by_torch(form: str):
    x = torch.arange(0, 256, 15, dtype=torch.uint8)
    assert_as_eager(lower(CLAMPS[form], x), CLAMPS[form], x, **EXACT)


test_noops = cases(noops.RULES)("""
remove-noop-permute: a transposition of a square -> unchanged
    %y = aten.permute.default(%x: f32[3, 3], [1, 0])
remove-noop-pad: a pad that moves but keeps the shape -> unchanged
    %y = aten.constant_pad_nd.default(%x: f32[2, 3], [1, -1])
remove-noop-roll: a roll -> unchanged
    %y = aten.roll.default(%x: f32[2, 3], [1], [0])
remove-noop-flip: a flip -> unchanged
    %y = aten.flip.default(%x: f32[2, 3], [0])
a view to the same symbolic shape goes -> aten.neg.default
    %a = aten.view.default(%x: f32[s0, 3], [-1, 3]); %y = aten.neg.default(%a)
remove-native-dropout: a used mask keeps the dropout -> refused: mask is used
    %a, %y = aten.native_dropout.default(%x: f32[2, 3], 0.5, false); return %y
remove-dropout: dropout that drops everything -> refused: model.eval
    %y = aten.dropout.default(%x: f32[4], 1.0, true)
""")


test_pooling_that_changes_something = cases(noops)("""
remove-unit-max-pooling: windows of one element that are far apart -> unchanged
    %y = aten.max_pool2d.default(%x: f32[1, 2, 4, 4], [1, 1], [2, 2])
remove-unit-max-pooling: windows of nine elements -> unchanged
    %y = aten.max_pool2d.default(%x: f32[1, 2, 4, 4], [3, 3], [1, 1], [1, 1])
remove-unit-max-pooling: windows of four elements -> unchanged
    %y = aten.max_pool2d.default(%x: f32[1, 2, 4, 4], [2, 2], [1, 1])
remove-unit-average-pooling: windows of two elements -> unchanged
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 4, 4], [2, 1], [1, 1])
remove-unit-average-pooling: a divisor of its own -> refused: another number
    %y = aten.avg_pool2d.default(%x: f32[1, 2, 4, 4], [1, 1], [1, 1], [0, 0], false, true, 2)
""")


test_softmaxes = cases(norms.RULES)("""
softmax-axis-from-front: a softmax in normal form -> unchanged
    %y = aten._softmax.default(%x: f32[2, 3], 1, false)
a dtype casts first -> aten._to_copy.default, aten._softmax.default
    %y = aten.softmax.int(%x: f32[2, 3], -1, f64)
""")


def test_a_cast_within_the_softmax_is_refused(programs: Any):
    program, _ = programs("%y = aten._softmax.default(%x: f16[2, 3], -1, true)")
    history = History()
    assert run_rewrites(program, [ALL["softmax-axis-from-front"]], history) == 0
    assert "only CUDA" in next(iter(history.refusals.values())).reason


RULES = (*canonical.RULES, *sums.RULES)


test_sums = cases(RULES)("""
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
a factor becomes a product and one is dropped -> aten.add.Tensor; omits alpha
    %y = aten.add.Tensor(%x: f32[2, 3], %z: f32[2, 3], alpha=1)
a factor becomes a product and one is dropped -> aten.sub.Tensor; omits alpha
    - %y = aten.sub.Tensor(%x: f32[2, 3], %z: f32[2, 3], alpha=1)
    - %y = aten.rsub.Tensor(%x: f32[2, 3], %z: f32[2, 3])
a factor becomes a product and one is dropped -> aten.mul.Scalar, aten.sub.Tensor; omits alpha
    %y = aten.rsub.Tensor(%x: f32[2, 3], %z: f32[2, 3], alpha=0.5)
""")


@pytest.mark.parametrize("weight", [0.0, 0.49, 0.5, 1.0, -0.75, 3.0])
def test_an_interpolation_starts_from_the_nearer_end(weight: float, apply: Any):
    line = f"%y = aten.lerp.Scalar(%x: f32[2, 3], %z: f32[2, 3], {weight})"
    done = apply(line, *(rule() for rule in RULES))
    last = "aten.add.Tensor" if abs(weight) < 0.5 else "aten.sub.Tensor"
    assert done.ops() == ["aten.sub.Tensor", "aten.mul.Scalar", last]
    a, b = torch.full((2, 3), 1e8), torch.full((2, 3), 1.0)
    wanted = torch.lerp(a, b, weight)
    torch.testing.assert_close(done.program.run(a, b)[0], wanted, rtol=1e-6, atol=1e-6)


def test_the_reciprocal_of_special_values_is_what_it_was(apply: Any):
    done = apply(
        "%y = aten.reciprocal.default(%x: f32[8])", step(arithmetic.reciprocal_to_division)
    )
    assert same(done.program.run(SPECIAL)[0], SPECIAL.reciprocal())


test_reciprocal_to_division = cases(arithmetic)("""
reciprocal-to-division: the reciprocal of an integer -> refused: is f32
    %y = aten.reciprocal.default(%x: i64[8])
reciprocal-to-division: the reciprocal of a complex number -> refused: is complex
    %y = aten.reciprocal.default(%x: complex<f32>[8])
""")

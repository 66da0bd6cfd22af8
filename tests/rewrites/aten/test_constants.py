"""Constants are computed, moved and chosen ahead of time, or stay."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from eager import assert_as_eager, assert_whole, exported, lower
from rewrite_cases import cases
from torch import Tensor

import stepwell
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.translate.decompositions import constants
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.constants import choose_from_one
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants
from stepwell.translate.rewrites.constants.lift_number_operand import LiftNumberOperand

(RULE,) = choose_from_one.RULES.named("choose-from-one")


def test_a_mask_of_one_group_is_decided_while_lowering():
    def one_group(x: Tensor) -> Tensor:
        """Scores of the groups that rank first, as DeepSeek's routers keep them; of one all."""
        scores = x.sigmoid()
        groups = scores.view(len(x), 1, -1).topk(2).values.sum(-1)
        mask = torch.zeros_like(groups).scatter_(1, groups.topk(1, sorted=False).indices, 1)
        mask = mask.unsqueeze(-1).expand(len(x), 1, x.shape[1]).reshape(len(x), -1)
        return scores.masked_fill(~mask.bool(), -torch.inf).topk(2).values

    x = torch.randn(5, 6)
    lowered = lower(one_group, x, numerics="finite")
    assert_whole(lowered)
    assert_as_eager(lowered, one_group, x)


test_choose_from_one = cases(RULE)("""
one of two is a choice -> unchanged
    %y, %i = aten.topk.default(%x: f32[3, 2], 1); return %y
""")


test_fold_constants = cases(FoldConstants)("""
what depends on an input -> unchanged
    %y = aten.add.Tensor(%x: f32[2, 3], %w: weight f32[2, 3])
random numbers are no constant -> unchanged
    %y = aten.mul.Scalar(%x: f32[2, 3], 0.0)
a constant made from nothing is a weight -> aten.add.Tensor
    %a = aten.arange.default(4); %y = aten.add.Tensor(%x: i64[4], %a)
a fill of an input s shape is a weight -> aten.add.Tensor
    %a = aten.full_like.default(%x: f32[2, 3], 2.5); %y = aten.add.Tensor(%x, %a)
random numbers -> unchanged
    %y = aten.bernoulli.p(%w: weight f32[2, 3], 1.0)
a quantized weight -> unchanged
    %y = quantized_decomposed.quantize_per_tensor.default(%w: weight f32[2, 3], 0.5, 0, -128, 127, i8)
a fill of any length -> unchanged
    %y = aten.full_like.default(%l: f32[n, 3], 2.5)
what memory holds is zeros -> aten.add.Tensor
    - %e = aten.empty.memory_format([2, 3]); %y = aten.add.Tensor(%x: f32[2, 3], %e)
    - %e = aten.empty_like.default(%w: weight f32[2, 3]); %y = aten.add.Tensor(%x: f32[2, 3], %e)
a fill of a number known only at run time -> refused: run time
    %y = aten.full_like.default(%x: f32[2, 3], %n: int<n>)
""")


test_fold_constants_ = cases(FoldConstants(largest=1000))("""
a constant that would grow too large -> refused: bytes more
    %e = aten.repeat.default(%w: weight f32[2, 3], [64, 64]); %y = aten.sum.default(%e)
""")


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp"])
def test_arguments_that_a_call_leaves_out_are_none(target: str) -> None:
    image, kernel, table = torch.randn(1, 3, 6, 6), torch.randn(4, 3, 3, 3), torch.randn(5, 4)
    rows = torch.tensor([[0, 1], [2, 1]])

    def of_constants(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + F.conv2d(image, kernel), x[0, :2, 0] + F.embedding_bag(rows, table)

    x = torch.randn(1, 4, 4, 4)
    assert_as_eager(lower(of_constants, x, target=target), of_constants, x, rtol=1e-4, atol=1e-4)


test_lift_number_operand = cases(LiftNumberOperand)("""
a number of the operands kind is a constant -> aten.floor_divide.default
    - %n = sym.constant 2 : i64 : !stepwell.int<"2">; %y = aten.floor_divide.default(%x: i32[2, 3], %n)
    - %n = sym.constant 2 : i64 : !stepwell.int<"2">; %y = aten.floor_divide.default(%x: f32[2, 3], %n)
    - %n = sym.constant 2 : i64 : !stepwell.int<"2">; %y = aten.floor_divide.default(%x: f16[2, 3], %n)
    - %n = sym.constant 2.500000e+00 : f64 : !stepwell.float<"2.5">
      %y = aten.floor_divide.default(%x: f16[2, 3], %n)
    - %n = sym.constant 1.000000e-01 : f64 : !stepwell.float<"0.1">
      %y = aten.floor_divide.default(%x: f32[2, 3], %n)
a number that promotes or is rounded -> refused: promotes
    - %n = sym.constant 2.500000e+00 : f64 : !stepwell.float<"2.5">
      %y = aten.floor_divide.default(%x: i64[2, 3], %n)
    - %n = sym.constant 2 : i64 : !stepwell.int<"2">; %y = aten.floor_divide.default(%x: i1[2, 3], %n)
    - %n = sym.constant 1.000000e-01 : f64 : !stepwell.float<"0.1">
      %y = aten.floor_divide.default(%x: f16[2, 3], %n)
a truth value -> refused: promotes
    %n = sym.constant true : !stepwell.bool<"True">
    %y = aten.floor_divide.default(%x: i64[2, 3], %n)
a number that sizes something -> unchanged
    %n = sym.constant 2 : i64 : !stepwell.int<"2">; %y = aten.full.default([%n, 3], 1.0)
a number read next to several dtypes -> refused: several dtypes
    %n = sym.constant 2 : i64 : !stepwell.int<"2">; %y = aten.floor_divide.default(%x: f32[2], %n)
    %w = aten.floor_divide.default(%z: i64[2], %n); %s = aten.add.Tensor(%y, %w)
""")


def test_whole_division_by_a_number_runs_on_the_runtime():
    def halves(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        return x // 2, n // 2

    inputs = (torch.tensor([-3.0, 5.5]), torch.tensor([-3, 5]))
    assert_as_eager(lower(halves, *inputs), halves, *inputs)


test_lift_constant_scalar = cases(constants)("""
lift-constant-scalar: alpha multiplies too -> refused: alpha is 3, which also scales the number
    %y = aten.add.Scalar(%x: f32[2, 3], 2.0, 3)
lift-constant-scalar: a float promotes integers -> refused: cast the tensor
    %y = aten.mul.Scalar(%x: i64[2, 3], 0.5)
lift-constant-scalar: booleans have no arithmetic -> refused: no arithmetic
    %y = aten.mul.Scalar(%x: i1[2, 3], true)
lift-constant-scalar: a half would be rounded -> refused: not exact
    %y = aten.mul.Scalar(%x: f16[2, 3], 0.1)
lift-constant-scalar: a bfloat16 would be rounded -> refused: not exact
    %y = aten.add.Scalar(%x: bf16[2, 3], 257)
lift-constant-scalar: a single would be infinite -> refused: does not fit float32
    %y = aten.mul.Scalar(%x: f32[2, 3], 1e+300)
lift-constant-scalar: a byte would wrap around -> refused: does not fit
    %y = aten.add.Scalar(%x: i8[2, 3], 300)
lift-constant-scalar: the tensor is complex -> refused: complex
    %y = aten.mul.Scalar(%x: complex<f32>[2, 3], 2.0)
lift-constant-scalar: the order of operands is kept -> applied once
    - %y = aten.rsub.Scalar(%x: f32[2, 3], 0.5)
    - %y = aten.div.Scalar(%x: f32[2, 3], 0.5)
lift-constant-scalar: a tensor of rank zero stays one -> aten.mul.Tensor
    %y = aten.mul.Scalar(%x: f32[], 0.5)
lift-constant-scalar: a number known only at run time -> refused: run time
    %y = aten.mul.Scalar(%x: f32[3], %n: int<n>)
lift-constant-scalar: a half holds a quarter -> aten.mul.Tensor
    %y = aten.mul.Scalar(%x: f16[3], 0.25)
lift-constant-scalar: a double holds every number -> aten.mul.Tensor
    %y = aten.mul.Scalar(%x: f64[3], 0.1)
""")


@pytest.mark.parametrize("protected", [True, False])
def test_the_scale_of_an_attention_may_be_left_to_its_recognizer(
    protected: bool, apply: Any
) -> None:
    text = """
        %s = aten.mul.Scalar(%x: f32[1, 2, 4], 0.5); %p = aten.bmm.default(%s, %k: f32[1, 4, 2])
        %y = aten._softmax.default(%p, -1, false)
    """
    done = apply(text, step(constants.lift_constant_scalar, protect_attention=protected))
    assert done.count == (not protected)


ALONG: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: x.sum(0),
    "kept mean": lambda x: x.mean(-1, keepdim=True),
    "amax": lambda x: x.amax((0,)),
    "maximum with index": lambda x: x.max(0).values,
    "deviation": lambda x: x.std(0, unbiased=False),
    "softmax": lambda x: x.softmax(0),
    "running sum": lambda x: x.cumsum(0),
    "norm": lambda x: F.normalize(x, dim=0),
    "logsumexp": lambda x: x.logsumexp(0),
    "flip": lambda x: x.flip(0),
    "selection": lambda x: x.index_select(0, torch.tensor([0])),
    "gather": lambda x: x.gather(0, torch.tensor(0)),
    "windows": lambda x: x.unfold(0, 1, 1),
    "similarity": lambda x: F.cosine_similarity(x, x * 2, dim=0),
}


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp"])
@pytest.mark.parametrize("along", ALONG)
def test_an_op_along_the_axis_of_a_scalar_runs_or_is_refused(along: str, target: str) -> None:
    x = torch.tensor(1.5)
    try:
        lowered = lower(ALONG[along], x, target=target)
    except UnsupportedError:
        assert target != "xnnpack"
        return
    assert_as_eager(lowered, ALONG[along], x)


def test_two_scalars_of_doubles_do_not_end_the_process() -> None:
    def similarity(a: Tensor, b: Tensor) -> Tensor:
        return F.cosine_similarity(a, b, dim=0)

    x = torch.tensor(1.5, dtype=torch.float64)
    assert_as_eager(lower(similarity, x, -x), similarity, x, -x)


def test_a_tensor_with_axes_keeps_them() -> None:
    program = stepwell.from_exported_program(exported(lambda x: x.cumsum(0), torch.ones(1)))
    assert run_rewrites(program, [step(constants.give_scalar_an_axis)]) == 0

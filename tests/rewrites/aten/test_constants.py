"""Constants are computed, moved and chosen ahead of time, or stay."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rewrite_cases import cases
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.translate.decompositions import constants
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.constants import choose_from_one
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants
from stepwell.translate.rewrites.constants.lift_number_operand import LiftNumberOperand

(RULE,) = choose_from_one.RULES.named("choose-from-one")


class OneGroup(nn.Module):
    """Scores of the groups that rank first, as DeepSeek's routers keep them; of one group all."""

    def forward(self, x: Tensor) -> Tensor:
        scores = x.sigmoid()
        groups = scores.view(len(x), 1, -1).topk(2).values.sum(-1)
        mask = torch.zeros_like(groups).scatter_(1, groups.topk(1, sorted=False).indices, 1)
        mask = mask.unsqueeze(-1).expand(len(x), 1, x.shape[1]).reshape(len(x), -1)
        return scores.masked_fill(~mask.bool(), -torch.inf).topk(2).values


def test_a_mask_of_one_group_is_decided_while_lowering():
    x = torch.randn(5, 6)
    lowered = stepwell.lower(export(OneGroup(), (x,)), "xnnpack", numerics="finite")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    torch.testing.assert_close(lowered.run(x)[0], OneGroup()(x))


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


class OfConstants(nn.Module):
    """What is computed of buffers alone, with arguments that a call leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("image", torch.randn(1, 3, 6, 6))
        self.register_buffer("kernel", torch.randn(4, 3, 3, 3))
        self.register_buffer("rows", torch.tensor([[0, 1], [2, 1]]))
        self.register_buffer("table", torch.randn(5, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        bag = F.embedding_bag(self.rows, self.table)
        return x + F.conv2d(self.image, self.kernel), x[0, :2, 0] + bag


@pytest.mark.parametrize("target", ["xnnpack", "tosa-1.0+fp"])
def test_arguments_that_a_call_leaves_out_are_none(target: str) -> None:
    module, x = OfConstants(), torch.randn(1, 4, 4, 4)
    found = stepwell.lower(export(module, (x,)), target).run(x)
    for mine, other in zip(found, module(x), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


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


class Halves(torch.nn.Module):
    """Whole halves, in the way most people write them."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x // 2, n // 2


def test_whole_division_by_a_number_runs_on_the_runtime():
    inputs = (torch.tensor([-3.0, 5.5]), torch.tensor([-3, 5]))
    lowered = stepwell.lower(torch.export.export(Halves(), inputs), "xnnpack")
    for found, wanted in zip(lowered.run(*inputs), Halves()(*inputs), strict=True):
        torch.testing.assert_close(found, wanted)


test_lift_constant_scalar = cases(constants)("""
lift-constant-scalar: alpha multiplies too -> refused: not the only factor
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
    protected: bool, apply: Any, method: Any
) -> None:
    q, s = "tensor<1x2x4xf32>", "tensor<1x2x2xf32>"
    lines = (
        f"%s = aten.mul.Scalar(%x, 0.5) : ({q}) -> {q}",
        f"%p = aten.bmm.default(%s, %k) : ({q}, tensor<1x4x2xf32>) -> {s}",
        f"%y = aten._softmax.default(%p, -1, false) : ({s}) -> {s}",
    )
    text = method(f"%x: {q}, %k: tensor<1x4x2xf32>", *lines, gives=s)
    done = apply(text, step(constants.lift_constant_scalar, protect_attention=protected))
    assert done.count == (not protected)


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)


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
    module, x = Function(ALONG[along]), torch.tensor(1.5)
    exported = export(module, (x,))
    try:
        found = stepwell.lower(exported, target).run(x)[0]
    except UnsupportedError:
        assert target != "xnnpack"
        return
    torch.testing.assert_close(found, module(x))


def test_two_scalars_of_doubles_do_not_end_the_process() -> None:
    x = torch.tensor(1.5, dtype=torch.float64)
    module = Function(lambda a, b: F.cosine_similarity(a, b, dim=0))
    found = stepwell.lower(export(module, (x, -x)), "xnnpack").run(x, -x)[0]
    torch.testing.assert_close(found, module(x, -x))


def test_a_tensor_with_axes_keeps_them() -> None:
    exported = export(Function(lambda x: x.cumsum(0)), (torch.ones(1),))
    program = stepwell.from_exported_program(exported)
    assert run_rewrites(program, [step(constants.give_scalar_an_axis)]) == 0

"""FoldConstants: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import export

import stepwell
from stepwell.translate.rewrites.constants.fold_constants import FoldConstants


def test_what_depends_on_an_input_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            '%w = stepwell.weight <"w"> "parameter" : tensor<2x3xf32>',
            "%y = aten.add.Tensor(%x, %w) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        FoldConstants(),
    )


def test_a_constant_that_would_grow_too_large_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            '%w = stepwell.weight <"w"> "parameter" : tensor<2x3xf32>',
            "%e = aten.repeat.default(%w, [64, 64]) : (tensor<2x3xf32>) -> tensor<128x192xf32>",
            "%y = aten.sum.default(%e) : (tensor<128x192xf32>) -> tensor<f32>",
            gives="tensor<f32>",
        ),
        FoldConstants(largest=1000),
        "bytes more",
    )


def test_random_numbers_are_no_constant(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.mul.Scalar(%x, 0.0) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        FoldConstants(),
    )


def test_a_constant_made_from_nothing_is_a_weight(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<4xi64>",
            "%a = aten.arange.default(4) : () -> tensor<4xi64>",
            "%y = aten.add.Tensor(%x, %a) : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>",
            gives="tensor<4xi64>",
        ),
        FoldConstants(),
    )
    assert done.ops() == ["aten.add.Tensor"]


def test_a_fill_of_an_input_s_shape_is_a_weight(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%a = aten.full_like.default(%x, 2.5) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.add.Tensor(%x, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        FoldConstants(),
    )
    assert done.ops() == ["aten.add.Tensor"]


HELD = '%w = stepwell.weight <"w"> "parameter" : tensor<2x3xf32>'
Q = "quantized_decomposed.quantize_per_tensor.default(%w, 0.5, 0, -128, 127, i8)"
LATE = 'tensor<?x3xf32, #stepwell.shape<["n", 3]>>'
NEAR_MISSES = {
    "random numbers": ("aten.bernoulli.p(%w, 1.0)", "tensor<2x3xf32>", "tensor<2x3xf32>"),
    "a quantized weight": (Q, "tensor<2x3xf32>", "tensor<2x3xi8>"),
    "a fill of any length": ("aten.full_like.default(%l, 2.5)", LATE, LATE),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_not_computed_beforehand(name: str, refused: Any, method: Any):
    call, given, made = NEAR_MISSES[name]
    line = f"%y = {call} : ({given}) -> {made}"
    refused(method(f"%l: {LATE}", HELD, line, gives=made), FoldConstants())


@pytest.mark.parametrize(
    "call", ["aten.empty.memory_format([2, 3])", "aten.empty_like.default(%w)"]
)
def test_what_memory_holds_is_zeros(call: str, apply: Any, method: Any):
    held = "tensor<2x3xf32>"
    given = held if "%w" in call else ""
    lines = (HELD, f"%e = {call} : ({given}) -> {held}",
             f"%y = aten.add.Tensor(%x, %e) : ({held}, {held}) -> {held}")  # fmt: skip
    done = apply(method(f"%x: {held}", *lines, gives=held), FoldConstants())
    assert done.ops() == ["aten.add.Tensor"]


def test_a_fill_of_a_number_known_only_at_run_time_is_refused(refused: Any, method_of_n: Any):
    x, types = "tensor<2x3xf32>", '(tensor<2x3xf32>, !stepwell.int<"n">) -> tensor<2x3xf32>'
    line = f"%y = aten.full_like.default(%x, %n) : {types}"
    refused(method_of_n(f"%x: {x}", line, gives=x), FoldConstants(), "run time")


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

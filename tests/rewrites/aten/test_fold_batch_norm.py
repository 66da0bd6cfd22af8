"""The rules of fold_batch_norm: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest
import torch
from torch import nn

import stepwell
from stepwell.translate.rewrites.layers import fold_batch_norm


def test_statistics_that_are_inputs_stay(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x4x5xf32>, %m: tensor<4xf32>",
            "%v = aten.mul.Tensor(%m, %m) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>",
            "%y = aten.batch_norm.default(%x, none, none, %m, %v, false, 0.1, 1.0e-5, false) : (tensor<1x4x5xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x5xf32>",
            gives="tensor<1x4x5xf32>",
        ),
        fold_batch_norm,
        "computed",
    )


def test_training_mode_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x4x5xf32>",
            "%y = aten.batch_norm.default(%x, none, none, none, none, true, 0.1, 1.0e-5, false) : (tensor<2x4x5xf32>) -> tensor<2x4x5xf32>",
            gives="tensor<2x4x5xf32>",
        ),
        fold_batch_norm,
        "training mode",
    )


def test_a_convolution_with_another_reader_is_left_alone(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<1x3x5xf32>",
            '%w = stepwell.weight <"w#positive"> "buffer" : tensor<4x3x1xf32>',
            '%m = stepwell.weight <"m#positive"> "buffer" : tensor<4xf32>',
            '%v = stepwell.weight <"v#positive"> "buffer" : tensor<4xf32>',
            "%c = aten.convolution.default(%x, %w, none, [1], [0], [1], false, [0], 1) : (tensor<1x3x5xf32>, tensor<4x3x1xf32>) -> tensor<1x4x5xf32>",
            "%n = aten.batch_norm.default(%c, none, none, %m, %v, false, 0.1, 1.0e-5, false) : (tensor<1x4x5xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x5xf32>",
            "%y = aten.add.Tensor(%c, %n) : (tensor<1x4x5xf32>, tensor<1x4x5xf32>) -> tensor<1x4x5xf32>",
            gives="tensor<1x4x5xf32>",
        ),
        fold_batch_norm,
    )
    assert done.ops() == [
        "aten.convolution.default",
        "aten.mul.Tensor",
        "aten.add.Tensor",
        "aten.add.Tensor",
    ]


def test_a_grouped_transposed_convolution_takes_it_in(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<1x4x3xf32>",
            '%w = stepwell.weight <"w#positive"> "buffer" : tensor<4x3x2xf32>',
            '%b = stepwell.weight <"b#positive"> "buffer" : tensor<6xf32>',
            '%m = stepwell.weight <"m#positive"> "buffer" : tensor<6xf32>',
            '%v = stepwell.weight <"v#positive"> "buffer" : tensor<6xf32>',
            '%g = stepwell.weight <"g#positive"> "buffer" : tensor<6xf32>',
            "%c = aten.convolution.default(%x, %w, %b, [2], [0], [1], true, [0], 2) : (tensor<1x4x3xf32>, tensor<4x3x2xf32>, tensor<6xf32>) -> tensor<1x6x6xf32>",
            "%y = aten.batch_norm.default(%c, %g, none, %m, %v, false, 0.1, 1.0e-5, false) : (tensor<1x6x6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<1x6x6xf32>",
            gives="tensor<1x6x6xf32>",
        ),
        fold_batch_norm,
    )
    assert done.ops() == ["aten.convolution.default"]


def test_a_linear_layer_takes_it_in(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            '%w = stepwell.weight <"w#positive"> "buffer" : tensor<4x3xf32>',
            '%m = stepwell.weight <"m#positive"> "buffer" : tensor<4xf32>',
            '%v = stepwell.weight <"v#positive"> "buffer" : tensor<4xf32>',
            '%b = stepwell.weight <"b#positive"> "buffer" : tensor<4xf32>',
            "%c = aten.linear.default(%x, %w) : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>",
            "%y = aten.batch_norm.default(%c, none, %b, %m, %v, false, 0.1, 1.0e-5, false) : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x4xf32>",
            gives="tensor<2x4xf32>",
        ),
        fold_batch_norm,
    )
    assert done.ops() == ["aten.linear.default"]


STATISTICS = """%m = stepwell.weight <"m#positive"> "buffer" : tensor<4xf32>
  %v = stepwell.weight <"v#positive"> "buffer" : tensor<4xf32>"""
LAYERS = {
    "no layer": ("tensor<2x4xf32>", "neg.default(%x)", "tensor<2x4xf32>"),
    "a layer along another axis": (
        "tensor<2x4x3xf32>",
        "linear.default(%x, %w)",
        "tensor<2x4x4xf32>",
    ),
    "a weight known at run time": ("tensor<2x3xf32>", "linear.default(%x, %u)", "tensor<2x4xf32>"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_product_and_a_sum_remain_behind(name: str, apply: Any, method: Any):
    x, call, y = LAYERS[name]
    weight = '%w = stepwell.weight <"w"> "parameter" : tensor<4x3xf32>'
    more = ", tensor<4x3xf32>" if "linear" in call else ""
    layer = f"%c = aten.{call} : ({x}{more}) -> {y}"
    types = f"({y}, tensor<4xf32>, tensor<4xf32>) -> {y}"
    norm = (
        f"%y = aten.batch_norm.default(%c, none, none, %m, %v, false, 0.1, 1.0e-5, false) : {types}"
    )
    text = method(f"%x: {x}, %u: tensor<4x3xf32>", weight, STATISTICS, layer, norm, gives=y)
    assert apply(text, fold_batch_norm).ops()[1:] == ["aten.mul.Tensor", "aten.add.Tensor"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_models_own_kernel_stays_as_it_is(dtype: torch.dtype) -> None:
    """A kernel of doubles needs no cast to be scaled in doubles: it must not be scaled in place."""
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)).to(dtype).eval()
    for value in net.parameters():
        value.data.uniform_(1.0, 2.0)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x = torch.randn(1, 2, 6, 6, dtype=dtype)
    program = torch.export.export(net, (x,))
    wanted = net(x)
    made = stepwell.lower(program, "xnnpack")
    torch.testing.assert_close(made.run(x)[0], wanted)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())

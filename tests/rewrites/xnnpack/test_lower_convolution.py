"""LowerConvolution: images and lines with constant filters, and nothing else."""

from typing import Any

import pytest

from stepwell.ir.dtypes import f32
from stepwell.ir.types import tensor
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import convolutions

X, W, Y = "tensor<1x3x6x6xf32>", "tensor<4x3x1x1xf32>", "tensor<1x4x6x6xf32>"
WEIGHT = f'%w = stepwell.weight <"w"> "parameter" : {W}'
PLAIN = "[1, 1], [0, 0], [1, 1], false, [0, 0], 1"


def convolved(x: str = X, w: str = W, y: str = Y, rest: str = PLAIN) -> str:
    return f"%y = aten.convolution.default(%x, %w, none, {rest}) : ({x}, {w}) -> {y}"


def test_a_volume_is_refused(refused: Any, method: Any):
    x, w, y = "tensor<1x3x6x6x6xf32>", "tensor<4x3x1x1x1xf32>", "tensor<1x4x6x6x6xf32>"
    rest = "[1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1"
    weight = f'%w = stepwell.weight <"w"> "parameter" : {w}'
    text = method(f"%x: {x}", weight, convolved(x, w, y, rest), gives=y)
    refused(text, step(convolutions.convolution), "rank 5")


@pytest.mark.parametrize("sizes", [("s0", 6, 6), (1, "s0", 6), ("s0", "s1", "s2")])
def test_symbolic_sizes_are_lowered(sizes: tuple[Any, ...], apply: Any, method: Any):
    x, y = (str(tensor((sizes[0], channels, *sizes[1:]), f32)) for channels in (3, 4))
    text = method(f"%x: {x}", WEIGHT, convolved(x, W, y), gives=y)
    assert "xnnpack.convolution_2d" in apply(text, step(convolutions.convolution)).ops()


LINE = "[1], [0], [1], false, [0], 1"


def lines(sizes: tuple[Any, Any], method: Any) -> str:
    """A pointwise convolution of lines."""
    x, y = (str(tensor((sizes[0], channels, sizes[1]), f32)) for channels in (3, 4))
    w = "tensor<4x3x1xf32>"
    weight = f'%w = stepwell.weight <"w"> "parameter" : {w}'
    return method(f"%x: {x}", weight, convolved(x, w, y, LINE), gives=y)


@pytest.mark.parametrize("sizes", [("s0", 6), (2, "s0"), ("s0", "s1")])
def test_lines_of_symbolic_sizes_are_lowered(sizes: tuple[Any, Any], apply: Any, method: Any):
    assert (
        "xnnpack.convolution_2d"
        in apply(lines(sizes, method), step(convolutions.convolution)).ops()
    )


def test_a_filter_computed_at_run_time_is_refused(refused: Any, method: Any):
    text = method(f"%x: {X}, %w: {W}", convolved(), gives=Y)
    refused(text, step(convolutions.convolution), "the filter is computed")


def test_a_bias_computed_at_run_time_is_refused(refused: Any, method: Any):
    types = f"({X}, {W}, tensor<4xf32>) -> {Y}"
    line = f"%y = aten.convolution.default(%x, %w, %b, {PLAIN}) : {types}"
    text = method(f"%x: {X}, %b: tensor<4xf32>", WEIGHT, line, gives=Y)
    refused(text, step(convolutions.convolution), "the bias is computed")


def test_a_constant_bias_is_taken(apply: Any, method: Any):
    types = f"({X}, {W}, tensor<4xf32>) -> {Y}"
    bias = '%b = stepwell.weight <"b"> "parameter" : tensor<4xf32>'
    line = f"%y = aten.convolution.default(%x, %w, %b, {PLAIN}) : {types}"
    done = apply(method(f"%x: {X}", WEIGHT, bias, line, gives=Y), step(convolutions.convolution))
    assert "xnnpack.convolution_2d" in done.ops()


@pytest.mark.parametrize("element", ["f16", "f32"])
def test_a_transposed_convolution_is_of_float32(
    element: str, apply: Any, refused: Any, method: Any
):
    x, w, y = (f"tensor<{s}x{element}>" for s in ("1x4x3x3", "4x2x2x2", "1x4x6x6"))
    weight = f'%w = stepwell.weight <"w"> "parameter" : {w}'
    rest = "[2, 2], [0, 0], [1, 1], true, [0, 0], 2"
    text = method(f"%x: {x}", weight, convolved(x, w, y, rest), gives=y)
    if element == "f16":
        refused(text, step(convolutions.convolution), "transposed convolution in float16")
    else:
        assert "xnnpack.deconvolution_2d" in apply(text, step(convolutions.convolution)).ops()

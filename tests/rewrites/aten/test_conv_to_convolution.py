"""ConvToConvolution: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import products
from stepwell.translate.lowerings.lowering import step


def test_a_convolution_in_normal_form_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x3x4x4xf32>, %w: tensor<2x3x1x1xf32>",
            "%y = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x4x4xf32>, tensor<2x3x1x1xf32>) -> tensor<1x2x4x4xf32>",
            gives="tensor<1x2x4x4xf32>",
        ),
        step(products.conv_to_convolution),
    )


def test_an_unbatched_input_gets_a_batch(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<3x7xf32>, %w: tensor<2x3x3xf32>",
            "%y = aten.conv1d.default(%x, %w, none, [2], [1]) : (tensor<3x7xf32>, tensor<2x3x3xf32>) -> tensor<2x4xf32>",
            gives="tensor<2x4xf32>",
        ),
        step(products.conv_to_convolution),
    )
    assert done.ops() == ["aten.view.default", "aten.convolution.default", "aten.view.default"]


def test_a_transposed_convolution_keeps_its_output_padding(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<1x4x3x3xf32>, %w: tensor<4x1x3x3xf32>",
            "%y = aten.conv_transpose2d.input(%x, %w, none, [2, 2], [1, 1], [1, 1], 2) : (tensor<1x4x3x3xf32>, tensor<4x1x3x3xf32>) -> tensor<1x2x6x6xf32>",
            gives="tensor<1x2x6x6xf32>",
        ),
        step(products.conv_to_convolution),
    )
    assert done.ops() == ["aten.convolution.default"]


def test_a_kernel_of_symbolic_length_is_refused(refused: Any, method: Any):
    x, w = "tensor<1x3x7xf32>", 'tensor<2x3x?xf32, #stepwell.shape<[2, 3, "n"]>>'
    made = 'tensor<1x2x?xf32, #stepwell.shape<[1, 2, "8 - n"]>>'
    call = f"%y = aten.conv1d.default(%x, %w) : ({x}, {w}) -> {made}"
    refused(
        method(f"%x: {x}, %w: {w}", call, gives=made),
        step(products.conv_to_convolution),
        "kernel is symbolic",
    )


def test_a_padding_known_only_at_run_time_is_refused(refused: Any, method_of_n: Any):
    x, w = "tensor<1x3x7xf32>", "tensor<2x3x3xf32>"
    made = 'tensor<1x2x?xf32, #stepwell.shape<[1, 2, "2*n + 5"]>>'
    types = f'({x}, {w}, !stepwell.int<"n">) -> {made}'
    call = f"%y = aten.conv1d.default(%x, %w, none, [1], [%n]) : {types}"
    refused(
        method_of_n(f"%x: {x}, %w: {w}", call, gives=made),
        step(products.conv_to_convolution),
        "run time",
    )

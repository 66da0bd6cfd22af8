"""ConvToConvolution: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.conv_to_convolution import ConvToConvolution


def test_a_convolution_in_normal_form_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<1x3x4x4xf32>, %w: tensor<2x3x1x1xf32>",
            "%y = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1) : (tensor<1x3x4x4xf32>, tensor<2x3x1x1xf32>) -> tensor<1x2x4x4xf32>",
            gives="tensor<1x2x4x4xf32>",
        ),
        ConvToConvolution(),
    )


def test_an_unbatched_input_gets_a_batch(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<3x7xf32>, %w: tensor<2x3x3xf32>",
            "%y = aten.conv1d.default(%x, %w, none, [2], [1]) : (tensor<3x7xf32>, tensor<2x3x3xf32>) -> tensor<2x4xf32>",
            gives="tensor<2x4xf32>",
        ),
        ConvToConvolution(),
    )
    assert done.ops() == ["aten.view.default", "aten.convolution.default", "aten.view.default"]


def test_a_transposed_convolution_keeps_its_output_padding(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<1x4x3x3xf32>, %w: tensor<4x1x3x3xf32>",
            "%y = aten.conv_transpose2d.input(%x, %w, none, [2, 2], [1, 1], [1, 1], 2) : (tensor<1x4x3x3xf32>, tensor<4x1x3x3xf32>) -> tensor<1x2x6x6xf32>",
            gives="tensor<1x2x6x6xf32>",
        ),
        ConvToConvolution(),
    )
    assert done.ops() == ["aten.convolution.default"]

"""NormaliseSoftmax: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.normalise_softmax import NormaliseSoftmax


def test_a_softmax_in_normal_form_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten._softmax.default(%x, 1, false) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        NormaliseSoftmax(),
    )


def test_a_dtype_casts_first(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.softmax.int(%x, -1, f64) : (tensor<2x3xf32>) -> tensor<2x3xf64>",
            gives="tensor<2x3xf64>",
        ),
        NormaliseSoftmax(),
    )
    assert done.ops() == ["aten._to_copy.default", "aten._softmax.default"]

"""SiluToSigmoid: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.silu_to_sigmoid import SiluToSigmoid


def test_a_gelu_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.gelu.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        SiluToSigmoid(),
    )


def test_an_axis_of_unknown_length_is_not_halved(refused: Any, method: Any):
    one, two = (f'tensor<2x?xf32, #stepwell.shape<[2, "{size}"]>>' for size in ("s0", "2*s0"))
    text = method(
        f"%x: {one}",
        f"%a = aten.cat.default([%x, %x], 1) : ({one}, {one}) -> {two}",
        f"%y = aten.glu.default(%a, 1) : ({two}) -> {one}",
        gives=one,
    )
    refused(text, SiluToSigmoid(), "symbolic")

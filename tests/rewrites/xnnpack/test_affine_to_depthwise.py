"""A product and a sum of channels become one node where nothing stands between or beside them."""

from typing import Any

import pytest

from stepwell.translate.rewrites.xnnpack.convolutions.affine_to_depthwise import AffineToDepthwise

X, C = "tensor<2x3x3x4xf32>", "tensor<4xf32>"
WEIGHTS = [f'%{name} = stepwell.weight <"{name}"> "parameter" : {C}' for name in "gb"]
PRODUCT = f"%s = xnnpack.multiply(%x, %g) : ({X}, {C}) -> {X}"
SUM = f"%y = xnnpack.add(%s, %b) : ({X}, {C}) -> {X}"
ONLY = ["xnnpack.depthwise_convolution_2d"]


def test_constants_may_stand_on_the_left_and_the_sum_may_clamp(apply: Any, method: Any) -> None:
    lines = (
        f"%s = xnnpack.multiply(%g, %x) : ({C}, {X}) -> {X}",
        f"%y = xnnpack.add(%b, %s, output_min=0.0, output_max=1.0) : ({C}, {X}) -> {X}",
    )
    done = apply(method(f"%x: {X}", *WEIGHTS, *lines, gives=X), AffineToDepthwise())
    assert done.ops() == ONLY
    assert "output_min=0.0, output_max=1.0" in done.text


def test_sizes_of_images_may_be_symbolic(apply: Any, method: Any) -> None:
    x = 'tensor<1x?x?x4xf32, #stepwell.shape<[1, "h", "w", 4]>>'
    lines = [line.replace(X, x) for line in (PRODUCT, SUM)]
    done = apply(method(f"%x: {x}", *WEIGHTS, *lines, gives=x), AffineToDepthwise())
    assert done.ops() == ONLY


def test_a_product_that_is_read_without_the_sum_stays(refused: Any, method: Any) -> None:
    total = SUM.replace("%y", "%t")
    both = f"%y = xnnpack.subtract(%t, %s) : ({X}, {X}) -> {X}"
    text = method(f"%x: {X}", *WEIGHTS, PRODUCT, total, both, gives=X)
    refused(text, AffineToDepthwise(), "without the sum")


def test_a_product_that_is_clamped_stays(refused: Any, method: Any) -> None:
    clamped = PRODUCT.replace("%g)", "%g, output_min=0.0)")
    text = method(f"%x: {X}", *WEIGHTS, clamped, SUM, gives=X)
    refused(text, AffineToDepthwise(), "clamped")


@pytest.mark.parametrize(
    ("kind", "constant"),
    [
        ("tensor<2x3x4xf32>", C),
        ("tensor<2x3x3x4xf16>", "tensor<4xf16>"),
        (X, "tensor<3x1xf32>"),
        (X, "tensor<3x4xf32>"),
        (X, "tensor<1xf32>"),
    ],
)
def test_other_ranks_elements_and_axes_stay(
    kind: str, constant: str, refused: Any, method: Any
) -> None:
    lines = [line.replace(C, constant).replace(X, kind) for line in (*WEIGHTS, PRODUCT, SUM)]
    refused(method(f"%x: {kind}", *lines, gives=kind), AffineToDepthwise())


def test_a_constant_that_widens_an_image_stays(refused: Any, method: Any) -> None:
    x = "tensor<2x3x3x1xf32>"
    product = f"%s = xnnpack.multiply(%x, %g) : ({x}, {C}) -> {X}"
    refused(method(f"%x: {x}", *WEIGHTS, product, SUM, gives=X), AffineToDepthwise())


@pytest.mark.parametrize(
    "lines",
    [
        (PRODUCT, f"%y = xnnpack.add(%s, %x) : ({X}, {X}) -> {X}"),
        (f"%s = xnnpack.multiply(%x, %x) : ({X}, {X}) -> {X}", SUM),
        (f"%s = xnnpack.square(%x) : ({X}) -> {X}", SUM),
    ],
)
def test_what_is_not_constant_stays(lines: Any, refused: Any, method: Any) -> None:
    refused(method(f"%x: {X}", *WEIGHTS, *lines, gives=X), AffineToDepthwise())

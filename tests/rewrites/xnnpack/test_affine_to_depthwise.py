"""A product and a sum of channels become one node where nothing stands between or beside them."""

from typing import Any

from rewrite_cases import cases

from stepwell.translate.rewrites.xnnpack.convolutions.affine_to_depthwise import AffineToDepthwise

ONLY = ["xnnpack.depthwise_convolution_2d"]


def test_constants_may_stand_on_the_left_and_the_sum_may_clamp(apply: Any) -> None:
    done = apply(
        """
        %s = xnnpack.multiply(%g: weight f32[4], %x: f32[2, 3, 3, 4])
        %b: weight f32[4]
        %y = xnnpack.add(%b, %s, output_min=0.0, output_max=1.0) : (f32[4], f32[2, 3, 3, 4]) -> f32[2, 3, 3, 4]
        """,
        AffineToDepthwise(),
    )
    assert done.ops() == ONLY
    assert "output_min=0.0, output_max=1.0" in done.text


test_affine_to_depthwise = cases(
    AffineToDepthwise,
    """
sizes of images may be symbolic -> xnnpack.depthwise_convolution_2d
    %s = xnnpack.multiply(%x: f32[1, h, w, 4], %g: weight f32[4])
    %y = xnnpack.add(%s, %b: weight f32[4])
a product that is read without the sum -> refused: without the sum
    %s = xnnpack.multiply(%x: f32[2, 3, 3, 4], %g: weight f32[4])
    %t = xnnpack.add(%s, %b: weight f32[4])
    %y = xnnpack.subtract(%t, %s)
a product that is clamped -> refused: clamped
    %x: f32[2, 3, 3, 4], %g: weight f32[4]
    %s = xnnpack.multiply(%x, %g, output_min=0.0) : (f32[2, 3, 3, 4], f32[4]) -> f32[2, 3, 3, 4]
    %y = xnnpack.add(%s, %b: weight f32[4])
other ranks elements and axes -> unchanged
    - %s = xnnpack.multiply(%x: f32[2, 3, 4], %g: weight f32[4]); %y = xnnpack.add(%s, %b: weight f32[4])
    - %s = xnnpack.multiply(%x: f16[2, 3, 3, 4], %g: weight f16[4]); %y = xnnpack.add(%s, %b: weight f16[4])
    - %s = xnnpack.multiply(%x: f32[2, 3, 3, 4], %g: weight f32[3, 1]); %y = xnnpack.add(%s, %b: weight f32[3, 1])
    - %s = xnnpack.multiply(%x: f32[2, 3, 3, 4], %g: weight f32[3, 4]); %y = xnnpack.add(%s, %b: weight f32[3, 4])
    - %s = xnnpack.multiply(%x: f32[2, 3, 3, 4], %g: weight f32[1]); %y = xnnpack.add(%s, %b: weight f32[1])
a constant that widens an image -> unchanged
    %s = xnnpack.multiply(%x: f32[2, 3, 3, 1], %g: weight f32[4])
    %y = xnnpack.add(%s, %b: weight f32[4])
what is not constant -> unchanged
    - %s = xnnpack.multiply(%x: f32[2, 3, 3, 4], %g: weight f32[4]); %y = xnnpack.add(%s, %x)
    - %s = xnnpack.multiply(%x: f32[2, 3, 3, 4], %x); %y = xnnpack.add(%s, %b: weight f32[4])
    - %s = xnnpack.square(%x: f32[2, 3, 3, 4]); %y = xnnpack.add(%s, %b: weight f32[4])
""",
)

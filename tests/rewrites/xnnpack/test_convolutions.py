"""Affine maps, bands, patches and volumes as convolutions and products."""

from typing import Any

import pytest
import torch
from eager import assert_whole, lower
from rewrite_cases import cases
from torch import Tensor

from stepwell.translate.decompositions import filters
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.xnnpack.convolutions.affine_to_depthwise import AffineToDepthwise
from stepwell.translate.rewrites.xnnpack.convolutions.keep_band import keep_band
from stepwell.translate.rewrites.xnnpack.convolutions.patches_to_linear import patches_to_linear

test_affine_to_depthwise = cases(AffineToDepthwise)("""
constants may are on the left and the sum may clamp -> xnnpack.depthwise_convolution_2d; writes output_min=0.0, output_max=1.0
    %s = xnnpack.multiply(%g: weight f32[4], %x: f32[2, 3, 3, 4])
    %y = xnnpack.add(%b: weight f32[4], %s, output_min=0.0, output_max=1.0)
sizes of images may be symbolic -> xnnpack.depthwise_convolution_2d
    %s = xnnpack.multiply(%x: f32[1, h, w, 4], %g: weight f32[4])
    %y = xnnpack.add(%s, %b: weight f32[4])
a product that is read without the sum -> refused: without the sum
    %s = xnnpack.multiply(%x: f32[2, 3, 3, 4], %g: weight f32[4])
    %t = xnnpack.add(%s, %b: weight f32[4]); %y = xnnpack.subtract(%t, %s)
a product that is clamped -> refused: clamped
    %s = xnnpack.multiply(%x: f32[2, 3, 3, 4], %g: weight f32[4], output_min=0.0)
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
""")


def band(rows: int, columns: int, low: int, high: int) -> Tensor:
    diagonals = torch.arange(columns)[None] - torch.arange(rows)[:, None]
    return (diagonals >= low) & (diagonals <= high)


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 7), (7, 3), (1, 5), (5, 1)])
def test_numbers_of_all_classes_are_kept_and_hidden_to_the_bit(rows: int, columns: int):
    window, causal = band(rows, columns, -2, 1), band(rows, columns, -9, 0)

    def model(x: Tensor) -> tuple[Tensor, ...]:
        hidden = x.masked_fill(~window, -torch.inf)
        chosen = torch.where(causal, x, 5.0), torch.where(~causal, 2.0, x)
        return torch.tril(x), torch.triu(x, -1), hidden, *chosen

    x = torch.randn(2, 3, rows, columns)
    x[0, 0], x[1, 0], x[0, 1], x[1, 1] = torch.nan, torch.inf, -torch.inf, -0.0
    lowered = lower(model, x)
    assert_whole(lowered)
    for found, wanted in zip(lowered.run(x), model(x), strict=True):
        assert torch.equal(found.view(torch.int32), wanted.view(torch.int32))


def test_a_mask_that_is_no_band_is_refused(refused: Any):
    torch.manual_seed(1)
    refused(
        '%y = aten.masked_fill.Scalar(%x: f32[2, 3, 3], %m: constant "random" i1[3, 3], 0.0)',
        step(keep_band),
        "not a band",
    )


test_keep_band = cases(step(keep_band))("""
a value of which nothing is kept -> refused: the mask keeps no element
    %y = aten.tril.default(%x: f32[2, 3, 3], -3)
a value that its mask repeats -> refused: is broadcast
    %y = aten.where.ScalarOther(%m: constant "#causal" i1[3, 3], %x: f32[1, 3], 0.0)
what is no matrix of a few floats -> refused: not int64
    %y = aten.tril.default(%x: i64[2, 3, 3])
what is no matrix of a few floats -> refused: more than 131072
    %y = aten.tril.default(%x: f32[513, 16, 16])
what is no matrix of a few floats -> refused: symbolic
    %y = aten.tril.default(%x: f32[2, s, 3])
a number that a half does not hold -> refused: does not fit
    %y = aten.where.ScalarOther(%m: constant "#causal" i1[3, 3], %x: f16[2, 3, 3], 1e+30)
a mask computed at run time stays -> applied 0 times
    %y = aten.masked_fill.Scalar(%x: f32[2, 3, 3], %m: i1[3, 3], 0.0)
""")


test_patches_of_images = cases(step(patches_to_linear))("""
single pixels -> unchanged
    %y = xnnpack.convolution_2d(%x: f32[1, 4, 4, 3], %w: weight f32[5, 1, 1, 3], groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1])
windows that overlap -> unchanged
    %y = xnnpack.convolution_2d(%x: f32[1, 4, 4, 3], %w: weight f32[5, 2, 2, 3], groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1])
it stays a convolution -> unchanged
    - %y = xnnpack.convolution_2d(%x: f32[1, 4, 4, 3], %w: weight f32[5, 2, 2, 3], groups=1, padding=[1, 1, 1, 1], stride=[2, 2], dilation=[1, 1])
    - %y = xnnpack.convolution_2d(%x: f32[1, 4, 4, 6], %w: weight f32[4, 2, 2, 3], groups=2, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1])
windows with holes -> unchanged
    %y = xnnpack.convolution_2d(%x: f32[1, 6, 6, 3], %w: weight f32[5, 2, 2, 3], groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[2, 2])
rows left out -> refused: out
    %y = xnnpack.convolution_2d(%x: f32[1, 5, 4, 3], %w: weight f32[5, 2, 2, 3], groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1])
columns left out -> refused: out
    %y = xnnpack.convolution_2d(%x: f32[1, 4, 5, 3], %w: weight f32[5, 2, 2, 3], groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1])
an unknown number of images -> refused: is symbolic
    %y = xnnpack.convolution_2d(%x: f32[s0, 4, 4, 3], %w: weight f32[5, 2, 2, 3], groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1])
an image whose integers others read too is not quantized twice -> refused: also read the image
    %w = quant.scast(%i: weight "w" i8[5, 2, 2, 3]) -> i8<:0, {0.1, 0.2, 0.3, 0.4, 0.5}>[5, 2, 2, 3]
    %q = xnnpack.convert(%x: f32[1, 4, 4, 3]) -> !xnnpack.dynamic_int8<3>[1, 4, 4, 3]
    %a = xnnpack.convolution_2d(%q, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) -> f32[1, 2, 2, 5]
    %b = xnnpack.convolution_2d(%q, %w, groups=1, output_min=0.0, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) -> f32[1, 2, 2, 5]
    %y = xnnpack.add(%a, %b)
""")


test_int8_images = cases(step(patches_to_linear))("""
images of less than eight channels gain -> applied once
    %w = quant.scast(%i: weight i8[5, 2, 2, 7]) -> i8<0.125>[5, 2, 2, 7]
    %y = xnnpack.convolution_2d(%x: i8<0.5:3>[1, 4, 4, 7], %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) -> i8<0.25>[1, 2, 2, 5]
images of eight channels gain nothing -> refused: eight channels
    %w = quant.scast(%i: weight i8[5, 2, 2, 8]) -> i8<0.125>[5, 2, 2, 8]
    %y = xnnpack.convolution_2d(%x: i8<0.5:3>[1, 4, 4, 8], %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) -> i8<0.25>[1, 2, 2, 5]
""")


test_slices_of_the_kernel_add_up_to_it = cases(step(filters.volumes_to_images))("""
a kernel of three slices -> 3 aten.convolution.default; 2 aten.add.Tensor
    - %y = aten.convolution.default(%x: f32[2, 4, 6, 5, 5], %w: weight f32[4, 2, 3, 2, 2], %b: weight f32[4], [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 2)
    - %y = aten.convolution.default(%x: f32[2, 4, 6, 5, 5], %w: weight f32[4, 2, 3, 2, 2], %b: weight f32[4], [2, 1, 2], [1, 0, 1], [1, 1, 1], false, [0, 0, 0], 2)
    - %y = aten.convolution.default(%x: f32[2, 4, 6, 5, 5], %w: weight f32[4, 2, 3, 2, 2], %b: weight f32[4], [1, 2, 1], [2, 1, 0], [2, 1, 3], false, [0, 0, 0], 2)
a kernel of one slice -> 1 aten.convolution.default; without aten.add.Tensor
    %y = aten.convolution.default(%x: f32[2, 4, 6, 5, 5], %w: weight f32[4, 4, 1, 2, 2], %b: weight f32[4], [3, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1)
""")


def test_no_kernel_is_copied(apply: Any):
    weights = apply(
        """
        %y = aten.convolution.default(%x: f32[2, 4, 6, 5, 5], %w: weight f32[4, 2, 3, 2, 2], %b: weight f32[4], [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 2)
        """,
        step(filters.volumes_to_images),
    ).program.weights
    storages = {w.untyped_storage().data_ptr() for k, w in weights.tensors().items() if k != "b"}
    assert len(storages) == 1


test_volumes_to_images = cases(filters)("""
volumes-to-images: a transposed convolution -> refused: transposed
    %y = aten.convolution.default(%x: f32[2, 4, 6, 5, 5], %w: weight f32[4, 4, 3, 2, 2], %b: weight f32[4], [1, 1, 1], [0, 0, 0], [1, 1, 1], true, [0, 0, 0], 1)
volumes-to-images: a computed kernel -> refused: computed
    %y = aten.convolution.default(%x: f32[1, 2, 3, 3, 3], %w: f32[2, 2, 1, 1, 1], none, [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1)
volumes-to-images: images -> unchanged
    %y = aten.convolution.default(%x: f32[1, 2, 3, 3], %w: weight f32[2, 2, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
volumes-to-images: a symbolic volume -> refused: symbolic
    %y = aten.convolution.default(%x: f32[s0, 2, 3, 3, 3], %w: weight f32[2, 2, 1, 1, 1], none, [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1)
""")

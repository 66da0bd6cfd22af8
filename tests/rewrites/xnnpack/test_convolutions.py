"""Affine maps, bands, patches and volumes as convolutions and products."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rewrite_cases import cases
from torch import Tensor, nn
from torch.export import export

import stepwell
from stepwell.translate.decompositions import filters
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.xnnpack.convolutions.affine_to_depthwise import AffineToDepthwise
from stepwell.translate.rewrites.xnnpack.convolutions.keep_band import keep_band
from stepwell.translate.rewrites.xnnpack.convolutions.patches_to_linear import patches_to_linear

test_affine_to_depthwise = cases(AffineToDepthwise)("""
constants may are on the left and the sum may clamp -> xnnpack.depthwise_convolution_2d; writes output_min=0.0, output_max=1.0
    %s = xnnpack.multiply(%g: weight f32[4], %x: f32[2, 3, 3, 4]); %b: weight f32[4]
    %y = xnnpack.add(%b, %s, output_min=0.0, output_max=1.0) : (f32[4], f32[2, 3, 3, 4]) -> f32[2, 3, 3, 4]
sizes of images may be symbolic -> xnnpack.depthwise_convolution_2d
    %s = xnnpack.multiply(%x: f32[1, h, w, 4], %g: weight f32[4])
    %y = xnnpack.add(%s, %b: weight f32[4])
a product that is read without the sum -> refused: without the sum
    %s = xnnpack.multiply(%x: f32[2, 3, 3, 4], %g: weight f32[4])
    %t = xnnpack.add(%s, %b: weight f32[4]); %y = xnnpack.subtract(%t, %s)
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
""")


def band(rows: int, columns: int, low: int, high: int) -> Tensor:
    diagonals = torch.arange(columns)[None] - torch.arange(rows)[:, None]
    return (diagonals >= low) & (diagonals <= high)


class All(nn.Module):
    def __init__(self, *functions: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(x) for function in self.functions)


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 7), (7, 3), (1, 5), (5, 1)])
def test_numbers_of_all_classes_are_kept_and_hidden_to_the_bit(rows: int, columns: int):
    window, causal = band(rows, columns, -2, 1), band(rows, columns, -9, 0)
    model = All(
        torch.tril,
        lambda x: torch.triu(x, -1),
        lambda x: x.masked_fill(~window, -torch.inf),
        lambda x: torch.where(causal, x, 5.0),
        lambda x: torch.where(~causal, 2.0, x),
    )
    x = torch.randn(2, 3, rows, columns)
    x[0, 0], x[1, 0], x[0, 1], x[1, 1] = torch.nan, torch.inf, -torch.inf, -0.0
    lowered = stepwell.lower(export(model, (x,)), "xnnpack")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    for found, wanted in zip(lowered.run(x), model(x), strict=True):
        assert torch.equal(found.view(torch.int32), wanted.view(torch.int32))


def test_a_mask_that_is_no_band_is_refused(refused: Any):
    torch.manual_seed(1)
    refused(
        '%y = aten.masked_fill.Scalar(%x: f32[2, 3, 3], %m: constant "random" i1[3, 3], 0.0)',
        step(keep_band),
        "no band",
    )


test_keep_band = cases(step(keep_band))("""
a value of which nothing is kept -> refused: nothing of the value
    %y = aten.tril.default(%x: f32[2, 3, 3], -3)
a value that its mask repeats -> refused: is broadcast
    %y = aten.where.ScalarOther(%m: constant "#causal" i1[3, 3], %x: f32[1, 3], 0.0)
what is no matrix of a few floats -> refused: not int64
    %y = aten.tril.default(%x: i64[2, 3, 3])
what is no matrix of a few floats -> refused: above 131072
    %y = aten.tril.default(%x: f32[513, 16, 16])
what is no matrix of a few floats -> refused: symbolic
    %y = aten.tril.default(%x: f32[2, s, 3])
a number that a half does not hold -> refused: does not fit
    %y = aten.where.ScalarOther(%m: constant "#causal" i1[3, 3], %x: f16[2, 3, 3], 1e+30)
a mask computed at run time stays -> applied 0 times
    %y = aten.masked_fill.Scalar(%x: f32[2, 3, 3], %m: i1[3, 3], 0.0)
""")


FIELDS = {"groups": 1, "padding": [0, 0, 0, 0], "stride": [2, 2], "dilation": [1, 1]}


test_patches_of_images = cases(step(patches_to_linear))("""
single pixels -> unchanged
    %x: f32[1, 4, 4, 3], %w: weight f32[5, 1, 1, 3]
    %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1]) : (f32[1, 4, 4, 3], f32[5, 1, 1, 3]) -> f32[1, 4, 4, 5]
windows that overlap -> unchanged
    %x: f32[1, 4, 4, 3], %w: weight f32[5, 2, 2, 3]
    %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1]) : (f32[1, 4, 4, 3], f32[5, 2, 2, 3]) -> f32[1, 3, 3, 5]
it stays a convolution -> unchanged
    - %x: f32[1, 4, 4, 3], %w: weight f32[5, 2, 2, 3]
      %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[1, 1, 1, 1], stride=[2, 2], dilation=[1, 1]) : (f32[1, 4, 4, 3], f32[5, 2, 2, 3]) -> f32[1, 3, 3, 5]
    - %x: f32[1, 4, 4, 6], %w: weight f32[4, 2, 2, 3]
      %y = xnnpack.convolution_2d(%x, %w, groups=2, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (f32[1, 4, 4, 6], f32[4, 2, 2, 3]) -> f32[1, 2, 2, 4]
windows with holes -> unchanged
    %x: f32[1, 6, 6, 3], %w: weight f32[5, 2, 2, 3]
    %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[2, 2]) : (f32[1, 6, 6, 3], f32[5, 2, 2, 3]) -> f32[1, 2, 2, 5]
rows left out -> refused: out
    %x: f32[1, 5, 4, 3], %w: weight f32[5, 2, 2, 3]
    %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (f32[1, 5, 4, 3], f32[5, 2, 2, 3]) -> f32[1, 2, 2, 5]
columns left out -> refused: out
    %x: f32[1, 4, 5, 3], %w: weight f32[5, 2, 2, 3]
    %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (f32[1, 4, 5, 3], f32[5, 2, 2, 3]) -> f32[1, 2, 2, 5]
an unknown number of images -> refused: is symbolic
    %x: f32[s0, 4, 4, 3], %w: weight f32[5, 2, 2, 3]
    %y = xnnpack.convolution_2d(%x, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (f32[s0, 4, 4, 3], f32[5, 2, 2, 3]) -> f32[s0, 2, 2, 5]
an image whose integers others read too is not quantized twice -> refused: read by others
    %w = quant.scast(%i: weight "w" i8[5, 2, 2, 3]) -> i8<:0, {0.1, 0.2, 0.3, 0.4, 0.5}>[5, 2, 2, 3]
    %q = xnnpack.convert(%x: f32[1, 4, 4, 3]) -> !xnnpack.dynamic_int8<3>[1, 4, 4, 3]
    %a = xnnpack.convolution_2d(%q, %w, groups=1, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (!xnnpack.dynamic_int8<3>[1, 4, 4, 3], i8<:0, {0.1, 0.2, 0.3, 0.4, 0.5}>[5, 2, 2, 3]) -> f32[1, 2, 2, 5]
    %b = xnnpack.convolution_2d(%q, %w, groups=1, output_min=0.0, padding=[0, 0, 0, 0], stride=[2, 2], dilation=[1, 1]) : (!xnnpack.dynamic_int8<3>[1, 4, 4, 3], i8<:0, {0.1, 0.2, 0.3, 0.4, 0.5}>[5, 2, 2, 3]) -> f32[1, 2, 2, 5]
    %y = xnnpack.add(%a, %b)
""")


def stored(channels: int, held: str) -> tuple[str, str]:
    """The lines of a stored filter `%w`, and its type."""
    sizes = f"5x2x2x{channels}x"
    lines = (
        f'%i = stepwell.weight <"w"> "parameter" : tensor<{sizes}i8>',
        f"%w = quant.scast %i : tensor<{sizes}i8> to tensor<{sizes}{held}>",
    )
    return "\n  ".join(lines), f"tensor<{sizes}{held}>"


PLAIN = ", ".join(f"{name}={held}" for name, held in FIELDS.items())


@pytest.mark.parametrize(("channels", "taken"), [(7, True), (8, False)])
def test_int8_images_gain_below_eight_channels(
    channels: int, taken: bool, apply: Any, refused: Any, method: Any
):
    lines, w = stored(channels, "!quant.uniform<i8:f32, 0.125>")
    x = f"tensor<1x4x4x{channels}x!quant.uniform<i8:f32, 0.5:3>>"
    y = "tensor<1x2x2x5x!quant.uniform<i8:f32, 0.25>>"
    line = f"%y = xnnpack.convolution_2d(%x, %w, {PLAIN}) : ({x}, {w}) -> {y}"
    text = method(f"%x: {x}", lines, line, gives=y)
    if taken:
        assert apply(text, step(patches_to_linear)).count == 1
    else:
        refused(text, step(patches_to_linear), "eight channels")


def convolved(
    rest: str, gives: str, method: Any, kernel: str = "4x2x3x2x2", transposed: bool = False
) -> str:
    x, w, y = "tensor<2x4x6x5x5xf32>", f"tensor<{kernel}xf32>", f"tensor<{gives}xf32>"
    flag = "true" if transposed else "false"
    stride, padding, dilation, groups = rest.split(";")
    return method(
        f"%x: {x}",
        f'%w = stepwell.weight <"w"> "parameter" : {w}',
        '%b = stepwell.weight <"b"> "parameter" : tensor<4xf32>',
        f"%y = aten.convolution.default(%x, %w, %b, {stride}, {padding}, {dilation}, {flag},"
        f" [0, 0, 0], {groups}) : ({x}, {w}, tensor<4xf32>) -> {y}",
        gives=y,
    )


@pytest.mark.parametrize(
    ("rest", "gives", "kernel"),
    [
        ("[1, 1, 1];[0, 0, 0];[1, 1, 1];2", "2x4x4x4x4", "4x2x3x2x2"),
        ("[2, 1, 2];[1, 0, 1];[1, 1, 1];2", "2x4x3x4x3", "4x2x3x2x2"),
        ("[1, 2, 1];[2, 1, 0];[2, 1, 3];2", "2x4x6x3x2", "4x2x3x2x2"),
        ("[3, 1, 1];[0, 0, 0];[1, 1, 1];1", "2x4x2x4x4", "4x4x1x2x2"),
    ],
)
def test_slices_of_the_kernel_add_up_to_it(
    rest: str, gives: str, kernel: str, apply: Any, method: Any
):
    done = apply(convolved(rest, gives, method, kernel), step(filters.volumes_to_images))
    count = int(kernel.split("x")[2])
    assert done.ops().count("aten.convolution.default") == count
    assert done.ops().count("aten.add.Tensor") == count - 1


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

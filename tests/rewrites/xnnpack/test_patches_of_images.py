"""PatchesToLinear on nodes alone: each condition of "windows tile the image" for itself."""

from typing import Any

import pytest

from stepwell.translate.rewrites.xnnpack.convolutions.patches_to_linear import PatchesToLinear

FIELDS = {"groups": 1, "padding": [0, 0, 0, 0], "stride": [2, 2], "dilation": [1, 1]}
X, W, Y = "tensor<1x4x4x3xf32>", "tensor<5x2x2x3xf32>", "tensor<1x2x2x5xf32>"


def convolved(method: Any, x: str = X, w: str = W, y: str = Y, **changes: Any) -> str:
    fields = ", ".join(f"{name}={held}" for name, held in {**FIELDS, **changes}.items())
    return method(
        f"%x: {x}",
        f'%w = stepwell.weight <"w"> "parameter" : {w}',
        f"%y = xnnpack.convolution_2d(%x, %w, {fields}) : ({x}, {w}) -> {y}",
        gives=y,
    )


NEAR_MISSES: dict[str, tuple[dict[str, Any], str]] = {
    "single pixels": (
        {"w": "tensor<5x1x1x3xf32>", "y": "tensor<1x4x4x5xf32>", "stride": [1, 1]}, "",
    ),
    "windows that overlap": ({"y": "tensor<1x3x3x5xf32>", "stride": [1, 1]}, ""),
    "padding": ({"y": "tensor<1x3x3x5xf32>", "padding": [1, 1, 1, 1]}, ""),
    "windows with holes": (
        {"x": "tensor<1x6x6x3xf32>", "y": "tensor<1x2x2x5xf32>", "dilation": [2, 2]}, "",
    ),
    "groups": (
        {"x": "tensor<1x4x4x6xf32>", "w": "tensor<4x2x2x3xf32>", "y": "tensor<1x2x2x4xf32>", "groups": 2},
        "",
    ),
    "rows left out": ({"x": "tensor<1x5x4x3xf32>"}, "out"),
    "columns left out": ({"x": "tensor<1x4x5x3xf32>"}, "out"),
    "an unknown number of images": (
        {
            "x": 'tensor<?x4x4x3xf32, #stepwell.shape<["s0", 4, 4, 3]>>',
            "y": 'tensor<?x2x2x5xf32, #stepwell.shape<["s0", 2, 2, 5]>>',
        },
        "is symbolic",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_it_stays_a_convolution(name: str, refused: Any, method: Any):
    changes, reason = NEAR_MISSES[name]
    refused(convolved(method, **changes), PatchesToLinear(), reason)


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
        assert apply(text, PatchesToLinear()).count == 1
    else:
        refused(text, PatchesToLinear(), "eight channels")


def test_an_image_whose_integers_others_read_too_is_not_quantized_twice(refused: Any, method: Any):
    lines, w = stored(3, "!quant.uniform<i8:f32:0, {0.1, 0.2, 0.3, 0.4, 0.5}>")
    held = "tensor<1x4x4x3x!xnnpack.dynamic_int8<3>>"
    types = f"({held}, {w}) -> {Y}"
    text = method(
        f"%x: {X}",
        lines,
        f"%q = xnnpack.convert(%x) : ({X}) -> {held}",
        f"%a = xnnpack.convolution_2d(%q, %w, {PLAIN}) : {types}",
        f"%b = xnnpack.convolution_2d(%q, %w, {PLAIN}, output_min=0.0) : {types}",
        f"%y = xnnpack.add(%a, %b) : ({Y}, {Y}) -> {Y}",
        gives=Y,
    )
    refused(text, PatchesToLinear(), "read by others")

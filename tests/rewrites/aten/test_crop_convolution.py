"""CropConvolution: paddings of both ends, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.rewrites.slices.crop_convolution import CropConvolution

W = '%w = stepwell.weight <"w"> "parameter" : tensor<3x3x3xf32>'
END = 9223372036854775807
DEEPER = "a transposed convolution cannot end further inside"


def sized(length: str | int, batch: str | int = 1) -> str:
    """A tensor of some length, and batch."""
    if isinstance(length, int) and isinstance(batch, int):
        return f"tensor<{batch}x3x{length}xf32>"
    dims = "x".join("?" if isinstance(n, str) else str(n) for n in (batch, 3, length))
    quoted = [f'"{n}"' if isinstance(n, str) else n for n in (batch, 3, length)]
    return f"tensor<{dims}xf32, #stepwell.shape<[{', '.join(map(str, quoted))}]>>"


def convolution(x: str, result: str, stride: int = 1, padding: int = 2, into: str = "") -> str:
    options = f"[{stride}], [{padding}], [1], {'false' if not into else 'true'}, [0], 1"
    types = f"({x}, tensor<3x3x3xf32>) -> {result}"
    return f"%c = aten.convolution.default(%x, %w, none, {options}) : {types}"


def cut(bounds: str, given: str, gives: str, axis: int = 2) -> str:
    return f"%y = aten.slice.Tensor(%c, {axis}, {bounds}) : ({given}) -> {gives}"


@pytest.mark.parametrize(
    ("bounds", "gives"), [(f"2, {END}, 1", "s"), ("1, -1, 1", "s"), ("0, -1, 1", "s + 1")]
)
def test_ends_are_cut_off_the_padding(bounds: str, gives: str, apply: Any, method: Any):
    x, wide, result = sized("s"), sized("s + 2"), sized(gives)
    lines = [W, convolution(x, wide), cut(bounds, wide, result)]
    done = apply(method(f"%x: {x}", *lines, gives=result), CropConvolution())
    assert done.ops() == ["aten.constant_pad_nd.default", "aten.convolution.default"]


@pytest.mark.parametrize(
    ("convolved", "options", "bounds", "gives", "reason"),
    [
        ("s", (1, 1), f"2, {END}, 1", "s - 2", "more is cut off than"),
        ("s", (1, 1), "0, -2, 1", "s - 2", "more is cut off than"),
        ("(s + 1)//2", (2, 1), "0, -1, 1", "(s + 1)//2 - 1", "a step of 2"),
        ("s + 2", (1, 2), "0, -1, 2", "(s + 2)//2", ""),
        ("s + 2", (1, 2), "0, 3, 1", 3, ""),
        ("s + 2", (1, 2), f"-3, {END}, 1", 3, ""),
        ("s + 2", (1, 0, "transposed"), "0, -1, 1", "s + 1", DEEPER),
        ("s + 2", (1, 0, "transposed"), f"1, {END}, 1", "s + 1", DEEPER),
    ],
)
def test_what_is_more_than_the_padding_stays(
    convolved: str,
    options: Any,
    bounds: str,
    gives: str | int,
    reason: str,
    refused: Any,
    method: Any,
):
    x, wide, result = sized("s"), sized(convolved), sized(gives)
    lines = [W, convolution(x, wide, *options), cut(bounds, wide, result)]
    refused(method(f"%x: {x}", *lines, gives=result), CropConvolution(), reason)


def test_a_static_length_stays(refused: Any, method: Any):
    lines = [W, convolution(sized(8), sized(10)), cut("0, -2, 1", sized(10), sized(8))]
    refused(method(f"%x: {sized(8)}", *lines, gives=sized(8)), CropConvolution())


def test_a_slice_of_the_batch_stays(refused: Any, method: Any):
    x, wide, result = sized("s", "b"), sized("s + 2", "b"), sized("s + 2", "b - 1")
    lines = [W, convolution(x, wide), cut("0, -1, 1", wide, result, axis=0)]
    refused(method(f"%x: {x}", *lines, gives=result), CropConvolution())


def test_what_is_no_convolution_stays(refused: Any, method: Any):
    x, result = sized("s"), sized("s - 1")
    lines = [f"%c = aten.relu.default(%x) : ({x}) -> {x}", cut("0, -1, 1", x, result)]
    refused(method(f"%x: {x}", *lines, gives=result), CropConvolution())


def test_a_result_that_is_read_elsewhere_stays(refused: Any, method: Any):
    x, wide = sized("s"), sized("s + 2")
    lines = [
        W,
        convolution(x, wide),
        cut("0, -2, 1", wide, x).replace("%y", "%a"),
        f"%m = aten.mean.default(%c) : ({wide}) -> tensor<f32>",
        f"%y = aten.add.Tensor(%a, %m) : ({x}, tensor<f32>) -> {x}",
    ]
    refused(method(f"%x: {x}", *lines, gives=x), CropConvolution(), "read elsewhere")


@pytest.mark.parametrize(("bounds", "gives"), [(f"%n, {END}, 1", "s"), ("0, %n, 1", 2)])
def test_bounds_known_only_at_run_time_stay(
    bounds: str, gives: str | int, refused: Any, method: Any
):
    x, wide, result = sized("s"), sized("s + 2"), sized(gives)
    lines = [
        '%n = aten.sym_size.int(%z, 0) : (tensor<2xf32>) -> !stepwell.int<"2">',
        W,
        convolution(x, wide),
        cut(bounds, f'{wide}, !stepwell.int<"2">', result),
    ]
    refused(method(f"%x: {x}, %z: tensor<2xf32>", *lines, gives=result), CropConvolution())

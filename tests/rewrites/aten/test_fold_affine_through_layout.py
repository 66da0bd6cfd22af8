"""Constants per channel pass what moves whole rows, and nothing else."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import export

import stepwell
from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer

X, Y, BACK = "tensor<2x4x4xf32>", "tensor<2x4x3xf32>", "tensor<4x2x4xf32>"
WEIGHT = '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>'
BIAS = '%c = stepwell.weight <"c"> "parameter" : tensor<3xf32>'
SCALE = '%g = stepwell.weight <"g"> "parameter" : tensor<4xf32>'
SHIFT = '%b = stepwell.weight <"b"> "parameter" : tensor<4xf32>'
SCALED = f"%s = aten.mul.Tensor(%x, %g) : ({X}, tensor<4xf32>) -> {X}"
SHIFTED = f"%t = aten.add.Tensor(%s, %b) : ({X}, tensor<4xf32>) -> {X}"


def permute(given: str, made: str) -> str:
    return f"%{made} = aten.permute.default(%{given}, [1, 0, 2]) : ({X}) -> {BACK}"


def linear(given: str, made: str = "y", bias: bool = False) -> str:
    more = (", %c", ", tensor<3xf32>") if bias else ("", "")
    return (
        f"%{made} = aten.linear.default(%{given}, %w{more[0]}) : "
        f"({BACK}, tensor<3x4xf32>{more[1]}) -> tensor<4x2x3xf32>"
    )


GIVES = "tensor<4x2x3xf32>"


def both(first: str, second: str) -> str:
    return f"%y = aten.add.Tensor(%{first}, %{second}) : ({GIVES}, {GIVES}) -> {GIVES}"


def test_scale_and_shift_pass_a_permute_into_all_layers(apply: Any, method: Any) -> None:
    lines = (WEIGHT, BIAS, SCALE, SHIFT, SCALED, SHIFTED, permute("t", "p"))
    text = method(f"%x: {X}", *lines, linear("p", "j"), linear("p", "k", True), both("j", "k"), gives=GIVES)  # fmt: skip
    done = apply(text, FoldAffineIntoLayer())
    layers = ["aten.linear.default"] * 2
    assert done.ops() == ["aten.permute.default", *layers, "aten.add.Tensor"]


def test_rows_read_as_they_are_and_moved_lose_the_scale_together(apply: Any, method: Any) -> None:
    direct = f"%j = aten.linear.default(%s, %w) : ({X}, tensor<3x4xf32>) -> {Y}"
    turned = f"%t = aten.permute.default(%j, [1, 0, 2]) : ({Y}) -> {GIVES}"
    lines = (permute("s", "p"), linear("p", "k"), direct, turned, both("t", "k"))
    text = method(f"%x: {X}", WEIGHT, SCALE, SCALED, *lines, gives=GIVES)
    assert "aten.mul.Tensor" not in apply(text, FoldAffineIntoLayer()).ops()


def test_a_product_read_without_the_shift_stays_and_the_shift_goes(apply: Any, method: Any) -> None:
    lines = (
        permute("t", "p"),
        linear("p", "j"),
        f"%n = aten.neg.default(%s) : ({X}) -> {X}",
        permute("n", "q"),
        linear("q", "k"),
        both("j", "k"),
    )
    text = method(f"%x: {X}", WEIGHT, SCALE, SHIFT, SCALED, SHIFTED, *lines, gives=GIVES)
    done = apply(text, FoldAffineIntoLayer())
    assert done.ops().count("aten.mul.Tensor") == 1 and done.count == 1
    assert "#scale_columns" not in done.text


def rolled(given: str, made: str, at: int, half: str, other: str = "") -> list[str]:
    """Two halves of a value along an axis the other way round."""
    second = other or "u"
    return [
        f"%{made}1 = aten.slice.Tensor(%{given}, {at}, 1, 2, 1) : ({X}) -> {half}",
        f"%u = aten.slice.Tensor(%{given}, {at}, 0, 1, 1) : ({X}) -> {half}",
        f"%{made} = aten.cat.default([%{made}1, %{second}], {at}) : ({half}, {half}) -> {X}",
    ]


def test_a_shift_passes_a_roll_and_windows(apply: Any, method: Any) -> None:
    shifted = f"%t = aten.add.Tensor(%x, %b) : ({X}, tensor<4xf32>) -> {X}"
    flat = "tensor<8x4xf32>"
    lines = (
        *rolled("t", "r", 0, "tensor<1x4x4xf32>"),
        f"%v = aten.view.default(%r, [8, 4]) : ({X}) -> {flat}",
        f"%y = aten.linear.default(%v, %w) : ({flat}, tensor<3x4xf32>) -> tensor<8x3xf32>",
    )
    text = method(f"%x: {X}", WEIGHT, SHIFT, shifted, *lines, gives="tensor<8x3xf32>")
    done = apply(text, FoldAffineIntoLayer())
    assert done.count == 1 and "aten.add.Tensor" not in done.ops()
    assert done.ops().count("aten.slice.Tensor") == 2


def test_rows_joined_with_others_stay(refused: Any, method: Any) -> None:
    half = "tensor<1x4x4xf32>"
    lines = (
        *rolled("s", "r", 0, half, "z"),
        permute("r", "p"),
        linear("p", "j"),
        permute("rest", "q"),
        linear("q", "k"),
        both("j", "k"),
    )
    rest = f"%rest = aten.cat.default([%u, %u], 0) : ({half}, {half}) -> {X}"
    lines = (*lines[:3], rest, *lines[3:])
    text = method(f"%x: {X}, %z: {half}", WEIGHT, SCALE, SCALED, *lines, gives=GIVES)
    refused(text, FoldAffineIntoLayer(), "joins scaled rows and others")


MOVED = {
    "a permute that moves the channels": f"%p = aten.permute.default(%s, [0, 2, 1]) : ({X}) -> {X}",
    "a view that takes rows apart": f"%f = aten.view.default(%s, [4, 8]) : ({X}) -> tensor<4x8xf32>\n"
    f"  %p = aten.view.default(%f, [2, 4, 4]) : (tensor<4x8xf32>) -> {X}",
    "channels one at a time": "%u = aten.slice.Tensor(%s, 2, 0, 2, 1) : "
    f"({X}) -> tensor<2x4x2xf32>\n"
    f"  %p = aten.cat.default([%u, %u], 2) : (tensor<2x4x2xf32>, tensor<2x4x2xf32>) -> {X}",
    "no movement": "%p = aten.neg.default(%s) : " + f"({X}) -> {X}",
}


@pytest.mark.parametrize("name", MOVED)
def test_what_takes_rows_apart_is_not_passed(name: str, refused: Any, method: Any) -> None:
    layer = f"%y = aten.linear.default(%p, %w) : ({X}, tensor<3x4xf32>) -> {Y}"
    text = method(f"%x: {X}", WEIGHT, SCALE, SCALED, MOVED[name], layer, gives=Y)
    refused(text, FoldAffineIntoLayer())


def test_a_view_to_a_tensor_without_axes_is_no_row(refused: Any, method: Any) -> None:
    one, none = "tensor<1xf32>", "tensor<f32>"
    lines = (
        '%w = stepwell.weight <"w"> "parameter" : tensor<1x1xf32>',
        f'%g = stepwell.weight <"g"> "parameter" : {one}',
        f"%s = aten.mul.Tensor(%x, %g) : ({one}, {one}) -> {one}",
        f"%v = aten.view.default(%s, []) : ({one}) -> {none}",
        f"%u = aten.view.default(%v, [1]) : ({none}) -> {one}",
        f"%y = aten.linear.default(%u, %w) : ({one}, tensor<1x1xf32>) -> {one}",
    )
    refused(method(f"%x: {one}", *lines, gives=one), FoldAffineIntoLayer())


def test_another_reader_of_the_rows_keeps_the_scale(refused: Any, method: Any) -> None:
    lines = (
        permute("s", "p"),
        linear("p", "j"),
        f"%n = aten.neg.default(%p) : ({BACK}) -> {BACK}",
        linear("n", "k"),
        both("j", "k"),
    )
    text = method(f"%x: {X}", WEIGHT, SCALE, SCALED, *lines, gives=GIVES)
    refused(text, FoldAffineIntoLayer(), "nothing is saved")


def test_rows_that_are_a_weight_too_keep_the_scale(refused: Any, method: Any) -> None:
    square = "tensor<4x4xf32>"
    lines = (
        f"%s = aten.mul.Tensor(%x, %g) : ({square}, tensor<4xf32>) -> {square}",
        f"%v = aten.slice.Tensor(%s, 0, 0, 3, 1) : ({square}) -> tensor<3x4xf32>",
        "%y = aten.linear.default(%v, %v) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x3xf32>",
    )
    text = method(f"%x: {square}", SCALE, *lines, gives="tensor<3x3xf32>")
    refused(text, FoldAffineIntoLayer(), "nothing is saved")


def test_a_weight_computed_at_run_time_takes_nothing(refused: Any, method: Any) -> None:
    text = method(
        f"%x: {X}, %w: tensor<3x4xf32>", SCALE, SCALED, permute("s", "p"), linear("p"), gives=GIVES
    )
    refused(text, FoldAffineIntoLayer(), "weight is computed at run time")


def test_channels_that_a_permute_moves_keep_their_constants(apply: Any, method: Any) -> None:
    """What is scaled along the axis that a permute puts last, the layer behind it takes in."""
    lines = (
        '%h = stepwell.weight <"h"> "parameter" : tensor<4x1xf32>',
        f"%s = aten.mul.Tensor(%x, %h) : ({X}, tensor<4x1xf32>) -> {X}",
        f"%p = aten.permute.default(%s, [0, 2, 1]) : ({X}) -> {X}",
        f"%y = aten.linear.default(%p, %w) : ({X}, tensor<3x4xf32>) -> {Y}",
    )
    done = apply(method(f"%x: {X}", WEIGHT, *lines, gives=Y), FoldAffineIntoLayer())
    assert done.ops() == ["aten.permute.default", "aten.linear.default"]


def test_a_layer_without_output_features_takes_nothing(refused: Any, method: Any) -> None:
    weight = '%w = stepwell.weight <"w"> "parameter" : tensor<4xf32>'
    layer = f"%y = aten.linear.default(%p, %w) : ({BACK}, tensor<4xf32>) -> tensor<4x2xf32>"
    text = method(
        f"%x: {X}", weight, SCALE, SCALED, permute("s", "p"), layer, gives="tensor<4x2xf32>"
    )
    refused(text, FoldAffineIntoLayer(), "vector")


class Tower(nn.Module):
    """A norm that one projection reads directly and another through windows, in either order."""

    def __init__(self, is_direct_first: bool) -> None:
        super().__init__()
        self.norm, self.direct, self.moved = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.is_direct_first = is_direct_first

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(x)
        windows = y.view(1, 2, 2, 2, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(4, 4, 8)
        if self.is_direct_first:
            return self.direct(y), self.moved(windows)
        return self.moved(windows), self.direct(y)


@pytest.mark.parametrize("is_direct_first", [False, True])
def test_the_order_of_readers_does_not_matter(is_direct_first: bool) -> None:
    module, x = Tower(is_direct_first), torch.randn(1, 4, 4, 8)
    found = stepwell.lower(export(module, (x,)), "xnnpack").run(x)
    for mine, other in zip(found, module(x), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)

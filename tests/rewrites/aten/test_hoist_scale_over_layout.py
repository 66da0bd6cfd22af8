"""A factor goes over a layout op only where the tensor is read with the factor alone."""

from typing import Any

import pytest

from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import run_rewrites
from stepwell.translate.rewrites.layers.hoist_scale_over_layout import HoistScaleOverLayout

X, V = "tensor<2x3xf32>", "tensor<3x2xf32>"
LAYOUT = f"%v = aten.permute.default(%x, [1, 0]) : ({X}) -> {V}"


def test_a_tensor_read_without_the_factor_keeps_its_layout(refused: Any, method: Any) -> None:
    scale = f"%s = aten.mul.Scalar(%v, 0.5) : ({V}) -> {V}"
    both = f"%y = aten.add.Tensor(%v, %s) : ({V}, {V}) -> {V}"
    text = method(f"%x: {X}", LAYOUT, scale, both, gives=V)
    refused(text, HoistScaleOverLayout(), "without the factor")


def test_a_constant_is_not_scaled_before_it_is_laid_out(refused: Any, method: Any) -> None:
    weight = f'%w = stepwell.weight <"w"> "parameter" : {X}'
    layout = f"%v = aten.permute.default(%w, [1, 0]) : ({X}) -> {V}"
    scale = f"%s = aten.mul.Scalar(%v, 0.5) : ({V}) -> {V}"
    add = f"%y = aten.add.Tensor(%s, %x) : ({V}, {V}) -> {V}"
    refused(method(f"%x: {V}", weight, layout, scale, add, gives=V), HoistScaleOverLayout())


def test_a_factor_that_promotes_stays(refused: Any, method: Any) -> None:
    ints, turned = "tensor<2x3xi64>", "tensor<3x2xi64>"
    layout = f"%v = aten.permute.default(%x, [1, 0]) : ({ints}) -> {turned}"
    scale = f"%y = aten.mul.Scalar(%v, 0.5) : ({turned}) -> {V}"
    refused(method(f"%x: {ints}", layout, scale, gives=V), HoistScaleOverLayout())


def test_a_factor_known_only_at_run_time_stays(refused: Any, method_of_n: Any):
    held = "tensor<2x3xf32>"
    lines = (
        f"%p = aten.view.default(%x, [2, 3]) : ({held}) -> {held}",
        f'%y = aten.mul.Scalar(%p, %n) : ({held}, !stepwell.int<"n">) -> {held}',
    )
    refused(method_of_n(f"%x: {held}", *lines, gives=held), HoistScaleOverLayout())


def test_a_factor_stays_behind_what_changes_elements(refused: Any, method: Any):
    held = "tensor<2x3xf32>"
    relu = f"%r = aten.relu.default(%x) : ({held}) -> {held}"
    scale = f"%y = aten.mul.Scalar(%r, -0.5) : ({held}) -> {held}"
    refused(method(f"%x: {held}", relu, scale, gives=held), HoistScaleOverLayout())


def test_a_factor_stays_behind_a_dropout_of_training(method: Any) -> None:
    drops = f"%d = aten.dropout.default(%x, 0.5, true) : ({X}) -> {X}"
    scale = f"%y = aten.mul.Scalar(%d, 0.5) : ({X}) -> {X}"
    program = Program.parse(method(f"%x: {X}", drops, scale, gives=X))
    assert run_rewrites(program, [HoistScaleOverLayout()]) == 0


@pytest.mark.parametrize("layout", ["aten.t.default(%x)", "aten.transpose.int(%x, 0, 1)"])
def test_a_factor_goes_over_whatever_permutes(layout: str, apply: Any, method: Any) -> None:
    scale = f"%y = aten.mul.Scalar(%p, 0.5) : ({V}) -> {V}"
    text = method(f"%x: {X}", f"%p = {layout} : ({X}) -> {V}", scale, gives=V)
    assert apply(text, HoistScaleOverLayout()).ops()[0] == "aten.mul.Scalar"

"""`decompose-layer-norm` and `decompose-group-norm`: what they leave to the kernel."""

from typing import Any

import pytest
import torch

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.decompositions import norms
from stepwell.translate.lowerings.lowering import step


def layer_norm(type_: str, axes: str, method: Any) -> str:
    line = f"%y = aten.layer_norm.default(%x, {axes}) : ({type_}) -> {type_}"
    return method(f"%x: {type_}", line, gives=type_)


def test_a_layer_norm_of_nothing_is_refused(refused: Any, method: Any):
    refused(layer_norm("tensor<2x0xf32>", "[0]", method), step(norms.decompose_layer_norm), "empty")


def test_a_layer_norm_of_two_axes_and_two_symbolic_ones_is_refused(refused: Any, method: Any):
    type_ = 'tensor<?x?x3x4xf32, #stepwell.shape<["s0", "s1", 3, 4]>>'
    refused(layer_norm(type_, "[3, 4]", method), step(norms.decompose_layer_norm), "several axes")


def test_a_layer_norm_of_a_symbolic_axis_is_refused(refused: Any, method: Any):
    type_ = 'tensor<2x?xf32, #stepwell.shape<[2, "s0"]>>'
    size = f'%n = aten.sym_size.int(%x, 1) : ({type_}) -> !stepwell.int<"s0">'
    line = f'%y = aten.layer_norm.default(%x, [%n]) : ({type_}, !stepwell.int<"s0">) -> {type_}'
    text = method(f"%x: {type_}", size, line, gives=type_)
    refused(text, step(norms.decompose_layer_norm), "symbolic size")


@pytest.mark.parametrize("axes", ["[4]", "[3, 4]"])
def test_a_layer_norm_of_known_axes_is_taken_apart(axes: str, apply: Any, method: Any):
    assert (
        apply(layer_norm("tensor<2x3x4xf32>", axes, method), step(norms.decompose_layer_norm)).count
        == 1
    )


X, SCALE = "tensor<2x4x3xf32>", '%w = stepwell.weight <"w"> "parameter" : tensor<4xf32>'


def group_norm(lines: tuple[str, ...], arguments: str, x: str, method: Any) -> str:
    line = f"%y = aten.group_norm.default(%x, 2, %w) : ({x}, tensor<4xf32>) -> {x}"
    return method(f"%x: {x}{arguments}", *lines, line, gives=x)


def test_a_group_norm_with_a_computed_scale_is_refused(refused: Any, method: Any):
    text = group_norm((), ", %w: tensor<4xf32>", X, method)
    refused(text, step(norms.decompose_group_norm), "the scale is computed")


def test_a_group_norm_of_lines_of_open_length_is_of_images(apply: Any, method: Any):
    x = 'tensor<2x4x?xf32, #stepwell.shape<[2, 4, "s0"]>>'
    assert apply(group_norm((SCALE,), "", x, method), step(norms.decompose_group_norm)).count == 1


def test_a_group_norm_of_an_open_volume_is_refused(refused: Any, method: Any):
    x = 'tensor<2x4x3x3x?xf32, #stepwell.shape<[2, 4, 3, 3, "s0"]>>'
    refused(
        group_norm((SCALE,), "", x, method),
        step(norms.decompose_group_norm),
        "of no image, are symbolic",
    )


def test_a_group_norm_of_a_constant_scale_is_taken_apart(apply: Any, method: Any):
    assert apply(group_norm((SCALE,), "", X, method), step(norms.decompose_group_norm)).count == 1


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_group_norm_of_images_moves_no_elements(groups: int, apply: Any, method: Any):
    x = "tensor<2x4x3x5xf32>"
    line = f"%y = aten.group_norm.default(%x, {groups}, %w) : ({x}, tensor<4xf32>) -> {x}"
    done = apply(method(f"%x: {x}", SCALE, line, gives=x), step(norms.decompose_group_norm))
    assert done.count == 1
    assert "aten.view.default" not in done.ops()


def test_a_number_that_is_none_stays_in_its_group(programs: Any, method: Any):
    x = "tensor<1x4x3x5xf32>"
    line = f"%y = aten.group_norm.default(%x, 2, %w) : ({x}, tensor<4xf32>) -> {x}"
    program, (image,) = programs(method(f"%x: {x}", SCALE, line, gives=x))
    image[0, 0, 0, 0] = torch.inf
    assert run_rewrites(program, [step(norms.decompose_group_norm)], History()) == 1
    (result,) = program.run(image)
    assert not result[0, :2].isfinite().any()
    assert result[0, 2:].isfinite().all()

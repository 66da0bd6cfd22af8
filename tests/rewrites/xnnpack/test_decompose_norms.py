"""`decompose-layer-norm` and `decompose-group-norm`: what they leave to the kernel."""

from typing import Any

import pytest
import torch
from rewrite_cases import cases

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.decompositions import norms
from stepwell.translate.lowerings.lowering import step

test_decompose_norms = cases(
    norms,
    """
decompose-layer-norm: a layer norm of nothing -> refused: empty
    %y = aten.layer_norm.default(%x: f32[2, 0], [0])
decompose-layer-norm: a layer norm of two axes and two symbolic ones -> refused: several axes
    %y = aten.layer_norm.default(%x: f32[s0, s1, 3, 4], [3, 4])
decompose-layer-norm: a layer norm of a symbolic axis -> refused: symbolic size
    %n = aten.sym_size.int(%x: f32[2, s0], 1)
    %y = aten.layer_norm.default(%x, [%n])
decompose-layer-norm: a layer norm of known axes is taken apart -> applied once
    - %y = aten.layer_norm.default(%x: f32[2, 3, 4], [4])
    - %y = aten.layer_norm.default(%x: f32[2, 3, 4], [3, 4])
decompose-group-norm: a group norm with a computed scale -> refused: the scale is computed
    %y = aten.group_norm.default(%x: f32[2, 4, 3], 2, %w: f32[4])
decompose-group-norm: a group norm of lines of open length is of images -> applied once
    %y = aten.group_norm.default(%x: f32[2, 4, s0], 2, %w: weight f32[4])
decompose-group-norm: a group norm of an open volume -> refused: of no image, are symbolic
    %y = aten.group_norm.default(%x: f32[2, 4, 3, 3, s0], 2, %w: weight f32[4])
decompose-group-norm: a group norm of a constant scale is taken apart -> applied once
    %y = aten.group_norm.default(%x: f32[2, 4, 3], 2, %w: weight f32[4])
""",
)


X, SCALE = "tensor<2x4x3xf32>", '%w = stepwell.weight <"w"> "parameter" : tensor<4xf32>'


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_group_norm_of_images_moves_no_elements(groups: int, apply: Any, method: Any):
    x = "tensor<2x4x3x5xf32>"
    line = f"%y = aten.group_norm.default(%x, {groups}, %w) : ({x}, tensor<4xf32>) -> {x}"
    done = apply(method(f"%x: {x}", SCALE, line, gives=x), step(norms.decompose_group_norm))
    assert done.count == 1
    assert "aten.view.default" not in done.ops()


def test_a_number_that_is_none_stays_in_its_group(programs: Any):
    program, (image,) = programs(
        "%y = aten.group_norm.default(%x: f32[1, 4, 3, 5], 2, %w: weight f32[4])"
    )
    image[0, 0, 0, 0] = torch.inf
    assert run_rewrites(program, [step(norms.decompose_group_norm)], History()) == 1
    (result,) = program.run(image)
    assert not result[0, :2].isfinite().any()
    assert result[0, 2:].isfinite().all()

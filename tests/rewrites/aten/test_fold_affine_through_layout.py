"""Constants per channel pass what moves whole rows, and nothing else."""

from functools import partial
from typing import Any

import pytest
import torch
from eager import Function, assert_as_eager, lower
from rewrite_cases import cases
from torch import Tensor, nn

from stepwell.translate.rewrites.layers.fold_affine_into_layer import FoldAffineIntoLayer

test_fold_affine_through_layout = cases(FoldAffineIntoLayer)("""
scale and shift pass a permute into all layers -> aten.permute.default, aten.linear.default, aten.linear.default, aten.add.Tensor
    %s = aten.mul.Tensor(%x: f32[2, 4, 4], %g: weight f32[4])
    %t = aten.add.Tensor(%s, %b: weight f32[4]); %p = aten.permute.default(%t, [1, 0, 2])
    %j = aten.linear.default(%p, %w: weight f32[3, 4])
    %k = aten.linear.default(%p, %w, %c: weight f32[3]); %y = aten.add.Tensor(%j, %k)
rows read as they are and moved lose the scale together -> aten.permute.default, aten.linear.default, aten.linear.default, aten.permute.default, aten.add.Tensor
    %s = aten.mul.Tensor(%x: f32[2, 4, 4], %g: weight f32[4])
    %p = aten.permute.default(%s, [1, 0, 2]); %k = aten.linear.default(%p, %w: weight f32[3, 4])
    %j = aten.linear.default(%s, %w); %t = aten.permute.default(%j, [1, 0, 2])
    %y = aten.add.Tensor(%t, %k)
a shift passes a roll and windows -> aten.slice.Tensor, aten.slice.Tensor, aten.cat.default, aten.view.default, aten.linear.default
    %t = aten.add.Tensor(%x: f32[2, 4, 4], %b: weight f32[4])
    %r1 = aten.slice.Tensor(%t, 0, 1, 2, 1); %u = aten.slice.Tensor(%t, 0, 0, 1, 1)
    %r = aten.cat.default([%r1, %u], 0); %v = aten.view.default(%r, [8, 4])
    %y = aten.linear.default(%v, %w: weight f32[3, 4])
rows joined with others -> refused: joins scaled rows and other rows
    %s = aten.mul.Tensor(%x: f32[2, 4, 4], %g: weight f32[4])
    %r1 = aten.slice.Tensor(%s, 0, 1, 2, 1); %u = aten.slice.Tensor(%s, 0, 0, 1, 1)
    %r = aten.cat.default([%r1, %z: f32[1, 4, 4]], 0); %rest = aten.cat.default([%u, %u], 0)
    %p = aten.permute.default(%r, [1, 0, 2]); %j = aten.linear.default(%p, %w: weight f32[3, 4])
    %q = aten.permute.default(%rest, [1, 0, 2]); %k = aten.linear.default(%q, %w)
    %y = aten.add.Tensor(%j, %k)
a permute that moves the channels -> unchanged
    %s = aten.mul.Tensor(%x: f32[2, 4, 4], %g: weight f32[4])
    %p = aten.permute.default(%s, [0, 2, 1]); %y = aten.linear.default(%p, %w: weight f32[3, 4])
a view that takes rows apart -> unchanged
    %s = aten.mul.Tensor(%x: f32[2, 4, 4], %g: weight f32[4]); %f = aten.view.default(%s, [4, 8])
    %p = aten.view.default(%f, [2, 4, 4]); %y = aten.linear.default(%p, %w: weight f32[3, 4])
channels one at a time -> unchanged
    %s = aten.mul.Tensor(%x: f32[2, 4, 4], %g: weight f32[4])
    %u = aten.slice.Tensor(%s, 2, 0, 2, 1); %p = aten.cat.default([%u, %u], 2)
    %y = aten.linear.default(%p, %w: weight f32[3, 4])
no movement -> unchanged
    %s = aten.mul.Tensor(%x: f32[2, 4, 4], %g: weight f32[4]); %p = aten.neg.default(%s)
    %y = aten.linear.default(%p, %w: weight f32[3, 4])
a view to a tensor without axes is no row -> unchanged
    %s = aten.mul.Tensor(%x: f32[1], %g: weight f32[1]); %v = aten.view.default(%s, [])
    %u = aten.view.default(%v, [1]); %y = aten.linear.default(%u, %w: weight f32[1, 1])
another reader of the rows keeps the scale -> refused: nothing is saved
    %s = aten.mul.Tensor(%x: f32[2, 4, 4], %g: weight f32[4])
    %p = aten.permute.default(%s, [1, 0, 2]); %j = aten.linear.default(%p, %w: weight f32[3, 4])
    %n = aten.neg.default(%p); %k = aten.linear.default(%n, %w); %y = aten.add.Tensor(%j, %k)
rows that are a weight too keep the scale -> refused: nothing is saved
    %s = aten.mul.Tensor(%x: f32[4, 4], %g: weight f32[4]); %v = aten.slice.Tensor(%s, 0, 0, 3, 1)
    %y = aten.linear.default(%v, %v)
a weight computed at run time takes nothing -> refused: weight is computed at run time
    %s = aten.mul.Tensor(%x: f32[2, 4, 4], %g: weight f32[4])
    %p = aten.permute.default(%s, [1, 0, 2]); %y = aten.linear.default(%p, %w: f32[3, 4])
channels that a permute moves keep their constants -> aten.permute.default, aten.linear.default
    # What is scaled along the axis that a permute puts last, the layer behind it takes in.
    %s = aten.mul.Tensor(%x: f32[2, 4, 4], %h: weight f32[4, 1])
    %p = aten.permute.default(%s, [0, 2, 1]); %y = aten.linear.default(%p, %w: weight f32[3, 4])
a layer without output features takes nothing -> refused: vector
    %s = aten.mul.Tensor(%x: f32[2, 4, 4], %g: weight f32[4])
    %p = aten.permute.default(%s, [1, 0, 2]); %y = aten.linear.default(%p, %w: weight f32[4])
a product read without the shift stays and the shift goes -> 1 aten.mul.Tensor; applied once; omits #scale_columns
    %s = aten.mul.Tensor(%x: f32[2, 4, 4], %g: weight f32[4])
    %t = aten.add.Tensor(%s, %b: weight f32[4]); %p = aten.permute.default(%t, [1, 0, 2])
    %j = aten.linear.default(%p, %w: weight f32[3, 4]); %n = aten.neg.default(%s)
    %q = aten.permute.default(%n, [1, 0, 2]); %k = aten.linear.default(%q, %w)
    %y = aten.add.Tensor(%j, %k)
""")


def tower(is_direct_first: bool, x: Tensor, norm: Any, direct: Any, moved: Any) -> Any:
    """A norm that one projection reads directly and another through windows, in either order."""
    y = norm(x)
    windows = y.view(1, 2, 2, 2, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(4, 4, 8)
    if is_direct_first:
        return direct(y), moved(windows)
    return moved(windows), direct(y)


@pytest.mark.parametrize("is_direct_first", [False, True])
def test_the_order_of_readers_does_not_matter(is_direct_first: bool) -> None:
    layers = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)
    model, x = Function(partial(tower, is_direct_first), *layers), torch.randn(1, 4, 4, 8)
    assert_as_eager(lower(model, x), model, x, rtol=1e-4, atol=1e-4)

"""Transposes and reshapes merge, and which shapes may be passed over."""

from typing import Any

import pytest
import torch
from eager import Function, assert_as_eager, assert_whole, lower
from rewrite_cases import cases
from torch import Tensor, nn
from torch.export import Dim

import stepwell
from stepwell.dialects.xnnpack import StaticSlice
from stepwell.ir.types import dims
from stepwell.translate.decompositions import views
from stepwell.translate.rewrites.xnnpack.nodes.hoist_reshape_over_linear import (
    HoistReshapeOverLinear,
)
from stepwell.translate.rewrites.xnnpack.partitioning import merge_transposes

ALL = {rule.name: rule() for rule in merge_transposes.RULES}


test_merge_transposes = cases(merge_transposes.RULES, HoistReshapeOverLinear)("""
merge-reshapes: reshapes of a symbolic size are one -> xnnpack.static_reshape
    %a = xnnpack.static_reshape(%x: f32[s0, 4], new_shape=[0, 2, 2]) -> f32[s0, 2, 2]
    %y = xnnpack.static_reshape(%a, new_shape=[0, 1, 4])
hoist-reshape-over-linear: rows are rows in any shape -> applied once
    %a = xnnpack.static_reshape(%x: f32[2, 3, 4], new_shape=[6, 4])
    %b = xnnpack.fully_connected(%a, %w: weight f32[3, 4])
    %y = xnnpack.static_reshape(%b, new_shape=[3, 2, 3])
hoist-reshape-over-linear: a reshape that takes rows apart -> unchanged
    - %a = xnnpack.static_reshape(%x: f32[2, 3, 4], new_shape=[6, 4])
      %b = xnnpack.fully_connected(%a, %w: weight f32[3, 4])
      %y = xnnpack.static_reshape(%b, new_shape=[2, 9])
    - %a = xnnpack.static_reshape(%x: f32[2, 3, 4], new_shape=[6, 4])
      %b = xnnpack.fully_connected(%a, %w: weight f32[2, 4])
      %y = xnnpack.static_reshape(%b, new_shape=[3, 4])
hoist-reshape-over-linear: a result without axes -> unchanged
    %a = xnnpack.static_reshape(%x: f32[2, 2], new_shape=[1, 4])
    %b = xnnpack.fully_connected(%a, %w: weight f32[1, 4])
    %y = xnnpack.static_reshape(%b, new_shape=[])
hoist-reshape-over-linear: rows of what has no axes -> unchanged
    %y = xnnpack.static_reshape(%x: f32[], new_shape=[1])
hoist-reshape-over-linear: a layer with another reader -> unchanged
    %a = xnnpack.static_reshape(%x: f32[2, 3, 4], new_shape=[6, 4])
    %b = xnnpack.fully_connected(%a, %w: weight f32[3, 4])
    %z = xnnpack.static_reshape(%b, new_shape=[3, 2, 3])
    %s = xnnpack.static_slice(%b, offsets=[0, 0], sizes=[1, 3])
    %c = xnnpack.static_reshape(%s, new_shape=[1, 1, 3]); %y = xnnpack.subtract(%z, %c)
hoist-reshape-over-linear: a layer of rows that were not reshaped -> unchanged
    %b = xnnpack.fully_connected(%x: f32[6, 4], %w: weight f32[3, 4])
    %y = xnnpack.static_reshape(%b, new_shape=[2, 3, 3])
hoist-reshape-over-linear + merge-reshapes: rows quantized at run time are rows in any shape -> quant.scast, xnnpack.static_reshape, xnnpack.convert, xnnpack.fully_connected
    %w = quant.scast(%i: weight "w" i8[5, 4]) -> i8<-127:127; :0, {0.5, 0.25, 0.5, 0.125, 1.0}>[5, 4]
    %a = xnnpack.static_reshape(%x: f32[2, 3, 4], new_shape=[6, 4])
    %q = xnnpack.convert(%a) -> !xnnpack.dynamic_int8<1>[6, 4]
    %b = xnnpack.fully_connected(%q, %w) -> f32[6, 5]
    %y = xnnpack.static_reshape(%b, new_shape=[3, 2, 5])
hoist-reshape-over-linear: a chain read in its middle -> unchanged
    %v0 = xnnpack.static_reshape(%x: f32[2, 3, 4], new_shape=[6, 4])
    %v1 = xnnpack.fully_connected(%v0, %w: weight f32[4, 4]); %v2 = xnnpack.gelu(%v1)
    %v3 = xnnpack.fully_connected(%v2, %w); %y = xnnpack.static_reshape(%v3, new_shape=[6, 1, 4])
    %z = xnnpack.static_reshape(%v2, new_shape=[6, 1, 4]); %s = xnnpack.add(%y, %z)
hoist-reshape-over-linear: a reshape after another node -> unchanged
    %a = xnnpack.static_reshape(%x: f32[2, 3, 4], new_shape=[6, 4]); %b = xnnpack.abs(%a)
    %y = xnnpack.static_reshape(%b, new_shape=[2, 3, 4])
hoist-reshape-over-linear: rows of a symbolic number -> unchanged
    %a = xnnpack.static_reshape(%x: f32[s0, 2, 2], new_shape=[0, 4]) -> f32[s0, 4]
    %b = xnnpack.fully_connected(%a, %w: weight f32[3, 4])
    %y = xnnpack.static_reshape(%b, new_shape=[0, 1, 3]) -> f32[s0, 1, 3]
drop-averaged-axes: a reshape of an argument is no average -> unchanged
    %y = xnnpack.static_reshape(%x: f32[2, 1, 1, 8], new_shape=[2, 8])
drop-averaged-axes: axes that an average has dropped are not dropped again -> unchanged
    %a = xnnpack.global_average_pooling_2d(%x: f32[1, 6, 1, 8])
    %y = xnnpack.static_reshape(%a, new_shape=[8])
""")


test_transpose_to_reshape = cases(merge_transposes.RULES)("""
transpose-to-reshape: a unit axis is moved by a reshape if at most one size is symbolic -> xnnpack.static_reshape
    - %y = xnnpack.static_transpose(%x: f32[2, 1, 3], perm=[1, 0, 2])
    - %y = xnnpack.static_transpose(%x: f32[s0, 1, 3], perm=[1, 0, 2])
transpose-to-reshape: a unit axis among two symbolic sizes -> unchanged
    %y = xnnpack.static_transpose(%x: f32[s0, 1, s1], perm=[1, 0, 2])
""")


@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_chains_of_any_length_are_passed(length: int, apply: Any):
    nodes = ("fully_connected", "gelu", "softmax") * length
    lines = [
        "%v0 = xnnpack.static_reshape(%x: f32[2, 3, 4], new_shape=[6, 4])",
        "%w: weight f32[4, 4]",
    ]
    for number, node in enumerate(nodes):
        given = f"%v{number}, %w" if node == "fully_connected" else f"%v{number}"
        lines.append(f"%v{number + 1} = xnnpack.{node}({given})")
    lines.append(f"%y = xnnpack.static_reshape(%v{len(nodes)}, new_shape=[3, 2, 4])")
    done = apply("\n".join(lines), HoistReshapeOverLinear(), ALL["merge-reshapes"])
    assert done.ops() == ["xnnpack.static_reshape", *(f"xnnpack.{node}" for node in nodes)]


(DROP,) = (rule() for rule in merge_transposes.RULES if rule.name == "drop-averaged-axes")


test_drop_averaged_axes = cases(DROP)("""
the average itself leaves its axes out -> xnnpack.global_average_pooling_2d
    %x: f32[2, 4, 3, 8]
    %p = xnnpack.global_average_pooling_2d(%x, keep_dims) : (f32[2, 4, 3, 8]) -> f32[2, 1, 1, 8]
    %y = xnnpack.static_reshape(%p, new_shape=[2, 8])
a reshape that does something else stays -> applied 0 times
    - %x: f32[2, 4, 3, 8]
      %p = xnnpack.global_average_pooling_2d(%x, keep_dims) : (f32[2, 4, 3, 8]) -> f32[2, 1, 1, 8]
      %y = xnnpack.static_reshape(%p, new_shape=[2, 8, 1, 1])
    - %x: f32[2, 4, 3, 8]
      %p = xnnpack.global_average_pooling_2d(%x, keep_dims) : (f32[2, 4, 3, 8]) -> f32[2, 1, 1, 8]
      %y = xnnpack.static_reshape(%p, new_shape=[16])
    - %x: f32[2, 4, 3, 8]
      %p = xnnpack.global_average_pooling_2d(%x, keep_dims) : (f32[2, 4, 3, 8]) -> f32[2, 1, 1, 8]
      %y = xnnpack.static_reshape(%p, new_shape=[2, 1, 8])
an average that others read keeps its axes -> applied 0 times
    %x: f32[2, 4, 3, 8]
    %p = xnnpack.global_average_pooling_2d(%x, keep_dims) : (f32[2, 4, 3, 8]) -> f32[2, 1, 1, 8]
    %y = xnnpack.static_reshape(%p, new_shape=[2, 8]); return %y, %p
""")


test_unbind_by_permute = cases(views)("""
unbind-by-permute: a long axis -> unchanged
    %p0, %p1, %p2, %p3, %p4 = aten.unbind.int(%x: f32[3, 4, 5], -1)
    %y = aten.cat.default([%p0, %p1, %p2, %p3, %p4], 0)
unbind-by-permute: an axis in the middle -> unchanged
    %p0, %p1, %p2, %p3 = aten.unbind.int(%x: f32[3, 4, 2], 1)
    %y = aten.cat.default([%p0, %p1, %p2, %p3], 0)
unbind-by-permute: it leaves -> refused: int64
    %p0, %p1 = aten.unbind.int(%x: i64[3, 4, 2], -1); %y = aten.cat.default([%p0, %p1], 0)
unbind-by-permute: an unused part -> unchanged
    %p0, %p1 = aten.unbind.int(%x: f32[3, 4, 2], -1); %y = aten.cat.default([%p0], 0)
""")


def test_rotary_embeddings_are_sliced_in_blocks() -> None:
    def rotary(x: Tensor, cos: Tensor, sin: Tensor, layer: nn.Module) -> Tensor:
        """Neighboring pairs turned by an angle, between two layers."""
        real, imaginary = layer(x).view(1, 8, 4, 8, 2).unbind(-1)
        turned = (real * cos - imaginary * sin, real * sin + imaginary * cos)
        return layer(torch.stack(turned, -1).view(1, 8, 64))

    model = Function(rotary, nn.Linear(64, 64)).eval()
    inputs = (torch.randn(1, 8, 64), torch.randn(1, 8, 1, 8), torch.randn(1, 8, 1, 8))
    lowered = lower(model, *inputs)
    slices = [op for op in lowered.program.module.walk() if isinstance(op, StaticSlice)]
    assert [dims(op.output.type)[-1] for op in slices] == [8, 8]
    assert_as_eager(lowered, model, *inputs)


class Attention(nn.Module):
    """Heads parted by a view, with or without a mask of padding."""

    def __init__(self, heads: int = 4, more: bool = False) -> None:
        super().__init__()
        self.heads, self.more = heads, more
        self.projections = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        *inner, outer = self.projections
        parts = [part(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for part in inner]
        mask = None if keep is None else keep[:, None, None, :]
        attended = nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask)
        merged = outer(attended.transpose(1, 2).reshape(x.shape))
        return (merged, attended.amax(-1)) if self.more else merged


def multi_head(x: Tensor, layer: nn.Module) -> Tensor:
    """Torch's own, which merges batch and heads."""
    return layer(x, x, x, need_weights=False)[0]


def lowered(model: nn.Module, *inputs: Tensor) -> stepwell.Lowered:
    torch.manual_seed(0)
    sizes = {0: Dim("b", min=1, max=8), 1: Dim("n", min=2, max=16)}
    shapes: Any = (sizes,) * len(inputs)
    dynamic = (shapes,) if isinstance(model, Function) else shapes
    made = torch.export.export(model.eval(), inputs, dynamic_shapes=dynamic)
    return stepwell.lower(made, "xnnpack", numerics="finite")


@pytest.mark.parametrize(
    "model",
    [
        Attention(),
        Attention(heads=1),
        Function(multi_head, nn.MultiheadAttention(16, 4, batch_first=True)),
    ],
)
def test_attention_over_an_open_batch_and_length_is_one_delegate(model: nn.Module) -> None:
    made = lowered(model, torch.randn(2, 6, 16))
    assert_whole(made)
    for batch, length in ((1, 16), (3, 5), (8, 2)):
        assert_as_eager(made, model, torch.randn(batch, length, 16), rtol=1e-4, atol=1e-5)


def test_a_mask_that_all_heads_share_loses_the_axis_once() -> None:
    model = Attention()
    made = lowered(model, torch.randn(2, 6, 16), torch.zeros(2, 6))
    assert made.report.delegates == 1
    assert_as_eager(made, model, torch.randn(3, 7, 16), torch.randn(3, 7), rtol=1e-4, atol=1e-5)


def test_heads_that_are_read_together_stay_together() -> None:
    model = Attention(more=True)
    made = lowered(model, torch.randn(2, 6, 16))
    assert any("is read elsewhere, too" in line for line in str(made.report).splitlines())
    assert_as_eager(made, model, torch.randn(3, 7, 16), rtol=1e-4, atol=1e-5)

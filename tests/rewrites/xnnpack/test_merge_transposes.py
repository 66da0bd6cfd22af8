"""Reshapes that meet, HoistReshapeOverLinear, averages: which shapes may be passed over."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.ir.dtypes import f32
from stepwell.ir.types import tensor
from stepwell.translate.rewrites.xnnpack.nodes.hoist_reshape_over_linear import (
    HoistReshapeOverLinear,
)
from stepwell.translate.rewrites.xnnpack.partitioning.merge_transposes import RULES

ALL = {rule.name: rule() for rule in RULES}


def reshape(given: str, made: str, before: str, after: str, sizes: str) -> str:
    return (
        f"%{made} = xnnpack.static_reshape(%{given}, new_shape=[{sizes}]) : ({before}) -> {after}"
    )


test_merge_transposes = cases(
    RULES,
    HoistReshapeOverLinear,
    """
merge-reshapes: reshapes of a symbolic size are one -> xnnpack.static_reshape
    %x: f32[s0, 4]
    %a = xnnpack.static_reshape(%x, new_shape=[0, 2, 2]) : (f32[s0, 4]) -> f32[s0, 2, 2]
    %y = xnnpack.static_reshape(%a, new_shape=[0, 1, 4]) : (f32[s0, 2, 2]) -> f32[s0, 1, 4]
hoist-reshape-over-linear: rows are rows in any shape -> applied once
    %x: f32[2, 3, 4]
    %a = xnnpack.static_reshape(%x, new_shape=[6, 4]) : (f32[2, 3, 4]) -> f32[6, 4]
    %b = xnnpack.fully_connected(%a, %w: weight f32[3, 4])
    %y = xnnpack.static_reshape(%b, new_shape=[3, 2, 3]) : (f32[6, 3]) -> f32[3, 2, 3]
hoist-reshape-over-linear: a reshape that takes rows apart -> unchanged
    - %x: f32[2, 3, 4]
      %a = xnnpack.static_reshape(%x, new_shape=[6, 4]) : (f32[2, 3, 4]) -> f32[6, 4]
      %b = xnnpack.fully_connected(%a, %w: weight f32[3, 4])
      %y = xnnpack.static_reshape(%b, new_shape=[2, 9]) : (f32[6, 3]) -> f32[2, 9]
    - %x: f32[2, 3, 4]
      %a = xnnpack.static_reshape(%x, new_shape=[6, 4]) : (f32[2, 3, 4]) -> f32[6, 4]
      %b = xnnpack.fully_connected(%a, %w: weight f32[2, 4])
      %y = xnnpack.static_reshape(%b, new_shape=[3, 4]) : (f32[6, 2]) -> f32[3, 4]
hoist-reshape-over-linear: a result without axes -> unchanged
    %x: f32[2, 2]; %a = xnnpack.static_reshape(%x, new_shape=[1, 4]) : (f32[2, 2]) -> f32[1, 4]
    %b = xnnpack.fully_connected(%a, %w: weight f32[1, 4])
    %y = xnnpack.static_reshape(%b, new_shape=[]) : (f32[1, 1]) -> f32[]
hoist-reshape-over-linear: rows of what has no axes -> unchanged
    %x: f32[]; %y = xnnpack.static_reshape(%x, new_shape=[1]) : (f32[]) -> f32[1]
hoist-reshape-over-linear: a layer with another reader -> unchanged
    %x: f32[2, 3, 4]
    %a = xnnpack.static_reshape(%x, new_shape=[6, 4]) : (f32[2, 3, 4]) -> f32[6, 4]
    %b = xnnpack.fully_connected(%a, %w: weight f32[3, 4])
    %z = xnnpack.static_reshape(%b, new_shape=[3, 2, 3]) : (f32[6, 3]) -> f32[3, 2, 3]
    %s = xnnpack.static_slice(%b, offsets=[0, 0], sizes=[1, 3]) : (f32[6, 3]) -> f32[1, 3]
    %c = xnnpack.static_reshape(%s, new_shape=[1, 1, 3]) : (f32[1, 3]) -> f32[1, 1, 3]
    %y = xnnpack.subtract(%z, %c)
hoist-reshape-over-linear: a layer of rows that were not reshaped -> unchanged
    %b = xnnpack.fully_connected(%x: f32[6, 4], %w: weight f32[3, 4])
    %y = xnnpack.static_reshape(%b, new_shape=[2, 3, 3]) : (f32[6, 3]) -> f32[2, 3, 3]
hoist-reshape-over-linear + merge-reshapes: rows quantized at run time are rows in any shape -> quant.scast, xnnpack.static_reshape, xnnpack.convert, xnnpack.fully_connected
    %w = quant.scast(%i: weight "w" i8[5, 4]) -> i8<-127:127; :0, {0.5, 0.25, 0.5, 0.125, 1.0}>[5, 4]
    %x: f32[2, 3, 4]
    %a = xnnpack.static_reshape(%x, new_shape=[6, 4]) : (f32[2, 3, 4]) -> f32[6, 4]
    %q = xnnpack.convert(%a) -> !xnnpack.dynamic_int8<1>[6, 4]
    %b = xnnpack.fully_connected(%q, %w) -> f32[6, 5]
    %y = xnnpack.static_reshape(%b, new_shape=[3, 2, 5]) : (f32[6, 5]) -> f32[3, 2, 5]
hoist-reshape-over-linear: a chain read in its middle -> unchanged
    %x: f32[2, 3, 4]
    %v0 = xnnpack.static_reshape(%x, new_shape=[6, 4]) : (f32[2, 3, 4]) -> f32[6, 4]
    %v1 = xnnpack.fully_connected(%v0, %w: weight f32[4, 4])
    %v2 = xnnpack.gelu(%v1)
    %v3 = xnnpack.fully_connected(%v2, %w)
    %y = xnnpack.static_reshape(%v3, new_shape=[6, 1, 4]) : (f32[6, 4]) -> f32[6, 1, 4]
    %z = xnnpack.static_reshape(%v2, new_shape=[6, 1, 4]) : (f32[6, 4]) -> f32[6, 1, 4]
    %s = xnnpack.add(%y, %z)
hoist-reshape-over-linear: a reshape behind another node -> unchanged
    %x: f32[2, 3, 4]
    %a = xnnpack.static_reshape(%x, new_shape=[6, 4]) : (f32[2, 3, 4]) -> f32[6, 4]
    %b = xnnpack.abs(%a)
    %y = xnnpack.static_reshape(%b, new_shape=[2, 3, 4]) : (f32[6, 4]) -> f32[2, 3, 4]
hoist-reshape-over-linear: rows of a symbolic number -> unchanged
    %x: f32[s0, 2, 2]
    %a = xnnpack.static_reshape(%x, new_shape=[0, 4]) : (f32[s0, 2, 2]) -> f32[s0, 4]
    %b = xnnpack.fully_connected(%a, %w: weight f32[3, 4])
    %y = xnnpack.static_reshape(%b, new_shape=[0, 1, 3]) : (f32[s0, 3]) -> f32[s0, 1, 3]
drop-averaged-axes: a reshape of an argument is no average -> unchanged
    %x: f32[2, 1, 1, 8]
    %y = xnnpack.static_reshape(%x, new_shape=[2, 8]) : (f32[2, 1, 1, 8]) -> f32[2, 8]
drop-averaged-axes: axes that an average has dropped are not dropped again -> unchanged
    %a = xnnpack.global_average_pooling_2d(%x: f32[1, 6, 1, 8])
    %y = xnnpack.static_reshape(%a, new_shape=[8]) : (f32[1, 8]) -> f32[8]
""",
)


@pytest.mark.parametrize(
    ("first", "kind"),
    [("2", "static_reshape"), ("s0", "static_reshape"), ("s1", "static_transpose")],
)
def test_a_unit_axis_is_moved_by_a_reshape_if_at_most_one_size_is_symbolic(
    first: str, kind: str, apply: Any, method: Any
):
    sizes = [2, 3] if first == "2" else ["s0", 3] if first == "s0" else ["s0", "s1"]
    before, after = (str(tensor(d, f32)) for d in ([sizes[0], 1, sizes[1]], [1, *sizes]))
    line = f"%y = xnnpack.static_transpose(%x, perm=[1, 0, 2]) : ({before}) -> {after}"
    done = apply(method(f"%x: {before}", line, gives=after), ALL["transpose-to-reshape"])
    assert done.ops() == [f"xnnpack.{kind}"]


def chain(method: Any, *nodes: str, rows: str = "6x4", after: str = "3x2x4") -> str:
    """Square layers and other nodes in a row, a reshape before and one behind."""
    x, flat, y = "tensor<2x3x4xf32>", f"tensor<{rows}xf32>", f"tensor<{after}xf32>"
    lines = [reshape("x", "v0", x, flat, rows.replace("x", ", "))]
    for number, node in enumerate(nodes):
        linear = node == "fully_connected"
        given = f"%v{number}, %w" if linear else f"%v{number}"
        kinds = f"({flat}, tensor<4x4xf32>)" if linear else f"({flat})"
        lines.append(f"%v{number + 1} = xnnpack.{node}({given}) : {kinds} -> {flat}")
    lines.append(reshape(f"v{len(nodes)}", "y", flat, y, after.replace("x", ", ")))
    weight = '%w = stepwell.weight <"w"> "parameter" : tensor<4x4xf32>'
    return method(f"%x: {x}", weight, *lines, gives=y)


@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_chains_of_any_length_are_passed(length: int, apply: Any, method: Any):
    nodes = ("fully_connected", "gelu", "softmax") * length
    done = apply(chain(method, *nodes), HoistReshapeOverLinear(), ALL["merge-reshapes"])
    assert done.ops() == ["xnnpack.static_reshape", *(f"xnnpack.{node}" for node in nodes)]

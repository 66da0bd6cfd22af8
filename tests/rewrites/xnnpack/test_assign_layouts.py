"""AssignLayouts: transposes stand where a minimum cut puts them, axes are followed by order."""

import random
from itertools import product
from math import prod
from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.ir.axes.forms import reshaped
from stepwell.ir.axes.maps import AxisMap, Order
from stepwell.ir.rewriting.rewrite import GreedyRewrites
from stepwell.ir.sizes.size_text import dim_of
from stepwell.translate.layout.table import are_alike
from stepwell.translate.rewrites.documentation import module_of
from stepwell.translate.rewrites.xnnpack import MERGES
from stepwell.translate.rewrites.xnnpack.partitioning.assign_layouts import AssignLayouts, stretches

PLACED = (AssignLayouts(), GreedyRewrites("merge-transposes", MERGES)) * 2
"""Transposes placed and merged, twice as in the pipeline."""


def reshaped_order(before: Any, after: Any, order: Order) -> Order | None:
    """The order of a reshape's result if its input has `order`."""
    return AxisMap(after, (before,), (reshaped(before, after),)).order_after(0, order)


def transposes(done: Any) -> int:
    return done.ops().count("xnnpack.static_transpose")


def test_the_documented_example_loses_both_transposes(apply: Any):
    before = module_of("xnnpack.partitioning.assign_layouts").__doc__ or ""
    text = before[before.index("Before:") + 7 : before.index("After,")]
    assert transposes(apply(text, *PLACED)) == 0


@pytest.mark.parametrize("length", [1, 7, 200])
def test_chains_of_any_length_work_before_the_transpose(length: int, apply: Any):
    chain = "; ".join(f"%v{i + 1} = xnnpack.abs(%v{i})" for i in range(length))
    text = f"""
        %v0 = xnnpack.static_transpose(%x: f32[1, 6, 5, 8], perm=[0, 3, 1, 2]); {chain}
        %y = xnnpack.static_transpose(%v{length}, perm=[0, 2, 3, 1])
    """
    assert transposes(apply(text, *PLACED)) == 0


test_placed = cases(PLACED)("""
a residual of two channels-last branches stays channels-last -> without xnnpack.static_transpose
    %a = xnnpack.static_transpose(%x: f32[1, 6, 5, 8], perm=[0, 3, 1, 2])
    %b = xnnpack.static_transpose(%z: f32[1, 6, 5, 8], perm=[0, 3, 1, 2])
    %c = xnnpack.add(%a, %b); %d = xnnpack.tanh(%c); %e = xnnpack.add(%c, %d)
    %y = xnnpack.static_transpose(%e, perm=[0, 2, 3, 1])
an operand in the other order is transposed where it is smallest -> 1 xnnpack.static_transpose; writes static_transpose(%h, perm=[0, 2, 3, 1]) : (tensor<1x8x1x5xf32>)
    %a = xnnpack.static_transpose(%x: f32[1, 6, 5, 8], perm=[0, 3, 1, 2])
    %h = xnnpack.sigmoid(%g: f32[1, 8, 1, 5]); %c = xnnpack.multiply(%a, %h)
    %y = xnnpack.static_transpose(%c, perm=[0, 2, 3, 1])
a squeezed gate needs no reshape between channels-last layers -> xnnpack.sigmoid, xnnpack.multiply
    %a = xnnpack.static_transpose(%g: f32[1, 1, 1, 8], perm=[0, 3, 1, 2]); %b = xnnpack.sigmoid(%a)
    %c = xnnpack.static_transpose(%x: f32[1, 6, 5, 8], perm=[0, 3, 1, 2])
    %d = xnnpack.multiply(%c, %b); %y = xnnpack.static_transpose(%d, perm=[0, 2, 3, 1])
constants follow at compile time whatever their rank -> xnnpack.add, xnnpack.multiply
    %a = xnnpack.static_transpose(%x: f32[1, 6, 5, 8], perm=[0, 3, 1, 2])
    %b = xnnpack.add(%a, %k: constant f32[1, 8, 6, 5])
    %c = xnnpack.multiply(%b, %s: constant f32[6, 1])
    %y = xnnpack.static_transpose(%c, perm=[0, 2, 3, 1])
a restore that does not restore keeps a transpose -> 1 xnnpack.static_transpose
    %a = xnnpack.static_transpose(%x: f32[1, 6, 5, 8], perm=[0, 3, 1, 2]); %b = xnnpack.tanh(%a)
    %y = xnnpack.static_transpose(%b, perm=[0, 3, 2, 1])
a softmax over the moved axis stays where it is -> 2 xnnpack.static_transpose
    %a = xnnpack.static_transpose(%x: f32[1, 6, 5, 8], perm=[0, 3, 1, 2]); %b = xnnpack.softmax(%a)
    %y = xnnpack.static_transpose(%b, perm=[0, 2, 3, 1])
a linear layer along another axis stays where it is -> 2 xnnpack.static_transpose
    %a = xnnpack.static_transpose(%x: f32[1, 4, 4, 4], perm=[0, 3, 1, 2])
    %b = xnnpack.fully_connected(%a, %w: weight f32[4, 4])
    %y = xnnpack.static_transpose(%b, perm=[0, 2, 3, 1])
a linear layer on rows passes what moves rows -> without xnnpack.static_transpose
    %a = xnnpack.static_transpose(%x: f32[4, 4, 4], perm=[1, 0, 2])
    %b = xnnpack.fully_connected(%a, %w: weight f32[4, 4])
    %y = xnnpack.static_transpose(%b, perm=[1, 0, 2])
slices, pads and joins take their axes along -> without xnnpack.static_transpose
    %a = xnnpack.static_transpose(%x: f32[1, 6, 5, 8], perm=[0, 3, 1, 2])
    %b = xnnpack.static_slice(%a, offsets=[0, 0, 3, 0], sizes=[1, 8, 2, 5])
    %c = xnnpack.concatenate2(%b, %b, axis=2)
    %d = xnnpack.static_constant_pad(%c, pre_paddings=[0, 0, 1, 0], post_paddings=[0, 0, 1, 0], padding_value=0.5)
    %y = xnnpack.static_transpose(%d, perm=[0, 2, 3, 1])
a transpose does not pass a reshape that splits what it moves -> 1 xnnpack.static_transpose
    %a = xnnpack.tanh(%x: f32[1, 48, 5]); %b = xnnpack.static_reshape(%a, new_shape=[1, 8, 6, 5])
    %y = xnnpack.static_transpose(%b, perm=[0, 2, 3, 1])
a value read in both orders is transposed once -> 1 xnnpack.static_transpose
    %a = xnnpack.static_transpose(%x: f32[1, 6, 5, 8], perm=[0, 3, 1, 2]); %b = xnnpack.tanh(%a)
    %c = xnnpack.static_transpose(%b, perm=[0, 2, 3, 1]); %y = xnnpack.exp(%c); return %y, %b
one element of fewer axes passes no order on -> without xnnpack.static_transpose
    %a = xnnpack.static_transpose(%x: f32[1, 6, 5, 8], perm=[0, 3, 1, 2])
    %r = xnnpack.static_reshape(%z: f32[1, 1, 1, 1], new_shape=[1])
    %s = xnnpack.static_reshape(%r, new_shape=[]); %b = xnnpack.subtract(%a, %s)
    %y = xnnpack.static_transpose(%b, perm=[0, 2, 3, 1])
assign-layouts: an op of another level that reads a transposed value stays -> applied 0 times
    %n = aten.sym_size.int(%z: f32[1, 8, n, 5], 2)
    %a = xnnpack.static_transpose(%x: f32[1, 1, 5, 8], perm=[0, 3, 1, 2])
    %y = aten.expand.default(%a, [1, 8, %n, 5])
""")


@pytest.mark.parametrize("length", [0, 1, 40])
def test_nothing_is_done_behind_an_order_that_moves_no_axis(length: int, apply: Any):
    """Where only an axis of size one is moved, a reshape has the axes as they are before it."""
    chain = "; ".join(f"%v{i + 1} = xnnpack.abs(%v{i})" for i in range(length))
    text = f"""
        %a = xnnpack.static_transpose(%x: f32[1, 3, 1, 4], perm=[0, 2, 1, 3])
        %v0 = xnnpack.static_reshape(%a, new_shape=[1, 1, 12]); {chain}
        %h = xnnpack.static_reshape(%v{length}, new_shape=[1, 1, 3, 4])
        %y = xnnpack.static_transpose(%h, perm=[0, 2, 1, 3])
    """
    assert apply(text, AssignLayouts()).count <= 2  # The reshapes, and no node between them.


@pytest.mark.parametrize(
    ("before", "after", "order", "found"),
    [
        ((1, 8, 6, 5), (1, 8, 30), (0, 3, 1, 2), (0, 2, 1)),
        ((1, 8, 30), (1, 8, 6, 5), (0, 2, 1), (0, 3, 1, 2)),
        ((1, 8, 6, 5), (1, 48, 5), (0, 3, 1, 2), None),
        ((1, 8, 6, 5), (1, 48, 5), (0, 1, 3, 2), None),
        ((2, 3, 5, 7), (6, 35), (0, 3, 2, 1), None),
        ((2, 2, 2), (4, 2), (1, 0, 2), None),
        ((2, 2, 2), (4, 2), (1, 2, 0), (1, 0)),
        ((1, 2, 3, 4), (12, 2), (0, 3, 1, 2), None),
        ((4, 4, 4), (4, 2, 2, 4), (2, 1, 0), (3, 1, 2, 0)),
        (("n", 4), (4, "n"), (1, 0), None),
        (("n", 4), (8,), (1, 0), None),
        ((8,), ("n", 4), (0,), None),
        ((2, 3, "n"), (2, 3, 1, "n"), (0, 2, 1), (0, 3, 2, 1)),
        ((6, "n"), (2, 3, "n"), (1, 0), (1, 2, 0)),
        (("n", 6), ("n", 2, 3), (1, 0), (2, 0, 1)),
        ((2, "n"), ("2*n",), (0, 1), (0,)),
        ((2, "n"), ("2*n",), (1, 0), None),
        ((4, "n"), (2, "2*n"), (0, 1), (0, 1)),
        ((4, "n"), (2, "3*n"), (0, 1), None),
    ],
)
def test_a_reshape_carries_an_order_by_the_order_of_elements(
    before: tuple[Any, ...],
    after: tuple[Any, ...],
    order: tuple[int, ...],
    found: tuple[int, ...] | None,
):
    before, after = (tuple(dim_of(str(size)) for size in shape) for shape in (before, after))
    assert reshaped_order(before, after, order) == found


def test_an_order_that_passes_a_reshape_comes_back() -> None:
    """Up to where axes of size one stand, whatever the shapes."""
    draw = random.Random(0)
    shapes = [s for rank in range(1, 5) for s in product((1, 2, 3, 4, 6), repeat=rank)]
    passed = 0
    for _ in range(4000):
        after = draw.choice(shapes)
        before = draw.choice([s for s in shapes if prod(s) == prod(after)])
        order = tuple(draw.sample(range(len(after)), len(after)))
        found = reshaped_order(after, before, order)
        if found is not None:
            again = reshaped_order(before, after, found)
            assert again is not None and are_alike(after, again, order)
            passed += 1
    assert passed > 1000


def quarters(axis: int) -> str:
    """Quarters of a channels-last image along an axis of the image, and their product."""
    part = [size // 4 if at == axis else size for at, size in enumerate((1, 32, 16, 16))]
    lines = ["%v = xnnpack.static_transpose(%x: f32[1, 16, 16, 32], perm=[0, 3, 1, 2])"]
    for at in range(4):
        offsets = [at * part[axis] if a == axis else 0 for a in range(4)]
        lines += [
            f"%s{at} = xnnpack.static_slice(%v, offsets={offsets}, sizes={part})",
            f"%q{at} = xnnpack.tanh(%s{at})",
        ]
    lines += ["%a = xnnpack.multiply(%q0, %q1); %b = xnnpack.multiply(%a, %q2)"]
    lines += [
        "%c = xnnpack.multiply(%b, %q3); %y = xnnpack.static_transpose(%c, perm=[0, 2, 3, 1])"
    ]
    return "\n".join(lines)


def test_channels_are_cut_where_they_are_planes_and_rows_channels_last(apply: Any):
    assert transposes(apply(quarters(1), *PLACED)) == 2
    assert transposes(apply(quarters(2), *PLACED)) == 0


@pytest.mark.parametrize(
    ("part", "count"),
    [((2, 4, 6), 1), ((1, 4, 6), 1), ((2, 3, 6), 2), ((2, 4, 5), 8), ((1, 3, 5), 3)],
)
def test_a_part_is_so_many_stretches(part: tuple[int, ...], count: int) -> None:
    assert stretches((2, 4, 6), part) == count

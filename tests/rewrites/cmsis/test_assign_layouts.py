"""AssignLayouts: transposes stand where a minimum cut puts them, and what keeps its axes keeps them."""

from typing import Any

from rewrite_cases import cases

from stepwell.ir.rewriting.rewrite import GreedyRewrites
from stepwell.translate.rewrites.cmsis import MERGE_TRANSPOSES
from stepwell.translate.rewrites.cmsis.layout.assign_layouts import AssignLayouts
from stepwell.translate.rewrites.documentation import module_of

PLACED = (AssignLayouts(), GreedyRewrites("merge-transposes", MERGE_TRANSPOSES))


def test_the_documented_example_loses_both_transposes(apply: Any):
    before = module_of("cmsis.layout.assign_layouts").__doc__ or ""
    text = before[before.index("Before:") + 7 : before.index("After,")]
    assert apply(text, *PLACED).ops() == ["cmsis.quantized_activation"]


test_placed = cases(PLACED)("""
two alike become one behind the op -> cmsis.minimum, cmsis.transpose
    %s = cmsis.transpose(%a: i8[2, 3, 4], perm=[0, 2, 1]) -> i8[2, 4, 3]
    %t = cmsis.transpose(%b: i8[2, 3, 4], perm=[0, 2, 1]) -> i8[2, 4, 3]
    %y = cmsis.minimum(%s, %t) -> i8[2, 4, 3]
one is not moved to where more is copied -> applied 0 times
    %s = cmsis.transpose(%a: i8<0.5>[1, 2, 3, 4], perm=[0, 3, 1, 2]) -> i8<0.5>[1, 4, 2, 3]
    %y = cmsis.pad(%s, pre_pad=[0, 1, 0, 0], post_pad=[0, 0, 2, 0], pad_value=0) -> i8<0.5>[1, 5, 4, 3]
a pad pads the dimensions where they lie -> cmsis.pad
    %s = cmsis.transpose(%a: i8<0.5>[1, 2, 3, 4], perm=[0, 3, 1, 2]) -> i8<0.5>[1, 4, 2, 3]
    %p = cmsis.pad(%s, pre_pad=[0, 1, 0, 0], post_pad=[0, 0, 2, 0], pad_value=0) -> i8<0.5>[1, 5, 4, 3]
    %y = cmsis.transpose(%p, perm=[0, 2, 3, 1]) -> i8<0.5>[1, 4, 3, 5]
a concatenation runs along the dimension where it lies -> without cmsis.transpose
    %s = cmsis.transpose(%a: i8<0.5>[2, 3, 4], perm=[0, 2, 1]) -> i8<0.5>[2, 4, 3]
    %t = cmsis.transpose(%b: i8<0.5>[2, 3, 5], perm=[0, 2, 1]) -> i8<0.5>[2, 5, 3]
    %sr = quant.scast(%s) -> i8[2, 4, 3]; %tr = quant.scast(%t) -> i8[2, 5, 3]
    %c = aten.cat.default([%sr, %tr], 1); %d = quant.scast(%c) -> i8<0.5>[2, 9, 3]
    %y = cmsis.transpose(%d, perm=[0, 2, 1]) -> i8<0.5>[2, 3, 9]
""")


test_assign_layouts = cases(AssignLayouts)("""
next to another operand it -> unchanged
    - %s = cmsis.transpose(%a: i8[2, 3, 4], perm=[0, 2, 1]) -> i8[2, 4, 3]
      %t = cmsis.transpose(%b: i8[4, 3, 2], perm=[2, 0, 1]) -> i8[2, 4, 3]
      %y = cmsis.minimum(%s, %t) -> i8[2, 4, 3]
    - %s = cmsis.transpose(%a: i8[2, 3, 4], perm=[0, 2, 1]) -> i8[2, 4, 3]
      %y = cmsis.minimum(%s, %b: i8[2, 4, 3]) -> i8[2, 4, 3]
    - %s = cmsis.transpose(%a: i8[2, 3, 4], perm=[0, 2, 1]) -> i8[2, 4, 3]
      %y = cmsis.minimum(%s, %b: i8[4, 3]) -> i8[2, 4, 3]
    - %s = cmsis.transpose(%a: i8[2, 3, 4], perm=[0, 2, 1]) -> i8[2, 4, 3]
      %y = cmsis.minimum(%s, %b: i8[1, 4, 3]) -> i8[2, 4, 3]
a cast of channels -> unchanged
    # Scales belong to an axis, and a cast of the transposed integers would name another.
    %s = cmsis.transpose(%a: i8[2, 3], perm=[1, 0]) -> i8[3, 2]
    %y = quant.scast(%s) -> i8<:0, {0.5, 0.25, 0.125}>[3, 2]
a cast after another movement -> unchanged
    %s = cmsis.transpose(%a: i8<0.5>[2, 3], perm=[1, 0]) -> i8<0.5>[3, 2]
    %r = quant.scast(%s) -> i8[3, 2]; %v = aten.view.default(%r, [6])
    %y = quant.scast(%v) -> i8<0.5>[6]
next to an empty constant of another rank it -> unchanged
    %s = cmsis.transpose(%a: i8<0.5>[2, 3], perm=[1, 0]) -> i8<0.5>[3, 2]
    %r = quant.scast(%s) -> i8[3, 2]; %e = quant.scast(%es: weight "e" i8[0]) -> i8<0.5>[0]
    %er = quant.scast(%e) -> i8[0]; %v = aten.cat.default([%r, %er])
    %y = quant.scast(%v) -> i8<0.5>[3, 2]
""")

"""AssignLayouts on TOSA: what a transpose passes, to the one behind it, and what it does not."""

from typing import Any

from rewrite_cases import cases

from stepwell.ir.rewriting.rewrite import GreedyRewrites
from stepwell.translate.rewrites.documentation import module_of
from stepwell.translate.rewrites.tosa.layout.assign_layouts import AssignLayouts
from stepwell.translate.rewrites.tosa.layout.order import LAYOUT

PLACED = (AssignLayouts(), GreedyRewrites("merge-layout", LAYOUT))


def test_the_documented_example_loses_both_transposes(apply: Any) -> None:
    text = module_of("tosa.layout.assign_layouts").__doc__ or ""
    text = text[text.index("Before:") + 7 : text.index("After,")]
    assert "tosa.transpose" not in apply(text, *PLACED).ops()


test_assign_layouts = cases(PLACED)("""
a transpose passes an elementwise operator -> without tosa.transpose
    %a = tosa.transpose(%x: f32[1, 4, 5, 8], perms=[0, 3, 1, 2]); %b = tosa.exp(%a)
    %y = tosa.transpose(%b, perms=[0, 2, 3, 1])
a transpose passes a sum with a constant -> without tosa.transpose
    %a = tosa.transpose(%x: f32[1, 4, 5, 8], perms=[0, 3, 1, 2])
    %b = tosa.add(%a, %w: weight f32[1, 8, 1, 1]); %y = tosa.transpose(%b, perms=[0, 2, 3, 1])
a transpose passes a reduction -> without tosa.transpose
    %a = tosa.transpose(%x: f32[1, 4, 5, 8], perms=[0, 3, 1, 2]); %b = tosa.reduce_max(%a, axis=1)
    %y = tosa.transpose(%b, perms=[0, 2, 3, 1])
a transpose passes a reversal -> without tosa.transpose
    %a = tosa.transpose(%x: f32[1, 4, 5, 8], perms=[0, 3, 1, 2]); %b = tosa.reverse(%a, axis=3)
    %y = tosa.transpose(%b, perms=[0, 2, 3, 1])
a transpose passes a concatenation -> without tosa.transpose
    %a = tosa.transpose(%x: f32[1, 4, 5, 8], perms=[0, 3, 1, 2]); %b = tosa.concat([%a, %a], axis=1)
    %y = tosa.transpose(%b, perms=[0, 2, 3, 1])
a transpose passes a pad -> without tosa.transpose
    %a = tosa.transpose(%x: f32[1, 4, 5, 8], perms=[0, 3, 1, 2])
    %b = tosa.pad(%a, [0, 0, 0, 2, 1, 0, 0, 0], %z: constant f32[1]); %y = tosa.transpose(%b, perms=[0, 2, 3, 1])
a transpose passes a slice -> without tosa.transpose
    %a = tosa.transpose(%x: f32[1, 4, 5, 8], perms=[0, 3, 1, 2])
    %b = tosa.slice(%a, [0, 2, 1, 0], [1, 3, 2, 5]); %y = tosa.transpose(%b, perms=[0, 2, 3, 1])
a transpose passes a reshape that merges what stands together -> tosa.const_shape, tosa.reshape
    %a = tosa.transpose(%x: f32[1, 4, 5, 8], perms=[0, 3, 1, 2]); %b = tosa.reshape(%a, [1, 8, 20])
    %y = tosa.transpose(%b, perms=[0, 2, 1])
of two transposes around axes that merge one is left -> 1 tosa.transpose
    %a = tosa.transpose(%x: f32[2, 3, 4], perms=[1, 0, 2]); %b = tosa.reshape(%a, [6, 4])
    %y = tosa.transpose(%b, perms=[1, 0])
assign-layouts: rows of unknown number keep their order -> applied 0 times
    %a = tosa.transpose(%x: f32[?, 4], perms=[1, 0]) -> f32[4, ?]
    %b = tosa.exp(%a) -> f32[4, ?]; %y = tosa.transpose(%b, perms=[1, 0]) -> f32[?, 4]
assign-layouts: blocks keep their order -> applied 0 times
    %a = tosa.transpose(%x: f32[32, 2], perms=[1, 0])
    %b = tosa.cast(%a) -> !tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E4M3FN>[2, 32]
    %c = tosa.cast(%b) -> f32[2, 32]; %y = tosa.transpose(%c, perms=[1, 0])
assign-layouts: channels that are rescaled one by one keep their order -> applied 0 times
    %a = tosa.transpose(%x: i32[4, 3], perms=[1, 0])
    %b = tosa.rescale(%a, %m: constant "m#ones" i32[4], %s: constant "s#ones" i8[4], %p: constant "p#zeros" i32[1], %q: constant "q#zeros" i8[1], per_channel=true, scale32=true, rounding_mode="SINGLE_ROUND", input_unsigned=false, output_unsigned=false) -> i8[3, 4]
    %y = tosa.transpose(%b, perms=[1, 0])
""")

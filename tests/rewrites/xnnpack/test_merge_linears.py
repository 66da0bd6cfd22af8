"""MergeLinears: two layers are one where that multiplies no more, and nothing reads in between."""

from rewrite_cases import cases

from stepwell.translate.rewrites.xnnpack.nodes.merge_linears import MergeLinears

test_merge_linears = cases(
    MergeLinears,
    """
a narrow layer that saves products stays -> applied once
    - %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4])
      %y = aten.linear.default(%h, %b: weight f32[6, 8])
    - %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[3, 4])
      %y = aten.linear.default(%h, %b: weight f32[6, 3])
a narrow layer that saves products stays -> applied 0 times
    %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[2, 4])
    %y = aten.linear.default(%h, %b: weight f32[6, 2])
halves are not merged -> refused: fewer than 24 bits
    %h = aten.linear.default(%x: f16[2, 4], %a: weight f16[8, 4])
    %y = aten.linear.default(%h, %b: weight f16[6, 8])
a layer that others read -> refused: read by others
    %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4])
    %y = aten.linear.default(%h, %b: weight f32[6, 8])
    %s = aten.relu.default(%h); return %y, %s
weights of run time -> refused: computed at run time
    %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4])
    %y = aten.linear.default(%h, %b: f32[6, 8])
a computed bias -> refused: computed at run time
    - %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4], %c: f32[8])
      %y = aten.linear.default(%h, %b: weight f32[6, 8])
    - %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4])
      %y = aten.linear.default(%h, %b: weight f32[6, 8], %c: f32[6])
a layer of what no layer made -> unchanged
    %y = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4])
a weight without an axis of outputs -> refused: a weight is a vector
    - %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[8, 4]); %y = aten.linear.default(%h, %b: weight f32[8])
    - %h = aten.linear.default(%x: f32[2, 4], %a: weight f32[4]); %y = aten.linear.default(%h, %b: weight f32[3, 2])
""",
)

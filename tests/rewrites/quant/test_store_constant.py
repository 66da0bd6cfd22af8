"""Constants stored and moved ahead of time: beyond the documented example, and what they leave alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.quant.constants import RULES

test_store_constant = cases(
    RULES,
    """
store-constant + store-constant-anew: a stored weight in another quantization is stored anew -> quant.scast
    %t = quant.scast(%s: weight i8[4]) -> i8<0.5>[4]
    %r = quant.dcast(%t)
    %y = quant.qcast(%r) -> i8<0.25>[4]
store-constant: a computed value is quantized when it is there -> unchanged
    %y = quant.qcast(%x: f32[4]) -> i8<0.25>[4]
store-constant: a weight of another float type -> refused: only float32 weights
    %y = quant.qcast(%w: weight f16[4]) -> !quant.uniform<i8:f16, 0.25>[4]
permute-constant + reshape-constant: a reshaped and a permuted weight are derived -> nothing
    %v = aten.view.default(%w: weight f32[4, 2], [2, 4])
    %y = aten.t.default(%v)
permute-constant | reshape-constant: an input moves at run time -> unchanged
    %y = aten.t.default(%x: f32[4, 2])
permute-constant | reshape-constant: two weights joined -> unchanged
    %y = aten.cat.default([%w: weight f32[4, 2], %w])
permute-constant | reshape-constant: a weight split in parts -> unchanged
    %a, %b = aten.split.Tensor(%w: weight f32[4, 2], 2)
    %y = aten.add.Tensor(%a, %b)
permute-constant | reshape-constant: a part of a weight -> unchanged
    %y = aten.slice.Tensor(%w: weight f32[4, 2], 0, 0, 2)
permute-constant | reshape-constant: a weight of a shape of run time -> unchanged
    %y = aten.view.default(%w: weight f32[10], [%n: int<s0>, -1]) -> f32[s0, (10//s0)]
""",
)

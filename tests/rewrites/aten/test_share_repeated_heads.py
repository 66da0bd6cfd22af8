"""Keys and values repeated for groups of query heads are shared by them instead."""

from rewrite_cases import cases

from stepwell.translate.rewrites.attention.share_repeated_heads import ShareRepeatedHeads

test_share_repeated_heads = cases(ShareRepeatedHeads)("""
repeated heads are shared and the rest of the call stays -> aten.scaled_dot_product_attention.default; writes enable_gqa=true; writes scale=0.5
    %k0 = aten.view.default(%a: f32[2, 2, 5, 8], [2, 2, 1, 5, 8])
    %k1 = aten.expand.default(%k0, [2, 2, 3, 5, 8]); %k = aten.view.default(%k1, [2, 6, 5, 8])
    %v0 = aten.view.default(%b: f32[2, 2, 5, 8], [2, 2, 1, 5, 8])
    %v1 = aten.expand.default(%v0, [2, 2, 3, 5, 8]); %v = aten.view.default(%v1, [2, 6, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 6, 3, 8], %k, %v, %m: buffer "m#causal" f32[3, 5], scale=0.5)
one head for all is an expand alone -> aten.scaled_dot_product_attention.default
    %k = aten.expand.default(%a: f32[2, 1, 5, 8], [2, 6, 5, 8])
    %v = aten.expand.default(%b: f32[2, 1, 5, 8], [2, 6, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 6, 3, 8], %k, %v)
keys that are not repeated -> unchanged
    %v0 = aten.view.default(%b: f32[2, 2, 5, 8], [2, 2, 1, 5, 8])
    %v1 = aten.expand.default(%v0, [2, 2, 3, 5, 8]); %v = aten.view.default(%v1, [2, 6, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 6, 3, 8], %k: f32[2, 6, 5, 8], %v)
values that are not repeated -> unchanged
    %k0 = aten.view.default(%a: f32[2, 2, 5, 8], [2, 2, 1, 5, 8])
    %k1 = aten.expand.default(%k0, [2, 2, 3, 5, 8]); %k = aten.view.default(%k1, [2, 6, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 6, 3, 8], %k, %v: f32[2, 6, 5, 8])
heads repeated one after another -> unchanged
    %k0 = aten.view.default(%a: f32[2, 2, 5, 8], [2, 1, 2, 5, 8])
    %k1 = aten.expand.default(%k0, [2, 3, 2, 5, 8]); %k = aten.view.default(%k1, [2, 6, 5, 8])
    %v0 = aten.view.default(%b: f32[2, 2, 5, 8], [2, 2, 1, 5, 8])
    %v1 = aten.expand.default(%v0, [2, 2, 3, 5, 8]); %v = aten.view.default(%v1, [2, 6, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 6, 3, 8], %k, %v)
a view of something else -> unchanged
    %k0 = aten.view.default(%a: f32[2, 2, 5, 8], [2, 2, 1, 5, 8])
    %k1 = aten.expand.default(%k0, [2, 2, 3, 5, 8]); %k2 = aten.relu.default(%k1)
    %k = aten.view.default(%k2, [2, 6, 5, 8])
    %v0 = aten.view.default(%b: f32[2, 2, 5, 8], [2, 2, 1, 5, 8])
    %v1 = aten.expand.default(%v0, [2, 2, 3, 5, 8]); %v = aten.view.default(%v1, [2, 6, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 6, 3, 8], %k, %v)
other groups for the values -> refused: equally often
    %k0 = aten.view.default(%a: f32[2, 2, 5, 8], [2, 2, 1, 5, 8])
    %k1 = aten.expand.default(%k0, [2, 2, 3, 5, 8]); %k = aten.view.default(%k1, [2, 6, 5, 8])
    %v0 = aten.view.default(%b: f32[2, 3, 5, 8], [2, 3, 1, 5, 8])
    %v1 = aten.expand.default(%v0, [2, 3, 2, 5, 8]); %v = aten.view.default(%v1, [2, 6, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 6, 3, 8], %k, %v)
attention whose heads are shared already -> unchanged
    %k0 = aten.view.default(%a: f32[2, 2, 5, 8], [2, 2, 1, 5, 8])
    %k1 = aten.expand.default(%k0, [2, 2, 3, 5, 8]); %k = aten.view.default(%k1, [2, 6, 5, 8])
    %v0 = aten.view.default(%b: f32[2, 2, 5, 8], [2, 2, 1, 5, 8])
    %v1 = aten.expand.default(%v0, [2, 2, 3, 5, 8]); %v = aten.view.default(%v1, [2, 6, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 6, 3, 8], %k, %v, enable_gqa=true)
the batch merged with the heads -> unchanged
    %w = aten.expand.default(%a: f32[2, 2, 1, 5, 8], [2, 2, 3, 5, 8])
    %k = aten.view.default(%w, [4, 3, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%k, %k, %k)
an expand to what it was -> unchanged
    %w = aten.expand.default(%a: f32[2, 6, 1, 5, 8], [2, 6, 1, 5, 8])
    %k = aten.view.default(%w, [2, 6, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%k, %k, %k)
rows of a flat tensor -> unchanged
    %w = aten.expand.default(%a: f32[1], [480]); %k = aten.view.default(%w, [2, 6, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%k, %k, %k)
repeated rows -> unchanged
    %k = aten.expand.default(%a: f32[2, 6, 1, 8], [2, 6, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%k, %k, %k)
queries of one head are broadcast and -> refused: other heads
    %k0 = aten.view.default(%a: f32[2, 2, 5, 8], [2, 2, 1, 5, 8])
    %k1 = aten.expand.default(%k0, [2, 2, 3, 5, 8]); %k = aten.view.default(%k1, [2, 6, 5, 8])
    %v0 = aten.view.default(%b: f32[2, 2, 5, 8], [2, 2, 1, 5, 8])
    %v1 = aten.expand.default(%v0, [2, 2, 3, 5, 8]); %v = aten.view.default(%v1, [2, 6, 5, 8])
    %y = aten.scaled_dot_product_attention.default(%q: f32[2, 1, 3, 8], %k, %v)
""")

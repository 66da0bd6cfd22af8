"""Attention is put together only where it computes what stood there."""

from rewrite_cases import cases

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.attention.recognize_attention import recognize_attention

test_recognize_attention = cases(step(recognize_attention))("""
a scale on the scores becomes the scale -> applied once; writes scale=0.5
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %a = aten.mul.Scalar(%scores, 0.5); %w = aten._softmax.default(%a, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a mask is added where its heads stand -> applied once; writes tensor<2x3x4x8xf32>
    # Heads and batch are split for the mask and merged again for the softmax.
    %p = aten.bmm.default(%q: f32[6, 4, 8], %k: f32[6, 8, 4])
    %a = aten.view.default(%p, [2, 3, 4, 4]); %b = aten.add.Tensor(%a, %m: buffer f32[2, 1, 4, 4])
    %c = aten.view.default(%b, [6, 4, 4]); %w = aten._softmax.default(%c, -1, false)
    %o = aten.bmm.default(%w, %v: f32[6, 4, 8])
a softmax over another axis is no attention -> unchanged
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %w = aten._softmax.default(%scores, -2, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a mask that may close a row needs the guard -> refused: all −inf
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %b = aten.add.Tensor(%scores, %m: f32[1, 2, 4, 4]); %w = aten._softmax.default(%b, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a scaled mask -> refused: scaled
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %b = aten.add.Tensor(%scores, %m: f32[1, 2, 4, 4]); %c = aten.mul.Scalar(%b, 0.5)
    %w = aten._softmax.default(%c, -1, false); %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
weights read elsewhere keep the softmax -> refused: other uses
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %w = aten._softmax.default(%scores, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8]); %z = aten.sum.default(%o)
    %u = aten.sum.default(%w); %y = aten.add.Tensor(%u, %z)
a multiple of a mask is no mask -> refused: no mask
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %a = aten.add.Tensor(%scores, %c: constant f32[4, 4], alpha=2)
    %w = aten._softmax.default(%a, -1, false); %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
positions that depend on the queries are a mask -> aten.matmul.default, aten.neg.default, aten.permute.default, aten.scaled_dot_product_attention.default
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %p = aten.matmul.default(%q, %r: weight f32[8, 4]); %n = aten.neg.default(%p)
    %a = aten.add.Tensor(%scores, %n); %w = aten._softmax.default(%a, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a constant mask next to bounded numbers decides which rows are open -> applied once
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %p = aten.tanh.default(%m: f32[1, 2, 4, 4])
    %n = aten.add.Tensor(%p, %c: constant "c#causal" f32[4, 4]); %a = aten.add.Tensor(%scores, %n)
    %w = aten._softmax.default(%a, -1, false); %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a constant mask next to bounded numbers decides which rows are open -> refused: only at run time
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %p = aten.exp.default(%m: f32[1, 2, 4, 4])
    %n = aten.add.Tensor(%p, %c: constant "c#causal" f32[4, 4]); %a = aten.add.Tensor(%scores, %n)
    %w = aten._softmax.default(%a, -1, false); %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a number known only at run time is no mask -> refused: no mask
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %n = aten.sym_size.int(%q, 0); %a = aten.add.Tensor(%scores, %n)
    %w = aten._softmax.default(%a, -1, false); %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a term that repeats the only key is no mask -> refused: no mask
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 1])
    %a = aten.add.Tensor(%scores, %m: f32[1, 2, 4, 4]); %w = aten._softmax.default(%a, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
columns picked out of a mask may close a row -> refused: may cut rows
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %p = aten.index_select.default(%c: constant "c#causal" f32[4, 4], 1, %i: constant "i#ones" i64[4])
    %a = aten.add.Tensor(%scores, %p); %w = aten._softmax.default(%a, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
something between -> unchanged
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %w = aten._softmax.default(%scores, -1, false); %n = aten.neg.default(%w)
    %o = aten.matmul.default(%n, %v: f32[1, 2, 4, 8])
weights on the right -> unchanged
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %w = aten._softmax.default(%scores, -1, false); %o = aten.matmul.default(%k, %w)
weights regrouped -> unchanged
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %w = aten._softmax.default(%scores, -1, false); %n = aten.view.default(%w, [1, 2, 2, 8])
    %o = aten.matmul.default(%n, %k)
a softmax that casts is no attention -> unchanged
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %w = aten.softmax.int(%scores, -1, f64)
    %d = aten._to_copy.default(%v: f32[1, 2, 4, 8], dtype=f64); %o = aten.matmul.default(%w, %d)
keys shared by all heads -> refused: broadcast
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[8, 4])
    %w = aten._softmax.default(%scores, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
on the scores -> refused: adds a third
    %s = aten.baddbmm.default(%x: f32[2, 4, 4], %x, %x); %w = aten._softmax.default(%s, 2, false)
    %y = aten.bmm.default(%w, %x)
with the weights -> unchanged
    %s = aten.bmm.default(%x: f32[2, 4, 4], %x); %w = aten._softmax.default(%s, 2, false)
    %y = aten.baddbmm.default(%w, %x, %x)
other arithmetic on the scores is no attention -> unchanged
    - %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
      %a = aten.relu.default(%scores); %w = aten._softmax.default(%a, -1, false)
      %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
    - %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
      %a = aten.tanh.default(%scores); %w = aten._softmax.default(%a, -1, false)
      %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a sum that masks no product is no attention -> unchanged
    %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
    %a = aten.add.Tensor(%m: f32[1, 2, 4, 4], %m); %w = aten._softmax.default(%a, -1, false)
    %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a sum that masks no product is no attention -> refused: no mask
    - %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
      %a = aten.add.Tensor(%scores, %scores); %w = aten._softmax.default(%a, -1, false)
      %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
    - %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
      %a = aten.add.Tensor(%m: f32[1, 2, 4, 4], %scores, alpha=2)
      %w = aten._softmax.default(%a, -1, false); %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
a term of another dtype is no mask -> refused: no mask
    - %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
      %a = aten.add.Tensor(%scores, %c: constant "c#ones" i1[4, 4])
      %w = aten._softmax.default(%a, -1, false); %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
    - %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
      %a = aten.add.Tensor(%scores, %c: constant "c#ones" i64[4, 4])
      %w = aten._softmax.default(%a, -1, false); %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
    - %scores = aten.matmul.default(%q: f32[1, 2, 4, 8], %k: f32[1, 2, 8, 4])
      %a = aten.add.Tensor(%scores, %c: constant "c#ones" f16[4, 4])
      %w = aten._softmax.default(%a, -1, false); %o = aten.matmul.default(%w, %v: f32[1, 2, 4, 8])
""")

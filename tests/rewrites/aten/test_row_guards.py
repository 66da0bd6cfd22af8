"""The rules of row_guards: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.attention import row_guards

test_row_guards = cases(row_guards)("""
scores that are an input may hold an empty row -> refused: are an input
    %p = aten._softmax.default(%s: f32[2, 3, 3], 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
a mask known at run time may empty a row -> refused: run time
    %b = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %s = aten.add.Tensor(%b, %m: f32[3, 3]); %p = aten._softmax.default(%s, 2, false)
    %e = aten.eq.Scalar(%s, -inf); %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true); %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0); %y = aten.where.self(%h, %z, %p)
a causal mask leaves every row an element -> aten.bmm.default, aten.add.Tensor, aten._softmax.default
    %b = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %s = aten.add.Tensor(%b, %m: constant "m#causal" f32[3, 3])
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
two masks may empty a row together -> refused: two masks
    %b = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %a = aten.add.Tensor(%b, %m: constant "m#causal" f32[3, 3]); %s = aten.add.Tensor(%a, %m)
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
a mask that empties a row keeps the guard -> refused: every element of some row
    %b = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %s = aten.masked_fill.Scalar(%b, %m: constant "m#ones" i1[1, 3], -inf)
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
a guard of other scores is no guard -> unchanged
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%o: f32[2, 3, 3], -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
a fill other than zero is no guard -> unchanged
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 1)
    %y = aten.where.self(%h, %z, %p)
scores scaled by infinity keep the guard -> refused: finite constant
    %b = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3]); %s = aten.mul.Scalar(%b, inf)
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
safe softmax of a product is a softmax -> aten.bmm.default, aten.mul.Scalar, aten._softmax.default
    %b = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3]); %s = aten.mul.Scalar(%b, 0.5)
    %y = aten._safe_softmax.default(%s, -1)
a guard that broadcasts the softmax -> unchanged
    %s = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3])
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%o: f32[2, 3, 3, 3], 0)
    %y = aten.where.self(%h, %z, %p)
a safe softmax that casts -> unchanged
    %s = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3])
    %y = aten._safe_softmax.default(%s, -1, f64)
the scores of a layer are finite -> aten.linear.default, aten._softmax.default
    %s = aten.linear.default(%q: f32[3, 3, 4], %w: weight f32[3, 4])
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
a view that cuts masked rows may empty one -> refused: moves the axis
    %b = aten.bmm.default(%q: f32[1, 3, 4], %k: f32[1, 4, 9])
    %a = aten.add.Tensor(%b, %m: constant "m#causal" f32[3, 9])
    %s = aten.view.default(%a, [3, 3, 3]); %p = aten._softmax.default(%s, 2, false)
    %e = aten.eq.Scalar(%s, -inf); %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true); %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0); %y = aten.where.self(%h, %z, %p)
a view that cuts columns may empty one -> refused: moves the axis
    %b = aten.bmm.default(%q: f32[1, 9, 4], %k: f32[1, 4, 3]); %s = aten.view.default(%b, [3, 3, 3])
    %p = aten._softmax.default(%s, 1, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, 1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
no softmax -> unchanged
    %s = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3]); %p = aten.neg.default(%s)
    %e = aten.eq.Scalar(%s, -inf); %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true); %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0); %y = aten.where.self(%h, %z, %p)
what is not quite a guard -> unchanged
    - %s = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3])
      %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
      %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, true); %h = aten.clone.default(%g)
      %z = aten.full_like.default(%p, 0); %y = aten.where.self(%h, %z, %p)
    - %s = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3])
      %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
      %f = aten.logical_not.default(%e); %g = aten.all.dim(%f, -1, true)
      %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
      %y = aten.where.self(%h, %z, %p)
    - %s = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3])
      %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
      %f = aten.clone.default(%e); %g = aten.any.dim(%f, -1, true); %h = aten.logical_not.default(%g)
      %z = aten.full_like.default(%p, 0); %y = aten.where.self(%h, %z, %p)
axis dropped -> unchanged
    %s = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3])
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, false)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
other axis -> unchanged
    %s = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3])
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, 1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
every axis -> unchanged
    %s = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3])
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dims(%f, keepdim=true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
scores that may be infinite keep the guard -> refused: come from aten.log
    %b = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3]); %s = aten.log.default(%b)
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
scores that may be infinite keep the guard -> refused: known only at run time
    %b = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3])
    %s = aten.masked_fill.Scalar(%b, %m: i1[3, 3, 3], -inf)
    %p = aten._softmax.default(%s, 2, false); %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e); %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g); %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
""")

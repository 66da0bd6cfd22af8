"""The rules of remove_safe_softmax_guard: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.rewrites.attention import remove_safe_softmax_guard

test_remove_safe_softmax_guard = cases(
    remove_safe_softmax_guard,
    """
scores that are an input may hold an empty row -> refused: are an input
    %p = aten._softmax.default(%s: f32[2, 3, 3], 2, false)
    %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
a mask known at run time may empty a row -> refused: run time
    %b = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %s = aten.add.Tensor(%b, %m: f32[3, 3])
    %p = aten._softmax.default(%s, 2, false)
    %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
a causal mask leaves every row an element -> aten.bmm.default, aten.add.Tensor, aten._softmax.default
    %b = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %s = aten.add.Tensor(%b, %m: constant "m#causal" f32[3, 3])
    %p = aten._softmax.default(%s, 2, false)
    %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
two masks may empty a row together -> refused: two masks
    %b = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %a = aten.add.Tensor(%b, %m: constant "m#causal" f32[3, 3])
    %s = aten.add.Tensor(%a, %m)
    %p = aten._softmax.default(%s, 2, false)
    %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
a mask that empties a row keeps the guard -> refused: every element of some row
    %b = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %s = aten.masked_fill.Scalar(%b, %m: constant "m#ones" i1[1, 3], -inf)
    %p = aten._softmax.default(%s, 2, false)
    %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
a guard of other scores is no guard -> unchanged
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %p = aten._softmax.default(%s, 2, false)
    %e = aten.eq.Scalar(%o: f32[2, 3, 3], -inf)
    %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
a fill other than zero is no guard -> unchanged
    %s = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %p = aten._softmax.default(%s, 2, false)
    %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 1)
    %y = aten.where.self(%h, %z, %p)
scores scaled by infinity keep the guard -> refused: finite constant
    %b = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %s = aten.mul.Scalar(%b, inf)
    %p = aten._softmax.default(%s, 2, false)
    %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
safe softmax of a product is a softmax -> aten.bmm.default, aten.mul.Scalar, aten._softmax.default
    %b = aten.bmm.default(%q: f32[2, 3, 4], %k: f32[2, 4, 3])
    %s = aten.mul.Scalar(%b, 0.5)
    %y = aten._safe_softmax.default(%s, -1)
a guard that broadcasts the softmax -> unchanged
    %s = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3])
    %p = aten._softmax.default(%s, 2, false)
    %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%o: f32[2, 3, 3, 3], 0)
    %y = aten.where.self(%h, %z, %p)
a safe softmax that casts -> unchanged
    %s = aten.bmm.default(%q: f32[3, 3, 4], %k: f32[3, 4, 3])
    %y = aten._safe_softmax.default(%s, -1, f64)
the scores of a layer are finite -> aten.linear.default, aten._softmax.default
    %s = aten.linear.default(%q: f32[3, 3, 4], %w: weight f32[3, 4])
    %p = aten._softmax.default(%s, 2, false)
    %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
a view that cuts masked rows may empty one -> refused: moves the axis
    %b = aten.bmm.default(%q: f32[1, 3, 4], %k: f32[1, 4, 9])
    %a = aten.add.Tensor(%b, %m: constant "m#causal" f32[3, 9])
    %s = aten.view.default(%a, [3, 3, 3])
    %p = aten._softmax.default(%s, 2, false)
    %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, -1, true)
    %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
a view that cuts columns may empty one -> refused: moves the axis
    %b = aten.bmm.default(%q: f32[1, 9, 4], %k: f32[1, 4, 3])
    %s = aten.view.default(%b, [3, 3, 3])
    %p = aten._softmax.default(%s, 1, false)
    %e = aten.eq.Scalar(%s, -inf)
    %f = aten.logical_not.default(%e)
    %g = aten.any.dim(%f, 1, true)
    %h = aten.logical_not.default(%g)
    %z = aten.full_like.default(%p, 0)
    %y = aten.where.self(%h, %z, %p)
""",
)


S, B, R = "tensor<3x3x3xf32>", "tensor<3x3x3xi1>", "tensor<3x3x1xi1>"
Q = "%q: tensor<3x3x4xf32>, %k: tensor<3x4x3xf32>"
GUARD = {
    "s": f"aten.bmm.default(%q, %k) : (tensor<3x3x4xf32>, tensor<3x4x3xf32>) -> {S}",
    "p": f"aten._softmax.default(%s, 2, false) : ({S}) -> {S}",
    "e": f"aten.eq.Scalar(%s, -inf) : ({S}) -> {B}",
    "f": f"aten.logical_not.default(%e) : ({B}) -> {B}",
    "g": f"aten.any.dim(%f, -1, true) : ({B}) -> {R}",
    "h": f"aten.logical_not.default(%g) : ({R}) -> {R}",
    "z": f"aten.full_like.default(%p, 0) : ({S}) -> {S}",
    "y": f"aten.where.self(%h, %z, %p) : ({R}, {S}, {S}) -> {S}",
}
"""A whole guard; what a test changes is the near miss."""


def guarded(method: Any, *before: str, given: str = Q, gives: str = S, **changed: str) -> str:
    lines = [f"%{name} = {line}" for name, line in {**GUARD, **changed}.items()]
    return method(given, *before, *lines, gives=gives)


def any_of(shape: str, *arguments: str) -> dict[str, str]:
    """The lines of a guard that reduces to another shape."""
    held = f"tensor<{shape}xi1>"
    name = "dim" if "-1" in arguments or "1" in arguments else "dims"
    return {
        "g": f"aten.any.{name}({', '.join(('%f', *arguments))}) : ({B}) -> {held}",
        "h": f"aten.logical_not.default(%g) : ({held}) -> {held}",
        "y": f"aten.where.self(%h, %z, %p) : ({held}, {S}, {S}) -> {S}",
    }


@pytest.mark.parametrize(
    "changed",
    [
        {"p": f"aten.neg.default(%s) : ({S}) -> {S}"},
        {"h": f"aten.clone.default(%g) : ({R}) -> {R}"},
        {"g": f"aten.all.dim(%f, -1, true) : ({B}) -> {R}"},
        {"f": f"aten.clone.default(%e) : ({B}) -> {B}"},
        any_of("3x3", "-1", "false"),
        any_of("3x1x3", "1", "true"),
        any_of("1x1x1", "keepdim=true"),
    ],
    ids=["no softmax", "rows", "all", "infinite", "axis dropped", "other axis", "every axis"],
)
def test_what_is_not_quite_a_guard_stays(
    changed: dict[str, str], refused: Any, method: Any
) -> None:
    refused(guarded(method, **changed), remove_safe_softmax_guard)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"aten.log.default(%b) : ({S}) -> {S}", "come from aten.log"),
        (f"aten.masked_fill.Scalar(%b, %m, -inf) : ({S}, {B}) -> {S}", "known only at run time"),
    ],
)
def test_scores_that_may_be_infinite_keep_the_guard(
    line: str, reason: str, refused: Any, method: Any
) -> None:
    text = guarded(method, f"%b = {GUARD['s']}", given=f"{Q}, %m: {B}", s=line)
    refused(text, remove_safe_softmax_guard, reason)

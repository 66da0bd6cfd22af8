"""The rules of remove_safe_softmax_guard: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.rewrites.attention import remove_safe_softmax_guard


def test_scores_that_are_an_input_may_hold_an_empty_row(refused: Any, method: Any):
    refused(
        method(
            "%s: tensor<2x3x3xf32>",
            "%p = aten._softmax.default(%s, 2, false) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%e = aten.eq.Scalar(%s, -inf) : (tensor<2x3x3xf32>) -> tensor<2x3x3xi1>",
            "%f = aten.logical_not.default(%e) : (tensor<2x3x3xi1>) -> tensor<2x3x3xi1>",
            "%g = aten.any.dim(%f, -1, true) : (tensor<2x3x3xi1>) -> tensor<2x3x1xi1>",
            "%h = aten.logical_not.default(%g) : (tensor<2x3x1xi1>) -> tensor<2x3x1xi1>",
            "%z = aten.full_like.default(%p, 0) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%y = aten.where.self(%h, %z, %p) : (tensor<2x3x1xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            gives="tensor<2x3x3xf32>",
        ),
        remove_safe_softmax_guard,
        "are an input",
    )


def test_a_mask_known_at_run_time_may_empty_a_row(refused: Any, method: Any):
    refused(
        method(
            "%q: tensor<2x3x4xf32>, %k: tensor<2x4x3xf32>, %m: tensor<3x3xf32>",
            "%b = aten.bmm.default(%q, %k) : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>",
            "%s = aten.add.Tensor(%b, %m) : (tensor<2x3x3xf32>, tensor<3x3xf32>) -> tensor<2x3x3xf32>",
            "%p = aten._softmax.default(%s, 2, false) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%e = aten.eq.Scalar(%s, -inf) : (tensor<2x3x3xf32>) -> tensor<2x3x3xi1>",
            "%f = aten.logical_not.default(%e) : (tensor<2x3x3xi1>) -> tensor<2x3x3xi1>",
            "%g = aten.any.dim(%f, -1, true) : (tensor<2x3x3xi1>) -> tensor<2x3x1xi1>",
            "%h = aten.logical_not.default(%g) : (tensor<2x3x1xi1>) -> tensor<2x3x1xi1>",
            "%z = aten.full_like.default(%p, 0) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%y = aten.where.self(%h, %z, %p) : (tensor<2x3x1xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            gives="tensor<2x3x3xf32>",
        ),
        remove_safe_softmax_guard,
        "run time",
    )


def test_a_causal_mask_leaves_every_row_an_element(apply: Any, method: Any):
    done = apply(
        method(
            "%q: tensor<2x3x4xf32>, %k: tensor<2x4x3xf32>",
            '%m = stepwell.weight <"m#causal"> "constant" : tensor<3x3xf32>',
            "%b = aten.bmm.default(%q, %k) : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>",
            "%s = aten.add.Tensor(%b, %m) : (tensor<2x3x3xf32>, tensor<3x3xf32>) -> tensor<2x3x3xf32>",
            "%p = aten._softmax.default(%s, 2, false) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%e = aten.eq.Scalar(%s, -inf) : (tensor<2x3x3xf32>) -> tensor<2x3x3xi1>",
            "%f = aten.logical_not.default(%e) : (tensor<2x3x3xi1>) -> tensor<2x3x3xi1>",
            "%g = aten.any.dim(%f, -1, true) : (tensor<2x3x3xi1>) -> tensor<2x3x1xi1>",
            "%h = aten.logical_not.default(%g) : (tensor<2x3x1xi1>) -> tensor<2x3x1xi1>",
            "%z = aten.full_like.default(%p, 0) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%y = aten.where.self(%h, %z, %p) : (tensor<2x3x1xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            gives="tensor<2x3x3xf32>",
        ),
        remove_safe_softmax_guard,
    )
    assert done.ops() == ["aten.bmm.default", "aten.add.Tensor", "aten._softmax.default"]


def test_two_masks_may_empty_a_row_together(refused: Any, method: Any):
    refused(
        method(
            "%q: tensor<2x3x4xf32>, %k: tensor<2x4x3xf32>",
            '%m = stepwell.weight <"m#causal"> "constant" : tensor<3x3xf32>',
            "%b = aten.bmm.default(%q, %k) : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>",
            "%a = aten.add.Tensor(%b, %m) : (tensor<2x3x3xf32>, tensor<3x3xf32>) -> tensor<2x3x3xf32>",
            "%s = aten.add.Tensor(%a, %m) : (tensor<2x3x3xf32>, tensor<3x3xf32>) -> tensor<2x3x3xf32>",
            "%p = aten._softmax.default(%s, 2, false) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%e = aten.eq.Scalar(%s, -inf) : (tensor<2x3x3xf32>) -> tensor<2x3x3xi1>",
            "%f = aten.logical_not.default(%e) : (tensor<2x3x3xi1>) -> tensor<2x3x3xi1>",
            "%g = aten.any.dim(%f, -1, true) : (tensor<2x3x3xi1>) -> tensor<2x3x1xi1>",
            "%h = aten.logical_not.default(%g) : (tensor<2x3x1xi1>) -> tensor<2x3x1xi1>",
            "%z = aten.full_like.default(%p, 0) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%y = aten.where.self(%h, %z, %p) : (tensor<2x3x1xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            gives="tensor<2x3x3xf32>",
        ),
        remove_safe_softmax_guard,
        "two masks",
    )


def test_a_mask_that_empties_a_row_keeps_the_guard(refused: Any, method: Any):
    refused(
        method(
            "%q: tensor<2x3x4xf32>, %k: tensor<2x4x3xf32>",
            '%m = stepwell.weight <"m#ones"> "constant" : tensor<1x3xi1>',
            "%b = aten.bmm.default(%q, %k) : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>",
            "%s = aten.masked_fill.Scalar(%b, %m, -inf) : (tensor<2x3x3xf32>, tensor<1x3xi1>) -> tensor<2x3x3xf32>",
            "%p = aten._softmax.default(%s, 2, false) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%e = aten.eq.Scalar(%s, -inf) : (tensor<2x3x3xf32>) -> tensor<2x3x3xi1>",
            "%f = aten.logical_not.default(%e) : (tensor<2x3x3xi1>) -> tensor<2x3x3xi1>",
            "%g = aten.any.dim(%f, -1, true) : (tensor<2x3x3xi1>) -> tensor<2x3x1xi1>",
            "%h = aten.logical_not.default(%g) : (tensor<2x3x1xi1>) -> tensor<2x3x1xi1>",
            "%z = aten.full_like.default(%p, 0) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%y = aten.where.self(%h, %z, %p) : (tensor<2x3x1xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            gives="tensor<2x3x3xf32>",
        ),
        remove_safe_softmax_guard,
        "every element of some row",
    )


def test_a_guard_of_other_scores_is_no_guard(refused: Any, method: Any):
    refused(
        method(
            "%q: tensor<2x3x4xf32>, %k: tensor<2x4x3xf32>, %o: tensor<2x3x3xf32>",
            "%s = aten.bmm.default(%q, %k) : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>",
            "%p = aten._softmax.default(%s, 2, false) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%e = aten.eq.Scalar(%o, -inf) : (tensor<2x3x3xf32>) -> tensor<2x3x3xi1>",
            "%f = aten.logical_not.default(%e) : (tensor<2x3x3xi1>) -> tensor<2x3x3xi1>",
            "%g = aten.any.dim(%f, -1, true) : (tensor<2x3x3xi1>) -> tensor<2x3x1xi1>",
            "%h = aten.logical_not.default(%g) : (tensor<2x3x1xi1>) -> tensor<2x3x1xi1>",
            "%z = aten.full_like.default(%p, 0) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%y = aten.where.self(%h, %z, %p) : (tensor<2x3x1xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            gives="tensor<2x3x3xf32>",
        ),
        remove_safe_softmax_guard,
    )


def test_a_fill_other_than_zero_is_no_guard(refused: Any, method: Any):
    refused(
        method(
            "%q: tensor<2x3x4xf32>, %k: tensor<2x4x3xf32>",
            "%s = aten.bmm.default(%q, %k) : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>",
            "%p = aten._softmax.default(%s, 2, false) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%e = aten.eq.Scalar(%s, -inf) : (tensor<2x3x3xf32>) -> tensor<2x3x3xi1>",
            "%f = aten.logical_not.default(%e) : (tensor<2x3x3xi1>) -> tensor<2x3x3xi1>",
            "%g = aten.any.dim(%f, -1, true) : (tensor<2x3x3xi1>) -> tensor<2x3x1xi1>",
            "%h = aten.logical_not.default(%g) : (tensor<2x3x1xi1>) -> tensor<2x3x1xi1>",
            "%z = aten.full_like.default(%p, 1) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%y = aten.where.self(%h, %z, %p) : (tensor<2x3x1xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            gives="tensor<2x3x3xf32>",
        ),
        remove_safe_softmax_guard,
    )


def test_scores_scaled_by_infinity_keep_the_guard(refused: Any, method: Any):
    refused(
        method(
            "%q: tensor<2x3x4xf32>, %k: tensor<2x4x3xf32>",
            "%b = aten.bmm.default(%q, %k) : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>",
            "%s = aten.mul.Scalar(%b, inf) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%p = aten._softmax.default(%s, 2, false) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%e = aten.eq.Scalar(%s, -inf) : (tensor<2x3x3xf32>) -> tensor<2x3x3xi1>",
            "%f = aten.logical_not.default(%e) : (tensor<2x3x3xi1>) -> tensor<2x3x3xi1>",
            "%g = aten.any.dim(%f, -1, true) : (tensor<2x3x3xi1>) -> tensor<2x3x1xi1>",
            "%h = aten.logical_not.default(%g) : (tensor<2x3x1xi1>) -> tensor<2x3x1xi1>",
            "%z = aten.full_like.default(%p, 0) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%y = aten.where.self(%h, %z, %p) : (tensor<2x3x1xi1>, tensor<2x3x3xf32>, tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            gives="tensor<2x3x3xf32>",
        ),
        remove_safe_softmax_guard,
        "finite constant",
    )


def test_safe_softmax_of_a_product_is_a_softmax(apply: Any, method: Any):
    done = apply(
        method(
            "%q: tensor<2x3x4xf32>, %k: tensor<2x4x3xf32>",
            "%b = aten.bmm.default(%q, %k) : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>",
            "%s = aten.mul.Scalar(%b, 0.5) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            "%y = aten._safe_softmax.default(%s, -1) : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
            gives="tensor<2x3x3xf32>",
        ),
        remove_safe_softmax_guard,
    )
    assert done.ops() == ["aten.bmm.default", "aten.mul.Scalar", "aten._softmax.default"]


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


def test_a_guard_that_broadcasts_the_softmax_stays(refused: Any, method: Any) -> None:
    wide = "tensor<2x3x3x3xf32>"
    z = f"aten.full_like.default(%o, 0) : ({wide}) -> {wide}"
    y = f"aten.where.self(%h, %z, %p) : ({R}, {wide}, {S}) -> {wide}"
    text = guarded(method, given=f"{Q}, %o: {wide}", gives=wide, z=z, y=y)
    refused(text, remove_safe_softmax_guard)


def test_a_safe_softmax_that_casts_stays(refused: Any, method: Any) -> None:
    wide = S.replace("f32", "f64")
    line = f"%y = aten._safe_softmax.default(%s, -1, f64) : ({S}) -> {wide}"
    refused(method(Q, f"%s = {GUARD['s']}", line, gives=wide), remove_safe_softmax_guard)


def test_the_scores_of_a_layer_are_finite(apply: Any, method: Any) -> None:
    weight = '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>'
    layer = f"aten.linear.default(%q, %w) : (tensor<3x3x4xf32>, tensor<3x4xf32>) -> {S}"
    done = apply(guarded(method, weight, s=layer), remove_safe_softmax_guard)
    assert done.ops() == ["aten.linear.default", "aten._softmax.default"]


def test_a_view_that_cuts_masked_rows_may_empty_one(refused: Any, method: Any) -> None:
    long = "tensor<1x3x9xf32>"
    lines = (
        '%m = stepwell.weight <"m#causal"> "constant" : tensor<3x9xf32>',
        f"%b = aten.bmm.default(%q, %k) : (tensor<1x3x4xf32>, tensor<1x4x9xf32>) -> {long}",
        f"%a = aten.add.Tensor(%b, %m) : ({long}, tensor<3x9xf32>) -> {long}",
    )
    s = f"aten.view.default(%a, [3, 3, 3]) : ({long}) -> {S}"
    given = "%q: tensor<1x3x4xf32>, %k: tensor<1x4x9xf32>"
    text = guarded(method, *lines, given=given, s=s)
    refused(text, remove_safe_softmax_guard, "moves the axis")


def test_a_view_that_cuts_columns_may_empty_one(refused: Any, method: Any) -> None:
    tall = "tensor<1x9x3xf32>"
    given = "%q: tensor<1x9x4xf32>, %k: tensor<1x4x3xf32>"
    product = f"%b = aten.bmm.default(%q, %k) : (tensor<1x9x4xf32>, tensor<1x4x3xf32>) -> {tall}"
    changed = any_of("3x1x3", "1", "true") | {
        "s": f"aten.view.default(%b, [3, 3, 3]) : ({tall}) -> {S}",
        "p": f"aten._softmax.default(%s, 1, false) : ({S}) -> {S}",
    }
    text = guarded(method, product, given=given, **changed)
    refused(text, remove_safe_softmax_guard, "moves the axis")


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

"""RemoveSafeSoftmaxGuard: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.rewrites.aten.remove_safe_softmax_guard import RemoveSafeSoftmaxGuard


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
        RemoveSafeSoftmaxGuard(),
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
        RemoveSafeSoftmaxGuard(),
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
        RemoveSafeSoftmaxGuard(),
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
        RemoveSafeSoftmaxGuard(),
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
        RemoveSafeSoftmaxGuard(),
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
        RemoveSafeSoftmaxGuard(),
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
        RemoveSafeSoftmaxGuard(),
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
        RemoveSafeSoftmaxGuard(),
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
        RemoveSafeSoftmaxGuard(),
    )
    assert done.ops() == ["aten.bmm.default", "aten.mul.Scalar", "aten._softmax.default"]

"""StackToCat: beyond its documented example, and what it leaves alone."""

from typing import Any

from stepwell.translate.decompositions.aten import slices
from stepwell.translate.lowerings.lowering import step


def test_parts_of_several_dtypes_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3xf32>, %z: tensor<3xf16>",
            "%y = aten.cat.default([%x, %z], 0) : (tensor<3xf32>, tensor<3xf16>) -> tensor<6xf32>",
            gives="tensor<6xf32>",
        ),
        step(slices.stack_to_cat),
        "several dtypes",
    )


def test_a_cat_in_normal_form_stays(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.cat.default([%x, %x], 0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>",
            gives="tensor<4x3xf32>",
        ),
        step(slices.stack_to_cat),
    )


def test_an_empty_part_of_shape_0_is_skipped(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>, %e: tensor<0xf32>",
            "%a = aten.cat.default([%e, %x], -2) : (tensor<0xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.neg.default(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        step(slices.stack_to_cat),
    )
    assert done.ops() == ["aten.neg.default"]


def test_an_empty_part_along_the_axis_is_left_out(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>, %e: tensor<2x0xf32>",
            "%y = aten.cat.default([%x, %e, %x], 1) : (tensor<2x3xf32>, tensor<2x0xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>",
            gives="tensor<2x6xf32>",
        ),
        step(slices.stack_to_cat),
    )
    assert "%e" not in done.text.split("cat")[1]


def test_vstack_of_vectors_makes_rows(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<3xf32>",
            "%y = aten.vstack.default([%x, %x]) : (tensor<3xf32>, tensor<3xf32>) -> tensor<2x3xf32>",
            gives="tensor<2x3xf32>",
        ),
        step(slices.stack_to_cat),
    )
    assert done.ops() == ["aten.view.default", "aten.view.default", "aten.cat.default"]

"""StackToCat: beyond its documented example, and what it leaves alone."""

from typing import Any

from rewrite_cases import cases

from stepwell.translate.decompositions import slices
from stepwell.translate.lowerings.lowering import step

test_stack_to_cat = cases(
    slices,
    """
stack-to-cat: parts of several dtypes -> refused: several dtypes
    %y = aten.cat.default([%x: f32[3], %z: f16[3]], 0)
stack-to-cat: a cat in normal form -> unchanged
    %y = aten.cat.default([%x: f32[2, 3], %x], 0)
stack-to-cat: an empty part of shape 0 is skipped -> aten.neg.default
    %a = aten.cat.default([%e: f32[0], %x: f32[2, 3]], -2)
    %y = aten.neg.default(%a)
stack-to-cat: vstack of vectors makes rows -> aten.view.default, aten.view.default, aten.cat.default
    %y = aten.vstack.default([%x: f32[3], %x])
""",
)


def test_an_empty_part_along_the_axis_is_left_out(apply: Any):
    done = apply(
        "%y = aten.cat.default([%x: f32[2, 3], %e: f32[2, 0], %x], 1)",
        step(slices.stack_to_cat),
    )
    assert "%e" not in done.text.split("cat")[1]

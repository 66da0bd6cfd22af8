"""An average over planes keeps no axes where a reshape only takes them away."""

from typing import Any

import pytest

from stepwell.translate.rewrites.xnnpack.partitioning.merge_transposes import RULES

(DROP,) = (rule() for rule in RULES if rule.name == "drop-averaged-axes")

IMAGE, KEPT = "tensor<2x4x3x8xf32>", "tensor<2x1x1x8xf32>"
AVERAGE = f"%p = xnnpack.global_average_pooling_2d(%x, keep_dims) : ({IMAGE}) -> {KEPT}"


def body(result: str, *lines: str) -> str:
    inner = "\n  ".join(lines)
    return f"func.func @forward(%x: {IMAGE}) -> {result} {{\n  {inner}\n}}"


def reshape(shape: str) -> str:
    sizes = ", ".join(shape.removeprefix("tensor<").split("x")[:-1])
    return f"%y = xnnpack.static_reshape(%p, new_shape=[{sizes}]) : ({KEPT}) -> {shape}"


def test_the_average_itself_leaves_its_axes_out(apply: Any):
    shape = "tensor<2x8xf32>"
    done = apply(body(shape, AVERAGE, reshape(shape), f"func.return %y : {shape}"), DROP)
    assert done.count == 1
    assert done.ops() == ["xnnpack.global_average_pooling_2d"]


@pytest.mark.parametrize("shape", ["tensor<2x8x1x1xf32>", "tensor<16xf32>", "tensor<2x1x8xf32>"])
def test_a_reshape_that_does_something_else_stays(apply: Any, shape: str):
    done = apply(body(shape, AVERAGE, reshape(shape), f"func.return %y : {shape}"), DROP)
    assert done.count == 0


def test_an_average_that_others_read_keeps_its_axes(apply: Any):
    shape = "tensor<2x8xf32>"
    text = body(
        f"({shape}, {KEPT})", AVERAGE, reshape(shape), f"func.return %y, %p : {shape}, {KEPT}"
    )
    assert apply(text, DROP).count == 0

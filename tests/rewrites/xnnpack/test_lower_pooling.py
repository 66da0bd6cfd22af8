"""LowerPooling and LowerReduction: windows and means that XNNPACK's nodes compute as torch does."""

from typing import Any

import pytest

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import images, reductions

X = "tensor<2x3x6x6xf32>"


def pooled(line: str, gives: str, method: Any, x: str = X) -> str:
    return method(f"%x: {x}", f"%y = aten.{line} : ({x}) -> {gives}", gives=gives)


AVERAGE = "avg_pool2d.default(%x, [2, 2], [2, 2], {padding}, false, false, {divisor})"
NEAR_MISSES = {
    "windows of one element": (
        "max_pool2d.default(%x, [1, 1], [2, 2])", "3x3", "one element",
    ),
    "averages of one element": ("avg_pool2d.default(%x, [1, 1], [2, 2])", "3x3", "one element"),
    "an adaptive pool of nothing": (
        "adaptive_avg_pool2d.default(%x, [6, 6])", "6x6", "one element",
    ),
    "uneven rows": ("adaptive_avg_pool2d.default(%x, [4, 3])", "4x3", "windows of several sizes"),
    "uneven columns": ("adaptive_avg_pool2d.default(%x, [3, 4])", "3x4", "windows of several sizes"),
    "another divisor": (
        AVERAGE.format(padding=[0, 0], divisor=3), "3x3", "divisor_override",
    ),
    "a divisor at the edge": (
        AVERAGE.format(padding=[1, 1], divisor=4), "4x4", "extend past the edge",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_it_stays(name: str, refused: Any, method: Any):
    line, size, reason = NEAR_MISSES[name]
    refused(pooled(line, f"tensor<2x3x{size}xf32>", method), step(images.pooling), reason)


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("max_pool2d.default(%x, [2, 2])", "3x3"),
        ("avg_pool2d.default(%x, [3, 3], [2, 2], [1, 1], true)", "4x4"),
        (AVERAGE.format(padding=[1, 1], divisor="none"), "4x4"),
        (AVERAGE.format(padding=[0, 0], divisor=4), "3x3"),
        ("adaptive_avg_pool2d.default(%x, [3, 2])", "3x2"),
        ("adaptive_avg_pool2d.default(%x, [1, 1])", "1x1"),
    ],
)
def test_windows_are_nodes(line: str, size: str, apply: Any, method: Any):
    assert apply(pooled(line, f"tensor<2x3x{size}xf32>", method), step(images.pooling)).count == 1


def test_an_image_without_a_batch_is_refused(refused: Any, method: Any):
    text = pooled(
        "max_pool2d.default(%x, [2, 2])", "tensor<3x3x3xf32>", method, "tensor<3x6x6xf32>"
    )
    refused(text, step(images.pooling), "not a batch of images")


THIRDS = 'tensor<2x3x3x?xf32, #stepwell.shape<[2, 3, 3, "(s0 - 2)//3 + 2"]>>'
WIDE = 'tensor<2x3x6x?xf32, #stepwell.shape<[2, 3, 6, "s0"]>>'


@pytest.mark.parametrize(
    ("line", "gives"),
    [
        ("mean.dim(%x, [2, 3], true)", "tensor<2x3x1x1xf32>"),
        ("adaptive_avg_pool2d.default(%x, [1, 1])", "tensor<2x3x1x1xf32>"),
        ("max_pool2d.default(%x, [3, 3], [1, 1], [1, 1])", WIDE),
        ("avg_pool2d.default(%x, [3, 3], [1, 1], [1, 1])", WIDE),
        ("upsample_bilinear2d.vec(%x, [4, 5], false, none)", "tensor<2x3x4x5xf32>"),
    ],
)
def test_an_image_of_symbolic_width_is_pooled(line: str, gives: str, apply: Any, method: Any):
    assert apply(pooled(line, gives, method, WIDE), step(images.pooling)).count == 1


@pytest.mark.parametrize(
    ("line", "gives", "reason"),
    [
        ("adaptive_avg_pool2d.default(%x, [3, 2])", "tensor<2x3x3x2xf32>", "symbolic size"),
        ("max_pool2d.default(%x, [3, 3], [3, 3], [1, 1], [1, 1], true)", THIRDS, "in the padding"),
        ("avg_pool2d.default(%x, [3, 3], [3, 3], [1, 1], true)", THIRDS, "in the padding"),
    ],
)
def test_windows_that_follow_from_a_symbolic_size_are_refused(
    line: str, gives: str, reason: str, refused: Any, method: Any
):
    refused(pooled(line, gives, method, WIDE), step(images.pooling), reason)


def test_windows_that_follow_from_a_symbolic_height_are_refused(refused: Any, method: Any):
    x = 'tensor<2x3x?x6xf32, #stepwell.shape<[2, 3, "s0", 6]>>'
    line = "adaptive_avg_pool2d.default(%x, [3, 2])"
    text = pooled(line, "tensor<2x3x3x2xf32>", method, x)
    refused(text, step(images.pooling), "so have its windows")


def test_a_resize_to_a_symbolic_size_is_refused(refused: Any, method: Any):
    line = "upsample_bilinear2d.vec(%x, none, false, [1.0, 1.0])"
    refused(pooled(line, WIDE, method, WIDE), step(images.pooling), "resizes to a constant")


@pytest.mark.parametrize(
    ("line", "gives"),
    [
        ("mean.dim(%x, [1, 3], true)", "tensor<2x1x6x1xf32>"),
        ("mean.dim(%x, [2], true)", "tensor<2x3x1x6xf32>"),
        ("mean.dim(%x, none)", "tensor<f32>"),
    ],
)
def test_a_mean_over_other_axes_than_planes_is_no_pooling(
    line: str, gives: str, apply: Any, refused: Any, method: Any
):
    text = pooled(line, gives, method)
    refused(text, step(images.pooling))
    assert apply(text, step(reductions.reduction)).count == 1


@pytest.mark.parametrize("axes", ["[0]", "none"])
def test_a_mean_of_one_number_is_the_number(axes: str, apply: Any, method: Any):
    text = pooled(f"mean.dim(%x, {axes})", "tensor<f32>", method, "tensor<f32>")
    assert apply(text, step(reductions.reduction)).count == 1


def test_a_mean_over_static_axes_of_a_symbolic_tensor_is_taken(apply: Any, method: Any):
    x = 'tensor<?x3x6xf32, #stepwell.shape<["s0", 3, 6]>>'
    gives = 'tensor<?x6xf32, #stepwell.shape<["s0", 6]>>'
    assert (
        apply(pooled("mean.dim(%x, [1])", gives, method, x), step(reductions.reduction)).count == 1
    )


@pytest.mark.parametrize(
    ("call", "x", "gives", "reason"),
    [
        (
            "mean.dim(%x, [0, 1])",
            'tensor<?x?x6xf32, #stepwell.shape<["s0", "s1", 6]>>',
            "tensor<6xf32>",
            "not the planes",
        ),
        ("mean.dim(%x, [0])", "tensor<?x6xf32>", "tensor<6xf32>", "not known"),
    ],
)
def test_axes_of_symbolic_size_that_no_pool_averages_stay(
    call: str, x: str, gives: str, reason: str, refused: Any, method: Any
):
    refused(pooled(call, gives, method, x), step(reductions.reduction), reason)


@pytest.mark.parametrize(
    ("call", "x", "gives"),
    [
        (
            "sum.dim_IntList(%x, [0])",
            'tensor<?x3x6xf32, #stepwell.shape<["s0", 3, 6]>>',
            "tensor<3x6xf32>",
        ),
        (
            "mean.dim(%x, [1])",
            'tensor<?x?x6xf32, #stepwell.shape<["s0", "s1", 6]>>',
            'tensor<?x6xf32, #stepwell.shape<["s0", 6]>>',
        ),
    ],
)
def test_one_axis_of_symbolic_size_is_pooled(
    call: str, x: str, gives: str, apply: Any, method: Any
):
    done = apply(pooled(call, gives, method, x), step(reductions.reduction))
    assert "xnnpack.global_average_pooling_2d" in done.ops()


def test_a_mean_over_the_last_axis_of_a_symbolic_tensor_is_a_layer(apply: Any, method: Any):
    x = 'tensor<?x3x6xf32, #stepwell.shape<["s0", 3, 6]>>'
    gives = 'tensor<?x3x1xf32, #stepwell.shape<["s0", 3, 1]>>'
    text = pooled("mean.dim(%x, [-1], true)", gives, method, x)
    assert apply(text, step(reductions.reduction)).ops() == ["aten.linear.default"]

"""LowerPooling: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.lowerings.cmsis import pooling
from stepwell.translate.lowerings.lowering import step


def pool(
    words: Any,
    method: Any,
    op: str,
    rest: str,
    made: str,
    *,
    x: str = "1x2x4x4",
    out: str = "0.5:3",
) -> str:
    return method(
        f"%x: {words.typed(x, '0.5:3')}",
        words.dcast("x", x, "0.5:3"),
        words.call("z", f"aten.{op}.default", f"%xr, {rest}", (x,), made),
        words.qcast("z", made, out),
        gives=words.typed(made, out),
    )


@pytest.mark.parametrize(
    "op, rest, x, made, kernel",
    [
        ("max_pool2d", "[2, 2]", "1x2x4x4", "1x2x2x2", "max"),
        ("max_pool2d", "[3, 3], [2, 2], [0, 0], [1, 1], true", "1x2x4x4", "1x2x2x2", "max"),
        ("max_pool1d", "[2]", "1x2x6", "1x2x3", "max"),
        ("avg_pool1d", "[2]", "1x2x6", "1x2x3", "avg"),
        ("adaptive_avg_pool2d", "[2, 1]", "1x2x4x4", "1x2x2x1", "avg"),
        ("avg_pool2d", "[3, 3], [2, 2], [1, 1], true, false", "1x2x4x4", "1x2x3x3", "avg"),
    ],
)
def test_each_spelling_is_one_operator(
    apply: Any, method: Any, words: Any, op: str, rest: str, x: str, made: str, kernel: str
):
    done = apply(pool(words, method, op, rest, made, x=x), step(pooling.pooling))
    assert f"cmsis.quantized_{kernel}_pool2d_nhwc" in done.ops()


def test_padding_that_counts_is_a_pad(apply: Any, method: Any, words: Any):
    text = pool(words, method, "avg_pool2d", "[2, 2], [2, 2], [1, 1]", "1x2x3x3")
    assert "cmsis.pad" in apply(text, step(pooling.pooling)).ops()


def test_a_finer_average_is_a_depthwise_convolution(apply: Any, method: Any, words: Any):
    text = pool(words, method, "avg_pool2d", "[2, 2]", "1x2x2x2", out="0.125")
    assert "cmsis.quantized_depthwise_conv2d_nhwc" in apply(text, step(pooling.pooling)).ops()


@pytest.mark.parametrize(
    "op, rest, x, made, out, reason",
    [
        ("avg_pool2d", "[2, 2]", "2x2x4x4", "2x2x2x2", "0.125", "finer than its input's"),
        ("avg_pool2d", "[2, 2]", "2x4x4", "2x2x2", "0.5:3", "batches of images"),
        (
            "avg_pool2d",
            "[2, 2], divisor_override=3",
            "1x2x4x4",
            "1x2x2x2",
            "0.5:3",
            "divisor is overridden",
        ),
        (
            "avg_pool2d",
            "[3, 3], [2, 2], [1, 1], true",
            "1x2x4x4",
            "1x2x3x3",
            "0.5:3",
            "padding counts",
        ),
        (
            "max_pool2d",
            "[2, 2], [1, 1], [0, 0], [2, 2]",
            "1x2x4x4",
            "1x2x2x2",
            "0.5:3",
            "dilation",
        ),
        ("adaptive_avg_pool2d", "[3, 3]", "1x2x4x4", "1x2x3x3", "0.5:3", "equal windows"),
    ],
    ids=["finer", "no batch", "divisor", "counted, ceil", "dilated", "uneven"],
)
def test_what_the_kernels_have_not_is_refused(
    refused: Any,
    method: Any,
    words: Any,
    op: str,
    rest: str,
    x: str,
    made: str,
    out: str,
    reason: str,
):
    refused(pool(words, method, op, rest, made, x=x, out=out), step(pooling.pooling), reason)


def test_indices_that_are_used_are_refused(refused: Any, method: Any, words: Any):
    made = words.typed("1x2x2x2", "0.5:3")
    text = method(
        f"%x: {words.typed('1x2x4x4', '0.5:3')}",
        words.dcast("x", "1x2x4x4", "0.5:3"),
        "%z, %i = aten.max_pool2d_with_indices.default(%xr, [2, 2]) : (tensor<1x2x4x4xf32>) "
        "-> (tensor<1x2x2x2xf32>, tensor<1x2x2x2xi64>)",
        words.qcast("z", "1x2x2x2", "0.5:3"),
        gives=made,
    )
    text = text.replace(f"-> {made} {{", f"-> ({made}, tensor<1x2x2x2xi64>) {{").replace(
        f"func.return %y : {made}", f"func.return %y, %i : {made}, tensor<1x2x2x2xi64>"
    )
    refused(text, step(pooling.pooling), "indices of the maxima are used")


def test_a_shape_known_only_at_run_time_is_refused(refused: Any, method: Any, words: Any):
    def sized(shape: str, rest: str) -> str:
        return f'tensor<?x{shape}x{rest}, #stepwell.shape<["s0", {shape.replace("x", ", ")}]>>'

    held = "!quant.uniform<i8:f32, 0.5>"
    text = method(
        f"%x: {sized('2x4x4', held)}",
        f"%xr = quant.dcast %x : {sized('2x4x4', held)} to {sized('2x4x4', 'f32')}",
        f"%z = aten.avg_pool2d.default(%xr, [2, 2]) : ({sized('2x4x4', 'f32')}) "
        f"-> {sized('2x2x2', 'f32')}",
        f"%y = quant.qcast %z : {sized('2x2x2', 'f32')} to {sized('2x2x2', held)}",
        gives=sized("2x2x2", held),
    )
    refused(text, step(pooling.pooling), "run time")

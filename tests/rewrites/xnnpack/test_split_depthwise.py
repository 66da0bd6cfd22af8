"""Windows of more taps than a kernel holds: each part, each form, and what stays whole."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from rewrite_cases import cases

from stepwell.dialects.xnnpack.costs import COSTS, TAPS
from stepwell.dialects.xnnpack.movement import StaticSlice
from stepwell.dialects.xnnpack.spatial import DepthwiseConvolution2d
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.translate.rewrites.xnnpack.convolutions.split_depthwise import SplitDepthwise
from stepwell.translate.rewrites.xnnpack.convolutions.window_parts import (
    Prices,
    WindowAxis,
    divisions,
    least,
)
from stepwell.translate.rewrites.xnnpack.floats.singles import ONCE


def convolved(
    method: Any,
    image: str,
    window: tuple[int, int],
    made: str,
    *,
    padding: tuple[int, int, int, int],
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    channels: int = 8,
    fields: str = "",
    kind: str = "f32",
) -> str:
    """A method that convolves with a bias; sizes as `2x60x60`."""
    shape = "x".join(map(str, window))
    x, y, w, b = (
        f"tensor<{size}x{kind}>"
        for size in (f"{image}x{channels}", f"{made}x{channels}", f"1x{shape}x{channels}", channels)
    )
    numbers = f"padding={list(padding)}, stride={list(stride)}, dilation={list(dilation)}{fields}"
    return method(
        f"%x: {x}",
        f'%w = stepwell.weight <"w#positive"> "parameter" : {w}',
        f'%b = stepwell.weight <"b"> "parameter" : {b}',
        f"%y = xnnpack.depthwise_convolution_2d(%x, %w, %b, {numbers}) : ({x}, {w}, {b}) -> {y}",
        gives=y,
    )


FORMS: dict[str, tuple[Any, ...]] = {
    "7x7": ("2x40x40", (7, 7), "2x40x40", dict(padding=(3, 3, 3, 3))),
    "strides": ("1x41x60", (7, 7), "1x21x20", dict(padding=(3, 3, 3, 3), stride=(2, 3))),
    "strides that leave rows over": ("1x60x60", (9, 4), "1x27x30", dict(padding=(1, 2, 0, 0), stride=(2, 2))),
    "no padding": ("1x60x60", (6, 6), "1x55x55", dict(padding=(0, 0, 0, 0))),
    "more padding than window": ("1x40x40", (2, 14), "1x45x43", dict(padding=(3, 9, 3, 7))),
    "dilated": ("1x60x60", (5, 6), "1x60x55", dict(padding=(4, 3, 4, 2), dilation=(2, 2))),
    "a line": ("1x1x900", (1, 31), "1x1x900", dict(padding=(0, 15, 0, 15))),
    "a line of the past": ("1x1x900", (1, 60), "1x1x900", dict(padding=(0, 0, 0, 59))),
    "a column": ("1x900x1", (28, 1), "1x873x1", dict(padding=(0, 0, 0, 0))),
    "31x31": ("1x40x40", (31, 31), "1x40x40", dict(padding=(15, 15, 15, 15))),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_parts_hold_each_tap_once_and_fit_a_kernel(name: str, apply: Any, method: Any) -> None:
    image, window, made, numbers = FORMS[name]
    positive = torch.rand([*map(int, image.split("x")), 8]) + 0.1  # Sums in which nothing cancels.
    text = convolved(method, image, window, made, **numbers)
    done = apply(text, SplitDepthwise(), inputs=[positive])
    assert done.count == 1
    parts = [op for op in done.program.module.walk() if isinstance(op, DepthwiseConvolution2d)]
    taps = [height * width for height, width in (part.window for part in parts)]
    assert max(taps) <= TAPS[-1] and sum(taps) == window[0] * window[1]
    assert [part.bias is not None for part in parts] == [True] + [False] * (len(parts) - 1)


def test_the_last_sum_is_clamped_and_nothing_before_it(apply: Any, method: Any) -> None:
    text = convolved(
        method, "1x40x40", (7, 7), "1x40x40", padding=(3, 3, 3, 3), fields=", output_min=0.0"
    )
    done = apply(text, SplitDepthwise())
    *others, last = done.text[: done.text.index("func.return")].strip().splitlines()
    assert "xnnpack.add" in last and "output_min=0.0" in last
    assert not any("output_min" in line for line in others)


@dataclass(frozen=True)
class OfHalves(SplitDepthwise):
    """With the bound that `bound_at` gives for halves."""

    bound: ClassVar[Bound] = ONCE


@dataclass(frozen=True)
class OfIntegers(SplitDepthwise):
    """With the least bound that `bound_at` gives for stored integers."""

    bound: ClassVar[Bound] = Bound(units=1)


def test_halves_are_summed_in_single_precision(apply: Any) -> None:
    ops = apply(
        """
        %x: f16[1, 20, 20, 16], %w: weight "w#positive" f16[1, 7, 7, 16], %b: weight f16[16]
        %y = xnnpack.depthwise_convolution_2d(%x, %w, %b, padding=[3, 3, 3, 3], stride=[1, 1], dilation=[1, 1]) : (f16[1, 20, 20, 16], f16[1, 7, 7, 16], f16[16]) -> f16[1, 20, 20, 16]
        """,
        OfHalves(),
    ).ops()
    assert ops[0] == ops[-1] == "xnnpack.convert"


def test_stored_integers_are_summed_as_the_reals_they_are(apply: Any, method: Any) -> None:
    scales = ", ".join(f"{0.01 + 0.001 * channel}" for channel in range(4))
    sums = ", ".join(f"{0.5 * (0.01 + 0.001 * channel)}" for channel in range(4))
    x, y = (
        "tensor<1x30x30x4x!quant.uniform<i8:f32, 0.5:3>>",
        "tensor<1x30x30x4x!quant.uniform<i8:f32, 4.0:-7>>",
    )
    w = f"tensor<1x7x7x4x!quant.uniform<i8:f32:3, {{{scales}}}>>"
    b = f"tensor<4x!quant.uniform<i32:f32:0, {{{sums}}}>>"
    text = method(
        f"%x: {x}",
        '%i = stepwell.weight <"w"> "parameter" : tensor<1x7x7x4xi8>',
        '%j = stepwell.weight <"b"> "parameter" : tensor<4xi32>',
        f"%w = quant.scast %i : tensor<1x7x7x4xi8> to {w}",
        f"%b = quant.scast %j : tensor<4xi32> to {b}",
        f"%y = xnnpack.depthwise_convolution_2d(%x, %w, %b, padding=[3, 3, 3, 3], stride=[1, 1], dilation=[1, 1], output_max=100.0) : ({x}, {w}, {b}) -> {y}",
        gives=y,
    )
    done = apply(text, OfIntegers())
    assert done.count == 1
    assert done.ops()[0] == done.ops()[-1] == "xnnpack.convert"


HEIGHT = 'tensor<?x?x40x8xf32, #stepwell.shape<["n", "h", 40, 8]>>'


def symbolic(method: Any, window: tuple[int, int], padding: list[int], made: str) -> str:
    """A batch and height that are not known."""
    w = f"tensor<1x{window[0]}x{window[1]}x8xf32>"
    return method(
        f"%x: {HEIGHT}",
        f'%w = stepwell.weight <"w"> "parameter" : {w}',
        f"%y = xnnpack.depthwise_convolution_2d(%x, %w, padding={padding}, stride=[1, 1], dilation=[1, 1]) : ({HEIGHT}, {w}) -> {made}",
        gives=made,
    )


def test_an_axis_of_symbolic_size_is_not_sliced(apply: Any, method: Any) -> None:
    done = apply(symbolic(method, (7, 7), [3, 3, 3, 3], HEIGHT), SplitDepthwise())
    assert done.count == 1
    slices = [op for op in done.program.module.walk() if isinstance(op, StaticSlice)]
    assert all(op.ints("offsets")[1] == op.ints("sizes")[1] == 0 for op in slices)


def test_an_axis_of_symbolic_size_that_must_be_sliced_stays(apply: Any) -> None:
    done = apply(
        """
        %x: f32[n, h, 40, 8], %w: weight f32[1, 28, 1, 8]
        %y = xnnpack.depthwise_convolution_2d(%x, %w, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1]) : (f32[n, h, 40, 8], f32[1, 28, 1, 8]) -> f32[n, h - 27, 40, 8]
        """,
        SplitDepthwise(),
        inputs=[torch.randn(2, 40, 40, 8)],
    )
    assert done.count == 0 and "symbolic" in done.reasons[0]


test_split_depthwise = cases(SplitDepthwise)("""
what a kernel holds -> unchanged
    %x: f32[1, 40, 40, 8], %w: weight "w#positive" f32[1, 5, 5, 8], %b: weight f32[8]
    %y = xnnpack.depthwise_convolution_2d(%x, %w, %b, padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1]) : (f32[1, 40, 40, 8], f32[1, 5, 5, 8], f32[8]) -> f32[1, 40, 40, 8]
an image too small to pay for the nodes -> refused: cost less
    %x: f32[1, 7, 7, 1], %w: weight "w#positive" f32[1, 7, 7, 1], %b: weight f32[1]
    %y = xnnpack.depthwise_convolution_2d(%x, %w, %b, padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1]) : (f32[1, 7, 7, 1], f32[1, 7, 7, 1], f32[1]) -> f32[1, 1, 1, 1]
several results a channel -> refused: several results
    %x: f32[1, 40, 40, 8], %w: weight f32[1, 7, 7, 16]
    %y = xnnpack.depthwise_convolution_2d(%x, %w, padding=[3, 3, 3, 3], stride=[1, 1], dilation=[1, 1]) : (f32[1, 40, 40, 8], f32[1, 7, 7, 16]) -> f32[1, 40, 40, 16]
""")


@pytest.mark.parametrize("taps", range(1, 32))
def test_divisions_hold_each_tap_once(taps: int) -> None:
    for runs in divisions(taps):
        held = [run.first + run.step * index for run in runs for index in range(run.count)]
        assert sorted(held) == list(range(taps))


def test_a_part_of_which_nothing_of_the_image_is_left_is_not_chosen() -> None:
    axis = WindowAxis(taps=7, before=3, after=3, dilation=1, size=3)
    found = least(axis, axis, Prices(COSTS, 10**6, 10**6))
    assert found is not None
    assert all(axis.cut(run) is not None for part in found[1] for run in part)
    assert least(axis, WindowAxis(40, 0, 0, 1, None), Prices(COSTS, 10**6, 10**6)) is None


def test_the_cheapest_parts_are_no_dearer_than_rows() -> None:
    axis = WindowAxis(taps=7, before=3, after=3, dilation=1, size=56)
    prices = Prices(COSTS, 10**6, 10**6)
    found = least(axis, axis, prices)
    assert found is not None
    by_rows = sum(prices.part(7, is_sliced=row != 3) for row in range(7))
    assert found[0] < by_rows
    assert torch.zeros(7, 7).numel() == sum(a.count * b.count for a, b in found[1])

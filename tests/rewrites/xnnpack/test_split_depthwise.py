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
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.xnnpack.convolutions.split_depthwise import split_depthwise
from stepwell.translate.rewrites.xnnpack.convolutions.window_parts import (
    Prices,
    WindowAxis,
    divisions,
    least,
)
from stepwell.translate.rewrites.xnnpack.floats.singles import ONCE


def convolved(
    image: str,
    window: tuple[int, int],
    padding: list[int],
    stride: Any = None,
    dilation: Any = None,
) -> str:
    """A convolution of eight channels with a bias."""
    return f"""%y = xnnpack.depthwise_convolution_2d(
        %x: f32[{image}, 8], %w: weight "w#positive" f32[1, {window[0]}, {window[1]}, 8],
        %b: weight f32[8], padding={padding}, stride={stride or [1, 1]},
        dilation={dilation or [1, 1]})"""


FORMS: dict[str, tuple[Any, ...]] = {
    "7x7": ("2, 40, 40", (7, 7), [3, 3, 3, 3]),
    "strides": ("1, 41, 60", (7, 7), [3, 3, 3, 3], [2, 3]),
    "strides that leave rows over": ("1, 60, 60", (9, 4), [1, 2, 0, 0], [2, 2]),
    "no padding": ("1, 60, 60", (6, 6), [0, 0, 0, 0]),
    "more padding than window": ("1, 40, 40", (2, 14), [3, 9, 3, 7]),
    "dilated": ("1, 60, 60", (5, 6), [4, 3, 4, 2], None, [2, 2]),
    "a line": ("1, 1, 900", (1, 31), [0, 15, 0, 15]),
    "a line of the past": ("1, 1, 900", (1, 60), [0, 0, 0, 59]),
    "a column": ("1, 900, 1", (28, 1), [0, 0, 0, 0]),
    "31x31": ("1, 40, 40", (31, 31), [15, 15, 15, 15]),
}


@pytest.mark.parametrize("name", FORMS)
def test_parts_hold_each_tap_once_and_fit_a_kernel(name: str, apply: Any) -> None:
    image, window, *_ = FORMS[name]
    positive = torch.rand([*map(int, image.split(", ")), 8]) + 0.1  # Nothing cancels in the sums.
    done = apply(convolved(*FORMS[name]), step(split_depthwise), inputs=[positive])
    assert done.count == 1
    parts = [op for op in done.program.module.walk() if isinstance(op, DepthwiseConvolution2d)]
    taps = [height * width for height, width in (part.window for part in parts)]
    assert max(taps) <= TAPS[-1] and sum(taps) == window[0] * window[1]
    assert [part.bias is not None for part in parts] == [True] + [False] * (len(parts) - 1)


def test_the_last_sum_is_clamped_and_nothing_before_it(apply: Any) -> None:
    clamped = convolved("1, 40, 40", (7, 7), [3, 3, 3, 3])[:-1] + ", output_min=0.0)"
    done = apply(clamped, step(split_depthwise))
    *others, last = done.text[: done.text.index("func.return")].strip().splitlines()
    assert "xnnpack.add" in last and "output_min=0.0" in last
    assert not any("output_min" in line for line in others)


@dataclass(frozen=True)
class OfHalves(type(step(split_depthwise))):
    """With the bound that `bound_at` gives for halves."""

    bound: ClassVar[Bound] = ONCE


@dataclass(frozen=True)
class OfIntegers(type(step(split_depthwise))):
    """With the least bound that `bound_at` gives for stored integers."""

    bound: ClassVar[Bound] = Bound(units=1)


test_halves_are_summed_in_single_precision = cases(OfHalves)("""
halves -> applied; 2 xnnpack.convert
    %y = xnnpack.depthwise_convolution_2d(%x: f16[1, 20, 20, 16], %w: weight "w#positive" f16[1, 7, 7, 16], %b: weight f16[16], padding=[3, 3, 3, 3], stride=[1, 1], dilation=[1, 1])
""")


test_stored_integers_are_summed_as_the_reals_they_are = cases(OfIntegers)("""
stored integers -> applied once; 2 xnnpack.convert
    %w = quant.scast(%i: weight i8[1, 7, 7, 4]) -> i8<:3, {0.01, 0.011, 0.012, 0.013}>[1, 7, 7, 4]
    %b = quant.scast(%j: weight i32[4]) -> i32<:0, {0.005, 0.0055, 0.006, 0.0065}>[4]
    %y = xnnpack.depthwise_convolution_2d(%x: i8<0.5:3>[1, 30, 30, 4], %w, %b, padding=[3, 3, 3, 3], stride=[1, 1], dilation=[1, 1], output_max=100.0) -> i8<4.0:-7>[1, 30, 30, 4]
""")


def test_an_axis_of_symbolic_size_is_not_sliced(apply: Any) -> None:
    done = apply(convolved("n, h, 40", (7, 7), [3, 3, 3, 3]), step(split_depthwise))
    assert done.count == 1
    slices = [op for op in done.program.module.walk() if isinstance(op, StaticSlice)]
    assert all(op.ints("offsets")[1] == op.ints("sizes")[1] == 0 for op in slices)


def test_an_axis_of_symbolic_size_that_must_be_sliced_stays(apply: Any) -> None:
    given = [torch.randn(2, 40, 40, 8)]
    done = apply(convolved("n, h, 40", (28, 1), [0, 0, 0, 0]), step(split_depthwise), inputs=given)
    assert done.count == 0 and "symbolic" in done.reasons[0]


test_split_depthwise = cases(step(split_depthwise))("""
what a kernel holds -> unchanged
    %y = xnnpack.depthwise_convolution_2d(%x: f32[1, 40, 40, 8], %w: weight "w#positive" f32[1, 5, 5, 8], %b: weight f32[8], padding=[2, 2, 2, 2], stride=[1, 1], dilation=[1, 1])
an image too small to pay for the nodes -> refused: would cost more
    %y = xnnpack.depthwise_convolution_2d(%x: f32[1, 7, 7, 1], %w: weight "w#positive" f32[1, 7, 7, 1], %b: weight f32[1], padding=[0, 0, 0, 0], stride=[1, 1], dilation=[1, 1])
several results a channel -> refused: several outputs
    %y = xnnpack.depthwise_convolution_2d(%x: f32[1, 40, 40, 8], %w: weight f32[1, 7, 7, 16], padding=[3, 3, 3, 3], stride=[1, 1], dilation=[1, 1])
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

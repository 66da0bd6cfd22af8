"""CropToSlice: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.decompositions.aten import slices
from stepwell.translate.lowerings.lowering import step


def pad(amounts: str, method: Any, given: str = "2x5", gives: str = "2x5") -> str:
    types = f"(tensor<{given}xf32>) -> tensor<{gives}xf32>"
    return method(
        f"%x: tensor<{given}xf32>",
        f"%y = aten.constant_pad_nd.default(%x, {amounts}, 1.5) : {types}",
        gives=f"tensor<{gives}xf32>",
    )


def test_padding_that_only_crops_leaves_no_pad(apply: Any, method: Any):
    done = apply(pad("[-1, -2, 0, -1]", method, gives="1x2"), step(slices.crop_to_slice))
    assert done.ops() == ["aten.slice.Tensor", "aten.slice.Tensor"]


def test_padding_that_adds_is_left_alone(refused: Any, method: Any):
    refused(pad("[1, 0]", method, gives="2x6"), step(slices.crop_to_slice))


@pytest.mark.parametrize("amounts", ["[-5, 2]", "[-3, -2]", "[1, -5]"])
def test_an_axis_of_which_nothing_is_left_is_filled(amounts: str, apply: Any, method: Any):
    count = 5 + sum(int(a) for a in amounts.strip("[]").split(","))
    done = apply(pad(amounts, method, gives=f"2x{count}"), step(slices.crop_to_slice))
    assert done.ops() == ["aten.full.default"]


def test_a_fixed_axis_beside_a_symbolic_one_is_cropped(apply: Any, method: Any):
    sized, cropped = (f'tensor<?x{size}xf32, #stepwell.shape<["s0", {size}]>>' for size in (5, 4))
    line = f"%y = aten.constant_pad_nd.default(%x, [-1, 0], 0) : ({sized}) -> {cropped}"
    done = apply(method(f"%x: {sized}", line, gives=cropped), step(slices.crop_to_slice))
    assert done.ops() == ["aten.slice.Tensor"]


def test_a_symbolic_axis_is_refused(refused: Any, method: Any):
    sized = 'tensor<?x5xf32, #stepwell.shape<["s0", 5]>>'
    refused(
        method(
            f"%x: {sized}",
            f"%y = aten.constant_pad_nd.default(%x, [0, 0, -1, 1], 0) : ({sized}) -> {sized}",
            gives=sized,
        ),
        step(slices.crop_to_slice),
        "symbolic",
    )


def test_a_padding_known_only_at_run_time_is_refused(refused: Any, method_of_n: Any):
    made = 'tensor<?xf32, #stepwell.shape<["n + 5"]>>'
    types = f'(tensor<6xf32>, !stepwell.int<"n">) -> {made}'
    call = f"%y = aten.constant_pad_nd.default(%x, [%n, -1], 0) : {types}"
    refused(
        method_of_n("%x: tensor<6xf32>", call, gives=made), step(slices.crop_to_slice), "run time"
    )

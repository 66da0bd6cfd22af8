"""A fused projection is cut where its slices say, and only where they are all that is read."""

from typing import Any

import pytest

from stepwell.translate.rewrites.layers.split_linear import SplitLinear

X, L, P = "tensor<2x4xf32>", "tensor<2x6xf32>", "tensor<2x3xf32>"
LINEAR = f"""%w = stepwell.weight <"w"> "parameter" : tensor<6x4xf32>
  %l = aten.linear.default(%x, %w) : ({X}, tensor<6x4xf32>) -> {L}"""


def cut(name: str, start: int, stop: int, of: str = P) -> str:
    return f"%{name} = aten.slice.Tensor(%l, 1, {start}, {stop}, 1) : ({L}) -> {of}"


def total(left: str, right: str) -> str:
    return f"%y = aten.add.Tensor(%{left}, %{right}) : ({P}, {P}) -> {P}"


def test_two_halves_become_two_projections(apply: Any, method: Any) -> None:
    text = method(f"%x: {X}", LINEAR, cut("a", 0, 3), cut("b", 3, 6), total("a", "b"), gives=P)
    done = apply(text, SplitLinear())
    assert sorted(done.ops()) == ["aten.add.Tensor"] + ["aten.linear.default"] * 2


def test_overlapping_slices_stay(refused: Any, method: Any) -> None:
    text = method(f"%x: {X}", LINEAR, cut("a", 0, 3), cut("b", 2, 5), total("a", "b"), gives=P)
    refused(text, SplitLinear(), "overlap")


def test_an_output_that_is_read_whole_stays(refused: Any, method: Any) -> None:
    whole = f"%s = aten.sum.dim_IntList(%l, [1], true) : ({L}) -> tensor<2x1xf32>"
    both = f"%y = aten.add.Tensor(%a, %s) : ({P}, tensor<2x1xf32>) -> {P}"
    text = method(f"%x: {X}", LINEAR, cut("a", 0, 3), whole, both, gives=P)
    refused(text, SplitLinear(), "read whole")


def test_a_slice_of_rows_stays(refused: Any, method: Any) -> None:
    rows = f"%y = aten.slice.Tensor(%l, 0, 0, 1, 1) : ({L}) -> tensor<1x6xf32>"
    refused(method(f"%x: {X}", LINEAR, rows, gives="tensor<1x6xf32>"), SplitLinear(), "read whole")


def test_a_slice_with_gaps_stays(refused: Any, method: Any) -> None:
    gaps = f"%y = aten.slice.Tensor(%l, 1, 0, 6, 2) : ({L}) -> {P}"
    refused(method(f"%x: {X}", LINEAR, gaps, gives=P), SplitLinear(), "read whole")


def test_a_slice_of_what_is_no_layer_stays(refused: Any, method: Any) -> None:
    other = f"%l = aten.cat.default([%x, %x], 1) : ({X}, {X}) -> tensor<2x8xf32>"
    part = "%y = aten.slice.Tensor(%l, 1, 0, 3, 1) : (tensor<2x8xf32>) -> tensor<2x3xf32>"
    refused(method(f"%x: {X}", other, part, gives=P), SplitLinear())


@pytest.mark.parametrize("computed", ["w", "b"])
def test_a_layer_of_computed_weights_stays(computed: str, refused: Any, method: Any) -> None:
    weight, bias = "tensor<6x4xf32>", "tensor<6xf32>"
    given = f"%w: {weight}" if computed == "w" else f"%b: {bias}"
    other = ("b", bias) if computed == "w" else ("w", weight)
    text = method(
        f"%x: {X}, {given}",
        f'%{other[0]} = stepwell.weight <"c"> "parameter" : {other[1]}',
        f"%l = aten.linear.default(%x, %w, %b) : ({X}, {weight}, {bias}) -> {L}",
        cut("y", 0, 3),
        gives=P,
    )
    refused(text, SplitLinear(), "computed at run time")

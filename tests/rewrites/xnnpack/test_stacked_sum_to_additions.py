"""`stacked-sum-to-additions`: sums and means of stacked values, and what is no such sum."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

import stepwell
from stepwell.translate.decompositions.products import MOST_PARTS, stacked_sum_to_additions
from stepwell.translate.lowerings.lowering import step


class Skips(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        parts = torch.stack([x, torch.relu(x), torch.sigmoid(x)], dim=1)
        return parts.sum(dim=1), torch.stack([x, torch.tanh(x)]).mean(0)


def test_stacked_values_of_any_length_are_summed_up_in_one_delegate() -> None:
    shapes = ({0: Dim("batch", min=2, max=8), 2: Dim("length", min=2, max=64)},)
    lowered = stepwell.lower(
        export(Skips(), (torch.randn(3, 4, 9),), dynamic_shapes=shapes), "xnnpack"
    )
    assert lowered.report.delegates == 1
    assert not lowered.report.outside
    for x in (torch.randn(2, 4, 5), torch.randn(5, 4, 33)):
        torch.testing.assert_close(lowered.run(x), Skips()(x))


UNIT, PAIR = "tensor<1x3xf32>", "tensor<2x3xf32>"


def cat(parts: str, types: str, made: str, at: int = 0) -> str:
    return f"%s = aten.cat.default([{parts}], {at}) : ({types}) -> {made}"


@pytest.mark.parametrize(
    ("types", "joined", "made", "over", "reason"),
    [
        ((UNIT, UNIT), "tensor<2x3xf32>", "tensor<2x1xf32>", "[1], true", "other axes"),
        ((UNIT, UNIT), "tensor<2x3xf32>", "tensor<1x1xf32>", "[0, 1], true", "other axes"),
        ((UNIT, UNIT), "tensor<2x3xf32>", "tensor<3xf32>", "[0]", "other axes"),
        ((PAIR, PAIR), "tensor<4x3xf32>", "tensor<1x3xf32>", "[0], true", "several elements"),
        ((UNIT, PAIR), "tensor<3x3xf32>", "tensor<1x3xf32>", "[0], true", "several elements"),
        (("tensor<1x3xf16>",) * 2, "tensor<2x3xf16>", "tensor<1x3xf16>", "[0], true", "float32"),
    ],
)
def test_another_reduction_stays(
    types: tuple[str, str],
    joined: str,
    made: str,
    over: str,
    reason: str,
    refused: Any,
    method: Any,
) -> None:
    lines = (
        cat("%a, %b", ", ".join(types), joined),
        f"%y = aten.sum.dim_IntList(%s, {over}) : ({joined}) -> {made}",
    )
    text = method(f"%a: {types[0]}, %b: {types[1]}", *lines, gives=made)
    refused(text, step(stacked_sum_to_additions), reason)


def many(count: int) -> str:
    joined = f"tensor<{count}x3xf32>"
    lines = (
        cat(", ".join(["%a"] * count), ", ".join([UNIT] * count), joined),
        f"%y = aten.sum.dim_IntList(%s, [0], true) : ({joined}) -> {UNIT}",
    )
    body = "\n  ".join(lines)
    return f"func.func @forward(%a: {UNIT}) -> {UNIT} {{\n  {body}\n  func.return %y : {UNIT}\n}}\n"


def test_a_long_chain_is_no_gain(apply: Any, refused: Any) -> None:
    assert apply(many(MOST_PARTS), step(stacked_sum_to_additions)).count == 1
    refused(many(MOST_PARTS + 1), step(stacked_sum_to_additions), f"more than {MOST_PARTS}")


def test_what_is_joined_for_others_too_is_not_added_up_as_well(refused: Any, method: Any) -> None:
    lines = (
        cat("%a, %b", f"{UNIT}, {UNIT}", PAIR),
        f"%r = aten.sum.dim_IntList(%s, [0], true) : ({PAIR}) -> {UNIT}",
        f"%y = aten.mul.Tensor(%s, %r) : ({PAIR}, {UNIT}) -> {PAIR}",
    )
    text = method(f"%a: {UNIT}, %b: {UNIT}", *lines, gives=PAIR)
    refused(text, step(stacked_sum_to_additions), "read elsewhere")


def test_a_sum_of_anything_else_is_not_looked_at(refused: Any, method: Any) -> None:
    line = f"%y = aten.sum.dim_IntList(%a, [0], true) : ({PAIR}) -> {UNIT}"
    refused(method(f"%a: {PAIR}", line, gives=UNIT), step(stacked_sum_to_additions))


@pytest.mark.parametrize("other", ["2x3", "3x2"])
def test_views_of_one_shape_are_added_up_before_they_are_views(
    other: str, apply: Any, method: Any
) -> None:
    one, two, row = "tensor<2x3xf32>", f"tensor<{other}xf32>", "tensor<1x6xf32>"
    lines = (
        f"%a = aten.view.default(%x, [1, 6]) : ({one}) -> {row}",
        f"%b = aten.view.default(%z, [1, 6]) : ({two}) -> {row}",
        cat("%a, %b", f"{row}, {row}", "tensor<2x6xf32>"),
        f"%y = aten.sum.dim_IntList(%s, [0], true) : (tensor<2x6xf32>) -> {row}",
    )
    done = apply(method(f"%x: {one}, %z: {two}", *lines, gives=row), step(stacked_sum_to_additions))
    assert done.count == 1
    assert (done.ops()[0] == "aten.add.Tensor") == (one == two)

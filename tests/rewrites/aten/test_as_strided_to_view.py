"""AsStridedToView: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest

from stepwell.translate.decompositions.aten import views
from stepwell.translate.lowerings.lowering import step


def test_overlapping_windows_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<6xf32>",
            "%y = aten.as_strided.default(%x, [5, 2], [1, 1]) : (tensor<6xf32>) -> tensor<5x2xf32>",
            gives="tensor<5x2xf32>",
        ),
        step(views.as_strided_to_view),
        "overlap",
    )


def test_a_transposition_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<2x3xf32>",
            "%y = aten.as_strided.default(%x, [3, 2], [1, 3]) : (tensor<2x3xf32>) -> tensor<3x2xf32>",
            gives="tensor<3x2xf32>",
        ),
        step(views.as_strided_to_view),
        "reorder",
    )


def test_a_part_of_the_operand_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<6xf32>",
            "%y = aten.as_strided.default(%x, [2, 2], [2, 1]) : (tensor<6xf32>) -> tensor<2x2xf32>",
            gives="tensor<2x2xf32>",
        ),
        step(views.as_strided_to_view),
        "skip",
    )


def test_an_offset_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<6xf32>",
            "%y = aten.as_strided.default(%x, [2, 2], [2, 1], 2) : (tensor<6xf32>) -> tensor<2x2xf32>",
            gives="tensor<2x2xf32>",
        ),
        step(views.as_strided_to_view),
        "offset",
    )


@pytest.mark.parametrize(
    "line",
    [
        "%a = aten.permute.default(%x, [1, 0]) : (tensor<2x3xf32>) -> tensor<3x2xf32>",
        "%t = aten.permute.default(%x, [1, 0]) : (tensor<2x3xf32>) -> tensor<3x2xf32>; "
        "%a = aten.neg.default(%t) : (tensor<3x2xf32>) -> tensor<3x2xf32>",
        "%t = aten.permute.default(%x, [1, 0]) : (tensor<2x3xf32>) -> tensor<3x2xf32>; "
        "%a = aten.matmul.default(%t, %x) : (tensor<3x2xf32>, tensor<2x3xf32>) -> tensor<3x3xf32>",
    ],
    ids=["permuted", "computed of what is permuted", "a product"],
)
def test_a_computed_operand_has_no_known_strides(refused: Any, method: Any, line: str):
    held = line.rsplit("-> ", 1)[1]
    count = 9 if held == "tensor<3x3xf32>" else 6
    refused(
        method(
            "%x: tensor<2x3xf32>",
            *line.split("; "),
            f"%y = aten.as_strided.default(%a, [{count}], [1]) : ({held}) -> tensor<{count}xf32>",
            gives=f"tensor<{count}xf32>",
        ),
        step(views.as_strided_to_view),
        "memory format",
    )


def test_an_elementwise_result_lies_as_its_operands(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%n = aten.neg.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%a = aten.add.Tensor(%n, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
            "%y = aten.as_strided.default(%a, [6], [1]) : (tensor<2x3xf32>) -> tensor<6xf32>",
            gives="tensor<6xf32>",
        ),
        step(views.as_strided_to_view),
    )
    assert done.ops() == ["aten.neg.default", "aten.add.Tensor", "aten.view.default"]


def test_a_new_tensor_of_one_long_axis_is_dense_in_any_format(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<1x3x4x4xf32>",
            "%a = aten.mean.dim(%x, [2, 3], true) : (tensor<1x3x4x4xf32>) -> tensor<1x3x1x1xf32>",
            "%y = aten.as_strided.default(%a, [1, 3, 1, 1], [3, 1, 3, 3]) : (tensor<1x3x1x1xf32>) -> tensor<1x3x1x1xf32>",
            gives="tensor<1x3x1x1xf32>",
        ),
        step(views.as_strided_to_view),
    )
    assert done.ops() == ["aten.mean.dim"]


LATE = 'tensor<?xf32, #stepwell.shape<["n"]>>'
NEAR_MISSES = {
    "of a symbolic operand": (LATE, "[2, 2], [2, 1]", "tensor<2x2xf32>", "symbolic"),
    "to a symbolic shape": ("tensor<5xf32>", "[%n], [1]", LATE, "symbolic"),
    "with strides of run time": ("tensor<9xf32>", "[2], [%n]", "tensor<2xf32>", "the strides or"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_no_view(name: str, refused: Any, method_of_n: Any):
    given, how, made, reason = NEAR_MISSES[name]
    more = ', !stepwell.int<"n">' if "%n" in how else ""
    call = f"%y = aten.as_strided.default(%x, {how}) : ({given}{more}) -> {made}"
    refused(method_of_n(f"%x: {given}", call, gives=made), step(views.as_strided_to_view), reason)


def test_a_copy_in_row_major_order_is_read_as_it_lies(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<2x3xf32>",
            "%t = aten.permute.default(%x, [1, 0]) : (tensor<2x3xf32>) -> tensor<3x2xf32>",
            "%a = aten.contiguous.default(%t) : (tensor<3x2xf32>) -> tensor<3x2xf32>",
            "%y = aten.as_strided.default(%a, [6], [1]) : (tensor<3x2xf32>) -> tensor<6xf32>",
            gives="tensor<6xf32>",
        ),
        step(views.as_strided_to_view),
    )
    assert done.ops() == ["aten.permute.default", "aten.contiguous.default", "aten.view.default"]

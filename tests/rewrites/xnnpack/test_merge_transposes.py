"""Reshapes that meet, HoistReshapeOverLinear, averages: which shapes may be passed over."""

from typing import Any

import pytest

from stepwell.ir.dtypes import f32
from stepwell.ir.types import tensor
from stepwell.translate.rewrites.xnnpack.nodes.hoist_reshape_over_linear import (
    HoistReshapeOverLinear,
)
from stepwell.translate.rewrites.xnnpack.partitioning.merge_transposes import RULES

ALL = {rule.name: rule() for rule in RULES}

SYMBOLIC = 'tensor<?x4xf32, #stepwell.shape<["s0", 4]>>'


def reshape(given: str, made: str, before: str, after: str, sizes: str) -> str:
    return (
        f"%{made} = xnnpack.static_reshape(%{given}, new_shape=[{sizes}]) : ({before}) -> {after}"
    )


def test_reshapes_of_a_symbolic_size_are_one(apply: Any, method: Any):
    split = 'tensor<?x2x2xf32, #stepwell.shape<["s0", 2, 2]>>'
    whole = 'tensor<?x1x4xf32, #stepwell.shape<["s0", 1, 4]>>'
    lines = (
        reshape("x", "a", SYMBOLIC, split, "0, 2, 2"),
        reshape("a", "y", split, whole, "0, 1, 4"),
    )
    done = apply(method(f"%x: {SYMBOLIC}", *lines, gives=whole), ALL["merge-reshapes"])
    assert done.ops() == ["xnnpack.static_reshape"]


@pytest.mark.parametrize(
    ("first", "kind"),
    [("2", "static_reshape"), ("s0", "static_reshape"), ("s1", "static_transpose")],
)
def test_a_unit_axis_is_moved_by_a_reshape_if_at_most_one_size_is_symbolic(
    first: str, kind: str, apply: Any, method: Any
):
    sizes = [2, 3] if first == "2" else ["s0", 3] if first == "s0" else ["s0", "s1"]
    before, after = (str(tensor(d, f32)) for d in ([sizes[0], 1, sizes[1]], [1, *sizes]))
    line = f"%y = xnnpack.static_transpose(%x, perm=[1, 0, 2]) : ({before}) -> {after}"
    done = apply(method(f"%x: {before}", line, gives=after), ALL["transpose-to-reshape"])
    assert done.ops() == [f"xnnpack.{kind}"]


def layer(
    method: Any, before: str, given: str, made: str, after: str, *, outputs: int = 3, more: str = ""
) -> str:
    """reshape(linear(reshape(x)))."""
    x, a, b, y = (
        f"tensor<{sizes}xf32>" if sizes else "tensor<f32>" for sizes in (before, given, made, after)
    )
    w = f"tensor<{outputs}x4xf32>"
    return method(
        f"%x: {x}",
        f'%w = stepwell.weight <"w"> "parameter" : {w}',
        reshape("x", "a", x, a, given.replace("x", ", ")),
        f"%b = xnnpack.fully_connected(%a, %w) : ({a}, {w}) -> {b}",
        reshape("b", "z" if more else "y", b, y, after.replace("x", ", ")),
        more,
        gives=y,
    )


def test_rows_are_rows_in_any_shape(apply: Any, method: Any):
    text = layer(method, "2x3x4", "6x4", "6x3", "3x2x3")
    assert apply(text, HoistReshapeOverLinear()).count == 1


@pytest.mark.parametrize(("made", "after", "outputs"), [("6x3", "2x9", 3), ("6x2", "3x4", 2)])
def test_a_reshape_that_takes_rows_apart_stays(
    made: str, after: str, outputs: int, refused: Any, method: Any
):
    text = layer(method, "2x3x4", "6x4", made, after, outputs=outputs)
    refused(text, HoistReshapeOverLinear())


def test_a_result_without_axes_stays(refused: Any, method: Any):
    refused(layer(method, "2x2", "1x4", "1x1", "", outputs=1), HoistReshapeOverLinear())


def test_rows_of_what_has_no_axes_stay(refused: Any, method: Any):
    line = reshape("x", "y", "tensor<f32>", "tensor<1xf32>", "1")
    refused(method("%x: tensor<f32>", line, gives="tensor<1xf32>"), HoistReshapeOverLinear())


def test_a_layer_with_another_reader_stays_one(refused: Any, method: Any):
    tall = "tensor<3x2x3xf32>"
    more = f"%y = xnnpack.subtract(%z, %c) : ({tall}, tensor<1x1x3xf32>) -> {tall}"
    cut = "%s = xnnpack.static_slice(%b, offsets=[0, 0], sizes=[1, 3]) : (tensor<6x3xf32>) -> tensor<1x3xf32>"
    row = reshape("s", "c", "tensor<1x3xf32>", "tensor<1x1x3xf32>", "1, 1, 3")
    text = layer(method, "2x3x4", "6x4", "6x3", "3x2x3", more="\n  ".join((cut, row, more)))
    refused(text, HoistReshapeOverLinear())


def test_a_layer_of_rows_that_were_not_reshaped_stays(refused: Any, method: Any):
    lines = (
        '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>',
        "%b = xnnpack.fully_connected(%x, %w) : (tensor<6x4xf32>, tensor<3x4xf32>) -> tensor<6x3xf32>",
        reshape("b", "y", "tensor<6x3xf32>", "tensor<2x3x3xf32>", "2, 3, 3"),
    )
    refused(
        method("%x: tensor<6x4xf32>", *lines, gives="tensor<2x3x3xf32>"), HoistReshapeOverLinear()
    )


def chain(method: Any, *nodes: str, rows: str = "6x4", after: str = "3x2x4") -> str:
    """Square layers and other nodes in a row, a reshape before and one behind."""
    x, flat, y = "tensor<2x3x4xf32>", f"tensor<{rows}xf32>", f"tensor<{after}xf32>"
    lines = [reshape("x", "v0", x, flat, rows.replace("x", ", "))]
    for number, node in enumerate(nodes):
        linear = node == "fully_connected"
        given = f"%v{number}, %w" if linear else f"%v{number}"
        kinds = f"({flat}, tensor<4x4xf32>)" if linear else f"({flat})"
        lines.append(f"%v{number + 1} = xnnpack.{node}({given}) : {kinds} -> {flat}")
    lines.append(reshape(f"v{len(nodes)}", "y", flat, y, after.replace("x", ", ")))
    weight = '%w = stepwell.weight <"w"> "parameter" : tensor<4x4xf32>'
    return method(f"%x: {x}", weight, *lines, gives=y)


@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_chains_of_any_length_are_passed(length: int, apply: Any, method: Any):
    nodes = ("fully_connected", "gelu", "softmax") * length
    done = apply(chain(method, *nodes), HoistReshapeOverLinear(), ALL["merge-reshapes"])
    assert done.ops() == ["xnnpack.static_reshape", *(f"xnnpack.{node}" for node in nodes)]


def test_rows_quantized_at_run_time_are_rows_in_any_shape(apply: Any, method: Any):
    x, flat, y = "tensor<2x3x4xf32>", "tensor<6x4x{}>", "tensor<3x2x5xf32>"
    weight = "!quant.uniform<i8<-127:127>:f32:0, {0.5, 0.25, 0.5, 0.125, 1.0}>"
    rows, made = "!xnnpack.dynamic_int8<1>", "tensor<6x5xf32>"
    lines = (
        '%i = stepwell.weight <"w"> "parameter" : tensor<5x4xi8>',
        f"%w = quant.scast %i : tensor<5x4xi8> to tensor<5x4x{weight}>",
        reshape("x", "a", x, flat.format("f32"), "6, 4"),
        f"%q = xnnpack.convert(%a) : ({flat.format('f32')}) -> {flat.format(rows)}",
        f"%b = xnnpack.fully_connected(%q, %w) : ({flat.format(rows)}, tensor<5x4x{weight}>) -> {made}",
        reshape("b", "y", made, y, "3, 2, 5"),
    )
    done = apply(
        method(f"%x: {x}", *lines, gives=y), HoistReshapeOverLinear(), ALL["merge-reshapes"]
    )
    assert done.ops().count("xnnpack.static_reshape") == 1


def test_a_chain_read_in_its_middle_stays(refused: Any, method: Any):
    text = chain(method, "fully_connected", "gelu", "fully_connected", after="6x1x4")
    flat = "tensor<6x4xf32>"
    more = reshape("v2", "z", flat, "tensor<6x1x4xf32>", "6, 1, 4")
    both = "%s = xnnpack.add(%y, %z) : (tensor<6x1x4xf32>, tensor<6x1x4xf32>) -> tensor<6x1x4xf32>"
    text = text.replace("func.return %y", f"{more}\n  {both}\n  func.return %s")
    refused(text, HoistReshapeOverLinear())


def test_a_reshape_behind_another_node_stays(refused: Any, method: Any):
    x, flat = "tensor<2x3x4xf32>", "tensor<6x4xf32>"
    lines = (
        reshape("x", "a", x, flat, "6, 4"),
        f"%b = xnnpack.abs(%a) : ({flat}) -> {flat}",
        reshape("b", "y", flat, x, "2, 3, 4"),
    )
    refused(method(f"%x: {x}", *lines, gives=x), HoistReshapeOverLinear())


def test_rows_of_a_symbolic_number_stay(refused: Any, method: Any):
    made = 'tensor<?x3xf32, #stepwell.shape<["s0", 3]>>'
    split = 'tensor<?x2x2xf32, #stepwell.shape<["s0", 2, 2]>>'
    after = 'tensor<?x1x3xf32, #stepwell.shape<["s0", 1, 3]>>'
    lines = (
        '%w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>',
        reshape("x", "a", split, SYMBOLIC, "0, 4"),
        f"%b = xnnpack.fully_connected(%a, %w) : ({SYMBOLIC}, tensor<3x4xf32>) -> {made}",
        reshape("b", "y", made, after, "0, 1, 3"),
    )
    refused(method(f"%x: {split}", *lines, gives=after), HoistReshapeOverLinear())


def test_a_reshape_of_an_argument_is_no_average(refused: Any, method: Any):
    line = reshape("x", "y", "tensor<2x1x1x8xf32>", "tensor<2x8xf32>", "2, 8")
    refused(
        method("%x: tensor<2x1x1x8xf32>", line, gives="tensor<2x8xf32>"), ALL["drop-averaged-axes"]
    )


def test_axes_that_an_average_has_dropped_are_not_dropped_again(refused: Any, method: Any):
    x, y, z = "tensor<1x6x1x8xf32>", "tensor<1x8xf32>", "tensor<8xf32>"
    lines = (
        f"%a = xnnpack.global_average_pooling_2d(%x) : ({x}) -> {y}",
        reshape("a", "y", y, z, "8"),
    )
    refused(method(f"%x: {x}", *lines, gives=z), ALL["drop-averaged-axes"])

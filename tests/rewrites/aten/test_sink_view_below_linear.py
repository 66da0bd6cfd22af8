"""A view sinks below a layer only if it keeps the features and only layers read it."""

from typing import Any

import torch

from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.translate.rewrites.layers.sink_view_below_linear import RULES

(RULE,) = RULES.named("sink-view-below-linear")

X, V, Y = "tensor<2x3x4xf32>", "tensor<6x4xf32>", "tensor<6x5xf32>"
WEIGHT = '%w = stepwell.weight <"w"> "parameter" : tensor<5x4xf32>'
VIEW = f"%v = aten.view.default(%x, [6, 4]) : ({X}) -> {V}"
LAYER = f"%l = aten.linear.default(%v, %w) : ({V}, tensor<5x4xf32>) -> {Y}"


def test_a_view_that_changes_the_features_stays(refused: Any, method: Any) -> None:
    view = "%v = aten.view.default(%x, [6, 4]) : (tensor<3x8xf32>) -> tensor<6x4xf32>"
    layer = LAYER.replace("%l", "%y")
    text = method("%x: tensor<3x8xf32>", WEIGHT, view, layer, gives=Y)
    refused(text, RULE)


def test_a_vector_that_becomes_a_row_stays(refused: Any, method: Any) -> None:
    view = "%v = aten.view.default(%x, [1, 4]) : (tensor<4xf32>) -> tensor<1x4xf32>"
    layer = (
        "%y = aten.linear.default(%v, %w) : (tensor<1x4xf32>, tensor<5x4xf32>) -> tensor<1x5xf32>"
    )
    text = method("%x: tensor<4xf32>", WEIGHT, view, layer, gives="tensor<1x5xf32>")
    refused(text, RULE)


def test_a_view_that_others_read_stays(refused: Any, method: Any) -> None:
    more = f"%n = aten.neg.default(%v) : ({V}) -> {V}"
    other = f"%m = aten.linear.default(%n, %w) : ({V}, tensor<5x4xf32>) -> {Y}"
    end = f"%y = aten.add.Tensor(%l, %m) : ({Y}, {Y}) -> {Y}"
    text = method(f"%x: {X}", WEIGHT, VIEW, LAYER, more, other, end, gives=Y)
    refused(text, RULE, "reads the view too")


def test_a_view_that_is_a_layer_s_weight_stays(refused: Any, method: Any) -> None:
    layer = f"%l = aten.linear.default(%v, %w) : ({V}, tensor<5x4xf32>) -> {Y}"
    other = f"%y = aten.linear.default(%w, %v) : (tensor<5x4xf32>, {V}) -> tensor<5x6xf32>"
    end = f"%z = aten.permute.default(%l, [1, 0]) : ({Y}) -> tensor<5x6xf32>"
    both = "%y = aten.add.Tensor(%z, %o) : (tensor<5x6xf32>, tensor<5x6xf32>) -> tensor<5x6xf32>"
    lines = (WEIGHT, VIEW, layer, other.replace("%y", "%o", 1), end, both)
    text = method(f"%x: {X}", *lines, gives="tensor<5x6xf32>")
    refused(text, RULE, "reads the view too")


def test_a_layer_of_no_view_stays(refused: Any, method: Any) -> None:
    layer = f"%y = aten.linear.default(%x, %w) : ({V}, tensor<5x4xf32>) -> {Y}"
    refused(method(f"%x: {V}", WEIGHT, layer, gives=Y), RULE)


def test_a_layer_without_output_features_keeps_its_view(refused: Any, method: Any) -> None:
    weights = '%w = stepwell.weight <"w"> "parameter" : tensor<4xf32>'
    layer = f"%y = aten.linear.default(%v, %w) : ({V}, tensor<4xf32>) -> tensor<6xf32>"
    text = method(f"%x: {X}", weights, VIEW, layer, gives="tensor<6xf32>")
    refused(text, RULE, "vector")


B, R = '#stepwell.shape<["s0*s1", {}]>', '#stepwell.shape<["s0", "s1", {}]>'


def test_rows_of_two_unknown_lengths_are_regrouped_behind_the_layer(
    programs: Any, method: Any
) -> None:
    rows, flat = f"tensor<?x?x4xf32, {R.format(4)}>", f"tensor<?x4xf32, {B.format(4)}>"
    made = f"tensor<?x5xf32, {B.format(5)}>"
    view = f"%v = aten.view.default(%x, [-1, 4]) : ({rows}) -> {flat}"
    layer = f"%y = aten.linear.default(%v, %w) : ({flat}, tensor<5x4xf32>) -> {made}"
    program, _ = programs(method(f"%x: {rows}", WEIGHT, view, layer, gives=made))
    x = torch.randn(2, 3, 4)
    wanted = program.run(x)
    assert run_rewrites(program, [RULE]) == 1
    torch.testing.assert_close(program.run(x), wanted)


def test_rows_cut_in_two_unknown_lengths_are_cut_before_the_layer(
    programs: Any, method: Any
) -> None:
    flat, rows = f"tensor<?x4xf32, {B.format(4)}>", f"tensor<?x?x4xf32, {R.format(4)}>"
    like, made = (
        'tensor<?x?xf32, #stepwell.shape<["s0", "s1"]>>',
        f"tensor<?x?x5xf32, {R.format(5)}>",
    )
    text = method(
        f"%x: {flat}, %z: {like}",
        WEIGHT,
        f'%a = aten.sym_size.int(%z, 0) : ({like}) -> !stepwell.int<"s0">',
        f'%b = aten.sym_size.int(%z, 1) : ({like}) -> !stepwell.int<"s1">',
        f'%v = aten.view.default(%x, [%a, %b, 4]) : ({flat}, !stepwell.int<"s0">, !stepwell.int<"s1">) -> {rows}',
        f"%y = aten.linear.default(%v, %w) : ({rows}, tensor<5x4xf32>) -> {made}",
        gives=made,
    )
    program, _ = programs(text)
    history = History()
    assert run_rewrites(program, [RULE], history) == 0
    assert "s0, s1 are computed" in next(iter(history.refusals.values())).reason

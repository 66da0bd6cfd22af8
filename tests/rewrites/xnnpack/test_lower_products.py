"""`lower-linear`, `lower-matmul` and `unmerge-batch`: which factors their nodes read."""

from typing import Any

import pytest

from stepwell.translate.decompositions.products import unmerge_batch
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import products

X, W, Y = "tensor<2x4xf32>", "tensor<3x4xf32>", "tensor<2x3xf32>"
WEIGHT = f'%w = stepwell.weight <"w"> "parameter" : {W}'
ROWS = 'tensor<?x4xf32, #stepwell.shape<["s0", 4]>>'


def test_a_weight_of_one_output_without_an_axis_is_refused(refused: Any, method: Any):
    weight = '%w = stepwell.weight <"w"> "parameter" : tensor<4xf32>'
    line = f"%y = aten.linear.default(%x, %w) : ({X}, tensor<4xf32>) -> tensor<2xf32>"
    text = method(f"%x: {X}", weight, line, gives="tensor<2xf32>")
    refused(text, step(products.linear), "the weight is a vector")


def test_a_bias_computed_at_run_time_is_refused(refused: Any, method: Any):
    line = f"%y = aten.linear.default(%x, %w, %b) : ({X}, {W}, tensor<3xf32>) -> {Y}"
    text = method(f"%x: {X}, %b: tensor<3xf32>", WEIGHT, line, gives=Y)
    refused(text, step(products.linear), "the bias is computed")


def test_a_weight_of_symbolic_size_is_refused(refused: Any, method: Any):
    gives = 'tensor<2x?xf32, #stepwell.shape<[2, "s0"]>>'
    line = f"%y = aten.linear.default(%x, %w) : ({X}, {ROWS}) -> {gives}"
    text = method(f"%x: {X}, %w: {ROWS}", line, gives=gives)
    refused(text, step(products.linear), "dimension s0 is symbolic")


@pytest.mark.parametrize("bias", ["", ", %b"])
def test_a_linear_layer_of_constants_is_a_node(bias: str, apply: Any, method: Any):
    more = ", tensor<3xf32>" if bias else ""
    line = f"%y = aten.linear.default(%x, %w{bias}) : ({X}, {W}{more}) -> {Y}"
    held = '%b = stepwell.weight <"b"> "parameter" : tensor<3xf32>'
    done = apply(method(f"%x: {X}", WEIGHT, held, line, gives=Y), step(products.linear))
    assert done.ops() == ["xnnpack.fully_connected"]


def test_a_product_with_a_vector_is_refused(refused: Any, method: Any):
    line = f"%y = aten.matmul.default(%x, %z) : ({X}, tensor<4xf32>) -> tensor<2xf32>"
    text = method(f"%x: {X}, %z: tensor<4xf32>", line, gives="tensor<2xf32>")
    refused(text, step(products.matmul), "an operand is a vector")


def test_a_symbolic_product_of_other_ranks_is_refused(refused: Any, method: Any):
    stack, z = "tensor<5x2x4xf32>", 'tensor<4x?xf32, #stepwell.shape<[4, "s0"]>>'
    gives = 'tensor<5x2x?xf32, #stepwell.shape<[5, 2, "s0"]>>'
    line = f"%y = aten.matmul.default(%x, %z) : ({stack}, {z}) -> {gives}"
    text = method(f"%x: {stack}, %z: {z}", line, gives=gives)
    refused(text, step(products.matmul), "the operand of fewer axes has a symbolic size")


def test_a_matrix_times_a_stack_of_open_batch_is_a_node(apply: Any, method: Any):
    stack = 'tensor<?x4x2xf32, #stepwell.shape<["s0", 4, 2]>>'
    z, gives = "tensor<3x4xf32>", 'tensor<?x3x2xf32, #stepwell.shape<["s0", 3, 2]>>'
    line = f"%y = aten.matmul.default(%z, %x) : ({z}, {stack}) -> {gives}"
    done = apply(method(f"%x: {stack}, %z: {z}", line, gives=gives), step(products.matmul))
    assert "xnnpack.batch_matrix_multiply" in done.ops()


def test_a_product_of_other_ranks_is_a_node(apply: Any, method: Any):
    stack, z, gives = "tensor<5x2x4xf32>", "tensor<4x3xf32>", "tensor<5x2x3xf32>"
    line = f"%y = aten.matmul.default(%x, %z) : ({stack}, {z}) -> {gives}"
    done = apply(method(f"%x: {stack}, %z: {z}", line, gives=gives), step(products.matmul))
    assert "xnnpack.batch_matrix_multiply" in done.ops()


STACK, MERGED = "tensor<2x3x4x4xf32>", "tensor<6x4x4xf32>"
VIEW = f"%a = aten.view.default(%x, [6, 4, 4]) : ({STACK}) -> {MERGED}"
PRODUCT = f"%y = aten.bmm.default(%a, %z) : ({MERGED}, {MERGED}) -> {MERGED}"


def test_a_product_of_stacks_that_no_view_merged_stays(refused: Any, method: Any):
    text = method(f"%a: {MERGED}, %z: {MERGED}", PRODUCT, gives=MERGED)
    refused(text, step(unmerge_batch))


def test_a_product_with_one_merged_stack_stays(refused: Any, method: Any):
    text = method(f"%x: {STACK}, %z: {MERGED}", VIEW, PRODUCT, gives=MERGED)
    refused(text, step(unmerge_batch), "the other and the result are not")


def test_stacks_merged_from_other_batches_give_the_same_product(apply: Any, method: Any):
    other = "tensor<3x2x4x4xf32>"
    second = f"%z = aten.view.default(%o, [6, 4, 4]) : ({other}) -> {MERGED}"
    text = method(f"%x: {STACK}, %o: {other}", VIEW, second, PRODUCT, gives=MERGED)
    assert apply(text, step(unmerge_batch)).count == 1


QUERIES = "tensor<1x6x4x8xf32>"
BETWEEN = (
    f"%l = aten.view.default(%a, [2, 12, 8]) : ({QUERIES}) -> tensor<2x12x8xf32>",
    "%r = aten.view.default(%b, [2, 8, 5]) : (tensor<1x2x8x5xf32>) -> tensor<2x8x5xf32>",
    "%p = aten.bmm.default(%l, %r) : (tensor<2x12x8xf32>, tensor<2x8x5xf32>) -> tensor<2x12x5xf32>",
)
SPLIT = "%y = aten.view.default(%p, [1, 6, 4, 5]) : (tensor<2x12x5xf32>) -> tensor<1x6x4x5xf32>"


def test_keys_that_heads_share_are_not_merged_where_views_stand_around(apply: Any, method: Any):
    arguments, gives = f"%a: {QUERIES}, %b: tensor<1x2x8x5xf32>", "tensor<1x6x4x5xf32>"
    done = apply(method(arguments, *BETWEEN, SPLIT, gives=gives), step(unmerge_batch))
    assert done.count == 1 and "aten.matmul.default" in done.ops()


def test_keys_are_merged_where_a_reader_would_need_another_view(refused: Any, method: Any):
    arguments, gives = f"%a: {QUERIES}, %b: tensor<1x2x8x5xf32>", "tensor<2x12x5xf32>"
    relu = "%y = aten.relu.default(%p) : (tensor<2x12x5xf32>) -> tensor<2x12x5xf32>"
    refused(method(arguments, *BETWEEN, relu, gives=gives), step(unmerge_batch), "not")

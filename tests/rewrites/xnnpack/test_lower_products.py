"""`lower-linear`, `lower-matmul` and `unmerge-batch`: which factors their nodes read."""

from rewrite_cases import cases

from stepwell.translate.decompositions.products import unmerge_batch
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import products

test_lower_products = cases(
    products,
    step(unmerge_batch),
    """
lower-linear: a weight of one output without an axis -> refused: the weight is a vector
    %y = aten.linear.default(%x: f32[2, 4], %w: weight f32[4])
lower-linear: a bias computed at run time -> refused: the bias is computed
    %y = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: f32[3])
lower-linear: a weight of symbolic size -> refused: dimension s0 is symbolic
    %y = aten.linear.default(%x: f32[2, 4], %w: f32[s0, 4])
lower-linear: a linear layer of constants is a node -> xnnpack.fully_connected
    - %y = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4])
    - %y = aten.linear.default(%x: f32[2, 4], %w: weight f32[3, 4], %b: weight f32[3])
lower-matmul: a product with a vector -> refused: an operand is a vector
    %y = aten.matmul.default(%x: f32[2, 4], %z: f32[4])
lower-matmul: a symbolic product of other ranks -> refused: the operand of fewer axes has a symbolic size
    %y = aten.matmul.default(%x: f32[5, 2, 4], %z: f32[4, s0])
lower-matmul: a matrix times a stack of open batch is a node -> aten.view.default, xnnpack.batch_matrix_multiply
    %y = aten.matmul.default(%z: f32[3, 4], %x: f32[s0, 4, 2])
lower-matmul: a product of other ranks is a node -> aten.view.default, xnnpack.batch_matrix_multiply
    %y = aten.matmul.default(%x: f32[5, 2, 4], %z: f32[4, 3])
unmerge-batch: a product of stacks that no view merged -> unchanged
    %y = aten.bmm.default(%a: f32[6, 4, 4], %z: f32[6, 4, 4])
unmerge-batch: a product with one merged stack -> refused: the other and the result are not
    %a = aten.view.default(%x: f32[2, 3, 4, 4], [6, 4, 4])
    %y = aten.bmm.default(%a, %z: f32[6, 4, 4])
unmerge-batch: stacks merged from other batches give the same product -> applied once
    %a = aten.view.default(%x: f32[2, 3, 4, 4], [6, 4, 4])
    %z = aten.view.default(%o: f32[3, 2, 4, 4], [6, 4, 4])
    %y = aten.bmm.default(%a, %z)
unmerge-batch: keys that heads share are not merged where views stand around -> aten.view.default, aten.view.default, aten.matmul.default, aten.view.default, aten.view.default
    %l = aten.view.default(%a: f32[1, 6, 4, 8], [2, 12, 8])
    %r = aten.view.default(%b: f32[1, 2, 8, 5], [2, 8, 5])
    %p = aten.bmm.default(%l, %r)
    %y = aten.view.default(%p, [1, 6, 4, 5])
unmerge-batch: keys are merged where a reader would need another view -> refused: not
    %l = aten.view.default(%a: f32[1, 6, 4, 8], [2, 12, 8])
    %r = aten.view.default(%b: f32[1, 2, 8, 5], [2, 8, 5])
    %p = aten.bmm.default(%l, %r)
    %y = aten.relu.default(%p)
""",
)

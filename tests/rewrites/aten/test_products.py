"""Convolutions and matrix products in one form, and what keeps its own."""

from functools import partial

import pytest
import torch
from eager import assert_as_eager, assert_whole, lower
from rewrite_cases import cases

import stepwell
from stepwell.translate.decompositions import products

test_products = cases(products)("""
conv-to-convolution: a convolution in normal form -> unchanged
    %y = aten.convolution.default(%x: f32[1, 3, 4, 4], %w: f32[2, 3, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
conv-to-convolution: an unbatched input gets a batch -> aten.view.default, aten.convolution.default, aten.view.default
    %y = aten.conv1d.default(%x: f32[3, 7], %w: f32[2, 3, 3], none, [2], [1])
conv-to-convolution: a transposed convolution keeps its output padding -> aten.convolution.default
    %y = aten.conv_transpose2d.input(%x: f32[1, 4, 3, 3], %w: f32[4, 1, 3, 3], none, [2, 2], [1, 1], [1, 1], 2)
conv-to-convolution: a kernel of symbolic length -> refused: kernel is symbolic
    %y = aten.conv1d.default(%x: f32[1, 3, 7], %w: f32[2, 3, n]) -> f32[1, 2, 8 - n]
conv-to-convolution: a padding known only at run time -> refused: run time
    %y = aten.conv1d.default(%x: f32[1, 3, 7], %w: f32[2, 3, 3], none, [1], [%n: int<n>])
matmul-to-bmm: a product with a weight is left to linear -> unchanged
    %y = aten.mm.default(%x: f32[2, 3], %w: weight f32[3, 4])
matmul-to-bmm: factors -> refused: alpha or beta
    %y = aten.baddbmm.default(%b: f32[1, 2, 4], %x: f32[1, 2, 3], %w: f32[1, 3, 4], alpha=2)
matmul-to-bmm: a dot product is one row times one column -> aten.view.default, aten.view.default, aten.bmm.default, aten.view.default
    %y = aten.dot.default(%x: f32[3], %w: f32[3])
matmul-to-bmm: a matrix on the right of a batch is not repeated -> aten.view.default, aten.view.default, aten.bmm.default, aten.view.default
    %y = aten.matmul.default(%x: f32[5, 2, 3], %w: f32[3, 4])
matmul-to-bmm: a symbolic side -> refused: symbolic
    - %y = aten.matmul.default(%x: f32[n, 3], %z: f32[3, 3])
    - %y = aten.matmul.default(%x: f32[2, 3], %z: f32[3, n])
matmul-to-linear: a product with a computed matrix -> unchanged
    %y = aten.mm.default(%x: f32[2, 3], %w: f32[3, 4])
matmul-to-linear: factors -> refused: alpha or beta
    %y = aten.addmm.default(%b: f32[4], %x: f32[2, 3], %w: weight f32[3, 4], beta=2)
matmul-to-linear: a residual in addmm is added after -> aten.linear.default, aten.add.Tensor
    %y = aten.addmm.default(%b: f32[2, 4], %x: f32[2, 3], %w: weight f32[3, 4])
matmul-to-linear: a batch times a weight is one linear -> aten.linear.default
    %y = aten.matmul.default(%x: f32[5, 2, 3], %w: weight f32[3, 4])
matmul-to-linear: a product with a vector is no layer -> unchanged
    %y = aten.matmul.default(%x: f32[2, 3], %w: weight f32[3])
normalize-reduction: indices that are used keep the op -> refused: indices
    %a, %y = aten.max.dim(%x: f32[2, 3], 1); return %y
normalize-reduction: a mean in normal form -> unchanged
    %y = aten.mean.dim(%x: f32[2, 3], [1], true)
normalize-reduction: a sum of integers casts them as torch does -> aten._to_copy.default, aten.sum.dim_IntList, aten.view.default
    %y = aten.sum.dim_IntList(%x: i32[2, 3], [1])
normalize-reduction: a dtype casts the operand first -> aten._to_copy.default, aten.mean.dim
    %y = aten.mean.dim(%x: f32[2, 3], [0], true, dtype=f64)
normalize-reduction: a number has no axes to reduce -> unchanged
    %y = aten.sum.default(%x: f32[])
einsum-to-bmm: a diagonal -> refused: diagonal
    %y = aten.einsum.default("ii,ij->ij", [%x: f32[3, 3], %z: f32[3, 2]])
einsum-to-bmm: three tensors -> refused: 3 tensors
    %y = aten.einsum.default("i,i,i->i", [%x: f32[3], %x, %x])
einsum-to-bmm: a sum within one operand -> refused: in one operand only
    %y = aten.einsum.default("ij,i->i", [%x: f32[3, 4], %z: f32[3]])
einsum-to-bmm: an outer product has nothing to sum -> aten.view.default, aten.view.default, aten.bmm.default, aten.view.default, aten.permute.default
    %y = aten.einsum.default("i,j->ji", [%x: f32[3], %z: f32[4]])
einsum-to-bmm: two dtypes -> refused: several dtypes
    %y = aten.einsum.default("ij,k->ijk", [%x: f32[3, 4], %z: f64[2]])
einsum-to-bmm: an axis of 1 -> refused: broadcast
    %y = aten.einsum.default("ij,ij->ij", [%x: f32[3, 4], %z: f32[1, 4]])
einsum-to-bmm: dynamic sizes and no sum -> refused: the shapes are symbolic, and no letter is summed
    %y = aten.einsum.default("ij,ij->ij", [%x: f32[n, 4], %z: f32[n, 4]])
""")


OPEN = {
    "a matrix beside a batch": ("bhij,hg->bgij", "b345", "36"),
    "a matrix before a batch": ("hg,bhij->bgij", "36", "b345"),
    "a weight of several axes": ("rhdi,brni->brhnd", "2345", "b265"),
    "a batch of weights": ("bhnd,hmn->bhmd", "b345", "374"),
    "sums over two axes": ("bcij,bkij->bkc", "b345", "b645"),
    "an ellipsis": ("...ij,...jk->...ki", "b345", "b356"),
    "an ellipsis of more axes than the other": ("...j,...kj->...k", "b345", "b3475"),
    "an ellipsis and a matrix, a result that is implied": ("...aj,jk", "b345", "56"),
    "a result that is implied": ("bjh,ja", "b34", "35"),
    "an open axis that is summed": ("bij,kbj->ik", "b34", "5b4"),
}


@pytest.mark.parametrize("name", OPEN)
def test_a_sum_of_products_with_an_open_size_is_one_product(name: str):
    equation, *shapes = OPEN[name]
    size = torch.export.Dim("b", min=1, max=9)
    open_axes = [{shape.index("b"): size} if "b" in shape else None for shape in shapes]
    summed = partial(torch.einsum, equation)
    given = {
        n: [torch.randn([n if i == "b" else int(i) for i in s]) for s in shapes] for n in (1, 2, 5)
    }
    lowered = lower(summed, *given[2], dynamic=open_axes)
    assert_whole(lowered)
    for inputs in given.values():
        assert_as_eager(lowered, summed, *inputs, rtol=1e-5, atol=1e-5)


def test_pieces_that_divide_by_a_size_of_nothing_end_no_lowering():
    inputs = torch.randn(2, 3, 4), torch.randn(4, 5), torch.randn(5, 3)
    open_axes = ({1: torch.export.Dim("b", min=0, max=9)}, None, None)
    with pytest.raises(stepwell.StepwellError, match=r"einsum.*no kernel"):
        lower(partial(torch.einsum, "abc,cd,de->abe"), *inputs, dynamic=open_axes)

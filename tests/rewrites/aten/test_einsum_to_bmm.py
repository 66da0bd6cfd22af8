"""EinsumToBmm: beyond its documented example, and what it leaves alone."""

from typing import Any

import pytest
import torch

import stepwell
from stepwell.translate.decompositions.aten import products
from stepwell.translate.lowerings.lowering import step


def test_a_diagonal_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x3xf32>, %z: tensor<3x2xf32>",
            '%y = aten.einsum.default("ii,ij->ij", [%x, %z]) : (tensor<3x3xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>',
            gives="tensor<3x2xf32>",
        ),
        step(products.einsum_to_bmm),
        "diagonal",
    )


def test_three_tensors_are_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3xf32>",
            '%y = aten.einsum.default("i,i,i->i", [%x, %x, %x]) : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>',
            gives="tensor<3xf32>",
        ),
        step(products.einsum_to_bmm),
        "3 tensors",
    )


def test_a_sum_within_one_operand_is_refused(refused: Any, method: Any):
    refused(
        method(
            "%x: tensor<3x4xf32>, %z: tensor<3xf32>",
            '%y = aten.einsum.default("ij,i->i", [%x, %z]) : (tensor<3x4xf32>, tensor<3xf32>) -> tensor<3xf32>',
            gives="tensor<3xf32>",
        ),
        step(products.einsum_to_bmm),
        "within one",
    )


def test_an_outer_product_has_nothing_to_sum(apply: Any, method: Any):
    done = apply(
        method(
            "%x: tensor<3xf32>, %z: tensor<4xf32>",
            '%y = aten.einsum.default("i,j->ji", [%x, %z]) : (tensor<3xf32>, tensor<4xf32>) -> tensor<4x3xf32>',
            gives="tensor<4x3xf32>",
        ),
        step(products.einsum_to_bmm),
    )
    assert done.ops() == [
        "aten.view.default",
        "aten.view.default",
        "aten.bmm.default",
        "aten.view.default",
        "aten.permute.default",
    ]


ONE = "tensor<3x4xf32>"
LATE = 'tensor<?x4xf32, #stepwell.shape<["n", 4]>>'
NEAR_MISSES = {
    "two dtypes": ("ij,k->ijk", ONE, "tensor<2xf64>", "tensor<3x4x2xf64>", "several dtypes"),
    "an axis of 1": ("ij,ij->ij", ONE, "tensor<1x4xf32>", ONE, "broadcast"),
    "open sizes and no sum": ("ij,ij->ij", LATE, LATE, LATE, "nothing is summed"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_sum_of_products_stays_with(name: str, refused: Any, method: Any):
    equation, one, other, made, reason = NEAR_MISSES[name]
    call = f'%y = aten.einsum.default("{equation}", [%x, %z]) : ({one}, {other}) -> {made}'
    refused(
        method(f"%x: {one}, %z: {other}", call, gives=made), step(products.einsum_to_bmm), reason
    )


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

    class Summed(torch.nn.Module):
        def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return torch.einsum(equation, x, z)

    def inputs(batch: int) -> tuple[torch.Tensor, ...]:
        return tuple(
            torch.randn([batch if n == "b" else int(n) for n in shape]) for shape in shapes
        )

    size = torch.export.Dim("b", min=1, max=9)
    open_axes = tuple({shape.index("b"): size} if "b" in shape else None for shape in shapes)
    exported = torch.export.export(Summed(), inputs(2), dynamic_shapes=open_axes)
    lowered = stepwell.lower(exported, "xnnpack")
    assert (lowered.report.delegates, dict(lowered.report.outside)) == (1, {})
    for batch in (1, 2, 5):
        given = inputs(batch)
        torch.testing.assert_close(lowered.run(*given)[0], Summed()(*given), rtol=1e-5, atol=1e-5)


def test_pieces_that_divide_by_a_size_of_nothing_end_no_lowering():
    class Three(torch.nn.Module):
        def forward(self, x: torch.Tensor, z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.einsum("abc,cd,de->abe", x, z, w)

    inputs = torch.randn(2, 3, 4), torch.randn(4, 5), torch.randn(5, 3)
    open_axes = ({1: torch.export.Dim("b", min=0, max=9)}, None, None)
    exported = torch.export.export(Three(), inputs, dynamic_shapes=open_axes)
    with pytest.raises(stepwell.StepwellError, match=r"einsum.*no kernel"):
        stepwell.lower(exported, "xnnpack")

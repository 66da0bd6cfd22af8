"""What is known only at run time: rewrites that need a number leave the op alone, and say so."""

from typing import Any

import pytest

from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.translate.canonicalize import activations, neutral_arithmetic, powers, sums
from stepwell.translate.decompositions.aten import normalizations, products, slices, views
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.rewrites.norms import norms
from stepwell.translate.rewrites.slices import pads

TWO = '%n = aten.sym_size.int(%z, 0) : (tensor<2xf32>) -> !stepwell.int<"2">'
X = "tensor<9x3xf32>"
RULE = {
    rule.name: rule()
    for module in (activations, neutral_arithmetic, norms, powers, sums)
    for rule in module.RULES
}


def symbolic(*shape: int | str) -> str:
    """A float tensor type whose sizes may be expressions."""
    sizes = "x".join("?" if isinstance(d, str) else str(d) for d in shape)
    stated = ", ".join(f'"{d}"' if isinstance(d, str) else str(d) for d in shape)
    return f"tensor<{sizes}xf32, #stepwell.shape<[{stated}]>>"


@pytest.mark.parametrize(
    ("rewrite", "call", "shape", "reason"),
    [
        (step(slices.normalize_selection), "select.int(%x, 0, %n)", "3", "index"),
        (step(slices.normalize_slice), "narrow.default(%x, 0, %n, 2)", "2x3", "bounds"),
        (step(slices.normalize_slice), "narrow.default(%x, 0, 0, %n)", "2x3", "bounds"),
        (step(slices.normalize_slice), "slice.Tensor(%x, 0, 0, %n)", "2x3", "bounds"),
        (pads, "pad.default(%x, [0, %n])", "9x5", "padding"),
        (pads, "pad.default(%x, [0, 1], value=%n)", "9x4", "padding"),
        (step(slices.pad_to_slices), "reflection_pad1d.default(%x, [0, %n])", "9x5", "padding"),
        (RULE["power-to-square"], "pow.Tensor_Scalar(%x, %n)", "9x3", ""),
        (RULE["remove-neutral-sum"], "add.Scalar(%x, 0, %n)", "9x3", "alpha"),
        (step(views.repeat_to_expand), "repeat.default(%x, [1, %n])", "9x6", "counts"),
        (step(views.repeat_to_expand), "repeat_interleave.self_int(%x, %n, 1)", "9x6", "count"),
        (step(slices.roll_to_cat), "roll.default(%x, [%n], [1])", "9x3", "shift"),
        (RULE["softshrink-to-clamp"], "softshrink.default(%x, %n)", "9x3", "lambd"),
        (RULE["split-alpha-of-add"], "add.Tensor(%x, %x, alpha=%n)", "9x3", "alpha"),
        (RULE["split-elu-scale"], "elu.default(%x, %n)", "9x3", "alpha"),
        (step(views.strided_slice_to_view), "slice.Tensor(%x, 0, 1, 9, %n)", "4x3", "step"),
        (step(views.strided_slice_to_view), "slice.Tensor(%x, 0, %n, 9, 2)", "4x3", "bound"),
        (step(views.strided_slice_to_view), "slice.Tensor(%x, 0, 0, %n, 2)", "1x3", "bound"),
    ],
    ids=lambda value: value.split("(")[0] if isinstance(value, str) else type(value).__name__,
)
def test_a_number_that_is_not_written_down_is_none_to_rewrite_with(
    rewrite: Rewrite[Any], call: str, shape: str, reason: str, refused: Any, method: Any
) -> None:
    given = ", ".join([X] * call.count("%x") + ['!stepwell.int<"2">'])
    line = f"%y = aten.{call} : ({given}) -> tensor<{shape}xf32>"
    text = method(f"%x: {X}, %z: tensor<2xf32>", TWO, line, gives=f"tensor<{shape}xf32>")
    refused(text, rewrite, reason)


@pytest.mark.parametrize(
    ("rewrite", "call", "given", "gives", "reason"),
    [
        (
            step(slices.normalize_slice),
            "narrow.default(%x, 0, -2, 2)",
            ("s0", 3),
            (2, 3),
            "size s0",
        ),
        (
            RULE["instance-norm-to-group-norm"],
            "instance_norm.default(%x, none, none, none, none, true, 0.1, 1.0e-5, false)",
            (2, "s0", 4),
            (2, "s0", 4),
            "channels",
        ),
        (
            step(views.pixel_shuffle_to_permute),
            "channel_shuffle.default(%x, 2)",
            (2, 4, "s0", 3),
            (2, 4, "s0", 3),
            "symbolic",
        ),
        (step(slices.roll_to_cat), "roll.default(%x, [1], [0])", ("s0", 3), ("s0", 3), "symbolic"),
        (
            step(normalizations.variance_to_means),
            "var.correction(%x, [1, 2], correction=1)",
            (2, "s0", 3),
            (2,),
            "symbolic",
        ),
        (
            step(views.normalize_expand),
            "expand_copy.default(%x, [-1, 3])",
            ("s0", 3),
            ("s0", 3),
            "",
        ),
    ],
    ids=lambda value: value.split(".")[0] if isinstance(value, str) else type(value).__name__,
)
def test_an_axis_of_unknown_length_stays(
    rewrite: Rewrite[Any],
    call: str,
    given: tuple[int | str, ...],
    gives: tuple[int | str, ...],
    reason: str,
    refused: Any,
    method: Any,
) -> None:
    made = symbolic(*gives) if "s0" in gives else f"tensor<{'x'.join(map(str, gives))}xf32>"
    line = f"%y = aten.{call} : ({symbolic(*given)}) -> {made}"
    refused(method(f"%x: {symbolic(*given)}", line, gives=made), rewrite, reason)


@pytest.mark.parametrize(
    ("rewrite", "call", "given", "gives"),
    [
        (step(views.normalize_expand), "broadcast_to.default(%x, [2, 5, 0])", ("s0", 0), (2, 5, 0)),
        (step(products.normalize_reduction), "sum.dim_IntList(%x, [0])", (2, 0, "s0"), (0, "s0")),
        (step(slices.normalize_selection), "select.int(%x, 0, 1)", (2, 0, "s0"), (0, "s0")),
        (step(views.reshape_to_view), "unsqueeze.default(%x, 0)", (2, 0, "s0"), (1, 2, 0, "s0")),
        (step(slices.split_to_slices), "unbind.int(%x)", (1, 0, "s0"), (0, "s0")),
        (step(slices.stack_to_cat), "stack.default([%x, %x])", (0, "s0"), (2, 0, "s0")),
        (
            step(normalizations.variance_to_means),
            "var.correction(%x, [0], correction=0)",
            (2, 0, "s0"),
            (0, "s0"),
        ),
    ],
    ids=lambda value: value.split(".")[0] if isinstance(value, str) else type(value).__name__,
)
def test_the_open_size_of_an_empty_tensor_cannot_be_left_to_a_view(
    rewrite: Rewrite[Any],
    call: str,
    given: tuple[int | str, ...],
    gives: tuple[int | str, ...],
    refused: Any,
    method: Any,
) -> None:
    made = symbolic(*gives) if "s0" in gives else f"tensor<{'x'.join(map(str, gives))}xf32>"
    operands = ", ".join([symbolic(*given)] * call.count("%x"))
    line = f"%y = aten.{call} : ({operands}) -> {made}"
    refused(method(f"%x: {symbolic(*given)}", line, gives=made), rewrite, "no -1")


def test_parts_of_unknown_length_are_cut_at_run_time(apply: Any, method: Any) -> None:
    line = (
        "%y, %a = aten.split_with_sizes.default(%x, [2, %n]) : "
        f'(tensor<7xf32>, !stepwell.int<"s0">) -> (tensor<2xf32>, {symbolic("s0")})'
    )
    size = f'%n = aten.sym_size.int(%z, 0) : ({symbolic("s0")}) -> !stepwell.int<"s0">'
    text = method(f"%x: tensor<7xf32>, %z: {symbolic('s0')}", size, line, gives="tensor<2xf32>")
    done = apply(text, step(slices.split_to_slices))
    assert done.ops() == ["aten.slice.Tensor"]

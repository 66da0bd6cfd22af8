"""Normalizations in XNNPACK's nodes: linear, convolution, subtract, square, rsqrt, multiply."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import torch

from stepwell.dialects import aten
from stepwell.ir.declared.numerics import REORDERED, numerics_of
from stepwell.ir.dtypes import dtype_name, f16, f32, torch_dtype
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import Size
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.aten.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import interval
from stepwell.translate.rewrites.building import is_open_once, overflows
from stepwell.translate.rewrites.norms.group_statistics import (
    cannot_be_grouped,
    first_of_groups,
    mean_of_group,
    mean_of_image,
    summed_up,
)
from stepwell.translate.rewrites.norms.row_statistics import (
    ROWS,
    less_first,
    normalize,
    normalize_rows,
    too_wide,
)
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_constant, not_for_xnnpack
from stepwell.translate.scale_folding.own_weights import are_from_weights


@lowers(
    "aten.layer_norm.default",
    to="aten",
    bound=ROWS,
    deviation=lambda op, program: REORDERED,
    sample=("2x4xf32", [4], {"eps": 1e-6}),
)
def decompose_layer_norm(x: Value, *, op: Any, b: Rewriter, eps: float) -> Value:
    """Decompose layer normalization into row statistics and separate affine operations.

    `native_layer_norm` stays outside every delegate in the stock flow: 25 of them cut DeiT-Tiny in
    pieces. Scale and shift are separate ops here; `fold_affine_into_layer` folds them into the
    following linear layers.

    The first element of a row is subtracted before its mean. A constant row, such as padding, is
    then exactly zero as in PyTorch, and not the rounding error of its mean times 1/√eps. Rows
    across the outputs of a layer are not constant and skip this: it costs a ConvNeXt 4 % of its
    time.
    """
    if x.dtype not in (f32, f16):
        refuse(f"XNNPACK computes in float32 or float16, not {dtype_name(x.dtype)}")
    no_refusal(overflows(eps, x.dtype))
    sizes = op.arg("normalized_shape")
    if not all(isinstance(size, int) for size in sizes):
        refuse("a normalized axis has a symbolic size")
    width = prod(sizes)
    if width == 0:
        refuse("a normalized axis is empty")
    if len(sizes) > 1 and not is_open_once(x.shape):
        refuse("several axes are normalized and several others are symbolic")
    no_refusal(too_wide(width))
    rows = x.view(*x.shape[: -len(sizes)], width) if len(sizes) > 1 else x
    if not are_from_weights(x.ssa, range(x.rank - len(sizes), x.rank)):
        rows = Value(less_first(b, rows.ssa), b)
    normed = Value(normalize_rows(b, rows.ssa, eps, centered=False), b)
    return normed.view(*x.shape).affine(op.operand("weight"), op.operand("bias"))


@recipe("per_channel")
def per_channel(tensor: torch.Tensor, *, rank: int) -> torch.Tensor:
    """Reshape `[C]` to `[C, 1, …]`, which broadcasts over the axes after the channels."""
    return tensor.reshape(-1, *([1] * (rank - 2)))


@lowers(
    "aten.group_norm.default",
    to="aten",
    bound=ROWS,
    deviation=lambda op, program: REORDERED,
    sample="""
    %y = aten.group_norm.default(%x, 2, eps=1.0e-05) : (tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
    """,
)
def decompose_group_norm(x: Value, *, op: Any, b: Rewriter, num_groups: int, eps: float) -> Value:
    """Decompose group normalization into row statistics: a group is a row of `[N, G, C/G·…]`.

    For an image, the planes are averaged and then their averages. This requires no particular axis
    order, so the norm stays between convolutions without a transpose. A grouped convolution gives
    each channel the average of its own group. Lines of dynamic length are images of height one.
    """
    shape = x.shape
    if x.rank == 3 and isinstance(shape[2], Size):
        x = x.view(shape[0], shape[1], 1, shape[2])
    no_refusal(not_for_xnnpack(op))
    no_refusal(overflows(eps, x.dtype))
    no_refusal(not_constant(op.operand("weight"), "scale"))
    no_refusal(not_constant(op.operand("bias"), "shift"))
    no_refusal(cannot_be_grouped(x.shape))
    size = summed_up(x.shape, num_groups)
    no_refusal(too_wide(size))
    is_spared = num_groups != x.shape[1] and are_from_weights(x.ssa, [1])
    if x.rank == 4:
        mean = mean_of_image if num_groups == 1 else partial(mean_of_group, num_groups)
        if not is_spared:
            x = x.call(aten.SubTensor, Value(first_of_groups(b, x.ssa, num_groups), b))
        normed = Value(normalize(b, x.ssa, eps, mean), b)
    else:
        rows = x.view(x.shape[0], num_groups, size).ssa
        rows = rows if is_spared else less_first(b, rows)
        normed = Value(normalize_rows(b, rows, eps, centered=False), b).view(*x.shape)
    spread = [
        None if value is None else Value(value, b).derived("per_channel", rank=x.rank).ssa
        for value in map(op.operand, ("weight", "bias"))
    ]
    return normed.affine(*spread).view(*shape)


@lowers("aten.sqrt.default", to="aten", sample=("2x3xf32",))
def keep_root_of_infinity(
    x: Value, *, op: Any, b: Rewriter, even_if_finite: bool = True
) -> Value | None:
    """Handle infinity around XNNPACK's square root, which may return NaN for it.

    Its kernels estimate a reciprocal root and multiply by the number: ∞ · 0 is NaN. The number is
    first limited to the largest finite one. Then the excess is added back: zero, or infinity. It is
    subtracted as `limited − x`, which is +0 where nothing was cut off: −0 − (+0) is −0, as √−0 is,
    but −0 + (+0) would be +0. A norm of numbers beyond 10¹⁹ is then infinite, and `x / norm` is
    zero instead of NaN. `even_if_finite`: apply it even if the user states that activations are
    finite.
    """
    if not even_if_finite and numerics_of(b.program.context) == "finite":
        return None
    no_refusal(not_for_xnnpack(op))
    largest = torch.finfo(torch_dtype(x.dtype)).max
    if interval(x.ssa, b.program).high <= largest:
        return None
    limited = x.call(aten.ClampDefault, None, largest)
    root = limited.call(aten.SqrtDefault)
    return root.call(aten.SubTensor, limited.call(aten.SubTensor, x))


RULES = lowerings_of(__name__)

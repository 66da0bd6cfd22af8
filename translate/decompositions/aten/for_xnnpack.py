"""Decompositions of operators for which XNNPACK has no node, or a slow one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import torch
from xdsl.ir import SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.datatypes import MAX_RANK
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import REORDERED, Deviation
from stepwell.ir.dtypes import f16, f32, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import dims, tensor
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.aten.values import Value, cat, needs_static, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import is_finite
from stepwell.translate.range_analysis.assumptions import trusts_finite
from stepwell.translate.rewrites.building import axis
from stepwell.translate.rewrites.xnnpack.floats.nans import carries_nans
from stepwell.translate.rewrites.xnnpack.nodes.guards import (
    not_constant,
    not_floats,
    not_for_xnnpack,
)
from stepwell.translate.rewrites.xnnpack.nodes.windows import edges

MOST_STEPS = 12
"""The most additions of all elements that replace one pass of a kernel that adds one by one."""


def _adds_in_another_order(op: Any, program: Program) -> Deviation | None:
    shape = dims(op.operands[0].type)
    size = shape[axis(op.arg("dim"), len(shape))]
    return REORDERED if isinstance(size, int) and size > 2 else None


@lowers(
    "aten.cumsum.default",
    to="aten",
    takes_empty=False,
    bound=roundings("the sums are taken in another order"),
    deviation=_adds_in_another_order,
    sample=("2x3xf32", -1),
)
def cumsum_to_additions(x: Value, dim: int, *, op: Any) -> Value:
    """Decompose a cumulative sum into additions of itself shifted by 1, 2, 4, … elements.

    XNNPACK has no scan, and the portable kernel cuts the delegate once more. An element never
    depends on later ones, so a NaN or an infinity propagates as in PyTorch. A product with a
    triangle of ones would multiply it by zero, and spread it backwards.
    """
    at, size = _short_axis(x, dim, op)
    in_front, moved = [0] * (2 * (x.rank - 1 - at)), 1
    while moved < size:
        kept = x.slice(at, 0, size - moved)
        x = x + kept.call(aten.ConstantPadNdDefault, [*in_front, moved, 0], 0, shape=x.shape)
        moved *= 2
    return x


def _short_axis(x: Value, dim: int, op: Any) -> tuple[int, int]:
    """Return the axis of a scan and its size."""
    no_refusal(not_for_xnnpack(op))
    if x.dtype != f32:
        refuse("torch sums up in float32 and rounds once")
    if not x.rank or not isinstance(x.shape[x.axis(dim)], int):
        refuse("the size is symbolic, or there is no axis")
    at = x.axis(dim)
    size = x.shape[at]
    if (steps := (size - 1).bit_length()) > MOST_STEPS:
        refuse(f"it takes {steps} additions, above {MOST_STEPS}")
    return at, size


def _meets_infinities(op: Any, program: Program) -> Deviation | None:
    lost = Deviation("an infinity becomes a NaN, and a NaN may be lost in a maximum")
    return lost.unless(is_finite(op.operands[0], program))


@lowers(
    "aten.logcumsumexp.default",
    to="aten",
    takes_empty=False,
    bound=Bound(2e-6, 5e-6, "twelve sums of exponentials, each 3e-7 off where both are alike"),
    deviation=_meets_infinities,
    sample=("2x3xf32", -1),
)
def logcumsumexp_to_steps(x: Value, dim: int, *, op: Any) -> Value:
    """Decompose `logcumsumexp` into log-sum-exps of shifted operands, as `cumsum` into additions.

    The log-sum-exp of a and b is their maximum plus log(1 + e^−|a − b|), which is at most log 2. No
    exponential overflows, and no relevant one underflows, unlike with one maximum for all elements.
    """
    at, size = _short_axis(x, dim, op)
    why = "what is summed may be infinite, and the difference of two infinities is a NaN"
    no_refusal(trusts_finite([x.ssa], x.b.program, why))
    moved = 1
    while moved < size:
        one, other = x.slice(at, moved, size), x.slice(at, 0, size - moved)
        apart = (one - other).call(aten.AbsDefault).call(aten.NegDefault).call(aten.ExpDefault)
        added = one.call(aten.MaximumDefault, other) + (apart + 1.0).call(aten.LogDefault)
        x, moved = cat([x.slice(at, 0, moved), added], at), 2 * moved
    return x


SIDES: dict[type[SchemaOp], tuple[int, float]] = {
    aten.GeScalar: (0, 1.0),
    aten.GtScalar: (0, 0.0),
    aten.LtScalar: (1, 1.0),
    aten.LeScalar: (1, 0.0),
}
"""Comparison with a number → the operand chosen where it is greater; a correction for equality."""
STEEP = 2.0**126
"""This number times the smallest normal number is 1."""


def _asked(op: SchemaOp) -> SSAValue:
    """Return the boolean operand by which an op selects."""
    return cast(SSAValue, op.arg("condition" if "condition" in op.SCHEMA.by_name else "mask"))


@lowers(
    {"aten.where.self": True, "aten.masked_fill.Scalar": False},
    to="aten",
    unless=lambda op: not isinstance(_asked(op).owner, tuple(SIDES)),
    bound=Bound(0.0, 1.2e-38, "a difference below the smallest normal number counts as none"),
    deviation=lambda op, program: Deviation("a NaN chooses neither side, a zero may lose its sign"),
    sample="""
    %c = aten.ge.Scalar(%x, 0.5) : (tensor<2x3xf32>) -> tensor<2x3xi1>
    %a = aten.tanh.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %b = aten.sin.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = aten.where.self(%c, %a, %b) : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    """,
)
def choose_by_step(*, form: bool, op: Any, b: Rewriter) -> Value:
    """Decompose a selection by a comparison into a sum of both operands times steps of 0 or 1.

    XNNPACK has no comparison, and a selection outside cuts a delegate in two. The operand that is
    not selected is multiplied by zero, so it must provably be finite, unlike a guarded logarithm.
    """
    asked = cast(SchemaOp, _asked(op).owner)
    x, number = Value(asked.operands[0], b), asked.arg("other")
    other = Value(op.arg("other" if form else "self"), b)
    no_refusal(not_floats((x.ssa, other.ssa, *op.results)))
    if form:
        chosen = Value(op.arg("self"), b)
    elif isinstance(filled := op.arg("value"), int | float):
        chosen = x.constant(torch.full((1,) * len(x.shape), filled, dtype=torch.float32), "filled")
    else:
        refuse("the number that is filled in is known only at run time")
    no_refusal(not_floats((chosen.ssa,)))
    if x.dtype != f32:
        refuse("a step as steep as it has to be is no half")
    if not isinstance(number, int | float):
        refuse("the number is known only at run time")
    why = "what is not chosen may be infinite or NaN, and would be multiplied by zero"
    no_refusal(trusts_finite((chosen.ssa, other.ssa), b.program, why))
    first, equal = SIDES[type(asked)]
    apart = (x - number if number else x).call(aten.ClampDefault, -1.0, 1.0) * STEEP
    step = (apart + equal if equal else apart).call(aten.ClampDefault, 0.0, 1.0)
    above, below = (chosen, other) if first == 0 else (other, chosen)
    return above * step + below * (step * -1.0 + 1.0)


@lowers(
    "aten.lerp.Tensor",
    to="aten",
    bound=roundings("both ends give the same number, and round on the way"),
    deviation=lambda op, program: Deviation("an infinity of the nearer end may become NaN"),
    sample=("2x3xf32", "2x3xf32", "3xf32"),
)
def lerp_by_weights(first: Value, last: Value, weight: Value) -> Value:
    """Interpolate from first to last; PyTorch starts at the nearer end, which it selects."""
    return first + weight * (last - first)


LARGEST_EXPONENT = 64
"""The roundings of n products add up to n / 2 ulp of the result."""


@lowers(
    "aten.pow.Tensor_Scalar",
    to="aten",
    bound=roundings(
        "up to 64 products round in turn; what a negative power makes of a product that overflows "
        "or is subnormal is below the smallest normal number, or lost beyond the largest"
    ),
    sample=("2x3xf32", -5),
)
def expand_power(x: Value, exponent: Any) -> Value:
    """Decompose integer powers into products by squaring: XNNPACK has no power.

    `canonicalize/powers.py` rewrites x², x³ and x^−2 as PyTorch's kernel computes them; PyTorch
    uses the C library for other exponents. No square is larger than the result, so infinities are
    at the same elements. A fractional power stays a kernel: a square root would keep the sign that
    `pow` drops for −0, and lose the infinity that it gives for −inf.
    """
    if not isinstance(exponent, int | float):
        refuse("the exponent is known only at run time")
    if x.dtype != f32:
        refuse("XNNPACK computes products in float32")
    if not float(exponent).is_integer():
        refuse(f"x ** {exponent} is no product: roots lose the sign of powers of -0")
    if not 1 < abs(exponent) <= LARGEST_EXPONENT:
        refuse(f"the size of the exponent {exponent} is not from 2 to {LARGEST_EXPONENT}")
    square, value, left = x, None, abs(int(exponent))
    while True:
        if left & 1:
            value = square if value is None else value * square
        left >>= 1
        if not left:
            break
        square = square * square
    assert value is not None
    return value.call(aten.ReciprocalDefault) if exponent < 0 else value


SHORT = 4
"""The most parts of an axis for which moving all of it costs less than element by element."""


def _is_short_and_last(shape: Sequence[Any], dim: int) -> bool:
    """Whether an axis is the last one, short, and the rank leaves an axis to spare in XNNPACK."""
    if not 2 <= len(shape) < MAX_RANK or axis(dim, len(shape)) != len(shape) - 1:
        return False
    return isinstance(shape[-1], int) and 2 <= shape[-1] <= SHORT


@lowers("aten.unbind.int", to="aten", sample=("3x4x2xf32", -1))
def unbind_by_permute(x: Value, dim: int, *, op: Any, b: Rewriter) -> tuple[Value, ...] | None:
    """Move a short last axis to the front before unbinding or after stacking (layout optimization).

    Rotary embeddings of neighboring pairs unbind a last axis of two and stack one there again.
    XNNPACK slices and concatenates there element by element; a transposition to the front and
    slices of the first axis move whole blocks. (128 tokens of 8 heads of 64: a fifth of a layer.)
    """
    if not _is_short_and_last(x.shape, dim) or any(not result.uses for result in op.results):
        return None
    no_refusal(not_floats((x.ssa,)))
    turned = x.permute([x.rank - 1, *range(x.rank - 1)])
    types = [result.type for result in op.results]
    made = b.insert(aten.UnbindInt.make(turned.ssa, result_types=types))
    return tuple(Value(part, b) for part in made.results)


@lowers("aten.stack.default", to="aten", sample=(["3x4xf32", "3x4xf32"], -1))
def stack_by_permute(parts: list[Value], dim: int, *, op: Any, out: Out) -> Value | None:
    """Replace a stack on a short last axis by one on the first axis and a permute."""
    if not _is_short_and_last(out.shape, dim):
        return None
    no_refusal(not_floats(op.results))
    *before, last = out.shape
    type_ = tensor((last, *before), out.dtype)
    made = aten.StackDefault.make([part.ssa for part in parts], result_types=[type_])
    b = parts[0].b
    return Value(b.insert(made).results[0], b).permute([*range(1, len(before) + 1), 0])


TAPS = (3, 4, 9, 25)
"""Window sizes for which XNNPACK has depthwise kernels of float32."""
AVERAGES = (
    "aten.avg_pool2d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool2d.default",
)


@lowers(
    *AVERAGES,
    to="aten",
    bound=roundings("sums in another order"),
    sample=("1x2x4x4xf32", [3, 3], [1, 1], [1, 1]),
)
def average_by_convolution(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value | None:
    """Replace average pooling by a depthwise convolution, where XNNPACK's pooling would lose a NaN.

    XNNPACK's average pooling clamps its results to ±∞, and on some CPUs that turns NaN into −∞. The
    stock flow accepts this for plain windows. If padding is counted, or windows are fitted to a
    size, it has no pooling node, and a sum of products, which keeps NaN, costs about as much.
    """
    no_refusal(not_for_xnnpack(op))
    if out.dtype == f16 and carries_nans(op.operands, b.program):
        refuse("on some CPUs a convolution of halves makes −∞ of a NaN")
    if x.rank != 4 or not isinstance(x.shape[1], int):
        refuse("the input is not a batch of images with a static number of channels")
    if isinstance(op, aten.AvgPool2dDefault):
        kernel, padding = (_pair(op.arg(name)) for name in ("kernel_size", "padding"))
        if any(padding) and not op.arg("count_include_pad"):
            refuse("windows at the edge count fewer cells")
        if any(edges(op, (0, 0))):
            refuse("windows extend past the edge, where fewer cells are counted")
        stride = _pair(op.arg("stride")) if op.arg("stride") else kernel
        divisor = op.arg("divisor_override") or prod(kernel)
    else:
        (rows, columns), sizes = x.shape[2:], out.shape[2:]
        if sizes == (1, 1):
            return None  # XNNPACK has a node for averages of whole planes.
        if isinstance(rows, Size) or isinstance(columns, Size):
            refuse("the image has a symbolic size, and so have its windows")
        if rows % sizes[0] or columns % sizes[1]:
            refuse(f"{rows}×{columns} become {sizes[0]}×{sizes[1]}, in windows of several sizes")
        kernel = stride = [rows // sizes[0], columns // sizes[1]]
        padding, divisor = [0, 0], prod(kernel)
    if prod(kernel) not in TAPS:  # Padding to TAPS with zero weights would turn ∞ nearby into NaN.
        refuse(f"XNNPACK pads a window of {prod(kernel)} cells with neighboring cells")
    channels = x.shape[1]
    equal = torch.full((channels, 1, *kernel), 1.0 / divisor, dtype=torch_dtype(x.dtype))
    numbers = (None, stride, padding, [1, 1], False, [0, 0], channels)
    weight = x.constant(equal, "average")
    return x.call(aten.ConvolutionDefault, weight, *numbers, shape=out.shape)


def _pair(numbers: Sequence[int]) -> list[int]:
    """Return the numbers for height and width; a single number is for both."""
    return [numbers[0], numbers[-1]]


@lowers(
    "aten.prelu.default",
    to="aten",
    bound=Bound(0.0, 5e-324, "a zero keeps its sign or takes that of the slope"),
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<4xf32>
    %y = aten.prelu.default(%x, %w) : (tensor<2x4x3xf32>, tensor<4xf32>) -> tensor<2x4x3xf32>
    """,
)
def prelu_channels_last(x: Value, slopes: Value, *, op: Any, b: Rewriter) -> Value | None:
    """Move the slopes' axis of PReLU to the end, where XNNPACK's prelu has it (layout).

    The transposes around it cancel with those of convolutions (`assign-layouts`).
    """
    if x.rank < 3 or slopes.rank != 1 or slopes.shape == (1,):
        return None
    no_refusal(not_for_xnnpack(op))
    no_refusal(not_constant(slopes.ssa, "slopes"))
    last = x.permute([0, *range(2, x.rank), 1])
    result = b.insert(xnnpack.PReLU.make(last.ssa, slopes.ssa, result=last.ssa.type)).results[0]
    return Value(result, b).permute([0, x.rank - 1, *range(1, x.rank - 1)])


SWAP_DEPTH = (0, 2, 1, 3, 4)
"""The permutations of `[N, C, D, H, W]` to `[N, D, C, H, W]` and back."""


@recipe("depth")
def depth(kernel: torch.Tensor, *, at: int) -> torch.Tensor:
    """Return slice `[C', C, KH, KW]` of a kernel `[C', C, KD, KH, KW]`: a view, no copy."""
    return kernel[:, :, at]


@lowers(
    "aten.convolution.default",
    to="aten",
    takes_empty=False,
    unless=lambda op: len(op.arg("stride")) != 3,
    bound=roundings("products are summed slice by slice"),
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<3x2x2x1x1xf32>
    %y = aten.convolution.default(%x, %w, none, [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1) : (tensor<1x2x4x5x5xf32>, tensor<3x2x2x1x1xf32>) -> tensor<1x3x3x5x5xf32>
    """,
)
def volumes_to_images(
    x: Value, kernel: Value, bias: Value | None, *, op: Any, out: Out, b: Rewriter, groups: int
) -> Value:
    """Decompose a 3-D convolution into a sum of 2-D convolutions.

    Neither XNNPACK nor ExecuTorch's kernels convolve in three dimensions. The kernel's slices in
    depth are 2-D filters: each is applied to the planes that it covers, and their results are
    added.
    """
    needs_static(x, what="the size of the volume is symbolic")
    if not isinstance(kernel.owner, WeightOp):
        refuse("the kernel is computed at run time")
    if op.arg("transposed"):
        refuse("a transposed convolution of volumes has no form in images")
    stride, padding, dilation = (list(op.arg(n)) for n in ("stride", "padding", "dilation"))
    batch, filters, planes, *space = out.shape
    value = x.permute(SWAP_DEPTH)
    if padding[0]:  # Planes of zeros before and after.
        longer = [n + 2 * padding[0] if i == 1 else n for i, n in enumerate(value.shape)]
        amounts = [0, 0, 0, 0, 0, 0, padding[0], padding[0]]
        value = value.call(aten.ConstantPadNdDefault, amounts, 0, shape=longer)
    total: Value | None = None
    for at in range(kernel.shape[2]):
        met = _every(value, at * dilation[0], stride[0], planes)
        images = met.view(batch * planes, x.shape[1], *x.shape[3:])
        key = b.weights.derive("depth", [kernel.owner.key.data], at=at)
        slice_ = Value(b.weight(key, kernel.owner.kind.data), b)
        lists = (stride[1:], padding[1:], dilation[1:], False, [0, 0], groups)
        made = images.call(
            aten.ConvolutionDefault,
            slice_,
            bias if at == 0 else None,
            *lists,
            shape=(batch * planes, filters, *space),
        )
        total = made if total is None else total + made
    assert total is not None
    return total.view(batch, planes, filters, *space).permute(SWAP_DEPTH)


def _every(value: Value, start: int, step: int, count: int) -> Value:
    """Return `count` planes of axis 1, `step` apart, from `start` on."""
    stop = start + (count - 1) * step + 1
    if (start, stop, step) == (0, value.shape[1], 1):
        return value
    shape = [count if i == 1 else n for i, n in enumerate(value.shape)]
    return value.call(aten.SliceTensor, 1, start, stop, step, shape=shape)


RULES = lowerings_of(__name__)

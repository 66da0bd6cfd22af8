"""Legalization of float types, and rewrites that keep NaNs which XNNPACK's nodes would lose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.families import ROWS
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.costs import costs_of, estimated
from stepwell.ir.choices import shape_of
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.families import is_movement, ops_of
from stepwell.ir.declared.numerics import Deviation, numerics_of
from stepwell.ir.dtypes import bf16, f16, f32, i8
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.decompositions import statistics
from stepwell.translate.decompositions.activations import is_gate_of_hardswish
from stepwell.translate.decompositions.constants import rounds
from stepwell.translate.decompositions.values import Value, again, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse, step
from stepwell.translate.range_analysis import interval, is_never_nan, is_within
from stepwell.translate.rewrites.attention.arguments import drops_out, scale_of
from stepwell.translate.rewrites.building import is_depthwise
from stepwell.translate.rewrites.xnnpack.floats.nans import zero_or_nan
from stepwell.translate.rewrites.xnnpack.floats.singles import (
    ONCE,
    is_layer_of_bfloats,
    not_halves,
    widened,
)
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack, not_held

X = "2x4xf16"


def in_single(op: SchemaOp, b: Rewriter, dtype: Attribute = f16) -> tuple[Value, ...]:
    """Compute an operator in f32, between casts from and to a dtype."""
    wide = [Value(widened(b, value), b) for value in op.operands]
    return tuple(value.cast(dtype) for value in again(op, wide, f32))


@lowers(
    "aten.gelu.default",
    "aten.layer_norm.default",
    "aten.group_norm.default",
    "aten.rms_norm.default",
    "aten.hardsigmoid.default",
    "aten.convolution.default",
    "aten.pow.Tensor_Scalar",
    *(anchor.name for anchor in step(statistics.variance_to_means).anchors),
    to="aten",
    phases=("xnnpack/decompose",),
    unless=not_halves,
    bound=roundings("a layer norm's scale and its shift round to halves too"),
    sample=(X, {"approximate": "tanh"}),
)
def widen_halves(*, op: Any, b: Rewriter) -> tuple[Value, ...] | None:
    """Compute norms, variances, powers, tanh GELU, … of halves in f32 between casts.

    PyTorch computes each operator on halves in f32 and rounds its result once. XNNPACK has no
    transposed convolution of halves, and accepts no scalars that are not exact in half precision
    (0.0447…, 1/6, an epsilon of 1e-6). A norm written in halves overflows beyond 65504 as soon as a
    value is 256 from the mean. These operators are therefore computed in f32 between two casts,
    inside the delegate, as PyTorch does. The scale and shift of a layer norm stay in halves after
    the norm, so that the following linear layers can absorb them.
    """
    if isinstance(op, aten.GeluDefault) and op.arg("approximate") != "tanh":
        return None
    if isinstance(op, aten.HardsigmoidDefault) and is_gate_of_hardswish(op.results[0]):
        return None
    if isinstance(op, aten.ConvolutionDefault) and not op.arg("transposed"):
        return None
    is_root = isinstance(op, aten.PowTensorScalar) and abs(op.arg("exponent")) == 0.5
    if is_root and interval(op.operands[0], b.program).low < 0:
        refuse(
            "the operand may be -inf, for which torch's pow of halves is not NaN, but a square root is"
        )
    if not isinstance(op, aten.LayerNormDefault):
        return in_single(op, b)
    wide = Value(widened(b, op.operands[0]), b)
    normed = wide.call(aten.LayerNormDefault, op.arg("normalized_shape"), eps=op.arg("eps"))
    return (normed.cast(f16).affine(op.operand("weight"), op.operand("bias")),)


@lowers(
    "quantized_decomposed.choose_qparams.tensor",
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
    to="aten",
    unless=lambda op: element(op.operands[0].type) not in (f16, bf16),
    bound=Bound(relative=2**-7, units=2, reason="torch rounds the range and its 255th part too"),
    sample=(X, -128, 127, 2**-12, i8),
)
def widen_measured_range(*, op: Any, b: Rewriter) -> tuple[Value, ...]:
    """Compute dynamic quantization parameters of halves in f32: the kernels abort on halves."""
    return again(op, [Value(widened(b, op.operands[0]), b)])


@lowers(
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.quantize_per_channel.default",
    to="aten",
    sample=("2x4xf32", 0.5, 3, -127, 127, i8),
)
def limit_before_quantization(
    x: Value, *, op: Any, b: Rewriter, even_if_finite: bool = True
) -> tuple[Value, ...] | None:
    """Clamp the operand of ExecuTorch's quantization kernels, if it may be 2⁶² steps or more.

    The kernels convert a number of steps to int64 before they clamp it. From 2⁶³ on the conversion
    is undefined: on x86, infinity becomes the least integer. The ends of the clamp are 2²⁴ steps,
    which is beyond any range of 16 bits around a zero point of up to 2²³. Scales and zero points
    must be known, and scales differ by less than 2³⁸.
    `even_if_finite`: clamp even if the user states that activations are finite.
    """
    if (not even_if_finite and numerics_of(b.program.context) == "finite") or x.dtype != f32:
        return None
    if len(op.operands) == 1:
        scales, zeros = [op.arg("scale")], [op.arg("zero_point")]
    elif all(keys := [weight_key(op.operand(name)) for name in ("scales", "zero_points")]):
        scales, zeros = (b.program.weights.get(str(key)).tolist() for key in keys)
    else:
        return None
    if (
        not scales
        or max(map(abs, zeros)) > 1 << 23
        or op.arg("quant_max") - op.arg("quant_min") >= 1 << 16
    ):
        return None
    beyond, end = math.ldexp(min(scales), 62), math.ldexp(max(scales), 24)
    is_ordinary = interval(x.ssa, b.program).most < beyond
    if is_ordinary or end >= min(beyond, torch.finfo(torch.float32).max):
        return None
    return again(
        op, [x.call(aten.ClampDefault, -end, end), *(Value(v, b) for v in op.operands[1:])]
    )


@lowers(
    "aten.mul.Scalar",
    "aten.add.Scalar",
    "aten.sub.Scalar",
    "aten.div.Scalar",
    "aten.rsub.Scalar",
    to="aten",
    phases=("xnnpack/scalars",),
    unless=not_halves,
    bound=ONCE,
    sample=(X, 0.1),
)
def widen_scalar_of_halves(*, op: Any, b: Rewriter) -> tuple[Value, ...] | None:
    """Compute arithmetic of halves with a scalar that is not exact in half, in f32 between casts.

    This pass runs after the passes that fold such scalars into weights.
    """
    return in_single(op, b) if rounds(op) is not None else None


IN_SINGLE = "accumulate in f32"
"""The value of `lower(..., half=...)` that enables it."""


@lowers(
    "aten.linear.default",
    "aten.convolution.default",
    "aten.matmul.default",
    "aten.bmm.default",
    "aten.mm.default",
    to="aten",
    unless=not_halves,
    bound=ONCE,
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf16>
    %y = aten.linear.default(%x, %w) : (tensor<2x4xf16>, tensor<3x4xf16>) -> tensor<2x3xf16>
    """,
)
def widen_products_of_halves(*, op: Any, b: Rewriter) -> tuple[Value, ...] | None:
    """Accumulate products of halves in single precision, if requested.

    The CPU decides whether XNNPACK's half-precision kernels accumulate in halves: with half
    arithmetic (Armv8.2 and later) they do. A sum of K products is then off by K roundings of a
    half: 0.015 for a layer with 4096 inputs, 0.08 of the sum where all are positive. `lower(...,
    half="accumulate in f32")` computes layers and products in f32 between casts, as PyTorch does,
    for twice the bytes of their weights and the time of float32. A depthwise convolution is also
    computed in f32 where the CPU is slower for halves: XNNPACK's kernel for x86 widens each tap
    again for every pixel.
    """
    asked = b.program.context.option("half", IN_SINGLE) == IN_SINGLE
    return in_single(op, b) if asked or is_slow_in_halves(op, b.program) else None


def is_slow_in_halves(op: SchemaOp, program: Program) -> bool:
    """Whether a depthwise convolution is faster in f32 between two casts."""
    if not isinstance(op, aten.ConvolutionDefault) or op.arg("transposed"):
        return False
    image, weight = op.operands[:2]
    if not is_depthwise(dims(weight.type), op.arg("groups")):
        return False
    costs = costs_of(program.context)
    read, made = (estimated(dims(value.type)) for value in (image, op.results[0]))
    taps = estimated(dims(weight.type)[2:])
    casts = (read + made) * costs.convert + 2 * costs.node
    forms = {
        "halves": made * costs.window_of_halves(taps),
        "singles": made * costs.window(taps) + casts,
    }
    return program.context.choose("widen-products-of-halves", shape_of(op), forms) == "singles"


@lowers(
    "aten.scaled_dot_product_attention.default",
    to="aten",
    phases=("xnnpack/attention",),
    takes_empty=False,
    bound=Bound(2**-9, 2**-10, "torch may run a fused kernel, which rounds weights to halves"),
    sample=(*["1x2x4x8xf16"] * 3, {"scale": 0.25}),
)
def widen_attention_of_halves(q: Value, *, op: Any, out: Out, b: Rewriter) -> Value | None:
    """Compute attention of halves in single precision.

    PyTorch does so on a CPU, and so does the stock flow. Large scores have large rounding errors in
    halves, and the exponential turns each error into a factor. With queries and keys of size 8, a
    kernel that accumulates in halves is off by a tenth of the largest output. A scale that is a
    power of two is exact, and stays in halves for the query projection to absorb.
    """
    if out.dtype != f16:
        return None
    for refusal in (drops_out(op), *map(not_held, op.operands[:3])):
        no_refusal(refusal)
    scale = no_refusal(scale_of(op))
    rest = [Value(value, b) for value in op.operands[1:]]
    if is_exact_in_halves(scale):
        q, scale = q * scale, 1.0
    first, *others = (
        Value(widened(b, value.ssa), b) if value.dtype == f16 else value for value in (q, *rest)
    )
    said: dict[str, Any] = {n: True for n in ("is_causal", "enable_gqa") if op.arg(n)}
    cls = aten.ScaledDotProductAttentionDefault
    return first.call(cls, *others, shape=out.shape, scale=scale, **said).cast(f16)


def is_exact_in_halves(scale: float) -> bool:
    """Whether a scale is a power of two below 1, which is exact for all but the smallest halves."""
    return 2**-8 <= scale < 1.0 and math.frexp(scale)[0] == 0.5


OF_BFLOATS = """
    tanh.default add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar div.Tensor
    div.Scalar neg.default abs.default exp.default rsqrt.default sqrt.default sigmoid.default
    silu.default gelu.default relu.default clamp.default maximum.default minimum.default
    pow.Tensor_Scalar mean.dim sum.dim_IntList layer_norm.default rms_norm.default
    linear.default mm.default bmm.default matmul.default convolution.default
    scaled_dot_product_attention.default view.default permute.default slice.Tensor cat.default
    expand.default stack.default unbind.int"""


GREATEST = 1e30
"""XNNPACK's sigmoid and its inverse root are correct up to this number on every CPU."""


LEAST = 2.0**-126
"""The smallest normal number."""


NO_NAN = Deviation("a NaN may become a number")


NO_INFINITE_ROOT = Deviation("the root of zero, a denormal number or an infinity may become NaN")


def _loses(op: Any, program: Program) -> Deviation | None:
    """Return which NaNs or infinities XNNPACK's node for an op may lose, unlike the runtime's
    kernel.
    """
    match op:
        case aten.MaximumDefault() | aten.MinimumDefault() | aten.ExpDefault():
            return NO_NAN.unless(*(is_never_nan(value, program) for value in op.operands))
        case aten.RsqrtDefault():
            return NO_INFINITE_ROOT.unless(is_within(op.operands[0], LEAST, GREATEST, program))
        case _:
            return None


def _is(value: SSAValue, held: Any) -> bool:
    return isinstance(value.type, TensorType) and element(value.type) == held


def _was_narrowed(value: SSAValue) -> bool:
    return isinstance(value.owner, aten._ToCopyDefault) and _is(value.owner.operands[0], f32)


def _is_widened(result: SSAValue) -> bool:
    readers = [use.operation for use in result.uses]
    casts = (isinstance(op, aten._ToCopyDefault) and _is(op.results[0], f32) for op in readers)
    return bool(readers) and all(casts)


def _is_read_wide(op: SchemaOp) -> bool:
    """Whether casts after a data movement op may move before it, without casting more elements."""
    if not all(map(_is_widened, op.results)):
        return False
    for value in op.operands:
        if isinstance(value.type, TensorType) and not isinstance(value.owner, WeightOp):
            results = [result.type for use in value.uses for result in use.operation.results]
            parts = [estimated(dims(type_)) for type_ in results if isinstance(type_, TensorType)]
            if sum(parts) < estimated(dims(value.type)):
                return False
    return True


@lowers(
    *(f"aten.{name}" for name in OF_BFLOATS.split()),
    *ops_of("distribution", "aten"),
    to="aten",
    unless=lambda op: (
        not all(_is(result, bf16) for result in op.results) or is_layer_of_bfloats(op)
    ),
    bound=roundings("torch rounds operands of its parts to bfloat16"),
    deviation=_loses,
    sample=("2x4xbf16",),
)
def widen_bfloat(*, op: Any, b: Rewriter) -> tuple[Value, ...] | None:
    """Compute layers, arithmetic and data movement of bfloat16 in f32, the type of XNNPACK's nodes.

    XNNPACK has linear layers of bfloat16 themselves (`linear-of-bfloats`).
    Every bfloat16 is exact in f32, so weights and inputs keep their values. A result is rounded to
    bfloat16 where it leaves the program, and where a node outside reads it. Between widened ops
    nothing is rounded (`cancel-narrowing`): a result is at least as near to the exact one as
    PyTorch's, which rounds each. Exponentials, roots and maxima stay with the runtime's kernels, as
    in the stock flow, unless their operands provably exclude the numbers that XNNPACK's nodes lose.
    XNNPACK's sigmoid may be NaN from 10³⁰ on, where a sigmoid is 0 or 1: its operand is clamped.
    Data movement is widened only if its operand was computed in f32, or if it is read as f32 only
    and no more elements are cast than otherwise: the frames of a recurrence.
    """
    narrow = [value for value in op.operands if _is(value, bf16)]
    if is_movement(op) and not any(map(_was_narrowed, narrow)) and not _is_read_wide(op):
        return None
    if all(isinstance(value.owner, WeightOp) for value in narrow):
        return None
    values = [Value(widened(b, v) if _is(v, bf16) else v, b) for v in op.operands]
    if isinstance(op, aten.SigmoidDefault):
        values = [values[0].call(aten.ClampDefault, -GREATEST, GREATEST)]
    return tuple(value.cast(bf16) for value in again(op, values, f32))


@lowers(
    "aten.clamp.Tensor",
    to="aten",
    phases=("xnnpack/decompose",),
    requires=not_for_xnnpack,
    bound=Bound(0.0, 5e-324, "a maximum takes either of two zeros"),
    sample=("2x3xf32", "2x3xf32"),
)
def carry_nans(
    value: Value, low: Value | None, high: Value | None, *, op: Any, b: Any
) -> Value | None:
    """Decompose `clamp` by tensors for XNNPACK and keep NaNs: extrema, minus a term that is 0 or
    NaN.

    XNNPACK's maximum and minimum may return the number if one of two operands is NaN. Arithmetic
    keeps every NaN, and only NaNs: `0 / (1 + |x|)` is 0 for every number, infinities included, and
    NaN for a NaN. The term is subtracted, because −0 − 0 is −0.
    """
    if b.program.context.option("numerics", "torch") != "torch":
        return None  # The user named the pass and accepts its deviation.
    unsure = [one for one in dict.fromkeys(op.operands) if not is_never_nan(one, b.program)]
    if not unsure:
        return None
    if low is not None:
        value = value.binary(aten.MaximumDefault, aten.MaximumDefault, low)
    if high is not None:
        value = value.binary(aten.MinimumDefault, aten.MinimumDefault, high)
    return value - _total_or_nan([Value(one, b) for one in unsure])


def _total_or_nan(unsure: Sequence[Value]) -> Value:
    first, *others = (one.call(aten.AbsDefault) for one in unsure)
    for size in others:
        first = first + size
    return zero_or_nan(first)


HALVES: tuple[Attribute, ...] = (f16, bf16)


ROUNDS_OFTEN = """group_norm.default logsumexp.default linalg_vector_norm.default
    sum.dim_IntList mean.dim prod.dim_int prod.default gelu.default hardsigmoid.default
    square.default lerp.Scalar softplus.default mish.default log_sigmoid.default elu.default
    selu.default celu.default"""


def _is_not_of_halves(op: SchemaOp) -> bool:
    """Refuse tensors that are not all of a single half-precision type."""
    types = [value.type for value in (*op.results, *op.operands)]
    if any(not isinstance(type_, TensorType) for type_ in types):
        return True
    return element(types[0]) not in HALVES or len({element(type_) for type_ in types}) > 1


@lowers(
    *ROWS,
    *(f"aten.{name}" for name in ROUNDS_OFTEN.split()),
    *(anchor.name for anchor in step(statistics.variance_to_means).anchors),
    to="aten",
    phases=("tosa/decompose",),
    unless=_is_not_of_halves,
    bound=roundings("a result next to the middle of two halves"),
    sample=("2x4xf16", 1),
)
def widen_rounded_halves(*, op: Any, out: Out, b: Rewriter) -> tuple[Value, ...] | None:
    """Compute normalizations, sums, GELU, … of fp16 and bf16 in f32 between casts.

    PyTorch computes each operator on halves in f32 and rounds its result once. TOSA accumulates
    fp16 sums in fp16 (3000 ones add up to 2048), and a norm or an activation that is decomposed
    into operators rounds after each of them. So these ops are placed between two casts, as in
    PyTorch. The mean of an image is a pool, which accumulates in f32.
    """
    from stepwell.dialects.tosa.targets import level_of
    from stepwell.translate.rewrites.tosa.operators.windows import is_image_mean

    if is_image_mean(op, level_of(b.program.context.target)):
        return None
    return in_single(op, b, out.dtype)


RULES = lowerings_of(__name__)

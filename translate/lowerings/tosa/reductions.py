"""Lowerings of reductions along axes: REDUCE operators, softmax, cumulative sums, argmax."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.attributes import NanModeAttr
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.dtypes import dtype_name, i1, i32, i64, torch_dtype
from stepwell.ir.rewriting.rewrite import EXACT
from stepwell.ir.sizes.size import Dim
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.tosa.casts import compares, is_convertible
from stepwell.translate.lowerings.tosa.pooling import image_pool
from stepwell.translate.lowerings.tosa.powers import power, root
from stepwell.translate.lowerings.tosa.values import (
    Value,
    clamp,
    exp,
    log,
    needs_floats,
    reciprocal,
)
from stepwell.translate.rewrites.tosa.operators.building import FLOATS, elements
from stepwell.translate.rewrites.tosa.operators.lowering import reduced_axes
from stepwell.translate.rewrites.tosa.operators.windows import is_image_mean


def reduced(cls: type[TosaOp], x: Value, axes: Sequence[int]) -> Value:
    """Return one REDUCE per axis, each kept with size 1."""
    return reduce(lambda value, axis: value.reduce(cls, axis), axes, x)


REDUCTIONS = {
    "aten.sum.dim_IntList": t.ReduceSumOp,
    "aten.amax.default": t.ReduceMaxOp,
    "aten.amin.default": t.ReduceMinOp,
}


@lowers(REDUCTIONS, to="tosa", sample=("2x4xf32", [1]))
def reduction(x: Value, *, form: type[TosaOp], op: Any, out: Out) -> Value:
    """Lower `sum`, `amax`, `amin` of floats, or of integers in the result's type."""
    _is_summed(op, x, out)
    return reduced(form, x.to(out.dtype), reduced_axes(op)).reshape(*out.shape)


@lowers("aten.mean.dim", to="tosa", sample=("2x4xf32", [1]))
def mean(x: Value, *, op: Any, out: Out) -> Value:
    """Lower to a sum and a product, or for an image to AVG_POOL2D."""
    needs_floats(op, x)
    x = x.to(out.dtype)
    if is_image_mean(op, x.b.level):
        zeros = (0, 0, 0, 0)
        pooled = image_pool(x, t.AvgPool2dOp, x.shape[2:], (1, 1), zeros, (1, 1))
        return pooled.reshape(*out.shape)
    axes = reduced_axes(op)
    total = reduced(t.ReduceSumOp, x, axes)
    return _shared(total, [x.shape[axis] for axis in axes]).reshape(*out.shape)


@lowers("aten.sum.default", "aten.mean.default", to="tosa", sample=("xf32",))
def of_one_number(x: Value, *, op: Any, out: Out) -> Value:
    """Lower `sum` and `mean` of rank 0: REDUCE_SUM turns -0.0 into 0.0, as PyTorch does."""
    if x.shape:
        refuse("the axes are not listed; normalize-reduction lists them")
    if op.name == "aten.mean.default":
        needs_floats(op, x)
    else:
        _is_summed(op, x, out)
    return x.to(out.dtype).reshape(1).sum(0).reshape()


def _is_summed(op: Any, x: Value, out: Out) -> None:
    """Refuse types other than floats and integers of 32 or 64 bits."""
    if out.dtype not in (i32, i64):
        needs_floats(op, x)
    elif not x.is_float:
        is_convertible(x.dtype)


def _shared(total: Value, sizes: Sequence[Dim]) -> Value:
    """Return a sum over axes of these sizes, divided by the number of elements.

    No operator converts a shape to a number: a dynamic size is computed as a sum of ones, which is
    exact in f32 up to 2²⁴.
    """
    b, stated = total.b, elements([size for size in sizes if isinstance(size, int)])
    count: Value | None = None
    for size in (size for size in sizes if not isinstance(size, int)):
        ones = Value(b.number(1.0, 1, total.dtype), b).tile((size,)).sum(0)
        count = ones if count is None else count * ones
    if count is None:
        return total * (1.0 / stated)
    return total * reciprocal(count if stated == 1 else count * float(stated))


@lowers(
    "aten._softmax.default",
    "aten._log_softmax.default",
    to="tosa",
    dtypes=FLOATS,
    sample=("2x4xf32", 1, False),
)
def softmax(x: Value, dim: int, *, op: Any) -> Value:
    """Return exp(x - max) · 1/Σ; for `log_softmax`, subtract log Σ."""
    axis = x.axis(dim)
    shifted = x - x.reduce(t.ReduceMaxOp, axis)
    powers = exp(shifted)
    total = powers.sum(axis)
    if op.name == "aten._softmax.default":
        return powers * reciprocal(total)
    return shifted - log(total)


@lowers("aten.cumsum.default", to="tosa", takes_symbols=False, sample=("2x3xf32", 1))
def cumsum(x: Value, dim: int, *, out: Out) -> Value:
    """Lower cumulative sums of floats, in f32, and of integers in the type of the result.

    A product with a triangle of ones would have fewer operators, but 0 · inf in it is NaN. Here inf
    and NaN affect only later elements, and a sum of n numbers rounds log2(n) times.
    """
    whole = out.dtype in (i32, i64)
    if whole and not x.is_float:
        is_convertible(x.dtype)
    elif not x.is_float or x.dtype != out.dtype:
        refuse(
            f"the op sums {dtype_name(x.dtype)} to {dtype_name(out.dtype)}; both must be one float "
            f"type, or the sums i32 or i64"
        )
    if not x.shape:
        refuse("the operand is a scalar, which has no axis")
    return added_up(x.to(out.dtype) if whole else x.single(), x.axis(dim)).cast(out.dtype)


def added_up(x: Value, axis: int) -> Value:
    """Return cumulative sums by repeated SLICE, PAD with -0 (which changes no number), and ADD."""
    step, length = 1, x.shape[axis]
    while step < length:
        kept = x.narrow(axis, 0, length - step)
        x = x + kept.pad([step if i == 2 * axis else 0 for i in range(2 * x.rank)], -0.0)
        step *= 2
    return x


LOGICAL = {
    f"aten.{word}.{form}": cls
    for word, cls in (("any", t.ReduceAnyOp), ("all", t.ReduceAllOp))
    for form in ("dim", "dims", "default")
}


@lowers(LOGICAL, to="tosa", sample=("2x4xi1", 1))
def any_or_all(x: Value, *, form: type[TosaOp], op: Any, out: Out) -> Value:
    """Lower reductions of booleans, or of numbers that TOSA can compare with 0."""
    if not compares(x.dtype):
        refuse(
            f"the operand is {dtype_name(x.dtype)}, which TOSA cannot compare with 0; compare before"
        )
    return reduced(form, x.to(i1), reduced_axes(op)).reshape(*out.shape)


@lowers("aten.prod.dim_int", "aten.prod.default", to="tosa", sample=("2x4xf32", 1))
def prod(x: Value, *, op: Any, out: Out) -> Value:
    """Lower a product over axes to REDUCE_PRODUCT."""
    _is_of_floats(x, out)
    return reduced(t.ReduceProductOp, x, reduced_axes(op)).reshape(*out.shape)


@lowers("aten.logsumexp.default", to="tosa", sample=("2x4xf32", [1]))
def logsumexp(x: Value, *, op: Any, out: Out) -> Value:
    """Return log Σ exp(x - m) + m, with the maximum m kept finite: inf - inf would be NaN."""
    _is_of_floats(x, out)
    axes, info = reduced_axes(op), torch.finfo(torch_dtype(x.dtype))
    most = clamp(reduced(t.ReduceMaxOp, x, axes), info.min, info.max)
    total = reduced(t.ReduceSumOp, exp(x - most), axes)
    return (log(total) + most).reshape(*out.shape)


NORMS = {1.0: t.ReduceSumOp, float("inf"): t.ReduceMaxOp, float("-inf"): t.ReduceMinOp}


@lowers("aten.linalg_vector_norm.default", to="tosa", sample=("2x4xf32", 2, [1]))
def vector_norm(x: Value, order: float, *, op: Any, out: Out) -> Value:
    """Lower to roots of sums of powers; a power overflows to inf where PyTorch's norm is inf.

    The norm of order 0 counts the nonzero elements. Other orders use the lowering of `pow`.
    """
    _is_of_floats(x, out)
    axes = reduced_axes(op)
    if order == 2:
        made = root(reduced(t.ReduceSumOp, x * x, axes))
    elif order == 0:
        made = reduced(t.ReduceSumOp, x.to(i1).to(x.dtype), axes)
    elif order in NORMS:
        made = reduced(NORMS[order], abs(x), axes)
    else:
        summed = reduced(t.ReduceSumOp, power(abs(x).single(), order), axes)
        made = power(summed, 1 / order).cast(x.dtype)
    return made.reshape(*out.shape)


def _is_of_floats(x: Value, out: Out) -> None:
    if not x.is_float or out.dtype != x.dtype:
        refuse(
            f"the op reduces {dtype_name(x.dtype)} to {dtype_name(out.dtype)}; "
            f"both must be one float type"
        )


# -- maxima ----------------------------------------------------------------------------------


def place_of_greatest(x: Value, axis: int, ignoring_nan: bool = False) -> Value:
    """Return ARGMAX with the reduced axis dropped: the index of the first of equal elements.

    A NaN is greater than every number, or optionally counts as -inf.
    """
    shape = [size for i, size in enumerate(x.shape) if i != axis]
    attributes: dict[str, Attribute] = {"nan_mode": NanModeAttr("IGNORE")} if ignoring_nan else {}
    return x.made(t.ArgMaxOp, shape, dtype=i64, axis=IntegerAttr(axis, i32), **attributes)


@lowers(
    {"aten.max.default": t.ReduceMaxOp, "aten.min.default": t.ReduceMinOp},
    to="tosa",
    bound=EXACT,
    dtypes=(*FLOATS, i32),
    sample=("2x4xf32",),
)
def greatest_of_all(x: Value, *, form: type[TosaOp], out: Out) -> Value:
    """Lower to REDUCE_MAX or REDUCE_MIN of all elements."""
    return x.reshape(elements(x.shape)).reduce(form, 0).reshape(*out.shape)


@lowers(
    {"aten.max.dim": t.ReduceMaxOp, "aten.min.dim": t.ReduceMinOp},
    to="tosa",
    bound=EXACT,
    sample=("2x5xf32", 1),
)
def greatest(
    x: Value, dim: int, *, form: type[TosaOp], op: Any, out: Out
) -> tuple[Value | None, ...]:
    """Lower to REDUCE_MAX or REDUCE_MIN along an axis, and to ARGMAX if the indices are used.

    The argmin is the argmax of the negated operand. ARGMAX does not support 32-bit integers.
    """
    are_places_read = bool(op.results[1].uses)
    if are_places_read or x.dtype != i32:
        needs_floats(op, x)
    x, places = x if x.shape else x.reshape(1), None
    axis = x.axis(dim)
    if are_places_read:
        keys = x if form is t.ReduceMaxOp else -x
        places = place_of_greatest(keys, axis).reshape(*out.shape)
    return x.reduce(form, axis).reshape(*out.shape), places


RULES = lowerings_of(__name__)

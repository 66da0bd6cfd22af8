"""Make type promotion explicit: cast operands to the type in which PyTorch computes."""

from __future__ import annotations

from functools import reduce
from typing import Any

from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import bf16, element_type, f16, f32, f64, has_torch_dtype, torch_dtype
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import element, with_element
from stepwell.translate.decompositions.values import (
    Value,
    again,
)
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers
from stepwell.translate.rewrites.building import cast, emit
from stepwell.translate.rewrites.xnnpack.floats.singles import widened

OF_TENSORS = """add.Tensor sub.Tensor div.Tensor maximum.default minimum.default pow.Tensor_Tensor
    atan2.default eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor where.self cat.default
"""


WITH_NUMBERS = "add.Scalar sub.Scalar rsub.Scalar mul.Scalar div.Scalar div.Tensor"
"""Arithmetic whose result type determines the type of computation; integer division gives floats.
"""


@lowers(
    {f"aten.{name}": "common" for name in f"mul.Tensor {OF_TENSORS}".split()}
    | {f"aten.{name}": "result" for name in WITH_NUMBERS.split()},
    to="aten",
    phases=("tosa/decompose",),
    sample=("4xf32", "4xi32"),
)
def promote_operands(*, form: str, op: Any, b: Rewriter) -> tuple[Value, ...] | None:
    """Promote operands of sums, products, comparisons, … to the element type that PyTorch uses."""
    first = 1 if isinstance(op, aten.WhereSelf) else 0
    types = [value.type for value in op.operands]
    if not all(isinstance(t, TensorType) and has_torch_dtype(element(t)) for t in types[first:]):
        return None
    values = [Value(value, b) for value in op.operands]
    common = element(op.results[0].type)
    if form == "common":
        common = element_type(reduce(_common, map(_of_type, values[first:])).dtype)
    if all(value.dtype == common for value in values[first:]):
        return None
    return again(op, [*values[:first], *(value.cast(common) for value in values[first:])])


def _of_type(value: Value) -> torch.Tensor:
    """Return a tensor converted to a type; PyTorch's promotion treats rank 0 separately."""
    return torch.empty([1] * value.rank, dtype=torch_dtype(value.dtype), device="meta")


def _common(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    shape = one.shape if one.dim() else other.shape
    return torch.empty(shape, dtype=torch.result_type(one, other), device="meta")


@lowers(
    "aten.mul.Tensor",
    "aten.add.Tensor",
    "aten.sub.Tensor",
    "aten.div.Tensor",
    "aten.maximum.default",
    "aten.minimum.default",
    to="aten",
    unless=lambda op: element(op.results[0].type) != f32,
    sample=("4xf32", "4xf16"),
)
def widen_mixed_floats(*, op: Any, b: Rewriter) -> tuple[Value, ...] | None:
    """Cast halves, bfloat16s, integers and booleans mixed with f32 operands to f32.

    PyTorch promotes them implicitly: rotary tables stored in halves meet queries computed in f32,
    sizes and masks meet positions. XNNPACK's nodes take one element type. A quotient of integers
    stays, since nothing in a delegate uses it.
    """
    tensors = [value for value in op.operands if isinstance(value.type, TensorType)]
    narrow = [v for v in tensors if element(v.type) in (f16, bf16) or _is_whole(v)]
    if not narrow or all(map(_is_whole, tensors)):
        return None
    return again(op, [Value(widened(b, v) if v in narrow else v, b) for v in op.operands])


def _is_whole(value: SSAValue) -> bool:
    """Whether a tensor has integers or booleans, which PyTorch promotes to floats."""
    return isinstance(element(value.type), IntegerType)


@lowers(
    "aten.layer_norm.default",
    "aten.group_norm.default",
    "aten.batch_norm.default",
    to="aten",
    bound=roundings("one rounding to halves may go to either side"),
    unless=lambda op: len({element(value.type) for value in op.operands}) == 1,
    sample="""
    %w = stepwell.weight <"w"> "parameter" : tensor<4xf32>
    %y = aten.layer_norm.default(%x, [4], %w) : (tensor<2x4xf16>, tensor<4xf32>) -> tensor<2x4xf16>
    """,
)
def widen_mixed_norm(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Compute a norm of halves with wider parameters in the type of its parameters.

    A half-precision network usually keeps its norms in float32. PyTorch computes such a norm in the
    wider type and rounds its result once. No target has a norm of two element types. Other mixtures
    (bfloat16 with float16), for which PyTorch has no kernel, are computed in float32, or in float64
    if that is one of the types.
    """
    wide = f64 if f64 in {element(value.type) for value in op.operands} else f32
    arguments = {
        name: cast(b, value, wide) if isinstance(value, SSAValue) else value
        for name, value in op.present().items()
    }
    types = [with_element(op.results[0].type, wide)]
    return Value(emit(b, type(op).from_arguments(arguments, types)), b).cast(out.dtype)


RULES = lowerings_of(__name__)

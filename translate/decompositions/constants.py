"""Lift scalars to constant tensors, and give tensors of rank 0 an axis."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.families import ops_of
from stepwell.ir.dtypes import dtype_name, i1, is_float, torch_dtype
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.rewrites.attention.attention_pattern import scales_attention
from stepwell.translate.rewrites.building import overflows

ALONG = """
    cumsum cumprod kthvalue flip sort sort.stable argsort topk index_select gather scatter.src
    scatter.value scatter_add scatter_reduce.two unfold select_scatter cosine_similarity"""
"""Operations along an axis that are neither reductions nor normalizations."""
WITH_INDEX = ("index", "src")
"""Arguments with the axes of the tensor: if they have rank 0, they get an axis too."""


def is_without_axes(value: object) -> bool:
    """Whether a value is a tensor of rank 0."""
    return (
        isinstance(value, SSAValue) and isinstance(value.type, TensorType) and not dims(value.type)
    )


@lowers(
    *(f"aten.{name}" if "." in name else f"aten.{name}.default" for name in ALONG.split()),
    *(
        name
        for name in (*ops_of("reduction", "aten"), *ops_of("normalization", "aten"))
        if "dim" in op_class(name).SCHEMA.by_name
    ),
    to="aten",
    unless=lambda op: not is_without_axes(op.operands[0]),
    bound=Bound(0.0, 2**-126, "a norm squares: a denormal may become zero"),
    sample=("f32", 0),
)
def give_scalar_an_axis(*, op: Any, b: Rewriter) -> tuple[Value, ...]:
    """Give a tensor of rank 0 an axis of length 1 for an operation along an axis.

    PyTorch accepts the axes 0 and -1 for a tensor of rank 0, and reduces, scans, flips or selects
    its one element. No target has such an axis: the portable kernels fail or abort the process.
    """
    first, stated = op.SCHEMA.arguments[0].name, op.present()
    names = [first, *(name for name in WITH_INDEX if name in stated)]
    tensors = {n: stated[n] for n in names if n == first or is_without_axes(stated[n])}
    lifted = {name: Value(value, b).view(1).ssa for name, value in tensors.items()}
    made = b.insert(type(op).from_arguments({**stated, **lifted}))
    results = zip(made.results, op.results, strict=True)
    return tuple(Value(mine, b).view(*dims(old.type)) for mine, old in results)


@lowers(
    {
        "aten.mul.Scalar": aten.MulTensor,
        "aten.add.Scalar": aten.AddTensor,
        "aten.sub.Scalar": aten.SubTensor,
        "aten.div.Scalar": aten.DivTensor,
        "aten.rsub.Scalar": aten.SubTensor,
    },
    to="aten",
    phases={"xnnpack/scalars": {"protect_attention": False}},
    sample=("2x3xf32", 0.5),
)
def lift_constant_scalar(
    x: Value,
    other: Any,
    *,
    form: type[SchemaOp],
    op: Any,
    out: Out,
    b: Rewriter,
    protect_attention: bool = True,
) -> Value:
    """Lift the scalar of a multiplication, addition, … into a constant tensor.

    XNNPACK has no scalar operands: an `aten.mul.Scalar` stays outside and splits a delegate in two.
    With the number as a constant tensor the op is an ordinary multiply. The constant is an entry of
    the weight store, shared by equal numbers, and never computed at run time by `aten.full`.

    Multipliers that scale attention scores are left for the attention recognizer if the pipeline
    has one (`protect_attention`), which needs their value. In doubt a multiplier counts as such a
    scale.
    """
    if isinstance(other, SSAValue):
        refuse("the scalar is known only at run time")
    if torch_dtype(out.dtype).is_complex:
        refuse("the tensor is complex")
    if "alpha" in op.SCHEMA.by_name and op.arg("alpha") != 1:
        refuse(f"alpha is {op.arg('alpha')}, which also scales the number")
    if x.dtype != out.dtype:
        name, made = dtype_name(x.dtype), dtype_name(out.dtype)
        refuse(f"the scalar promotes {name} to {made}; cast the tensor before")
    if x.dtype == i1:
        refuse("bool tensors have no arithmetic")
    no_refusal(rounds(op))
    is_scale = protect_attention and isinstance(op, aten.MulScalar | aten.DivScalar)
    if is_scale and scales_attention(op):
        refuse("the op scales an attention: recognize-attention takes the scale")
    number = Value(b.weight(b.weights.number(other, torch_dtype(x.dtype), 1 if x.rank else 0)), b)
    first, second = (number, x) if isinstance(op, aten.RsubScalar) else (x, number)
    return first.call(form, second, shape=out.shape)


def rounds(op: SchemaOp) -> Refusal | None:
    """Refuse a number that the tensor's dtype does not represent exactly.

    PyTorch computes half-precision ops with the scalar in f32; a constant tensor would be rounded
    first. For f32 tensors, PyTorch rounds the scalar to f32, which is the constant's value.
    """
    operand_element = element(op.operands[0].type)
    dtype, number = torch_dtype(operand_element), op.arg("other")
    if is_float(operand_element) and (refusal := overflows(number, operand_element)):
        return refusal
    if dtype in (torch.float32, torch.float64):
        return None
    if dtype.is_floating_point:
        if torch.tensor(number, dtype=dtype).item() != torch.tensor(number).float().item():
            return Refusal(
                f"{number!r} is not exact in {dtype_name(operand_element)}, "
                "torch multiplies in float32"
            )
        return None
    bounds = torch.iinfo(dtype)
    if not bounds.min <= number <= bounds.max:
        return Refusal(f"{number!r} does not fit {dtype_name(operand_element)}")
    return None


RULES = lowerings_of(__name__)

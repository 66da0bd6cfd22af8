"""Lowerings of linear layers and matrix products."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import bf16, f32
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import dims, tensor
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.lowerings.xnnpack.values import flushed, node
from stepwell.translate.rewrites import building
from stepwell.translate.rewrites.building import axis, cast, permute
from stepwell.translate.rewrites.xnnpack.floats.singles import is_layer_of_bfloats, widened
from stepwell.translate.rewrites.xnnpack.nodes.guards import (
    may_be_empty,
    not_constant,
    not_held,
    not_static,
)


@lowers(
    "aten.linear.default",
    to="xnnpack",
    bound=roundings("sums in another order"),
    deviation=flushed,
    unless=is_layer_of_bfloats,
    name="lower-linear",
    sample="""
        %w = stepwell.weight <"w"> "parameter" : tensor<3x4xf32>
        %y = aten.linear.default(%x, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
    """,
)
def linear(x: Value, weight: Value, bias: Value | None, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Lower to a fully connected node; a vector input gets a leading axis.

    If the weight is computed at run time, XNNPACK crashes on a bias, so the bias is added by a
    separate node.
    """
    added, result = op.operand("bias"), op.results[0].type
    no_refusal(not_static(weight.ssa))
    no_refusal(not_constant(added, "bias"))
    if weight.rank != 2:
        refuse("the weight is a vector")
    is_vector = x.rank == 1
    rows = x.ssa if not is_vector else building.view(b, x.ssa, [1, *x.shape])
    packed = None if weight.key is None else added
    y = node(
        b, xnnpack.FullyConnected, rows, weight.ssa, packed, result=None if is_vector else result
    )
    value = building.view(b, y.ssa, out.shape) if is_vector else y.ssa
    if weight.key is None and added is not None:
        value = b.insert(aten.AddTensor.make(value, added, result_types=[result])).results[0]
    return Value(value, b)


@lowers(
    "aten.linear.default",
    to="xnnpack",
    check="none",
    bound=roundings("sums in another order"),
    deviation=flushed,
    unless=lambda op: not is_layer_of_bfloats(op),
    sample="""
        %w = stepwell.weight <"w"> "parameter" : tensor<3x4xbf16>
        %y = aten.linear.default(%x, %w) : (tensor<2x4xbf16>, tensor<3x4xbf16>) -> tensor<2x3xbf16>
    """,
)
def linear_of_bfloats(
    x: Value, weight: Value, bias: Value | None, *, out: Out, b: Rewriter
) -> Value:
    """Lower a linear layer of bfloat16 to a fully connected node with a result in f32, and a cast.

    The node sums in f32 and takes a bias in f32. The cast cancels against one to f32 behind it.
    """
    no_refusal(not_held(x.ssa))
    added = None if bias is None else widened(b, bias.ssa)
    wide = tensor(out.shape, f32)
    y = node(b, xnnpack.FullyConnected, x.ssa, weight.ssa, added, result=wide)
    return Value(cast(b, y.ssa, bf16), b)


@lowers(
    "aten.mm.default",
    "aten.bmm.default",
    "aten.matmul.default",
    to="xnnpack",
    bound=roundings("sums in another order"),
    deviation=flushed,
    name="lower-matmul",
    sample="""
        %t = aten.permute.default(%k, [0, 2, 1]) : (tensor<2x5x4xf32>) -> tensor<2x4x5xf32>
        %y = aten.bmm.default(%q, %t) : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
    """,
)
def matmul(x: Value, other: Value, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Lower a batched product of equal ranks; a transposed right operand is read without a copy."""
    no_refusal(may_be_empty(op, (*x.shape, *other.shape)))
    if min(x.rank, other.rank) < 2:
        refuse("an operand is a vector; view it as a matrix of one row")
    if x.rank != other.rank and not (x if x.rank < other.rank else other).is_static:
        refuse("the operand of fewer axes has a symbolic size")
    is_turned, rank = reads_columns(other.ssa), max(3, x.rank, other.rank)
    right = upright(b, other.ssa) if is_turned else other.ssa
    sides = [_raised(b, value, rank) for value in (x.ssa, right)]
    y = node(b, xnnpack.BatchMatrixMultiply, *sides, transpose_b=is_turned)
    return Value(building.view(b, y.ssa, out.shape), b)


def reads_columns(value: SSAValue) -> bool:
    """Whether a permute exchanged the last two axes, so that the product can read its operand."""
    owner = value.owner
    if not isinstance(owner, aten.PermuteDefault):
        return False
    rank = len(dims(value.type))
    return axis(owner.arg("dims")[-2], rank) == rank - 1


def upright(b: Rewriter, value: SSAValue) -> SSAValue:
    """Undo the exchange of the last two axes in a permute: whole rows move, or nothing does."""
    owner = value.owner
    assert isinstance(owner, aten.PermuteDefault)
    rank = len(dims(value.type))
    order = [axis(d, rank) for d in owner.arg("dims")]
    order[-2:] = order[-1], order[-2]
    return permute(b, owner.operands[0], order)


def _raised(b: Rewriter, value: SSAValue, rank: int) -> SSAValue:
    shape = dims(value.type)
    return building.view(b, value, [*([1] * (rank - len(shape))), *shape])


RULES = lowerings_of(__name__)

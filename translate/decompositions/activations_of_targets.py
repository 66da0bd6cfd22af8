"""Decompositions of activations for a single target, which has other forms of them.

rule expand-tanh-gelu
    gelu(x) = x/2 · (1 + tanh u) = x · sigmoid(2u) with u = √(2/π) · (x + 0.044715 x³), so that
    2u = x · (a + b·x²) with a = √(8/π) and b = 0.044715·a. XNNPACK's own gelu is the erf form; the
    stock flow lowers this form to it without a word, 4.7e-4 off. 2u is kept within ±100, where the
    sigmoid is 0 or 1 to the last bit: XNNPACK's is NaN for some numbers beyond 10³⁰. The product
    that makes it clamps for nothing.
Before:
    %y = aten.gelu.default(%x, approximate="tanh") : (tensor<$*S x $E>) -> …
After:
    %q = aten.mul.Tensor(%x, %x) : … -> tensor<$*S x $E>
    %b = aten.mul.Scalar(%q, 0.07135481627260025) : … -> tensor<$*S x $E>
    %a = aten.add.Scalar(%b, 1.5957691216057308) : … -> tensor<$*S x $E>
    %u = aten.mul.Tensor(%x, %a) : … -> tensor<$*S x $E>
    %c = aten.clamp.default(%u, -100.0, 100.0) : … -> tensor<$*S x $E>
    %g = aten.sigmoid.default(%c) : … -> tensor<$*S x $E>
    %y = aten.mul.Tensor(%x, %g)
unless are_not_for_xnnpack(%x, %y) for target
bound 1e-6 of |%x|: "a sigmoid in place of a tanh, reassociated"
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewriter
from stepwell.translate.decompositions.values import Value, no_refusal
from stepwell.translate.lowerings.lowering import lowerings_of, lowers, refuse
from stepwell.translate.rewrites.xnnpack.nodes.guards import (
    not_constant,
    not_floats,
    not_for_xnnpack,
)
from stepwell.translate.rules import RuleSet, read_rules


def are_not_for_xnnpack(*values: SSAValue) -> Refusal | None:
    """Refuse values that are not of a float type of XNNPACK."""
    return not_floats(values)


@lowers(
    "aten.gelu.default",
    to="aten",
    phases=("tosa/decompose",),
    bound=roundings("the product is regrouped"),
    sample="""
    %g = aten.gelu.default(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %y = aten.linear.default(%g, %w) : (tensor<2x4xf32>, tensor<3x4xf32>) -> tensor<2x3xf32>
    """,
)
def split_gelu(x: Value, *, op: Any, approximate: str, b: Rewriter) -> Value:
    """Split GELU to `(x · (1 + erf(x/√2))) · ½` before a linear layer, which absorbs the ½."""
    if approximate != "none":
        refuse("the tanh form has no constant factor that the layer could absorb")
    if x.dtype != f32:
        refuse("1 + erf loses too much in float16 and bfloat16")
    if not all(_is_layer_of(use.operation, op) for use in op.results[0].uses):
        refuse("the value is read by another op than a linear layer")
    curve = (x * 0.7071067811865476).call(aten.ErfDefault)
    return (curve + 1.0) * x * Value(b.constant(torch.full([1], 0.5)), b)


def _is_layer_of(reader: Operation, op: SchemaOp) -> bool:
    return isinstance(reader, aten.LinearDefault) and reader.operands[0] is op.results[0]


@lowers(
    "aten.prelu.default",
    to="aten",
    phases=("xnnpack/decompose",),
    requires=not_for_xnnpack,
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
    no_refusal(not_constant(slopes.ssa, "slopes"))
    last = x.permute([0, *range(2, x.rank), 1])
    result = b.insert(xnnpack.PReLU.make(last.ssa, slopes.ssa, result=last.ssa.type)).results[0]
    return Value(result, b).permute([0, x.rank - 1, *range(1, x.rank - 1)])


RULES = RuleSet((*read_rules(__doc__, globals(), ("xnnpack/decompose",)), *lowerings_of(__name__)))

"""Decompositions of sums with factors into products and plain sums.

rule split-alpha-of-add
    `add` with a factor; no target's addition has one.
Before:
    %y = aten.add.Tensor(%x, %z, alpha=$a)
After:
    %p = aten.mul.Scalar(%z, $a)
    %y = aten.add.Tensor(%x, %p)
where not is_one($a) for termination
where is_number($a) else "alpha is a truth value, or complex"
where same_element(%x, %z) else "the operands have several dtypes, and alpha is not 1"
where not is_bool(%x) else "alpha of truth values is not 1"
bound 3.6e-7 of |%x| + |%y|: "the product is rounded on its own"
for $a = 0.3

rule split-alpha-of-sub
    `sub` with a factor.
Before:
    %y = aten.sub.Tensor(%x, %z, alpha=$a)
After:
    %p = aten.mul.Scalar(%z, $a)
    %y = aten.sub.Tensor(%x, %p)
where not is_one($a) for termination
where is_number($a) else "alpha is a truth value, or complex"
where same_element(%x, %z) else "the operands have several dtypes, and alpha is not 1"
bound 3.6e-7 of |%x| + |%y|: "the product is rounded on its own"
for $a = 0.3

rule split-alpha-of-rsub
    `rsub` takes its first operand from its second.
Before:
    %y = aten.rsub.Tensor(%x, %z, alpha=$a)
After:
    %p = aten.mul.Scalar(%x, $a)
    %y = aten.sub.Tensor(%z, %p)
where not is_one($a) for termination
where same_element(%x, %z) else "the operands have several dtypes, and alpha is not 1"
bound 3.6e-7 of |%z| + |%y|: "the product is rounded on its own"
for $a = 0.3

rule lerp-from-start
    torch interpolates from the nearer end: a + w·(b − a) below one half. Its decomposition asks for
    the weight at run time; a number is known now.
Before:
    %y = aten.lerp.Scalar(%a, %b, $w) : (tensor<$*S x $E>, …) -> …
After:
    %d = aten.sub.Tensor(%b, %a)
    %p = aten.mul.Scalar(%d, $w)
    %y = aten.add.Tensor(%a, %p)
where is_nearer_to_start($w) for accuracy
where is_single($E) else "the error bound of this rewrite holds for float32 only"
bound 5e-7 of |%a| + |%y|: "torch may contract the product and the sum"
for $w = 0.3

rule lerp-from-end
    From one half on: b − (b − a)·(1 − w).
Before:
    %y = aten.lerp.Scalar(%a, %b, $w) : (tensor<$*S x $E>, …) -> …
After:
    %d = aten.sub.Tensor(%b, %a)
    %p = aten.mul.Scalar(%d, complement($w))
    %y = aten.sub.Tensor(%b, %p)
where not is_nearer_to_start($w) for accuracy
where is_single($E) else "the error bound of this rewrite holds for float32 only"
bound 5e-7 of |%b| + |%y|: "torch may contract the product and the sum"
for $w = 0.7

rule split-addcmul
    A product and a sum.
Before:
    %y = aten.addcmul.default(%x, %a, %b)
After:
    %p = aten.mul.Tensor(%a, %b)
    %y = aten.add.Tensor(%x, %p)
where same_element(%y, %x, %a, %b) for target else "the operands have several dtypes"
bound 2.4e-7 of |%x| + |%y|: "the product is rounded on its own"

rule split-scaled-addcmul
    The factor first, as in torch: the product may overflow without it.
Before:
    %y = aten.addcmul.default(%x, %a, %b, value=$?v)
After:
    %s = aten.mul.Scalar(%a, $v)
    %p = aten.mul.Tensor(%s, %b)
    %y = aten.add.Tensor(%x, %p)
where not is_one($v) for cost
where is_number($v) else "value is complex, or known only at run time"
where same_element(%y, %x, %a, %b) else "the operands have several dtypes"
unless promotes(%x, $v)
bound 5e-7 of |%x| + |%y|: "the product is rounded on its own"
for $v = 0.3

rule split-addcdiv
    A quotient and a sum.
Before:
    %y = aten.addcdiv.default(%x, %a, %b) : (tensor<$*S x $E>, …, …) -> …
After:
    %q = aten.div.Tensor(%a, %b)
    %y = aten.add.Tensor(%x, %q)
where not is_half($E) else "torch computes halves in f32 and rounds the sum alone"
where same_element(%y, %x, %a, %b) else "the operands have several dtypes"
bound 2.4e-7 of |%x| + |%y|: "the product is rounded on its own"

rule split-scaled-addcdiv
    The factor first, as in torch: the quotient may overflow without it.
Before:
    %y = aten.addcdiv.default(%x, %a, %b, value=$?v) : (tensor<$*S x $E>, …, …) -> …
After:
    %s = aten.mul.Scalar(%a, $v)
    %q = aten.div.Tensor(%s, %b)
    %y = aten.add.Tensor(%x, %q)
where not is_one($v) for cost
where is_number($v) else "value is complex, or known only at run time"
where not is_half($E) for accuracy else "torch computes halves in f32 and rounds the sum alone"
where same_element(%y, %x, %a, %b) else "the operands have several dtypes"
bound 5e-7 of |%x| + |%y|: "the product is rounded on its own"
for $v = 0.3
"""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue

from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import bf16, f16
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.types import element
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import lowerings_of, lowers
from stepwell.translate.rewrites import building
from stepwell.translate.rules import RuleSet, read_rules


def promotes(value: SSAValue, factor: object) -> Refusal | None:
    """Whether a float factor would promote integers."""
    return building.promotes(factor, element(value.type))


def is_half(of: Attribute) -> bool:
    """Whether the type is f16 or bf16."""
    return of in (f16, bf16)


def is_nearer_to_start(weight: float) -> bool:
    """Whether torch interpolates from the first end, which it does for small weights."""
    return abs(weight) < 0.5


def complement(weight: float) -> float:
    """Return 1 − weight."""
    return 1 - weight


@lowers(
    "aten.lerp.Tensor",
    to="aten",
    phases=("xnnpack/decompose",),
    bound=roundings("both ends give the same number, and round on the way"),
    deviation=lambda op, program: Deviation("an infinity of the nearer end may become NaN"),
    sample=("2x3xf32", "2x3xf32", "3xf32"),
)
def lerp_by_weights(first: Value, last: Value, weight: Value) -> Value:
    """Interpolate between two tensors from the end that is nearer, as PyTorch does."""
    return first + weight * (last - first)


RULES = RuleSet((*read_rules(__doc__, globals()), *lowerings_of(__name__)))

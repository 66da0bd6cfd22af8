"""Hoisting: move a multiplication by a number before the layout ops that it follows.

Layout ops move elements and do not change them, so the products are the same numbers. Before the
layout ops, the factor can be folded into the weights of the projection that computed the tensor.

rule hoist-scale-over-layout
    `view(x) * s` to `view(x * s)`, likewise for whatever reshapes or permutes.
Before:
    %p = $layout of LAYOUTS(%x, …)
    %y = aten.mul.Scalar(%p, $?factor) : ($T) -> $T
After:
    %p = aten.mul.Scalar(%x, $factor)
    %y = $layout(%p, …)
where is_number($factor)
where is_laid_out(%p)
where not is_weight(%x) for cost
where reads_once(%p) for cost else "the tensor is read without the factor too"
for $layout = "aten.permute.default", $dims = [1, 0], $factor = 0.5, $T = "tensor<3x2xf32>"
not for %n = aten.sym_size.int(%i, 0); $factor = %n,
    %i = 'tensor<?xf32, #stepwell.shape<["n"]>>'
not for $layout = "aten.dropout.default", $p = 0.5, $train = true
not for %x = weight : tensor<2 x 3 x f32>
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.dialects.aten.registry import op_class
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_of, ops_of
from stepwell.translate.rules import read_rules

FAMILIES = ("reshape", "permutation")
LAYOUTS = tuple(op_class(name) for family in FAMILIES for name in ops_of(family, "aten"))


def is_laid_out(value: SSAValue) -> bool:
    """Whether the op returns each element of its operand once, in another layout."""
    return is_of(value.owner, *FAMILIES)


def is_weight(value: SSAValue) -> bool:
    """Whether the value is a weight, which is laid out at compile time."""
    return isinstance(value.owner, WeightOp)


(HoistScaleOverLayout,) = RULES = read_rules(__doc__, globals())

"""Move a multiplication by a number ahead of the layout ops it follows, towards a linear layer.

Layout ops move elements and change none, so the products are the same numbers. Ahead of them the
factor can be folded into the weights of the projection that made the tensor.

rule hoist-scale-over-layout
    `view(x) * s` to `view(x * s)`, likewise for permute.
Before:
    %p = $layout of LAYOUTS(%x, …)
    %y = aten.mul.Scalar(%p, $?factor) : ($T) -> $T
After:
    %p = aten.mul.Scalar(%x, $factor)
    %y = $layout(%p, …)
where is_number($factor)
where not is_weight(%x) for cost
where reads_once(%p) for cost else "the tensor is read without the factor too"
for $layout = "aten.permute.default", $dims = [1, 0], $factor = 0.5, $T = "tensor<3x2xf32>"
not for %n = aten.sym_size.int(%i, 0); $factor = %n,
    %i = 'tensor<?xf32, #stepwell.shape<["n"]>>'
not for %x = weight : tensor<2 x 3 x f32>
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.ir.core import WeightOp
from stepwell.translate.rules import read_rules

LAYOUTS = (aten.ViewDefault, aten.PermuteDefault)


def is_weight(value: SSAValue) -> bool:
    """A weight, which is laid out ahead of time."""
    return isinstance(value.owner, WeightOp)


(HoistScaleOverLayout,) = RULES = read_rules(__doc__, globals())

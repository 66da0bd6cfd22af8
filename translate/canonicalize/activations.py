"""Canonicalization of activations that a model writes as arithmetic, or by another name.

rule recognize-hardswish
    x·hardsigmoid(x), which targets have as it is.
Before:
    %g = aten.hardsigmoid.default(%x) : (tensor<$*S x f32>) -> …
    %y = aten.mul.Tensor({%x, %g}) : (…, …) -> tensor<$*S x f32>
After:
    %y = aten.hardswish.default(%x)
bound 1e-6 relative: "the quotient is taken before or after the product"

rule recognize-written-hardswish
    x·(clamp(x + 3, 0, 6) / 6).
Before:
    %a = aten.add.Scalar(%x, 3) : (tensor<$*S x f32>) -> …
    %m = aten.clamp.default(%a, 0, 6)
    %g = aten.div.Scalar(%m, 6)
    %y = aten.mul.Tensor({%x, %g}) : (…, …) -> tensor<$*S x f32>
After:
    %y = aten.hardswish.default(%x)
bound 1e-6 relative: "the quotient is taken before or after the product"

rule recognize-divided-hardswish
    x·clamp(x + 3, 0, 6) / 6.
Before:
    %a = aten.add.Scalar(%x, 3) : (tensor<$*S x f32>) -> …
    %m = aten.clamp.default(%a, 0, 6)
    %p = aten.mul.Tensor({%x, %m})
    %y = aten.div.Scalar(%p, 6) : … -> tensor<$*S x f32>
After:
    %y = aten.hardswish.default(%x)
bound 1e-6 relative: "the quotient is taken before or after the product"

rule celu-to-elu
    With alpha = 1 the two are the same.
Before:
    %y = aten.celu.default(%x)
After:
    %y = aten.elu.default(%x)
"""

from __future__ import annotations

from stepwell.translate.rules import read_rules

RULES = read_rules(__doc__, globals())

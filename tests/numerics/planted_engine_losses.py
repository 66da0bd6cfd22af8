"""Lowerings that are right of ordinary numbers, and lose a class of numbers on some engine."""

import eager
import torch

from stepwell.translate.rules import read_rules

RULES = """
rule planted-cosh-by-exp
    An exponential loses a NaN and overflows early.
Before:
    %y = aten.cosh.default(%x)
After:
    %p = aten.exp.default(%x)
    %m = aten.neg.default(%x)
    %n = aten.exp.default(%m)
    %s = aten.add.Tensor(%p, %n)
    %y = aten.mul.Scalar(%s, 0.5)

rule planted-erfc-by-exp
    An exponential loses a NaN.
Before:
    %y = aten.erfc.default(%x)
After:
    %s = aten.mul.Tensor(%x, %x)
    %m = aten.neg.default(%s)
    %y = aten.exp.default(%m)

rule planted-logsumexp-by-log
    Without the greatest taken away first.
Before:
    %y = aten.logsumexp.default(%x, $d, $k)
After:
    %e = aten.exp.default(%x)
    %s = aten.sum.dim_IntList(%e, $d, $k)
    %y = aten.log.default(%s)
for $d = [1], $k = false

rule planted-log10-by-log
    A logarithm of infinity.
Before:
    %y = aten.log10.default(%x)
After:
    %l = aten.log.default(%x)
    %y = aten.mul.Scalar(%l, 0.4342944819032518)

rule planted-softplus-by-log
    A logarithm of a NaN or an infinity.
Before:
    %y = aten.softplus.default(%x)
After:
    %e = aten.exp.default(%x)
    %s = aten.add.Scalar(%e, 1.0)
    %y = aten.log.default(%s)

rule planted-reciprocal-of-root
    An inverse root of zero.
Before:
    %s = aten.sqrt.default(%x)
    %y = aten.reciprocal.default(%s)
After:
    %y = aten.rsqrt.default(%x)

rule planted-clamp-by-maximum
    Maxima and minima that clear a NaN on some CPUs.
Before:
    %y = aten.clamp.Tensor(%x, %low, %high)
After:
    %m = aten.maximum.default(%x, %low)
    %y = aten.minimum.default(%m, %high)

rule planted-sigmoid-by-exp
    An exponential where a sigmoid was.
Before:
    %y = aten.sigmoid.default(%x)
After:
    %m = aten.neg.default(%x)
    %e = aten.exp.default(%m)
    %s = aten.add.Scalar(%e, 1.0)
    %y = aten.reciprocal.default(%s)

rule planted-greatest-by-pooling
    A pooling that drops a NaN.
Before:
    %y = aten.amax.default(%x, [2, 3], true)
After:
    %y = aten.max_pool2d.default(%x, [4, 4])
for %x = "tensor<2x3x4x4xf32>"

rule planted-power-by-log
    A logarithm and an exponential.
Before:
    %y = aten.pow.Tensor_Tensor(%x, %z)
After:
    %l = aten.log.default(%x)
    %p = aten.mul.Tensor(%l, %z)
    %y = aten.exp.default(%p)

rule planted-reciprocal-by-rsqrt
    The square of an inverse root.
Before:
    %y = aten.reciprocal.default(%x)
After:
    %r = aten.rsqrt.default(%x)
    %y = aten.mul.Tensor(%r, %r)

rule planted-product-by-log
    A logarithm of infinity, or of a NaN.
Before:
    %y = aten.xlogy.Tensor(%x, %z)
After:
    %l = aten.log.default(%z)
    %y = aten.mul.Tensor(%x, %l)
"""
PLANTED = {rule.name: rule for rule in read_rules(RULES, {"__name__": __name__})}


X, IMAGE = torch.zeros(4, 14), torch.zeros(2, 3, 4, 4)
MODELS = {
    "planted-cosh-by-exp": (torch.cosh, (X,)),
    "planted-erfc-by-exp": (torch.erfc, (X,)),
    "planted-logsumexp-by-log": (lambda x: torch.logsumexp(x, 1), (X,)),
    "planted-log10-by-log": (torch.log10, (X,)),
    "planted-softplus-by-log": (torch.nn.functional.softplus, (X,)),
    "planted-reciprocal-of-root": (lambda x: torch.reciprocal(torch.sqrt(x)), (X,)),
    "planted-clamp-by-maximum": (
        lambda x, y: torch.clamp(x, y, y + 1),
        (X, X.clone()),
    ),
    "planted-sigmoid-by-exp": (torch.sigmoid, (X,)),
    "planted-greatest-by-pooling": (lambda x: torch.amax(x, (2, 3), keepdim=True), (IMAGE,)),
    "planted-power-by-log": (torch.pow, (X, X.clone())),
    "planted-reciprocal-by-rsqrt": (torch.reciprocal, (X,)),
    "planted-product-by-log": (torch.xlogy, (X, X.clone())),
}


def exported(name: str) -> torch.export.ExportedProgram:
    """The program that a planted rule is for."""
    function, inputs = MODELS[name]
    return eager.exported(function, *inputs)

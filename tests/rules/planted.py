"""Forty rules that are wrong, each by one thing: an axis, a sign, a guard, a rounding, −0, sizes,
an element type. All must be refuted, with numbers on which they differ.
"""

from collections.abc import Sequence
from typing import Any

from .doubtful import Doubtful


def wrongly_composed(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The composition in the other order."""
    return [second[at] for at in first]


def double(number: float) -> float:
    """2·number."""
    return number * 2


def next_axis(at: int) -> int:
    """An axis beside another."""
    return at - 1


def rounded_quotient(number: float) -> float:
    """1/number, which rounds."""
    return 1 / number


def sum_of(one: float, other: float) -> float:
    """one + other."""
    return one + other


S = "tensor<$*S x $E>"
PLANTED: list[Doubtful] = [
    # an axis
    Doubtful("axis", "%p = aten.permute.default(%x, $p); %y = aten.permute.default(%p, $q)",
            "%y = aten.permute.default(%x, wrongly_composed($p, $q))",
            "for $p = [1, 2, 0], $q = [0, 2, 1], $x = [2, 2, 2]"),
    Doubtful("axis", "%y = aten._softmax.default(%x, $d, false)",
            "%y = aten._softmax.default(%x, next_axis($d), false)", "for $d = -1"),
    Doubtful("axis", "%y = aten.amax.default(%x, [1], true)",
            "%m = aten.amax.default(%x, [0], true); %y = aten.add.Scalar(%m, 0)",
            "for $x = [2, 2]"),
    Doubtful("axis", "%y = aten.mean.dim(%x, [0], true)",
            "%a = aten.mean.dim(%x, [1], true); %y = aten.permute.default(%a, [1, 0])",
            "for $x = [2, 2]"),
    Doubtful("axis", "%y = aten.transpose.int(%x, 0, 1)", "%y = aten.permute.default(%x, [0, 1])",
            "for $x = [2, 2]"),
    Doubtful("axis", "%y = aten.flip.default(%x, [0])", "%y = aten.flip.default(%x, [1])",
            "for $x = [2, 3]"),
    # a sign
    Doubtful("sign", "%y = aten.rsub.Tensor(%x, %z)", "%y = aten.sub.Tensor(%x, %z)"),
    Doubtful("sign", "%a = aten.neg.default(%x); %y = aten.abs.default(%a)",
            "%b = aten.abs.default(%x); %y = aten.neg.default(%b)"),
    Doubtful("sign", "%a = aten.neg.default(%x); %y = aten.cos.default(%a)",
            "%b = aten.cos.default(%x); %y = aten.neg.default(%b)"),
    Doubtful("sign", "%y = aten.neg.default(%x)", "%y = aten.abs.default(%x)"),
    Doubtful("sign", "%y = aten.sub.Scalar(%x, $c)", "%y = aten.add.Scalar(%x, $c)",
             "for $c = 0.5"),
    Doubtful("sign", "%a = aten.neg.default(%x); %y = aten.relu.default(%a)",
            "%b = aten.relu.default(%x); %y = aten.neg.default(%b)"),
    # a guard that is missing
    Doubtful("guard", "%p = aten.permute.default(%x, $p); %y = aten.permute.default(%p, $q)",
            "%y = %x", "for $p = [1, 0], $q = [1, 0], $x = [2, 2]"),
    Doubtful("guard", "%y = aten.permute.default(%x, $d)", "%y = %x", "for $d = [0, 1]"),
    Doubtful("guard", "%y = aten.add.Tensor(%x, %z, alpha=$a)", "%y = aten.add.Tensor(%x, %z)",
            "for $a = 1"),
    Doubtful("guard", "%y = aten.mul.Scalar(%x, $c)", "%y = %x", "for $c = 1.0"),
    Doubtful("guard", "%y = aten.threshold.default(%x, $t, $v)",
            "%y = aten.clamp.default(%x, $t, none)", "for $t = 0.0, $v = 0.0"),
    Doubtful("guard", "%y = aten.elu.default(%x, $a)", "%y = aten.elu.default(%x)",
            "bound 1e-6 relative: \"wrong\"; for $a = 1.0"),
    Doubtful("guard", "%y = aten.constant_pad_nd.default(%x, $p, 0.0)", "%y = %x",
            "for $p = [1, -1]"),
    Doubtful("guard", "%m = aten.clamp.default(%x, $a, $b); %y = aten.clamp.default(%m, $c, $d)",
            "%y = aten.clamp.default(%x, $a, $d)", "for $a = 0.0, $b = 6.0, $c = 1.0, $d = 5.0"),
    Doubtful("guard", "%y = aten.softplus.default(%x, $b, 20)",
            "%y = aten.softplus.default(%x, 1, 20)",
            "bound 1e-6 relative: \"wrong\"; for $b = 1.0"),
    # a rounding that is not told
    Doubtful("rounding", "%y = aten.div.Scalar(%x, $c)",
            "%y = aten.mul.Scalar(%x, rounded_quotient($c))",
            "where is_finite($c); where not is_zero($c); for $c = 3.0"),
    Doubtful("rounding", "%p = aten.mul.Scalar(%x, $a); %y = aten.mul.Scalar(%p, $b)",
            "%y = aten.mul.Scalar(%x, product($a, $b))", "for $a = 1.7, $b = 1.3"),
    Doubtful("rounding", "%p = aten.add.Scalar(%x, $a); %y = aten.add.Scalar(%p, $b)",
            "%y = aten.add.Scalar(%x, sum_of($a, $b))", "for $a = 1.7, $b = 1.3"),
    Doubtful("rounding", "%p = aten.add.Tensor(%x, %z); %y = aten.sub.Tensor(%p, %z)",
            "%c = aten.clone.default(%x); %y = aten.add.Tensor(%c, %z)"),
    Doubtful("rounding", f"%y = aten.silu.default(%x) : ({S}) -> {S}",
            "%s = aten.sigmoid.default(%x); %y = aten.mul.Tensor(%x, %s)"),
    Doubtful("rounding", "%y = aten.hardsigmoid.default(%x)",
            "%a = aten.add.Scalar(%x, 3); %m = aten.clamp.default(%a, 0, 6); "
            "%y = aten.mul.Scalar(%m, 0.16666666666666666)"),
    # a zero that loses its sign, a NaN that is lost
    Doubtful("zero", "%y = aten.add.Scalar(%x, 0.0)",
            "%c = aten.clone.default(%x); %y = aten.mul.Scalar(%c, 1.0)"),
    Doubtful("zero", "%y = aten.neg.default(%x)", "%y = aten.rsub.Scalar(%x, 0.0)"),
    Doubtful("zero", "%a = aten.abs.default(%x); %y = aten.neg.default(%a)",
            "%b = aten.clamp.default(%x, 0.0, none); %n = aten.neg.default(%b); "
            "%c = aten.clamp.default(%x, none, 0.0); %y = aten.add.Tensor(%n, %c)"),
    Doubtful("zero", "%y = aten.relu.default(%x)", "%a = aten.abs.default(%x); "
            "%b = aten.add.Tensor(%x, %a); %y = aten.mul.Scalar(%b, 0.5)"),
    Doubtful("zero", "%y = aten.mul.Scalar(%x, 0.0)",
            "%z = aten.sub.Tensor(%x, %x); %y = aten.mul.Scalar(%z, 1.0)"),
    # only where sizes are equal
    Doubtful("sizes", "%y = aten.t.default(%x)", "%y = aten.permute.default(%x, [0, 1])",
            "for $x = [2, 2]"),
    Doubtful("sizes", "%y = aten.view.default(%x, $s) : (tensor<$A x $B x $E>) -> $T",
             "%p = aten.permute.default(%x, [1, 0]); "
            "%y = aten.view.default(%p, $s)", "for $s = [4], $x = [2, 2]"),
    Doubtful("sizes", "%a = aten.permute.default(%x, [1, 0]); %y = aten.view.default(%a, $s)",
            "%y = aten.view.default(%x, $s)", "for $s = [4], $x = [2, 2]"),
    # only of one element type
    Doubtful("type", "%y = aten.add.Tensor(%x, %z)", "%y = aten.logical_or.default(%x, %z)"),
    Doubtful("type", "%y = aten.div.Scalar_mode(%x, 2, rounding_mode=\"floor\")",
            "%y = aten.div.Scalar_mode(%x, 2, rounding_mode=\"trunc\")"),
    Doubtful("type", "%y = aten.relu.default(%x)", "%y = aten.clamp.default(%x, 0.0, none)"),
    Doubtful("type", "%a = aten.mul.Scalar(%x, $c); %y = aten.mul.Scalar(%a, $d)",
            "%y = aten.mul.Scalar(%x, $c)", "where is_zero($c); for $c = 0.0, $d = 2.0"),
    Doubtful("type", "%y = aten.floor.default(%x)", "%y = aten.trunc.default(%x)"),
]  # fmt: skip
RULES: list[Any] = [planted.rule(number, globals()) for number, planted in enumerate(PLANTED)]

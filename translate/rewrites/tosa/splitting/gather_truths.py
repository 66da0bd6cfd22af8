"""Legalization: gather truth values as bytes, where a target's TOSA version gathers none.

GATHER and SCATTER of `i1` came with TOSA 1.1. The bytes 1 and 0 represent true and false.

rule gather-truths
    GATHER between CASTs.
Before:
    %y = tosa.gather(%x, %i) : (tensor<$*S x i1>, …) -> tensor<$*R x i1>
After:
    %b = tosa.cast(%x) : … -> tensor<$*S x i8>
    %g = tosa.gather(%b, %i) : … -> tensor<$*R x i8>
    %y = tosa.cast(%g)
for $S = [1, 4, 2], $R = [1, 3, 2], %i = "tensor<1x3xi32>"

rule scatter-truths
    SCATTER between CASTs.
Before:
    %y = tosa.scatter(%x, %i, %v) : (tensor<$*S x i1>, …, tensor<$*V x i1>) -> tensor<$*S x i1>
After:
    %b = tosa.cast(%x) : … -> tensor<$*S x i8>
    %n = tosa.cast(%v) : … -> tensor<$*V x i8>
    %s = tosa.scatter(%b, %i, %n) : … -> tensor<$*S x i8>
    %y = tosa.cast(%s)
for $S = [1, 4, 2], $V = [1, 3, 2], %i = "tensor<1x3xi32>"
"""

from __future__ import annotations

from stepwell.translate.rules import read_rules

RULES = read_rules(__doc__, globals())

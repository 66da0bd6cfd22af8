"""Legalization: compute a gelu of halves in float32; XNNPACK's half kernel is scalar.

Its scalar kernel takes 40 nanoseconds an element, while a gelu in float32 takes 0.15 and each
convert around it 0.1. In a transformer of halves that is most of the time.

rule widen-gelu
    A gelu between two converts.
Before:
    %y = xnnpack.gelu(%x) : (tensor<$*S x f16>) -> …
After:
    %w = xnnpack.convert(%x) : … -> tensor<$*S x f32>
    %g = xnnpack.gelu(%w)
    %y = xnnpack.convert(%g)
bound of roundings: "a result next to the middle of two halves may round to either"
"""

from __future__ import annotations

from stepwell.translate.rules import read_rules

RULES = read_rules(__doc__, globals())

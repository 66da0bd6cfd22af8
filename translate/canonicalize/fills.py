"""Canonicalize `fill` and `copy`, which keep only the shape of their first operand.

rule fill-to-full
    A number everywhere.
Before:
    %y = aten.fill.Scalar(%x, $value)
After:
    %y = aten.full_like.default(%x, $value)
where is_static(%x) for target else "the shape is symbolic"
for $value = 0.5

rule copy-to-expand
    What is copied, cast and spread.
Before:
    %y = aten.copy.default(%x, %z, …)
After:
    %y = spread(%z, %y)
where is_static(%x) else "the shape is symbolic"
for %z = "tensor<1x3xf32>"
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from stepwell.ir import types
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.building import cast, expand
from stepwell.translate.rules import read_rules


def is_static(value: SSAValue) -> bool:
    """Whether the tensor has static sizes."""
    return types.is_static(value.type)


def spread(rw: Rewriter, value: SSAValue, like: SSAValue) -> SSAValue:
    """Cast and broadcast a value to the element type and the sizes of another value."""
    return expand(rw, cast(rw, value, element(like.type)), dims(like.type))


RULES = read_rules(__doc__, globals(), ("tosa/decompose",))

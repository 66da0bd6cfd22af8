"""Legalization: clamps and relus become nodes one to one; `fuse_clamp.py` fuses them afterwards.

rule lower-relu
    Relus have bounds of their own.
Before:
    %y = aten.relu.default(%x)
After:
    %y = xnnpack.clamp(%x, output_min=0.0)
unless is_not_for_xnnpack(%y)
loses FLUSHED

rule lower-relu6
    Between 0 and 6.
Before:
    %y = aten.relu6.default(%x)
After:
    %y = xnnpack.clamp(%x, output_min=0.0, output_max=6.0)
unless is_not_for_xnnpack(%y)
loses FLUSHED

rule lower-clamp
    One bound or two, as float32 holds them.
Before:
    %y = aten.$clamp.default(%x, $?low, $?high)
After:
    %y = xnnpack.clamp(%x, output_min=single($low), output_max=single($high))
unless is_not_for_xnnpack(%y)
unless is_no_range($low, $high) for target
loses FLUSHED
for each $clamp of clamp, hardtanh
for $low = -1.0, $high = 1.0
"""

from __future__ import annotations

import math
from typing import cast, overload

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared import numerics
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack
from stepwell.translate.rules import read_rules


def is_not_for_xnnpack(value: SSAValue) -> Refusal | None:
    """Refuse if the op has operands, or a dynamic number, that XNNPACK does not support."""
    return not_for_xnnpack(cast(SchemaOp, value.owner))


@overload
def single(number: float) -> float: ...
@overload
def single(number: None) -> None: ...
def single(number: float | None) -> float | None:
    """Return the nearest float32, the type in which XNNPACK stores and compares bounds."""
    return None if number is None else torch.tensor(number, dtype=torch.float32).item()


def is_no_range(low: float | None, high: float | None) -> Refusal | None:
    """Refuse bounds that admit no number between them in float32."""
    least, most = single(low), single(high)
    if (-math.inf if least is None else least) < (math.inf if most is None else most):
        return None
    return Refusal(f"the lower bound {least} is not below the upper bound {most}")


RULES = read_rules(__doc__, vars(numerics) | globals())

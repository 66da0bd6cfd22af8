"""Canonicalize sums: order the operands of a difference, and drop a factor of 1.

rule rsub-to-sub
    `rsub` without a factor.
Before:
    %y = aten.rsub.Tensor(%x, %z, alpha=1)
After:
    %y = aten.sub.Tensor(%z, %x)

rule drop-alpha-of-add
    A factor of 1 that is written down says nothing.
Before:
    %y = aten.add.Tensor(%x, %z, alpha=$a)
After:
    %y = aten.add.Tensor(%x, %z)
where is_one($a)
where states_alpha(%y) for termination
for $a = 1

rule drop-alpha-of-sub
    A factor of 1 that is written down says nothing.
Before:
    %y = aten.sub.Tensor(%x, %z, alpha=$a)
After:
    %y = aten.sub.Tensor(%x, %z)
where is_one($a)
where states_alpha(%y) for termination
for $a = 1
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from stepwell.translate.rules import read_rules


def states_alpha(total: SSAValue) -> bool:
    """Whether the sum states its factor `alpha`."""
    owner = total.owner
    return isinstance(owner, Operation) and "alpha" in owner.properties


RULES = read_rules(__doc__, globals())

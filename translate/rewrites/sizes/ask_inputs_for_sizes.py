"""Read a symbolic size from a method input that has the same size, or a multiple of it.

A size that is queried from a delegate's result is known only after that delegate. Every op that
needs the size (positions, a mask computed from them) then splits what could be one delegate.

rule ask-inputs-for-sizes
    The same question to the input, multiplied and divided.
Before:
    %n = aten.sym_size.int(%x, …)
After:
    %n = asked(%n, $input)
where is_computed(%x) for termination
with $input = input_of_size(%n)
for %x = aten.neg.default(%a)
for %a = 'tensor<?x4xf32, #stepwell.shape<["s", 4]>>', $dim = 0
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import IntType
from stepwell.translate.rewrites.sizes.sizes import InputSize, size_of_input
from stepwell.translate.rules import read_rules


def is_computed(value: SSAValue) -> bool:
    """Whether the tensor is the result of an op."""
    return isinstance(value.owner, Operation)


def input_of_size(value: SSAValue) -> InputSize | None:
    """Return the method input that has a size, or a multiple of it."""
    op, asked_for = value.owner, value.type
    assert isinstance(op, Operation) and isinstance(asked_for, IntType)
    return size_of_input(op.parent_block(), asked_for.size)


def asked(rw: Rewriter, size: SSAValue, of: InputSize) -> SSAValue:
    """Build the size from an input's size."""
    return of.value(rw)


(AskInputsForSizes,) = RULES = read_rules(__doc__, globals())

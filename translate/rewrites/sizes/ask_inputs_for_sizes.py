"""Ask an input of the method for a symbolic size that it has too, or a multiple of it.

A size that is asked of what a delegate gives is known behind that delegate alone, and whatever
needs it (positions, a mask made of them) splits what could be one.

Before:
    %y = aten.neg.default(%x) : (tensor<?x4xf32, #stepwell.shape<["s", 4]>>) -> tensor<?x4xf32, #stepwell.shape<["s", 4]>>
    %n = aten.sym_size.int(%y, 0) : (tensor<?x4xf32, #stepwell.shape<["s", 4]>>) -> !stepwell.int<"s">
    %r = aten.arange.default(%n) : (!stepwell.int<"s">) -> tensor<?xi64, #stepwell.shape<["s"]>>
After:
    %n = aten.sym_size.int(%x, 0) : (tensor<?x4xf32, #stepwell.shape<["s", 4]>>) -> !stepwell.int<"s">
    %r = aten.arange.default(%n) : (!stepwell.int<"s">) -> tensor<?xi64, #stepwell.shape<["s"]>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Block, Operation

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Rewrite, Rewriter
from stepwell.ir.types import IntType
from stepwell.translate.rewrites.sizes.sizes import InputSize, size_of_input


@dataclass(frozen=True)
class AskedElsewhere:
    """A size, and the input that has it, or a multiple of it, as the size of an axis."""

    op: SchemaOp
    input: InputSize


@dataclass(frozen=True)
class AskInputsForSizes(Rewrite[AskedElsewhere]):
    """`sym_size` of a computed tensor to that of an input, multiplied and divided."""

    name: ClassVar[str] = "ask-inputs-for-sizes"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SymSizeInt,)

    def match(self, op: SchemaOp, program: Program) -> AskedElsewhere | None:
        """A size that is asked of no input, where an input of the method has a multiple of it."""
        size = op.results[0].type
        if isinstance(op.operands[0].owner, Block) or not isinstance(size, IntType):
            return None
        found = size_of_input(op.parent_block(), size.size)
        return found and AskedElsewhere(op, found)

    def build(self, match: AskedElsewhere, rw: Rewriter) -> None:
        """The same question to the input."""
        rw.replace(match.op, [match.input.value(rw)])

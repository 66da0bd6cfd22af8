"""Ask an input of the method for a symbolic size that it has too.

A size that is asked of what a delegate gives is known behind that delegate alone, and whatever
needs it (positions, a mask made of them) splits what could be one.

Before:
    func.func @forward(%x: tensor<?x4xf32, #stepwell.shape<["s", 4]>>) -> tensor<?xi64, #stepwell.shape<["s"]>> {
      %y = aten.neg.default(%x) : (tensor<?x4xf32, #stepwell.shape<["s", 4]>>) -> tensor<?x4xf32, #stepwell.shape<["s", 4]>>
      %n = aten.sym_size.int(%y, 0) : (tensor<?x4xf32, #stepwell.shape<["s", 4]>>) -> !stepwell.int<"s">
      %r = aten.arange.default(%n) : (!stepwell.int<"s">) -> tensor<?xi64, #stepwell.shape<["s"]>>
      func.return %r : tensor<?xi64, #stepwell.shape<["s"]>>
    }
After:
    func.func @forward(%x: tensor<?x4xf32, #stepwell.shape<["s", 4]>>) -> tensor<?xi64, #stepwell.shape<["s"]>> {
      %n = aten.sym_size.int(%x, 0) : (tensor<?x4xf32, #stepwell.shape<["s", 4]>>) -> !stepwell.int<"s">
      %r = aten.arange.default(%n) : (!stepwell.int<"s">) -> tensor<?xi64, #stepwell.shape<["s"]>>
      func.return %r : tensor<?xi64, #stepwell.shape<["s"]>>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Rewrite, Rewriter
from stepwell.ir.types import IntType, dims
from stepwell.translate.rewrites.aten.building import emit


@dataclass(frozen=True)
class AskedElsewhere:
    """A size, and the input that has it as the size of an axis."""

    op: SchemaOp
    source: SSAValue
    axis: int


@dataclass(frozen=True)
class AskInputsForSizes(Rewrite[AskedElsewhere]):
    """`sym_size` of a computed tensor to that of an input."""

    name: ClassVar[str] = "ask-inputs-for-sizes"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SymSizeInt,)

    def match(self, op: SchemaOp, program: Program) -> AskedElsewhere | None:
        """A size that is a symbol, asked of no input where an input of the method has it."""
        block, size = op.parent_block(), op.results[0].type
        if block is None or not isinstance(block.parent_op(), FuncOp):
            return None
        if isinstance(op.operands[0].owner, Block) or not isinstance(size, IntType):
            return None
        for argument in block.args:
            if isinstance(argument.type, TensorType) and size.data in (
                shape := dims(argument.type)
            ):
                return AskedElsewhere(op, argument, shape.index(size.data))
        return None

    def build(self, match: AskedElsewhere, rw: Rewriter) -> None:
        """The same question to the input."""
        result = match.op.results[0]
        asked = aten.SymSizeInt.make(match.source, match.axis, result_types=[result.type])
        rw.replace(match.op, [emit(rw, asked)])

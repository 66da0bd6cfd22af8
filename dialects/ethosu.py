"""`ethosu.delegate`: a sub-graph that Vela compiles for an Ethos-U, and the `ethosu` level.

    %y = ethosu.delegate "ethos-u55-128"(%x) {
    ^bb0(%in: tensor<1x8xi8>):
      %out = tosa.table %in, %t : …
      ethosu.yield %out : tensor<1x8xi8>
    } : (tensor<1x8xi8>) -> tensor<1x8xi8>

Inside stand TOSA operators over integers and their constants; around it what the level `cmsis`
holds: the CPU's operators, and float ops that stay floats. A delegate read from a `.pte` is an
`ethosu.binary`: Vela's commands are there, the graph that they were made of is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import FunctionType, IntegerAttr, StringAttr
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsolatedFromAbove, IsTerminator
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.cmsis.level import CMSIS_LEVEL
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.core import WeightOp
from stepwell.ir.interpretation import Interpreter, interprets
from stepwell.ir.levels import Level, register_level
from stepwell.ir.types import WeightAttr


@irdl_op_definition
class DelegateOp(IRDLOperation):
    """A sub-graph that runs on the NPU. Operands are its inputs, results its outputs."""

    name = "ethosu.delegate"
    accelerator = prop_def(StringAttr)
    inputs = var_operand_def()
    results_ = var_result_def()
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove())

    @classmethod
    def make(
        cls,
        accelerator: str,
        inputs: Sequence[SSAValue],
        results: Sequence[Attribute],
        body: Block,
    ) -> Self:
        """A delegate around a block whose arguments stand for `inputs`."""
        return cls.create(
            operands=inputs,
            result_types=results,
            properties={"accelerator": StringAttr(accelerator)},
            regions=[Region(body)],
        )

    def verify_(self) -> None:
        block = self.body.block
        if [a.type for a in block.args] != [v.type for v in self.operands]:
            raise VerifyException("the block's arguments differ from the operands' types")
        last = block.last_op
        if not isinstance(last, YieldOp):
            raise VerifyException("a delegate ends in ethosu.yield")
        if [v.type for v in last.operands] != [r.type for r in self.results]:
            raise VerifyException("what is yielded differs from the results' types")
        if not self.results:
            raise VerifyException("a delegate without results does nothing")

    def print(self, printer: Printer) -> None:
        """`"accelerator"(%x) { … } : (types) -> types`"""
        printer.print_string(" ")
        printer.print_attribute(self.accelerator)
        printer.print_string("(")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_string(") ")
        printer.print_region(self.body)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(
            FunctionType.from_lists([v.type for v in self.operands], [r.type for r in self.results])
        )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """What `print` writes."""
        accelerator = parser.parse_str_literal()
        values = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, parser.parse_unresolved_operand
        )
        body = parser.parse_region()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        if not isinstance(type_, FunctionType) or len(type_.inputs.data) != len(values):
            parser.raise_error(f"a function type of {len(values)} inputs is needed here")
        return cls.create(
            operands=[
                parser.resolve_operand(v, t) for v, t in zip(values, type_.inputs.data, strict=True)
            ],
            result_types=list(type_.outputs.data),
            properties={"accelerator": StringAttr(accelerator)},
            attributes=attributes,
            regions=[body],
        )


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The outputs of a delegate."""

    name = "ethosu.yield"
    outputs = var_operand_def()
    traits = traits_def(IsTerminator(), HasParent(DelegateOp))
    assembly_format: ClassVar[str] = "($outputs^ `:` type($outputs))? attr-dict"


@irdl_op_definition
class BinaryOp(IRDLOperation):
    """What Vela made of a sub-graph: commands and weights, with the bytes that they need to run.

    It prints, verifies and stays in place; no simulator of the NPU is to be had here, and the
    interpreter refuses it by name.
    """

    name = "ethosu.binary"
    accelerator = prop_def(StringAttr)
    payload = prop_def(WeightAttr)
    command_bytes = prop_def(IntegerAttr)
    weight_bytes = prop_def(IntegerAttr)
    scratch_bytes = prop_def(IntegerAttr)
    inputs = var_operand_def()
    outputs = var_result_def()
    assembly_format: ClassVar[str] = (
        "$accelerator $payload `commands` $command_bytes `weights` $weight_bytes `scratch` "
        "$scratch_bytes `(` $inputs `)` attr-dict `:` functional-type($inputs, $outputs)"
    )


@interprets(DelegateOp)
def _delegate(op: DelegateOp, args: Sequence[Any], ctx: Interpreter) -> Sequence[Any]:
    return ctx.run_region(op.body, args)


def _refuses(op: Operation) -> str | None:
    """Why an op may not stand at the level, or None."""
    if isinstance(op, DelegateOp | BinaryOp):
        return None
    if isinstance(op.parent_op(), DelegateOp):
        if isinstance(op, TosaOp | WeightOp | YieldOp):
            return None
        return "a delegate holds TOSA operators and constants"
    if isinstance(op, TosaOp):
        return "a TOSA operator stands in a delegate"
    return CMSIS_LEVEL.refuses(op)


ETHOSU_LEVEL = register_level(Level("ethosu", _refuses))
"""A Cortex-M program with delegates for the NPU beside it."""

Ethosu = Dialect("ethosu", [DelegateOp, YieldOp, BinaryOp])

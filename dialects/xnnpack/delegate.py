"""`xnnpack.delegate`: a sub-graph that ExecuTorch delegates to XNNPACK, and the `xnnpack` level.

    %y = xnnpack.delegate(%x) {
    ^bb0(%in: tensor<1x8xf32>):
      %w = stepwell.weight <"fc.weight"> "parameter" : tensor<4x8xf32>
      %out = xnnpack.fully_connected(%in, %w) : (…) -> tensor<1x4xf32>
      xnnpack.yield %out : tensor<1x4xf32>
    } : (tensor<1x8xf32>) -> tensor<1x4xf32>

A delegate contains weights, nodes and casts between stored integers and quantized types. Its
weights are part of the payload. A constant that XNNPACK does not pack stays outside and is an
operand, so that ExecuTorch owns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsolatedFromAbove, IsTerminator
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.delegate import (
    NamedDelegateOp,
    parse_body,
    parse_operands,
    print_body,
    print_operands,
    verify_interface,
)
from stepwell.dialects.quant.ops import StorageCast
from stepwell.dialects.xnnpack.base import XnnpackOp
from stepwell.ir.core import WeightOp
from stepwell.ir.levels import Level, register_level

MAX_EXTERNALS = 4096
"""The limit of ExecuTorch's runtime for the inputs and outputs of a delegate together."""


@irdl_op_definition
class DelegateOp(IRDLOperation):
    """A sub-graph that runs on XNNPACK. Its operands are the inputs, its results the outputs."""

    name = "xnnpack.delegate"
    inputs = var_operand_def()
    results_ = var_result_def()
    label = opt_prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove())

    @classmethod
    def make(cls, inputs: Sequence[SSAValue], results: Sequence[Attribute], body: Block) -> Self:
        """Create a delegate around a block whose arguments correspond to `inputs`."""
        return cls.create(operands=inputs, result_types=results, regions=[Region(body)])

    @property
    def block(self) -> Block:
        """Return the block with the delegate's nodes."""
        return self.body.block

    def verify_(self) -> None:
        verify_interface(self, self.body, YieldOp)
        count = len(self.block.args) + len(self.results)
        if count > MAX_EXTERNALS:
            raise VerifyException(f"{count} inputs and outputs; the runtime takes {MAX_EXTERNALS}")

    def print(self, printer: Printer) -> None:
        """Print `(%x) "label" { … } : (types) -> types`."""
        print_operands(self, printer)
        if self.label is not None:
            printer.print_attribute(self.label)
            printer.print_string(" ")
        print_body(self, self.body, printer)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Parse the output of `print`."""
        values = parse_operands(parser)
        label = parser.parse_optional_str_literal()
        properties = {} if label is None else {"label": StringAttr(label)}
        return cls.create(properties=properties, **parse_body(parser, values))


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The terminator of a delegate: its outputs, which are distinct results of nodes."""

    name = "xnnpack.yield"
    outputs = var_operand_def()
    traits = traits_def(IsTerminator(), HasParent(DelegateOp))
    assembly_format: ClassVar[str] = "($outputs^ `:` type($outputs))? attr-dict"

    def verify_(self) -> None:
        seen: set[SSAValue] = set()
        for index, value in enumerate(self.operands):
            source = value.owner.input if isinstance(value.owner, StorageCast) else value
            if not isinstance(source.owner, XnnpackOp):
                raise VerifyException(
                    f"output {index} is not computed in the delegate; XNNPACK rejects an input or "
                    "a constant as an output"
                )
            if source in seen:
                raise VerifyException(f"output {index} is yielded twice; XNNPACK supports it once")
            seen.add(source)


_BESIDE = ("sym.", "control.", "executorch.")
"""Dialects whose ops may be outside delegates: scalars, control flow, opaque delegates."""


def _refuses(op: Operation) -> str | None:
    """Return why an op is not allowed at the xnnpack level, or None."""
    if isinstance(op.parent_op(), DelegateOp):
        if isinstance(op, XnnpackOp | YieldOp | StorageCast | WeightOp):
            return None
        return "a delegate contains only XNNPACK's nodes, weights and casts of storage"
    if isinstance(op.parent_op(), NamedDelegateOp):  # Another engine's, which checks it.
        return None
    if isinstance(op, DelegateOp | NamedDelegateOp | SchemaOp) or op.name.startswith(_BESIDE):
        return None
    if isinstance(op, XnnpackOp):
        return "a node of XNNPACK is outside any delegate; partition the program"
    return "the runtime has neither a delegate nor a kernel for it"


XNNPACK_LEVEL = register_level(Level("xnnpack", _refuses))
"""The level of delegates and of operators that ExecuTorch's own kernels run."""

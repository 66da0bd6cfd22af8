"""`ethosu.delegate`: a sub-graph that Vela compiles for an Ethos-U, and the `ethosu` level.

    %y = ethosu.delegate "ethos-u55-128"(%x) {
    ^bb0(%in: tensor<1x8xi8>):
      %out = tosa.table %in, %t : …
      ethosu.yield %out : tensor<1x8xi8>
    } : (tensor<1x8xi8>) -> tensor<1x8xi8>

A delegate contains TOSA operators on integers and their constants. Outside it are the ops of the
level `cmsis`: the CPU's operators, and ops that stay in float. A delegate read from a `.pte` is an
`ethosu.binary`, which contains Vela's commands but not the graph that they were compiled from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Dialect, Operation
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import HasParent, IsTerminator

from stepwell.dialects.cmsis.level import CMSIS_LEVEL
from stepwell.dialects.delegate import NamedDelegateOp
from stepwell.dialects.executorch import OpaqueDelegateOp
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import Interpreter, interprets
from stepwell.ir.levels import Level, register_level
from stepwell.ir.types import WeightAttr


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The terminator of a delegate's region; its operands are the delegate's outputs."""

    name = "ethosu.yield"
    outputs = var_operand_def()
    traits = traits_def(IsTerminator(), HasParent(NamedDelegateOp))
    assembly_format: ClassVar[str] = "($outputs^ `:` type($outputs))? attr-dict"


@irdl_op_definition
class DelegateOp(NamedDelegateOp):
    """A sub-graph that runs on the NPU. Its operands are the inputs, its results the outputs."""

    name = "ethosu.delegate"
    DEVICE: ClassVar[str] = "accelerator"
    END: ClassVar[type[Operation]] = YieldOp
    accelerator = prop_def(StringAttr)


@irdl_op_definition
class BinaryOp(IRDLOperation):
    """A sub-graph compiled by Vela: commands and weights, and the sizes that they need to run.

    The op can be printed, verified and emitted again. The interpreter refuses it, because no
    simulator of the NPU is available.
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
    """Return why an op is not allowed at the level, or None."""
    if isinstance(op, DelegateOp | BinaryOp | OpaqueDelegateOp):
        return None
    if isinstance(op.parent_op(), DelegateOp):
        if isinstance(op, TosaOp | WeightOp | YieldOp):
            return None
        return "a delegate contains only TOSA operators and constants"
    if isinstance(op, TosaOp):
        return "a TOSA operator must be in a delegate"
    return CMSIS_LEVEL.refuses(op)


ETHOSU_LEVEL = register_level(Level("ethosu", _refuses))
"""The level of Cortex-M programs with delegates for the NPU."""

Ethosu = Dialect("ethosu", [DelegateOp, YieldOp, BinaryOp])

"""`ethosu.delegate`: a sub-graph that Vela compiles for an Ethos-U, and the `ethosu` level.

    %y = ethosu.delegate "ethos-u55-128"(%x) {
    ^bb0(%in: tensor<1x8xi8>):
      %out = tosa.table %in, %t : …
      ethosu.yield %out : tensor<1x8xi8>
    } : (tensor<1x8xi8>) -> tensor<1x8xi8>

A delegate contains TOSA operators on integers and their constants. Outside it are the ops of the
level `cmsis`: the CPU's operators, and ops that stay in float. A delegate read from a `.pte` is an
`ethosu.binary`, which contains Vela's commands but not the graph that they were compiled from.

An attribute `vela` of either op states the board for which Vela compiles it: `VelaConfig`. Without
it, the board is the one that ExecuTorch's flow assumes for the accelerator's family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr
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
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.cmsis.level import CMSIS_LEVEL
from stepwell.dialects.delegate import NamedDelegateOp
from stepwell.dialects.executorch import OpaqueDelegateOp
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.interpretation import Interpreter, interprets
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.levels import Level, register_level
from stepwell.ir.types import WeightAttr

VELA = "vela"
"""The attribute of a delegate that states its `VelaConfig`."""
_NAMED = {"system_config", "memory_mode"}


@dataclass(frozen=True)
class VelaConfig:
    """The board that Vela compiles for: a system configuration and a memory mode.

    Attributes:
        system_config: the name of the clock, ports and memories, as in `[System_Config.NAME]`.
        memory_mode: the name of the places of constants and activations (`[Memory_Mode.NAME]`).
        config: the name of the file, without its folder; empty if unknown.
        settings: the two sections as text, with inherited settings; empty for Vela's own file.
    """

    system_config: str
    memory_mode: str
    config: str = ""
    settings: str = ""

    def attach(self, op: Operation) -> None:
        """State the configuration on a delegate."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        op.attributes[VELA] = DictionaryAttr({n: StringAttr(v) for n, v in held.items() if v})

    @classmethod
    def of(cls, op: Operation) -> Self | None:
        """Return the configuration that a delegate states, or None.

        Raises:
            VerifyException: the attribute is not a dictionary of these names and strings.
        """
        held = op.attributes.get(VELA)
        if held is None:
            return None
        names = {field.name for field in fields(cls)}
        if not isinstance(held, DictionaryAttr) or not _NAMED <= {*held.data} <= names:
            raise VerifyException(f"{VELA} must state a system_config and a memory_mode")
        stated = {n: v.data for n, v in held.data.items() if isinstance(v, StringAttr)}
        if len(stated) < len(held.data):
            raise VerifyException(f"the values of {VELA} must be strings")
        return cls(**stated)


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

    def verify_(self) -> None:
        super().verify_()
        VelaConfig.of(self)


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

    def verify_(self) -> None:
        VelaConfig.of(self)


@interprets(DelegateOp)
def _delegate(op: DelegateOp, args: Sequence[Any], ctx: Interpreter) -> Sequence[Any]:
    return ctx.run_region(op.body, args)


@interprets(BinaryOp)
def _binary(op: BinaryOp, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    raise UnsupportedError(
        "there is no simulator of an Ethos-U on this machine",
        help="check the model: stepwell check MODEL -t " + op.accelerator.data,
    )


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

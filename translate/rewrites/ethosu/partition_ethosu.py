"""Partitioning: group TOSA operators into as few NPU delegates as the data flow allows.

The operators of one stage are one delegate (`translate/rewrites/partitioning.py`). Constants and
shapes are copied into each delegate that reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Attribute, Block, Operation, SSAValue

from stepwell.dialects.ethosu import DelegateOp, VelaConfig, YieldOp
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.core import WeightOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.translate.rewrites.partitioning import Engine, partition


@dataclass(frozen=True)
class PartitionEthosu(Pass):
    """Group the TOSA operators of each stage into one `ethosu.delegate`."""

    name: ClassVar[str] = "partition-ethosu"
    accelerator: str = "ethos-u55-128"
    vela: VelaConfig | None = None
    """The board that Vela compiles for; None: the one that ExecuTorch's flow assumes."""

    def apply(self, program: Program, history: History) -> int:
        """Return the number of delegates created."""
        engine = Engine(
            lambda op: isinstance(op, TosaOp),
            _is_constant,
            self._delegate,
            YieldOp,
        )
        return sum(partition(func.body.block, engine) for func in program.methods.values())

    def _delegate(
        self, inputs: Sequence[SSAValue], results: Sequence[Attribute], body: Block
    ) -> DelegateOp:
        op = DelegateOp.make(self.accelerator, inputs, results, body)
        if self.vela is not None:
            self.vela.attach(op)
        return op


def _is_constant(op: Operation) -> bool:
    """Whether an op is a weight or a TOSA shape constant."""
    return isinstance(op, WeightOp) or (isinstance(op, TosaOp) and not op.operands)

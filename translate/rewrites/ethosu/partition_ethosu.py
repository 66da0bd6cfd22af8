"""Partitioning: group TOSA operators into as few NPU delegates as the data flow allows.

The operators of one stage are one delegate (`translate/rewrites/partitioning.py`). Constants and
shapes are copied into each delegate that reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from xdsl.ir import Operation

from stepwell.dialects.ethosu import DelegateOp, YieldOp
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

    def apply(self, program: Program, history: History) -> int:
        """Return the number of delegates created."""
        engine = Engine(
            lambda op: isinstance(op, TosaOp),
            _is_constant,
            partial(DelegateOp.make, self.accelerator),
            YieldOp,
        )
        return sum(partition(func.body.block, engine) for func in program.methods.values())


def _is_constant(op: Operation) -> bool:
    """Whether an op is a weight or a TOSA shape constant."""
    return isinstance(op, WeightOp) or (isinstance(op, TosaOp) and not op.operands)

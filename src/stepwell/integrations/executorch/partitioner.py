"""`StepwellPartitioner`: stepwell in the stock flow, in place of `XnnpackPartitioner`.

    edge = to_edge_transform_and_lower(exported, partitioner=[stepwell.StepwellPartitioner()])
    program = edge.to_executorch()

The flow lets its partitioners change the program before it decomposes anything. At this point the
program is lowered as by `stepwell.lower`, with equally many and equally fast delegates. For later
steps of the flow they are ordinary delegates. Ops outside them go to the partitioners after this
one, and to the flow's kernels.
"""

from __future__ import annotations

from typing import Any

from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch.export import ExportedProgram

from stepwell.integrations.executorch.delegated_program import to_delegated
from stepwell.ir.diagnostics import StepwellError
from stepwell.lowering import lower_as_far
from stepwell.report.report import Report

TARGET = "xnnpack"


class StepwellPartitioner(Partitioner):
    """Lowers to XNNPACK as `stepwell.lower` does, for `to_edge_transform_and_lower`.

    Attributes:
        reports: the report of each lowered program, in order.
    """

    def __init__(self, target: str = TARGET, **options: Any) -> None:
        """Create a partitioner.

        Args:
            target: `xnnpack`, or a plug-in's pipeline for it.
            options: as for `stepwell.lower`.
        """
        super().__init__()
        self.target, self.options = target, options
        self.reports: list[Report] = []

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Return the program with calls of delegates."""
        lowered = lower_as_far(exported_program, self.target, **self.options)
        if lowered.target.artifact != "pte" or lowered.program.level != TARGET:
            raise StepwellError(
                f"the partitioner makes delegates of XNNPACK, and {self.target!r} makes others",
                help=f"stepwell.lower(exported, {self.target!r})",
            )
        option_names = {option.name for option in lowered.target.options if "pte" in option.at}
        told = {name: value for name, value in self.options.items() if name in option_names}
        self.reports.append(lowered.report)
        return to_delegated(lowered.program, **told)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Partition nothing: everything is delegated already.

        Raises:
            StepwellError: the flow did not call this partitioner before it decomposed the program.
        """
        if not self.reports:
            raise StepwellError(
                "this flow decomposes programs before its partitioners see them",
                help="to_edge_transform_and_lower(exported, partitioner=[StepwellPartitioner()]) "
                "of ExecuTorch 1.5 does not; or write the .pte itself: "
                "stepwell.lower(exported, 'xnnpack').to_pte()",
            )
        return PartitionResult(exported_program, {})

"""`StepwellPartitioner`: stepwell in the stock flow, in the place of `XnnpackPartitioner`.

    edge = to_edge_transform_and_lower(exported, partitioner=[stepwell.StepwellPartitioner()])
    program = edge.to_executorch()

The flow asks its partitioners for changes before it decomposes anything. There the program is
lowered as `stepwell.lower` lowers it, so delegates are as many and as fast; for the steps that
follow they are delegates like any other, and what is left outside goes to the partitioners behind
this one, and to the flow's kernels.
"""

from __future__ import annotations

from typing import Any

from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch.export import ExportedProgram

from stepwell.ir.diagnostics import StepwellError
from stepwell.lowering import lower_as_far
from stepwell.report.report import Report

TARGET = "xnnpack"


class StepwellPartitioner(Partitioner):
    """Lowers to XNNPACK as `stepwell.lower` does, for `to_edge_transform_and_lower`.

    Attributes:
        reports: what became of each program that was lowered, in order.
    """

    def __init__(self, target: str = TARGET, **options: Any) -> None:
        """A partitioner.

        Args:
            target: `xnnpack`, or a plug-in's pipeline for it.
            options: as for `stepwell.lower`.
        """
        super().__init__()
        self.target, self.options = target, options
        self.reports: list[Report] = []

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """The program with calls of delegates in it."""
        from stepwell.integrations.executorch.delegated_program import to_delegated

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
        """Everything is delegated already.

        Raises:
            StepwellError: the flow gave this partitioner no program before it decomposed it.
        """
        if not self.reports:
            raise StepwellError(
                "this flow decomposes programs before its partitioners see them",
                help="to_edge_transform_and_lower(exported, partitioner=[StepwellPartitioner()]) "
                "of ExecuTorch 1.5 does not; or write the .pte itself: "
                "stepwell.lower(exported, 'xnnpack').to_pte()",
            )
        return PartitionResult(exported_program, {})

"""A rewrite of ours as a pass of the stock flow: `to_edge_transform_and_lower(transform_passes=…)`.

The stock flow runs such passes on programs of its edge dialect and checks them against it, so
what the rewrite made of a program goes back with the edge dialect's own operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting import (
    History,
    Pass,
    Rewrite,
    Step,
    apply_step,
    parts_of,
    step_name,
)
from stepwell.targets import PIPELINES

if TYPE_CHECKING:
    from executorch.exir.pass_base import ExportedProgramPassBase
    from torch.export import ExportedProgram


def transform_pass(rewrite: str | Step, **options: object) -> ExportedProgramPassBase:
    """A pass of the stock flow that applies one rewrite; its `call` can be used alone as well.

        to_edge_transform_and_lower(
            exported,
            transform_passes=[stepwell.transform_pass("lift-constant-scalar")],
            partitioner=[XnnpackPartitioner()],
        )

    Args:
        rewrite: a step, or the name of one (`lift-constant-scalar`). A name that the xnnpack
            pipelines hold means the step as it is set there.
        options: fields of the step's class to set otherwise.

    Raises:
        StepwellError: no step has that name, or it has no such option.
    """
    from stepwell.translate.edge import apply_to_edge

    step: Any = _named(rewrite, options) if isinstance(rewrite, str) else rewrite
    if not isinstance(step, Rewrite | Pass):
        raise StepwellError(
            f"a {type(step).__name__} is no rewrite", help="the name of one, or an instance"
        )

    def apply(exported: ExportedProgram) -> ExportedProgram | None:
        return apply_to_edge(exported, lambda program: apply_step(step, program, History()))

    return _pass_class()(step_name(step), apply)


def _pass_class() -> Any:
    """The pass class, made when it is needed: importing its base takes seconds."""
    from executorch.exir.pass_base import ExportedProgramPassBase, ExportedProgramPassResult

    class StepwellPass(ExportedProgramPassBase):
        """One rewrite on an `ExportedProgram`."""

        def __init__(self, name: str, apply: Any) -> None:
            self.name, self.apply = name, apply

        def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
            """Apply it; a program that has nothing to rewrite comes back as it is."""
            done = self.apply(exported_program)
            return ExportedProgramPassResult(done or exported_program, done is not None)

    return StepwellPass


def _named(name: str, options: dict[str, Any]) -> Step:
    from stepwell.steps import step_classes

    if not options:
        for pipeline in (PIPELINES["xnnpack-published"], PIPELINES["xnnpack"]):
            for step in pipeline.steps:
                for held in (step, *parts_of(step)):
                    if step_name(held) == name:
                        return held
    found = step_classes().get(name)
    if found is None:
        raise StepwellError(
            f"there is no rewrite {name!r}", help="one of " + ", ".join(step_classes())
        )
    try:
        return found(**options)
    except TypeError as error:
        raise StepwellError(f"rewrite {name!r}: {error}") from None

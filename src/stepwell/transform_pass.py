"""A rewrite of ours as a pass of the stock flow: `to_edge_transform_and_lower(transform_passes=…)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting import History, Step, step_name

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def transform_pass(rewrite: str | Step) -> Callable[[ExportedProgram], ExportedProgram]:
    """A function from `ExportedProgram` to `ExportedProgram` that applies one rewrite.

    Args:
        rewrite: a step, or the name of one that a pipeline holds (`lift-constant-scalar`).

    Raises:
        StepwellError: no pipeline holds a step of that name.
    """
    step = _named(rewrite) if isinstance(rewrite, str) else rewrite

    def apply(exported: ExportedProgram) -> ExportedProgram:
        from stepwell.translate.from_torch import from_exported_program
        from stepwell.translate.to_torch import to_exported_program

        program = from_exported_program(exported)
        if step.apply(program, History()) == 0:
            return exported
        return to_exported_program(program)

    apply.__name__ = step_name(step).replace("-", "_")
    return apply


def _named(name: str) -> Step:
    from stepwell.steps import STEPS

    found: Any = STEPS.get(name)
    if found is None:
        raise StepwellError(f"there is no rewrite {name!r}", help="one of " + ", ".join(STEPS))
    return found() if isinstance(found, type) else found

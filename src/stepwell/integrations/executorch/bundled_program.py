"""Write bundled programs (`.bpte`): a lowered program with test cases of a model or a bundle."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from stepwell.backends.executorch.writing.bundled import Case, bundled, rebundled
from stepwell.ir.calls.calling import flatten_inputs
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import Content, content
from stepwell.ir.program import Program
from stepwell.program import from_exported_program


def to_bpte(
    source: Any, pte: bytes, cases: Content | Mapping[str, Sequence[tuple[Any, ...]]]
) -> bytes:
    """Implement `Lowered.to_bpte`; `source` is the original argument of the lowering."""
    if not isinstance(cases, Mapping):
        return rebundled(content(cases, "bundled program"), pte)
    if source is None:
        raise StepwellError(
            "the lowered model is not available to compute the results of the cases",
            help="lower it in this process, or pass a bundled program, whose cases are kept",
        )
    program = source if isinstance(source, Program) else from_exported_program(source)
    return bundled(
        pte,
        {name: [_case(program, name, inputs) for inputs in calls] for name, calls in cases.items()},
    )


def _case(program: Program, name: str, inputs: tuple[Any, ...]) -> Case:
    wanted = program.run(*inputs, method=name)
    given = flatten_inputs(program.method(name), inputs)
    return given, [value.detach() for value in wanted if isinstance(value, torch.Tensor)]

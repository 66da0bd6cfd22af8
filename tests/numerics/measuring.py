"""Running op forms on special numbers: by eager torch, the stock flow, and stepwell's targets."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Sequence

import torch
from forms import Form, Forms
from specials import severity

import stepwell

Result = torch.Tensor | str
"""What a form gave, or why it gave nothing."""


def eager(form: Form, dtype: torch.dtype) -> torch.Tensor:
    """torch's result in the dtype."""
    with torch.no_grad():
        return Forms([form], dtype)([list(form.inputs(dtype))])[0]


def exact(form: Form, dtype: torch.dtype) -> torch.Tensor:
    """torch's result in float64, rounded once; inputs and weights are those of the dtype."""
    module = copy.deepcopy(Forms([form], dtype))
    for name, held in list(module.weights.named_buffers()):
        if held.dtype.is_floating_point:
            setattr(module.weights, name, held.double())
    with torch.no_grad():
        result = module([[x.double() for x in form.inputs(dtype)]])[0]
    return result.to(dtype) if result.dtype == torch.float64 else result


def exported(forms: Sequence[Form], dtype: torch.dtype) -> torch.export.ExportedProgram:
    """Several forms as one program."""
    groups = [list(form.inputs(dtype)) for form in forms]
    return torch.export.export(Forms(forms, dtype), (groups,))


def stepwells(forms: Sequence[Form], dtype: torch.dtype, target: str, **options: object):
    """What a target of stepwell makes of forms."""

    def run(some: Sequence[Form]) -> Sequence[torch.Tensor]:
        lowered = stepwell.lower(exported(some, dtype), target, **options)
        return lowered.run([list(form.inputs(dtype)) for form in some])

    return by_parts(forms, run)


def stock(forms: Sequence[Form], dtype: torch.dtype) -> list[Result]:
    """What ExecuTorch's own flow with its XNNPACK partitioner makes of forms."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    from stepwell.backends.executorch.runner import run_pte

    def run(some: Sequence[Form]) -> Sequence[torch.Tensor]:
        edge = to_edge_transform_and_lower(
            exported(some, dtype),
            partitioner=[XnnpackPartitioner()],
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
        )
        inputs = [x for form in some for x in form.inputs(dtype)]
        return run_pte(edge.to_executorch().buffer, inputs, "forward")

    return by_parts(forms, run)


def by_parts(
    forms: Sequence[Form], run: Callable[[Sequence[Form]], Sequence[torch.Tensor]]
) -> list[Result]:
    """Each form's result; a program that fails is halved until the form that fails stands alone."""
    if not forms:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(run(forms))
    except Exception as error:
        logging.debug("%s", error)
        if len(forms) == 1:
            return [f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"]
    middle = len(forms) // 2
    return by_parts(forms[:middle], run) + by_parts(forms[middle:], run)


def worst(found: Result, form: Form, dtype: torch.dtype) -> torch.Tensor | None:
    """The severity of each element; None where there is no result."""
    if isinstance(found, str):
        return None
    return severity(found, eager(form, dtype), exact(form, dtype))

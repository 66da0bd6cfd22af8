"""Running op forms on special numbers: by eager torch, the stock flow, and stepwell's targets."""

import copy
import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from emulated import run_as
from forms import DEGREES, Form, Forms
from specials import flushed, severity

import stepwell

Result = torch.Tensor | str
"""What a form gave, or why it gave nothing."""


SMALLER = 2.0**-600
"""A factor of inputs that leaves room for sums of squares; it tells no zero from a denormal."""


def eager(form: Form, dtype: torch.dtype, flush: bool = False) -> torch.Tensor:
    """torch's result in the dtype; `flush` reads denormal inputs as zeros."""
    inputs = [flushed(x) if flush else x for x in form.inputs(dtype)]
    with torch.no_grad():
        return Forms([form], dtype)([inputs])[0]


def exact(form: Form, dtype: torch.dtype) -> torch.Tensor:
    """torch's result in float64, rounded once; inputs and weights are those of the dtype.

    Of integers it is eager's: they have no other arithmetic. Of float64 too, but where it is known
    how a result grows with the inputs: there it is that of inputs too small to overflow.
    """
    if dtype == torch.float64 and form.name in DEGREES:
        with torch.no_grad():
            small = Forms([form], dtype)([[x * SMALLER for x in form.inputs(dtype)]])[0]
        return small / SMALLER ** DEGREES[form.name]
    if not dtype.is_floating_point:
        return eager(form, dtype)
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


def stepwells(
    forms: Sequence[Form],
    dtype: torch.dtype,
    target: str,
    cores: Sequence[str | None] = (None,),
    **options: object,
):
    """What a target of stepwell makes of forms; on several cores, what each gives, side by side."""

    def run(some: Sequence[Form]) -> Sequence[torch.Tensor]:
        lowered = stepwell.lower(exported(some, dtype), target, **options)
        inputs = [list(form.inputs(dtype)) for form in some]
        return beside(lowered.run(inputs, cpu=core) for core in cores)

    return by_parts(forms, run)


def beside(found: Iterable[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    """The results of one core; those of several as a new first axis."""
    results = list(found)
    if len(results) == 1:
        return list(results[0])
    return [torch.stack(list(of)) for of in zip(*results, strict=True)]


def stock(
    forms: Sequence[Form],
    dtype: torch.dtype,
    delegates: bool = True,
    cores: Sequence[str | None] = (None,),
) -> list[Result]:
    """What ExecuTorch's own flow makes of forms.

    Args:
        delegates: with its XNNPACK partitioner; else every op is the runtime's own kernel.
        cores: the CPUs on which it runs (`run_as`); results of several are put side by side.
    """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    def run(some: Sequence[Form]) -> Sequence[torch.Tensor]:
        edge = to_edge_transform_and_lower(
            exported(some, dtype),
            partitioner=[XnnpackPartitioner()] if delegates else None,
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
        )
        inputs = [x for form in some for x in form.inputs(dtype)]
        made = edge.to_executorch().buffer
        return beside(run_as(core, made, inputs) for core in cores)

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


@dataclass(frozen=True)
class Verdict:
    """How a form's classes compare, element by element.

    Attributes:
        ours: severities of what was measured.
        stock: those of the stock flow, or None where it gives nothing.
        by_flush: which of ours are what eager gives for inputs without denormal numbers.
    """

    ours: torch.Tensor
    stock: torch.Tensor | None
    by_flush: torch.Tensor

    @property
    def worse(self) -> torch.Tensor:
        """Where ours is wrong by more than zeros, and further than stock (or there is no stock)."""
        wrong = (self.ours >= 2) & ~self.by_flush
        return wrong if self.stock is None else wrong & (self.ours > self.stock)


def judge(found: Result, stock: Result | None, form: Form, dtype: torch.dtype) -> Verdict | None:
    """The verdict of a form's result; None where there is no result."""
    if isinstance(found, str):
        return None
    wanted, truth = eager(form, dtype), exact(form, dtype)
    with_zeros = eager(form, dtype, flush=True)
    beside = None
    if isinstance(stock, torch.Tensor) and stock.shape == found.shape:
        beside = severity(stock, wanted, truth)
    by_flush = severity(found, with_zeros) <= 1
    return Verdict(severity(found, wanted, truth), beside, by_flush)

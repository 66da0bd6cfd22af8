"""`accuracy`: measure where a lowered model loses accuracy, and recover it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stepwell.cost_model.budgets import measure
from stepwell.dialects.tosa_mxfp.payloads import PAYLOADS
from stepwell.ir.calls.arguments import takes
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.ir.diagnostics import StepwellError, reported
from stepwell.ir.options import OptionValue
from stepwell.lowering import Lowered, lower
from stepwell.program import Program, from_exported_program
from stepwell.quantization.quantizers import find_quantizer, is_mixture, quantizer_for
from stepwell.quantization.quantizers import quantize as quantized_by
from stepwell.quantization.recovery import cured
from stepwell.quantization.recovery.mixtures import mixed_as
from stepwell.quantization.recovery.weights import BALANCED
from stepwell.quantization.sensitivity.attribution import MEASURED, Progress, attribute, whole
from stepwell.quantization.sensitivity.causes import (
    calibration,
    cause_of,
    cause_of_several,
    fault_of,
)
from stepwell.quantization.sensitivity.metrics import Batch, Metric
from stepwell.quantization.sensitivity.quantization_points import Quantized, paired
from stepwell.quantization.sensitivity.remedies import Widened, int16_activations, wider_payload
from stepwell.quantization.sensitivity.replay import Playback
from stepwell.quantization.sensitivity.result import Accuracy
from stepwell.quantization.sensitivity.stages import StageComparison, down
from stepwell.targets.table import find_target
from stepwell.targets.target import PipelineLike
from stepwell.translate.importer.export_call import export
from stepwell.translate.mxfp import to_mxfp

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    Model = torch.nn.Module | ExportedProgram | Program

NAMED = 5
"""Number of quantization points whose cause is searched."""
CALIBRATED = 4
"""Number of batches for calibration, unless others are given."""


def accuracy(
    model: Model,
    target: str,
    data: Iterable[Any],
    metric: Metric | None = None,
    *,
    quantize: str | Callable[..., Any] | None = None,
    quantized: Model | None = None,
    cures: Sequence[str] = (),
    fit: Iterable[Any] | None = None,
    budget: tuple[float, str | Callable[[Lowered], float]] | None = None,
    levels: int = 1,
    most: int = MEASURED,
    resume: Path | str | None = None,
    pipeline: PipelineLike | None = None,
    progress: Progress | None = None,
    **options: OptionValue,
) -> Accuracy:
    """Find the lowering stage and the layer that lose accuracy, the cause, and a recovery.

    Args:
        model: the float model.
        target: as for `stepwell.lower`.
        data: batches, each `(inputs, labels)`. The inputs are a tensor or the tuple of the model's
            arguments, of equal shapes in all batches. The labels are classes (integers),
            numbers, or None: with None, the float model's answers are the labels.
        metric: maps outputs and labels to a score per sample, higher is better; None: whether the
            class is right.
        quantize: a quantizer's name (`stepwell.quantize`; `int8` is the target's default), an MX
            payload (`fp4e2m1`), or a function of a module and inputs; None: the target's default.
        quantized: the quantized model itself, instead of `quantize`.
        cures: recovery methods to try, in order: `mixing`, `clipping`, `balancing`, `scales`,
            `rounding`, `biases`, `distilling` (`docs/accuracy.md`).
        fit: batches for fitting recovery methods and for calibration; None: recovery methods are
            fitted on the first half of `data`, and only the second half accepts and reports.
        budget: the limit of the recovery method `mixing`, with its unit: `(4.5, "bits")` per
            number, which is the default; a figure of `stepwell budget` (`(100_000, "bytes")`,
            "arena"); or a function of the result of `stepwell.lower`.
        levels: the number of batches for the target's levels and the artifact, which run slowly.
        most: the number of quantization points that are measured, in the order of their estimates.
        resume: a file that stores the measurements; a second call continues from them.
        pipeline: a pipeline in place of the target's own.
        progress: called for each batch.
        options: options of the target.

    Raises:
        StepwellError: batches, labels or the model do not fit, nothing is quantized, or the
            quantized program was balanced already.
    """
    batches = batches_of(data)
    fitted = None if fit is None else batches_of(fit)
    if cures and fitted is None:
        if len(batches) < 2:
            raise StepwellError(
                "recovery methods are fitted on one batch and accepted on another, but there is "
                "only one batch",
                help="pass more batches, or batches for fitting as fit=",
            )
        fitted, batches = batches[: len(batches) // 2], batches[len(batches) // 2 :]
    chosen_target = find_target(target)
    source = imported(model, batches[0][0])
    form = "given" if quantized is not None else _form(quantize, chosen_target.name)
    if quantized is not None:
        program = imported(quantized, batches[0][0])
        if any(f".{BALANCED}" in key for key in program.weights):
            raise StepwellError(
                "channels of the quantized program were balanced, so its quantization points "
                "cannot be evaluated with the weights of the float model",
                help="measure the whole program by `run`, or pass the program before balancing",
            )
    else:
        program = _quantized(model, source, form, quantize, (fitted or batches)[:CALIBRATED])
    pair = paired(program, source)
    with torch.no_grad():
        result = _measured(
            model, pair, chosen_target.name, form, batches, metric, levels, most, resume, pipeline,
            progress, options,
        )  # fmt: skip
    if not cures:
        return result
    assert fitted is not None
    spent = {} if budget is None else _spent(budget, target, pipeline, options)
    return cured(result, pair, fitted, batches, metric, cures, spent)


def _spent(
    budget: tuple[float, str | Callable[[Lowered], float]],
    target: str,
    pipeline: PipelineLike | None,
    options: Mapping[str, OptionValue],
) -> dict[str, Any]:
    """Convert a budget for the recovery method `mixing`.

    Raises:
        StepwellError: programs of the target have no figure of this name.
    """
    limit, what = budget
    how: dict[str, Any] = {**options}
    if what == "bits":
        return {"limit": limit}

    def cost(program: Program) -> float:
        lowered = lower(program, target, pipeline, **how)
        if callable(what):
            return what(lowered)
        found = getattr(measure(lowered), what, None)
        if found is None:
            raise StepwellError(
                f"programs for {target!r} have no figure {what!r} to limit",
                help='"bits", "bytes", "arena" (of a .pte), or a function of the lowered program',
            )
        return found

    return {"limit": limit, "cost": cost}


def _measured(
    model: Any, pair: Quantized, target: str, form: str, batches: Sequence[Batch],
    metric: Metric | None, levels: int, most: int, resume: Path | str | None,
    pipeline: PipelineLike | None, progress: Progress | None, options: Any,
) -> Accuracy:  # fmt: skip
    place = None if resume is None else Path(resume)
    first = batches[: max(levels, 1)]
    run = model.eval() if isinstance(model, torch.nn.Module) else None
    reference = [_listed(run(*x)) if run else pair.original.run(*x) for x, _ in batches]
    way = StageComparison(batches, reference, metric, [])
    if run is not None:
        way.take("model", lambda *x: _listed(run(*x)))
    way.take("program", pair.original.run)
    way.take("quantized", lambda *x: Playback(pair, x, free=False).outputs)
    way.batches, way.last = first, way.last[: len(first)]
    step = down(way, pair.program, target, pipeline, options) if levels else None
    found = attribute(pair, batches, metric, most=most, resume=place, progress=progress)
    play = Playback(pair, batches[0][0], free=False)
    by_name = {site.name: site for site in pair.sites}
    worst = [by_name[share.name] for share in found.worst[:NAMED]]
    sure = {s.name for s in found.shares.values() if s.freed.is_more}
    causes = {site.name: cause_of(site, play) for site in worst if site.name in sure}
    remedies = {site.name: wider_payload(site, pair) for site in worst}
    guilty = worst[:1]
    name = next((site.name for site in guilty), "")
    if (module := found.module) is not None:
        inside = [by_name[one.name] for one in found.worst if by_name[one.name].module == module]
        inside.sort(key=lambda site: -found.shares[site.name].alone.mean)
        name, guilty = whole(module), [site for site in pair.sites if site.module == module]
        causes[name] = cause_of_several(inside[:NAMED], play)
    wider: tuple[Widened, ...] = ()
    if found.is_lost and not remedies.get(name):
        named = guilty if name in causes and found.rises else []
        is_fault = any(fault_of(site, play) is not None for site in named)
        wider = int16_activations(named, pair, play, batches, metric, found, is_fault)
        if wider and named and wider[0].is_sure:
            remedies[name] = f"int16 there wins back {wider[0].won:.0%}"
    general = calibration(pair.sites, play) or ""
    return Accuracy(
        target,
        form,
        tuple(way.stages),
        found,
        causes,
        remedies,
        general,
        step,
        (),
        pair.program,
        wider,
    )


def batches_of(data: Any) -> list[Batch]:
    """Return the batches as (inputs of a call, labels).

    A batch of two is inputs and labels; a tensor, or a sequence of another length, is inputs alone.

    Raises:
        StepwellError: there are no batches, or a batch is of another type.
    """
    if isinstance(data, torch.Tensor) or not isinstance(data, Iterable):
        raise StepwellError(
            f"the data has type {type(data).__name__}, must be a sequence of batches",
            help="pass a list of (inputs, labels); labels may be None",
        )
    batches: list[Batch] = []
    for one in cast("Iterable[Any]", data):
        if isinstance(one, torch.Tensor):
            one = (one,)
        if not isinstance(one, tuple | list):
            fact = f"a batch has type {type(one).__name__}"
            raise StepwellError(fact, help="it is inputs, or (inputs, labels)")
        held = tuple(cast("Sequence[Any]", one))
        inputs, labels = held if len(held) == 2 else (held, None)
        batches.append((tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), labels))
    if not batches:
        raise StepwellError("there is no data to measure on", help="pass at least one batch")
    return batches


def imported(model: Any, inputs: Sequence[Any]) -> Program:
    """Return a model as a program at level `aten`."""
    if isinstance(model, torch.nn.Module):
        is_graph = hasattr(model, "graph")  # Those of PT2E have no modes.
        fact = "the model cannot be exported for the inputs of the first batch"
        with torch.no_grad(), reported(fact, "a batch is (inputs, labels)"):
            model = export(model if is_graph else model.eval(), tuple(inputs))
    program = model if isinstance(model, Program) else from_exported_program(model)
    if program.level != "aten":
        raise StepwellError(
            f"the program is at level {program.level!r}, not aten",
            help="pass the model, or the imported program",
        )
    return program


def _form(quantize: str | Callable[..., Any] | None, target: str) -> str:
    if callable(quantize):
        return getattr(quantize, "__name__", "given")
    if quantize is None:
        payload = next(
            (p for p in PAYLOADS if f"mx_{p}" in target or f"mx_{p[2:]}" in target), None
        )
        quantize = payload or ("fp8e4m3" if "+mx" in target else "int8")
    return quantize if is_mixture(quantize) else quantizer_for(quantize, target)


def quantized_as(model: torch.nn.Module, inputs: tuple[Any, ...], mixture: str) -> Program:
    """Return the program of a module that is quantized as a mixture states (`mixtures`).

    Raises:
        StepwellError: the mixture does not fit the model.
    """
    source = imported(model, inputs)
    return _quantized(model, source, mixture, mixture, [(inputs, None)])


def _quantized(
    model: Any, source: Program, form: str, quantize: Any, batches: Sequence[Batch]
) -> Program:
    if "," in form:
        name = form.partition(",")[0]
        return mixed_as(paired(_quantized(model, source, name, name, batches), source), form)
    if form in PAYLOADS:
        return to_mxfp(source, form, convolutions=True, attention=True)
    if not isinstance(model, torch.nn.Module):
        raise StepwellError(
            "quantizers take a module, not an exported program",
            help="pass the module, or its quantized program as quantized=",
        )
    inputs = [x for x, _ in batches]
    if callable(quantize):
        return imported(quantize(model, *inputs), inputs[0])
    several = takes(find_quantizer(form), 1 + len(inputs))
    return imported(quantized_by(model, form, inputs if several else inputs[:1]), inputs[0])


def _listed(given: Any) -> tuple[Any, ...]:
    return tuple(pytree.tree_leaves(given))

"""The smallest payload of each layer with which a model's outputs stay inside an error budget.

Each layer's own error is measured in each payload (`accuracy`).  One limit on it, the same
for all layers, gives each the payload of fewest bits within; layers that have none stay float.
The limit starts at the largest error there is and falls by a fifth until the whole model,
run in MX, is inside the budget on every sample.  A smaller budget therefore never gives a layer a
smaller payload.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from xdsl.ir import Operation

from stepwell.dialects.tosa_mxfp.payloads import payload_named
from stepwell.ir.diagnostics import StepwellError, module_path
from stepwell.ir.program import Program
from stepwell.translate.exporting import export
from stepwell.translate.mxfp.accuracy import LAYERS, measure, smallest
from stepwell.translate.mxfp.conversion import (
    MATCHING,
    Float,
    Layers,
    Samples,
    as_program,
    check_samples,
    chooses,
    convert,
    convert_module,
    prepared,
)


def within_budget(
    model: Float,
    budget: float,
    samples: Samples,
    layers: Layers,
    convolutions: bool,
    attention: bool,
    form: str,
) -> nn.Module | Program:
    """The model in MX; see `to_mxfp`.

    Raises:
        StepwellError: no samples, or a budget that no layer in MX stays inside.
    """
    check_samples(samples, "an error budget")
    if not isinstance(model, nn.Module):
        program = prepared(as_program(model), attention)
        return _search(program, budget, samples, layers, convolutions, attention, form)[0]
    exported = export(model.eval(), tuple(samples[0]))
    program = prepared(as_program(exported), False)

    def wanted(name: str, _: Any) -> bool:
        return chooses(layers, name, model.get_submodule(name))

    chosen = _search(program, budget, samples, wanted, convolutions, False, form)[1]
    by_name: dict[str, str] = {}
    for op, payload in zip(products(program), chosen, strict=True):
        name = module_path(op.location) or ""
        if payload is not None:
            by_name[name] = max(payload, by_name.get(name, payload), key=_bits)
    return convert_module(model, lambda name, _: by_name.get(name), None, convolutions, form)


def _bits(payload: str) -> int:
    return payload_named(payload).bits


def products(program: Program) -> list[Operation]:
    """The layers of a program, in order; those of its clones stand at the same places."""
    return [op for op in program.method().walk() if type(op) in LAYERS]


def _search(
    program: Program,
    budget: float,
    samples: Samples,
    layers: Layers,
    convolutions: bool,
    attention: bool,
    form: str,
) -> tuple[Program, list[str | None]]:
    """The converted program, and the payload of each of `products`."""
    expected = [program.run(*sample) for sample in samples]
    measured = measure(program, samples, convolutions, attention, form)
    errors = [
        measured.get(op, {}) if chooses(layers, module_path(op.location) or "", op) else {}
        for op in products(program)
    ]
    before: list[str | None] = []
    for limit in _limits(errors):
        chosen = [smallest(layer, limit) for layer in errors]
        if chosen == before or not any(chosen):
            continue
        before = chosen
        converted = program.clone()
        held = dict(zip(products(converted), chosen, strict=True))
        convert(converted, lambda _, op: held.get(op), None, convolutions, attention, form)  # noqa: B023
        given = [converted.run(*sample) for sample in samples]
        if max(map(relative_error, given, expected)) <= budget:
            return converted, chosen
    raise StepwellError(
        f"with any layer in MX the outputs move by more than {budget:g} of themselves",
        help="mx_accuracy(model, samples) tells how far each layer moves in each payload",
    )


def relative_error(given: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest ‖given - expected‖ / ‖expected‖ over a model's floating-point outputs."""
    errors = [0.0]
    for a, b in zip(given, expected, strict=True):
        if isinstance(b, Tensor) and b.dtype.is_floating_point:
            norm = float(b.double().norm()) or 1.0
            errors.append(float((a.double() - b.double()).norm()) / norm)
    return max(errors)


def _limits(errors: Sequence[Mapping[str, float]]) -> Iterator[float]:
    every = [error for layer in errors for error in layer.values()]
    if not every:
        raise StepwellError("no layer of the model matches", help=MATCHING)
    limit, least = max(every), min(every)
    while limit >= least:
        yield limit
        limit /= 2**0.25
    yield least

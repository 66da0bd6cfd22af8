"""Compare an artifact with its source, and find the first operator that is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from stepwell.backends.executorch.writing.bundled import bundled_inputs, is_bundled, unbundled
from stepwell.ir.calls.arguments import validate_arguments
from stepwell.ir.calls.calling import declare_ranges, declared_ranges
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import Content, content
from stepwell.ir.program import Program
from stepwell.ir.signature import Port
from stepwell.program import from_exported_program
from stepwell.targets.target import RANGES
from stepwell.translate.importer.export_call import export
from stepwell.validation.artifacts.diagnosis import diagnose
from stepwell.validation.artifacts.given import given_inputs
from stepwell.validation.artifacts.inputs import cases_of, samples_of
from stepwell.validation.artifacts.pair import Pair
from stepwell.validation.artifacts.verdict import Validation
from stepwell.validation.samples import Sample, within

Source = Program | ExportedProgram | Mapping[str, ExportedProgram] | torch.nn.Module


@validate_arguments
def validate(
    artifact: Content,
    source: Source,
    inputs: Any = None,
    *,
    external: Content | None = None,
    recorded: Mapping[str, torch.Tensor] | None = None,
    seed: int = 0,
    special: bool = False,
    ranges: Mapping[Any, Any] | None = None,
) -> Validation:
    """Compare an artifact, written by any flow, with the program from which it was made.

    The artifact runs on inputs of several kinds and sizes, in a process of its own. If a result
    differs by more than rounding explains, or an operator at the same place of both programs does,
    the first such operator is named. No debug information is needed: values correspond if they have
    the same numbers on the same inputs.

    Args:
        artifact: a `.pte`, `.bpte`, `.tosa` or `.vgf`: its path or its bytes. The cases of a
            bundled program are inputs, too.
        source: an exported program, methods by name, a module with `inputs`, or a program that
            `stepwell.load` read, such as another artifact. It is not changed.
        inputs: the inputs of one call as the model takes them, a tuple, or of several, a list of
            tuples; samples of other kinds and sizes are made like the first.
        external: the `.ptd` with the artifact's weights, if it has one.
        recorded: what a device computed on the first inputs: results by the names `output_0`,
            `output_1`, …, and any other values. The artifact is then not run here.
        seed: the seed of the random samples.
        special: also compare infinities, NaN, denormal numbers and overflow.
        ranges: the ranges of inputs that the lowering declared: samples are within them, and
            `inputs` must be.

    Raises:
        StepwellError: a file cannot be read, or the two programs have different inputs.
    """
    given, held = given_inputs(inputs), content(artifact, "artifact")
    origin, declared = _source(source, inputs), RANGES.take(ranges)
    if declared:
        origin = origin.clone()
        declare_ranges(list(origin.methods.values()), declared)
    pair = Pair(
        unbundled(held) if is_bundled(held) else held,
        None if external is None else content(external, ".ptd"),
        origin,
        recorded,
    )
    pair.read()
    samples: dict[str, list[Sample]] = {}
    for name in pair.methods:
        func, ports = origin.method(name), origin.signature(name).inputs
        own = [] if given else given_inputs(origin.samples.get(name))
        own += bundled_inputs(held, name) if is_bundled(held) else []
        own = [_dynamic(one, ports) for one in (*given, *own)]
        usable = [one for one in own if len(one) == len(func.function_type.inputs.data)]
        if given and not usable and len(pair.methods) == 1:
            raise StepwellError(
                f"{len(own[0])} inputs are given, and {name} takes "
                f"{len(func.function_type.inputs.data)}",
                help="pass the inputs of a call as a tuple, those of several as a list of tuples",
            )
        if not given:  # Examples of a file may be outside.
            usable = [tuple(map(within, one, declared_ranges(func))) for one in usable]
        samples[name] = samples_of(func, usable, seed, special=special)
    pair.compare(cases_of(origin, samples))
    pair.notes += [f"input {name} is from {a} to {b}" for name, (a, b) in (declared or {}).items()]
    return diagnose(pair)


def _dynamic(inputs: tuple[Any, ...], ports: Sequence[Port]) -> tuple[Any, ...]:
    """Return the inputs of a call without those that are constants of the program."""
    if len(inputs) != len(ports):
        return inputs
    return tuple(x for x, port in zip(inputs, ports, strict=True) if port.constant is None)


def _source(source: Source, inputs: Any) -> Program:
    if isinstance(source, Program):
        return source
    if isinstance(source, torch.nn.Module):
        first = inputs[0] if isinstance(inputs, list) and inputs else inputs
        if not isinstance(first, tuple):
            raise StepwellError(
                "a module alone does not say what it takes", help="validate(..., inputs=(x,))"
            )
        was_training = source.training
        try:
            return from_exported_program(export(source.eval(), first))
        finally:
            source.train(was_training)
    return from_exported_program(source)

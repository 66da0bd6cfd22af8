"""Comparison of the artifact on its real engine with the interpreter at the target's level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from xdsl.dialects.func import FuncOp

from stepwell.ir.diagnostics import NoEngine, StepwellError, UnsupportedError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound
from stepwell.targets.target import Target
from stepwell.validation.compare import Comparison
from stepwell.validation.histories import called, calls_of, fed, state_of
from stepwell.validation.recording import Recording
from stepwell.validation.result import Finding, StepVerdict
from stepwell.validation.rounding import rounds_floats, sensitivity

FLOAT_KERNELS = Bound(1e-4, 1e-6, "the engine's float kernels reassociate and approximate")
"""XNNPACK's exp, tanh and erf are polynomials; its matrix products sum in blocks."""


def engine_bound(target: Target) -> Bound:
    """Return the error bound of the engine against the interpreter; 0 for integer engines."""
    if target.bound is not None:
        return target.bound
    of_integers = target.name.startswith("tosa") and "+fp" not in target.name
    return EXACT if of_integers or target.name.startswith("cortex-m") else FLOAT_KERNELS


def _with_noise(program: Program, method: str, recording: Recording) -> Bound:
    """Return the bound of float kernels, widened by the effect of floating-point noise on this
    sample.

    The effect is large where floats are rounded to integers, and where nearly equal numbers cancel,
    as in the instance norm of an image of one color.
    """
    inputs = recording.sample.inputs
    moved = sensitivity(program.method(method), program.weights, inputs)
    what = "decides roundings to integers" if rounds_floats(program) else "is amplified"
    reason = f"{FLOAT_KERNELS.reason}; noise in floats {what}"
    return Bound(FLOAT_KERNELS.relative + moved, FLOAT_KERNELS.absolute, reason)


def check_artifact(
    target: Target,
    program: Program,
    recordings: dict[str, list[Recording]],
    options: Mapping[str, Any],
) -> tuple[list[StepVerdict], list[Finding], list[str]]:
    """Emit the artifact and run it on every plain sample (all samples of an exact engine)."""
    told = target.for_artifact(target.artifact, options, {})
    artifact = target.emitter(target.artifact)(program, **told)
    return compare_with_engine(target, artifact, program, recordings)


def compare_with_engine(
    target: Target,
    artifact: bytes,
    program: Program,
    recordings: dict[str, list[Recording]],
) -> tuple[list[StepVerdict], list[Finding], list[str]]:
    """Compare an artifact on its engine with the recorded runs of its program."""
    bound = engine_bound(target)
    found = Comparison("artifact", bound)
    for method, befores in recordings.items():
        for before in befores:
            if before.sample.state or not (before.sample.plain or bound.exact):
                continue
            label, expected = before.sample.label, before.outcome.outputs
            try:
                outputs = target.run(artifact, before.sample.inputs, method)
            except (NoEngine, UnsupportedError) as error:
                found.skipped.append(f"the artifact on {label}: {error.problems[0].fact}")
                continue
            except StepwellError as error:
                found.add(label, f"the engine fails: {error.problems[0].fact}")
                continue
            found.results(label, expected, outputs, partial(_with_noise, program, method, before))
    row = Comparison("artifact", bound)
    _in_a_row(target, artifact, program, recordings, row)
    found.findings += row.findings
    found.largest = max(found.largest, row.largest)
    note = f"{len(artifact):,} bytes"
    note += f"; {row.compared} successive calls" if row.compared else ""
    return found.outcome(f"artifact ({target.artifact})", note)


def _in_a_row(
    target: Target,
    artifact: bytes,
    program: Program,
    recordings: dict[str, list[Recording]],
    found: Comparison,
) -> None:
    """Compare calls of all methods in turn in one session of the engine, to the first finding."""
    many = target.per_method and len(program.methods) > 1
    state = state_of(program)
    if target.session is None or many or not state:
        return
    samples = {  # A method that returns a constant contains no op and reads no state.
        name: [run.sample for run in runs]
        for name, runs in recordings.items()
        if program.method(name).function_type.outputs.data
    }
    bound, last = found.bound, ()
    try:
        run = target.session(artifact)
    except (NoEngine, UnsupportedError):
        return
    calls = calls_of(samples)
    for at, call in enumerate(calls, 1):
        func, inputs = program.method(call.method), fed(call.inputs, last)
        label = f"call {at} of {len(calls)}, @{call.method}"
        before = dict(state)
        last, state = called(func, program.weights, inputs, before)
        try:
            given = run(call.method, inputs)
        except (NoEngine, UnsupportedError):
            return
        except StepwellError as error:
            found.add(label, f"the engine fails: {error.problems[0].fact}")
            return
        if not bound.exact:  # Errors of the state add up.
            found.bound = _wider(found.bound, bound.relative) if at > 1 else bound

        def widen(func: FuncOp = func, inputs: Any = inputs, state: Any = before) -> Bound:
            found.bound = _wider(found.bound, sensitivity(func, program.weights, inputs, state))
            return found.bound

        found.results(label, last, given, widen)
        if found.findings:
            return


def _wider(bound: Bound, by: float) -> Bound:
    return replace(bound, relative=bound.relative + by)

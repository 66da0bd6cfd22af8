"""Comparison of the artifact on its real engine with the interpreter at the target's level."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from stepwell.ir.diagnostics import NoEngine, StepwellError, UnsupportedError
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound
from stepwell.targets.target import Target
from stepwell.validation.compare import deviation, differs
from stepwell.validation.histories import called, calls_of, fed, state_of
from stepwell.validation.recording import Recording
from stepwell.validation.result import Finding, StepVerdict
from stepwell.validation.rounding import rounds_floats, sensitivity
from stepwell.validation.step_observer import describe_bound

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
    started = time.perf_counter()
    bound = widest = engine_bound(target)
    findings: list[Finding] = []
    skipped: list[str] = []
    largest, compared = 0.0, 0
    for method, befores in recordings.items():
        for before in befores:
            if before.sample.state or not (before.sample.plain or bound.exact):
                continue
            label = before.sample.label
            try:
                outputs = target.run(artifact, before.sample.inputs, method)
            except (NoEngine, UnsupportedError) as error:
                skipped.append(f"the artifact on {label}: {error.problems[0].fact}")
                continue
            except StepwellError as error:
                fact = f"the engine fails: {error.problems[0].fact}"
                findings.append(Finding("artifact", None, None, None, None, label, fact))
                continue
            compared += 1
            expected = [v for v in before.outcome.outputs if isinstance(v, torch.Tensor)]
            given = [v for v in outputs if isinstance(v, torch.Tensor)]
            if len(expected) != len(given):
                fact = f"{len(given)} tensors are returned, {len(expected)} expected"
                findings.append(Finding("artifact", None, None, None, None, label, fact))
                continue
            pairs = list(zip(expected, given, strict=True))
            allowed = bound
            if not bound.exact and any(differs(a, b, bound, against="tensor") for a, b in pairs):
                allowed = _with_noise(program, method, before)
                widest = max(widest, allowed, key=lambda b: b.relative)
            for index, (old, new) in enumerate(pairs):
                largest = max(largest, deviation(old, new))
                difference = differs(old, new, allowed, against="tensor")
                if difference is not None:
                    fact = f"output {index}: {difference}"
                    findings.append(
                        Finding(
                            "artifact", None, None, None, None, label, fact,
                            difference.largest, describe_bound(allowed),
                        )
                    )  # fmt: skip
    calls, apart, moved = _in_a_row(target, artifact, program, recordings, bound)
    findings += apart
    note = f"{len(artifact):,} bytes" + (f"; {calls} successive calls" if calls else "")
    seconds = time.perf_counter() - started
    verdict = StepVerdict(
        f"artifact ({target.artifact})", 1, describe_bound(widest), compared, 0,
        max(largest, moved), seconds, not findings, note,
    )  # fmt: skip
    return [verdict], findings, skipped


def _in_a_row(
    target: Target,
    artifact: bytes,
    program: Program,
    recordings: dict[str, list[Recording]],
    bound: Bound,
) -> tuple[int, list[Finding], float]:
    """Call all methods in turn in one session of the engine; return number, findings, deviation."""
    many = target.per_method and len(program.methods) > 1
    state = state_of(program)
    if target.session is None or many or not state:
        return 0, [], 0.0
    samples = {  # A method that returns a constant contains no op and reads no state.
        name: [run.sample for run in runs]
        for name, runs in recordings.items()
        if program.method(name).function_type.outputs.data
    }
    largest, drift, last = 0.0, 0.0, ()
    try:
        run = target.session(artifact)
    except (NoEngine, UnsupportedError):
        return 0, [], 0.0
    calls = calls_of(samples)
    for at, call in enumerate(calls, 1):
        func, inputs = program.method(call.method), fed(call.inputs, last)
        label = f"call {at} of {len(calls)}, @{call.method}"
        before = dict(state)
        last, state = called(func, program.weights, inputs, before)
        try:
            given = run(call.method, inputs)
        except (NoEngine, UnsupportedError):
            return at - 1, [], largest
        except StepwellError as error:
            fact = f"the engine fails: {error.problems[0].fact}"
            return at, [Finding("artifact", None, None, None, None, label, fact)], largest
        pairs = [(old, new) for old, new in zip(last, given, strict=True)
                 if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor)]  # fmt: skip
        allowed = bound
        if not bound.exact:
            drift += bound.relative
            allowed = replace(bound, relative=drift)
            if any(differs(a, b, allowed, against="tensor") for a, b in pairs):
                drift += sensitivity(func, program.weights, inputs, before)
                allowed = replace(bound, relative=drift)
        for index, (old, new) in enumerate(pairs):
            largest = max(largest, deviation(old, new))
            difference = differs(old, new, allowed, against="tensor")
            if difference is not None:
                fact, far = f"output {index}: {difference}", difference.largest
                promised = describe_bound(allowed)
                found = Finding("artifact", None, None, None, None, label, fact, far, promised)
                return at, [found], largest
    return len(calls), [], largest

"""The artefact on its real engine, against the interpreter at the target's level."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from stepwell.checking.compare import deviation, differs
from stepwell.checking.recording import Recording
from stepwell.checking.result import Finding, StepVerdict
from stepwell.checking.rounding import rounds_floats, sensitivity
from stepwell.checking.watching import describe_bound
from stepwell.ir.diagnostics import NoEngine, StepwellError, UnsupportedError
from stepwell.ir.program import Program
from stepwell.ir.rewriting import EXACT, Bound
from stepwell.target import Target

FLOAT_KERNELS = Bound(1e-4, 1e-6, "the engine's float kernels reassociate and approximate")
"""XNNPACK's exp, tanh and erf are polynomials; its matrix products sum in blocks."""


def engine_bound(target: Target) -> Bound:
    """How far the engine may stand from the interpreter: integer engines not at all."""
    if target.bound is not None:
        return target.bound
    of_integers = target.name.startswith("tosa") and "+fp" not in target.name
    return EXACT if of_integers or target.name.startswith("cortex-m") else FLOAT_KERNELS


def _with_noise(program: Program, method: str, recording: Recording) -> Bound:
    """The bound of float kernels, widened by what noise in the floats becomes on this sample.

    It becomes much where floats are rounded to integers, and where nearly equal numbers cancel:
    the instance norm of an image of one colour.
    """
    inputs = recording.sample.inputs
    moved = sensitivity(program.method(method), program.weights, inputs)
    what = "decides roundings to integers" if rounds_floats(program) else "is amplified"
    reason = f"{FLOAT_KERNELS.reason}; noise in floats {what}"
    return Bound(FLOAT_KERNELS.relative + moved, FLOAT_KERNELS.absolute, reason)


def check_artefact(
    target: Target,
    program: Program,
    recordings: dict[str, list[Recording]],
    options: Mapping[str, Any],
) -> tuple[list[StepVerdict], list[Finding], list[str]]:
    """Emit the artefact and run it on every plain sample (all samples of an exact engine)."""
    told = target.for_artefact(target.artefact, options, {})
    artefact = target.emitter(target.artefact)(program, **told)
    return compare_with_engine(target, artefact, program, recordings)


def compare_with_engine(
    target: Target,
    artefact: bytes,
    program: Program,
    recordings: dict[str, list[Recording]],
) -> tuple[list[StepVerdict], list[Finding], list[str]]:
    """An artefact on its engine, against what the interpreter recorded of its program."""
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
                outputs = target.run(artefact, before.sample.inputs, method)
            except (NoEngine, UnsupportedError) as error:
                skipped.append(f"the artefact on {label}: {error.problems[0].fact}")
                continue
            except StepwellError as error:
                fact = f"the engine fails: {error.problems[0].fact}"
                findings.append(Finding("artefact", None, None, None, None, label, fact))
                continue
            compared += 1
            expected = [v for v in before.outcome.outputs if isinstance(v, torch.Tensor)]
            given = [v for v in outputs if isinstance(v, torch.Tensor)]
            if len(expected) != len(given):
                fact = f"{len(given)} tensors come out, {len(expected)} should"
                findings.append(Finding("artefact", None, None, None, None, label, fact))
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
                            "artefact", None, None, None, None, label, fact,
                            difference.largest, describe_bound(allowed),
                        )
                    )  # fmt: skip
    seconds = time.perf_counter() - started
    verdict = StepVerdict(
        f"artefact ({target.artefact})", 1, describe_bound(widest), compared, 0, largest, seconds,
        not findings, f"{len(artefact):,} bytes",
    )  # fmt: skip
    return [verdict], findings, skipped

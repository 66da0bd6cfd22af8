"""Compare programs with independent implementations: the artifact's engine, and eager PyTorch."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from xdsl.dialects.func import FuncOp

from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.ir.diagnostics import NoEngine, StepwellError, UnsupportedError, first_line
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound
from stepwell.targets.target import Target
from stepwell.validation.compare import Comparison
from stepwell.validation.histories import called, calls_of, fed, state_of
from stepwell.validation.recording import Recording
from stepwell.validation.result import Finding, StepVerdict
from stepwell.validation.rounding import sensitivity, with_noise

FLOAT_KERNELS = Bound(1e-4, 1e-6, "the engine's float kernels reassociate and approximate")
"""XNNPACK's exp, tanh and erf are polynomials; its matrix products sum in blocks."""


def engine_bound(target: Target) -> Bound:
    """Return the error bound of the engine against the interpreter; 0 for integer engines."""
    if target.bound is not None:
        return target.bound
    of_integers = target.name.startswith("tosa") and "+fp" not in target.name
    return EXACT if of_integers or target.name.startswith("cortex-m") else FLOAT_KERNELS


def check_artifact(
    target: Target,
    program: Program,
    recordings: dict[str, list[Recording]],
    options: Mapping[str, Any],
) -> tuple[list[StepVerdict], list[Finding], list[str]]:
    """Emit the artifact and run it on every plain sample; an exact engine on all samples."""
    told = target.for_artifact(target.artifact, options, {})
    artifact = target.emitter(target.artifact)(program, **told)
    return compare_with_engine(target, artifact, program, recordings)


def compare_with_engine(
    target: Target,
    artifact: Any,
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
            widen = partial(with_noise, bound, program, method, before.sample)
            found.results(label, expected, outputs, widen)
    row = Comparison("artifact", bound)
    _in_a_row(target, artifact, program, recordings, row)
    found.findings += row.findings
    found.largest = max(found.largest, row.largest)
    note = f"{len(artifact):,} bytes"
    note += f"; {row.compared} successive calls" if row.compared else ""
    return found.outcome(f"artifact ({target.artifact})", note)


def _in_a_row(
    target: Target,
    artifact: Any,
    program: Program,
    recordings: dict[str, list[Recording]],
    found: Comparison,
) -> None:
    """Call all methods in turn in one session of the engine, until a result differs."""
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


# -- the imported program and eager PyTorch -------------------------------------------------------

IMPORT = Bound(2e-5, 1e-6, "a kernel's summation order depends on the memory layout")
"""Import changes no op, but eager PyTorch selects kernels by strides, and the interpreter sees
dense tensors only.
"""


def check_reference(
    module: Any, program: Program, recordings: dict[str, list[Recording]]
) -> tuple[list[StepVerdict], list[Finding], list[str]]:
    """Compare eager PyTorch with the imported program, on the plain samples of `forward`.

    If they differ by more than `IMPORT`, the bound is the effect of floating-point noise on this
    sample: where numbers nearly cancel, the last bits of two kernels may be amplified arbitrarily.
    """
    found = Comparison("import", IMPORT)
    for recording in recordings.get("forward", []):
        sample = recording.sample
        if not sample.plain or sample.state or sample.guessed:
            continue
        try:
            with torch.no_grad():
                args, kwargs = _as_called(program, copy.deepcopy(sample.inputs))
                leaves = pytree.tree_leaves(copy.deepcopy(module)(*args, **kwargs))
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            found.skipped.append(f"eager PyTorch on {sample.label}: {first_line(error)}")
            continue
        ours = recording.outcome.outputs
        counts = [sum(isinstance(v, torch.Tensor) for v in each) for each in (leaves, ours)]
        if counts[0] != counts[1]:
            text = f"eager PyTorch gives {counts[0]} tensors, the program {counts[1]}"
            found.skipped.append(text)
            continue

        widen = partial(with_noise, IMPORT, program, "forward", sample)
        found.results(sample.label, leaves, ours, widen)
    return found.outcome("import")


def _as_called(program: Program, inputs: Sequence[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return flat runtime inputs of `forward` in the nesting, and by keyword, as the model takes
    them.
    """
    signature = program.signature("forward")
    if signature.in_spec is None:
        return inputs, {}
    given = iter(inputs)
    leaves = [next(given) if p.constant is None else p.constant[0] for p in signature.inputs]
    return pytree.tree_unflatten(leaves, pytree.treespec_loads(signature.in_spec))

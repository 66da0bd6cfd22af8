"""Comparison of the imported program with its PyTorch module."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.validation.compare import deviation, differs
from stepwell.validation.recording import Recording
from stepwell.validation.result import Finding, StepVerdict
from stepwell.validation.rounding import sensitivity
from stepwell.validation.step_observer import describe_bound

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
    started = time.perf_counter()
    widest = IMPORT
    findings: list[Finding] = []
    skipped: list[str] = []
    largest, compared = 0.0, 0
    for recording in recordings.get("forward", []):
        sample = recording.sample
        if not sample.plain or sample.state or sample.guessed:
            continue
        inputs = copy.deepcopy(sample.inputs)
        try:
            with torch.no_grad():
                args, kwargs = _as_called(program, inputs)
                leaves = pytree.tree_leaves(copy.deepcopy(module)(*args, **kwargs))
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            reason = str(error).splitlines()[0]
            skipped.append(f"eager PyTorch on {sample.label}: {reason}")
            continue
        eager = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        ours = [leaf for leaf in recording.outcome.outputs if isinstance(leaf, torch.Tensor)]
        if len(eager) != len(ours):
            skipped.append(f"eager PyTorch gives {len(eager)} tensors, the program {len(ours)}")
            continue
        compared += 1
        pairs = list(zip(eager, ours, strict=True))
        allowed = IMPORT
        if any(differs(a, b, IMPORT, against="tensor") for a, b in pairs):
            moved = sensitivity(program.method("forward"), program.weights, sample.inputs)
            allowed = replace(IMPORT, relative=IMPORT.relative + moved)
            widest = max(widest, allowed, key=lambda bound: bound.relative)
        for index, (before, after) in enumerate(pairs):
            largest = max(largest, deviation(before, after))
            difference = differs(before, after, allowed, against="tensor")
            if difference is not None:
                fact = f"output {index}: {difference}"
                findings.append(
                    Finding(
                        "import", None, None, None, None, sample.label, fact, difference.largest
                    )
                )
    seconds = time.perf_counter() - started
    verdict = StepVerdict(
        "import", 1, describe_bound(widest), compared, 0, largest, seconds, not findings
    )
    return [verdict], findings, skipped


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

"""Comparison of the imported program with its PyTorch module."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.validation.compare import Comparison
from stepwell.validation.recording import Recording
from stepwell.validation.result import Finding, StepVerdict
from stepwell.validation.rounding import sensitivity
from stepwell.validation.samples import Sample

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
            reason = str(error).splitlines()[0]
            found.skipped.append(f"eager PyTorch on {sample.label}: {reason}")
            continue
        ours = recording.outcome.outputs
        counts = [sum(isinstance(v, torch.Tensor) for v in each) for each in (leaves, ours)]
        if counts[0] != counts[1]:
            text = f"eager PyTorch gives {counts[0]} tensors, the program {counts[1]}"
            found.skipped.append(text)
            continue

        def widen(sample: Sample = sample) -> Bound:
            moved = sensitivity(program.method("forward"), program.weights, sample.inputs)
            return replace(IMPORT, relative=IMPORT.relative + moved)

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

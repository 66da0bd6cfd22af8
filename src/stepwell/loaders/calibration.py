"""Read the inputs that a quantizer is calibrated on, for `--data FILE`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import StepwellError
from stepwell.loaders.arrays import read_npz
from stepwell.loaders.factories import made_by, users_code

FORMS = (
    "--data is a file.py:callable that returns inputs, each a tensor or the tuple of the model's "
    "arguments, also as (inputs, labels), or a .npz with an array for each argument, whose first "
    "axis counts samples"
)


def calibration_inputs(spec: str) -> list[tuple[Any, ...]]:
    """Return the inputs of each call: those of a callable, or the samples of a `.npz`.

    Args:
        spec: `file.py:callable`, or the path of a `.npz`. Its arrays are the model's arguments in
            the file's order; the call on sample i takes `array[i]` of each.

    Raises:
        StepwellError: the file cannot be read, has no samples, or arrays of different lengths.
    """
    if spec.endswith(".npz"):
        return _samples(Path(spec))
    if not spec.rpartition(":")[0].endswith(".py"):
        raise StepwellError(f"{spec} is no calibration data", help=FORMS)
    made = made_by(spec)
    if isinstance(made, torch.Tensor) or not isinstance(made, Iterable):
        raise StepwellError(f"{spec} returned {type(made).__name__}", help=FORMS)
    found: list[tuple[Any, ...]] = []
    with users_code(f"the inputs of {spec} fail"):
        for one in cast("Iterable[Any]", made):
            held = tuple(cast("Sequence[Any]", one)) if isinstance(one, tuple | list) else (one,)
            if len(held) == 2 and (isinstance(held[0], tuple | list) or held[1] is None):
                inputs = held[0]  # (inputs, labels), as `stepwell accuracy` takes them
                held = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
            found.append(held)
    others = {type(value).__name__ for one in found for value in one} - {"Tensor"}
    if others:
        raise StepwellError(f"{spec} returned inputs of type {sorted(others)[0]}", help=FORMS)
    if not found:
        raise StepwellError(f"{spec} returned no inputs", help=FORMS)
    return found


def _samples(path: Path) -> list[tuple[Any, ...]]:
    arrays = [*read_npz(path).values()]
    lengths = {len(array) if array.dim() else 0 for array in arrays}
    if len(lengths) != 1 or lengths == {0}:
        raise StepwellError(f"the arrays of {path} have no common number of samples", help=FORMS)
    return [tuple(array[at] for array in arrays) for at in range(lengths.pop())]

"""Read what a user has: inputs of the model, and values that a device recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stepwell.ir.compat.torch.lazy_imports import OnDemand, pytree, torch
from stepwell.ir.diagnostics import StepwellError
from stepwell.loaders.arrays import read_npz
from stepwell.loaders.factories import made_by
from stepwell.validation.artifacts.comparing import apart

RESULT = "output_"
"""The prefix of the names of recorded results."""
devtools = OnDemand("executorch.devtools")


def read_inputs(spec: str, count: int) -> list[tuple[Any, ...]]:
    """Read inputs of a method.

    Args:
        spec: `data.py:batches`, a callable that returns the inputs of one call as a tuple, or of
            several as a list of tuples; or an `.npz` with the arrays in the method's order, of one
            call after another.
        count: the number of the method's inputs.

    Raises:
        StepwellError: the file cannot be read, or has another number of arrays.
    """
    if Path(spec).suffix != ".npz":
        return given_inputs(made_by(spec))
    arrays = [*read_npz(Path(spec)).values()]
    if not arrays or not count or len(arrays) % count:
        raise StepwellError(
            f"{spec} has {len(arrays)} arrays, and the method takes {count} inputs",
            help="numpy.savez(file, x, y): the inputs in order, of one call after another",
        )
    return [tuple(arrays[at : at + count]) for at in range(0, len(arrays), count)]


def given_inputs(inputs: Any) -> list[tuple[Any, ...]]:
    """Return the flat inputs of each call: a list has several, anything else is one."""
    if inputs is None:
        return []
    several: Sequence[Any] = inputs if isinstance(inputs, list) else [inputs]
    return [tuple(pytree.tree_leaves(one)) for one in several]


def read_recorded(path: Path) -> dict[str, torch.Tensor]:
    """Read the values that a device recorded, by name.

    Args:
        path: an `.npz` of arrays; those named `output_0`, `output_1`, … are the method's results,
            and others any values inside. Or an `.etdp` (ETDump) of a runtime that logs
            intermediate outputs, with its debug buffer beside it (the suffix `.bin`).

    Raises:
        StepwellError: the file cannot be read.
    """
    if path.suffix == ".npz":
        return read_npz(path)
    beside = path.with_suffix(".bin")
    try:
        inspector = devtools.Inspector(
            etdump_path=str(path), debug_buffer_path=str(beside) if beside.exists() else None
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise StepwellError(f"{path} is no ETDump: {error}") from error
    return {
        f"{block.name}.{at}.{event.name}.{place}": value
        for block in inspector.event_blocks
        for at, event in enumerate(block.events)
        for place, value in enumerate(event.debug_data)
        if isinstance(value, torch.Tensor)
    }


def recorded_results(
    recorded: Mapping[str, torch.Tensor], exact: Sequence[Any]
) -> list[torch.Tensor]:
    """Return the results among recorded values: by name, or the nearest value of each one's shape.

    Args:
        recorded: the values, in the order in which they were computed.
        exact: the results of the model.

    Raises:
        StepwellError: a result is missing.
    """
    found: list[torch.Tensor] = []
    for at, one in enumerate(exact):
        shape = one.shape if isinstance(one, torch.Tensor) else ()
        alike = [value for value in recorded.values() if value.shape == shape]
        alike.sort(key=lambda value, one=one: -apart(torch.as_tensor(one), value))
        by_name = recorded.get(f"{RESULT}{at}")
        named = any(name.startswith(RESULT) for name in recorded)
        if by_name is None and (named or not alike):
            raise StepwellError(
                f"the recorded values have no {RESULT}{at}",
                help="name the method's results output_0, output_1, …",
            )
        found.append(alike[-1] if by_name is None else by_name)
    return found

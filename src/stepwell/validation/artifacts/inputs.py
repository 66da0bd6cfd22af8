"""Inputs on which an artifact is compared with its source: several kinds of numbers and sizes.

A parity test on normal numbers alone misses what depends on an input's structure: constant regions,
zero padding, ties, magnitudes, tokens of padding, sizes below a bound, buffers after many calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from xdsl.dialects.func import FuncOp

from stepwell.ir.calls.calling import declared_ranges
from stepwell.ir.program import Program
from stepwell.validation.histories import calls_of, state_of
from stepwell.validation.samples import Sample, make_samples, within

PADDED = 3
"""The last of so many parts of an axis is padding."""


def _smooth(x: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Return waves along the last two axes, with a region of one number: images and sounds."""
    found = torch.zeros(x.shape, dtype=torch.float64)
    for axis in range(max(0, x.dim() - 2), x.dim()):
        size = x.shape[axis]
        places = torch.arange(size, dtype=torch.float64) / max(size, 1)
        waves = torch.rand(3, generator=random, dtype=torch.float64) * min(size, 24)
        line = sum(torch.sin(2 * math.pi * wave * places + wave) for wave in waves.tolist())
        shape = [size if at == axis else 1 for at in range(x.dim())]
        found = found + torch.as_tensor(line).reshape(shape)
    found = found + torch.rand(x.shape[:1], generator=random).reshape(-1, *[1] * (x.dim() - 1))
    flat = found.flatten()
    flat[: len(flat) // 5] = 0.5
    return found / max(float(found.abs().max()), 1e-9)


def _padded(x: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Return the numbers with zeros at the end of the longest axis."""
    sizes = list(x.shape)
    axis = sizes.index(max(sizes))
    kept = sizes[axis] - sizes[axis] // PADDED
    found = x.clone()
    found.narrow(axis, kept, sizes[axis] - kept).zero_()
    return found


Change = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
CHANGES: dict[str, Change] = {
    "smooth signals": _smooth,
    "uniform in [0, 1)": lambda x, random: torch.rand(x.shape, generator=random),
    "zero padding": _padded,
    "ties": lambda x, random: (2 * x).round() / 2,
    "large numbers": lambda x, random: 50 * x,
    "small numbers": lambda x, random: 1e-3 * x,
}
"""How floats of ordinary random numbers become inputs of another kind."""


@dataclass(frozen=True)
class Case:
    """A call of both programs.

    Attributes:
        method: the method.
        sample: the inputs.
        state: the source's buffers before the call, by key.
    """

    method: str
    sample: Sample
    state: Mapping[str, torch.Tensor]


def samples_of(
    func: FuncOp, given: Sequence[Sequence[Any]], seed: int, *, special: bool
) -> list[Sample]:
    """Return the inputs with which a method is called, the user's first.

    Sizes change from call to call, and the first sizes come again at the end: memory that a call
    of another size has left behind shows then.

    Args:
        func: the method of the source.
        given: flat inputs that the model takes, of any number of calls.
        seed: the seed of the random numbers.
        special: whether to add infinities, NaN, denormal and the greatest numbers.
    """
    random = torch.Generator().manual_seed(seed)
    example = given[0] if given else None
    made = [s for s in make_samples(func, example, seed) if s.plain or special]
    users = [Sample(f"given inputs {at}", tuple(one), True) for at, one in enumerate(given)]
    made = [*users, *(sample for sample in made if sample.label != "example")]
    base = next(sample for sample in made if sample.label == "random")
    held = declared_ranges(func)
    for label, change in CHANGES.items():
        inputs = tuple(_changed(value, change, random) for value in base.inputs)
        if any(a is not b for a, b in zip(inputs, base.inputs, strict=True)):
            inside = tuple(map(within, inputs, held))
            made.append(replace(base, label=label, inputs=inside))
    if any(_is_whole(value) for value in base.inputs):
        inputs = tuple(_padded(v, random) if _is_whole(v) else v for v in base.inputs)
        made.append(replace(base, label="tokens of padding", inputs=inputs, guessed=True))
    if len({_sizes(sample) for sample in made}) > 1:
        made.append(replace(made[0], label=f"{made[0].label} again"))
    return made


def cases_of(program: Program, samples: Mapping[str, Sequence[Sample]]) -> list[Case]:
    """Return the calls of one loaded program: all methods in turn if it has buffers."""
    state = state_of(program)
    cases = [Case(name, sample, {}) for name, each in samples.items() for sample in each]
    if not state:
        return cases
    calls = calls_of(samples)
    return [
        Case(
            call.method,
            Sample(f"call {at} of {len(calls)} in turn", call.inputs, True),
            {},
        )
        for at, call in enumerate(calls, 1)
    ]


def _changed(value: Any, change: Change, random: torch.Generator) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.dim():
        return value
    if value.dtype.itemsize == 1 or not value.numel():
        return value
    like = torch.empty_like(value)
    return like.copy_(change(value.float(), random))


def _is_whole(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.is_complex():
        return False
    return not value.is_floating_point() and value.dim() > 0 and max(value.shape) >= PADDED


def _sizes(sample: Sample) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(x.shape) for x in sample.inputs if isinstance(x, torch.Tensor))

"""Create initial states of a program's mutable buffers, and sequences of calls, for checks.

A pass that loses an update of a cache is still correct on the first call. Each method is therefore
also tested from arbitrary states (random, special, counters near a buffer's length), and from the
states after calls of all methods whose outputs were fed back as inputs of the same type. If one
call from any of these states gives the same outputs and leaves the same state, all later calls do
as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from xdsl.dialects.func import FuncOp

from stepwell.ir.core import StateOp
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.ir.weights import WeightStore
from stepwell.validation.fills import Fill, tensor_of
from stepwell.validation.samples import INTEGERS, Sample

CALLS = 6
"""The number of successive calls, of all methods in turn."""
SMALL = 1 << 15
"""Integers up to this value are ordinary counters. Types with a smaller range are tested at both
ends.
"""
LARGEST = 1e4
"""Numbers beyond this are not plain."""

State = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class MethodCall:
    """One call of a method, with the inputs of the program's calling convention."""

    method: str
    inputs: tuple[Any, ...]


def state_of(program: Program) -> dict[str, torch.Tensor]:
    """Return the initial value of every mutable buffer, by key."""
    return {
        op.key.data: program.weights.get(op.key.data)
        for func in program.methods.values()
        for op in func.body.block.ops
        if isinstance(op, StateOp)
    }


def read_by(func: FuncOp) -> set[str]:
    """Return the keys of the buffers that a method reads."""
    return {op.key.data for op in func.body.block.ops if isinstance(op, StateOp)}


def make_histories(
    program: Program, samples: Mapping[str, Sequence[Sample]], seed: int
) -> dict[str, list[Sample]]:
    """Return samples of each method that begin in other states, the most revealing first.

    Args:
        program: the source program.
        samples: the samples of each method from the initial state, on which it runs.
        seed: the seed of the random numbers.
    """
    first = state_of(program)
    if not first:
        return {name: [] for name in samples}
    random = torch.Generator().manual_seed(seed)
    states = _drawn(first, random) + _after_calls(program, samples)
    made: dict[str, list[Sample]] = {}
    for name, given in samples.items():
        keys, made[name] = read_by(program.method(name)), []
        base = next((s for s in given if s.plain and s.label == "random"), given[0])
        for label, state, guessed in states:
            values = {key: value for key, value in state.items() if key in keys}
            if values:
                sample = replace(
                    base,
                    label=f"{base.label}, {label}",
                    state=values,
                    plain=base.plain and all(map(_is_plain, values.values())),
                    followed=True,
                    guessed=guessed,
                )
                made[name].append(sample)
    return made


def _is_plain(value: torch.Tensor) -> bool:
    if not value.is_floating_point() or not value.numel():
        return True
    return bool(value.double().abs().amax() < LARGEST)  # A NaN is not below.


def _drawn(first: State, random: torch.Generator) -> list[tuple[str, State, bool]]:
    """Return generated states: label, values, and whether the program may be undefined there."""
    whole = {key: value for key, value in first.items() if value.dtype in INTEGERS}
    floats = {key: _filled(value, "random", random) for key, value in first.items()}
    found: list[tuple[str, State, bool]] = []
    if len(whole) < len(first):
        fills: dict[str, Fill] = {"random": "random", "mixed": "mixed", "special": "every class"}
        for label, fill in fills.items():
            state = {key: _filled(value, fill, random) for key, value in first.items()}
            found.append((f"{label} state", state, False))
    for label, at in _counts(first):
        state = {
            key: torch.full_like(value, _within(at, value.dtype)) if key in whole else floats[key]
            for key, value in first.items()
        }
        if whole:
            found.append((f"{label} in state", state, True))
    return found


def _counts(first: State) -> list[tuple[str, int]]:
    """Return integers to try as counters in a program's state: small and odd ones, the lengths of
    buffers and their neighbors, and the extremes.
    """
    lengths = {size for value in first.values() for size in value.shape if size > 1}
    longest = max(lengths, default=4)
    every = dict.fromkeys((1, 2, longest - 1, longest, 2 * longest + 1))
    ends = [("the greatest integers", SMALL - 1), ("the least integers", -SMALL)]
    small = any(
        v.dtype in INTEGERS and torch.iinfo(v.dtype).max < SMALL * 2 for v in first.values()
    )
    return [(str(n), n) for n in every] + (ends if small else [])


def _within(number: int, dtype: torch.dtype) -> int:
    info = torch.iinfo(dtype)
    return max(info.min, min(info.max, number))


def _filled(value: torch.Tensor, fill: Fill, random: torch.Generator) -> torch.Tensor:
    is_drawn = value.is_floating_point() and value.dtype.itemsize > 1
    if is_drawn or value.dtype == torch.bool:
        return tensor_of(value.shape, value.dtype, fill, random)
    return value


def calls_of(samples: Mapping[str, Sequence[Sample]]) -> list[MethodCall]:
    """Return successive calls of every method in turn, each with other plain inputs."""
    plain = {
        name: [s for s in each if s.plain and not s.state and not s.guessed]
        for name, each in samples.items()
    }
    names = [name for name, each in plain.items() if each]
    if not names:
        return []
    count = max(CALLS, 2 * len(names))
    return [
        MethodCall(name, plain[name][(at // len(names)) % len(plain[name])].inputs)
        for at in range(count)
        for name in (names[at % len(names)],)
    ]


def _after_calls(
    program: Program, samples: Mapping[str, Sequence[Sample]]
) -> list[tuple[str, State, bool]]:
    """Return the state of the buffers after the first call and after the last."""
    found: list[tuple[str, State, bool]] = []
    state, last = dict(state_of(program)), ()
    calls = calls_of(samples)
    for at, call in enumerate(calls, 1):
        func = program.method(call.method)
        try:
            last, state = called(func, program.weights, fed(call.inputs, last), state)
        except StepwellError:
            break
        if at in (1, len(calls)):
            found.append((f"after {at} call{'s' * (at > 1)}", dict(state), False))
    return found


def called(
    func: FuncOp, weights: WeightStore, inputs: Sequence[Any], state: State
) -> tuple[tuple[Any, ...], dict[str, torch.Tensor]]:
    """Call a method in a state; return the outputs and the next state."""
    outcome = Interpreter(weights, dict(state)).call(func, inputs)
    return outcome.outputs, {**state, **outcome.state}


def fed(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
    """Feed outputs back into the next call: replace the first input of an output's type and shape
    by it.
    """
    for index, value in enumerate(inputs):
        for output in outputs:
            if (
                isinstance(value, torch.Tensor)
                and isinstance(output, torch.Tensor)
                and value.is_floating_point()
                and (value.dtype, value.shape) == (output.dtype, output.shape)
                and value.stride() == output.stride()
                and _is_plain(output)
            ):
                return (*inputs[:index], output.clone(), *inputs[index + 1 :])
    return tuple(inputs)

"""Compare the ops of a lowered program with the model's ops in eager PyTorch.

An op of the model is tracked by its location. Of the final ops with that location, the last one
usually computes the result of the model's op, but rewrites may move a part of it (a scale, a
layout) to a neighbor. A difference is therefore a hint; only the outputs must agree.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import torch
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import StepwellError, node_name
from stepwell.ir.program import Program
from stepwell.validation.recording import Recording, as_real, record
from stepwell.validation.samples import Sample


@dataclass(frozen=True)
class EagerDifference:
    """The difference of a value from eager PyTorch's.

    Attributes:
        node: the node of the model.
        most: the largest difference of two elements.
        size: the largest magnitude in eager PyTorch.
        note: how the value was compared, if not element by element in its layout; or why it was not
            compared.
    """

    node: str
    most: float | None
    size: float
    note: str = ""


def values_of(func: FuncOp, run: Recording) -> dict[str, Any]:
    """Return a mapping from a model's node to the result of the last op with its name, as reals."""
    named = ((node, value) for node, value in _named(func) if value in run.values)
    return {node: as_real(value, run.values[value]) for node, value in named}


def _named(func: FuncOp) -> Iterator[tuple[str, SSAValue]]:
    for op in func.walk():
        if op.results and not isinstance(op, WeightOp) and op is not func:
            value = op.results[0]
            if (name := node_name(op.location) or value.name_hint) is not None:
                yield name, value


def differences(
    eager: Mapping[str, Any],
    outputs: Mapping[str, Any],
    lowered: Program,
    method: str,
    sample: Sample,
) -> tuple[list[EagerDifference], list[EagerDifference]]:
    """Return (the difference of each common node, in the program's order; that of all outputs).

    Args:
        eager: the tensors of the eager run, by node.
        outputs: everything that a caller can observe, by name.
        lowered: the lowered program, which the interpreter runs.
        method: the method to compare.
        sample: the inputs of the method.

    Raises:
        StepwellError: the program does not run on the sample.
    """
    func = lowered.method(method)
    run = record(func, lowered.weights, sample)
    now = values_of(func, run)
    nodes = [_difference(node, held, now[node]) for node, held in eager.items() if node in now]
    seen = run.observed()
    whole = [_difference(name, held, seen[name]) for name, held in outputs.items() if name in seen]
    return [node for node in nodes if node is not None], [one for one in whole if one is not None]


def _difference(node: str, old: Any, new: Any) -> EagerDifference | None:
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor) or not old.numel():
        return None
    before = old.detach().to(torch.float64)
    size = float(before.nan_to_num(0, 0, 0).abs().max())
    if new.is_complex() or old.is_complex():
        return None
    if new.is_floating_point() != old.is_floating_point():
        return EagerDifference(
            node, None, size, f"{old.dtype} became {new.dtype}".replace("torch.", "")
        )
    best: tuple[float, str] | None = None
    for value, note in _laid_out(new.detach().to(torch.float64), old.shape):
        apart = _apart(before, value)
        if best is None or apart < best[0]:
            best = (apart, note)
        if apart <= 1e-4 * max(size, 1e-30):
            break
    if best is None:
        return EagerDifference(node, None, size, f"{list(old.shape)} became {list(new.shape)}")
    return EagerDifference(node, best[0], size, best[1])


def _apart(before: torch.Tensor, after: torch.Tensor) -> float:
    same = (before == after) | (before.isnan() & after.isnan())
    apart = (before - after).abs().masked_fill(same, 0)
    return float("inf") if bool(apart.isnan().any()) else float(apart.max())


def _laid_out(value: torch.Tensor, shape: torch.Size) -> Iterator[tuple[torch.Tensor, str]]:
    """Yield a tensor unchanged, with permuted axes, and reshaped, each with a note."""
    if value.shape == shape:
        yield value, ""
    elif value.numel() != shape.numel():
        return
    if value.dim() == len(shape) and 2 < value.dim() <= 5:
        for order in permutations(range(value.dim())):
            if list(order) != sorted(order) and value.permute(order).shape == shape:
                yield value.permute(order), f"axes {list(order)}"
    if value.shape != shape:
        yield value.reshape(shape), f"was {list(value.shape)}"


def runs(program: Program, method: str, sample: Sample) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (node → tensor, everything that a caller can observe) of the source program.

    Raises:
        StepwellError: the program does not run on the sample.
    """
    func = program.method(method)
    run = record(func, program.weights, sample)
    return values_of(func, run), run.observed()


def same_inputs(one: Program, other: Program, method: str) -> None:
    """Check that the methods of two programs take the same types.

    Raises:
        StepwellError: the types differ.
    """
    before, after = (p.method(method).function_type.inputs for p in (one, other))
    if before != after:
        raise StepwellError(
            "the inputs of the lowered program have other types than those of the model",
            help="omit the option io, which changes the types of inputs",
        )

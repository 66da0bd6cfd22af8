"""How far a right result may be: measured by trying, not chosen.

A program runs eagerly at its dtypes, in float64, and some times more at its dtypes with every
number that is computed moved by a few units in its last place (a quantised program: every stored
integer by up to one). What these runs have in common a right result has too; where they part is
how far it may be off. Where they part in class (a NaN, an infinity, a sign of one), in an integer
or in a truth value, nothing is known of the element, and nothing is asked.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .source import Program, floats

RUNS = 4
"""Perturbed runs."""
ULPS = 4.0
"""How far each computed number is moved, in units of its dtype's epsilon."""
FACTOR = 8.0
"""What the runs' distance is multiplied by: few runs see less than all that may happen."""

MOVES = set(
    """clone copy cat stack index index_select gather where constant_pad_nd flip roll repeat relu
abs neg max min amax amin sort topk masked_fill clamp clamp_min clamp_max embedding scatter
slice_scatter select_scatter round floor ceil trunc sign sgn arange full zeros ones
scalar_tensor full_like zeros_like ones_like empty empty_like new_zeros new_ones new_full
new_empty lift_fresh_copy _local_scalar_dense copy_ fill_ zero_ neg_ abs_ relu_ clamp_
masked_fill_ index_put index_put_ maximum minimum fmax fmin tril triu diag_embed unfold_copy
max_pool2d_with_indices max_pool3d_with_indices reflection_pad1d reflection_pad2d
reflection_pad3d replication_pad1d replication_pad2d replication_pad3d threshold
dequantize_per_tensor dequantize_per_channel resize_ set_ cummax cummin kthvalue median
nan_to_num randperm randn randint rand""".split()
)
"""Operators that compute no new number."""


CONTROL = re.compile(r"\b(cond|while_loop|scan|map_rows)\(")


class Shaken(TorchDispatchMode):
    """Every computed number a little off."""

    def __init__(self, seed: int, units: bool = False) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.units = units

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if self.units:
            if name.startswith("quantize_per_") and isinstance(out, Tensor):
                low, high = [a for a in args if isinstance(a, int)][-2:]
                step = torch.randint(-1, 2, out.shape, generator=self.generator)
                return (out.long() + step).clamp(low, high).to(out.dtype)
            return out
        if name in MOVES or any(
            r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns
        ):
            return out
        if name == "_to_copy" and not _narrows(args[0], out):
            return out
        return pytree.tree_map(self._shaken, out)

    def _shaken(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return self.moved(value, ULPS)

    def moved(self, value: Tensor, ulps: float) -> Tensor:
        """Up to some units up or down; in place, as the caller may be an operator in place."""
        eps = torch.finfo(value.dtype).eps * ulps
        by = torch.rand(value.shape, generator=self.generator, dtype=torch.float64) * 2 - 1
        value.copy_((value.double() * (1 + by * eps)).to(value.dtype))
        return value


def _narrows(given: Any, out: Any) -> bool:
    return (
        isinstance(given, Tensor)
        and given.is_floating_point()
        and out.is_floating_point()
        and torch.finfo(out.dtype).eps > torch.finfo(given.dtype).eps
    )


Runner = Callable[[Any], Sequence[Any]]
"""From nested inputs to flat outputs."""


def eager(program: Program, given: Any, *, wide: bool = False) -> list[Any]:
    """The outputs of the module itself, flat, of a fresh module's first call."""
    module = program.module(wide=wide)
    given = pytree.tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, given)
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64 if wide else default)
        with torch.no_grad():
            return pytree.tree_leaves(module(*(floats(given, Tensor.double) if wide else given)))
    finally:
        torch.set_default_dtype(default)


@dataclass
class Expected:
    """Each output, in every run."""

    runs: list[list[Tensor]]

    @classmethod
    def of(cls, program: Program, given: Any, exported: torch.nn.Module) -> Expected:
        """What a right result of a float or integer program may be."""
        runs = [eager(program, given), pytree.tree_leaves(copy.deepcopy(exported)(*_copied(given)))]
        with suppress(RuntimeError):  # What mixes dtypes by hand may not run widened.
            runs.append(eager(program, given, wide=True))
        has_control = bool(CONTROL.search(program.text))  # Which no dispatch mode sees into.
        for seed in range(RUNS):
            # By turns what eager calls, and what it was exported as: one call may be many there.
            made = copy.deepcopy(exported) if seed % 2 and not has_control else program.module()
            shaken = Shaken(seed)
            with torch.no_grad():
                for held in made.parameters():
                    shaken.moved(held, 1.0) if held.is_floating_point() else None
                with shaken:
                    moved = floats(given, partial(_nudged, shaken)) if seed else given
                    runs.append(pytree.tree_leaves(made(*_copied(moved))))
        return cls([[_tensor(v) for v in run] for run in runs])

    def narrowed(self) -> Expected:
        """What a target gives that holds 64-bit integers in 32 bits."""
        return Expected([[_narrow(value) for value in run] for run in self.runs])

    @classmethod
    def of_quantised(cls, given: Any, graph: Callable[..., Any]) -> Expected:
        """What a right result of a quantised graph may be: each stored integer one unit off."""
        with torch.no_grad():
            runs = [pytree.tree_leaves(graph(*_copied(given)))]
            for seed in range(RUNS):
                with Shaken(seed, units=True):
                    runs.append(pytree.tree_leaves(graph(*_copied(given))))
        return cls([[_tensor(v) for v in run] for run in runs])

    def complaint(self, outputs: Sequence[Any], unit: Sequence[float] | None = None) -> str | None:
        """What is wrong with some outputs, or None."""
        if len(outputs) != len(self.runs[0]):
            return f"{len(outputs)} outputs instead of {len(self.runs[0])}"
        for index, output in enumerate(outputs):
            said = _complaint(
                _tensor(output), [run[index] for run in self.runs], unit[index] if unit else 0.0
            )
            if said:
                return f"output {index}: {said}"
        return None


def _nudged(shaken: Shaken, value: Tensor) -> Tensor:
    return shaken.moved(value.clone(), 1.0)


def _copied(given: Any) -> Any:
    return pytree.tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, given)


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(value)


def _narrow(value: Tensor) -> Tensor:
    return value.to(torch.int32) if value.dtype == torch.int64 else value


def _class(value: Tensor) -> Tensor:
    return torch.where(
        value.isnan(), 3, torch.where(value.isinf(), torch.where(value > 0, 1, 2), 0)
    )


def _complaint(output: Tensor, runs: list[Tensor], unit: float) -> str | None:
    wanted = runs[0]
    if output.dtype != wanted.dtype:
        return f"{output.dtype} instead of {wanted.dtype}"
    if output.shape != wanted.shape:
        return f"shape {tuple(output.shape)} instead of {tuple(wanted.shape)}"
    if not wanted.numel():
        return None
    runs = [run for run in runs if run.shape == wanted.shape]
    if not wanted.is_floating_point():
        same = torch.stack([run.to(wanted.dtype) == wanted for run in runs]).all(0)
        wrong = same & (output != wanted)
        return _first(wrong, output, wanted)
    cast = torch.stack([run.to(wanted.dtype).double() for run in runs])
    classes = torch.stack([_class(run) for run in cast])
    mine = output.double()
    fits = (classes == _class(mine)).any(0)
    finite = classes == 0
    high = torch.where(finite, cast, -torch.inf).amax(0)
    low = torch.where(finite, cast, torch.inf).amin(0)
    info = torch.finfo(wanted.dtype)
    size = torch.where(finite.any(0), torch.maximum(high.abs(), low.abs()), 0.0)
    away = (
        FACTOR * (high - low)
        + 4 * info.eps * size
        + 4 * max(info.smallest_normal, 2**-24 * (info.eps > 1e-5))
        + unit
    )
    near = (mine <= high + away) & (mine >= low - away)
    # An element at the edge of the range may be an infinity in one run of many.
    edge = size >= info.max * 0.5
    wrong = ~(fits & (near | (_class(mine) != 0))) & ~edge
    return _first(wrong, output, wanted)


def _first(wrong: Tensor, output: Tensor, wanted: Tensor) -> str | None:
    if not bool(wrong.any()):
        return None
    at = wrong.reshape(-1).nonzero()[0, 0]
    got, want = output.reshape(-1)[at].item(), wanted.reshape(-1)[at].item()
    return f"{int(wrong.sum())} of {wrong.numel()} elements, {got!r} instead of {want!r}"

"""How far a right result may be: measured by trying, not chosen.

A program runs eagerly at its dtypes, in float64, and some times more at its dtypes with every
number that is computed moved by a few units in its last place. What these runs have in common a
right result has too; where they part is how far it may be off. Where they part in class (a NaN, an
infinity, a sign of one), in an integer or in a truth value, nothing is known of the element, and
nothing is asked. How quantized programs run is in `stepping.py`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .source import Calls, Program, all_calls, copied, floats

RUNS = 4
"""Perturbed runs."""
ULPS = 4.0
"""How far each computed number is moved, in units of its dtype's epsilon."""
FACTOR = 8.0
"""What the runs' distance is multiplied by: few runs see less than all that may happen."""

MOVES = set(
    """clone copy _unsafe_view cat stack index index_select gather where constant_pad_nd flip roll
repeat relu abs neg max min amax amin sort topk masked_fill clamp clamp_min clamp_max embedding
scatter slice_scatter select_scatter round floor ceil trunc sign sgn arange full zeros ones
scalar_tensor full_like zeros_like ones_like empty empty_like new_zeros new_ones new_full
new_empty lift_fresh_copy _local_scalar_dense copy_ fill_ zero_ neg_ abs_ relu_ clamp_
masked_fill_ index_put index_put_ maximum minimum fmax fmin tril triu diag_embed unfold_copy
max_pool2d_with_indices max_pool3d_with_indices reflection_pad1d reflection_pad2d reflection_pad3d
replication_pad1d replication_pad2d replication_pad3d threshold dequantize_per_tensor
dequantize_per_channel resize_ set_ cummax cummin kthvalue median nan_to_num randperm randn
randint rand""".split()
)
"""Operators that compute no new number."""

BACKWARD = {"sin": 1.0, "cos": 1.0, "tan": 1.0} | dict.fromkeys(
    ("native_batch_norm", "_native_batch_norm_legit", "native_layer_norm", "native_group_norm"),
    ULPS,
)
"""Operators that are right where they are those of an operand as many units off.

Of an angle, kernels subtract multiples of π that they hold in their own precision; norms subtract a
mean that they sum in any order.
"""

COARSE = {"_log_softmax": 1.0, "gelu": 0.75}
"""Operators right to units of a number this large: what they compute is a difference by definition.

From the logarithm of a sum of 1 or more; from 1 by an error function, times half of at most 6.
"""

TOSA_COARSE = {"tanh": 0.5, "log": 0.5}
"""Operators of TOSA with an absolute error below this size, not a relative one.

Source: `abs_error_lower_bound` of the conformance generator in tosa-tools.
"""

PLACED = ("upsample_linear", "upsample_bi", "upsample_tri", "_upsample_bi", "grid_sampler")
"""Operators that read between elements."""

CONTROL = re.compile(r"\b(cond|while_loop|scan|map_rows)\(")


class Shaken(TorchDispatchMode):
    """Every computed number a little off."""

    still = False
    """Whether inputs and weights stay as they are."""

    def __init__(self, seed: int, coarse: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.coarse = {**COARSE, **(coarse or {})}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name.split("::")[1]
        plain = name.rstrip("_")
        if plain in BACKWARD and args[0].is_floating_point():
            given = self.moved(args[0].clone(), BACKWARD[plain])
            args = (args[0].copy_(given) if name == plain + "_" else given, *args[1:])
        out = func(*args, **(kwargs or {}))
        if name.startswith(PLACED):  # Where they read is computed too, to a part of an element.
            reach = args[0].abs().nan_to_num(0, 0, 0).amax() if args[0].numel() else 0
            return out + self._noise(out, ULPS * float(reach) * max(out.shape[2:]))
        if name in MOVES or any(
            r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns
        ):
            return out
        if name == "_to_copy" and not _narrows(args[0], out):
            return out
        return pytree.tree_map(partial(self._shaken, self.coarse.get(plain, 0.0)), out)

    def _noise(self, out: Tensor, units: float) -> Tensor:
        by = torch.rand(out.shape, generator=self.generator, dtype=torch.float64) * 2 - 1
        return (by * torch.finfo(out.dtype).eps * units).to(out.dtype)

    def _shaken(self, least: float, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return self.moved(value, ULPS, least)

    def moved(self, value: Tensor, ulps: float, least: float = 0.0) -> Tensor:
        """Up to some units up or down, of numbers below `least` of its units; in place."""
        eps = torch.finfo(value.dtype).eps * ulps
        by = torch.rand(value.shape, generator=self.generator, dtype=torch.float64) * 2 - 1
        wide = value.double()
        step = torch.where(wide.isfinite(), wide.abs().clamp(min=least), 0.0)
        value.copy_((wide + step * by * eps).to(value.dtype))
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
    """The outputs of all calls of a fresh module, flat."""
    module, given = all_calls(program, wide=wide), copied(given)
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64 if wide else default)
        with torch.no_grad():
            return module(*(floats(given, Tensor.double) if wide else given))
    finally:
        torch.set_default_dtype(default)


@dataclass
class Expected:
    """Each output, in every run."""

    runs: list[list[Tensor]]
    further: Iterator[list[list[Any]]] = field(default_factory=lambda: iter(()))
    """More runs, some at a time, which a result that seems wrong is compared with."""
    narrow: bool = False
    """Whether a target holds 64-bit integers in 32 bits."""
    wide: int | None = None
    """Which run is in float64.

    Where it alone is finite, the program's own dtype overflows on the way: a result is asked for
    its class alone.
    """
    grids: Sequence[bool] = ()
    """Which outputs are steps of a quantized type, of which the runs give every one that may be."""

    @classmethod
    def of(
        cls,
        program: Program,
        given: Any,
        eps: Mapping[str, ExportedProgram],
        coarse: Mapping[str, float] | None = None,
        narrow: bool = False,
    ) -> Expected:
        """What a right result of a float or integer program may be.

        Args:
            program: the program.
            given: the inputs of its calls, nested.
            eps: what torch made of its methods; one alone is a run as well (several, exported
                apart, do not share their state).
            coarse: operators that are right to within units of a number this large.
            narrow: whether a target holds 64-bit integers in 32 bits.
        """
        graph = calls_of(program, eps) if len(eps) == 1 else None
        runs = [eager(program, given)]
        if graph is not None:
            runs.append(copy.deepcopy(graph)(*copied(given)))
        with denormals_as_zero():  # As delegates read them, whatever their op (semantics.md).
            runs.append(eager(program, given))
        has_control = bool(CONTROL.search(program.text))  # Which no dispatch mode sees into.
        if "conv" in program.text and not has_control:
            with Skipping():
                runs.append(eager(program, given))
        wide = None
        with suppress(RuntimeError):  # What mixes dtypes by hand may not run widened.
            runs.append(eager(program, given, wide=True))
            wide = len(runs) - 1

        def made(seed: int) -> torch.nn.Module:
            # By turns what eager calls, and what it was exported as: one call may be many there.
            is_exported = seed % 2 and not has_control and graph is not None
            return copy.deepcopy(graph) if is_exported else all_calls(program)

        def further() -> Iterator[list[list[Any]]]:  # Of the pieces of calls.
            if graph is not None:
                apart = calls_of(program, {n: ep.run_decompositions() for n, ep in eps.items()})
                yield shaken(lambda _: copy.deepcopy(apart), given, coarse)

        runs += shaken(made, given, coarse)
        return cls(tensors(runs, narrow), further(), narrow, wide)

    def complaint(
        self,
        outputs: Sequence[Any],
        unit: Sequence[float] | None = None,
        forgiven: Sequence[Tensor] | None = None,
    ) -> str | None:
        """What is wrong with some outputs, or None.

        Args:
            outputs: the outputs.
            unit: how far each may be off besides.
            forgiven: outputs of another flow; where they and these are of one class, which is not
                that of any run, nothing is said.
        """
        while said := self._complaint(outputs, unit, forgiven):
            more: list[list[Any]] = []
            with suppress(Exception):  # What torch cannot take apart has no more runs.
                more = next(self.further, more)
            if not more:
                return said
            self.runs += tensors(more, self.narrow)
        return None

    def _complaint(
        self,
        outputs: Sequence[Any],
        unit: Sequence[float] | None,
        forgiven: Sequence[Tensor] | None,
    ) -> str | None:
        if len(outputs) != len(self.runs[0]):
            return f"{len(outputs)} outputs instead of {len(self.runs[0])}"
        for index, output in enumerate(outputs):
            mine, runs = _tensor(output), [run[index] for run in self.runs]
            exact = bool(self.grids) and self.grids[index]
            wrong = _wrong(mine, runs, unit[index] if unit else 0.0, self.wide, exact)
            if isinstance(wrong, Tensor):
                if forgiven is not None and mine.is_floating_point():
                    wrong = wrong & ~(
                        _strays(mine, runs) & (_class(mine) == _class(forgiven[index]))
                    )
                wrong = _first(wrong, mine, runs[0])
            if wrong:
                return f"output {index}: {wrong}"
        return None


def shaken(
    made: Callable[[int], torch.nn.Module], given: Any, coarse: Mapping[str, float] | None
) -> list[list[Any]]:
    """The perturbed runs of fresh modules."""
    runs: list[list[Any]] = []
    for seed in range(RUNS):
        module, way = made(seed), Shaken(seed, coarse=coarse)
        with torch.no_grad():
            for held in module.parameters():
                way.moved(held, 1.0) if held.is_floating_point() else None
            with way:
                moved = floats(given, partial(_nudged, way)) if seed else given
                runs.append(pytree.tree_leaves(module(*copied(moved))))
    return runs


def ran(graph: torch.nn.Module, given: Any, way: TorchDispatchMode | None = None) -> list[Any]:
    """The outputs of a copy of a graph, flat, run in some way."""
    graph, moved = copy.deepcopy(graph), given
    with torch.no_grad():
        if isinstance(way, Shaken) and not way.still:
            for held in graph.parameters():
                way.moved(held, 1.0) if held.is_floating_point() else None
            moved = floats(given, partial(_nudged, way))
        with way or nullcontext():
            return pytree.tree_leaves(graph(*copied(moved)))


class Skipping(TorchDispatchMode):
    """Convolutions that skip what a kernel reads outside the image, as TOSA's and some of torch's.

    By other kernels a weight that is not finite makes NaN of the zeros there: which is taken
    depends on sizes, dtype and CPU.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func is not torch.ops.aten.convolution.default or args[6] or args[1].isfinite().all():
            return func(*args, **(kwargs or {}))
        image, weight, bias, *how = args

        def meets(pixels: Tensor, taps: Tensor) -> Tensor:
            return func(pixels.to(image.dtype), taps.to(image.dtype), None, *how) > 0

        ones = weight.sign().nan_to_num(1.0)
        out = func(image, weight.where(weight.isfinite(), ones), bias, *how)
        above, below = weight == torch.inf, weight == -torch.inf
        out = out + torch.where(meets(image > 0, above) | meets(image < 0, below), torch.inf, 0.0)
        out = out - torch.where(meets(image < 0, above) | meets(image > 0, below), torch.inf, 0.0)
        lost = meets(torch.ones_like(image), weight.isnan())
        lost |= meets((image == 0) | image.isnan(), ~weight.isfinite())
        return out.masked_fill(lost, torch.nan)


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _nudged(way: Shaken, value: Tensor) -> Tensor:
    return way.moved(value.clone(), 1.0)


def calls_of(program: Program, eps: Mapping[str, ExportedProgram]) -> Calls:
    """All calls of the exported methods."""
    return Calls([ep.module(check_guards=False) for ep in eps.values()], program.calls)


def tensors(runs: list[list[Any]], narrow: bool = False) -> list[list[Tensor]]:
    return [[_narrow(_tensor(v)) if narrow else _tensor(v) for v in run] for run in runs]


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(value)


def _narrow(value: Tensor) -> Tensor:
    return value.to(torch.int32) if value.dtype == torch.int64 else value


def _class(value: Tensor) -> Tensor:
    return torch.where(
        value.isnan(), 3, torch.where(value.isinf(), torch.where(value > 0, 1, 2), 0)
    )


def _strays(output: Tensor, runs: list[Tensor]) -> Tensor:
    """Where a result is of a class that no run is of."""
    kept = torch.stack([_class(r.to(output.dtype)) for r in runs if r.shape == output.shape])
    return (kept != _class(output)).all(0)


def _wrong(
    output: Tensor, runs: list[Tensor], unit: float, wide: int | None = None, exact: bool = False
) -> Tensor | str | None:
    """Where a result is not what it may be, or what is wrong with the whole."""
    wanted = runs[0]
    if output.dtype != wanted.dtype:
        return f"{output.dtype} instead of {wanted.dtype}"
    if output.shape != wanted.shape:
        return f"shape {tuple(output.shape)} instead of {tuple(wanted.shape)}"
    if not wanted.numel():
        return None
    own = [run for index, run in enumerate(runs) if index != wide and run.shape == wanted.shape]
    runs = [run for run in runs if run.shape == wanted.shape]
    if not wanted.is_floating_point():
        same = torch.stack([run.to(wanted.dtype) == wanted for run in runs]).all(0)
        return same & (output != wanted)
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
        (0.0 if exact else FACTOR) * (high - low)
        + 4 * info.eps * size
        + 4 * info.smallest_normal
        + unit
    )
    near = (mine <= high + away) & (mine >= low - away)
    near |= ~torch.stack([_class(run.to(wanted.dtype)) == 0 for run in own]).any(0)
    # An element at the edge of the range may be an infinity in one run of many.
    edge = size >= info.max * 0.5
    return ~(fits & (near | (_class(mine) != 0))) & ~edge


def _first(wrong: Tensor, output: Tensor, wanted: Tensor) -> str | None:
    if not bool(wrong.any()):
        return None
    at = wrong.reshape(-1).nonzero()[0, 0]
    got, want = output.reshape(-1)[at].item(), wanted.reshape(-1)[at].item()
    return f"{int(wrong.sum())} of {wrong.numel()} elements, {got!r} instead of {want!r}"

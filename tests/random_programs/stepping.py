"""How far a right result of a quantized graph may be: where each rounding to a step may fall.

A target rounds a number to the same step as eager, unless it lies near the middle between two. How
near is `SLACK` of a step, which the arithmetic of targets says, and eight times what the graph's
runs disagree by there: runs whose floats are moved by a few units in the last place, and in which
the roundings before fell to one side or the other. An element that no rounding leaves in doubt is
asked for exactly, and one that is in doubt may be either neighbor, with all that follows from it.

Layers of integers hold their bias as an integer too, at the product of the scales of what they
multiply. Where that is coarse, results differ from those of a float bias by whole steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from .oracle import (
    FACTOR,
    MOVES,
    RUNS,
    Expected,
    Shaken,
    calls_of,
    denormals_as_zero,
    ran,
    tensors,
)
from .source import Program, floats

SLACK = 1 / 128
"""How near to the middle between two steps a target may round to either, as a part of a step.

Two operands of up to 256 steps, by factors in fixed point that are right to 2⁻¹⁶.
"""
COMBINATIONS = 96
"""Runs for a result that seems wrong, in which each rounding in doubt falls up or down on its own.

Runs in which all fall to the same side do not contain a result that depends on one that falls up
and on one that falls down, as the scores of an attention do.
"""
OTHER_GRID = 1 / 2
"""The same where the scale is found at run time: targets find one for each row, whose steps are not
larger, so that theirs lie anywhere between two of a whole tensor's."""


class Stepping(Shaken):
    """Floats a little off, and every number that is quantized up to its radius of steps off.

    Args:
        seed: of what is drawn.
        radii: for each rounding in order how far its number may be off, in steps.
        side: -1 or 1, to move each number as far as it may be; drawn for each when None.
        forced: numbers to round in place of those that a run brings to each rounding, in steps.
        biases: whether a bias is rounded to the product of its layer's scales, as integers have it.
        twice: whether sums are rounded twice: to a power of two from one to two of their units,
            then to a step. The first is off by half of that power, which is at most the unit.
        ends: whether each drawn number is moved as far as it may be, up or down.
    """

    def __init__(
        self,
        seed: int,
        radii: Sequence[Tensor] | None = None,
        side: int | None = None,
        forced: Sequence[Tensor] | None = None,
        biases: bool = True,
        twice: bool = False,
        ends: bool = False,
    ) -> None:
        super().__init__(seed)
        self.radii, self.side, self.forced, self.biases = radii, side, forced, biases
        self.twice, self.ends = twice, ends
        self.brought: list[Tensor] = []
        """The numbers that came to each rounding, in steps."""
        self.slack: list[float] = []
        """How near to the middle each may round to either side."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name.split("::")[1]
        if name != "quantize_per_tensor":
            unit, bias = _unit(name, args, kwargs)
            if unit is not None and self.biases:
                args = _with_rounded_bias(args, bias, unit)
            out = super().__torch_dispatch__(func, types, args, kwargs)
            _note_steps(name, args, out, is_view=any(r.alias_info for r in func._schema.returns))
            unit = _unit_of_product(name, args, out) if unit is None else unit
            if unit is not None:
                out.unit = unit
            return out
        value, scale, zero, low, high, dtype = args
        steps = value.double() / scale
        at = len(self.brought)
        self.brought.append(steps)
        if isinstance(scale, Tensor):
            self.slack.append(OTHER_GRID)
        else:
            unit = torch.as_tensor(getattr(value, "unit", 0.0)).max().item()
            of_unit = min(unit / scale, 0.25)
            self.slack.append(SLACK + self.twice * of_unit)
        if self.forced is not None:
            steps = self.forced[at]
        by: Any = self.side
        if by is None:
            by = torch.rand(steps.shape, generator=self.generator, dtype=torch.float64) * 2 - 1
            by = by.sign() if self.ends else by
        radius: Any = self.slack[at] if self.radii is None else self.radii[at]
        moved = (steps + by * radius).nan_to_num(0.0)
        return (moved.round() + zero).clamp(low, high).to(dtype)


LAYERS = {
    "convolution": (0, 1, 2),
    "addmm": (1, 2, 0),
    "addmv": (1, 2, 0),
    "baddbmm": (1, 2, 0),
    "linear": (0, 1, 2),
    "mm": (0, 1, 2),
    "bmm": (0, 1, 2),
    "mv": (0, 1, 2),
    "dot": (0, 1, 2),
}
"""The positions of a layer's input, weight and bias."""


def _unit(name: str, args: Sequence[Any], kwargs: Any) -> tuple[Any, int]:
    """Return the real value of an integer 1 of a layer's sums, or None, and the bias's position.

    The unit is a number, or a tensor with one number for each output. An addition of a vector to a
    layer's result belongs to the layer: PyTorch decomposes `linear` into `bmm` and `add` if its
    input has three axes or more and is not contiguous, and into `dot` or `mv` and `add` if its
    weight is a vector.
    """
    if name in LAYERS:
        given: list[Any] = [getattr(args[at], "step", None) for at in LAYERS[name][:2]]
        return None if None in given else given[0] * given[1], LAYERS[name][2]
    if name == "add" and not kwargs:
        for sums, bias in ((args[0], 1), (args[1], 0)):
            other = args[bias]
            is_vector = isinstance(other, Tensor) and other.is_floating_point() and other.ndim < 2
            if is_vector and hasattr(sums, "unit") and not hasattr(other, "step"):
                return sums.unit, bias
    return None, 0


def _unit_of_product(name: str, args: Sequence[Any], out: Any) -> float | None:
    """What one of the products stands for, of quantized values or of one and a number.

    A mean is a sum of products by the reciprocal of how many there are, stored as ones.
    """
    step = getattr(args[0], "step", None) if args else None
    if not isinstance(step, float):
        return None
    if name == "mul":
        other = args[1]
        factor = getattr(other, "step", None)
        if factor is None and not (isinstance(other, Tensor) and other.numel() > 1):
            factor = abs(float(other))
        return step * factor if isinstance(factor, float) else None
    if name == "mean" and isinstance(out, Tensor) and out.numel():
        return step / (args[0].numel() / out.numel())
    return step if name == "sum" else None


def _with_rounded_bias(args: Sequence[Any], at: int, unit: Any) -> Sequence[Any]:
    """Return the operands of a layer of quantized values, its bias in 32-bit integers."""
    bias = args[at] if at < len(args) else None
    if bias is None or (isinstance(unit, Tensor) and unit.shape != bias.shape):
        return args
    rounded = ((bias.double() / unit).round() * unit).to(bias.dtype)
    return [rounded if index == at else value for index, value in enumerate(args)]


def _note_steps(name: str, args: Sequence[Any], out: Any, is_view: bool) -> None:
    """Keep the scale of what was dequantized on what holds nothing else, and a layer's unit."""
    if not isinstance(out, Tensor):
        return
    if name.startswith("dequantize_per_"):
        scale = args[1]
        out.step = scale.double() if isinstance(scale, Tensor) else scale  # type: ignore[attr-defined]
    elif name in MOVES or is_view or name in CLAMPS:
        for kind in ("step", "unit"):
            held = {id(v): getattr(v, kind) for v in pytree.tree_leaves(args) if hasattr(v, kind)}
            if len(held) == 1:
                setattr(out, kind, next(iter(held.values())))


CLAMPS = {"hardtanh", "hardtanh_", "relu6", "leaky_relu"}
"""Functions that a layer of integers takes along."""


class Exact(Shaken):
    """Every float computed in float64 from its operands and rounded once."""

    still = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        writes = any(r.alias_info is not None for r in func._schema.returns)
        if name in MOVES or writes or name.startswith(("quantize", "dequantize", "_to_copy")):
            return out
        with suppress(RuntimeError):
            wide = func(*floats(args, Tensor.double), **(kwargs or {}))
            return pytree.tree_map(_as, out, wide)
        return out


def _as(out: Any, wide: Any) -> Any:
    if isinstance(out, Tensor) and out.is_floating_point() and out.shape == wide.shape:
        return wide.to(out.dtype)
    return out


def expected(
    program: Program,
    given: Any,
    eps: Mapping[str, ExportedProgram],
    twice: bool = False,
    narrow: bool = False,
) -> Expected:
    """What a right result of a quantized program may be.

    Args:
        program: the program, of one method.
        given: the inputs of its calls, nested.
        eps: its graph.
        twice: whether the target rounds sums twice, as `arm_nn_requantize` does.
        narrow: whether the target holds 64-bit integers in 32 bits.
    """
    graph = calls_of(program, eps)
    (ep,) = eps.values()

    def further() -> Iterator[list[list[Any]]]:
        with suppress(Exception):  # What torch cannot take apart has no such runs.
            apart = calls_of(program, {"forward": ep.run_decompositions()})
            yield runs(apart, given, twice)
        for at in range(0, COMBINATIONS * (4 if program.has_state else 1), 32):
            seeds = range(at, at + 32)
            yield [ran(graph, given, Stepping(seed, twice=twice, ends=True)) for seed in seeds]
            if program.has_state:
                yield [ran(graph, given, Stepping(seed, twice=twice)) for seed in seeds]

    exact = () if program.has_state else grids(ep) * len(program.calls)
    first = tensors(runs(graph, given, twice), narrow)
    return Expected(first, further(), narrow, grids=exact)


def runs(graph: torch.nn.Module, given: Any, twice: bool) -> list[list[Any]]:
    """The runs of a graph: plain, with exact floats, moved, and rounded either way."""
    first = _Keeping(0)
    found = [ran(graph, given, first), ran(graph, given, Exact(0))]
    with denormals_as_zero():
        found.append(ran(graph, given))
    ways = [Stepping(seed, twice=twice) for seed in range(RUNS)]
    ways += [Stepping(0, side=side, twice=twice) for side in (-1, 1)]
    found += [
        ran(graph, given, Stepping(0, side=side, biases=False, twice=twice)) for side in (-1, 1)
    ]
    found += [ran(graph, given, way) for way in ways]
    if all(len(way.brought) == len(first.brought) for way in ways):
        every = [torch.stack(each) for each in zip(*(way.brought for way in ways), strict=True)]
        radii = [
            slack + FACTOR * (each.amax(0) - each.amin(0))
            for slack, each in zip(ways[0].slack, every, strict=True)
        ]
        found += [ran(graph, given, Stepping(0, radii, side, first.brought)) for side in (-1, 1)]
    return found


class _Keeping(Stepping):
    """The plain run, whose numbers are kept as they come to each rounding."""

    still = True

    def __init__(self, seed: int) -> None:
        super().__init__(seed, side=0)

    def _shaken(self, least: float, value: Any) -> Any:
        return value

    def moved(self, value: Tensor, ulps: float, least: float = 0.0) -> Tensor:
        return value


def grids(ep: ExportedProgram) -> list[bool]:
    """Which outputs hold steps of a rounding and no float computed from them."""
    known: dict[Node, bool] = {}

    def stepped(node: Node) -> bool:
        if node not in known:
            known[node] = False  # What a loop would come back to.
            known[node] = _is_stepped(node, stepped)
        return known[node]

    (returned,) = next(n for n in ep.graph.nodes if n.op == "output").args
    count = len(ep.graph_signature.user_outputs)
    return [isinstance(n, Node) and stepped(n) for n in returned[-count:]]


def _is_stepped(node: Node, stepped: Callable[[Node], bool]) -> bool:
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return False
    name = schema.name.split("::")[1]
    if name.startswith(("dequantize_per", "quantize_per")):
        return True
    is_view = any(r.alias_info is not None for r in schema.returns)
    return (name in MOVES or is_view) and all(stepped(n) for n in node.all_input_nodes)

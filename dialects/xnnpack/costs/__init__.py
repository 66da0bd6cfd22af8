"""The cost model of XNNPACK's nodes, by kind of CPU, which every decision uses.

`<kind>.json` contains nanoseconds on one thread, fitted by `python bench/costs.py --write` on a
machine of that kind. Decisions compare sums of these costs, and do not depend on the machine that
runs the lowering.
"""

from __future__ import annotations

import functools
import json
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from math import prod
from pathlib import Path
from typing import Any

from xdsl.ir import Operation

from stepwell.ir.axes.layout_cost import LayoutCost
from stepwell.ir.choices import shape_of
from stepwell.ir.context import Context
from stepwell.ir.diagnostics import StepwellError

DEFAULT = "x86-avx512-vnni"
"""The kind whose costs are used if no CPU is named and one table is asked for."""
ANY = ("x86-64-avx512", "x86-64-avx2")
"""The CPUs that the costs of a program without a named CPU are for: see `choose`."""
KIND_OF = {
    "x86-64-avx2": "x86-avx2",
    "x86-64-avx512": "x86-avx512-vnni",
    "arm64": "arm-cortex-a76",
    "cortex-a53": "arm-cortex-a53",
    "cortex-a55": "arm-cortex-a53",
    "cortex-a76": "arm-cortex-a76",
    "cortex-a710": "arm-cortex-a76",
    "neoverse-v1": "arm-neoverse-v1",
}
"""The kind of each CPU that a program may be optimized for, if it is not the default. A core
without measured costs uses those of a core with as many vector pipes, in order or out of order.
"""
TAPS = (3, 4, 9, 25)
"""Sizes of XNNPACK's depthwise kernels: a smaller window is padded; no kernel supports a larger
one.
"""
UNKNOWN_SIZE = 64
"""The value of a symbolic size in estimates."""


def estimated(shape: Iterable[object]) -> int:
    """Estimate the number of elements of a shape."""
    return prod(size if isinstance(size, int) else UNKNOWN_SIZE for size in shape)


@dataclass(frozen=True)
class Costs:
    """Costs in nanoseconds, except for the machine, ratios, `near` and `cache`.

    Attributes:
        machine: the machine on which the costs were measured.
        node: the fixed cost of a node of any size.
        product: a multiply-add of a product of float32 matrices.
        indirect: the ratio of a multiply-add of a convolution, whose rows are gathered by pointers,
            to one of a product of matrices.
        integers: the ratio of a multiply-add of a product of int8 matrices to one of float32.
        element: an element that a node with one operand reads and writes.
        addition: an element of a sum of two tensors.
        slice: an element that a slice or a concatenation copies.
        run: a contiguous run that a slice copies at once, in addition to its elements.
        transpose: an element that a transpose moves.
        convert: an element converted between two datatypes.
        depthwise: an element of a depthwise convolution's result, for each of `TAPS`.
        halves: the ratio of a depthwise convolution's time in float16, for each of `TAPS`.
        lone_tap: a tap of a depthwise window that no kernel supports, for each element: an indirect
            product of one channel a group.
        near: bytes of a depthwise filter that stay in the first-level cache from one pixel to the
            next.
        far_tap: the additional cost of a tap of a larger filter, for each element: filters are
            packed to the size of their kernel, and missing taps are read too.
        weight: an element of a weight that a product of few rows waits for.
        cache: bytes of the last-level cache that one core does not share.
        far: an element that is read or written beyond that cache, in addition to its other cost.
        lookup: an element of a matrix that a row looks up: a kernel copies it, and a product packs
            and reads the copy; measured in whole programs (`bench/xnnpack.py --kind experts`).
        copy: an element that a narrowed program need not write, or must copy; measured in whole
            programs.
        layout_node: a transpose or reshape in addition to its elements: a fixed cost, and the
            in-place reuse of memory that it prevents.
        block: one more block of an attention of any size: the fixed cost of some eight nodes, and
            operands packed at run time.
        worth: not a cost, but the fraction of one that a rewrite must save if its result is larger
            or has more nodes.
    """

    machine: str
    node: float
    product: float
    indirect: float
    integers: float
    element: float
    addition: float
    slice: float
    run: float
    transpose: float
    convert: float
    depthwise: tuple[float, ...]
    halves: tuple[float, ...]
    lone_tap: float
    near: int
    far_tap: float
    weight: float
    cache: int
    far: float
    lookup: float
    copy: float
    layout_node: float
    block: float
    worth: float

    @property
    def moving(self) -> LayoutCost:
        """Return the costs of transposes, in moved elements.

        An in-place transpose becomes a reshape, which copies once.
        """
        return LayoutCost(self.layout_node / self.transpose, 0.25, UNKNOWN_SIZE)

    @property
    def runs_moved(self) -> float:
        """Return the cost of a slice's contiguous run, as a number of elements of a transpose."""
        return self.run / self.transpose

    @property
    def products_a_copy(self) -> float:
        """Return the cost of a copied element, as a number of multiplications of a product."""
        return self.copy / self.product

    @staticmethod
    def tile(taps: int) -> int:
        """Return the number of taps of the smallest kernel with at least `taps`."""
        return next(most for most in TAPS if taps <= most)

    def missed(self, size: float) -> float:
        """Return the time for moving a value of `size` bytes to or from memory, beyond the
        cache.
        """
        return max(0.0, size - self.cache) / 4 * self.far

    def channels_at_hand(self, taps: int) -> int:
        """Return how many channels of a depthwise filter, with biases, stay in the first-level
        cache.
        """
        return self.near // (4 * (self.tile(taps) + 1))

    def window(self, taps: int) -> float:
        """Return the time of an element of a depthwise convolution with this number of taps."""
        for most, cost in zip(TAPS, self.depthwise, strict=True):
            if taps <= most:
                return cost
        return taps * self.lone_tap

    def window_of_halves(self, taps: int) -> float:
        """Return the time of an element of a depthwise convolution in float16.

        A window larger than all of `TAPS` has the float16 ratio of the largest one.
        """
        at = next((index for index, most in enumerate(TAPS) if taps <= most), -1)
        return self.halves[at] * self.window(taps)


def kinds() -> tuple[str, ...]:
    """List the kinds of CPU with known costs."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.json")))


def cpu_kind() -> str:
    """Return the kind of this CPU, by the features that XNNPACK's kernels test."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return "arm-neon"
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if "avx512f" in flags:
        return "x86-avx512-vnni" if "avx512_vnni" in flags else "x86-avx512"
    return "x86-avx2" if "avx2" in flags else "x86-sse2"


@functools.cache
def load(kind: str = DEFAULT) -> Costs:
    """Load the costs of a kind of CPU.

    Raises:
        StepwellError: the costs of this kind were not measured.
    """
    if kind not in kinds():
        known = ", ".join(kinds())
        raise StepwellError(
            f"no costs of CPUs of the kind {kind!r}; known kinds are {known}",
            help="measure them on such a CPU: python bench/costs.py --write",
        )
    held: dict[str, Any] = json.loads((Path(__file__).parent / f"{kind}.json").read_text())
    for name in ("depthwise", "halves"):
        held[name] = tuple(held[name])
    return Costs(**{field.name: held[field.name] for field in fields(Costs)})


def costs_of(context: Context) -> Costs:
    """Return the costs for the CPU of a lowering."""
    return load(KIND_OF.get(context.option("cpu"), DEFAULT))


def choose(
    context: Context,
    step: str,
    op: Operation,
    times: Callable[[Costs], Mapping[str, float]],
    costs: Costs | None = None,
) -> str:
    """Choose one of several forms for the CPU of a lowering.

    Without a CPU it is the form that loses least: on each kind of CPU, a form's loss is its time
    divided by that of the fastest form there, and its largest loss counts.

    Args:
        context: the context of the lowering.
        step: the pass that chooses.
        op: the op whose types the choice depends on.
        times: returns the estimated nanoseconds of each form with the costs of a kind of CPU.
        costs: the costs that replace those of the CPU.
    """
    cpu = context.option("cpu")
    if costs is not None or cpu in KIND_OF:
        return context.choose(step, shape_of(op), times(costs or costs_of(context)))
    by_cpu = {cpu: times(load(KIND_OF[cpu])) for cpu in ANY}
    losses = {
        name: max(each[name] / min(each.values()) for each in by_cpu.values())
        for name in by_cpu[ANY[0]]
    }
    chosen = context.choose(step, shape_of(op), losses)
    context.losses[step, op] = {
        cpu: each[chosen] - min(each.values()) for cpu, each in by_cpu.items()
    }
    return chosen


COSTS = load()
"""The default costs."""
LAYOUT = COSTS.moving
"""The relative costs of transposes with the default costs."""

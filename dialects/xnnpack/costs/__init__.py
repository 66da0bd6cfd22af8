"""What XNNPACK's nodes cost, by kind of CPU: the one model that every decision reads.

`<kind>.json` holds nanoseconds on one thread, fitted by `python bench/costs.py --write` on a
machine of that kind. Decisions compare sums of these. What they decide does not depend on the
machine that lowers.
"""

from __future__ import annotations

import functools
import json
import platform
from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import prod
from pathlib import Path
from typing import Any

from stepwell.ir.axes.layout_cost import LayoutCost
from stepwell.ir.context import Context
from stepwell.ir.diagnostics import StepwellError

DEFAULT = "x86-avx512-vnni"
"""The kind whose costs decide where no CPU is named."""
KIND_OF = {
    "arm64": "arm-cortex-a76",
    "cortex-a53": "arm-cortex-a53",
    "cortex-a55": "arm-cortex-a53",
    "cortex-a76": "arm-cortex-a76",
    "cortex-a710": "arm-cortex-a76",
    "neoverse-v1": "arm-neoverse-v1",
}
"""The kind of each CPU that a program may be made for, if it is not the usual one. A core whose
costs were not counted has those of one with as many pipes for vectors, in order or not."""
TAPS = (3, 4, 9, 25)
"""Sizes of XNNPACK's depthwise kernels: a smaller window is padded, a larger one has none."""
UNKNOWN_SIZE = 64
"""What a symbolic size counts as."""


def estimated(shape: Iterable[object]) -> int:
    """How many elements a shape has, for an estimate."""
    return prod(size if isinstance(size, int) else UNKNOWN_SIZE for size in shape)


@dataclass(frozen=True)
class Costs:
    """Nanoseconds, but for `machine`, `halves`, `near`, `cache` and `worth`.

    Attributes:
        machine: where they were measured.
        node: the start of a node, whatever its size.
        product: a multiply-add of a product of float32 matrices.
        element: an element that a node with one operand reads and writes.
        addition: an element of a sum of two tensors.
        slice: an element that a slice or a concatenation copies.
        run: a stretch of elements that a slice copies at once, beside its elements.
        transpose: an element that changes its place.
        convert: an element between two datatypes.
        depthwise: an element of a depthwise convolution's result, for each of `TAPS`.
        halves: how many times as long it takes in halves, for each of `TAPS`.
        lone_tap: a tap of a depthwise window that no kernel holds, for each element: an indirect
            product of one channel a group.
        near: bytes of a depthwise filter that stay in the first cache from one pixel to the next.
        far_tap: what a tap of a larger filter takes beyond that, for each element: filters are
            packed to the size of their kernel, and taps that are not there are read too.
        weight: an element of a weight that a product of few rows waits for.
        cache: bytes of the last cache that a core has to itself.
        far: an element that is read or written beyond it, on top of what reads or writes it.
        lookup: an element of a matrix that a row looks up for itself: `index` copies it outside, a
            product packs and reads the copy; from whole programs (`bench/experts.py`).
        copy: an element that a narrower program need not write or must copy; from whole programs.
        layout_node: a transpose or reshape beside its elements: its start, and what it keeps from
            standing in memory where it is.
        block: one more block of an attention, whatever its size: the start of some eight nodes, and
            operands packed at run time.
        worth: no cost, but the part of one that a rewrite must save if what it writes is larger or
            takes more nodes.

    """

    machine: str
    node: float
    product: float
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
        """What transposes cost beside each other; those in place are reshapes, one copy."""
        return LayoutCost(self.layout_node / self.transpose, 0.25, UNKNOWN_SIZE)

    @property
    def runs_moved(self) -> float:
        """What a stretch that a slice copies costs, in elements that a transpose moves."""
        return self.run / self.transpose

    @property
    def products_a_copy(self) -> float:
        """What a copied element costs, in multiplications of a matrix product."""
        return self.copy / self.product

    @staticmethod
    def tile(taps: int) -> int:
        """The taps of the kernel that holds so many."""
        return next(most for most in TAPS if taps <= most)

    def missed(self, size: float) -> float:
        """What a value of so many bytes takes to memory or back: what the cache has no room for."""
        return max(0.0, size - self.cache) / 4 * self.far

    def channels_at_hand(self, taps: int) -> int:
        """Channels whose depthwise filter, with its biases, stays in the first cache."""
        return self.near // (4 * (self.tile(taps) + 1))

    def window(self, taps: int) -> float:
        """An element of a depthwise convolution with so many taps."""
        for most, cost in zip(TAPS, self.depthwise, strict=True):
            if taps <= most:
                return cost
        return taps * self.lone_tap

    def window_of_halves(self, taps: int) -> float:
        """The same in halves; parts of a larger window are as slow as the largest."""
        at = next((index for index, most in enumerate(TAPS) if taps <= most), -1)
        return self.halves[at] * self.window(taps)


def kinds() -> tuple[str, ...]:
    """The kinds of CPU whose costs are known."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.json")))


def cpu_kind() -> str:
    """The kind of this CPU, by what XNNPACK's kernels ask for."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return "arm-neon"
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if "avx512f" in flags:
        return "x86-avx512-vnni" if "avx512_vnni" in flags else "x86-avx512"
    return "x86-avx2" if "avx2" in flags else "x86-sse2"


@functools.cache
def load(kind: str = DEFAULT) -> Costs:
    """The costs of a kind of CPU.

    Raises:
        StepwellError: they were never measured.

    """
    if kind not in kinds():
        known = ", ".join(kinds())
        raise StepwellError(
            f"no costs of CPUs of the kind {kind!r}; there are {known}",
            help="measure them there: python bench/costs.py --write",
        )
    held: dict[str, Any] = json.loads((Path(__file__).parent / f"{kind}.json").read_text())
    for name in ("depthwise", "halves"):
        held[name] = tuple(held[name])
    return Costs(**{field.name: held[field.name] for field in fields(Costs)})


def costs_of(context: Context) -> Costs:
    """The costs that decide in a lowering: those of the CPU that it is for."""
    return load(KIND_OF.get(context.option("cpu"), DEFAULT))


COSTS = load()
"""The usual costs."""
LAYOUT = COSTS.moving
"""What transposes cost beside each other with these."""

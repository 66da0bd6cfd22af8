"""Conversion targets: which decompositions a target needs (MLIR's dialect conversion).

A decomposition declares in `phases` where pipelines run it. The phase `decompose` is for every
target that lacks the matched operation. `xnnpack/decompose` is for a single target, which has the
operation in other forms only, or whose nodes lose special values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

from xdsl.ir import Operation

from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.translate.canonicalize import fills, scaled_number_to_sum
from stepwell.translate.decompositions import (
    activations_of_targets,
    arithmetic,
    attention,
    complex,
    constants,
    ends,
    filters,
    floats,
    fourier,
    logarithms,
    norms,
    pairs,
    pools,
    products,
    promotions,
    scans,
    scatters,
    selections,
    statistics,
    sums,
    transforms,
    views,
)
from stepwell.translate.rewrites.slices import write_by_cat

FAMILIES: tuple[ModuleType, ...] = (
    promotions,
    transforms,
    fourier,
    complex,
    pairs,
    fills,
    scaled_number_to_sum,
    write_by_cat,
    pools,
    statistics,
    floats,
    norms,
    activations_of_targets,
    logarithms,
    arithmetic,
    views,
    products,
    scans,
    selections,
    scatters,
    filters,
    ends,
    sums,
    attention,
    constants,
)
"""Files of decompositions, in the order in which they are tried. Promotions of element
types come first: a float16 operation is widened before it is decomposed. Two decompositions of one
operation state their order in `tests/rewrites/test_order_of_decompositions.py`.
"""


@dataclass(frozen=True)
class ConversionTarget:
    """The operations that a target supports, and the decompositions that it needs for the others.

    Attributes:
        name: the target's name in `Rewrite.phases`.
        lowerings: the rewrites to its operations.
    """

    name: str
    lowerings: tuple[Rewrite[Any], ...]

    @cached_property
    def native(self) -> frozenset[type[Operation]]:
        """Return the operations that a lowering accepts in some form."""
        return frozenset(anchor for rewrite in self.lowerings for anchor in rewrite.anchors)

    def phase(self, name: str) -> tuple[Rewrite[Any], ...]:
        """Return the decompositions of a phase, with the options that they declare for it."""
        own, found = f"{self.name}/{name}", list[Rewrite[Any]]()
        for family in FAMILIES:
            for rule in family.RULES:
                if own in rule.phases:
                    found.append(rule(**rule.phases[own]))
                elif name in rule.phases and not self.native.issuperset(rule.anchors):
                    found.append(rule(**rule.phases[name]))
        return tuple(found)

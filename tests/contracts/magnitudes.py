"""Tests of error bounds on numbers of all magnitudes from 1e-30 to 1e30.

Each value that a rewrite's example replaces is compared, element by element, with the derived
rounding error of both sides (`validation/derived.py`), and a rule's declared bound is compared with
the derived one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from contract_driver import documented, steps_of, subject_of
from torch import Tensor
from xdsl.dialects.func import FuncOp

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting.rewrite import Bound, GreedyRewrites, Rewrite
from stepwell.program import Program
from stepwell.validation.checked import Checked
from stepwell.validation.compare import describe_bound
from stepwell.validation.contracts.draft import Dropped, draft_of
from stepwell.validation.fills import DECADES, inputs_of, is_real
from stepwell.validation.recording import record
from stepwell.validation.samples import Sample

KINDS = ("moderate", "hundreds", "each operand of a size", "sizes mixed", "canceling")
"""The fills of operands, each of which is tried several times."""
_BOUNDED = 1e-3
"""A bound above this fraction of the result is not reported as a multiple of it, because of
cancellation.
"""
WIDE = 10
"""A declared bound is reported if it is wider than the derived one by this factor."""


@dataclass
class Sized:
    """The results of one subject.

    Attributes:
        elements: the number of compared elements that are finite on both sides.
        exceeded: those of them that exceed the bound, by label of the sample.
        classes: elements that are finite on one side only, or a different infinity.
        short: elements at which the declared bound is less than the derived one.
        width: the median ratio of the declared bound to the derived one.
        needed: the largest ratio of the derived bound to the declared one.
        relative: the largest ratio of the derived bound to the result.
        stated: the rule's declared bound.
        closest: the largest ratio of a difference to its derived bound.
        underived: why bounds could not be derived.
        declared: the deviations that rewrites declared (`Rewrite.deviates`).
    """

    name: str
    is_stated: bool = False
    elements: int = 0
    exceeded: Counter[str] = field(default_factory=Counter[str])
    classes: Counter[str] = field(default_factory=Counter[str])
    short: int = 0
    width: float = 0.0
    needed: float = 0.0
    relative: float = 0.0
    stated: Bound | None = None
    closest: float = 0.0
    underived: Counter[str] = field(default_factory=Counter[str])
    declared: Counter[str] = field(default_factory=Counter[str])
    example: str = ""

    @property
    def loses_classes(self) -> bool:
        """Whether a finite number became infinite or NaN."""
        return self.classes.total() > 0

    @property
    def is_true(self) -> bool:
        """Whether bounds hold, none is less than the derived one, and lost classes are declared."""
        return not self.exceeded and not self.short and (not self.loses_classes or self.declares)

    @property
    def derived(self) -> str:
        """Return the derived bound as text, in terms of the magnitudes of the declared one if it
        has any.
        """
        if self.stated is None:
            is_relative = 0 < self.relative < _BOUNDED
            return f"{_up(self.relative)} relative" if is_relative else "element by element"
        scaled = self.stated.times(self.needed)
        return describe_bound(replace(scaled, reason=""), _up)

    @property
    def is_wide(self) -> bool:
        """Whether a ten times smaller bound could be declared."""
        return self.stated is not None and self.needed * WIDE < 1

    @property
    def declares(self) -> bool:
        """Whether the rewrites declared that an application may lose a class of numbers."""
        return bool(self.declared)


def subjects() -> Iterator[str]:
    """Yield the subjects whose bound is derived."""
    for name in documented():
        if any(isinstance(s, Rewrite) and s.bound.derived for s in steps_of(name)):
            yield name


def sized(name: str, rounds: int = 2) -> Sized:
    """Try one subject's examples on numbers of all magnitudes.

    Args:
        name: a name of `subjects`.
        rounds: the number of samples of each kind.
    """
    subject, found = subject_of(name), Sized(name)
    rewrites = tuple(step for step in subject.steps if isinstance(step, Rewrite))
    for before in subject.examples:
        try:
            program = Program.of(draft_of(before).build())
        except Dropped as reason:
            found.underived[str(reason)] += 1
            continue
        run = Checked(program, 1 << 28, derived=partial(_add, found))
        func = run.program.method()
        run.recordings[func.sym_name.data] = kept = []
        for sample in samples(func, rounds):
            try:
                kept.append(record(func, run.program.weights, sample))
            except StepwellError:
                continue
        run.step(GreedyRewrites("magnitudes", rewrites))
        for verdict in run.verdicts:
            if "not a derived bound" in verdict.note:
                found.underived[verdict.note.partition("bound: ")[2]] += 1
        for taken in run.history.deviations:
            found.declared[taken.loses] += 1
    return found


def _add(found: Sized, sample: str, stated: Bound, old: Any, new: Any, allowance: Any) -> None:
    if not isinstance(old, Tensor) or not old.is_floating_point() or old.dtype.itemsize == 1:
        return
    before, after = old.double(), new.double()
    finite = before.isfinite() & after.isfinite()
    derived = torch.zeros_like(before) if allowance is None else allowance
    gap = torch.where(finite, (before - after).abs(), 0.0)
    found.elements += int(finite.sum())
    other = ~finite & ~((before == after) | (before.isnan() & after.isnan()))
    # If a bound overflows, too, the summation order of a kernel decides between an infinity and
    # NaN.
    other &= before.isfinite() | after.isfinite() | derived.isfinite()
    found.classes[sample] += int(other.sum())
    over = gap > derived
    if bool(over.any()):
        found.exceeded[sample] += int(over.sum())
        at = _worst(torch.where(over, gap / derived, 0.0), before, after, derived)
        found.example = f"{sample}: {at[0]!r} became {at[1]!r}, bound {at[2]:.3g}"
    held = finite & (derived > 0) & derived.isfinite()
    if bool(held.any()):
        found.closest = max(found.closest, float((gap / derived)[held].max()))
    normal = held & (before.abs() > torch.finfo(old.dtype).smallest_normal)
    if bool(normal.any()):
        found.relative = max(found.relative, float((derived / before.abs())[normal].max()))
    if stated.magnitudes or stated.relative or stated.absolute:
        found.is_stated = True
        found.stated = replace(stated, allowance=None)
        allowed = stated.absolute + stated.relative * before.abs()
        allowed = allowed if stated.allowance is None else allowed + stated.allowance
        denormal = torch.finfo(old.dtype).smallest_normal
        less = held & (allowed * 1.0001 + denormal < derived)
        found.short += int(less.sum())
        if bool(less.any()):
            at = _worst(torch.where(less, derived / allowed, 0.0), before, allowed, derived)
            found.example = f"{sample}: at {at[0]!r} stated {at[1]:.3g}, derived {at[2]:.3g}"
        usual = held & (derived > denormal)
        if bool(usual.any()):
            found.needed = max(found.needed, float((derived / allowed)[usual].max()))
        if bool(usual.any()) and sample.startswith("moderate"):
            found.width = max(found.width, float((allowed / derived)[usual].median()))


def _worst(share: Tensor, *values: Tensor) -> list[float]:
    """Return the elements of some tensors where a share is greatest."""
    return [value.reshape(-1)[share.argmax()].item() for value in values]


def _up(number: float) -> str:
    """Return two digits, rounded up."""
    if number <= 0 or not math.isfinite(number):
        return f"{number:g}"
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / step * 0.9999999) * step:.2g}"


def samples(func: FuncOp, rounds: int) -> Iterator[Sample]:
    """Yield inputs of a method: `rounds` samples of every kind."""
    random = torch.Generator().manual_seed(0)
    types = func.function_type.inputs.data
    for kind in KINDS:
        fill = "sizes mixed" if kind == "sizes mixed" else "random"
        for number in range(rounds):
            shared = torch.randn(1 << 16, generator=random, dtype=torch.float64)
            inputs = inputs_of(types, fill, "random", random)
            for at, (type_, value) in enumerate(zip(types, inputs, strict=True)):
                if isinstance(value, Tensor) and is_real(type_):
                    made = _resized(kind, value.double(), shared, at, random)
                    inputs[at] = made.to(value.dtype)
            yield Sample(f"{kind} {number}", tuple(inputs), True)


def _resized(
    kind: str, real: Tensor, shared: Tensor, place: int, random: torch.Generator
) -> Tensor:
    if kind == "hundreds":
        return real * 100
    if kind == "each operand of a size":
        return real * 10.0 ** (DECADES * (2 * torch.rand((), generator=random) - 1))
    if kind == "canceling":
        base = shared[: max(real.numel(), 1)].reshape(real.shape)
        return base * (-1.0) ** place * (1 + 1e-6 * real) * 100
    return real

"""Compare runtime values bit for bit, or within a declared error bound."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from stepwell.ir.rewriting.rewrite import Bound
from stepwell.validation.result import Finding, StepVerdict


@dataclass(frozen=True)
class Difference:
    """A description of how a value differs from the value that it replaced.

    Attributes:
        what: one sentence.
        index: the element with the largest difference; None for a difference of the whole values.
        before, after: the two numbers at that index.
        largest: the largest absolute difference (infinite if only one value is finite).
        count, total: the number of elements that differ, and of all elements.
    """

    what: str
    index: tuple[int, ...] | None = None
    before: float | int | bool | None = None
    after: float | int | bool | None = None
    largest: float = 0.0
    count: int = 0
    total: int = 0

    def __str__(self) -> str:
        if self.index is None:
            return self.what
        return (
            f"{self.what}: {self.count} of {self.total} elements; "
            f"at {list(self.index)} {self.before!r} became {self.after!r}"
        )


HALVES = (torch.float16, torch.bfloat16)
"""Types whose rounding is coarser than the bounds that passes declare."""


Against = Literal["element", "slice", "tensor"]
FEW = 16
"""A slice of fewer elements says little about the magnitude of the numbers that were summed."""


def differs(
    before: Any, after: Any, bound: Bound, *, against: Against = "element"
) -> Difference | None:
    """Return why `after` may not replace `before`, or None.

    Args:
        before, after: tensors, numbers, bools or None.
        bound: exact requires equal bits (a NaN equals a NaN). Otherwise each element may differ by
            `absolute + relative * |before|` and its own allowance. An integer may also differ by
            `units`: a quantized value is its stored integers, which count steps of its scale. A
            half may also differ by two steps of the largest |before|, because a number near the
            midpoint of two halves may round to either, once in a summand and once at the end.
        against: the reference of `relative`. "slice" is the largest finite |before| of the
            element's slice along axis 1 (its channel or token; the whole tensor if such a slice has
            fewer than 16 elements). It is the measure for sums, whose rounding scales with their
            summands. "tensor" is the largest of all: the measure for values that passed through
            further sums since they changed.

    A bound applies to the real and imaginary parts of complex numbers. They are sums of products,
    which no two engines round in the same way. If each part stays within the bound, the number
    differs by at most the same relative share of its size, and √2 times the absolute bound.
    """
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return _scalars_differ(before, after, bound)
    if before.dtype != after.dtype or before.shape != after.shape:
        return Difference(
            f"{_kind(before)} became {_kind(after)}", total=before.numel(), count=before.numel()
        )
    if not before.numel():
        return None
    if before.dtype.is_complex and not bound.exact:
        return differs(_parts(before), _parts(after), bound, against=against)
    if bound.exact or before.dtype == torch.bool:
        wrong = ~_same_bits(before, after)
    else:
        wrong = _outside(before, after, bound, against)
    if not bool(wrong.any()):
        return None
    return _worst(before, after, wrong, "not equal" if bound.exact else "outside the bound")


def deviation(before: Any, after: Any) -> float:
    """Return the largest |after - before| over elements finite on both sides, relative to the
    largest |before|.

    0 for equal values, integers included.
    """
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return 0.0
    is_complex = before.dtype.is_complex
    if before.shape != after.shape or not before.numel() or is_complex != after.dtype.is_complex:
        return 0.0
    if is_complex:
        return deviation(_parts(before), _parts(after))
    wide, other = before.double(), after.double()
    finite = wide.isfinite() & other.isfinite()
    if not bool(finite.any()):
        return 0.0
    moved = float((wide - other)[finite].abs().max())
    scale = float(wide[finite].abs().max())
    return moved / scale if scale else moved


def _scalars_differ(before: Any, after: Any, bound: Bound) -> Difference | None:
    if isinstance(before, torch.Tensor) or isinstance(after, torch.Tensor):
        return Difference(f"{_kind(before)} became {_kind(after)}")
    if before == after or (before != before and after != after):
        return None
    numbers = isinstance(before, float) and isinstance(after, float)
    if numbers and abs(before - after) <= bound.absolute + bound.relative * abs(before):
        return None
    return Difference(f"{before!r} became {after!r}")


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _same_bits(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    if before.dtype.is_complex:
        pair = torch.view_as_real(before.resolve_conj()), torch.view_as_real(after.resolve_conj())
        return _same_bits(*pair).all(dim=-1)
    if not before.dtype.is_floating_point:
        return before == after
    bits = _BITS[before.dtype.itemsize]
    same = before.contiguous().view(bits) == after.contiguous().view(bits)
    if before.dtype.itemsize == 1:
        before, after = before.float(), after.float()
    return same | (before.isnan() & after.isnan())


def _outside(
    before: torch.Tensor, after: torch.Tensor, bound: Bound, against: Against
) -> torch.Tensor:
    wide, other = before.double(), after.double()
    finite = wide.isfinite() & other.isfinite()
    scale = _sizes(wide, against)
    tolerated = bound.absolute + bound.relative * scale
    if bound.allowance is not None:
        tolerated = tolerated + bound.allowance
    if not before.dtype.is_floating_point:
        tolerated = tolerated + bound.units
    elif before.dtype in HALVES:
        most = scale[finite].max() if bool(finite.any()) else 0.0
        tolerated = tolerated + 2 * torch.finfo(before.dtype).eps * most
    close = (wide - other).abs() <= tolerated
    special = (wide == other) | (wide.isnan() & other.isnan())
    return ~torch.where(finite, close, special)


def _parts(value: torch.Tensor) -> torch.Tensor:
    """Return the real and imaginary parts of a complex tensor along a new last axis."""
    return torch.view_as_real(value.resolve_conj())


def _sizes(wide: torch.Tensor, against: Against) -> torch.Tensor:
    """Return for each element the magnitude to which a relative bound refers."""
    scale = wide.abs()
    if against == "element" or not scale.numel():
        return scale
    known = torch.where(scale.isfinite(), scale, 0.0)
    if against == "slice" and wide.dim() > 1 and scale.numel() >= FEW * wide.shape[1]:
        others = [axis for axis in range(wide.dim()) if axis != 1]
        return known.amax(others, keepdim=True).expand_as(wide)
    return known.max().expand_as(wide)


def _worst(before: torch.Tensor, after: torch.Tensor, wrong: torch.Tensor, what: str) -> Difference:
    if before.dtype.is_complex:
        gap = (before - after).abs().double()
    else:
        gap = (before.double() - after.double()).abs()
    gap = torch.where(wrong, gap.nan_to_num(nan=torch.inf), torch.full_like(gap, -1.0))
    flat = int(gap.reshape(-1).argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), before.shape))
    return Difference(
        what,
        index,
        before[index].item(),
        after[index].item(),
        float(gap[index]),
        int(wrong.sum()),
        before.numel(),
    )


@dataclass
class Comparison:
    """The comparison of a pass's results with those before it, over several samples.

    Attributes:
        step: the name of the pass.
        bound: the largest allowed difference of results.
        widest: the widest bound that was applied.
        largest: the largest deviation.
        compared: the number of samples.
    """

    step: str
    bound: Bound
    findings: list[Finding] = field(default_factory=list[Finding])
    skipped: list[str] = field(default_factory=list[str])
    largest: float = 0.0
    compared: int = 0
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.widest = self.bound

    def results(
        self, label: str, before: Sequence[Any], after: Sequence[Any], widen: Callable[[], Bound]
    ) -> None:
        """Compare the results of both sides on one sample.

        Args:
            label: the label of the sample.
            before, after: the results of the two sides.
            widen: returns the bound where results differ by more than `bound`: it accounts for the
                effect of noise on this sample.
        """
        self.compared += 1
        old, new = ([v for v in each if isinstance(v, torch.Tensor)] for each in (before, after))
        if len(old) != len(new):
            self.add(label, f"{len(new)} tensors are returned, {len(old)} expected")
            return
        pairs, allowed = list(zip(old, new, strict=True)), self.bound
        if not allowed.exact and any(differs(a, b, allowed, against="tensor") for a, b in pairs):
            allowed = widen()
            self.widest = max(self.widest, allowed, key=lambda bound: bound.relative)
        for index, (one, other) in enumerate(pairs):
            self.largest = max(self.largest, deviation(one, other))
            difference = differs(one, other, allowed, against="tensor")
            if difference is not None:
                fact, largest = f"output {index}: {difference}", difference.largest
                self.add(label, fact, largest, describe_bound(allowed))

    def add(self, label: str, what: str, largest: float = 0.0, bound: str = "exact") -> None:
        """Record a difference that was found on a sample (a set of inputs)."""
        self.findings.append(Finding(self.step, label, what, largest, bound))

    def outcome(
        self, name: str, note: str = ""
    ) -> tuple[list[StepVerdict], list[Finding], list[str]]:
        """Return the verdict, the findings, and a note about values that were not compared."""
        said, seconds = describe_bound(self.widest), time.perf_counter() - self.started
        ok = not self.findings
        verdict = StepVerdict(name, 1, said, self.compared, 0, self.largest, seconds, ok, note)
        return [verdict], self.findings, self.skipped


UNDERIVED = Bound(2e-5, 1e-5)
"""The bound where an operator's rounding errors are unknown."""


def describe_bound(bound: Bound, spelled: Callable[[float], str] = "{:g}".format) -> str:
    """Return `exact`, `1 unit of its scale (why)`, or `2e-05 relative + 1e-05 absolute (why)`."""
    if bound.exact:
        return "exact"
    parts = [f"{spelled(bound.relative)} relative" if bound.relative else ""]
    parts.append(f"{spelled(bound.absolute)} absolute" if bound.absolute else "")
    parts += [
        f"{spelled(factor)} of {' + '.join(f'|{n}|' for n in names)}"
        for factor, names in bound.magnitudes
    ]
    if bound.derived and not any(parts):
        parts.append("the rounding errors of both sides")
    if bound.units:
        parts.append(f"{bound.units} unit{'s' * (bound.units > 1)} of its scale")
    parts.append("derived from the actual values" if bound.varies else "")
    why = f" ({bound.reason})" if bound.reason else ""
    return " + ".join(part for part in parts if part) + why


def total_bound(bounds: Sequence[Bound]) -> Bound:
    """Return the bound of a pass for an output: the sum of the bounds of its applications.

    Bounds in quantization steps (`units`) are not added: the sum only states that an application
    has one. The outputs must then be compared with the recording that followed each application.
    """
    return Bound(
        sum(b.relative for b in bounds if not b.derived),
        sum(b.absolute for b in bounds if not b.derived),
        ", ".join(sorted({b.reason for b in bounds if b.reason})),
        max((b.units for b in bounds), default=0),
        any(b.varies for b in bounds),
        derived=any(b.derived for b in bounds),
    )


def tolerated(bounds: Sequence[Bound]) -> Bound:
    """Return the bound of outputs after a pass whose applications with derived bounds were each
    compared at the value that they replaced.
    """
    held = [UNDERIVED if bound.derived else bound for bound in bounds]
    return replace(total_bound(held), units=0, varies=False)

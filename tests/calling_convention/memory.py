"""Random programs that read and write inputs which lie in memory in every way, beside eager.

Each program is exported with tensors of random forms, and called with those and with others: at
every entrance its results, and every byte of the caller's storages, must be what eager makes of
them; or the call, or the program, is refused in a sentence.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

import stepwell
from stepwell.ir.diagnostics import InputMismatch, StepwellError

from .trial import Trial

PART = "memory"
PROGRAMS = 2400
Form = Callable[[Sequence[int]], torch.Tensor]


def _values(count: int) -> torch.Tensor:
    return torch.arange(1.0, count + 1) % 11 - 5


def _permuted(shape: Sequence[int], order: Sequence[int]) -> torch.Tensor:
    back = [list(order).index(axis) for axis in range(len(shape))]
    return _dense([shape[axis] for axis in order]).permute(back)


def _dense(shape: Sequence[int]) -> torch.Tensor:
    return _values(max(torch.Size(shape).numel(), 1))[: torch.Size(shape).numel()].view(*shape)


def _stepped(shape: Sequence[int]) -> torch.Tensor:
    return _dense([*shape[:-1], 2 * shape[-1] + 1])[..., 1::2]


def _gapped(shape: Sequence[int]) -> torch.Tensor:
    return _dense([2 * shape[0] + 1, *shape[1:]])[1::2]


def _offset(shape: Sequence[int]) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return _values(count + 5)[3 : 3 + count].view(*shape)


def _windows(shape: Sequence[int]) -> torch.Tensor:
    """Rows that overlap by all but one element."""
    return _values(sum(shape) + 1).as_strided(shape, [1] * len(shape), 1)


FORMS: dict[str, Form] = {
    "contiguous": _dense,
    "reversed axes": lambda shape: _permuted(shape, range(len(shape))[::-1]),
    "channels last": lambda shape: _permuted(shape, [0, *range(2, len(shape)), 1][: len(shape)]),
    "every second": _stepped,
    "rows with gaps": _gapped,
    "with an offset": _offset,
    "expanded": lambda shape: _dense([1, *shape[1:]]).expand(*shape),
    "one number": lambda shape: _values(1).expand(*shape),
    "overlapping rows": _windows,
    "reversed and stepped": lambda shape: _stepped([*shape[::-1]]).permute(
        *range(len(shape))[::-1]
    ),
}
SHAPES = [(4,), (1,), (3, 4), (3, 3), (1, 4), (2, 3, 4), (1, 2, 3, 4), (2, 3, 2, 2), (0, 3), (2, 0)]
WRITES = {
    "add": lambda a, b: a.add_(b),
    "multiply": lambda a, b: a.mul_(2),
    "copy": lambda a, b: a.copy_(b + 1),
    "first row": lambda a, b: a[:1].add_(3),
    "last column": lambda a, b: a[..., -1:].mul_(-2),
    "reversed": lambda a, b: a.permute(*range(a.dim())[::-1]).sub_(1),
    "flat, if dense": lambda a, b: a.unsqueeze(0).fill_(2),
    "both": lambda a, b: (a.add_(1), b.mul_(2)),
    "swap": lambda a, b: (a.copy_(b.clone() + a), b.copy_(a - b)),
}  # fmt: skip
READS = {
    "sum": lambda a, b: a + b,
    "product": lambda a, b: a * b - a,
    "rows": lambda a, b: a.reshape(-1) * 2,
    "turned": lambda a, b: a.permute(*range(a.dim())[::-1]),
    "itself": lambda a, b: a,
    "part": lambda a, b: a[:1] + 0,
    "view": lambda a, b: b[..., -1:],
    "total": lambda a, b: (a + b).sum(-1),
    "clone": lambda a, b: a.clone(),
}
ALIASES = ("apart", "apart", "apart", "same", "view", "halves")


class Drawn(nn.Module):
    """Reads and writes of two inputs, in an order that was drawn."""

    def __init__(self, steps: Sequence[str]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results: list[torch.Tensor] = []
        for step in self.steps:
            kind, name, order = step.split("/")
            first, second = (a, b) if order == "ab" else (b, a)
            if kind == "write":
                WRITES[name](first, second)
            else:
                results.append(READS[name](first, second))
        return tuple(results)


def inputs_of(shape: Sequence[int], forms: Sequence[str], alias: str) -> list[torch.Tensor]:
    """Two tensors of their forms, apart or in one storage."""
    first = FORMS[forms[0]](shape)
    if alias == "same":
        return [first, first]
    if alias == "view":
        return [first, first.view_as(first)]
    if alias == "halves":
        both = FORMS[forms[0]]([2 * shape[0], *shape[1:]])
        return [both[: shape[0]], both[shape[0] :]]
    return [first, FORMS[forms[1]](shape)]


def copied(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors over copies of their storages."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
    copies = {pointer: storage.clone() for pointer, storage in storages.items()}
    return [
        torch.empty(0).set_(
            copies[t.untyped_storage().data_ptr()], t.storage_offset(), t.shape, t.stride()
        )
        for t in tensors
    ]


def contents(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """All that the storages of tensors hold."""
    return [torch.empty(0).set_(t.untyped_storage()) for t in tensors]


def are_equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def memory_trials(seeds: Sequence[int], target: str = "xnnpack") -> Iterator[Trial]:
    """A trial for each entrance and each call of a program; a refused program is one."""
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield from _of_seed(seed, target)


def _of_seed(seed: int, target: str) -> Iterator[Trial]:
    draw = random.Random(seed)
    shape = draw.choice(SHAPES)
    orders = ("ab", "ba")
    steps = [f"read/{draw.choice([*READS])}/{draw.choice(orders)}"]
    for _ in range(draw.randint(0, 3)):
        kind, names = draw.choice((("write", [*WRITES]), ("read", [*READS])))
        steps.insert(
            draw.randint(0, len(steps)), f"{kind}/{draw.choice(names)}/{draw.choice(orders)}"
        )
    forms = [draw.choice([*FORMS]), draw.choice([*FORMS])]
    calls = [
        (forms, draw.choice(ALIASES)),
        ([draw.choice([*FORMS]), draw.choice([*FORMS])], draw.choice(ALIASES)),
    ]
    what = f"seed {seed}: {shape} {forms} {steps}"
    model = Drawn(steps)
    try:
        exported = torch.export.export(model, tuple(inputs_of(shape, forms, "apart")))
    except Exception:  # PyTorch refuses such a write, or cannot export it.
        return
    try:
        program = stepwell.from_exported_program(exported)
        lowered = stepwell.lower(program, target)
    except StepwellError as error:
        yield Trial(PART, f"{what}: {error}", "refused")
        return
    entrances: dict[str, Callable[..., Any]] = {
        "lowered.run": lowered.run,
        "program.run": program.run,
        "session.run": program.start().run,
        "exported": program.to_exported_program().module(),
    }
    for given, alias in calls:
        tensors = inputs_of(shape, given, alias)
        eager = copied(tensors)
        try:
            wanted = [result.clone() for result in model(*eager)]
        except RuntimeError:
            wanted = None
        for name, entrance in entrances.items():
            mine = copied(tensors)
            before = [c.clone() for c in contents(mine)]
            outcome = _outcome(entrance, mine, wanted, eager, before)
            if outcome == "refused" and given is forms and alias == "apart" and wanted is not None:
                outcome = "refused as the example was"
            yield Trial(PART, f"{what}, {given} {alias}, {name}", outcome)


def _outcome(
    entrance: Callable[..., Any],
    mine: Sequence[torch.Tensor],
    wanted: Sequence[torch.Tensor] | None,
    eager: Sequence[torch.Tensor],
    before: Sequence[torch.Tensor],
) -> str:
    try:
        found = [result.clone() for result in entrance(*mine)]
    except (InputMismatch, RuntimeError) as error:
        if isinstance(error, RuntimeError) and wanted is not None:
            return f"fails: {error}"
        return "refused" if are_equal(contents(mine), before) else "refused, and written"
    if wanted is None:
        return "eager refuses it"
    if not are_equal(found, wanted):
        return "other results"
    return "equal" if are_equal(contents(mine), contents(eager)) else "other effects"

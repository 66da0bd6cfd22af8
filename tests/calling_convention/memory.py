"""Random programs that read and write inputs in any memory layout, compared with eager.

Each program is exported with tensors of random layouts, and called with those and with others: at
every entry point its results, and every byte of the caller's storages, must be what eager makes of
them; or the call, or the program, is refused in a sentence.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

import stepwell
from stepwell.ir.diagnostics import InputMismatch, StepwellError

from ..random_programs.drawing import draw  # noqa: TID252
from ..random_programs.profiles import MEMORY  # noqa: TID252
from .trial import Trial

PART = "memory"
PROGRAMS = 2400


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


def lie_alike(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Whether tensors have the strides and storages of others."""
    return all(
        (a.stride(), a.storage_offset(), a.untyped_storage().nbytes())
        == (b.stride(), b.storage_offset(), b.untyped_storage().nbytes())
        for a, b in zip(one, other, strict=True)
    ) and len({t.untyped_storage().data_ptr() for t in one}) == len(one)


def memory_trials(seeds: Sequence[int], target: str = "xnnpack") -> Iterator[Trial]:
    """A trial for each entry point and each call of a program; a refused program is one."""
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield from _of_seed(seed, target)


def _of_seed(seed: int, target: str) -> Iterator[Trial]:
    drawn = draw(seed, MEMORY)
    model, example, what = drawn.module(), drawn.given(0), f"seed {seed}:\n{drawn.text}"
    try:
        exported = torch.export.export(model, tuple(copied(example)))
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
    for number in (1, 2):
        tensors = drawn.given(number)
        eager = copied(tensors)
        try:
            wanted = [result.clone() for result in model(*eager)]
        except RuntimeError:
            wanted = None
        for name, entrance in entrances.items():
            mine = copied(tensors)
            before = [c.clone() for c in contents(mine)]
            outcome = _outcome(entrance, mine, wanted, eager, before)
            if outcome == "refused" and wanted is not None and lie_alike(tensors, example):
                outcome = "refused as the example was"
            yield Trial(PART, f"{what}, call {number}, {name}", outcome)


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

"""One call of a program beside the same call of eager: results, and what is left of the arguments.

What must hold: eager's results *and* effects, or a `StepwellError` that names the argument, the
caller's tensors as they were.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

import stepwell

from .models import MODELS, Of
from .values import VALUES

ENTRANCES = ("program.run", "session.run", "lowered.run")


@dataclass(frozen=True)
class Trial:
    """A combination, and what came of it: "equal", "refused", or what is wrong."""

    part: str
    what: str
    outcome: str

    @property
    def is_right(self) -> bool:
        return self.outcome in ("equal", "refused")


@cache
def exported_of(name: str) -> Any:
    function, example = MODELS[name]
    return torch.export.export(Of(function), (example.clone(), example.clone() + 1))


@cache
def entrances_of(name: str) -> dict[str, Callable[..., Any]]:
    return entrances(exported_of(name))


def entrances(exported: Any) -> dict[str, Callable[..., Any]]:
    """What runs a program, by the name of the entry point."""
    program = stepwell.from_exported_program(exported)
    return {
        "program.run": program.run,
        "session.run": program.start().run,
        "lowered.run": stepwell.lower(exported, "xnnpack").run,
    }


def numbers(value: Any) -> Any:
    """What a value holds, as numbers that can be compared; itself where it holds none."""
    try:
        with torch.no_grad():
            plain = value.detach().as_subclass(torch.Tensor)
            if type(plain) is not torch.Tensor or plain.is_quantized or plain.is_nested:
                return None
            if plain.layout != torch.strided or plain.device.type != "cpu":
                return None
            if plain.numel() and not plain.untyped_storage().nbytes():
                return None
            return plain.resolve_conj().resolve_neg().clone()
    except (RuntimeError, AttributeError, TypeError, NotImplementedError):
        return None


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(
            one.nan_to_num(777.25), other.nan_to_num(777.25)
        )
    return type(one) is type(other) and (not isinstance(one, torch.Tensor))


def judged(
    ours: Callable[..., Any],
    eager: Callable[..., Any],
    make: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]],
    names: tuple[str, ...] = ("x", "y", "argument", "the call"),
) -> str:
    """ "equal", "refused", or what is wrong."""
    wanted_args, given_args = make(), make()
    before = [numbers(leaf) for leaf in pytree.tree_leaves(given_args)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected: Any = eager(*wanted_args[0], **wanted_args[1])
        fails = None
    except Exception as error:
        expected, fails = None, error
    try:
        found = ours(*given_args[0], **given_args[1])
    except stepwell.StepwellError as error:
        after = [numbers(leaf) for leaf in pytree.tree_leaves(given_args)]
        if not all(itertools.starmap(same, zip(before, after, strict=True))):
            return "refused, and an argument is changed"
        if not any(name in str(error) for name in names):
            return f"refused without a name: {error}"
        return "refused"
    except Exception as error:
        return f"bare {type(error).__name__}: {error}"
    if fails is not None:
        return f"eager raises {type(fails).__name__}, ours computes"
    flat = [numbers(leaf) for leaf in pytree.tree_leaves(expected)]
    given = [numbers(leaf) for leaf in pytree.tree_leaves(found)]
    if len(flat) != len(given) or not all(itertools.starmap(same, zip(flat, given, strict=True))):
        return "other results than eager's"
    left = [numbers(leaf) for leaf in pytree.tree_leaves(wanted_args)]
    after = [numbers(leaf) for leaf in pytree.tree_leaves(given_args)]
    if not all(itertools.starmap(same, zip(left, after, strict=True))):
        return "other effects than eager's"
    return "equal"


def possible(value: str, example: torch.Tensor) -> bool:
    """Whether torch can make such a value of these numbers."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            VALUES[value](example)
    except (RuntimeError, IndexError, TypeError, NotImplementedError):
        return False
    return True


def _dies(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("torch reads at address 0")


def _arguments(example: torch.Tensor, value: str, place: str, manner: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = VALUES[value](example) if place != "y" else example.clone()
        y = VALUES[value](example + 1) if place in ("y", "both") else example + 1
        if place == "the same twice":
            y = x
        elif place == "overlapping":
            y = x[:] if isinstance(x, torch.Tensor) else x
    return ((x, y), {}) if manner == "by place" else ((x,), {"y": y})


MANNERS = ("by place", "by name")
PLACES = ("x", "y", "both", "the same twice", "overlapping")


def value_trials(models: Any = MODELS, values: Any = VALUES) -> Iterator[Trial]:
    """Kinds of tensors × which argument × how it is passed × what reads and writes it."""
    for model, value in itertools.product(models, values):
        function, example = MODELS[model]
        if not possible(value, example):
            continue
        for place, manner, entrance in itertools.product(PLACES, MANNERS, ENTRANCES):
            if place in PLACES[3:] and (manner == "by name" or example.dim() == 0):
                continue

            make = partial(_arguments, example, value, place, manner)
            try:
                make()
            except (RuntimeError, NotImplementedError, TypeError, IndexError):
                continue
            ours = entrances_of(model)[entrance]
            eager = _dies if value == "without its memory" else Of(function)
            what = f"{model}, {value} as {place}, {manner}, {entrance}"
            yield Trial("values", what, judged(ours, eager, make))

"""Calls of programs whose inputs nest, are numbers, or have open sizes: right ones, wrong ones."""

import collections
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from .models import Of
from .trial import ENTRANCES, Trial, entrances, judged

Pair = collections.namedtuple("Pair", "first second")


@dataclass
class Held:
    """A user's own class, which torch knows of."""

    left: Tensor
    right: Tensor | None = None


torch.export.register_dataclass(Held, serialized_type_name="stepwell.tests.calling_convention.Held")

A, B = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3) * 5


class Nested(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, t: Any, n: Any = None) -> Any:
        return self.function(t, n)


def _of_pair(t: Any, n: Any) -> Any:
    return Pair(t.first - t.second, t.second * 2)


def _of_dict(t: Any, n: Any) -> Any:
    return {"b": t["a"] - t["b"], "a": t["b"] * 2}


def _of_held(t: Any, n: Any) -> Any:
    return t.left - (t.right if t.right is not None else 1)


def _of_list(t: Any, n: Any) -> Any:
    return [t[0] - t[1][0], (t[1][1], n)]


def _writes_dict(t: Any, n: Any) -> Any:
    t["b"].add_(t["a"])
    return t["a"] * 2


def _scaled(t: Any, n: Any) -> Any:
    return t * 2


Given = tuple[tuple[Any, ...], dict[str, Any]]
TREES: dict[str, tuple[Callable[..., Any], Given]] = {
    "named tuple": (_of_pair, ((Pair(A, B),), {})),
    "dictionary": (_of_dict, (({"a": A, "b": B},), {})),
    "dictionary by name": (_of_dict, ((), {"t": {"a": A, "b": B}})),
    "ordered dictionary": (_of_dict, ((collections.OrderedDict(a=A, b=B),), {})),
    "dataclass": (_of_held, ((Held(A, B),), {})),
    "dataclass with None": (_of_held, ((Held(A),), {})),
    "list": (_of_list, (([A, (B, A)],), {"n": None})),
    "written dictionary": (_writes_dict, (({"a": A, "b": B},), {})),
    "flag": (_scaled, ((A, True), {})),
    "number": (_scaled, ((A, 3), {})),
    "float": (_scaled, ((A, 2.5), {})),
    "NaN": (_scaled, ((A, math.nan), {})),
    "minus zero": (_scaled, ((A, -0.0), {})),
    "text": (_scaled, ((A, "mean"), {})),
    "None": (_scaled, ((A, None), {})),
    "infinity": (_scaled, ((A,), {"n": math.inf})),
}
PASSED: tuple[Any, ...] = (
    lambda: Pair(A.clone(), B.clone()),
    lambda: (A.clone(), B.clone()),
    lambda: [A.clone(), B.clone()],
    lambda: {"a": A.clone(), "b": B.clone()},
    lambda: {"b": B.clone(), "a": A.clone()},
    lambda: collections.OrderedDict(b=B.clone(), a=A.clone()),
    lambda: collections.defaultdict(list, {"a": A.clone(), "b": B.clone()}),
    lambda: {"a": A.clone()},
    lambda: {"a": A.clone(), "b": B.clone(), "c": A.clone()},
    lambda: {"b": A.clone(), 0: B.clone()},
    lambda: Held(A.clone(), B.clone()),
    lambda: Held(A.clone()),
    lambda: [A.clone(), (B.clone(), A.clone())],
    lambda: (A.clone(), [B.clone(), A.clone()]),
    lambda: [A.clone(), (B.clone(),)],
    list,
    dict,
    lambda: A.clone(),
    lambda: A.numpy().copy(),
    lambda: None,
    lambda: {"a": A.clone(), "b": None},
    lambda: {"a": A.clone(), "b": B.clone().T},
    lambda: Pair(A.clone(), "x"),
)
"""What is passed for the tree, right or wrong for each model."""
NUMBERS: tuple[Any, ...] = (
    True, False, 3, 4, 3.0, 2.5, math.nan, -0.0, 0.0, math.inf, -math.inf, "mean", "sum", None,
    "left out", torch.tensor(3), torch.tensor(True), [3],
)  # fmt: skip


NAMES = ("input ", "argument", "the call", "keyword", "inputs are ")


def tree_trials(names: Sequence[str] = tuple(TREES)) -> Iterator[Trial]:
    """Every model × everything passed for its tree × every number beside it × each entrance."""
    for name in names:
        function, (args, kwargs) = TREES[name]
        exported = torch.export.export(Nested(function), *_copied(args, kwargs))
        runs = entrances(exported)
        frozen = [*args[1:], *(v for k, v in kwargs.items() if k == "n")]
        numbers = NUMBERS if frozen else ("left out", None, 3)
        for at, made in enumerate(PASSED):
            for number in numbers if at in (1, 17) or len(numbers) == 3 else (numbers[0],):
                eager: Any = Nested(function)
                if name == "named tuple" and at in (1, 2):
                    eager = _by_place  # Names are Python's: a tuple is one too.
                elif at == 17 and number == "left out":
                    eager = partial(_flat, name, function, tuple(frozen))
                elif frozen and not _is_frozen(number, frozen[0]):
                    eager = _refuses  # Exported for another value.
                make = partial(_passed, made, number, "t" in kwargs)
                for entrance in ENTRANCES:
                    what = f"{name}, given {at}, {number!r}, {entrance}"
                    outcome = judged(runs[entrance], eager, make, NAMES)
                    yield Trial("trees", what, outcome)


def _copied(args: Any, kwargs: Any) -> Any:
    return torch.utils._pytree.tree_map_only(Tensor, torch.clone, (args, kwargs))


def _is_frozen(number: Any, frozen: Any) -> bool:
    return (None if isinstance(number, str) and number == "left out" else number) is frozen or (
        type(number) is type(frozen) and repr(number) == repr(frozen)
    )


def _flat(name: str, function: Callable[..., Any], frozen: tuple[Any, ...], t: Tensor) -> Any:
    """A flat call: inputs that are no tensors may be left out, and stand for what was exported."""
    return function(Held(t) if name == "dataclass with None" else t, *(frozen or (None,)))


def _by_place(t: Any, n: Any = None) -> Any:
    return _of_pair(Pair(*t), n)


def _refuses(*args: Any, **kwargs: Any) -> None:
    raise ValueError("exported for another value")


def _passed(made: Callable[[], Any], number: Any, by_name: bool) -> Given:
    rest = {} if isinstance(number, str) and number == "left out" else {"n": number}
    return ((), {"t": made(), **rest}) if by_name else ((made(),), rest)


SIZES = ("the same", "two", "one fixed", "double", "both multiples", "one more")


def size_trials(names: Sequence[str] = SIZES) -> Iterator[Trial]:
    """Open sizes: in and out of their range, related to each other, and not."""
    n = Dim("n", min=3, max=9)
    m = Dim("m", min=2, max=5)
    cases: dict[str, tuple[Any, tuple[int, int], Any, Callable[[int, int], bool]]] = {
        "the same": (lambda x, y: x + y, (4, 4), (n, n), lambda a, b: 3 <= a <= 9 and a == b),
        "two": (lambda x, y: x.sum() + y, (4, 3), (n, m), lambda a, b: 3 <= a <= 9 and 2 <= b <= 5),
        "one fixed": (
            lambda x, y: x * y.sum(),
            (4, 3),
            (n, None),
            lambda a, b: 3 <= a <= 9 and b == 3,
        ),
        "double": (
            lambda x, y: x.repeat_interleave(2, 0) + y,
            (4, 8),
            (n, 2 * n),
            lambda a, b: 3 <= a <= 9 and b == 2 * a,
        ),
        "both multiples": (
            lambda x, y: x.sum() + y,
            (8, 12),
            (2 * n, 3 * n),
            lambda a, b: a % 2 == 0 and 6 <= a <= 18 and b == a // 2 * 3,
        ),
        "one more": (
            lambda x, y: torch.cat([x, x[:1]]) + y,
            (4, 5),
            (n, n + 1),
            lambda a, b: 3 <= a <= 9 and b == a + 1,
        ),
    }
    for name in names:
        function, example, dynamic, allowed = cases[name]
        shapes = tuple({0: d} if d is not None else None for d in dynamic)
        given = tuple(torch.randn(size, 2) for size in example)
        runs = entrances(torch.export.export(Of(function), given, dynamic_shapes=shapes))
        for a, b in itertools.product((0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 18, 20), repeat=2):
            if a > 2 * b + 2 and a != 9:
                continue
            eager: Any = Of(function) if allowed(a, b) else _refuses
            make = partial(_of_sizes, a, b)
            for entrance in ENTRANCES:
                outcome = judged(runs[entrance], eager, make, (*NAMES, "dimension"))
                if allowed(a, b) and outcome == "refused":
                    outcome = "refused within its range"
                yield Trial("sizes", f"{name}, {a} and {b}, {entrance}", outcome)


def _of_sizes(a: int, b: int) -> Given:
    return (torch.arange(a * 2.0).reshape(a, 2), torch.ones(b, 2)), {}

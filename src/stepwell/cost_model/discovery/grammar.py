"""The nodes that terms are built from, for each target: a table of templates.

A template is a call in the notation of rules, `clamp(x, output_min=0.0)`: names in lower case are
operands, names in capitals are choices that depend on the first operand's shape (`CHOICES`), and
everything else is a fixed argument. A grammar has few nodes and inputs, so that all terms up to
its number of nodes can be enumerated; several grammars cover the nodes of a target.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, permutations, product
from math import prod
from typing import Any

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import f32, i1, i8, i32
from stepwell.ir.types import element, tensor
from stepwell.translate.rules.examples import meant
from stepwell.translate.rules.operators import OperatorReader, op_named, operator_of

Shape = Sequence[int]
NAMED_TYPES: dict[str, Any] = {
    "f32": f32,
    "i32": i32,
    "i8": i8,
    "i1": i1,
    "q1": element(meant("tensor<1x!quant.uniform<i8:f32, 0.5:3>>")),
    "q2": element(meant("tensor<1x!quant.uniform<i8:f32, 0.25>>")),
}
"""The element types of a grammar: `q1` and `q2` are int8 of two scales."""
OFFSETS = "offsets of the"
"""How the label of a choice of offsets begins; that of the sizes beside it says the rest."""
RESULT = "to"
"""The argument of a template that states the result's element type."""


@dataclass(frozen=True)
class Choice:
    """An argument that depends on the shape of a node's first operand; None if there is none."""

    label: str
    of: Callable[[Shape], Any]

    def __str__(self) -> str:
        return self.label


def _orders(rank: int) -> list[Choice]:
    identity = tuple(range(rank))
    orders = [order for order in permutations(identity) if order != identity]
    return [Choice(str(list(order)), lambda shape, order=order: list(order)) for order in orders]


def _axes(rank: int) -> list[Choice]:
    return [Choice(str(axis), lambda shape, axis=axis: axis) for axis in range(rank)]


def _axis_lists(rank: int) -> list[Choice]:
    return [Choice(str([axis]), lambda shape, axis=axis: [axis]) for axis in range(rank)]


def _shapes(rank: int) -> list[Choice]:
    """Return the shapes that a reshape of `rank` axes may give: axes merged, or a unit axis moved
    to the other end.
    """
    merged = [
        Choice(
            f"axes {at} and {at + 1} merged",
            lambda s, at=at: [*s[:at], s[at] * s[at + 1], *s[at + 2 :]],
        )
        for at in range(rank - 1)
    ]
    turned = Choice("last axis in front", lambda s: [s[-1], *s[:-1]] if rank > 1 else None)
    return [
        *merged,
        turned,
        Choice("flat", lambda s: [prod(s)] if rank > 2 else None),
        Choice("unit axis in front", lambda s: [1, *s] if rank < 4 else None),
        Choice("unit axis behind", lambda s: [*s, 1] if rank < 4 else None),
        Choice("split in front", lambda s: [1, s[0], *s[1:]] if rank == 2 else None),
    ]


_CUTS: Mapping[str, Callable[[int], tuple[int, int] | None]] = {
    "all": lambda n: (0, n),
    "first": lambda n: (0, n - 1),
    "last": lambda n: (1, n - 1),
    "first but two": lambda n: (0, n - 2),
    "middle": lambda n: (1, n - 2),
    "last but two": lambda n: (2, n - 2),
    "first half": lambda n: (0, n // 2) if n % 2 == 0 else None,
    "second half": lambda n: (n // 2, n // 2) if n % 2 == 0 else None,
}
"""Parts of an axis of some size: the offset and the size."""


def _parts(rank: int) -> list[tuple[Choice, Choice]]:
    """Return (offsets, sizes) of the first and the last part of each axis."""
    return _taken({axis: kind} for axis in range(rank) for kind in ("first", "last"))


def _cuts(rank: int) -> list[tuple[Choice, Choice]]:
    """Return (offsets, sizes) of parts of one axis, and of parts of two axes."""
    one = [{axis: kind} for axis in range(rank) for kind in _CUTS if kind != "all"]
    ends = ("first", "last")
    two = [{a: k, b: m} for a, b in combinations(range(rank), 2) for k in ends for m in ends]
    return _taken([*one, *two])


def _taken(parts: Iterable[Mapping[int, str]]) -> list[tuple[Choice, Choice]]:
    """Return (offsets, sizes) of parts of a tensor: the kind of part by axis, all of the others."""
    found: list[tuple[Choice, Choice]] = []
    for kinds in parts:

        def of(shape: Shape, place: int, kinds: Mapping[int, str] = kinds) -> Any:
            cuts = [_CUTS[kinds.get(axis, "all")](size) for axis, size in enumerate(shape)]
            is_part = all(cut is not None and cut[1] > 0 for cut in cuts)
            return [cut[place] for cut in cuts if cut] if is_part else None

        label = " and ".join(f"{kind} of axis {axis}" for axis, kind in kinds.items())
        offsets = Choice(f"{OFFSETS} {label}", partial(of, place=0))
        found.append((offsets, Choice(f"the {label}", partial(of, place=1))))
    return found


def _pads(rank: int) -> list[tuple[Choice, Choice]]:
    """Return (before, after): one element before or behind each axis."""
    found: list[tuple[Choice, Choice]] = []
    for axis, is_last in product(range(rank), (False, True)):
        one = [int(at == axis) for at in range(rank)]
        none = [0] * rank
        before, after = (none, one) if is_last else (one, none)
        found.append(
            (
                Choice(f"{before} before", lambda s, v=before: list(v)),
                Choice(f"{after} behind", lambda s, v=after: list(v)),
            )
        )
    return found


def _pairs(rank: int) -> list[Choice]:
    lists = [[*([0, 0] * axis), *pad, *([0, 0] * (rank - axis - 1))]
             for axis in range(rank) for pad in ([1, 0], [0, 1])]  # fmt: skip
    return [Choice(str(pads), lambda s, pads=pads: list(pads)) for pads in lists]


def _torch_pads(rank: int) -> list[Choice]:
    lists = [[*([0, 0] * axis), *pad] for axis in range(rank) for pad in ([1, 0], [0, 1])]
    return [Choice(str(pads), lambda s, pads=pads: list(pads)) for pads in lists]


CHOICES: dict[str, Callable[[int], Sequence[Any]]] = {
    "ORDER": _orders,
    "AXIS": _axes,
    "AXES": _axis_lists,
    "SHAPE": _shapes,
    "PART": _parts,
    "CUT": _cuts,
    "PADS": _pads,
    "PAIRS": _pairs,
    "TORCH_PADS": _torch_pads,
}
"""Choices by name, for a rank. A choice of pairs fills two arguments: `offsets=PART, sizes=PART`.
"""


@dataclass(frozen=True)
class Node:
    """An op with its arguments, but for the operands.

    Attributes:
        op: the op's name.
        operands: the number of operands that are terms.
        arguments: the op's other arguments, in order; a `Choice` depends on the first operand.
        rank: the rank of the first operand for which the choices are; None: any.
    """

    op: str
    operands: int
    arguments: tuple[tuple[str, Any], ...]
    rank: int | None = None

    @property
    def reader(self) -> OperatorReader:
        """Return the parameters of the op."""
        found = op_named(self.op)
        assert found is not None
        return operator_of(found)

    def fields(self, shape: Shape) -> dict[str, Any] | None:
        """Return the arguments for a first operand of some shape; None if there are none."""
        if self.rank is not None and len(shape) != self.rank:
            return None
        found: dict[str, Any] = {}
        for name, value in self.arguments:
            found[name] = value.of(shape) if isinstance(value, Choice) else value
            if isinstance(value, Choice) and found[name] is None:
                return None
        return found

    def __str__(self) -> str:
        held = ", ".join(f"{name}={value}" for name, value in self.arguments)
        return f"{self.op}({', '.join(['%'] * self.operands)}{', ' if held else ''}{held})"


@dataclass(frozen=True)
class Grammar:
    """The nodes and inputs of one enumeration.

    Attributes:
        name: its name, unique for a target.
        target: the target that lowers the terms, and whose costs count.
        level: the level of the nodes.
        inputs: the type of each input, `f32 A B`: the element type and the names of its axes; a
            digit is a fixed size.
        nodes: the templates.
        most: the largest number of nodes of a term.
        ranks: the ranks for which choices are offered.
        sizes: the size of each axis name, for each kind of sizes that terms are computed on.
    """

    name: str
    target: str
    level: str
    inputs: tuple[str, ...]
    nodes: tuple[str, ...]
    most: int
    ranks: tuple[int, ...]
    sizes: tuple[Mapping[str, int], ...]

    def expanded(self) -> list[Node]:
        """Return the nodes of all templates with every choice of arguments."""
        return [node for text in self.nodes for node in _expanded(text, self.level, self.ranks)]


def _expanded(text: str, level: str, ranks: Sequence[int]) -> Iterator[Node]:
    """Yield the nodes of a template.

    Raises:
        StepwellError: the template names an unknown op or argument.
    """
    call = ast.parse(text.strip(), mode="eval").body
    if not isinstance(call, ast.Call):
        raise StepwellError(f"{text!r} is no call")
    op = f"{level}.{ast.unparse(call.func)}"
    if op_named(op) is None:
        raise StepwellError(f"there is no op {op}")
    parameters = [p.name for p in operator_of(op_named(op)).parameters]  # pyright: ignore[reportArgumentType]
    given = [*zip(parameters, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
    is_operand = [isinstance(t, ast.Name) and t.id.islower() and n != RESULT for n, t in given]
    count = sum(is_operand)
    held = [each for each, is_value in zip(given, is_operand, strict=True) if not is_value]
    names = [t.id for _, t in held if isinstance(t, ast.Name) and t.id in CHOICES]
    for rank in ranks if names else (None,):
        choices = CHOICES[names[0]](rank) if names and rank is not None else [()]
        for choice in choices:
            parts = iter(choice if isinstance(choice, tuple) else (choice,))
            yield Node(op, count, tuple((str(n), _value(t, parts)) for n, t in held), rank)


def _value(term: ast.expr, parts: Iterator[Any]) -> Any:
    if isinstance(term, ast.Name) and term.id in CHOICES:
        return next(parts)
    if isinstance(term, ast.Name):
        return NAMED_TYPES[term.id]
    return ast.literal_eval(term)


def input_type(text: str, sizes: Mapping[str, int]) -> Any:
    """Return the tensor type of an input, `f32 A B`, for some sizes of its axes."""
    kind, *axes = text.split()
    shape = [int(axis) if axis.isdigit() else sizes[axis] for axis in axes]
    return tensor(shape, NAMED_TYPES[kind])

"""The nodes that terms are built from, for each target: a table of templates.

A template is a call, `clamp(x, output_min=0.0)`. Names in lower case are operands, names in
capitals are choices of arguments (`CHOICES`), and everything else is a fixed argument. An argument
is a Python expression; in a choice, `s0`, `s1`, … are the sizes of the first operand. A grammar has
few nodes and inputs, so that all terms up to its number of nodes can be enumerated; several
grammars cover the nodes of a target.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from typing import Any

from stepwell.ir.dtypes import f32, i1, i8, i32
from stepwell.ir.types import element, tensor
from stepwell.translate.rules.examples import meant
from stepwell.translate.rules.operators import OperatorReader, op_named, operator_of

NAMED_TYPES: dict[str, Any] = {
    "f32": f32,
    "i32": i32,
    "i8": i8,
    "i1": i1,
    "q1": element(meant("tensor<1x!quant.uniform<i8:f32, 0.5:3>>")),
    "q2": element(meant("tensor<1x!quant.uniform<i8:f32, 0.25>>")),
}
"""The element types of a grammar: `q1` and `q2` are int8 of two scales."""
RESULT = "to"
"""The argument of a template that states the result's element type."""


def _list(items: Iterable[object]) -> str:
    return f"[{', '.join(map(str, items))}]"


def _sizes(rank: int) -> list[str]:
    return [f"s{axis}" for axis in range(rank)]


def _shapes(rank: int) -> list[tuple[str, ...]]:
    """Return the shapes that a reshape may give: axes merged, or a unit axis or the last axis
    moved to the other end.
    """
    s = _sizes(rank)
    merged = [[*s[:at], f"{s[at]} * {s[at + 1]}", *s[at + 2 :]] for at in range(rank - 1)]
    turned = [[s[-1], *s[:-1]]] if rank > 1 else []
    flat = [[" * ".join(s)]] if rank > 2 else []
    units = [["1", *s], [*s, "1"]] if rank < 4 else []
    return [(_list(shape),) for shape in (*merged, *turned, *flat, *units)]


_CUTS = {
    "first": ("0", "{} - 1"),
    "last": ("1", "{} - 1"),
    "first but two": ("0", "{} - 2"),
    "middle": ("1", "{} - 2"),
    "last but two": ("2", "{} - 2"),
    "first half": ("0", "{} // 2"),
    "second half": ("{} // 2", "{} // 2"),
}
"""Parts of an axis: the offset and the size."""
_ENDS = ("first", "last")


def _parts(rank: int, cuts: Iterable[Mapping[int, str]]) -> list[tuple[str, ...]]:
    """Return (offsets, sizes) for the name of the part of some axes; others are taken whole."""
    found: list[tuple[str, ...]] = []
    for cut in cuts:
        parts = [_CUTS[cut[at]] if at in cut else ("0", "{}") for at in range(rank)]
        both = [[part[k].format(f"s{at}") for at, part in enumerate(parts)] for k in (0, 1)]
        found.append((_list(both[0]), _list(both[1])))
    return found


def _cuts(rank: int) -> list[tuple[str, ...]]:
    """Return parts of one axis, and the ends of two axes."""
    two = [{a: k, b: m} for a, b in combinations(range(rank), 2) for k in _ENDS for m in _ENDS]
    return _parts(rank, [*({axis: kind} for axis in range(rank) for kind in _CUTS), *two])


def _pads(rank: int) -> list[list[tuple[int, int]]]:
    """Return (before, after) of each axis: one element before or after one axis."""
    ends = ((1, 0), (0, 1))
    return [[end if at == axis else (0, 0) for at in range(rank)]
            for axis in range(rank) for end in ends]  # fmt: skip


CHOICES: dict[str, Callable[[int], Sequence[tuple[str, ...]]]] = {
    "ORDER": lambda rank: [(_list(order),) for order in permutations(range(rank))][1:],
    "AXIS": lambda rank: [(str(axis),) for axis in range(rank)],
    "AXES": lambda rank: [(_list([axis]),) for axis in range(rank)],
    "SHAPE": _shapes,
    "PART": lambda rank: _parts(rank, ({a: k} for a, k in product(range(rank), _ENDS))),
    "CUT": _cuts,
    "PADS": lambda rank: [tuple(map(_list, zip(*pads, strict=True))) for pads in _pads(rank)],
    "PAIRS": lambda rank: [(_list(n for pair in pads for n in pair),) for pads in _pads(rank)],
    "TORCH_PADS": lambda rank: [
        (_list(n for pair in pads[::-1] for n in pair),) for pads in _pads(rank)
    ],
}
"""The choices of a name, for a rank: one expression, or one each for `offsets=PART, sizes=PART`."""


@dataclass(frozen=True)
class Node:
    """An op with its arguments, but for the operands.

    Attributes:
        op: the op's name.
        operands: the number of operands that are terms.
        arguments: the op's other arguments, in order, as expressions.
        rank: the rank of the first operand for which the expressions are; None: any.
    """

    op: str
    operands: int
    arguments: tuple[tuple[str, str], ...]
    rank: int | None = None

    @property
    def reader(self) -> OperatorReader:
        """Return the parameters of the op."""
        known = op_named(self.op)
        assert known is not None, f"there is no op {self.op}"
        return operator_of(known)

    def fields(self, shape: Sequence[Any]) -> dict[str, Any] | None:
        """Return the arguments for a first operand of some shape; None if there are none: the
        rank is another, a part has no elements, or a symbolic size is an argument of an op whose
        arguments are numbers.
        """
        if self.rank is not None and len(shape) != self.rank:
            return None
        names = NAMED_TYPES | dict(zip(_sizes(len(shape)), shape, strict=True))
        fields = {name: eval(text, names) for name, text in self.arguments}
        listed = [n for value in fields.values() if isinstance(value, list) for n in value]
        if not self.op.startswith("aten.") and not all(isinstance(n, int) for n in listed):
            return None
        sizes = fields.get("sizes") or fields.get("size") or (1,)
        return fields if min(sizes) > 0 else None

    def __str__(self) -> str:
        arguments = [f"{name}={text}" for name, text in self.arguments]
        return f"{self.op}({', '.join(['%'] * self.operands + arguments)})"


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
    """Yield the nodes of a template."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    bare = Node(f"{level}.{ast.unparse(call.func)}", 0, ())
    names = [parameter.name for parameter in bare.reader.parameters]
    names += [""] * len(call.args)  # A list of operands is one parameter.
    terms = [*zip(names, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
    given = [(name, ast.unparse(term)) for name, term in terms]
    arguments = [(name, text) for name, text in given if not _is_operand(text)]
    chosen = [name for name, text in arguments if text in CHOICES]
    kind = dict(arguments)[chosen[0]] if chosen else ""
    for rank in ranks if chosen else (None,):
        for texts in CHOICES[kind](rank) if rank is not None else [()]:
            filled = dict(arguments) | dict(zip(chosen, texts, strict=True))
            yield Node(bare.op, len(given) - len(arguments), tuple(filled.items()), rank)


def _is_operand(text: str) -> bool:
    return text.isidentifier() and text.islower() and text not in NAMED_TYPES


def input_type(text: str, sizes: Mapping[str, Any]) -> Any:
    """Return the tensor type of an input, `f32 A B`, for some sizes of its axes."""
    kind, *axes = text.split()
    shape = [int(axis) if axis.isdigit() else sizes[axis] for axis in axes]
    return tensor(shape, NAMED_TYPES[kind])

"""Show each application of a rewrite as a small graph: the erased ops, and the created ones.

Unchanged ops around them are shown, too, for context. No part of a program is kept: an op is
converted to one line of text before it may be erased.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import describe_op, op_name
from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.ir.rewriting.rewriter import Rewriter

_AROUND = 12
"""The limit of producers and users that are recorded before a rewrite is applied."""
_ARRAY = re.compile(r"array<i\d+(?:: )?([^>]*)>")
_HIDDEN = ("operandSegmentSizes", "resultSegmentSizes")


@dataclass(frozen=True)
class Piece:
    """An op in the graph of an application.

    Attributes:
        op: the op's number in the story.
        text: the op as text, `%y = aten.mul.Tensor(%x, %s) : tensor<2x3xf32>`.
        changed: whether the rewrite erased, created or changed the op; otherwise the op is context.
        results, operands: names of the values that connect the pieces.
    """

    op: int
    text: str
    changed: bool
    results: tuple[str, ...]
    operands: tuple[str, ...]


@dataclass(frozen=True)
class Application:
    """An application of a rewrite, with its ops in the order of the program."""

    rewrite: str
    where: str | None
    before: tuple[Piece, ...]
    after: tuple[Piece, ...]


class ApplicationRecorder:
    """An observer (`Watch`) that records every application of a rewrite as text."""

    def __init__(self, numbers: dict[Operation, int]) -> None:
        self.made: list[Application] = []
        self._numbers = numbers
        self._spelled: dict[Attribute, str] = {}
        self._names: dict[SSAValue, str] = {}
        self._seen: list[tuple[Operation, Piece]] = []
        self._where: str | None = None

    def before(self, rewrite: Rewrite[Any], op: Operation, match: Any) -> None:
        """Record the op that a rewrite is about to change, and the ops around it."""
        self._names = {}
        self._where = describe_op(op)
        self._seen = [(held, self._piece(held)) for held in _around(op)]

    def after(self, rewrite: Rewrite[Any], rewriter: Rewriter) -> None:
        """Record which ops the rewrite erased, and which it created."""
        gone = [piece for op, piece in self._seen if op.parent is None]
        come = [
            self._piece(op)
            for op in dict.fromkeys((*rewriter.inserted, *rewriter.modified))
            if op.parent is not None and not isinstance(op, WeightOp)
        ]
        numbers = {piece.op for piece in (*gone, *come)}
        stayed = [(op, p) for op, p in self._seen if op.parent is not None and p.op not in numbers]
        before = _with_context(gone, [piece for _, piece in stayed])
        after = _with_context(come, [self._piece(op) for op, _ in stayed])
        self.made.append(Application(rewrite.name, self._where, before, after))
        self._seen = []

    def _piece(self, op: Operation) -> Piece:
        number = self._numbers.setdefault(op, len(self._numbers))
        operands = tuple(map(self._name, op.operands))
        results = tuple(map(self._name, op.results))
        fields = [
            name + (f"={text}" if (text := self._text(value)) else "")
            for name, value in op.properties.items()
            if name not in _HIDDEN
        ]
        types = ", ".join(self._text(result.type) for result in op.results)
        head = ", ".join(results) + " = " if results else ""
        text = f"{head}{op_name(op)}({', '.join((*operands, *fields))})"
        return Piece(number, f"{text} : {types}" if types else text, True, results, operands)

    def _name(self, value: SSAValue) -> str:
        """Return a name for a value that is unique within one application."""
        name = self._names.get(value)
        if name is None:
            owner = value.owner
            wanted = value.name_hint or (
                owner.key.data if isinstance(owner, WeightOp) else str(len(self._names))
            )
            taken = set(self._names.values())
            name = f"%{wanted}"
            while name in taken:
                name += "'"
            self._names[value] = name
        return name

    def _text(self, value: Attribute) -> str:
        text = self._spelled.get(value)
        if text is None:
            text = str(value)
            for noise in (" : i64", " : f32", " : i32"):
                text = text.removesuffix(noise)
            if isinstance(value, FloatAttr):
                text = f"{value.value.data:g}"
            text = _ARRAY.sub(r"[\1]", text) if text != "unit" else ""
            text = text if len(text) < 60 else text[:57] + "…"
            self._spelled[value] = text
        return text


def _around(op: Operation) -> Iterator[Operation]:
    """Yield the producers of an op's operands, two levels deep, the op, and its users, in program
    order.
    """
    makers: dict[Operation, None] = {}
    rank: Iterable[Operation] = (op,)
    for _ in range(2):
        owners = [
            owner
            for held in rank
            for value in held.operands
            if isinstance(owner := value.owner, Operation) and not isinstance(owner, WeightOp)
        ]
        makers |= dict.fromkeys(owners)
        rank = owners[:_AROUND]
    readers = dict.fromkeys(use.operation for result in op.results for use in result.uses)
    kept = {*list(makers)[:_AROUND], op, *list(readers)[:_AROUND]}
    block = op.parent
    ordered = [held for held in kept if held.parent is block and isinstance(block, Block)]
    yield from _in_order(ordered)


def _in_order(ops: list[Operation]) -> list[Operation]:
    """Sort ops of one block, producers first, without counting positions in the block."""
    left, done = dict.fromkeys(ops), list[Operation]()
    while left:
        ready = [
            op for op in left if not any(value.owner in left for value in op.operands)
        ] or list(left)
        for op in ready:
            done.append(op)
            del left[op]
    return done


def _with_context(changed: list[Piece], stayed: list[Piece]) -> tuple[Piece, ...]:
    """Return the ops that a rewrite changed, between their producers and their users."""
    read = {name for piece in changed for name in piece.operands}
    names = {name for piece in changed for name in piece.results}
    feeding = [p for p in stayed if read & set(p.results) and not names & set(p.operands)]
    reading = [p for p in stayed if names & set(p.operands)]
    still = [Piece(p.op, p.text, False, p.results, p.operands) for p in feeding]
    after = [Piece(p.op, p.text, False, p.results, p.operands) for p in reading]
    return (*still, *changed, *after)

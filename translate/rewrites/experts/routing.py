"""What `topk` chooses, and what reads the places that it gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.alignment import extent_of
from stepwell.ir.core import weight_key
from stepwell.ir.dtypes import dtype_name, f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.side_effects import is_dead
from stepwell.ir.sizes.size import Dim, Size, settled
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.building import axis, is_known, static_dims
from stepwell.translate.rewrites.slices.select_by_constant_mask import number_of
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_held

LONGEST = 512
"""Numbers of a row among which maxima are looked for."""
MOST_TAKEN = 32
"""How often they are, where a row is too long for every two of its numbers to be compared."""
COMPARED = 128
"""Numbers of a row that are compared, every two of them."""


@dataclass(frozen=True)
class Choice:
    """`topk` along the last axis.

    Attributes:
        op: the `topk`.
        rows: how many times it chooses: the tokens, as many as an open batch has.
        among: from how many each time: the experts.
        taken: how many each time.
    """

    op: SchemaOp
    rows: Dim
    among: int
    taken: int

    @property
    def every(self) -> Dim:
        """How many are taken in all."""
        return settled(Size.of(self.rows) * self.taken)


def choice_of(op: SchemaOp) -> Choice | Refusal:
    """What a `topk` chooses, if ranks can say it."""
    if refusal := not_held(op.operands[0]):
        return refusal
    if element(op.operands[0].type) != f32:
        name = dtype_name(element(op.operands[0].type))
        return Refusal(f"differences of {name} have too little room to be scaled to 0 and 1")
    shape = dims(op.operands[0].type)
    if not shape:
        return Refusal("there is no dimension")
    at = axis(op.arg("dim"), len(shape))
    if at != len(shape) - 1:
        return Refusal("it chooses along another axis than the last")
    among = shape[at]
    if not isinstance(among, int):
        return Refusal("how many it chooses from is known only at run time")
    taken = op.arg("k")
    if not isinstance(taken, int) or not taken:
        return Refusal("it takes nothing, or as much as is known at run time")
    if among > LONGEST or (among > COMPARED and taken > MOST_TAKEN):
        return Refusal(f"to take {taken} of {among} by arithmetic costs more than by a kernel")
    return Choice(op, settled(extent_of(shape[:at])), among, taken)


def chosen_by(places: SSAValue) -> Choice | None:
    """The choice whose places, all in order, a value holds."""
    while isinstance(owner := places.owner, aten.ViewDefault):
        places = owner.operands[0]
    if not isinstance(owner, aten.TopkDefault):
        return None
    choice = choice_of(owner)
    return choice if isinstance(choice, Choice) else None


def readers(places: SSAValue) -> Iterator[Operation]:
    """Who reads places, behind views."""
    for use in places.uses:
        if isinstance(use.operation, aten.ViewDefault | aten.ExpandDefault):
            yield from readers(use.operation.results[0])
        elif not is_dead(use.operation):
            yield use.operation


def is_single(value: SSAValue) -> bool:
    """Whether a value is numbers of float32 of known sizes, as the ranks are."""
    return (
        isinstance(value.type, TensorType)
        and element(value.type) == f32
        and is_known(dims(value.type))
        and not_held(value) is None
    )


@dataclass(frozen=True)
class LookedUp:
    """Rows of a constant table: `table[places]`, a row for each that was chosen."""

    table: SSAValue
    places: SSAValue
    choice: Choice


def looked_up(value: SSAValue) -> LookedUp | None:
    """The look-up that gives a value, one axis of places along the table's first."""
    op = value.owner
    if not isinstance(op, aten.IndexTensor) or weight_key(op.operands[0]) is None:
        return None
    arg = op.arg("indices")
    if len(arg) != 1:
        return None
    choice, table = chosen_by(arg[0]), dims(op.operands[0].type)
    if choice is None or table[0] != choice.among:
        return None
    if dims(op.results[0].type) != (choice.every, *table[1:]):
        return None
    return LookedUp(op.operands[0], arg[0], choice)


@dataclass(frozen=True)
class Reading:
    """An op that reads places and has a form by ranks.

    Attributes:
        op: the reader.
        source: what it picks from, `[rows, among, width]`, or adds up, `[rows, taken, width]` (or each
            of what was taken is a row), or a table that it looks up rows of, `[among, width]`.
        width: numbers at each place.
        rows: how many rows there are, all of what they take together.
    """

    op: SchemaOp
    source: SSAValue
    width: int
    rows: Dim


def reading_of(op: Operation, choice: Choice, program: Program) -> Reading | None:
    """How an op reads the places of a choice: it picks, looks up or adds up."""
    if not op.results or not is_single(op.results[0]):
        return None
    if isinstance(op, aten.GatherDefault):
        width = _width(op, op.operands[0], choice.among, choice)
        return None if width is None else Reading(op, op.operands[0], width, _rows(op))
    if isinstance(op, aten.ScatterAddDefault):
        return _adds_up(op, choice, program)
    return _looks_up(op, choice) if isinstance(op, aten.IndexTensor) else None


def _adds_up(op: SchemaOp, choice: Choice, program: Program) -> Reading | None:
    """Rows are added to zeros."""
    operand, rows = op.operands[0], op.operands[2]
    width = _width(op, rows, None, choice)
    if width is None or _width(op, operand, choice.among, choice) is None:
        return None
    if isinstance(operand.owner, aten.ExpandDefault):
        operand = operand.owner.operands[0]
    return Reading(op, rows, width, _rows(op)) if number_of(operand, program) == 0 else None


def _looks_up(op: SchemaOp, choice: Choice) -> Reading | None:
    """Rows of a table, which are no matrices: a product with all of those would be too much."""
    found, shape = looked_up(op.results[0]), static_dims(op.operands[0]) or ()
    if found is None or len(shape) > 2:
        return None
    return Reading(op, found.table, prod(shape[1:]), 1)


def _width(op: SchemaOp, source: SSAValue, along: Dim | None, choice: Choice) -> int | None:
    """Numbers at each place, if an op reads a source along the axis of places, all of it.

    There are `along` of them on that axis of the source, or as many as places.
    """
    places = op.operands[1]
    shape = dims(places.type)
    at = axis(op.arg("dim"), len(shape))
    width, along = extent_of(shape[at + 1 :]), shape[at] if along is None else along
    if not isinstance(width, int):
        return None
    sizes = (*shape[:at], along, *shape[at + 1 :])
    if dims(source.type) != sizes or not is_chosen(shape, at, choice):
        return None
    if width != 1:
        if isinstance(places.owner, aten.ExpandDefault):
            places = places.owner.operands[0]
        if dims(places.type) != (*shape[: at + 1], *[1] * (len(shape) - at - 1)):
            return None
    return width if chosen_by(places) == choice else None


def _rows(op: SchemaOp) -> Dim:
    """Rows of places, in front of the axis that they count along."""
    shape = dims(op.operands[1].type)
    return settled(extent_of(shape[: axis(op.arg("dim"), len(shape))]))


def is_chosen(shape: Sequence[Dim], at: int, choice: Choice) -> bool:
    """Whether rows take what a choice took, or each of what it took is a row that takes itself."""
    taken = (settled(extent_of(shape[:at])), shape[at])
    return taken in ((choice.rows, choice.taken), (choice.every, 1))

"""Analysis of `topk` as a choice of experts, and of the readers of its indices."""

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
"""The most numbers of a row whose maxima are removed one by one."""
MOST_TAKEN = 32
"""The most maxima that are removed, where a row is too long to compare every two numbers."""
COMPARED = 128
"""The most numbers of a row of which every two are compared."""


@dataclass(frozen=True)
class Choice:
    """`topk` along the last axis.

    Attributes:
        op: the `topk`.
        rows: how many choices there are: one for each token, possibly a dynamic number.
        among: the number of experts in each choice.
        taken: the number of experts taken in each choice.
    """

    op: SchemaOp
    rows: Dim
    among: int
    taken: int

    @property
    def every(self) -> Dim:
        """Return the number of experts taken in all choices."""
        return settled(Size.of(self.rows) * self.taken)


def choice_of(op: SchemaOp) -> Choice | Refusal:
    """Return the choice that a `topk` makes, or why ranks cannot express it."""
    if refusal := not_held(op.operands[0]):
        return refusal
    if element(op.operands[0].type) != f32:
        name = dtype_name(element(op.operands[0].type))
        return Refusal(f"differences of {name} have too small a range to be scaled to 0 and 1")
    shape = dims(op.operands[0].type)
    if not shape:
        return Refusal("the operand has no dimension")
    at = axis(op.arg("dim"), len(shape))
    if at != len(shape) - 1:
        return Refusal("the op chooses along another axis than the last")
    among = shape[at]
    if not isinstance(among, int):
        return Refusal("the number of elements to choose from is known only at run time")
    taken = op.arg("k")
    if not isinstance(taken, int) or not taken:
        return Refusal(
            "the op chooses no elements, or a number of them that is known only at run time"
        )
    if among > LONGEST or (among > COMPARED and taken > MOST_TAKEN):
        return Refusal(f"taking {taken} of {among} elements by arithmetic costs more than a kernel")
    return Choice(op, settled(extent_of(shape[:at])), among, taken)


def chosen_by(places: SSAValue) -> Choice | None:
    """Return the choice whose indices a value contains, all of them in order."""
    while isinstance(owner := places.owner, aten.ViewDefault):
        places = owner.operands[0]
    if not isinstance(owner, aten.TopkDefault):
        return None
    choice = choice_of(owner)
    return choice if isinstance(choice, Choice) else None


def readers(places: SSAValue) -> Iterator[Operation]:
    """Return the ops that read indices, also through views."""
    for use in places.uses:
        if isinstance(use.operation, aten.ViewDefault | aten.ExpandDefault):
            yield from readers(use.operation.results[0])
        elif not is_dead(use.operation):
            yield use.operation


def is_single(value: SSAValue) -> bool:
    """Whether a value is a float32 tensor with static sizes, which the ranks of experts require."""
    return (
        isinstance(value.type, TensorType)
        and element(value.type) == f32
        and is_known(dims(value.type))
        and not_held(value) is None
    )


@dataclass(frozen=True)
class LookedUp:
    """Rows of a constant table: `table[places]`, a row for each chosen element."""

    table: SSAValue
    places: SSAValue
    choice: Choice


def looked_up(value: SSAValue) -> LookedUp | None:
    """Return the look-up that produces a value, if one list of indices selects rows of a table."""
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
    """An op that reads the chosen indices, and that can compute with ranks in place of indices.

    Attributes:
        op: the op.
        source: its data operand. Shapes: `[rows, among, width]` if the op selects elements,
            `[rows, taken, width]` (or a row for each chosen element) if it adds them up,
            `[among, width]` if it looks up rows.
        width: the number of elements at each index.
        rows: the number of choices; a dynamic number is allowed.
    """

    op: SchemaOp
    source: SSAValue
    width: int
    rows: Dim


def reading_of(op: Operation, choice: Choice, program: Program) -> Reading | None:
    """Return how an op reads the indices of a choice: as a gather, a look-up or a scatter-add."""
    if not op.results or not is_single(op.results[0]):
        return None
    if isinstance(op, aten.GatherDefault):
        width = _width(op, op.operands[0], choice.among, choice)
        return None if width is None else Reading(op, op.operands[0], width, _rows(op))
    if isinstance(op, aten.ScatterAddDefault):
        return _adds_up(op, choice, program)
    return _looks_up(op, choice) if isinstance(op, aten.IndexTensor) else None


def _adds_up(op: SchemaOp, choice: Choice, program: Program) -> Reading | None:
    """Match a `scatter_add` of rows to zeros."""
    operand, rows = op.operands[0], op.operands[2]
    width = _width(op, rows, None, choice)
    if width is None or _width(op, operand, choice.among, choice) is None:
        return None
    if isinstance(operand.owner, aten.ExpandDefault):
        operand = operand.owner.operands[0]
    return Reading(op, rows, width, _rows(op)) if number_of(operand, program) == 0 else None


def _looks_up(op: SchemaOp, choice: Choice) -> Reading | None:
    """Match a look-up of table rows that are not matrices; products with all cost too much."""
    found, shape = looked_up(op.results[0]), static_dims(op.operands[0]) or ()
    if found is None or len(shape) > 2:
        return None
    return Reading(op, found.table, prod(shape[1:]), 1)


def _width(op: SchemaOp, source: SSAValue, along: Dim | None, choice: Choice) -> int | None:
    """Return the number of elements at each index, if an op indexes a whole axis of its source.

    That axis of the source has `along` elements, or as many as there are indices.
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
    """Return the number of index rows, before the axis that they index."""
    shape = dims(op.operands[1].type)
    return settled(extent_of(shape[: axis(op.arg("dim"), len(shape))]))


def is_chosen(shape: Sequence[Dim], at: int, choice: Choice) -> bool:
    """Whether the rows are a choice's elements, or one row for each chosen element."""
    taken = (settled(extent_of(shape[:at])), shape[at])
    return taken in ((choice.rows, choice.taken), (choice.every, 1))

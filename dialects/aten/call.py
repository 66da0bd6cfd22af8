"""The style of a call: arguments by position or by name, explicit None; and the base of call
ops.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, ClassVar, Literal, Self

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation

from stepwell.dialects.aten.schema import Argument, Schema

SEGMENTS = "operandSegmentSizes"
KEYWORDS_FROM = "aten.keywords_from"
"""Attribute: the first argument that is passed by name although it could be passed by position."""
EXPLICIT_NONE = "aten.explicit_none"
"""Attribute: the optional tensors for which the call has an explicit None that could be omitted."""

Manner = Literal["position", "name", "filler"]


def call_layout(
    arguments: Sequence[Argument], given: Container[str], first_keyword: str | None
) -> dict[str, Manner]:
    """Decide how each argument is written in a call: by position, by name, or as a None that fills
    a gap.

    Only an optional tensor can fill a gap, because an omitted one and None are the same operand.
    """
    layout: dict[str, Manner] = {}
    by_position = True
    for index, argument in enumerate(arguments):
        if argument.keyword_only or argument.name == first_keyword:
            by_position = False
        if argument.name in given:
            layout[argument.name] = "position" if by_position else "name"
        elif by_position and _bridges(arguments[index:], given, first_keyword):
            layout[argument.name] = "filler"
        else:
            by_position = False
    return layout


def _bridges(rest: Sequence[Argument], given: Container[str], first_keyword: str | None) -> bool:
    """Whether a later argument is passed by position and all before it can be written as None."""
    for argument in rest:
        if argument.keyword_only or argument.name == first_keyword:
            return False
        if argument.name in given:
            return True
        if not (argument.type.is_tensor and argument.type.nullable):
            return False
    return False


def call_style(
    arguments: Sequence[Argument], written: dict[str, Manner], nones: Sequence[str]
) -> dict[str, Attribute]:
    """Return the attributes that record a call's style: arguments by name, explicit Nones."""
    keyword: str | None = None
    if call_layout(arguments, written, None) != written:
        names = (a.name for a in arguments if not a.keyword_only)
        keyword = next((name for name in names if written.get(name) == "name"), None)
    explicit: list[str] = []
    if nones:
        fillers = call_layout(arguments, [n for n in written if n not in nones], keyword)
        explicit = [name for name in nones if fillers.get(name) != "filler"]
    style: dict[str, Attribute] = {}
    if keyword is not None:
        style[KEYWORDS_FROM] = StringAttr(keyword)
    if explicit:
        style[EXPLICIT_NONE] = ArrayAttr([StringAttr(name) for name in explicit])
    return style


class CallOp(IRDLOperation):
    """An op that represents a call by its schema."""

    SCHEMA: ClassVar[Schema]
    HAS_SEGMENTS: ClassVar[bool]

    def group_sizes(self) -> tuple[int, ...]:
        """Return the number of operands of each group: one group per tensor argument, then
        `dynamic`.
        """
        raise NotImplementedError

    @classmethod
    def from_arguments(
        cls, given: dict[str, Any], result_types: Sequence[Attribute] | None = None
    ) -> Self:
        """Create an op from a dictionary of schema arguments; omitted ones keep their default."""
        raise NotImplementedError

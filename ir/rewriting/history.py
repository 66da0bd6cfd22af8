"""The record of a lowering: applications, refusals, visits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from xdsl.ir import Operation

from stepwell.ir.declared.numerics import TakenDeviation
from stepwell.ir.diagnostics import describe_op, node_name, op_name

if TYPE_CHECKING:
    from stepwell.ir.rewriting.rewriter import Rewriter


@dataclass(frozen=True)
class Event:
    """One application: the erased ops and the created ops (op name, node name). Erased are also ops
    that are dead by the others' removal.

    `absorbed_by` names existing ops that now also compute the results of the erased ones.
    """

    rewrite: str
    root: tuple[str, str | None]
    erased: tuple[tuple[str, str | None], ...]
    created: tuple[tuple[str, str | None], ...]
    where: str | None
    absorbed_by: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True)
class RefusalRecord:
    """A refusal, with the op that it concerns, and its `saving`."""

    rewrite: str
    op: str
    node: str | None
    where: str | None
    reason: str
    saving: float = 0.0


class Watch(Protocol):
    """The interface of an observer that is called at each application of a rewrite."""

    def before(self, rewrite: Any, op: Operation, match: Any) -> None:
        """Handle a match of `rewrite` at `op`, before it is applied."""
        ...

    def after(self, rewrite: Any, rewriter: Rewriter) -> None:
        """Handle the application of a rewrite; its event is the last event of the history."""
        ...


@dataclass
class History:
    """The record of a lowering: applications, refusals, visits, dead ops removed.

    `watch` is called at each application (`stepwell check` uses it).
    """

    events: list[Event] = field(default_factory=list[Event])
    refusals: dict[tuple[str, str, str | None, str], RefusalRecord] = field(
        default_factory=dict[tuple[str, str, str | None, str], RefusalRecord]
    )
    deviations: list[TakenDeviation] = field(default_factory=list[TakenDeviation])
    visits: int = 0
    swept: int = 0
    watch: Watch | None = None

    def refuse(self, rewrite: str, op: Operation, reason: str, saving: float = 0.0) -> None:
        """Record a refusal; a repeated one is recorded once."""
        node, name = node_name(op.location), op_name(op)
        key = (rewrite, name, node, reason)
        if key not in self.refusals:
            self.refusals[key] = RefusalRecord(rewrite, name, node, describe_op(op), reason, saving)

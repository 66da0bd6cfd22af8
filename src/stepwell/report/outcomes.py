"""What became of each op of a model in a lowering: where it runs, or what it was fused into.

An op is tracked by its location: rewrites copy it to the ops that they create, and what several ops
were fused into has the location of the costliest (`Rewriter.name_fused`). This is the only module
that decides which ops an op of the lowered program came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation

from stepwell.backends.inventory import computes, places
from stepwell.ir.diagnostics import node_name, op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.history import Event
from stepwell.ir.work import operations


@dataclass(frozen=True)
class Outcome:
    """What became of an op.

    Attributes:
        op, method, node: the op, the method that contains it, and its node's name.
        where: `delegate 0`, `delegate 0, 1`, `kernel`, `backend`, `split`, `folded`, `removed`.
        into: the node into which it was folded, which ops of the lowered program have.
        became: the names of the final ops that have the node's name.
        by: the rewrites that were applied to the op, in order.
    """

    op: Operation
    method: str
    node: str
    where: str
    into: str | None
    became: tuple[str, ...]
    by: tuple[str, ...]


Held = Mapping[str, Sequence[tuple[str, str]]]
"""Node → (op name, place) of each op of the lowered program that has its name."""


def outcomes(
    source: Program, lowered: Program, outside: Iterable[Operation], events: Iterable[Event]
) -> list[Outcome]:
    """Return the outcome of each op of `source` that computes, in order.

    Args:
        source: the program before the lowering.
        lowered: the program after it.
        outside: the ops of `lowered` that kernels run (`Target.outside`).
        events: the history of the lowering.
    """
    final: dict[str, list[tuple[str, str]]] = {}
    for _, op, place in places(lowered, outside):
        final.setdefault(node_of(op), []).append((op_name(op), place))
    acted: dict[str, list[Event]] = {}
    for event in events:
        for node in {node for _, node in (event.root, *event.erased) if node is not None}:
            acted.setdefault(node, []).append(event)
    found: list[Outcome] = []
    for method, func in source.methods.items():
        for op in filter(computes, func.body.block.ops):
            node = node_of(op)
            held, about = final.get(node, []), acted.get(node, [])
            where, into = _where(op, node, held, about, final)
            by = tuple(dict.fromkeys(event.rewrite for event in about))
            found.append(Outcome(op, method, node, where, into, tuple(n for n, _ in held), by))
    next_of = {one.node: one.into for one in found}
    return [_ended(one, next_of, final) for one in found]


def fused(found: Iterable[Outcome]) -> dict[str, tuple[str, ...]]:
    """Return the nodes that were folded into each node, the costliest first."""
    nodes: dict[str, tuple[str, ...]] = {}
    for one in sorted(found, key=lambda one: -operations(one.op)):
        if one.into is not None:
            nodes[one.into] = (*nodes.get(one.into, ()), one.node)
    return nodes


def node_of(op: Operation) -> str:
    """Return the name of an op's node; if it has none, that of its result, or of the op."""
    hints = (result.name_hint for result in op.results if result.name_hint)
    return node_name(op.location) or next(hints, "") or op_name(op)


def _where(
    op: Operation,
    node: str,
    held: Sequence[tuple[str, str]],
    events: Sequence[Event],
    final: Held,
) -> tuple[str, str | None]:
    kinds = {place for _, place in held}
    if len(kinds) == 1:
        return next(iter(kinds)), None
    if kinds and all(kind.startswith("delegate") for kind in kinds):
        numbers = sorted(int(kind.removeprefix("delegate ")) for kind in kinds)
        return f"delegate {', '.join(map(str, numbers))}", None
    if kinds:
        return "split", None
    for event in reversed(events):
        if event.absorbed_by:
            return "folded", event.absorbed_by[0][1]
        if event.root[1] not in (node, None):
            return "folded", event.root[1]
        if event.root[1] == node and not event.created:
            return "removed", None
    return _into_reader(op, final)


def _into_reader(op: Operation, final: Held) -> tuple[str, str | None]:
    """Return the final ops of an op's nearest user, into which the op was folded."""
    for reader in _readers(op):
        if node_of(reader) in final:
            return "folded", node_of(reader)
    return "removed", None


def _readers(op: Operation) -> Iterator[Operation]:
    """Yield the users of an op, then theirs."""
    waiting, seen = [op], {op}
    while waiting:
        readers = {use.operation: None for o in waiting for r in o.results for use in r.uses}
        waiting = [reader for reader in readers if reader not in seen]
        seen.update(waiting)
        yield from waiting


def _ended(one: Outcome, next_of: Mapping[str, str | None], final: Held) -> Outcome:
    """Follow the nodes into which an op was folded to the one that is left, if one is."""
    into, seen = one.into, {one.node}
    while into is not None and into not in final and into not in seen:
        seen.add(into)
        into = next_of.get(into)
    if one.where != "folded" or into in final:
        return replace(one, into=into)
    return replace(one, where="removed", into=None)

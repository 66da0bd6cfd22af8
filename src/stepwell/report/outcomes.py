"""What became of each op of a model in a lowering: where it runs, or what it was fused into.

An op is tracked by its location: rewrites copy it to the ops that they create, and what several ops
were fused into has the location of the costliest (`Rewriter.name_fused`). This is the only module
that decides which ops an op of the lowered program came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation

from stepwell.backends.inventory import computes, places
from stepwell.ir.diagnostics import module_path, node_name, op_name, source_line
from stepwell.ir.program import Program
from stepwell.ir.rewriting.history import Event
from stepwell.ir.work import operations
from stepwell.report.report import Report
from stepwell.targets.target import Target


@dataclass(frozen=True)
class Fate:
    """The ops to which one op of the model was lowered, or the reasons why it was not.

    Attributes:
        op, node: the op's name and node name in the model.
        method: the method that contains it.
        line, path: the source line and the module of the op, if known.
        cost: multiply-adds or elements written (`costs.operations`).
        where: `delegate 0` (`delegate 0, 1` if in both), `kernel`, `backend`, `split` (in a
            delegate and in a kernel), `folded` or `removed`.
        became: the final ops that have the node's name.
        by: the rewrites that were applied to the op, in order.
        into: the node into which the op was folded.
        why: for an op that is left to a kernel, each refusal with its rewrite.
    """

    op: str
    node: str
    method: str
    line: str | None
    path: str | None
    cost: int
    where: str
    became: tuple[str, ...]
    by: tuple[str, ...]
    into: str | None
    why: tuple[str, ...]


def fate_of(
    op: Operation,
    method: str,
    where: str,
    became: tuple[str, ...] = (),
    by: tuple[str, ...] = (),
    into: str | None = None,
    why: tuple[str, ...] = (),
) -> Fate:
    """Return the fate of an op: its place in the model, and its work, are the op's."""
    at = op.location
    about = op_name(op), node_of(op), method, source_line(at), module_path(at), operations(op)
    return Fate(*about, where, became, by, into, why)


Held = Mapping[str, Sequence[tuple[str, str]]]
"""Node → (op name, place) of each op of the lowered program that has its name."""


def fates(source: Program, lowered: Program, target: Target, report: Report) -> list[Fate]:
    """Return what became of each op of `source` in the program `lowered`; the costliest first."""
    final: dict[str, list[tuple[str, str]]] = {}
    for _, op, place in places(lowered, target.outside(lowered)):
        final.setdefault(node_of(op), []).append((op_name(op), place))
    acted: dict[str, list[Event]] = {}
    for event in report.events:
        for node in {node for _, node in (event.root, *event.erased) if node is not None}:
            acted.setdefault(node, []).append(event)
    refused: dict[str | None, list[str]] = {}
    for refusal in report.refusals:
        refused.setdefault(refusal.node, []).append(f"{refusal.rewrite}: {refusal.reason}")
    found: list[Fate] = []
    for method, func in source.methods.items():
        for op in filter(computes, func.body.block.ops):
            node = node_of(op)
            held, about = final.get(node, []), acted.get(node, [])
            where, into = _where(op, node, held, about, final)
            why = tuple(refused.get(node, ())) if where in ("kernel", "split") else ()
            if where == "kernel" and not why:
                why = (f"{report.target} has no operator for it",)
            by = tuple(dict.fromkeys(event.rewrite for event in about))
            found.append(fate_of(op, method, where, tuple(n for n, _ in held), by, into, why))
    next_of = {one.node: one.into for one in found}
    return sorted((_ended(one, next_of, final) for one in found), key=lambda fate: -fate.cost)


def fused(found: Iterable[Fate]) -> dict[str, tuple[str, ...]]:
    """Return the nodes that were folded into each node, in the order of `found`."""
    nodes: dict[str, tuple[str, ...]] = {}
    for one in found:
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
    waiting, seen = [op], {op}
    while waiting:
        readers = {use.operation: None for o in waiting for r in o.results for use in r.uses}
        waiting = [reader for reader in readers if reader not in seen]
        seen.update(waiting)
        for reader in waiting:
            if node_of(reader) in final:
                return "folded", node_of(reader)
    return "removed", None


def _ended(one: Fate, next_of: Mapping[str, str | None], final: Held) -> Fate:
    """Follow the nodes into which an op was folded to the one that is left, if one is."""
    into, seen = one.into, {one.node}
    while into is not None and into not in final and into not in seen:
        seen.add(into)
        into = next_of.get(into)
    if one.where != "folded" or into in final:
        return replace(one, into=into)
    return replace(one, where="removed", into=None)

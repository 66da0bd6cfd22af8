"""Localization of the first differing value in the model, for a pass that was not observed."""

from __future__ import annotations

from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from stepwell.ir.diagnostics import describe_op, node_name, op_name
from stepwell.ir.rewriting.rewrite import Bound
from stepwell.validation.compare import Difference, differs
from stepwell.validation.recording import Recording
from stepwell.validation.result import Finding
from stepwell.validation.step_observer import describe_bound


def locate(
    step: str, what: str, difference: Difference, before: Recording, after: Recording, bound: Bound
) -> Finding:
    """Return the first node of the model whose value differs, for a pass that was not observed."""
    old: dict[tuple[str, str], tuple[Any, Any]] = {}
    for value, held in before.values.items():
        if (node := _node(value)) is not None:
            old[node, str(value.type)] = (held, value.owner)
    new: dict[tuple[str, str], tuple[SSAValue, Any]] = {}
    for value, held in after.values.items():
        if (node := _node(value)) is not None and (node, str(value.type)) in old:
            # The last op that a node was lowered to represents it.
            new.pop((node, str(value.type)), None)
            new[node, str(value.type)] = (value, held)
    for (node, type_), (value, held) in new.items():
        earlier, owner = old[node, type_]
        found = differs(earlier, held, bound, against="tensor")
        if found is not None:
            return Finding(
                step,
                None,
                op_name(owner),
                node,
                _described(owner) or _described(value.owner),
                before.sample.label,
                str(found),
                found.largest,
                describe_bound(bound),
            )
    return Finding(
        step,
        None,
        None,
        None,
        None,
        before.sample.label,
        f"{what}: {difference}",
        difference.largest,
        describe_bound(bound),
    )


def _described(owner: Operation | Block) -> str | None:
    return describe_op(owner) if isinstance(owner, Operation) else None


def _node(value: Any) -> str | None:
    owner = value.owner
    return node_name(owner.location) if hasattr(owner, "location") else None

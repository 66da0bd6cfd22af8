"""Name what is wrong: the operators of both programs at the place where they part."""

from __future__ import annotations

import re

from xdsl.ir import Operation

from stepwell.ir.core import StateOp, WeightOp
from stepwell.ir.diagnostics import module_path, node_name, op_name, source_line
from stepwell.validation.artifacts.matching import Correspondence, Parting
from stepwell.validation.artifacts.verdict import Kind, Wrong

LONGEST = 160
"""The most characters of an operator's text."""


def wrong_of(place: Parting, kind: Kind = "unknown", why: str | None = None) -> Wrong:
    """Describe where two programs part."""
    ops = [op for op in place.ops if not isinstance(op, WeightOp)]
    last = place.value.owner
    assert isinstance(last, Operation)
    nodes = tuple(name for op in ops if (name := node_name(op.location)) is not None)
    by = [op for op in place.by if not isinstance(op, WeightOp)]
    return Wrong(
        spelled(last),
        last.key.data if isinstance(last, StateOp) else node_name(last.location),
        module_path(last.location),
        source_line(last.location),
        nodes,
        " and ".join(map(spelled, by[-3:])) or None,
        place.distance,
        place.allowed,
        kind,
        why,
    )


def spelled(op: Operation) -> str:
    """Return an operator with its attributes, without operands and types."""
    if isinstance(op, StateOp):
        return f"the buffer {op.key.data}"
    text = str(op).partition("\n")[0]
    name = op_name(op)
    inside = text.partition("(")[2].rpartition(") :")[0]
    inside = re.sub(r"\[%[^\]]*\]", "", inside)  # A list of operands.
    told = [
        part for part in inside.split(", ") if part and ("=" in part or not part.startswith("%"))
    ]
    return f"{name}({', '.join(told)})"[:LONGEST]


def wrong_kernel_of(op: Operation, source: Operation | None, kind: Kind, why: str | None) -> Wrong:
    """Describe an operator of the artifact whose kernel computes something else than it means.

    Args:
        op: the artifact's operator.
        source: the operator of the source that computes the same value, if it was found.
        kind, why: what the difference is, and its cause if it is known.
    """
    place = op if source is None else source
    name = node_name(place.location)
    return Wrong(
        spelled(place),
        name,
        module_path(place.location),
        source_line(place.location),
        () if name is None else (name,),
        spelled(op) + (", whose kernel computes something else" if why is None else ""),
        kind=kind,
        why=why,
    )


def errors_of(matches: Correspondence) -> dict[str, float]:
    """Return how far the nearest value of the artifact is from the result of each node, relative
    to the largest number of the result; 0 for values inside an operator whose result is right.
    """
    errors: dict[str, float] = {}
    for value, held in matches.source.prints.items():
        owner = value.owner
        name = node_name(owner.location) if isinstance(owner, Operation) else None
        if name is not None:
            near = matches.nearest.get(value, []) if value in matches.lost else []
            share = near[0].distance / max(held.scale, 1e-30) if near else 0.0
            errors[name] = max(errors.get(name, 0.0), share)
    return errors

"""Advice: model changes that leave fewer operations to kernels, the costliest operations first.

A refusal states a fact about one operation. Most refusals lead to one of the few changes in
`CHANGES`. Operations that no known change helps are only counted.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from stepwell.ir.diagnostics import node_name, op_name, source_line
from stepwell.ir.program import Program
from stepwell.ir.rewriting.history import RefusalRecord
from stepwell.ir.work import operations

NOTHING = ""
CHANGES: tuple[tuple[str, str], ...] = (
    (r"eval mode|for training|statistics are", "export it in eval mode: model.eval()"),
    (
        r"(is|are) not quantized",
        "quantize it first: --quantize int8 of a file.py:callable, or PT2E in your own code",
    ),
    (
        r"symbolic|not known, not even|known ahead of time|(size|shape|length)\b.* at run time",
        "fix its sizes: --sizes max (sizes='max' in Python), or export it without dynamic shapes",
    ),
    (
        r"several dtypes|promotes|another dtype|computes in float32|float32 (only|values|weights)",
        "give it one dtype that the target computes in: model.float(), or .to(torch.float32)",
    ),
    (
        r"(computed|known only) at run time|\bis an input\b",
        "make it a constant of the model: a Python number, a parameter or a buffer",
    ),
    (
        r"costs? less|nothing is saved|as fast|so few|no such operator|has no operator|has none",
        NOTHING,
    ),
)
"""A pattern of a refusal's text → the change; the first pattern that matches applies."""

MOST_CHANGES, MOST_KINDS, MOST_LINES = 6, 6, 6


@dataclass(frozen=True)
class Left:
    """An operation of the model that a kernel of the runtime runs.

    Attributes:
        op: the op's name in the model, if known.
        line: the line of the model's source.
        work: multiply-adds or elements written (`costs.operations`).
        why: the refusals of the rewrites that were tried, each `rewrite: reason`.
    """

    op: str
    line: str | None
    work: int
    why: tuple[str, ...]


@dataclass(frozen=True)
class Advice:
    """A suggested change of a model, and the operations that it concerns.

    Attributes:
        change: the change to make; empty if none is known to help.
        share: the fraction of the program's work in these operations.
        ops: the counts by op name.
        lines: the lines of the model's source.
        reasons: the distinct refusals for them, the most frequent first.
    """

    change: str
    share: float
    ops: Counter[str]
    lines: tuple[str, ...]
    reasons: tuple[str, ...]


def left_to_kernels(
    program: Program, outside: Sequence[Operation], refusals: Iterable[RefusalRecord]
) -> tuple[tuple[Left, ...], int]:
    """Return the operations that the runtime's kernels run, and the work of the whole program.

    Args:
        program: the lowered program.
        outside: the ops that kernels run (`Target.outside`).
        refusals: the refusals of the lowering.
    """
    refusal_records: dict[str | None, list[RefusalRecord]] = {}
    for record in refusals:
        refusal_records.setdefault(record.node, []).append(record)
    if not outside:
        return (), 0
    found: dict[str, Left] = {}
    for number, op in enumerate(outside):
        node = node_name(op.location)
        about = refusal_records.get(node, []) if node else []
        before = found.get(node or "")
        found[node or f"#{number}"] = Left(
            before.op if before else op_name(op),
            source_line(op.location),
            operations(op) + (before.work if before else 0),
            tuple(f"{record.rewrite}: {record.reason}" for record in about),
        )
    blocks = (block for func in program.methods.values() for block in func.body.blocks)
    total = sum(operations(op) for block in blocks for op in block.ops)
    return tuple(found.values()), total


def advise(left: Iterable[Left], total: int) -> list[Advice]:
    """Return the changes, the costliest first, then the operations that no known change helps."""
    groups: dict[str, list[tuple[Left, str]]] = {}
    for one in left:
        change, reason = _decisive(one.why)
        groups.setdefault(change, []).append((one, reason))
    found = [_advice(change, members, total) for change, members in groups.items()]
    return sorted(found, key=lambda a: (a.change == NOTHING, -a.share))


def _advice(change: str, members: list[tuple[Left, str]], total: int) -> Advice:
    return Advice(
        change,
        sum(one.work for one, _ in members) / (total or 1),
        Counter(one.op for one, _ in members),
        tuple(dict.fromkeys(one.line for one, _ in members if one.line)),
        tuple(text for text, _ in Counter(reason for _, reason in members if reason).most_common()),
    )


def _decisive(why: Sequence[str]) -> tuple[str, str]:
    """Return (the change, its reason), from a lowering's refusal first, else from another
    rewrite's.
    """
    by_weight = sorted(why, key=lambda said: not said.startswith(("lower", "explain")))
    reasons = [said.partition(": ")[2] or said for said in by_weight]
    for reason in reasons:
        for pattern, change in CHANGES:
            if re.search(pattern, reason):
                return change, reason
    if not reasons:
        return NOTHING, ""
    return f"address the reason: {reasons[0]}", reasons[0]


def advice_lines(left: Sequence[Left], total: int) -> Iterator[str]:
    """Yield the advice as lines of a report; nothing if no operation is left to a kernel."""
    found = advise(left, total)
    changes = [advice for advice in found if advice.change != NOTHING]
    if changes:
        yield "model changes, the most effective first:"
    for advice in changes[:MOST_CHANGES]:
        yield f"{advice.share:6.1%} of the work: {advice.change}"
        yield f"        {_kinds(advice.ops)}" + (
            f" at {_some(advice.lines)}" if advice.lines else ""
        )
        reason, *others = advice.reasons
        if reason not in advice.change:
            yield f"        {reason}" + (f" (and {len(others)} more)" if others else "")
    if len(changes) > MOST_CHANGES:
        yield f"        … and {len(changes) - MOST_CHANGES} smaller ones (stepwell explain)"
    for advice in found:
        if advice.change == NOTHING:
            yield f"{advice.share:6.1%} of the work stays with kernels; no change is known to help:"
            yield f"        {_kinds(advice.ops)}"


def _kinds(ops: Counter[str]) -> str:
    shown = ", ".join(f"{count} × {name}" for name, count in ops.most_common(MOST_KINDS))
    rest = len(ops) - MOST_KINDS
    return shown + (f" and {rest} other kinds" if rest > 0 else "")


def _some(lines: Sequence[str]) -> str:
    rest = len(lines) - MOST_LINES
    return ", ".join(lines[:MOST_LINES]) + (f" and {rest} more lines" if rest > 0 else "")

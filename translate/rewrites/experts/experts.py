"""A mixture of experts: the products with each token's own experts, and their costs.

A token's experts are looked up: `index` copies their weights token by token outside delegates, and
a product packs the copy again. A product with all experts is one matrix product, whose weights are
packed once and read once for all tokens. It is much faster for a prompt, and for one token if few
experts are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.costs import costs_of
from stepwell.ir.axes.alignment import extent_of
from stepwell.ir.axes.boxes import estimated
from stepwell.ir.diagnostics import op_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal
from stepwell.ir.sizes.size import settled
from stepwell.ir.types import dims
from stepwell.translate.decompositions.products import is_normal
from stepwell.translate.rewrites.building import static_dims
from stepwell.translate.rewrites.experts.routing import (
    Choice,
    LookedUp,
    is_single,
    looked_up,
    readers,
    reading_of,
)


@dataclass(frozen=True)
class Expert:
    """A product of each row with its own expert's weight.

    Attributes:
        op: the `bmm`.
        weights: its weights, `[experts, out, in]`, or `[experts, in, out]` if `turned`.
        rows: the other operand: `[chosen, in, 1]`, or `[chosen, 1, in]` if `turned`.
    """

    op: SchemaOp
    weights: LookedUp
    rows: SSAValue
    turned: bool

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the numbers of input and of output features of an expert."""
        shape = static_dims(self.weights.table)
        assert shape is not None
        return (shape[1], shape[2]) if self.turned else (shape[2], shape[1])


def expert_of(op: Operation) -> Expert | None:
    """Return the experts by which a batched product multiplies, one for each row."""
    if not isinstance(op, aten.BmmDefault) or not is_single(op.results[0]):
        return None
    for turned in (False, True):
        rows, weights = op.operands if turned else reversed(op.operands)
        found, shape = looked_up(weights), dims(rows.type)
        if found is not None and shape[1 if turned else 2] == 1:
            if not weights.has_one_use():
                return None
            return Expert(op, found, rows, turned)
    return None


def costs_more(choice: Choice, program: Program) -> Refusal | None:
    """Refuse if multiplying by the whole table costs more than looking up the chosen rows."""
    costs = costs_of(program.context)
    rows = estimated(choice.rows)
    every = choice.among * (costs.weight + rows * costs.product)
    each = rows * choice.taken * costs.lookup
    if every <= each:
        return None
    return Refusal(
        f"{choice.taken} of {choice.among} for {choice.rows} rows: looking up these weights costs less than multiplying by all"
    )


def repeated_rows(expert: Expert) -> SSAValue | None:
    """Return the operand of `repeat_interleave`, which repeats each row once per chosen expert."""
    choice = expert.weights.choice
    if choice.taken == 1:
        return expert.rows
    merged = expert.rows.owner
    if not isinstance(merged, aten.ViewDefault):
        return None
    copies = merged.operands[0].owner
    if not isinstance(copies, aten.ExpandDefault):
        return None
    before = dims(copies.operands[0].type)
    inner = expert.sizes[0]
    return copies.operands[0] if before == (choice.rows, 1, inner) else None


@dataclass(frozen=True)
class WeightedSum:
    """`Σ factor · (expert(row) + bias)` over the experts that each token takes.

    Attributes:
        op: the sum, over axis 1, which stays with size one.
        expert: the product.
        bias: rows of each expert's bias, if there is one.
        factor: a number for each chosen expert, `[chosen, 1]`, if there is one.
    """

    op: SchemaOp
    expert: Expert
    bias: SSAValue | None
    factor: SSAValue | None


def weighted_sum(op: Operation) -> WeightedSum | None:
    """Match the sum of a token's products, with or without shift and scale."""
    if not isinstance(op, aten.SumDimIntList) or not is_normal(op, (1,)):
        return None
    for scaled, factor in _terms(op.operands[0], aten.MulTensor):
        for product, bias in _terms(scaled, aten.AddTensor):
            expert = expert_of(product.owner) if isinstance(product.owner, SchemaOp) else None
            if expert is not None and _fits(op, expert, factor, bias):
                return WeightedSum(op, expert, bias, factor)
    return None


def _terms(value: SSAValue, kind: type[SchemaOp]) -> Iterator[tuple[SSAValue, SSAValue | None]]:
    """Return a binary op's operands, seen through views: each operand paired with the other."""
    while isinstance(value.owner, aten.ViewDefault):
        value = value.owner.operands[0]
    if not isinstance(op := value.owner, kind):
        yield value, None
    elif len(op.operands) == 2:
        for one, other in (op.operands, reversed(op.operands)):
            while isinstance(one.owner, aten.ViewDefault):
                one = one.owner.operands[0]
            yield one, other


def _fits(op: SchemaOp, expert: Expert, factor: SSAValue | None, bias: SSAValue | None) -> bool:
    """Whether the rows of a token are summed, each with one factor and the bias of its expert."""
    choice, outer = expert.weights.choice, expert.sizes[1]
    if dims(op.operands[0].type) != (choice.rows, choice.taken, outer):
        return False
    if bias is not None:
        held = looked_up(bias)
        if (
            held is None
            or held.choice != choice
            or static_dims(held.table) != (choice.among, outer)
        ):
            return False
    if factor is None:
        return True
    shape = dims(factor.type)
    return shape[-1:] == (1,) and settled(extent_of(shape)) == choice.every


def unready(choice: Choice, program: Program) -> Refusal | None:
    """Refuse unless all readers have a form with all experts that costs less than look-ups."""
    for reader in readers(choice.op.results[1]):
        if reading_of(reader, choice, program) is None and not _is_multiplied(reader, program):
            return Refusal(f"the chosen indices are read by {op_name(reader)} as well")
    return costs_more(choice, program)


def _is_multiplied(op: Operation, program: Program) -> bool:
    """Whether looked-up rows are read by a product that all experts can do at once."""
    if not isinstance(op, aten.IndexTensor):
        return False
    reader = _only_reader(op)
    expert = reader and expert_of(reader)
    if not expert:
        return False
    if repeated_rows(expert) is not None or is_summed(expert):
        return True
    return each_costs_more(expert, program) is None


def is_summed(expert: Expert) -> bool:
    """Whether the only reader of an expert's result is a weighted sum."""
    reader: Operation | None = expert.op
    while isinstance(reader, aten.BmmDefault | aten.ViewDefault | aten.AddTensor | aten.MulTensor):
        reader = _only_reader(reader)
    found = reader and weighted_sum(reader)
    return bool(found) and found.expert.op is expert.op


def each_costs_more(expert: Expert, program: Program) -> Refusal | None:
    """Refuse if multiplying each row by all experts costs more than looking up its expert."""
    choice = expert.weights.choice
    return costs_more(replace(choice, rows=choice.every, taken=1), program)


def _only_reader(op: Operation) -> Operation | None:
    uses = list(op.results[0].uses)
    return uses[0].operation if len(uses) == 1 else None

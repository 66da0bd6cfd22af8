"""Spell `einsum` of two tensors as permutes, views and one `aten.bmm.default`.

Every letter belongs to one of four kinds: in both operands and the result (batch), in both but not
in the result (summed), in one operand and the result (free). Each operand is permuted to
[batch, free, summed] and flattened to three axes. A letter that only one operand has and the
result lacks is refused.

Before:
    %z = aten.einsum.default("bik,jbk->bji", [%x, %y]) : (tensor<2x3x4xf32>, tensor<5x2x4xf32>) -> tensor<2x5x3xf32>
After:
    %0 = aten.permute.default(%y, [1, 2, 0]) : (tensor<5x2x4xf32>) -> tensor<2x4x5xf32>
    %1 = aten.bmm.default(%x, %0) : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
    %z = aten.permute.default(%1, [0, 2, 1]) : (tensor<2x3x5xf32>) -> tensor<2x5x3xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element, tensor
from stepwell.translate.rewrites.building import emit, permute, static_dims, view


@dataclass(frozen=True)
class Contraction:
    """`bmm([batch, left, summed], [batch, summed, right])`, then a permute to `result`."""

    op: SchemaOp
    letters: tuple[str, str]
    result: str
    batch: str
    summed: str
    left: str
    right: str
    sizes: dict[str, int]


@dataclass(frozen=True)
class EinsumToBmm(Rewrite[Contraction]):
    """`einsum` of two tensors to `bmm` between layout ops."""

    name: ClassVar[str] = "einsum-to-bmm"
    bound: ClassVar[Bound] = roundings("the product may be summed in another order")
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.EinsumDefault,)

    def match(self, op: SchemaOp, program: Program) -> Contraction | Refusal | None:
        """Two static tensors of one dtype, distinct letters, none of them in one operand alone."""
        equation = op.arg("equation").replace(" ", "")
        terms, arrow, result = equation.partition("->")
        letters = terms.split(",")
        if len(letters) != 2:
            return Refusal(f"the equation multiplies {len(letters)} tensors, bmm two")
        if "." in equation or not arrow:
            return Refusal("the equation has an ellipsis, or leaves its result implied")
        if any(len(set(part)) != len(part) for part in (*letters, result)):
            return Refusal("a letter repeats in one term, which takes a diagonal")
        shapes = [static_dims(value) for value in op.operands]
        if any(shape is None for shape in shapes):
            return Refusal("the shapes are symbolic")
        if any(element(v.type) != element(op.results[0].type) for v in op.operands):
            return Refusal("the operands have several dtypes")
        sizes: dict[str, int] = {}
        for part, shape in zip(letters, shapes, strict=True):
            for letter, size in zip(part, shape or (), strict=True):
                if sizes.setdefault(letter, size) != size:
                    return Refusal("an axis of 1 is broadcast")
        one, other = (set(part) for part in letters)
        if (one ^ other) - set(result):
            return Refusal("a letter is summed within one operand")
        shared = [letter for letter in letters[0] if letter in other]
        return Contraction(
            op,
            (letters[0], letters[1]),
            result,
            "".join(letter for letter in shared if letter in result),
            "".join(letter for letter in shared if letter not in result),
            "".join(letter for letter in letters[0] if letter not in other),
            "".join(letter for letter in letters[1] if letter not in one),
            sizes,
        )

    def build(self, match: Contraction, rw: Rewriter) -> None:
        """Write both operands in order, the product, and the result in its own order."""

        def size(letters: str) -> int:
            return prod(match.sizes[letter] for letter in letters)

        def ordered(value: SSAValue, letters: str, *groups: str) -> SSAValue:
            order = [letters.index(letter) for letter in "".join(groups)]
            return view(rw, permute(rw, value, order), [size(group) for group in groups])

        batch, summed, left, right = match.batch, match.summed, match.left, match.right
        one, other = match.op.operands
        result = match.op.results[0]
        a = ordered(one, match.letters[0], batch, left, summed)
        b = ordered(other, match.letters[1], batch, summed, right)
        shape = tensor([size(batch), size(left), size(right)], element(result.type))
        product = emit(rw, aten.BmmDefault.make(a, b, result_types=[shape]))
        letters = batch + left + right
        spread = view(rw, product, [match.sizes[letter] for letter in letters])
        order = [letters.index(letter) for letter in match.result]
        rw.replace(match.op, [permute(rw, spread, order)])

"""Decompose `topk` into arithmetic: which element is in which slot, as ones and zeros.

Either every two elements of a row are compared, and an element's rank is the count of those before
it; or the maximum is found, marked and removed, as often as elements are taken. The cheaper form is
written: pairs for short rows, maxima for few of many. Both put the first of equal elements first.
Numbers are scaled to less than 2¹²⁶ in magnitude first. Two of them that differ, differ by 2⁻²³ or
more, which no node flushes to zero, and a factor of 2¹²⁷ makes the difference greater than 1.
"""

from __future__ import annotations

from math import floor, inf, log2

import torch
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.xnnpack.costs import Costs, costs_of
from stepwell.ir.dtypes import f32
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import tensor
from stepwell.translate.range_analysis import interval
from stepwell.translate.rewrites.building import cat, emit, view
from stepwell.translate.rewrites.experts.routing import Choice

EXPONENT = 126
"""Two numbers below 2¹²⁶ have a difference below 2¹²⁷."""
STEEP = 2.0**127
ORDINARY = 2.0**64
"""A bound that no activation should reach, if none is known and `numerics` is "finite"."""

PASSES = 100
"""The cost of finding, marking and removing a maximum, in passes over the numbers.

For rows of 60 to 128 numbers, 12 to 16 of them took 7 to 12 ns a number (AMD EPYC).
"""


def slots_of(rw: Rewriter, choice: Choice) -> SSAValue:
    """Compute `[rows, taken, among]`: 1 for the slot's element, 0 elsewhere."""
    scaled = _scaled(rw, choice)
    return (
        _by_maxima(rw, choice, scaled)
        if maxima_cost_less(choice, costs_of(rw.program.context))
        else _by_pairs(rw, choice, scaled)
    )


def maxima_cost_less(choice: Choice, costs: Costs) -> bool:
    """Whether removing the maximum again and again costs less than comparing every two elements."""
    maxima = choice.taken * PASSES * costs.element
    return maxima < choice.among * (3 * costs.addition + costs.element)


def _scaled(rw: Rewriter, choice: Choice) -> SSAValue:
    """Scale the numbers below 2¹²⁶, the greatest first: `[rows, among]`."""
    scores = view(rw, choice.op.operands[0], [choice.rows, choice.among])
    most = interval(choice.op.operands[0], rw.program).most
    power = EXPONENT - max(floor(log2(ORDINARY if most == inf else max(most, 2.0**-100))) + 1, -1)
    factor = 2.0**power if choice.op.arg("largest") else -(2.0**power)
    return emit(rw, aten.MulScalar.make(scores, factor))


def _by_pairs(rw: Rewriter, choice: Choice, scaled: SSAValue) -> SSAValue:
    """Compare every two elements, and select the element whose rank is the slot's."""
    rows, among, taken = choice.rows, choice.among, choice.taken
    pairs = tensor([rows, among, among], f32)
    one, other = view(rw, scaled, [rows, among, 1]), view(rw, scaled, [rows, 1, among])
    apart = emit(rw, aten.SubTensor.make(other, one, result_types=[pairs]))
    # +1 above the diagonal, -1 below: there `not less` is counted, as 1 - `greater`.
    turned = torch.ones(among, among).triu(1) - torch.ones(among, among).tril(-1)
    steep = rw.constant(turned * STEEP, "steep")
    apart = emit(rw, aten.MulTensor.make(apart, steep, result_types=[pairs]))
    before = emit(rw, aten.ClampDefault.make(apart, 0.0, 1.0, result_types=[pairs]))
    signs = rw.constant(turned, "signs")
    before = emit(rw, aten.MulTensor.make(before, signs, result_types=[pairs]))
    total = tensor([rows, among, 1], f32)
    ranks = emit(rw, aten.SumDimIntList.make(before, [2], True, result_types=[total]))
    ranks = view(rw, ranks, [rows, 1, among])
    distance = torch.arange(among)[None, :] - torch.arange(taken)[:, None]
    result_type = tensor([rows, taken, among], f32)
    distances = rw.constant(distance.float(), "distances")
    apart = emit(rw, aten.AddTensor.make(ranks, distances, result_types=[result_type]))
    apart = emit(rw, aten.MulTensor.make(apart, apart, result_types=[result_type]))
    return _rectified(rw, rw.constant(torch.ones(1), "one"), apart)


def _by_maxima(rw: Rewriter, choice: Choice, left: SSAValue) -> SSAValue:
    """Select the first of the greatest, slot by slot; a selected element falls below all others."""
    rows, among = choice.rows, choice.among
    column, ones = tensor([rows, 1], f32), rw.constant(torch.ones(1), "one")
    in_front = rw.constant(torch.ones(among, among).tril(-1), "in_front")
    slots: list[SSAValue] = []
    for slot in range(choice.taken):
        most = emit(rw, aten.AmaxDefault.make(left, [1], True, result_types=[column]))
        below = emit(rw, aten.SubTensor.make(most, left, result_types=[left.type]))
        below = emit(rw, aten.MulScalar.make(below, STEEP))
        below = emit(rw, aten.ClampDefault.make(below, 0.0, 1.0, result_types=[left.type]))
        greatest = emit(rw, aten.SubTensor.make(ones, below, result_types=[left.type]))
        earlier = aten.LinearDefault.make(greatest, in_front, result_types=[left.type])
        first = _rectified(rw, greatest, emit(rw, earlier))
        slots.append(view(rw, first, [rows, 1, among]))
        if slot + 1 < choice.taken:
            gone = emit(rw, aten.MulScalar.make(first, STEEP))
            left = emit(rw, aten.SubTensor.make(left, gone, result_types=[left.type]))
    return cat(rw, slots, 1)


def _rectified(rw: Rewriter, one: SSAValue, other: SSAValue) -> SSAValue:
    """Compute `max(one − other, 0)`."""
    less = emit(rw, aten.SubTensor.make(one, other, result_types=[other.type]))
    return emit(rw, aten.ReluDefault.make(less, result_types=[other.type]))

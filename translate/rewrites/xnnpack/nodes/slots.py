"""Decompose `topk` into arithmetic: a matrix of ones and zeros selects the element of each slot.

There are two forms. Either all pairs of elements of a row are compared, and an element's rank is
the number of elements before it; or the maximum is found and removed once for each slot. The
cheaper form is used: pairs for short rows, maxima for a few elements of many. In both, equal
elements keep their order. Numbers are scaled to less than 2¹²⁶ in magnitude first. Two different
numbers then differ by at least 2⁻²³, which no node flushes to zero, and a factor of 2¹²⁷ makes the
difference greater than 1.
"""

from __future__ import annotations

from math import floor, inf, log2

from stepwell.dialects import aten
from stepwell.dialects.xnnpack.costs import Costs, costs_of
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.translate.decompositions.values import Value, cat
from stepwell.translate.range_analysis import interval
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


def slots_of(choice: Choice, b: Rewriter) -> Value:
    """Compute `[rows, taken, among]`: 1 for the slot's element, 0 elsewhere."""
    scaled = _scaled(choice, b)
    if maxima_cost_less(choice, costs_of(b.program.context)):
        return _by_maxima(choice, scaled)
    return _by_pairs(choice, scaled)


def maxima_cost_less(choice: Choice, costs: Costs) -> bool:
    """Whether removing the maximum repeatedly costs less than comparing all pairs of elements."""
    maxima = choice.taken * PASSES * costs.element
    return maxima < choice.among * (3 * costs.addition + costs.element)


def _scaled(choice: Choice, b: Rewriter) -> Value:
    """Scale numbers `[rows, among]` below 2¹²⁶, the greatest first."""
    scores = Value(choice.op.operands[0], b).view(choice.rows, choice.among)
    most = interval(choice.op.operands[0], b.program).most
    power = EXPONENT - max(floor(log2(ORDINARY if most == inf else max(most, 2.0**-100))) + 1, -1)
    return scores * (2.0**power if choice.op.arg("largest") else -(2.0**power))


def _by_pairs(choice: Choice, scaled: Value) -> Value:
    """Compare all pairs of elements, and select the element whose rank is the slot's."""
    rows, among, taken = choice.rows, choice.among, choice.taken
    one, other = scaled.view(rows, among, 1), scaled.view(rows, 1, among)
    # +1 above the diagonal, -1 below: there `not less` is counted, as 1 - `greater`.
    turned = torch.ones(among, among).triu(1) - torch.ones(among, among).tril(-1)
    before = (other - one) * scaled.constant(turned * STEEP, "steep")
    before = _between_zero_and_one(before) * scaled.constant(turned, "signs")
    ranks = before.reduce(aten.SumDimIntList, [2]).view(rows, 1, among)
    distance = torch.arange(among)[None, :] - torch.arange(taken)[:, None]
    apart = ranks + scaled.constant(distance.float(), "distances")
    return _rectified(scaled.constant(torch.ones(1), "one") - apart * apart)


def _by_maxima(choice: Choice, left: Value) -> Value:
    """Select the greatest element slot by slot; a selected element is lowered below the others."""
    rows, among = choice.rows, choice.among
    ones = left.constant(torch.ones(1), "one")
    in_front = left.constant(torch.ones(among, among).tril(-1), "in_front")
    slots: list[Value] = []
    for slot in range(choice.taken):
        below = left.reduce(aten.AmaxDefault, [1]) - left
        greatest = ones - _between_zero_and_one(below * STEEP)
        first = _rectified(greatest - greatest.call(aten.LinearDefault, in_front))
        slots.append(first.view(rows, 1, among))
        if slot + 1 < choice.taken:
            left = left - first * STEEP
    return cat(slots, 1)


def _between_zero_and_one(value: Value) -> Value:
    return value.call(aten.ClampDefault, 0.0, 1.0)


def _rectified(value: Value) -> Value:
    return value.call(aten.ReluDefault)

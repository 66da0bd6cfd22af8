"""Mixed precision: more bits for the operands that profit most, within a budget.

An MX product may have a wider payload for either operand; a 4-bit weight may become 8-bit, with a
scale per row. The cost of a choice is counted in bits, or measured: the program with only this
change is lowered, and the size of its artifact is taken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from typing import Any

import torch
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from stepwell.dialects.aten.attributes import attribute
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa_mxfp.operators import TYPES
from stepwell.dialects.tosa_mxfp.payloads import payload_named
from stepwell.ir.diagnostics import StepwellError, op_name
from stepwell.ir.knapsack import least_loss
from stepwell.ir.program import Program
from stepwell.ir.types import dims
from stepwell.quantization.recovery.scales import scale_at
from stepwell.quantization.recovery.weights import Weights, renew
from stepwell.quantization.sensitivity.metrics import Batch
from stepwell.quantization.sensitivity.quantization_points import MX, Quantized, Site
from stepwell.quantization.sensitivity.replay import Playback, divergences
from stepwell.translate.rewrites.mxfp.choose_mxfp import payload_fields

BITS = 4.5
"""Default limit for a 4-bit program: average bits per quantized number, without scales."""
WIDER = "fp8e4m3"
LOOKED_AT = 2
"""Number of batches for measuring candidates."""
Way = tuple[str, str] | int
"""How a point is quantized: payloads of a product's operands, or bits of a weight."""
Cost = Callable[[Program], float]
"""The cost of a program."""


def payloads_of(site: Site) -> tuple[str, str]:
    """Return the payloads of an MX product's operands."""
    assert isinstance(site.op, SchemaOp)
    first, second = payload_fields(site.op)
    return site.op.arg(first), site.op.arg(second)


def ways_of(weights: Weights, site: Site) -> tuple[Way, ...]:
    """Return the possible quantizations of a quantization point, the current one first; empty
    without a choice.
    """
    if site.is_mx:
        first, second = ((p, WIDER) if payload_named(p).bits < payload_named(WIDER).bits else (p,)
                         for p in payloads_of(site))  # fmt: skip
        return tuple(product(first, second))
    if site.weight is None or (site, site.weight) not in weights.stepped:
        return ()
    op, steps = site.op.operands[site.weight].owner, weights.stepped[site, site.weight][1]
    is_short = isinstance(op, SchemaOp) and op_name(op).startswith("torchao.dequantize_affine")
    return (4, 8) if is_short and steps.high - steps.low == 15 else ()


def bits_read(pair: Quantized) -> float:
    """Return the average payload bits of all operands of MX products, for one sample."""
    sites = [site for site in pair.sites if site.is_mx]
    bits = sum(_bits(pair, site, payloads_of(site)) for site in sites)
    return bits / max(sum(sum(_numbers(pair, site)) for site in sites), 1)


def _numbers(pair: Quantized, site: Site) -> tuple[float, float]:
    """Return the numbers of elements of a quantization point's operands, for one sample.

    Dynamic sizes count as 1. For integer quantization only the weight counts, because other
    operands keep their bits.
    """
    if not site.is_mx:
        return 0, site.elements
    (rows, *_), *_ = (known for v in pair.func.body.block.args if (known := _sizes(v)))
    first, second = (prod(_sizes(v)) for v in site.op.operands[:2])
    return first / rows, second / (rows if site.weight is None else 1)


def _sizes(value: SSAValue) -> list[int]:
    return [size if isinstance(size, int) else 1 for size in dims(value.type)]


def _bits(pair: Quantized, site: Site, way: Way) -> float:
    first, second = _numbers(pair, site)
    if isinstance(way, int):
        return second * way
    return first * payload_named(way[0]).bits + second * payload_named(way[1]).bits


def mixed(
    weights: Weights,
    batches: Sequence[Batch],
    limit: float = BITS,
    cost: Cost | None = None,
) -> Weights:
    """Widen the operands of a program that `chosen_ways` names; weights stay the same."""
    return replaced(weights, chosen_ways(weights, batches, limit, cost))


def chosen_ways(
    weights: Weights,
    batches: Sequence[Batch],
    limit: float = BITS,
    cost: Cost | None = None,
) -> dict[str, Way]:
    """Choose the operands to widen by an exact knapsack; return the points that change.

    The value of a choice is the divergence from the float model when only its point is quantized in
    this way, which is far less noisy than the point's share of the loss.

    Args:
        weights: the weights of a program.
        batches: the batches on which choices are measured.
        limit: the greatest cost of the program.
        cost: the cost of a program; None: average bits per number, over weights and activations of
            one sample for MX products, over weights only if these are integers.

    Raises:
        StepwellError: the program has no MX payloads and no 4-bit weights.
    """
    pair = weights.pair
    ways = {site: found for site in pair.sites if len(found := ways_of(weights, site)) > 1}
    if not ways:
        raise StepwellError(
            "the recovery method 'mixing' chooses MX payloads or bits of 4-bit weights, but the "
            "program has neither",
            help='quantize="fp4e2m1", "8da4w" or "4w"',
        )
    lost: dict[Site, list[float]] = {site: [] for site in ways}
    for at in range(max(map(len, ways.values()))):
        asked = {site.name: found[at] for site, found in ways.items() if at < len(found)}
        other = replaced(weights, asked).pair
        alone = {s.name: partial(_flipped, site=s) for s in other.sites if s.name in asked}
        diverged = divergences(other, batches[:LOOKED_AT], alone)
        for site, found in ways.items():
            if at < len(found):
                lost[site].append(diverged[site.name])
    if cost is None:
        costs = {site: [_bits(pair, site, way) for way in found] for site, found in ways.items()}
        limit *= sum(sum(_numbers(pair, site)) for site in ways)
    else:
        plain = cost(weights.program())
        costs = {
            site: [0.0, *(cost(replaced(weights, {site.name: way}).program()) - plain
                          for way in found[1:])]
            for site, found in ways.items()
        }  # fmt: skip
        limit -= plain
    things = [list(zip(costs[site], lost[site], strict=True)) for site in ways]
    picks = least_loss(things, limit) or [0] * len(things)
    chosen = zip(ways.items(), picks, strict=True)
    return {site.name: found[pick] for (site, found), pick in chosen if pick}


def _flipped(floats: Playback, site: Site) -> Sequence[Any]:
    return floats.flipped(site)


def replaced(weights: Weights, ways: Mapping[str, Way]) -> Weights:
    """Return the weights in a program where the quantization points of these names are
    quantized differently.
    """
    pair = replace(weights.pair, program=weights.pair.program.clone())
    named = {site.name: site for site in pair.sites}
    numbers = {(site.name, at): held for (site, at), (held, _) in weights.stepped.items()}
    for name, way in ways.items():
        site = named[name]
        if not isinstance(way, int):
            _set_payloads(site, way)
        elif way == 8:
            assert site.weight is not None
            _set_rows(pair, site, numbers[name, site.weight])
    return weights.moved(replace(pair))


def _set_payloads(site: Site, payloads: tuple[str, str]) -> None:
    op = site.op
    assert isinstance(op, MX)
    for which, payload in zip(payload_fields(op), payloads, strict=True):
        op.properties[which] = StringAttr(payload)
    if payloads[0] != payloads[1]:  # Operators on separate data and scales read one payload.
        op.properties["form"] = StringAttr(TYPES)


def _set_rows(pair: Quantized, site: Site, numbers: torch.Tensor) -> None:
    """Requantize a weight to 8 bits with one scale per row."""
    assert site.weight is not None
    op = site.op.operands[site.weight].owner
    assert isinstance(op, SchemaOp)
    at = scale_at(op)
    assert at is not None
    scale = (numbers.abs().amax(1, keepdim=True) / 127).clamp_min(torch.finfo(torch.float32).eps)
    integers = (numbers / scale).round().clamp(-128, 127).to(torch.int8)
    parts = {0: integers, at: scale, at + 1: torch.zeros_like(scale, dtype=torch.int8)}
    for index, tensor in parts.items():
        if index < len(op.operands):
            renew(pair.program, op, index, tensor)
    op.properties["block_size"] = attribute([1, numbers.shape[1]])
    op.properties["quant_min"], op.properties["quant_max"] = attribute(-128), attribute(127)

"""More bits for the operands that are worth them, within a budget of bits a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from stepwell.attributing.metrics import Batch, Tally, judged
from stepwell.attributing.playback import Playback
from stepwell.attributing.sites import MX, Quantised, Site
from stepwell.curing.weights import Weights
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa_mxfp.operators import TYPES
from stepwell.dialects.tosa_mxfp.payloads import payload_named
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.knapsack import least_loss
from stepwell.ir.types import dims
from stepwell.translate.rewrites.mxfp.choose_mxfp import payload_fields

BITS = 4.5
"""Of a number that products read, scales aside, that a program of fp4 may have on average."""
WIDER = "fp8e4m3"
LOOKED_AT = 2
"""Batches that candidates are measured on."""
Payloads = tuple[str, str]
"""Of a product's first operand and of its second."""


def payloads_of(site: Site) -> Payloads:
    """Those of a product in MX."""
    assert isinstance(site.op, SchemaOp)
    first, second = payload_fields(site.op)
    return site.op.arg(first), site.op.arg(second)


def bits_read(pair: Quantised) -> float:
    """Bits of the payloads of all that products in MX read for one sample, on average."""
    sites = [site for site in pair.sites if site.is_mx]
    bits = sum(_bits(pair, site, payloads_of(site)) for site in sites)
    return bits / max(sum(sum(_numbers(pair, site)) for site in sites), 1)


def bits_a_weight(pair: Quantised) -> float:
    """Bits of the payloads of an MX program's weights, on average."""
    sites = [site for site in pair.sites if site.is_mx]
    total = sum(site.elements for site in sites)
    return sum(s.elements * payload_named(payloads_of(s)[1]).bits for s in sites) / max(total, 1)


def _numbers(pair: Quantised, site: Site) -> tuple[float, float]:
    """Of its operands, for one sample: a row of the first input. Open sizes count as 1."""
    (rows, *_), *_ = (known for v in pair.func.body.block.args if (known := _sizes(v)))
    first, second = (prod(_sizes(v)) for v in site.op.operands[:2])
    return first / rows, second / (rows if site.weight is None else 1)


def _sizes(value: SSAValue) -> list[int]:
    return [size if isinstance(size, int) else 1 for size in dims(value.type)]


def _bits(pair: Quantised, site: Site, payloads: Payloads) -> float:
    numbers = _numbers(pair, site)
    return sum(n * payload_named(p).bits for n, p in zip(numbers, payloads, strict=True))


def mixed(weights: Weights, batches: Sequence[Batch], bits: float = BITS) -> Weights:
    """The same weights in a program whose worst operands are wider, chosen by an exact knapsack.

    Weights and activations alike, those of one sample. What an operand is worth is the divergence
    from the float model with its product alone quantised so: far less noisy than its share of the
    loss.

    Raises:
        StepwellError: the program has no products in MX.
    """
    pair = weights.pair
    sites = [site for site in pair.sites if site.is_mx]
    if not sites:
        raise StepwellError(
            "the cure 'mixing' chooses payloads of MX, and the program has none",
            help='quantise="fp4e2m1"',
        )
    things: list[list[tuple[float, float]]] = [[] for _ in sites]
    ways: list[list[Payloads]] = [[] for _ in sites]
    for wide in ((False, False), (True, False), (False, True), (True, True)):
        asked = {site.name: _widened(payloads_of(site), wide) for site in sites}
        other = replace_payloads(weights, asked).pair
        lost = _divergences(other, batches[:LOOKED_AT])
        for at, site in enumerate(sites):
            cost = _bits(pair, site, asked[site.name])
            if asked[site.name] not in ways[at]:
                ways[at].append(asked[site.name])
                things[at].append((cost, lost[site.name]))
    total = sum(sum(_numbers(pair, site)) for site in sites)
    picks = least_loss(things, bits * total) or [0] * len(sites)
    chosen = zip(sites, ways, picks, strict=True)
    return replace_payloads(weights, {site.name: way[pick] for site, way, pick in chosen})


def _widened(payloads: Payloads, wide: tuple[bool, bool]) -> Payloads:
    first, second = (
        WIDER if more and payload_named(p).bits < payload_named(WIDER).bits else p
        for p, more in zip(payloads, wide, strict=True)
    )
    return first, second


def _divergences(pair: Quantised, batches: Sequence[Batch]) -> dict[str, float]:
    """From the float model, with each product in MX alone quantised."""
    lost = {site.name: Tally() for site in pair.sites if site.is_mx}
    for inputs, labels in batches:
        floats = Playback(pair, inputs, free=True)
        for site in pair.sites:
            if site.is_mx:
                found = judged(floats.flipped(site), labels, floats.outputs)
                lost[site.name].add(found.divergence)
    return {name: tally.mean for name, tally in lost.items()}


def replace_payloads(weights: Weights, payloads: Mapping[str, Payloads]) -> Weights:
    """The same weights in a program where products, by name, have other payloads."""
    program = weights.pair.program.clone()
    pair = replace(weights.pair, program=program)
    named = {site.name: site for site in pair.sites}
    for name, chosen in payloads.items():
        op = named[name].op
        assert isinstance(op, MX)
        for which, payload in zip(payload_fields(op), chosen, strict=True):
            op.properties[which] = StringAttr(payload)
        if chosen[0] != chosen[1]:  # Operators on separate data and scales read one payload.
            op.properties["form"] = StringAttr(TYPES)
    return Weights(pair, weights.plain, {})

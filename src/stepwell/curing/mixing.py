"""More bits for the layers that are worth them, within a budget of bits a weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from xdsl.dialects.builtin import StringAttr

from stepwell.attributing.attribute import Attribution
from stepwell.attributing.sites import MX, Quantised, Site
from stepwell.curing.weights import Weights
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa_mxfp.payloads import payload_named
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.knapsack import least_loss
from stepwell.translate.rewrites.mxfp.choose_mxfp import payload_fields

BITS = 4.5
"""Of a weight, scales aside, that a program of fp4 may have on average."""
WIDER = "fp8e4m3"


def payload_of(site: Site) -> str:
    """The payload of a product's second operand, its weight."""
    assert isinstance(site.op, SchemaOp)
    return site.op.arg(payload_fields(site.op)[1])


def bits_a_weight(pair: Quantised) -> float:
    """Bits of the payloads of an MX program's weights, on average."""
    sites = [site for site in pair.sites if site.is_mx]
    total = sum(site.elements for site in sites)
    return sum(s.elements * payload_named(payload_of(s)).bits for s in sites) / max(total, 1)


def mixed(weights: Weights, found: Attribution, bits: float = BITS) -> Weights:
    """The same weights in a program whose worst layers are wider, chosen by an exact knapsack.

    What a layer is worth is the divergence from the float model with it alone quantised: far less
    noisy than its share of the loss. Products of two activations stay: they have no weights that a
    budget of bits a weight could count.

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
    total = sum(site.elements for site in sites)
    shares = found.shares
    things: list[list[tuple[float, float]]] = []
    for site in sites:
        share = shares.get(site.name)
        now = float(site.elements * payload_named(payload_of(site)).bits)
        won = 0.0 if share is None or site.weight is None else share.divergence.mean
        wide = float(site.elements * payload_named(WIDER).bits)
        things.append([(now, won), *([(wide, 0.0)] if wide >= now and won else [])])
    picks = least_loss(things, bits * total) or [0] * len(sites)
    wider = {site.name: WIDER for site, pick in zip(sites, picks, strict=True) if pick}
    return replace_payloads(weights, wider)


def replace_payloads(weights: Weights, payloads: Mapping[str, str]) -> Weights:
    """The same weights in a program where sites, by name, have other payloads."""
    program = weights.pair.program.clone()
    pair = replace(weights.pair, program=program)
    named = {site.name: site for site in pair.sites}
    for name, payload in payloads.items():
        op = named[name].op
        assert isinstance(op, MX)
        for which in payload_fields(op):
            op.properties[which] = StringAttr(payload)
    return Weights(pair, weights.plain, {})

"""What more bits for a site would cost, and what they would win back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import IntegerType

from stepwell.attributing.attribute import Attribution
from stepwell.attributing.metrics import Batch, Metric, Tally, judged
from stepwell.attributing.playback import Playback
from stepwell.attributing.sites import MX, Quantised, Site
from stepwell.dialects.aten.attributes import attribute
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa_mxfp.payloads import payload_named
from stepwell.ir.diagnostics import op_name
from stepwell.translate.rewrites.mxfp.choose_mxfp import payload_fields

LARGEST = (1 << 15) - 1
"""Of int16, whose zero point is 0."""


def wider_payload(site: Site, pair: Quantised) -> str:
    """What fp8 for a product in MX would cost, as bits a weight of the whole; or ""."""
    total = sum(each.elements for each in pair.sites)
    if site.weight is None or not total or not isinstance(site.op, MX):
        return ""
    assert isinstance(site.op, SchemaOp)
    bits = payload_named(site.op.arg(payload_fields(site.op)[1])).bits
    return (
        ""
        if bits >= 8
        else f"fp8 there costs {(8 - bits) * site.elements / total:.2f} bits a weight"
    )


def int16_activations(
    sites: Sequence[Site],
    pair: Quantised,
    batches: Sequence[Batch],
    metric: Metric | None,
    attribution: Attribution,
) -> str:
    """What the loss would get back if what sites read had 16 bits, measured; or ""."""
    wide = with_int16(pair, sites)
    if wide is None:
        return ""
    won = Tally()
    for inputs, labels in batches:
        floats = Playback(pair, inputs, free=True).outputs
        losses = [
            judged(Playback(each, inputs, free=False).outputs, labels, floats, metric).loss
            for each in (pair, wide)
        ]
        won.add(losses[0] - losses[1])
    if not won.is_sure or won.mean <= 0 or not attribution.loss.mean > 0:
        return ""
    return f"int16 there wins back {won.mean / attribution.loss.mean:.0%}"


def with_int16(pair: Quantised, sites: Sequence[Site]) -> Quantised | None:
    """A program to run, in which activations that sites read have int16; None if none has int8."""
    wide = replace(pair, program=pair.program.clone())
    named = {site.name: site for site in wide.sites}
    narrow = [
        source
        for site in sites
        for value in named[site.name].op.operands
        if isinstance(ahead := value.owner, SchemaOp)
        and ahead.results[0] in wide.ahead
        and isinstance(source := ahead.operands[0].owner, SchemaOp)
        and "per_tensor.default" in op_name(source)
        and source.arg("quant_max") < LARGEST
    ]
    for source in dict.fromkeys(narrow):
        scale, zero = source.arg("scale"), source.arg("zero_point")
        reach = max(source.arg("quant_max") - zero, zero - source.arg("quant_min")) * scale
        for op in (source, *(use.operation for use in source.results[0].uses)):
            fields = {"scale": reach / LARGEST, "zero_point": 0, "quant_min": -LARGEST,
                      "quant_max": LARGEST, "dtype": IntegerType(16)}  # fmt: skip
            op.properties.update((name, attribute(of)) for name, of in fields.items())
    return wide if narrow else None

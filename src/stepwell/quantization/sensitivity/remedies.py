"""The cost of more bits at a quantization point, and the accuracy that they recover."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdsl.dialects.builtin import IntegerType

from stepwell.dialects.aten.attributes import attribute
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa_mxfp.payloads import payload_named
from stepwell.ir.diagnostics import op_name
from stepwell.quantization.sensitivity.attribution import Attribution
from stepwell.quantization.sensitivity.metrics import (
    Batch,
    Judged,
    Metric,
    Tally,
    difference,
    judged,
)
from stepwell.quantization.sensitivity.quantization_points import MX, Quantized, Site
from stepwell.quantization.sensitivity.replay import Playback
from stepwell.translate.rewrites.mxfp.choose_mxfp import payload_fields

LARGEST = (1 << 15) - 1
"""The largest integer of int16, whose zero point is 0."""
NAMED = 4
"""Number of quantization points that a sentence names; of more it gives the count."""
REST = 0.1
"""Part of the loss that may remain."""


def wider_payload(site: Site, pair: Quantized) -> str:
    """Describe the cost of widening the weight of an MX product to fp8: additional bits per weight,
    averaged over the program.

    The result is empty for other ops, and for weights that already have eight bits.
    """
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


@dataclass(frozen=True)
class Widened:
    """The remaining loss with 16-bit operands at some quantization points.

    Attributes:
        sites: the names of the points.
        loss, score: the loss and score, minus the float model's.
        what: `loss`, or `score` if only the score recovers significantly.
        won: the part of the lost loss or score that recovers.
        is_sure: whether the recovery is significant.
        enough: whether the remaining loss is noise, or at most a tenth of the original loss.
        everywhere: whether no other point reads 8-bit values.
    """

    sites: tuple[str, ...]
    loss: Tally
    score: Tally
    what: str
    won: float
    is_sure: bool
    enough: bool
    everywhere: bool

    @property
    def ends(self) -> bool:
        """Whether trying more quantization points cannot help."""
        return self.enough or self.everywhere

    def where(self, told: int = 0) -> str:
        """Return the names of the points, without those that were named already."""
        if self.everywhere:
            return "everywhere"
        names = [f"`{name}`" for name in self.sites[told:]]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"at {', '.join(names[:NAMED])}{more}"


def int16_activations(
    guilty: Sequence[Site],
    pair: Quantized,
    play: Playback,
    batches: Sequence[Batch],
    metric: Metric | None,
    attribution: Attribution,
    ends_there: bool,
) -> tuple[Widened, ...]:
    """Measure the loss with 16-bit operands at the worst points, then at twice as many, and so on.

    Measured points come first, ranked by how close the answers to one batch come to the float
    model's if the point reads floats. The result is empty if no point reads eight bits, or if
    `ends_there` and the worst points would recover no significant part. `play` is a replay of the
    first batch.
    """
    narrow = {site for site in pair.sites if _narrow(pair, [site])}
    if not narrow or (guilty and narrow.isdisjoint(guilty)):
        return ()
    floats = [Playback(pair, inputs, free=True).outputs for inputs, _ in batches]

    def apart(site: Site) -> float:
        reads = {at: play.values[pair.ahead[value]]
                 for at, value in enumerate(site.op.operands) if value in pair.ahead}  # fmt: skip
        return float(judged(play.again((), {site: reads}), None, floats[0]).divergence.mean())

    known = [site for site in pair.sites if site.name in attribution.shares]
    order = [*guilty, *sorted(known, key=apart), *pair.sites]
    ranked = [site for site in dict.fromkeys(order) if site in narrow]
    count = len(narrow.intersection(guilty))

    def judge(outputs: Iterable[Sequence[Any]]) -> list[Judged]:
        return [
            judged(given, labels, wanted, metric)
            for given, (_, labels), wanted in zip(outputs, batches, floats, strict=True)
        ]

    def run(each: Quantized) -> list[Judged]:
        return judge(Playback(each, inputs, free=False).outputs for inputs, _ in batches)

    base, low = judge(floats), run(pair)
    lost = [what for what, is_lost in (("loss", attribution.rises), ("score", attribution.falls))
            if is_lost]  # fmt: skip
    found: list[Widened] = []
    while not found or not found[-1].ends:
        count = max(1, count if not found else 2 * count)
        chosen = ranked[:count]
        now = run(with_int16(pair, chosen))
        wins = {"loss": difference(low, now, "loss"), "score": difference(now, low, "score")}
        sure = [what for what in lost if wins[what].is_sure and wins[what].mean > 0]
        what, is_sure = (sure or lost)[0], bool(sure)
        if ends_there and not found and not is_sure:
            return ()
        loss, score = (difference(now, base, of) for of in ("loss", "score"))
        enough = all(
            sign * left.mean <= 0 or not left.is_sure or abs(left.mean) <= abs(whole.mean) * REST
            for sign, left, whole in ((1, loss, attribution.loss), (-1, score, attribution.score))
        )
        part = wins[what].mean / abs(getattr(attribution, what).mean)
        names = tuple(site.name for site in chosen)
        found.append(Widened(names, loss, score, what, part, is_sure, enough, count >= len(ranked)))
    return tuple(found)


def with_int16(pair: Quantized, sites: Sequence[Site]) -> Quantized:
    """Build a program in which the activations that some quantization points read are int16."""
    wide = replace(pair, program=pair.program.clone())
    for source in dict.fromkeys(_narrow(wide, sites)):
        scale, zero = source.arg("scale"), source.arg("zero_point")
        reach = max(source.arg("quant_max") - zero, zero - source.arg("quant_min")) * scale
        for op in (source, *(use.operation for use in source.results[0].uses)):
            fields = {"scale": reach / LARGEST, "zero_point": 0, "quant_min": -LARGEST,
                      "quant_max": LARGEST, "dtype": IntegerType(16)}  # fmt: skip
            op.properties.update((name, attribute(of)) for name, of in fields.items())
    return wide


def _narrow(pair: Quantized, sites: Sequence[Site]) -> list[SchemaOp]:
    """Return the ops that statically quantize operands of these quantization points to 8 bits."""
    named = {site.name: site for site in pair.sites}
    return [
        source
        for site in sites
        for value in named[site.name].op.operands
        if isinstance(ahead := value.owner, SchemaOp)
        and ahead.results[0] in pair.ahead
        and isinstance(source := ahead.operands[0].owner, SchemaOp)
        and "per_tensor.default" in op_name(source)
        and source.arg("quant_max") < LARGEST
    ]

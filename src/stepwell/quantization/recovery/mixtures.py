"""Mixtures as text, which `--quantize` takes: a quantizer, then each point that differs.

    4w,head=8
    fp4e2m1,head=fp8e4m3/fp4e2m1

A point of 4-bit weights has another number of bits, a product of MX the payloads of its operands.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.options import nearest
from stepwell.program import Program
from stepwell.quantization.recovery.mixed_precision import Way, replaced, ways_of
from stepwell.quantization.recovery.weights import Weights
from stepwell.quantization.sensitivity.quantization_points import Quantized


def mixture_text(form: str, ways: Mapping[str, Way]) -> str:
    """Return the text of a mixture: a quantizer's name, and how each other point is quantized."""
    told = {name: str(way) if isinstance(way, int) else "/".join(way) for name, way in ways.items()}
    return ",".join([form, *(f"{name}={way}" for name, way in told.items())])


def mixed_as(pair: Quantized, text: str) -> Program:
    """Return a quantized program in which the points of a mixture are quantized as it states.

    Raises:
        StepwellError: the program has no such point, or the point cannot be quantized so.
    """
    weights = Weights.of(pair)
    known = {site.name: found for site in pair.sites if (found := ways_of(weights, site))}
    ways: dict[str, Way] = {}
    for part in text.split(",")[1:]:
        name, _, said = part.rpartition("=")
        found = known.get(name, ())
        named = {mixture_text("", {name: way}).rpartition("=")[2]: way for way in found}
        if said not in named:
            fact = f"{name} cannot be quantized as {said!r}" if found else f"no point {name!r}"
            help = nearest(name, known) + f"points are {', '.join(known) or 'none'}"
            help = f"it can be {' or '.join(named)}" if found else help
            raise StepwellError(f"quantizer {text!r}: {fact}", help=help)
        ways[name] = named[said]
    return replaced(weights, ways).program() if ways else pair.program

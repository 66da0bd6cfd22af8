"""From quantize and dequantize ops to types that carry the quantization parameters."""

from stepwell.ir.rewriting.rewrite import GreedyRewrites
from stepwell.translate.canonicalize import copies
from stepwell.translate.rewrites.quant import casts, constants, hoist_quantize, sink_dequantize
from stepwell.translate.rewrites.quant.casts import DEQUANTIZE, QUANTIZE

_CASTS = tuple(rule() for rule in casts.RULES)
CANCEL_CASTS = tuple(rule for rule in _CASTS if rule.name.startswith("cancel-"))
"""Remove casts that undo each other."""
_NOOPS = tuple(rule() for rule in copies.RULES if rule.name.startswith("remove-noop-cast"))
TYPES = (*_CASTS, *_NOOPS, *(rule() for rule in constants.RULES))
"""Move parameters into types; data movement stays between floats."""

MOVES = tuple(rule() for rule in (*hoist_quantize.RULES, *sink_dequantize.RULES))
"""Move integers instead of reals."""
TYPE_QUANTIZATION = GreedyRewrites("type-quantization", (*TYPES, *MOVES))
"""Run all of them to one fixed point; none of them changes a result."""

__all__ = [
    "CANCEL_CASTS",
    "DEQUANTIZE",
    "QUANTIZE",
    "TYPES",
    "TYPE_QUANTIZATION",
]

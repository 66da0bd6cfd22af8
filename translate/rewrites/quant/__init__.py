"""From quantize and dequantize ops to types that carry the numbers."""

from stepwell.ir.rewriting.rewrite import GreedyRewrites
from stepwell.translate.canonicalize import copies
from stepwell.translate.rewrites.quant import casts, constants, hoist_quantize, sink_dequantize
from stepwell.translate.rewrites.quant.casts import DEQUANTIZE, QUANTIZE

_CASTS = tuple(rule() for rule in casts.RULES)
CANCEL_CASTS = tuple(rule for rule in _CASTS if rule.name.startswith("cancel-"))
"""Casts that undo each other."""
_NOOPS = tuple(rule() for rule in copies.RULES if rule.name.startswith("remove-noop-cast"))
TYPES = (*_CASTS, *_NOOPS, *(rule() for rule in constants.RULES))
"""Parameters into types; movements stay as they are, between floats."""

MOVES = tuple(rule() for rule in (*hoist_quantize.RULES, *sink_dequantize.RULES))
"""Integers are moved in place of reals."""
TYPE_QUANTIZATION = GreedyRewrites("type-quantization", (*TYPES, *MOVES))
"""All of them to one fixed point; nothing here changes a result."""

__all__ = [
    "CANCEL_CASTS",
    "DEQUANTIZE",
    "QUANTIZE",
    "TYPES",
    "TYPE_QUANTIZATION",
]

"""From quantise and dequantise ops to types that carry the numbers."""

from stepwell.ir.rewriting.rewrite import Together
from stepwell.translate.rewrites.quant import casts, constants
from stepwell.translate.rewrites.quant.casts import DEQUANTIZE, QUANTIZE
from stepwell.translate.rewrites.quant.hoist_quantize import HoistQuantize
from stepwell.translate.rewrites.quant.sink_dequantize import SinkDequantize
from stepwell.translate.rewrites.spelling import copies

_CASTS = tuple(rule() for rule in casts.RULES)
CANCEL_CASTS = tuple(rule for rule in _CASTS if rule.name.startswith("cancel-"))
"""Casts that undo each other."""
_NOOPS = tuple(rule() for rule in copies.RULES if rule.name.startswith("remove-noop-cast"))
TYPES = (*_CASTS, *_NOOPS, *(rule() for rule in constants.RULES))
"""Parameters into types; movements stay as they are, between floats."""

TYPE_QUANTIZATION = Together("type-quantization", (*TYPES, HoistQuantize(), SinkDequantize()))
"""All of them to one fixed point; nothing here changes a result."""

__all__ = [
    "CANCEL_CASTS",
    "DEQUANTIZE",
    "QUANTIZE",
    "TYPES",
    "TYPE_QUANTIZATION",
    "HoistQuantize",
    "SinkDequantize",
]

"""From quantise and dequantise ops to types that carry the numbers."""

from stepwell.ir.rewriting import Together
from stepwell.translate.rewrites.quant.cancel_casts import CancelCasts
from stepwell.translate.rewrites.quant.hoist_quantize import HoistQuantize
from stepwell.translate.rewrites.quant.sink_dequantize import SinkDequantize
from stepwell.translate.rewrites.quant.store_constant import MoveConstant, StoreConstant
from stepwell.translate.rewrites.quant.type_dequantize import TypeDequantize
from stepwell.translate.rewrites.quant.type_quantize import TypeQuantize

TYPE_QUANTIZATION = Together(
    "type-quantization",
    (
        TypeQuantize(),
        TypeDequantize(),
        CancelCasts(),
        StoreConstant(),
        MoveConstant(),
        HoistQuantize(),
        SinkDequantize(),
    ),
)
"""All of them to one fixed point; nothing here changes a result."""

__all__ = [
    "TYPE_QUANTIZATION",
    "CancelCasts",
    "HoistQuantize",
    "MoveConstant",
    "SinkDequantize",
    "StoreConstant",
    "TypeDequantize",
    "TypeQuantize",
]

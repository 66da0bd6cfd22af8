"""Casts that cancel: beyond its documented example, and what it leaves alone."""

from rewrite_cases import cases

from stepwell.translate.rewrites.quant import CANCEL_CASTS

STORAGE, QUANTIZED = CANCEL_CASTS


test_cancel_casts = cases(
    STORAGE,
    QUANTIZED,
    """
a quantization of what was dequantized alike is nothing -> nothing
    %r = quant.dcast(%x: i8<0.5:3>[4])
    %y = quant.qcast(%r) -> i8<0.5:3>[4]
cancel-quantization | cancel-storage-casts: other parameters are a requantization -> unchanged
    %r = quant.dcast(%x: i8<0.5:3>[4])
    %y = quant.qcast(%r) -> i8<0.5:2>[4]
cancel-quantization | cancel-storage-casts: casts of different kinds do not undo each other -> unchanged
    %r = quant.dcast(%x: i8<0.5:3>[4])
    %n = aten.neg.default(%r)
    %y = quant.qcast(%n) -> i8<0.5:3>[4]
""",
)

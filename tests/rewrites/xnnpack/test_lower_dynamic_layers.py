"""Layers quantized at run time, or with stored weights alone: what their kernels do not take."""

from typing import Any

import torch
import torchao.quantization  # noqa: F401 (registers torchao's operators)
from rewrite_cases import cases
from torch.ao.quantization.fx import _decomposed  # noqa: F401 (registers quantized_decomposed)

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import quantized_layers

Q = "quantized_decomposed."
WEIGHT = "%t = quant.scast(%w: weight i8[3, 4]) -> i8<0.125>[3, 4]; %r = quant.dcast(%t)"
CHOSEN = f"%s, %n = {Q}choose_qparams.tensor(%x: f32[2, 4], -128, 127, 0.0001, i8)"
HELD = f"%h = {Q}quantize_per_tensor.tensor(%x, %s, %n, -128, 127, i8)"
BACK = f"%d = {Q}dequantize_per_tensor.tensor(%h, %s, %n, -128, 127, i8)"
TOKENS = '%s, %n = torchao.choose_qparams_affine.default(%x: f32[2, 4], "ASYMMETRIC", [1, 4], i8, -128, 127, none, none, i8)'
BY_TOKEN = """%h = torchao.quantize_affine.default(%x, [1, 4], %s, %n, i8, -128, 127)
    %d = torchao.dequantize_affine.default(%h, [1, 4], %s, %n, i8, -128, 127)"""
LINEAR = "%y = aten.linear.default(%d, %r)"
FLOATS = "applied once; without xnnpack.convert"
OUTSIDE = "%e: f64[1]; %z: i64[1]; %x: f32[2, 4]"


# The weight stays stored; the rows are not quantized anew by the node.
test_rows_with_another_scale = cases(step(quantized_layers.dynamic_linear))(f"""
an argument -> {FLOATS}
    {WEIGHT}; %y = aten.linear.default(%x: f32[2, 4], %r)
a computed value -> {FLOATS}
    {WEIGHT}; %d = aten.abs.default(%x: f32[2, 4]); {LINEAR}
integers from outside -> {FLOATS}
    {WEIGHT}; {CHOSEN}; %h: i8[2, 4]; {BACK}; {LINEAR}
integers computed otherwise -> {FLOATS}
    {WEIGHT}; {CHOSEN}; %h = aten.abs.default(%i: i8[2, 4]); {BACK}; {LINEAR}
a scale from outside -> {FLOATS}
    {WEIGHT}; {OUTSIDE}
    {HELD.replace("%s, %n", "%e, %z")}; {BACK.replace("%s, %n", "%e, %z")}; {LINEAR}
a computed scale -> {FLOATS}
    {WEIGHT}; {OUTSIDE}; %s = aten.abs.default(%e)
    {HELD.replace("%n", "%z")}; {BACK.replace("%n", "%z")}; {LINEAR}
a symmetric scale -> {FLOATS}
    {WEIGHT}; {CHOSEN.replace("qparams", "qparams_symmetric")}; {HELD}; {BACK}; {LINEAR}
two scales -> {FLOATS}
    {WEIGHT}; %e: f64[1]; {CHOSEN}; {HELD.replace("%s", "%e")}; {BACK}; {LINEAR}
the scale of another value -> {FLOATS}
    {WEIGHT}; {CHOSEN.replace("%x", "%o")}; %x: f32[2, 4]; {HELD}; {BACK}; {LINEAR}
a part of int8 -> {FLOATS}
    {WEIGHT}; {CHOSEN}; {HELD.replace("-128", "-127")}; {BACK.replace("-128", "-127")}; {LINEAR}
a scale for a part of int8 -> {FLOATS}
    {WEIGHT}; {CHOSEN.replace("-128", "-127")}; {HELD}; {BACK}; {LINEAR}
a scale for all tokens -> {FLOATS}
    {WEIGHT}; {TOKENS.replace("[1, 4]", "[2, 4]")}
    {BY_TOKEN.replace("[1, 4]", "[2, 4]")}; {LINEAR}
symmetric tokens -> {FLOATS}
    {WEIGHT}; {TOKENS.replace("ASYMMETRIC", "SYMMETRIC")}
    {BY_TOKEN}; {LINEAR}
a constant -> {FLOATS}
    {WEIGHT}; {CHOSEN.replace(": f32", ": constant f32")}; {HELD}; {BACK}; {LINEAR}
""")


def typed(held: str, storage: str = "i8", sizes: str = "3, 4") -> str:
    """A stored weight `%r` of a quantized type."""
    return (
        f"%t = quant.scast(%w: weight {storage}[{sizes}]) -> {held}[{sizes}]; %r = quant.dcast(%t)"
    )


TENSOR = f"{CHOSEN}; {HELD}; {BACK}; {LINEAR}"
OF_TWO = "0:1, 1:2}, {{1.0, 2.0}, {1.0, 2.0}, {1.0, 2.0}}"
OF_MANY = "0:1, 1:32}, {{1.0, 2.0}, {1.0, 2.0}, {1.0, 2.0}}"
HALVES = "!quant.uniform<i8:f16, 0.125>"

test_layer_without_dynamic_kernel = cases(step(quantized_layers.dynamic_linear))(f"""
an unsigned weight -> refused: signed int8
    {typed("!quant.uniform<u8:f32, 0.125>", "ui8")}; {TENSOR}
a weight of int16 -> refused: signed int8
    {typed("i16<0.125>", "i16")}; {TENSOR}
a weight of halves under halves -> refused: of float32
    {typed(HALVES, sizes="3, 64")}; %y = aten.linear.default(%v: f16[2, 64], %r)
rows of bfloats -> refused: quantizes float32 and
    {WEIGHT}; {CHOSEN.replace(": f32", ": bf16")}; {HELD}
    {BACK.replace("i8)", "i8, out_dtype=f32)")}; {LINEAR}
a weight with a zero point -> refused: zero point
    {typed("i8<0.125:1>")}; {TENSOR}
scales on the inputs -> refused: axis of inputs
    {typed("i8<:1, {0.1, 0.2, 0.3, 0.4}>")}; {TENSOR}
blocks over outputs -> refused: the weight's groups are not contiguous inputs of one output
    {typed("i8<-8:7; :{0:3, 1:2}, {{0.1, 0.2}}>")}; {TENSOR}
groups of low 8-bit numbers -> refused: 4-bit weights only
    {typed(f"i8<-9:7; :{{{OF_TWO}>")}; {TENSOR}
groups of high 8-bit numbers -> refused: 4-bit weights only
    {typed(f"i8<-8:8; :{{{OF_TWO}>")}; {TENSOR}
groups of two -> refused: multiples of 32
    {typed(f"i8<-8:7; :{{{OF_TWO}>")}; {TENSOR}
groups under float inputs -> refused: no kernel for groups
    {typed(f"i8<-8:7; :{{{OF_MANY}>", sizes="3, 64")}; %y = aten.linear.default(%v: f32[2, 64], %r)
""")


test_lower_dynamic_layers = cases(quantized_layers)("""
lower-dynamic-linear: a layer of integers is not one of floats -> unchanged
    # `LowerQuantizedLinear` takes it, or nobody: its input has a scale already.
    %t = quant.scast(%w: weight i8[3, 4]) -> i8<0.125>[3, 4]; %r = quant.dcast(%t)
    %d = quant.dcast(%q: i8<0.5:3>[2, 4]); %y = aten.linear.default(%d, %r)
lower-dynamic-linear: a float weight -> unchanged
    %y = aten.linear.default(%x: f32[2, 4], %r: weight f32[3, 4])
lower-dynamic-linear: a computed weight -> unchanged
    %r = quant.dcast(%q: i8<0.125>[3, 4]); %y = aten.linear.default(%x: f32[2, 4], %r)
lower-dynamic-linear: a computed bias -> refused: the bias is computed
    %t = quant.scast(%w: weight i8[3, 4]) -> i8<0.125>[3, 4]; %r = quant.dcast(%t)
    %y = aten.linear.default(%x: f32[2, 4], %r, %b: f32[3])
lower-dynamic-linear: rows of seven axes -> refused: rank 7
    %t = quant.scast(%w: weight i8[3, 4]) -> i8<0.125>[3, 4]; %r = quant.dcast(%t)
    %y = aten.linear.default(%d: f32[1, 1, 1, 1, 1, 2, 4], %r)
lower-dynamic-linear: a vector -> refused: a vector
    - %t = quant.scast(%w: weight i8[3, 4]) -> i8<0.125>[3, 4]; %r = quant.dcast(%t)
      %y = aten.linear.default(%x: f32[4], %r)
    - %t = quant.scast(%w: weight i8[4]) -> i8<0.125>[4]; %r = quant.dcast(%t)
      %y = aten.linear.default(%x: f32[2, 4], %r)
lower-dynamic-convolution: rows of an image -> refused: each row
    %t = quant.scast(%w: weight i8[3, 4, 1, 1]) -> i8<0.125>[3, 4, 1, 1]; %r = quant.dcast(%t)
    %s, %n = quantized_decomposed.choose_qparams_per_token_asymmetric.default(%x: f32[1, 4, 5, 5], i8)
    %h = quantized_decomposed.quantize_per_token.default(%x, %s, %n, -128, 127, i8)
    %d = quantized_decomposed.dequantize_per_token.default(%h, %s, %n, -128, 127, i8, f32)
    %y = aten.convolution.default(%d, %r, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
lower-dynamic-convolution: a computed bias -> refused: the bias is computed
    %t = quant.scast(%w: weight i8[3, 4, 1, 1]) -> i8<0.125>[3, 4, 1, 1]; %r = quant.dcast(%t)
    %s, %n = quantized_decomposed.choose_qparams.tensor(%x: f32[1, 4, 5, 5], -128, 127, 0.0001, i8)
    %h = quantized_decomposed.quantize_per_tensor.tensor(%x, %s, %n, -128, 127, i8)
    %d = quantized_decomposed.dequantize_per_tensor.tensor(%h, %s, %n, -128, 127, i8)
    %y = aten.convolution.default(%d, %r, %b: f32[3], [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
lower-dynamic-convolution: an image of bfloats -> refused: quantizes float32
    %t = quant.scast(%w: weight i8[3, 4, 1, 1]) -> i8<0.125>[3, 4, 1, 1]; %r = quant.dcast(%t)
    %s, %n = quantized_decomposed.choose_qparams.tensor(%x: bf16[1, 4, 5, 5], -128, 127, 0.0001, i8)
    %h = quantized_decomposed.quantize_per_tensor.tensor(%x, %s, %n, -128, 127, i8)
    %d = quantized_decomposed.dequantize_per_tensor.tensor(%h, %s, %n, -128, 127, i8, out_dtype=f32)
    %y = aten.convolution.default(%d, %r, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
lower-dynamic-convolution: a filter with a zero point -> refused: symmetrically
    %t = quant.scast(%w: weight i8[3, 4, 1, 1]) -> i8<0.125:1>[3, 4, 1, 1]; %r = quant.dcast(%t)
    %s, %n = quantized_decomposed.choose_qparams.tensor(%x: f32[1, 4, 5, 5], -128, 127, 0.0001, i8)
    %h = quantized_decomposed.quantize_per_tensor.tensor(%x, %s, %n, -128, 127, i8)
    %d = quantized_decomposed.dequantize_per_tensor.tensor(%h, %s, %n, -128, 127, i8)
    %y = aten.convolution.default(%d, %r, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
lower-dynamic-convolution: a volume -> refused: rank 5
    %t = quant.scast(%w: weight i8[3, 4, 1, 1, 1]) -> i8<0.125>[3, 4, 1, 1, 1]; %r = quant.dcast(%t)
    %s, %n = quantized_decomposed.choose_qparams.tensor(%x: f32[1, 4, 3, 3, 3], -128, 127, 0.0001, i8)
    %h = quantized_decomposed.quantize_per_tensor.tensor(%x, %s, %n, -128, 127, i8)
    %d = quantized_decomposed.dequantize_per_tensor.tensor(%h, %s, %n, -128, 127, i8)
    %y = aten.convolution.default(%d, %r, none, [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1)
lower-dynamic-convolution: a depthwise convolution -> refused: no depthwise
    %t = quant.scast(%w: weight i8[4, 1, 1, 1]) -> i8<0.125>[4, 1, 1, 1]; %r = quant.dcast(%t)
    %s, %n = quantized_decomposed.choose_qparams.tensor(%x: f32[1, 4, 5, 5], -128, 127, 0.0001, i8)
    %h = quantized_decomposed.quantize_per_tensor.tensor(%x, %s, %n, -128, 127, i8)
    %d = quantized_decomposed.dequantize_per_tensor.tensor(%h, %s, %n, -128, 127, i8)
    %y = aten.convolution.default(%d, %r, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 4)
lower-dynamic-convolution: a convolution of floats -> unchanged
    %t = quant.scast(%w: weight i8[3, 4, 1, 1]) -> i8<0.125>[3, 4, 1, 1]; %r = quant.dcast(%t)
    %d = aten.abs.default(%x: f32[1, 4, 5, 5])
    %y = aten.convolution.default(%d, %r, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
lower-dynamic-convolution: a convolution with a float filter -> unchanged
    %s, %n = quantized_decomposed.choose_qparams.tensor(%x: f32[1, 4, 5, 5], -128, 127, 0.0001, i8)
    %h = quantized_decomposed.quantize_per_tensor.tensor(%x, %s, %n, -128, 127, i8)
    %d = quantized_decomposed.dequantize_per_tensor.tensor(%h, %s, %n, -128, 127, i8)
    %y = aten.convolution.default(%d, %r: weight f32[3, 4, 1, 1], none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
""")


def test_layers_of_halves_are_computed_in_singles(apply: Any):
    """Casts around: a CPU without half arithmetic has no kernels that give halves.

    Every token has -128 and 127 in it: its scale is one, and nothing rounds but the result.
    """
    back = BACK.replace("i8)", "i8, out_dtype=f16)")
    for sizes, filters, layer, lowering, node in (
        ("2, 4", "3, 4", LINEAR, quantized_layers.dynamic_linear, "xnnpack.fully_connected"),
        (
            "1, 4, 5, 5",
            "3, 4, 1, 1",
            "%y = aten.convolution.default(%d, %r, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)",
            quantized_layers.dynamic_convolution,
            "xnnpack.convolution_2d",
        ),
    ):
        chosen = CHOSEN.replace("f32[2, 4]", f"f16[{sizes}]")
        given = torch.randint(-9, 9, [int(size) for size in sizes.split(", ")]).half()
        given[:, 0], given[:, 1] = -128, 127
        text = "; ".join((typed(HALVES, sizes=filters), chosen, HELD, back, layer))
        ops = apply(text, step(lowering), inputs=[given]).ops()
        assert node in ops and "xnnpack.convert" in ops
        assert ops.count("aten._to_copy.default") == 2

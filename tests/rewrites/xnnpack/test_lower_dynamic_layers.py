"""Layers quantized at run time, or with stored weights alone: what their kernels do not take."""

from typing import Any

import pytest
import torch
import torchao.quantization  # noqa: F401 (registers torchao's operators)
from rewrite_cases import cases
from torch.ao.quantization.fx import _decomposed  # noqa: F401 (registers quantized_decomposed)

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import quantized_layers

X, W, Y = "tensor<2x4xf32>", "tensor<3x4xf32>", "tensor<2x3xf32>"
STORED = "!quant.uniform<i8:f32, 0.125>"
Q = "quantized_decomposed."
ONE = "tensor<1xf64>, tensor<1xi64>"


def weight(held: str = STORED, storage: str = "i8", sizes: str = "3x4x", real: str = "f32") -> str:
    """A stored weight `%r`."""
    return "\n  ".join(
        (
            f'%w = stepwell.weight <"w"> "parameter" : tensor<{sizes}{storage}>',
            f"%t = quant.scast %w : tensor<{sizes}{storage}> to tensor<{sizes}{held}>",
            f"%r = quant.dcast %t : tensor<{sizes}{held}> to tensor<{sizes}{real}>",
        )
    )


CHOSEN = f"%s, %n = {Q}choose_qparams.tensor(%x, -128, 127, 0.0001, i8) : ({X}) -> ({ONE})"
HELD = f"%h = {Q}quantize_per_tensor.tensor(%x, %s, %n, -128, 127, i8) : ({X}, {ONE}) -> tensor<2x4xi8>"
BACK = f"%d = {Q}dequantize_per_tensor.tensor(%h, %s, %n, -128, 127, i8) : (tensor<2x4xi8>, {ONE}) -> {X}"
TENSOR = (CHOSEN, HELD, BACK)
LINEAR = f"%y = aten.linear.default(%d, %r) : ({X}, {W}) -> {Y}"
ARGUMENTS = f"%x: {X}, %o: {X}, %i: tensor<2x4xi8>, %e: tensor<1xf64>, %z: tensor<1xi64>"

EACH, EACH32 = "tensor<2x1xf64>, tensor<2x1xi64>", "tensor<2xf32>, tensor<2xi8>"
AFFINE = (
    '%s, %n = torchao.choose_qparams_affine.default(%x, "ASYMMETRIC", [1, 4], i8, -128, 127, none,'
    f" none, i8) : ({X}) -> ({EACH32})",
    "%h = torchao.quantize_affine.default(%x, [1, 4], %s, %n, i8, -128, 127)"
    f" : ({X}, {EACH32}) -> tensor<2x4xi8>",
    "%d = torchao.dequantize_affine.default(%h, [1, 4], %s, %n, i8, -128, 127)"
    f" : (tensor<2x4xi8>, {EACH32}) -> {X}",
)
NARROW = tuple(line.replace("-128", "-127") for line in TENSOR)
BLOCKS = tuple(
    line.replace("[1, 4]", "[2, 4]").replace("<2xf32>, tensor<2xi8>", "<f32>, tensor<i8>")
    for line in AFFINE
)
SYMMETRIC = CHOSEN.replace("choose_qparams", "choose_qparams_symmetric")

OTHER_FORMS = {
    "an argument": (LINEAR.replace("%d", "%x"),),
    "a computed value": (f"%d = aten.abs.default(%x) : ({X}) -> {X}",),
    "integers from outside": (CHOSEN, BACK.replace("%h", "%i")),
    "integers computed otherwise": (
        CHOSEN,
        "%h = aten.abs.default(%i) : (tensor<2x4xi8>) -> tensor<2x4xi8>",
        BACK,
    ),
    "a scale from outside": tuple(
        line.replace("%s", "%e").replace("%n", "%z") for line in (HELD, BACK)
    ),
    "a computed scale": (
        "%s = aten.abs.default(%e) : (tensor<1xf64>) -> tensor<1xf64>",
        *(line.replace("%n", "%z") for line in (HELD, BACK)),
    ),
    "a symmetric scale": (SYMMETRIC, HELD, BACK),
    "two scales": (CHOSEN, HELD.replace("%s", "%e"), BACK),
    "the scale of another value": (CHOSEN.replace("%x", "%o"), HELD, BACK),
    "a part of int8": (CHOSEN, *NARROW[1:]),
    "a scale for a part of int8": (CHOSEN.replace("-128", "-127"), HELD, BACK),
    "a scale for all tokens": BLOCKS,
    "symmetric tokens": (AFFINE[0].replace("ASYMMETRIC", "SYMMETRIC"), *AFFINE[1:]),
    "a constant": (
        f'%k = stepwell.weight <"k"> "constant" : {X}',
        *(line.replace("%x", "%k") for line in TENSOR),
    ),
}


@pytest.mark.parametrize("name", OTHER_FORMS)
def test_rows_with_another_scale_stay_floats(name: str, apply: Any, method: Any):
    """The weight stays stored; the rows are not quantized anew by the node."""
    lines = OTHER_FORMS[name]
    lines = lines if "%y" in lines[-1] else (*lines, LINEAR)
    done = apply(
        method(ARGUMENTS, weight(), *lines, gives=Y), step(quantized_layers.dynamic_linear)
    )
    assert "xnnpack.convert" not in done.ops() and done.count == 1


def dynamic(real: str = "f32", source: str = "f32") -> tuple[str, ...]:
    """The lines of `TENSOR`, from floats of one type to floats of another."""
    chosen, held, back = (line.replace(X, f"tensor<2x4x{source}>") for line in TENSOR)
    back = back.replace(f"tensor<2x4x{source}>", f"tensor<2x4x{real}>")
    return chosen, held, back.replace("127, i8)", f"127, i8, out_dtype={real})")


def grouped(storage: str) -> str:
    """A stored weight with a scale for every two inputs."""
    return weight(
        f"!quant.uniform<{storage}:f32:{{0:1, 1:2}}, {{{{1.0, 2.0}}, {{1.0, 2.0}}, {{1.0, 2.0}}}}>"
    )


GROUPS = "!quant.uniform<i8<-8:7>:f32:{0:1, 1:32}, {{1.0, 2.0}, {1.0, 2.0}, {1.0, 2.0}}>"
HALVES = LINEAR.replace("f32", "f16")
NEAR_MISSES = {
    "an unsigned weight": (weight("!quant.uniform<u8:f32, 0.125>", "ui8"), TENSOR, "signed int8"),
    "a weight of int16": (weight("!quant.uniform<i16:f32, 0.125>", "i16"), TENSOR, "signed int8"),
    "a weight of halves under halves": (
        weight("!quant.uniform<i8:f16, 0.125>", sizes="3x64x", real="f16"),
        (HALVES.replace("%d", "%v").replace("2x4x", "2x64x").replace("3x4x", "3x64x"),),
        "of float32",
    ),
    "rows of bfloats": (
        weight(), (*dynamic(source="bf16"), LINEAR), "quantizes float32 and",
    ),
    "a weight with a zero point": (weight("!quant.uniform<i8:f32, 0.125:1>"), TENSOR, "zero point"),
    "scales on the inputs": (
        weight("!quant.uniform<i8:f32:1, {0.1, 0.2, 0.3, 0.4}>"), TENSOR, "axis of inputs",
    ),
    "blocks over outputs": (
        weight("!quant.uniform<i8<-8:7>:f32:{0:3, 1:2}, {{0.1, 0.2}}>"), TENSOR, "not runs",
    ),
    "groups of low 8-bit numbers": (grouped("i8<-9:7>"), TENSOR, "4-bit weights only"),
    "groups of high 8-bit numbers": (grouped("i8<-8:8>"), TENSOR, "4-bit weights only"),
    "groups of two": (grouped("i8<-8:7>"), TENSOR, "multiples of 32"),
    "groups under float inputs": (
        weight(GROUPS, sizes="3x64x"),
        (f"%y = aten.linear.default(%v, %r) : (tensor<2x64xf32>, tensor<3x64xf32>) -> {Y}",),
        "no kernel for groups",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_layer_without_dynamic_kernel_stays(name: str, refused: Any, method: Any):
    stored, lines, reason = NEAR_MISSES[name]
    gives = Y.replace("f32", "f16") if "f16" in lines[-1] else Y
    lines = lines if "%y" in lines[-1] else (*lines, LINEAR)
    x = X.replace("f32", "bf16") if name == "rows of bfloats" else X
    v = "tensor<2x64xf16>" if name == "a weight of halves under halves" else "tensor<2x64xf32>"
    text = method(f"%x: {x}, %v: {v}", stored, *lines, gives=gives)
    refused(text, step(quantized_layers.dynamic_linear), reason)


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


def convolved(
    method: Any,
    stored: str,
    *,
    lines: tuple[str, ...] = TENSOR,
    rest: str = "none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1",
    types: tuple[str, str, str] = ("1x4x5x5x", "3x4x1x1x", "1x3x5x5x"),
    more: str = "",
    real: str = "f32",
) -> str:
    """A convolution of what `lines` make of `%x`."""
    image, filters, made = types
    changed = [line.replace("2x4x", image) for line in lines]
    of = f"(tensor<{image}{real}>, tensor<{filters}{real}>{more}) -> tensor<{made}{real}>"
    line = f"%y = aten.convolution.default(%d, %r, {rest}) : {of}"
    held = changed[1 % len(changed)].partition(" : (")[2]
    given = next((f for f in ("f16", "bf16") if held.startswith(f"tensor<{image}{f}>")), "f32")
    arguments = f"%x: tensor<{image}{given}>{more.replace(', ', ', %b: ')}"
    return method(arguments, stored, *changed, line, gives=f"tensor<{made}{real}>")


def filters(
    held: str = STORED, storage: str = "i8", sizes: str = "3x4x1x1x", real: str = "f32"
) -> str:
    return weight(held, storage, sizes, real)


def test_layers_of_halves_are_computed_in_singles(apply: Any, method: Any):
    """Casts around: a CPU without half arithmetic has no kernels that give halves.

    Every token has -128 and 127 in it: its scale is one, and nothing rounds but the result.
    """
    lines = dynamic("f16", "f16")
    stored = weight("!quant.uniform<i8:f16, 0.125>", real="f16")
    x, y = X.replace("f32", "f16"), Y.replace("f32", "f16")
    linear = method(f"%x: {x}", stored, *lines, HALVES, gives=y)
    image = convolved(
        method,
        filters("!quant.uniform<i8:f16, 0.125>", real="f16"),
        lines=lines,
        real="f16",
    )
    for text, lowering, layer in (
        (linear, quantized_layers.dynamic_linear, "xnnpack.fully_connected"),
        (image, quantized_layers.dynamic_convolution, "xnnpack.convolution_2d"),
    ):
        given = torch.randint(-9, 9, (1, 4, 5, 5) if text is image else (2, 4)).half()
        given[:, 0], given[:, 1] = -128, 127
        ops = apply(text, step(lowering), inputs=[given]).ops()
        assert layer in ops and "xnnpack.convert" in ops
        assert ops.count("aten._to_copy.default") == 2

"""Layers of int8: each parameter that XNNPACK's kernels do not take leaves the layer to floats."""

from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import quantized_layers

KINDS = {
    "linear": ("2, 4", "3, 4", "2, 3", "aten.linear.default({}, {}, {})"),
    "convolution": (
        "1, 4, 5, 5",
        "3, 4, 1, 1",
        "1, 3, 5, 5",
        "aten.convolution.default({}, {}, {}, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)",
    ),
}
"""Sizes of rows, of filters and of results, and the call."""
REWRITES = {
    "linear": step(quantized_layers.quantized_linear),
    "convolution": step(quantized_layers.quantized_convolution),
}


def layer(
    kind: str,
    *,
    source: str = "i8<0.5:3>",
    made: str = "i8<0.25>",
    held: str = "i8<0.125>",
    storage: str = "i8",
    value: str = "%x",
    weight: str = "%r",
    bias: str = "none",
) -> str:
    """q(layer(dq(q), dq(w)[, bias])); `value` and `weight` name what the layer reads."""
    rows, filters, results, call = KINDS[kind]
    return f"""
        %t = quant.scast(%w: weight {storage}[{filters}]) -> {held}[{filters}]
        %r = quant.dcast(%t); %g: f32[{filters}]
        %x = quant.dcast(%q: {source}[{rows}]); %f: f32[{rows}]
        %l = {call.format(value, weight, bias)}; %y = quant.qcast(%l) -> {made}[{results}]
    """


NEAR_MISSES: dict[str, tuple[dict[str, str], str]] = {
    "a float input": ({"value": "%f"}, ""),
    "a float weight": ({"weight": "%g"}, "is not quantized"),
    "an input of int16": ({"source": "i16<0.5>"}, "not int8 or uint8"),
    "a result of int16": ({"made": "i16<0.5>"}, "not int8 or uint8"),
    "unsigned values": (
        {"source": "!quant.uniform<u8:f32, 0.5:3>", "made": "!quant.uniform<u8:f32, 0.25>"},
        "signed weights need qint8",
    ),
    "a result in a part of int8": ({"made": "i8<-100:127; 0.25>"}, "XNNPACK uses the whole range"),
    "an unsigned weight": (
        {"held": "!quant.uniform<u8:f32, 0.125>", "storage": "ui8"},
        "the weight is uint8, not int8",
    ),
    "a weight of int16": ({"held": "i16<0.125>", "storage": "i16"}, "weight is int16, not int8"),
    "a weight with a zero point": ({"held": "i8<0.125:1>"}, "not quantized symmetrically"),
    "scales on the inputs": ({"held": "i8<:1, {0.1, 0.2, 0.3, 0.4}>"}, "for each output channel"),
    "scales of groups": (
        {"held": "i8<:{0:1, 1:2}, {{0.1, 0.2}, {0.3, 0.4}, {0.5, 0.6}}>"},
        "a scale for each block",
    ),
    "a computed bias": ({"bias": "%b: f32[3]"}, "the bias is computed"),
    "a bias that overflows": (
        {"bias": "%b: weight f32[3]", "source": "i8<1.0e-08>", "held": "i8<1.0e-08>"},
        "the bias overflows",
    ),
    "a product that grows": ({"made": "i8<1.0e-04>"}, "less than 256"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_layer_without_int8_kernel_stays(name: str, kind: str, refused: Any):
    changes, reason = NEAR_MISSES[name]
    refused(layer(kind, **changes), REWRITES[kind], reason)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", ["none", "%b: weight f32[3]"])
def test_a_layer_of_int8_is_a_node(bias: str, kind: str, apply: Any):
    assert apply(layer(kind, bias=bias), REWRITES[kind]).count == 1


test_lower_quantized_layers = cases(quantized_layers)("""
lower-quantized-linear | lower-quantized-convolution: an op that is no layer -> unchanged
    %l = aten.abs.default(%f: f32[2, 4]); %y = quant.qcast(%l) -> i8<0.25>[2, 4]
lower-quantized-linear: a layer whose result is read as floats too -> refused: used as a float by func.return
    %t = quant.scast(%w: weight i8[3, 4]) -> i8<0.125>[3, 4]; %r = quant.dcast(%t)
    %x = quant.dcast(%q: i8<0.5:3>[2, 4]); %l = aten.linear.default(%x, %r)
    %y = quant.qcast(%l) -> i8<0.25>[2, 3]; return %y, %l
lower-quantized-convolution: a layer whose result is read as floats too -> refused: used as a float by func.return
    %t = quant.scast(%w: weight i8[3, 4, 1, 1]) -> i8<0.125>[3, 4, 1, 1]; %r = quant.dcast(%t)
    %x = quant.dcast(%q: i8<0.5:3>[1, 4, 5, 5])
    %l = aten.convolution.default(%x, %r, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %y = quant.qcast(%l) -> i8<0.25>[1, 3, 5, 5]; return %y, %l
lower-quantized-linear: an input vector -> refused: is a vector
    %t = quant.scast(%w: weight i8[3, 4]) -> i8<0.125>[3, 4]; %r = quant.dcast(%t)
    %x = quant.dcast(%q: i8<0.5:3>[4]); %l = aten.linear.default(%x, %r)
    %y = quant.qcast(%l) -> i8<0.25>[3]
lower-quantized-linear: a weight vector -> refused: is a vector
    %t = quant.scast(%w: weight i8[4]) -> i8<0.125>[4]; %r = quant.dcast(%t)
    %x = quant.dcast(%q: i8<0.5:3>[2, 4]); %l = aten.linear.default(%x, %r)
    %y = quant.qcast(%l) -> i8<0.25>[2]
lower-quantized-convolution: an int8 volume -> refused: rank 5
    %t = quant.scast(%w: weight i8[3, 4, 1, 1, 1]) -> i8<0.125>[3, 4, 1, 1, 1]; %r = quant.dcast(%t)
    %x = quant.dcast(%q: i8<0.5:3>[1, 4, 3, 3, 3])
    %l = aten.convolution.default(%x, %r, none, [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1)
    %y = quant.qcast(%l) -> i8<0.25>[1, 3, 3, 3, 3]
lower-quantized-linear: a layer read by two quantizations -> refused: quantized in several ways
    # A node writes one: two would compute the layer twice.
    %t = quant.scast(%w: weight i8[3, 4]) -> i8<0.125>[3, 4]; %r = quant.dcast(%t)
    %x = quant.dcast(%q: i8<0.5:3>[2, 4]); %l = aten.linear.default(%x, %r)
    %y = quant.qcast(%l) -> i8<0.25>[2, 3]; %z = quant.qcast(%l) -> i8<0.5:3>[2, 3]; return %y, %z
lower-quantized-linear: a bias of integers in units of the products is taken -> applied once
    %m = quant.scast(%n: weight i32[3]) -> i32<0.0625>[3]; %b = quant.dcast(%m)
    %t = quant.scast(%w: weight i8[3, 4]) -> i8<0.125>[3, 4]; %r = quant.dcast(%t)
    %x = quant.dcast(%q: i8<0.5:3>[2, 4]); %l = aten.linear.default(%x, %r, %b)
    %y = quant.qcast(%l) -> i8<0.25>[2, 3]
lower-quantized-linear: clamps before the quantization are one range of the node -> applied once; writes output_min=0.0, output_max=2.0
    %t = quant.scast(%w: weight i8[3, 4]) -> i8<0.125>[3, 4]; %r = quant.dcast(%t)
    %x = quant.dcast(%q: i8<0.5:3>[2, 4]); %l = aten.linear.default(%x, %r)
    %c = aten.relu.default(%l)
    %d = aten.hardtanh.default(%c, -1.0, 2.0); %y = quant.qcast(%d) -> i8<0.25>[2, 3]
""")


test_lower_quantized_layers_unrun = cases(quantized_layers, run=False)("""
lower-quantized-linear: a bias of integers that overflows in those units -> refused: the bias overflows
    %m = quant.scast(%n: weight i32[3]) -> i32<0.0625>[3]; %b = quant.dcast(%m)
    %t = quant.scast(%w: weight i8[3, 4]) -> i8<1.0e-08>[3, 4]; %r = quant.dcast(%t)
    %x = quant.dcast(%q: i8<1.0e-08>[2, 4]); %l = aten.linear.default(%x, %r, %b)
    %y = quant.qcast(%l) -> i8<0.25>[2, 3]
""")

test_groups_of_a_transposed_convolution = cases(quantized_layers)("""
groups that share one scale -> applied once
    %t = quant.scast(%w: weight i8[4, 2, 2, 2]) -> i8<0.125>[4, 2, 2, 2]; %r = quant.dcast(%t)
    %x = quant.dcast(%q: i8<0.5:3>[1, 4, 3, 3])
    %l = aten.convolution.default(%x, %r, none, [2, 2], [0, 0], [1, 1], true, [0, 0], 2)
    %y = quant.qcast(%l) -> i8<0.25>[1, 4, 6, 6]
groups with scales of their own -> refused: shares each scale
    %t = quant.scast(%w: weight i8[4, 2, 2, 2]) -> i8<:1, {0.1, 0.2}>[4, 2, 2, 2]
    %r = quant.dcast(%t); %x = quant.dcast(%q: i8<0.5:3>[1, 4, 3, 3])
    %l = aten.convolution.default(%x, %r, none, [2, 2], [0, 0], [1, 1], true, [0, 0], 2)
    %y = quant.qcast(%l) -> i8<0.25>[1, 4, 6, 6]
""")

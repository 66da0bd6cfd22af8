"""Layers of int8: each parameter that XNNPACK's kernels do not take leaves the layer to floats."""

from collections.abc import Callable
from typing import Any

import pytest
from rewrite_cases import cases

from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.translate.lowerings.lowering import step
from stepwell.translate.lowerings.xnnpack import quantized_layers

INT8 = "!quant.uniform<i8:f32, 0.5:3>"
MADE = "!quant.uniform<i8:f32, 0.25>"
STORED = "!quant.uniform<i8:f32, 0.125>"
PLAIN = "[1, 1], [0, 0], [1, 1], false, [0, 0], 1"


def shape(type_: str) -> str:
    """The sizes of a float tensor type, `2x4x`."""
    return type_.removeprefix("tensor<").removesuffix("f32>")


def cast(kind: str, given: str, made: str, one: str, other: str, sizes: str) -> str:
    return f"%{made} = quant.{kind} %{given} : tensor<{sizes}{one}> to tensor<{sizes}{other}>"


def layer(
    method: Any,
    call: str,
    types: tuple[str, str, str],
    *,
    source: str = INT8,
    made: str = MADE,
    held: str = STORED,
    storage: str = "i8",
    bias: str = "",
    arguments: str = "",
    weight: str = "r",
    value: str = "x",
) -> str:
    """q(layer(dq(q), dq(w)[, bias])); `weight` and `value` name what the layer reads."""
    x, w, y = types
    more = ", tensor<3xf32>" if bias else ""
    return method(
        f"%q: tensor<{shape(x)}{source}>, %f: {x}, %g: {w}{arguments}",
        f'%w = stepwell.weight <"w"> "parameter" : tensor<{shape(w)}{storage}>',
        bias,
        cast("scast", "w", "t", storage, held, shape(w)),
        cast("dcast", "t", "r", held, "f32", shape(w)),
        cast("dcast", "q", "x", source, "f32", shape(x)),
        f"%l = {call} : ({x}, {w}{more}) -> {y}".replace("%r", f"%{weight}").replace(
            "%x", f"%{value}"
        ),
        cast("qcast", "l", "y", "f32", made, shape(y)),
        gives=f"tensor<{shape(y)}{made}>",
    )


ROWS = ("tensor<2x4xf32>", "tensor<3x4xf32>", "tensor<2x3xf32>")
IMAGES = ("tensor<1x4x5x5xf32>", "tensor<3x4x1x1xf32>", "tensor<1x3x5x5xf32>")


def linear(method: Any, **changes: Any) -> str:
    call = "aten.linear.default(%x, %r, %b)" if "bias" in changes else "aten.linear.default(%x, %r)"
    return layer(method, call, ROWS, **changes)


def convolution(method: Any, **changes: Any) -> str:
    bias = "%b" if "bias" in changes else "none"
    return layer(method, f"aten.convolution.default(%x, %r, {bias}, {PLAIN})", IMAGES, **changes)


LAYERS = [
    (linear, step(quantized_layers.quantized_linear)),
    (convolution, step(quantized_layers.quantized_convolution)),
]
Written = Callable[..., str]

BIAS = '%b = stepwell.weight <"b"> "parameter" : tensor<3xf32>'
NEAR_MISSES: dict[str, tuple[dict[str, str], str]] = {
    "a float input": ({"value": "f"}, ""),
    "a float weight": ({"weight": "g"}, "is not quantized"),
    "an input of int16": ({"source": "!quant.uniform<i16:f32, 0.5>"}, "not int8 or uint8"),
    "a result of int16": ({"made": "!quant.uniform<i16:f32, 0.5>"}, "not int8 or uint8"),
    "unsigned values": (
        {"source": "!quant.uniform<u8:f32, 0.5:3>", "made": "!quant.uniform<u8:f32, 0.25>"},
        "signed weights need qint8",
    ),
    "a result in a part of int8": (
        {"made": "!quant.uniform<i8<-100:127>:f32, 0.25>"},
        "XNNPACK uses the whole range",
    ),
    "an unsigned weight": (
        {"held": "!quant.uniform<u8:f32, 0.125>", "storage": "ui8"},
        "its weight is uint8, not int8",
    ),
    "a weight of int16": (
        {"held": "!quant.uniform<i16:f32, 0.125>", "storage": "i16"},
        "its weight is int16, not int8",
    ),
    "a weight with a zero point": (
        {"held": "!quant.uniform<i8:f32, 0.125:1>"},
        "not quantized symmetrically",
    ),
    "scales on the inputs": (
        {"held": "!quant.uniform<i8:f32:1, {0.1, 0.2, 0.3, 0.4}>"},
        "for each output channel",
    ),
    "scales of groups": (
        {"held": "!quant.uniform<i8:f32:{0:1, 1:2}, {{0.1, 0.2}, {0.3, 0.4}, {0.5, 0.6}}>"},
        "a scale for each block",
    ),
    "a computed bias": (
        {"bias": "%b = aten.abs.default(%c) : (tensor<3xf32>) -> tensor<3xf32>"},
        "its bias is computed",
    ),
    "a bias that overflows": (
        {
            "bias": BIAS,
            "source": "!quant.uniform<i8:f32, 1.0e-08>",
            "held": "!quant.uniform<i8:f32, 1.0e-08>",
        },
        "the bias overflows",
    ),
    "a product that grows": ({"made": "!quant.uniform<i8:f32, 1.0e-04>"}, "less than 256"),
}


@pytest.mark.parametrize("write", LAYERS, ids=["linear", "convolution"])
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_layer_without_int8_kernel_stays(
    name: str, write: tuple[Written, Rewrite[Any]], refused: Any, method: Any
):
    changes, reason = NEAR_MISSES[name]
    text, rewrite = write
    arguments = ", %c: tensor<3xf32>" if "bias" in changes else ""
    refused(text(method, arguments=arguments, **changes), rewrite, reason)


@pytest.mark.parametrize("write", LAYERS, ids=["linear", "convolution"])
@pytest.mark.parametrize("bias", [{}, {"bias": BIAS}], ids=["no bias", "bias"])
def test_a_layer_of_int8_is_a_node(
    bias: dict[str, str], write: tuple[Written, Rewrite[Any]], apply: Any, method: Any
):
    text, rewrite = write
    assert apply(text(method, **bias), rewrite).count == 1


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


TURNED = "[2, 2], [0, 0], [1, 1], true, [0, 0], 2"


@pytest.mark.parametrize(
    ("held", "taken"), [(STORED, True), ("!quant.uniform<i8:f32:1, {0.1, 0.2}>", False)]
)
def test_groups_of_a_transposed_convolution_share_one_scale(
    held: str, taken: bool, apply: Any, refused: Any, method: Any
):
    types = ("tensor<1x4x3x3xf32>", "tensor<4x2x2x2xf32>", "tensor<1x4x6x6xf32>")
    call = f"aten.convolution.default(%x, %r, none, {TURNED})"
    text = layer(method, call, types, held=held)
    if taken:
        assert apply(text, step(quantized_layers.quantized_convolution)).count == 1
    else:
        refused(text, step(quantized_layers.quantized_convolution), "shares each scale")

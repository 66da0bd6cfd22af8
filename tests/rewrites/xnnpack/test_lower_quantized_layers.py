"""Layers of int8: each parameter that XNNPACK's kernels do not take leaves the layer to floats."""

from collections.abc import Callable
from typing import Any

import pytest

from stepwell.ir.rewriting.rewrite import Rewrite
from stepwell.translate.lowerings.lowering import is_step, step
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
def test_it_stays(name: str, write: tuple[Written, Rewrite[Any]], refused: Any, method: Any):
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


@pytest.mark.parametrize("rewrite", [rewrite for _, rewrite in LAYERS])
def test_an_op_that_is_no_layer_is_left_alone(rewrite: Rewrite[Any], refused: Any, method: Any):
    line = f"%l = aten.abs.default(%f) : ({ROWS[0]}) -> {ROWS[0]}"
    made = f"tensor<2x4x{MADE}>"
    lines = (line, cast("qcast", "l", "y", "f32", MADE, "2x4x"))
    refused(method(f"%f: {ROWS[0]}", *lines, gives=made), rewrite)


@pytest.mark.parametrize("rewrite", [rewrite for _, rewrite in LAYERS])
def test_a_layer_whose_result_is_read_as_floats_too_stays(
    rewrite: Rewrite[Any], refused: Any, method: Any
):
    text = (linear if is_step(rewrite, quantized_layers.quantized_linear) else convolution)(method)
    gives = text[text.index("-> tensor<") + 3 : text.index(" {\n")]
    floats = ROWS[2] if is_step(rewrite, quantized_layers.quantized_linear) else IMAGES[2]
    text = text.replace(f"-> {gives} {{", f"-> ({gives}, {floats}) {{")
    text = text.replace(f"return %y : {gives}", f"return %y, %l : {gives}, {floats}")
    refused(text, rewrite, "used as a float by func.return")


VECTORS = {
    "an input vector": ("tensor<4xf32>", "tensor<3x4xf32>", "tensor<3xf32>"),
    "a weight vector": ("tensor<2x4xf32>", "tensor<4xf32>", "tensor<2xf32>"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_linear_layer_of_a_vector_stays(name: str, refused: Any, method: Any):
    text = layer(method, "aten.linear.default(%x, %r)", VECTORS[name])
    refused(text, step(quantized_layers.quantized_linear), "is a vector")


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


def test_an_int8_volume_stays(refused: Any, method: Any):
    types = ("tensor<1x4x3x3x3xf32>", "tensor<3x4x1x1x1xf32>", "tensor<1x3x3x3x3xf32>")
    rest = "[1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1"
    text = layer(method, f"aten.convolution.default(%x, %r, none, {rest})", types)
    refused(text, step(quantized_layers.quantized_convolution), "rank 5")


def test_a_layer_read_by_two_quantizations_stays(refused: Any, method: Any):
    """A node writes one: two would compute the layer twice."""
    text = linear(method)
    gives = f"tensor<2x3x{MADE}>"
    other = f"tensor<2x3x{INT8}>"
    text = text.replace(f"-> {gives} {{", f"-> ({gives}, {other}) {{")
    second = cast("qcast", "l", "z", "f32", INT8, "2x3x")
    text = text.replace("  func.return", f"  {second}\n  func.return")
    text = text.replace(f"return %y : {gives}", f"return %y, %z : {gives}, {other}")
    refused(text, step(quantized_layers.quantized_linear), "quantized in several ways")


STEPS = '%n = stepwell.weight <"n"> "parameter" : tensor<3xi32>'


def test_a_bias_of_integers_in_units_of_the_products_is_taken(apply: Any, method: Any):
    bias = (
        f"{STEPS}\n"
        + cast("scast", "n", "m", "i32", "!quant.uniform<i32:f32, 0.0625>", "3x")
        + "\n"
        + cast("dcast", "m", "b", "!quant.uniform<i32:f32, 0.0625>", "f32", "3x")
    )
    assert apply(linear(method, bias=bias), step(quantized_layers.quantized_linear)).count == 1


def test_a_bias_of_integers_that_overflows_in_those_units_is_refused(left: Any, method: Any):
    unit = "!quant.uniform<i32:f32, 0.0625>"
    bias = "\n".join(
        [
            STEPS,
            cast("scast", "n", "m", "i32", unit, "3x"),
            cast("dcast", "m", "b", unit, "f32", "3x"),
        ]
    )
    tiny = {"source": "!quant.uniform<i8:f32, 1.0e-08>", "held": "!quant.uniform<i8:f32, 1.0e-08>"}
    text = linear(method, bias=bias, **tiny)
    left(text, step(quantized_layers.quantized_linear), "the bias overflows")


def test_clamps_before_the_quantization_are_one_range_of_the_node(apply: Any, method: Any):
    text = linear(method)
    made = "(tensor<2x3xf32>) -> tensor<2x3xf32>"
    clamps = (
        f"%c = aten.relu.default(%l) : {made}\n  %d = aten.hardtanh.default(%c, -1.0, 2.0) : {made}"
    )
    text = text.replace("  %y = quant.qcast %l", f"  {clamps}\n  %y = quant.qcast %d")
    done = apply(text, step(quantized_layers.quantized_linear))
    assert done.count == 1
    assert "output_min=0.0, output_max=2.0" in done.text

"""An instance of every op of the `cmsis` dialect; the last line is the op."""

import re


def _cmsis(name: str, *types: str, made: str = "", fields: str = "", bias: str = "") -> str:
    """An op of int8 operands; `N: i64` is written `N`, and lists of numbers `[N, N]`."""
    given = [f"tensor<{t if t[-3:] in ('f32', 'i32') else t + 'xi8'}>" for t in types]
    values = [f"%v{index}" for index in range(len(given))]
    if bias:
        values[2:] = [f"bias = {values[2]}"]
    held = re.sub(r"\[(.*?)\]", r"array<i64: \1>", re.sub(r"(= -?\d+)(?=,|$)", r"\1 : i64", fields))
    made = f"tensor<{made if made.endswith('f32') else (made or types[0]) + 'xi8'}>"
    text = f" {{{held}}}" if held else ""
    return f"%y = cmsis.{name}({', '.join(values)}){text} : ({', '.join(given)}) -> {made}"


_CONVERT = 'scale = 0.5, zero_point = 3, quant_min = -128, quant_max = 127, dtype = "int8"'
_RANGE = "activation_min = -128, activation_max = 127"
_ADD = ", ".join(
    f"{side}_{field}"
    for side in ("self", "other", "output")
    for field in ("zero_point = 0", "multiplier = 1073741824", "shift = 0")
)
_ZEROS = "self_zero_point = 0, other_zero_point = 0, output_zero_point = 0"
_MUL = f"{_ZEROS}, output_multiplier = 1073741824, output_shift = -3"
_LINEAR = (
    "input_offset = 0, filter_offset = 0, output_offset = 0, requantize_multipliers = "
    "array<i32: 1073741824>, requantize_shifts = array<i32: -3>, activation_max = 127, "
    "activation_min = -128"
)


def _spatial(channels: int, dilation: str = "[1, 1]") -> str:
    return (
        f"stride = [2, 1], padding = [1, 0], dilation = {dilation}, input_offset = 0, "
        "output_offset = 0, activation_min = -128, activation_max = 127, scratch = 0, "
        f"requantize_multipliers = array<i32: {', '.join(['1073741824'] * channels)}>, "
        f"requantize_shifts = array<i32: {', '.join(['-3'] * channels)}>"
    )


_POOL = "kernel_size = [3, 2], stride = [2, 1], padding = [1, 0], ceil_mode = false"
_AVERAGE = f"{_POOL}, zero_point = 0, multiplier = 1, shift = 0, scratch = 0"
_GREATEST = (
    f"{_POOL}, dilation = [1, 1], input_zero_point = 0, output_zero_point = 0, "
    "activation_min = -128, activation_max = 127"
)
_REVERSED = "output_padding = [0, 0], output_scratch = 0"
CMSIS: tuple[str, ...] = (
    _cmsis("quantize_per_tensor", "2x3xf32", made="2x3", fields=_CONVERT),
    _cmsis("dequantize_per_tensor", "2x3", made="2x3xf32", fields=_CONVERT),
    *(
        _cmsis(name, *types, made="1x4x2x3", fields=fields)
        for types in (("1x4x2x3", "1x4x2x3"), ("1x4x2x3", "1x4x1x1"))
        for name, fields in (
            ("quantized_add", f"{_ADD}, {_RANGE}"),
            ("quantized_mul", _MUL),
            ("minimum", ""),
            ("maximum", ""),
        )
    ),
    _cmsis("quantized_div", "2x3", "2x3", fields=f"{_ZEROS}, output_scale = 0.5"),
    _cmsis("quantized_activation", "2x3", "256"),
    _cmsis(
        "softmax",
        "2x3",
        fields="dim = -1, input_zero_point = 0, output_zero_point = -128, "
        "input_multiplier = 1073741824, input_shift = 20, diff_min = -500",
    ),
    _cmsis("transpose", "2x3x4", made="4x2x3", fields="perm = [2, 0, 1]"),
    _cmsis("relabel", "2x3x4", made="4x2x3", fields="perm = [2, 0, 1]"),
    _cmsis(
        "pad",
        "3x2",
        made="4x5",
        fields="pre_pad = [0, 0, 1, 0], post_pad = [0, 0, 0, 3], pad_value = 4",
    ),
    _cmsis("part", "1x5x2", made="1x2x2", fields="axis = 1, start = 2"),
    _cmsis("copy", "2x3"),
    _cmsis("quantized_linear", "2x3x4", "5x4", made="2x3x5", fields=_LINEAR),
    _cmsis("quantized_linear", "3x4", "5x4", "5xi32", made="3x5", fields=_LINEAR, bias="bias"),
    _cmsis(
        "quantized_batch_matmul",
        "2x3x4",
        "2x5x4",
        made="2x3x5",
        fields="lhs_zero_point = 0, rhs_zero_point = 0, output_zero_point = 0, "
        "output_multiplier = 1073741824, output_shift = -3, scratch = 0",
    ),
    *(
        _cmsis(f"quantized_{name}{form}", image, *types, made=made, fields=fields, bias="bias")
        for name, images, types, results, fields in (
            (
                "conv2d",
                ("1x5x4x2", "1x2x5x4"),
                ("3x2x2x2", "3xi32"),
                ("1x3x3x3", "1x3x3x3"),
                _spatial(3),
            ),
            (
                "depthwise_conv2d",
                ("1x5x6x2", "1x2x5x6"),
                ("1x2x2x2", "2xi32"),
                ("1x3x4x2", "1x2x3x4"),
                f"{_spatial(2, '[1, 2]')}, depth_multiplier = 1",
            ),
            (
                "transpose_conv2d",
                ("1x2x3x2", "1x2x2x3"),
                ("3x3x2x2", "3xi32"),
                ("1x3x4x3", "1x3x3x4"),
                f"{_spatial(3)}, {_REVERSED}",
            ),
        )
        for form, image, made in zip(("_nhwc", ""), images, results, strict=True)
    ),
    *(
        _cmsis(f"quantized_{name}{form}", image, made=made, fields=fields)
        for name, fields in (("avg_pool2d", _AVERAGE), ("max_pool2d", _GREATEST))
        for form, image, made in (("_nhwc", "1x5x4x2", "1x3x3x2"), ("", "1x2x5x4", "1x2x3x3"))
    ),
)

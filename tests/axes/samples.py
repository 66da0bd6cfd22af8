"""An instance of every op that has an axis map, as text; the last line is the op."""

OPAQUE: dict[str, str] = {}
"""Ops without a map, and why."""


def _plain(name: str, *types: str, made: str = "", fields: str = "") -> str:
    values = [f"%v{index}" for index in range(len(types))]
    return f"%y = {name}({', '.join(values)}{fields}) : ({', '.join(types)}) -> {made or types[0]}"


_UNARY = (
    "abs ceiling copy cosine exp floor gelu hardswish log negate reciprocal_square_root sigmoid "
    "sine softmax square square_root tanh"
)
_BINARY = "add subtract multiply divide minimum maximum prelu"
_IMAGE = "tensor<2x5x6x2xf32>"
_XNNPACK = (
    *(_plain(f"xnnpack.{name}", "tensor<2x1x5xf32>") for name in _UNARY.split()),
    *(
        _plain(f"xnnpack.{name}", *types, made="tensor<2x3x4xf32>")
        for name in _BINARY.split()
        for types in (
            ("tensor<2x3x4xf32>", "tensor<2x3x4xf32>"),
            ("tensor<2x3x4xf32>", "tensor<3x1xf32>"),
        )
    ),
    _plain("xnnpack.clamp", "tensor<3x4xf32>", fields=", output_min=-0.5"),
    _plain("xnnpack.leaky_relu", "tensor<3x4xf32>", fields=", negative_slope=0.1"),
    _plain("xnnpack.elu", "tensor<3x4xf32>", fields=", alpha=0.7"),
    _plain("xnnpack.convert", "tensor<3x4xf32>", made="tensor<3x4xf16>"),
    _plain(
        "xnnpack.static_reshape",
        "tensor<2x1x6x4xf32>",
        made="tensor<2x3x8x1xf32>",
        fields=", new_shape=[2, 3, 8, 1]",
    ),
    _plain(
        "xnnpack.static_reshape",
        "tensor<4x6xf32>",
        made="tensor<3x4x2xf32>",
        fields=", new_shape=[3, 4, 2]",
    ),
    _plain(
        "xnnpack.static_transpose",
        "tensor<2x3x4xf32>",
        made="tensor<4x2x3xf32>",
        fields=", perm=[2, 0, 1]",
    ),
    _plain(
        "xnnpack.static_slice",
        "tensor<3x5xf32>",
        made="tensor<3x2xf32>",
        fields=", offsets=[0, 2], sizes=[0, 2]",
    ),
    _plain(
        "xnnpack.static_constant_pad",
        "tensor<3x2xf32>",
        made="tensor<4x5xf32>",
        fields=", pre_paddings=[1, 0], post_paddings=[0, 3], padding_value=1.5",
    ),
    *(
        _plain(
            f"xnnpack.concatenate{count}",
            *(f"tensor<2x{size}xf32>" for size in range(1, count + 1)),
            made=f"tensor<2x{count * (count + 1) // 2}xf32>",
            fields=", axis=1",
        )
        for count in (2, 3, 4, 5)
    ),
    _plain(
        "xnnpack.fully_connected",
        "tensor<2x3x4xf32>",
        "tensor<5x4xf32>",
        "tensor<5xf32>",
        made="tensor<2x3x5xf32>",
    ),
    _plain(
        "xnnpack.fully_connected",
        "tensor<3x4xf32>",
        "tensor<4x5xf32>",
        made="tensor<3x5xf32>",
        fields=", transpose_weights",
    ),
    _plain(
        "xnnpack.batch_matrix_multiply",
        "tensor<2x3x4x5xf32>",
        "tensor<1x5x2xf32>",
        made="tensor<2x3x4x2xf32>",
    ),
    _plain(
        "xnnpack.batch_matrix_multiply",
        "tensor<3x4xf32>",
        "tensor<5x4xf32>",
        made="tensor<3x5xf32>",
        fields=", transpose_b",
    ),
    _plain(
        "xnnpack.scaled_dot_product_attention",
        "tensor<1x2x3x4xf32>",
        "tensor<1x2x5x4xf32>",
        "tensor<1x2x5x2xf32>",
        "tensor<4xf32>",
        "tensor<3x5xf32>",
        made="tensor<1x2x3x2xf32>",
    ),
    _plain(
        "xnnpack.convolution_2d",
        "tensor<2x5x6x2xf32>",
        "tensor<4x3x2x1xf32>",
        "tensor<4xf32>",
        made="tensor<2x3x5x4xf32>",
        fields=", padding=[1, 0, 1, 1], stride=[2, 1], dilation=[1, 2], groups=2",
    ),
    _plain(
        "xnnpack.depthwise_convolution_2d",
        "tensor<1x4x4x3xf32>",
        "tensor<1x3x3x3xf32>",
        "tensor<3xf32>",
        made="tensor<1x2x2x3xf32>",
        fields=", padding=[1, 1, 1, 1], stride=[2, 2]",
    ),
    _plain(
        "xnnpack.depthwise_convolution_2d",
        "tensor<1x3x3x2xf32>",
        "tensor<1x2x2x4xf32>",
        made="tensor<1x2x2x4xf32>",
    ),
    _plain(
        "xnnpack.deconvolution_2d",
        "tensor<1x2x2x2xf32>",
        "tensor<3x2x2x2xf32>",
        "tensor<3xf32>",
        made="tensor<1x4x4x3xf32>",
        fields=", stride=[2, 2]",
    ),
    _plain(
        "xnnpack.max_pooling_2d",
        _IMAGE,
        made="tensor<2x3x4x2xf32>",
        fields=", kernel=[2, 2], stride=[2, 2], padding=[1, 1, 0, 1]",
    ),
    _plain(
        "xnnpack.average_pooling_2d",
        _IMAGE,
        made="tensor<2x5x3x2xf32>",
        fields=", kernel=[3, 2], stride=[1, 2], padding=[1, 0, 1, 0]",
    ),
    "%y, %z = xnnpack.argmax_pooling_2d(%x, kernel=[2, 2], stride=[2, 2]) : "
    "(tensor<1x4x4x2xf32>) -> (tensor<1x2x2x2xf32>, tensor<1x2x2x2xi32>)",
    _plain("xnnpack.global_average_pooling_2d", _IMAGE, made="tensor<2x2xf32>"),
    _plain(
        "xnnpack.global_average_pooling_2d",
        _IMAGE,
        made="tensor<2x1x1x2xf32>",
        fields=", keep_dims",
    ),
    _plain(
        "xnnpack.static_resize_bilinear_2d",
        "tensor<1x2x3x2xf32>",
        made="tensor<1x4x5x2xf32>",
        fields=", new_size=[4, 5]",
    ),
)

SAMPLES: tuple[str, ...] = _XNNPACK

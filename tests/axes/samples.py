"""An instance of every op that has an axis map, as text; the last line is the op."""

from .cmsis_samples import CMSIS
from .elementwise_samples import elementwise_samples

OPAQUE: dict[str, str] = {
    "cmsis.join": "it names what kernels have just written, and stays there",
}
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


def _aten(name: str, *types: str, made: str = "", args: str = "") -> str:
    """`add.Tensor`; `args` follow the tensors."""
    sizes = [t if t.startswith("tensor") else f"tensor<{t}>" for t in types]
    made = f"tensor<{made}>" if made and not made.startswith(("tensor", "(")) else made
    return _plain(f"aten.{name}", *sizes, made=made, fields=f", {args}" if args else "")


_ATEN_ARGUMENTS = {
    "clamp": "-0.5, 0.5",
    "clamp_min": "-0.5",
    "clamp_max": "0.5",
    "threshold": "0.1, 0.2",
    "dropout": "0.5, false",
}
_BOTH = (("2x3x4xf32", "2x3x4xf32"), ("2x3x4xf32", "3x1xf32"))
_CUBE = "2x3x4xf32"
_CHANNELS = "tensor<2x3x2xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>"
_NONE = "tensor<0xf32>"
_ATEN_MORE = (
    _aten("clip.default", "2x1x5xf32", args="-0.5, 0.5"),
    _aten("softshrink.default", "2x1x5xf32", args="0.4"),
    _aten("alpha_dropout.default", "2x1x5xf32", args="0.5, false"),
    _aten("feature_dropout.default", "2x1x5xf32", args="0.5, false"),
    _aten("feature_alpha_dropout.default", "2x1x5xf32", args="0.5, false"),
    "%y, %m = aten.native_dropout.default(%x, 0.5, false) : (tensor<2x3xf32>) -> "
    "(tensor<2x3xf32>, tensor<2x3xi1>)",
    *(
        _aten(name, "2x3x4xf32", "3x1xf32", made=_CUBE)
        for name in ("rsub.Tensor", "copy.default", "clamp.Tensor", "clamp_min.Tensor",
                     "clamp_max.Tensor", "max.other", "min.other", "_prelu_kernel.default")
    ),
    *(
        _aten(f"{name}.default", "2x3x4xf32", "3x1xf32", "4xf32", made=_CUBE, args="value=0.3")
        for name in ("addcmul", "addcdiv")
    ),
    _aten("lerp.Scalar", "2x3xf32", "2x3xf32", args="0.3"),
    _aten("prelu.default", "2x3x4xf32", "3xf32", made=_CUBE),
    _aten("prelu.default", "2x3x4xf32", "1xf32", made=_CUBE),
    _aten("lerp.Scalar", "2x3xf32", "2x3xf32", args="0.7"),
    _aten("logsumexp.default", _CUBE, made="2x1x4xf32", args="[1], true"),
    _aten("rms_norm.default", _CUBE, "3x4xf32", made=_CUBE).replace("%v0, ", "%v0, [3, 4], "),
    "%y, %r = aten._fused_rms_norm.default(%x, [4], %w, 0.1) : (tensor<2x3x4xf32>, tensor<4xf32>) "
    "-> (tensor<2x3x4xf32>, tensor<2x3x1xf32>)",
    "%y, %m, %r = aten.native_layer_norm.default(%x, [4], %w, %b, 0.1) : (tensor<2x3x4xf32>, "
    "tensor<4xf32>, tensor<4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3x1xf32>, tensor<2x3x1xf32>)",
    f"%y, %m, %s = aten.native_batch_norm.default(%x, %w, %b, %n, %v, false, 0.1, 0.1) : "
    f"({_CHANNELS}) -> (tensor<2x3x2xf32>, {_NONE}, {_NONE})",
    f"%y, %m, %s, %t = aten._batch_norm_no_update.default(%x, %w, %b, %n, %v, 0.1, 0.1) : "
    f"({_CHANNELS}) -> (tensor<2x3x2xf32>, {_NONE}, {_NONE}, tensor<0xui8>)",
    f"%y = aten.instance_norm.default(%x, %w, %b, %n, %v, false, 0.1, 0.1, false) : ({_CHANNELS}) "
    "-> tensor<2x3x2xf32>",
)  # fmt: skip
_ATEN = (
    *(
        _aten(f"{name}.default", "2x1x5xf32")
        for name in ("alias", "contiguous", "detach", "lift_fresh_copy")
    ),
    *(_aten(f"{n}.default", "2x1x5xf32", args=given) for n, given in _ATEN_ARGUMENTS.items()),
    _aten("logical_not.default", "2x3xi1"),
    _aten("_to_copy.default", "2x3xf32", made="2x3xf16", args="dtype=f16"),
    _aten("to.dtype", "2x3xf32", made="2x3xf16", args="f16"),
    *(
        _aten(f"div.{kind}_mode", *types, made=_CUBE, args=f'{number}rounding_mode="floor"')
        for kind, types, number in (("Tensor", _BOTH[1], ""), ("Scalar", _BOTH[0][:1], "0.7, "))
    ),
    _aten("pow.Tensor_Scalar", _CUBE, args="2"),
    _aten("round.decimals", _CUBE, args="decimals=1"),
    _aten("clip.Tensor", _CUBE, "3x1xf32", "4xf32", made=_CUBE),
    "%y = aten.masked_fill.Tensor(%x, %m, %v) : (tensor<2x3xf32>, tensor<3xi1>, tensor<f32>) -> "
    "tensor<2x3xf32>",
    _aten("where.self", "3x1xi1", *_BOTH[0], made=_CUBE),
    _aten("expand.default", "3x1xf32", made="2x3x4xf32", args="[2, 3, 4]"),
    *(
        _aten(f"{name}.default", "2x6x4xf32", made="2x3x8xf32", args="[2, 3, 8]")
        for name in ("view", "reshape", "_unsafe_view", "_reshape_copy", "view_copy")
    ),
    _aten("flatten.using_ints", "2x3x1x4xf32", made="2x12xf32", args="1, 3"),
    _aten("unflatten.int", "2x6xf32", made="2x3x2xf32", args="1, [3, 2]"),
    _aten("unsqueeze.default", "2x3xf32", made="2x1x3xf32", args="1"),
    _aten("squeeze.default", "2x1x3xf32", made="2x3xf32"),
    _aten("squeeze.dim", "2x1x3xf32", made="2x3xf32", args="1"),
    _aten("squeeze.dims", "2x1x3x1xf32", made="2x3xf32", args="[1, 3]"),
    *(
        _aten(f"{name}.default", _CUBE, made="4x2x3xf32", args="[-1, 0, 1]")
        for name in ("permute", "permute_copy")
    ),
    *(
        _aten(f"{name}.int", _CUBE, made="2x4x3xf32", args="-1, 1")
        for name in ("transpose", "transpose_copy")
    ),
    *(
        _aten(f"{name}.default", "2x3xf32", made="3x2xf32")
        for name in ("t", "t_copy", "numpy_T", "mT")
    ),
    *(
        _aten(f"{name}.default", _CUBE, made="2x4x3xf32", args="-1, 1")
        for name in ("swapaxes", "swapdims")
    ),
    *(
        _aten(f"{name}.Tensor", "2x7xf32", made="2x3xf32", args="1, -6, 7, 2")
        for name in ("slice", "slice_copy")
    ),
    _aten("slice.Tensor", "2x4xf32", made="2x2xf32", args="1, -9, -2"),
    _aten("narrow.default", "2x7xf32", made="2x3xf32", args="1, 2, 3"),
    *(
        _aten(f"{name}.int", _CUBE, made="2x4xf32", args="1, 2")
        for name in ("select", "select_copy")
    ),
    _aten("flip.default", _CUBE, args="[0, -1]"),
    _aten("roll.default", _CUBE, args="[1, 2], [0, 2]"),
    _aten("constant_pad_nd.default", "2x3xf32", made="5x3xf32", args="[1, -1, 1, 2], 0.5"),
    "%y = aten.cat.default([%a, %b], 1) : (tensor<2x1xf32>, tensor<2x3xf32>) -> tensor<2x4xf32>",
    "%y = aten.stack.default([%a, %b], 1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
    "tensor<2x2x3xf32>",
    *(
        f"%y, %z = aten.{name}(%x, {args}, 1) : (tensor<2x5xf32>) -> "
        "(tensor<2x3xf32>, tensor<2x2xf32>)"
        for name, args in (("split.Tensor", "3"), ("unsafe_split.Tensor", "3"),
                           ("split_with_sizes.default", "[3, 2]"), ("chunk.default", "2"))
    ),
    "%y, %z = aten.unbind.int(%x, 1) : (tensor<3x2xf32>) -> (tensor<3xf32>, tensor<3xf32>)",
    _aten("linear.default", _CUBE, "5x4xf32", "5xf32", made="2x3x5xf32"),
    _aten("mm.default", "3x4xf32", "4x2xf32", made="3x2xf32"),
    _aten("bmm.default", _CUBE, "2x4x2xf32", made="2x3x2xf32"),
    _aten("matmul.default", "2x1x3x4xf32", "5x4x2xf32", made="2x5x3x2xf32"),
    _aten("addmm.default", "2xf32", "3x4xf32", "4x2xf32", made="3x2xf32"),
    *(
        _aten("convolution.default", *types, made=made, args=args)
        for types, made, args in (
            (("2x2x5x4xf32", "4x1x3x2xf32", "4xf32"), "2x4x3x3xf32",
             "[2, 1], [1, 0], [1, 1], false, [0, 0], 2"),
            (("1x3x5x4xf32", "3x1x2x2xf32"), "1x3x3x2xf32",
             "none, [1, 1], [0, 0], [2, 2], false, [0, 0], 3"),
        )
    ),
    _aten("conv1d.default", "2x2x6xf32", "3x2x3xf32", made="2x3x6xf32", args="none, [1], [1]"),
    _aten("conv2d.default", "1x2x4x4xf32", "3x2x2x2xf32", made="1x3x2x2xf32", args="none, [2, 2]"),
    _aten("conv3d.default", "1x1x2x3x3xf32", "2x1x2x2x2xf32", made="1x2x1x2x2xf32"),
    _aten("embedding.default", "2x3xf32", "2x4xi64", made="2x4x3xf32"),
    _aten("index_select.default", "3x2x2xf32", "4xi64", made="3x4x2xf32", args="1").replace(
        "%v1, 1", "1, %v1"
    ),
    "%y = aten.index.Tensor(%x, [none, %i, %j]) : "
    "(tensor<2x2x3x4xf32>, tensor<5x1xi64>, tensor<2xi64>) -> tensor<2x5x2x4xf32>",
    "%y = aten.index.Tensor(%x, [%i, none, %j]) : "
    "(tensor<2x3x2x4xf32>, tensor<5x1xi64>, tensor<2xi64>) -> tensor<5x2x3x4xf32>",
    "%y = aten.gather.default(%x, 1, %i) : (tensor<3x2x2xf32>, tensor<2x4x2xi64>) -> "
    "tensor<2x4x2xf32>",
    *(
        _aten(name, _CUBE, args=args)
        for name, args in (("softmax.int", "1"), ("_softmax.default", "-1, false"),
                           ("log_softmax.int", "0"), ("_log_softmax.default", "1, false"),
                           ("cumsum.default", "1"), ("_safe_softmax.default", "2"))
    ),
    *(
        _aten(name, _CUBE, made=made, args=args)
        for name in ("mean.dim", "sum.dim_IntList", "amax.default", "amin.default")
        for made, args in (("3xf32", "[0, -1]"), ("2x1x4xf32", "[1], true"))
    ),
    *(
        _aten(f"__{name}__.Tensor", "2x3xi64", "3xi64", made="2x3xi64")
        for name in ("and", "or", "xor")
    ),
    _aten("bitwise_xor.Tensor", "2x3xi64", "3xi64", made="2x3xi64"),
    _aten("argmax.default", _CUBE, made="2x4xi64", args="1"),
    _aten("diff.default", _CUBE, made="2x2x4xf32", args="1, 1"),
    "%y = aten.diff.default(%x, 1, -1, %a, %b) : (tensor<2x3xf32>, tensor<2x1xf32>, "
    "tensor<2x2xf32>) -> tensor<2x5xf32>",
    "%y = aten.scatter.value(%x, 1, %i, 2.0) : (tensor<3x2x2xf32>, tensor<2x4x2xi64>) -> "
    "tensor<3x2x2xf32>",
    *(
        f"%y = aten.scatter{how}(%x, 1, %i, %z) : (tensor<3x2x2xf32>, tensor<2x4x2xi64>, "
        "tensor<3x4x2xf32>) -> tensor<3x2x2xf32>"
        for how in (".src", "_add.default")
    ),
    _aten("slice_scatter.default", _CUBE, "2x2x4xf32", made=_CUBE, args="1, 0, 2"),
    _aten("select_scatter.default", _CUBE, "2x4xf32", made=_CUBE, args="1, 2"),
    *(_aten(f"{name}.default", _CUBE) for name in ("tril", "triu")),
    _aten("one_hot.default", "2x3xi64", made="2x3x4xi64", args="4"),
    _aten("prod.dim_int", _CUBE, made="2x1x4xf32", args="1, true"),
    *(_aten(name, "2x3xi1", made="2xi1", args="1") for name in ("any.dim", "all.dim")),
    *(_aten(name, "2x3xi1", made="2xi1", args="[1]") for name in ("any.dims", "all.dims")),
    _aten("layer_norm.default", _CUBE, "3x4xf32", "3x4xf32", made=_CUBE).replace(
        "%v0, ", "%v0, [3, 4], "
    ),
    _aten(
        "batch_norm.default", "2x3x2xf32", "3xf32", "3xf32", "3xf32", "3xf32",
        args="false, 0.1, 1.0e-05, false",
    ),
    "%y, %m, %s = aten._native_batch_norm_legit_no_training.default(%x, %w, %b, %n, %v, 0.1, 0.1) "
    ": (tensor<2x3x2xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> "
    "(tensor<2x3x2xf32>, tensor<0xf32>, tensor<0xf32>)",
    *_ATEN_MORE,
    _aten("max_pool2d.default", "1x2x5x4xf32", made="1x2x3x3xf32", args="[3, 2], [2, 1], [1, 0]"),
    _aten("avg_pool2d.default", "2x5x4xf32", made="2x2x2xf32", args="[2, 2]"),
)  # fmt: skip

_QUANT = (
    "%y = quant.qcast %x : tensor<2x3xf32> to tensor<2x3x!quant.uniform<i8:f32, 0.05:3>>",
    "%y = quant.dcast %x : tensor<2x3x!quant.uniform<i8:f32, 0.05:3>> to tensor<2x3xf32>",
    "%y = quant.scast %x : tensor<2x3xi8> to tensor<2x3x!quant.uniform<i8:f32, 0.05:3>>",
)


def _tosa(name: str, *types: str, made: str = "", fields: str = "", given: str = "") -> str:
    """`given` are lines of constants and the names of operands behind the tensors, with types."""
    sizes = [f"tensor<{t}>" for t in types]
    values = [f"%v{index}" for index in range(len(sizes))]
    lines, _, rest = given.rpartition(";")
    for part in filter(None, rest.split(",")):
        value, type_ = part.split(":")
        values.append(value.strip())
        sizes.append(type_.strip())
    held = f" {{{fields}}}" if fields else ""
    result = f"tensor<{made or types[0]}>"
    before = lines.replace(";", "\n")
    call = f"%y = tosa.{name} {', '.join(values)}{held}"
    return f"{before}\n{call} : ({', '.join(sizes)}) -> {result}"


def _sizes(name: str, *values: int) -> str:
    rank = len(values)
    held = f"values = dense<{list(values)}> : tensor<{rank}xindex>"
    return f"%{name} = tosa.const_shape {{{held}}} : () -> !tosa.shape<{rank}>"


def _zero(name: str, held: str) -> str:
    number, type_ = "0" if held.startswith("i") else "0.0", f"tensor<1x{held}>"
    return f'%{name} = "tosa.const"() <{{values = dense<{number}> : {type_}}}> : () -> {type_}'


_ZEROS = f"{_zero('p', 'f32')};{_zero('q', 'f32')};%p: tensor<1xf32>, %q: tensor<1xf32>"
_WINDOW = "kernel = array<i64: 2, 2>, stride = array<i64: 2, 1>, pad = array<i64: 1, 0, 0, 1>"
_TOSA = (
    *(
        _tosa(name, "2x1x5xf32")
        for name in ("abs", "ceil", "cos", "erf", "exp", "floor", "identity", "log", "reciprocal",
                     "rsqrt", "sigmoid", "sin", "tanh")
    ),
    *(
        _tosa(name, "2x3x4xf32", "1x3x1xf32")
        for name in ("add", "maximum", "minimum", "pow", "sub")
    ),
    *(
        _tosa(name, "2x3xi32", "2x1xi32")
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "intdiv", "logical_left_shift",
                     "logical_right_shift")
    ),
    _tosa("arithmetic_right_shift", "2x3xi32", "2x1xi32", fields="round = false"),
    _tosa("bitwise_not", "2x3xi32"),
    _tosa("clz", "2x3xi32"),
    _tosa("logical_not", "2x3xi1"),
    *(_tosa(f"logical_{name}", "2x3xi1", "1x3xi1") for name in ("and", "or", "xor")),
    *(
        _tosa(name, "2x3xf32", "2x1xf32", made="2x3xi1")
        for name in ("equal", "greater", "greater_equal")
    ),
    _tosa("cast", "2x3xf32", made="2x3xf16"),
    _tosa("clamp", "2x3xf32", fields="min_val = -0.5 : f32, max_val = 0.5 : f32"),
    _tosa("mul", "2x3xf32", "2x1xf32", given=f"{_zero('s', 'i8')};%s: tensor<1xi8>"),
    _tosa("negate", "2x3xf32", given=_ZEROS),
    _tosa("select", "1x3xi1", "2x3xf32", "2x1xf32", made="2x3xf32"),
    "%m = \"tosa.const\"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>\n"
    "%s = \"tosa.const\"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>\n"
    f"{_zero('p', 'i8')}\n{_zero('q', 'i8')}\n"
    "%y = tosa.rescale %x, %m, %s, %p, %q {scale32 = true, rounding_mode = SINGLE_ROUND, "
    "per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<2x3xi8>, "
    "tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<2x3xi8>",
    "%t = \"tosa.const\"() <{values = dense<["
    + ", ".join(str(-n) for n in range(-127, 129))
    + "]> : tensor<256xi8>}> : () -> tensor<256xi8>\n"
    "%y = tosa.table %x, %t : (tensor<2x3xi8>, tensor<256xi8>) -> tensor<2x3xi8>",
    *(
        _tosa(f"reduce_{name}", f"2x3x4x{held}", made=f"2x1x4x{held}", fields="axis = 1 : i32")
        for name, held in (("all", "i1"), ("any", "i1"), ("max", "f32"), ("min", "f32"),
                           ("product", "f32"), ("sum", "f32"))
    ),
    _tosa("argmax", "2x3x4xf32", made="2x4xi32", fields="axis = 1 : i32"),
    _tosa("concat", "2x1xf32", "2x3xf32", made="2x4xf32", fields="axis = 1 : i32"),
    _tosa("reverse", "2x3xf32", fields="axis = 1 : i32"),
    _tosa("transpose", "2x3x4xf32", made="4x2x3xf32", fields="perms = array<i32: 2, 0, 1>"),
    _tosa("reshape", "2x6x4xf32", made="2x3x8xf32",
          given=f"{_sizes('s', 2, 3, 8)};%s: !tosa.shape<3>"),
    _tosa("slice", "3x5xf32", made="3x2xf32",
          given=f"{_sizes('b', 0, 2)};{_sizes('n', 3, 2)};%b: !tosa.shape<2>, %n: !tosa.shape<2>"),
    _tosa("pad", "3x2xf32", made="4x5xf32",
          given=f"{_sizes('b', 1, 0, 0, 3)};{_zero('p', 'f32')};%b: !tosa.shape<4>, "
          "%p: tensor<1xf32>"),
    _tosa("tile", "1x2x3xf32", made="2x2x6xf32",
          given=f"{_sizes('b', 2, 1, 2)};%b: !tosa.shape<3>"),
    _tosa("matmul", "2x3x4xf32", "2x4x2xf32", made="2x3x2xf32", given=_ZEROS),
    _tosa("matmul_t", "2x3x4xf32", "2x5x4xf32", made="2x3x5xf32", given=_ZEROS),
    _tosa("conv2d", "1x5x4x2xf32", "3x2x2x2xf32", "3xf32", made="1x3x4x3xf32", given=_ZEROS,
          fields="pad = array<i64: 1, 0, 0, 1>, stride = array<i64: 2, 1>, "
          "dilation = array<i64: 1, 1>, acc_type = f32"),
    _tosa("depthwise_conv2d", "1x4x4x2xf32", "2x2x2x1xf32", "2xf32", made="1x3x3x2xf32",
          given=_ZEROS, fields="pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, "
          "dilation = array<i64: 1, 1>, acc_type = f32"),
    _tosa("max_pool2d", "1x5x4x2xf32", made="1x3x4x2xf32", fields=_WINDOW),
    _tosa("avg_pool2d", "1x5x4x2xf32", made="1x3x4x2xf32", given=_ZEROS,
          fields=f"{_WINDOW}, acc_type = f32"),
)  # fmt: skip

SAMPLES: tuple[str, ...] = (*_XNNPACK, *elementwise_samples(_ATEN), *_ATEN, *_TOSA, *CMSIS)

"""The nodes of `bench/kernel_atlas.py`: each form of the dialect, by shape and datatype."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from _nodes import Form, Writer
from xdsl.ir import SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.quant import Quantization, UniformQuantizedType, per_tensor
from stepwell.dialects.xnnpack.elementwise import Unary
from stepwell.ir.dtypes import f16, f32

FP32, FP16, QINT8, DYNAMIC, DYNAMIC4 = "fp32", "fp16", "qint8", "qdint8×qcint8", "qdint8×qcint4"
GIVEN, MADE = per_tensor(torch.int8, 0.05, 3), per_tensor(torch.int8, 0.07, -4)
LAYERS = (FP32, FP16, QINT8, DYNAMIC, DYNAMIC4)
IMAGES = ((16, 112), (40, 56), (96, 56), (160, 14), (320, 7))
"""Channels and size."""


@dataclass(frozen=True)
class Entry:
    """A square of the atlas.

    Attributes:
        family: the heat map that it belongs to.
        row: its form.
        column: its shape.
        datatype: of what it reads (and of the weights).
        work: floating-point operations, or bytes read and written.
        is_product: whether `work` counts operations.
        form: how it is timed.

    """

    family: str
    row: str
    column: str
    datatype: str
    work: float
    is_product: bool
    form: Form


def numbers(datatype: str, *shape: int) -> torch.Tensor:
    """An input."""
    if datatype == QINT8:
        return torch.randint(-128, 128, shape, dtype=torch.int8)
    value = torch.randn(*shape)
    return value.half() if datatype == FP16 else value


def entered(w: Writer, datatype: str, x: SSAValue, dimensions: int = 1) -> SSAValue:
    """An input as the node takes it."""
    if datatype == QINT8:
        return w.cast(x, GIVEN)
    return w.dynamic(x, dimensions) if datatype.startswith("qdint8") else x


def by_channel(bits: int, count: int, axis: int) -> UniformQuantizedType:
    """The type of weights with a scale for each output."""
    low = -(1 << (bits - 1))
    scales = tuple(0.01 + 1e-5 * index for index in range(count))
    return UniformQuantizedType(
        Quantization(bits, True, low, -low - 1, f32, scales, (0,) * count, ((axis, 1),), (count,))
    )


def weight(w: Writer, datatype: str, shape: tuple[int, ...], axis: int = 0) -> SSAValue:
    """A weight as the node takes it."""
    if datatype in (FP32, FP16):
        return w.weight(numbers(datatype, *shape))
    bits = 4 if datatype == DYNAMIC4 else 8
    low = -(1 << (bits - 1))
    stored = torch.randint(low, -low, shape, dtype=torch.int8)
    return w.weight(stored, by_channel(bits, shape[axis], axis))


def _made(datatype: str) -> Any:
    return {QINT8: MADE, FP16: f16}.get(datatype, f32)


def layers() -> Iterator[Entry]:
    """Linear layers: rows × inputs → outputs."""
    sizes = (
        (1, 768, 768),
        (16, 768, 768),
        (197, 192, 768),
        (197, 768, 768),
        (3136, 40, 160),
        (3136, 160, 40),
        (784, 96, 24),
        (49, 1280, 1000),
    )
    for rows, inputs, outputs in sizes:
        for datatype in LAYERS:

            def node(
                w: Writer, x: SSAValue, datatype: str = datatype, i: int = inputs, o: int = outputs
            ) -> SSAValue:
                return w(
                    xnnpack.FullyConnected.make(
                        entered(w, datatype, x),
                        weight(w, datatype, (o, i)),
                        element=_made(datatype),
                    )
                )

            yield Entry(
                "linear layers",
                f"{rows} rows",
                f"{inputs} → {outputs}",
                datatype,
                2.0 * rows * inputs * outputs,
                True,
                Form((numbers(datatype, rows, inputs),), node),
            )


def convolution(
    cls: Any,
    datatype: str,
    channels: int,
    size: int,
    outputs: int,
    window: tuple[int, int],
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
) -> Form:
    """A window over an image; padded so that a stride of 1 keeps its size."""
    height, width = window
    is_depthwise = cls is xnnpack.DepthwiseConvolution2d
    shape = (1, *window, outputs) if is_depthwise else (outputs, *window, channels // groups)
    fields: dict[str, Any] = {"stride": (stride, stride), "dilation": (dilation, dilation)}
    fields["padding"] = tuple(
        dilation * extent // 2 for extent in (height - 1, width, height, width - 1)
    )
    if not is_depthwise:
        fields["groups"] = groups
    if cls is xnnpack.Deconvolution2d:
        fields |= {"padding": (0, 0, 0, 0), "adjustment": (0, 0)}

    def node(w: Writer, x: SSAValue) -> SSAValue:
        taken = entered(w, datatype, x, 3)
        filter = weight(w, datatype, shape, 3 if is_depthwise else 0)
        return w(cls.make(taken, filter, element=_made(datatype), **fields))

    return Form((numbers(datatype, 1, size, size, channels),), node)


def convolutions() -> Iterator[Entry]:
    """Dense, strided, grouped, dilated, transposed."""
    forms: list[tuple[str, Any, int, int, int, tuple[int, int], dict[str, int]]] = []
    plain, transposed = xnnpack.Convolution2d, xnnpack.Deconvolution2d
    for channels, size in ((32, 112), (64, 56), (128, 28), (256, 14), (512, 7)):
        forms.append(("3×3", plain, channels, size, channels, (3, 3), {}))
        forms.append(("3×3, stride 2", plain, channels, size, channels, (3, 3), {"stride": 2}))
        forms.append(("3×3, dilation 2", plain, channels, size, channels, (3, 3), {"dilation": 2}))
        forms.append(("1×1", plain, channels, size, channels, (1, 1), {}))
        forms.append(("1×1, stride 2", plain, channels, size, channels, (1, 1), {"stride": 2}))
        forms.append(("5×5", plain, channels, size, channels, (5, 5), {}))
        for each in (4, 8, 16, 32):
            forms.append(
                (
                    f"3×3, groups of {each}",
                    plain,
                    channels,
                    size,
                    channels,
                    (3, 3),
                    {"groups": channels // each},
                )
            )
        forms.append(
            (
                "transposed 2×2, stride 2",
                transposed,
                channels,
                size,
                channels,
                (2, 2),
                {"stride": 2},
            )
        )
        forms.append(
            (
                "transposed 4×4, stride 2",
                transposed,
                channels,
                size,
                channels,
                (4, 4),
                {"stride": 2},
            )
        )
    for size in (96, 224):
        forms.append(("first 3×3, stride 2, to 32", plain, 3, size, 32, (3, 3), {"stride": 2}))
        forms.append(("first 7×7, stride 2, to 64", plain, 3, size, 64, (7, 7), {"stride": 2}))
        forms.append(("first 3×3, to 64", plain, 3, size, 64, (3, 3), {}))
    for name, cls, channels, size, outputs, window, fields in forms:
        for datatype in (FP32, FP16, QINT8):
            if cls is transposed and datatype == FP16:
                continue
            stride = fields.get("stride", 1)
            pixels = (size * size) if cls is transposed else (-(-size // stride)) ** 2
            work = 2.0 * pixels * outputs * prod(window) * channels / fields.get("groups", 1)
            form = convolution(cls, datatype, channels, size, outputs, window, **fields)
            yield Entry("convolutions", name, f"{channels} at {size}²", datatype, work, True, form)


def depthwise() -> Iterator[Entry]:
    """By taps, stride and results a channel."""
    windows = ((1, 1), (3, 1), (3, 3), (5, 5), (1, 9), (1, 25), (1, 31), (7, 7), (9, 9))
    for channels, size in IMAGES:
        for window in windows:
            for stride, many in ((1, 1), (2, 1), (1, 2)):
                if (many > 1 and window != (3, 3)) or (stride > 1 and max(window) > 7):
                    continue
                for datatype in (FP32, FP16, QINT8):
                    form = convolution(
                        xnnpack.DepthwiseConvolution2d,
                        datatype,
                        channels,
                        size,
                        channels * many,
                        window,
                        stride,
                    )
                    work = 2.0 * (-(-size // stride)) ** 2 * channels * many * prod(window)
                    name = f"{window[0]}×{window[1]}" + ", stride 2" * (stride == 2)
                    name += ", two results a channel" * (many == 2)
                    yield Entry(
                        "depthwise", name, f"{channels} at {size}²", datatype, work, True, form
                    )


def products() -> Iterator[Entry]:
    """Products of batches, as attention has them."""
    for heads, tokens, depth in (
        (3, 197, 64),
        (8, 128, 32),
        (12, 64, 64),
        (96, 49, 32),
        (8, 1, 64),
    ):
        for name, left, right, turned in (
            ("queries by keys", (tokens, depth), (max(tokens, 64), depth), True),
            ("scores by values", (tokens, max(tokens, 64)), (max(tokens, 64), depth), False),
        ):
            for datatype in (FP32, FP16):
                x, y = (numbers(datatype, heads, *shape) for shape in (left, right))

                def node(w: Writer, x: SSAValue, y: SSAValue, turned: bool = turned) -> SSAValue:
                    return w(xnnpack.BatchMatrixMultiply.make(x, y, transpose_b=turned))

                work = 2.0 * heads * prod(left) * (right[0] if turned else right[1])
                column = f"{heads} × {tokens} × {depth}"
                yield Entry(
                    "products of batches", name, column, datatype, work, True, Form((x, y), node)
                )


def _bytes(*tensors: torch.Tensor) -> float:
    return float(sum(value.numel() * value.element_size() for value in tensors))


SHAPES = ((1, 56, 56, 40), (1, 14, 14, 160), (1, 7, 7, 320), (1, 1, 197, 768), (1, 112, 112, 96))


def elementwise() -> Iterator[Entry]:
    """Functions of one tensor, sums and products of two by each kind of broadcasting, softmax."""
    fields: dict[str, dict[str, float]] = {
        "xnnpack.clamp": {"output_min": -1.0, "output_max": 1.0},
        "xnnpack.leaky_relu": {"negative_slope": 0.1},
        "xnnpack.elu": {"alpha": 0.7},
    }
    for shape in SHAPES:
        column = "×".join(map(str, shape[1:]))
        for datatype in (FP32, FP16):
            x = numbers(datatype, *shape).abs()
            for cls in dict.fromkeys(xnnpack.NODES.values()):
                if not issubclass(cls, Unary) or cls in (xnnpack.Convert, xnnpack.Copy):
                    continue
                if datatype not in cls.DATATYPES:
                    continue

                def unary(w: Writer, x: SSAValue, cls: Any = cls) -> SSAValue:
                    return w(cls.make(x, **fields.get(cls.name, {})))

                name = cls.name.removeprefix("xnnpack.")
                yield Entry(
                    "functions", name, column, datatype, 2 * _bytes(x), False, Form((x,), unary)
                )

            def softmax(w: Writer, x: SSAValue) -> SSAValue:
                return w(xnnpack.Softmax.make(x))

            yield Entry(
                "functions", "softmax", column, datatype, 2 * _bytes(x), False, Form((x,), softmax)
            )
            others = {
                "same shape": shape,
                "channels": (shape[-1],),
                "one number": (1,),
                "a number a row": (*shape[:-1], 1),
                "a row": (1, 1, *shape[2:]),
                "a column": (1, shape[1], 1, 1),
            }
            for cls in (xnnpack.Add, xnnpack.Multiply, xnnpack.Divide, xnnpack.Maximum):
                for kind, other in others.items():
                    y = numbers(datatype, *other)

                    def binary(w: Writer, x: SSAValue, y: SSAValue, cls: Any = cls) -> SSAValue:
                        return w(cls.make(x, y))

                    name = f"{cls.name.removeprefix('xnnpack.')}, {kind}"
                    yield Entry(
                        "two operands",
                        name,
                        column,
                        datatype,
                        2 * _bytes(x) + _bytes(y),
                        False,
                        Form((x, y), binary),
                    )


def movement() -> Iterator[Entry]:
    """Transposes, slices, concatenations, pads, conversions; pools and resizes."""
    nodes: dict[str, Callable[[Writer, SSAValue, tuple[int, ...]], SSAValue]] = {
        "transpose 0 3 1 2": lambda w, x, s: w(xnnpack.StaticTranspose.make(x, perm=[0, 3, 1, 2])),
        "transpose 0 2 3 1": lambda w, x, s: w(xnnpack.StaticTranspose.make(x, perm=[0, 2, 3, 1])),
        "transpose 0 2 1 3": lambda w, x, s: w(xnnpack.StaticTranspose.make(x, perm=[0, 2, 1, 3])),
        "slice of rows": lambda w, x, s: _slice(w, x, s, 1),
        "slice of columns": lambda w, x, s: _slice(w, x, s, 2),
        "slice of channels": lambda w, x, s: _slice(w, x, s, 3),
        "concatenate rows": lambda w, x, s: w(xnnpack.Concatenate2.make(x, x, axis=1)),
        "concatenate channels": lambda w, x, s: w(xnnpack.Concatenate2.make(x, x, axis=3)),
        "pad by one pixel": lambda w, x, s: w(
            xnnpack.StaticConstantPad.make(
                x, pre_paddings=[0, 1, 1, 0], post_paddings=[0, 1, 1, 0], padding_value=0.0
            )
        ),
        "global average": lambda w, x, s: w(xnnpack.GlobalAveragePooling2d.make(x, keep_dims=True)),
        "to fp16": lambda w, x, s: w(xnnpack.Convert.make(x, element=f16)),
        "to qint8": lambda w, x, s: w(xnnpack.Convert.make(x, element=MADE)),
        "max pooling 3×3": lambda w, x, s: _pool(w, x, xnnpack.MaxPooling2d),
        "average pooling 3×3": lambda w, x, s: _pool(w, x, xnnpack.AveragePooling2d),
        "resize to twice": lambda w, x, s: w(
            xnnpack.StaticResizeBilinear2d.make(x, new_size=[2 * s[1], 2 * s[2]])
        ),
    }
    moved = {
        "concatenate rows": 4,
        "concatenate channels": 4,
        "global average": 1,
        "to fp16": 1.5,
        "to qint8": 1.25,
        "resize to twice": 5,
    }
    for shape in SHAPES:
        for name, write in nodes.items():
            if "slice" in name and shape[1 + "rows channels columns".split().index("rows")] < 2:
                continue
            x = numbers(FP32, *shape)

            def node(
                w: Writer, x: SSAValue, write: Any = write, s: tuple[int, ...] = shape
            ) -> SSAValue:
                return write(w, x, s)

            work = moved.get(name, 2.0) * _bytes(x)
            yield Entry(
                "movement", name, "×".join(map(str, shape[1:])), FP32, work, False, Form((x,), node)
            )


def _slice(w: Writer, x: SSAValue, shape: tuple[int, ...], axis: int) -> SSAValue:
    """All but one of an axis: nearly as much is read as written."""
    offsets = [int(index == axis) for index in range(4)]
    sizes = [size - offset for size, offset in zip(shape, offsets, strict=True)]
    return w(xnnpack.StaticSlice.make(x, offsets=offsets, sizes=sizes))


def _pool(w: Writer, x: SSAValue, cls: Any) -> SSAValue:
    fields: dict[str, Any] = {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1, 1, 1)}
    if cls is xnnpack.MaxPooling2d:
        fields["dilation"] = (1, 1)
    return w(cls.make(x, **fields))


def entries() -> Iterator[Entry]:
    """All of the atlas."""
    for family in (layers, convolutions, depthwise, products, elementwise, movement):
        yield from family()

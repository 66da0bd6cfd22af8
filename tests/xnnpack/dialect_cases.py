"""Every node of the dialect, alone, in every datatype that XNNPACK has it for."""

from collections.abc import Iterator
from typing import Any

import torch
from dialect_building import Case, Writer, bias, grouped, per_channel
from xdsl.ir import SSAValue

import stepwell.dialects.xnnpack as xnn
from stepwell.dialects.quant import UniformQuantizedType, per_tensor
from stepwell.dialects.xnnpack.elementwise import CONVERSIONS, Binary, Unary
from stepwell.ir.dtypes import bf16, f16, f32, i32, i64, torch_dtype
from stepwell.ir.types import tensor

GENERATOR = torch.Generator().manual_seed(0)
FIELDS: dict[str, dict[str, Any]] = {
    "xnnpack.clamp": {"output_min": -1.0, "output_max": 1.0},
    "xnnpack.leaky_relu": {"negative_slope": 0.1},
    "xnnpack.elu": {"alpha": 0.7},
}
GIVEN: dict[str, UniformQuantizedType | None] = {
    "fp32": None,
    "fp16": None,
    "qint8": per_tensor(torch.int8, 0.05, 3),
    "quint8": per_tensor(torch.uint8, 0.05, 120),
}
MADE: dict[str, Any] = {
    "fp32": f32,
    "fp16": f16,
    "bf16": bf16,
    "qint8": per_tensor(torch.int8, 0.07, -4),
    "quint8": per_tensor(torch.uint8, 0.06, 101),
}
WIDE: dict[str, Any] = MADE | {
    "qint8": per_tensor(torch.int8, 0.3, -4),
    "quint8": per_tensor(torch.uint8, 0.5, 101),
}


def numbers(what: str, *shape: int) -> torch.Tensor:
    """Random numbers of a datatype: floats around 0, or every stored integer."""
    if what in ("fp32", "fp16", "bf16"):
        return torch.randn(shape, generator=GENERATOR).to(torch_dtype(MADE[what]))
    dtype = torch.uint8 if what == "quint8" else torch.int8
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, limits.max + 1, shape, dtype=dtype, generator=GENERATOR)


def halves() -> torch.Tensor:
    """Every finite half, in rows."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16)
    return every[every.isfinite()].reshape(-1, 1024)


def scales(count: int) -> list[float]:
    """Random float32 scales between 0.001 and 0.021."""
    return (torch.rand(count, generator=GENERATOR) * 0.02 + 0.001).tolist()


def entered(writer: Writer, what: str, *inputs: SSAValue) -> list[SSAValue]:
    """Inputs as values of a datatype."""
    held = GIVEN.get(what)
    return list(inputs) if held is None else [writer.cast(value, held) for value in inputs]


def node(name: str, cls: Any, *inputs: torch.Tensor, **fields: Any) -> Case:
    """A node of its inputs alone."""
    return Case(name, inputs, lambda writer, *values: writer(cls.make(*values, **fields)))


def elementwise() -> Iterator[Case]:
    """Unary and binary nodes; converts; both kinds of broadcasting."""
    for cls in xnn.NODES.values():
        if not issubclass(cls, Unary | Binary) or cls is xnn.Convert:
            continue
        for what in cls.DATATYPES:
            x = numbers(what, 2, 5, 3, 7)
            if what == "fp16" and cls is xnn.SquareRoot:
                x = x.abs()  # Of a negative half, the kernel makes −0.
            pair = (x,) if issubclass(cls, Unary) else (x, numbers(what, 3, 1))

            def write(writer: Writer, *args: SSAValue, cls: Any = cls, what: str = what) -> Any:
                made = GIVEN[what] if cls is xnn.Copy and GIVEN[what] else MADE[what]
                values = entered(writer, what, *args)
                return writer(cls.make(*values, element=made, **FIELDS.get(cls.name, {})))

            yield Case(f"{cls.name} {what}", pair, write)
    for given, made in sorted(CONVERSIONS):
        if made == "qdint8":
            continue  # Dynamically quantized values cannot leave a delegate: see `products`.

        def convert(writer: Writer, x: SSAValue, given: str = given, made: str = made) -> Any:
            (value,) = entered(writer, given, x)
            return writer(xnn.Convert.make(value, element=MADE[made]))

        x = halves() if given == "fp16" else numbers(given, 2, 5, 16)
        yield Case(f"xnnpack.convert {given} to {made}", (x,), convert)
    x, y = numbers("fp32", 4, 6), numbers("fp32", 6)
    yield node("xnnpack.add clamped", xnn.Add, x, y, output_min=0.0, output_max=0.5)
    yield node("xnnpack.multiply by a scalar", xnn.Multiply, torch.tensor(1.5), x)
    whole = torch.arange(-128, 128, dtype=torch.int8).reshape(4, 64)
    given, made = (
        per_tensor(torch.int8, *pair)
        for pair in ((0.03154442459344864, -20), (0.07311459630727768, -120))
    )
    for name, fields in (("", {}), (" clamped", {"output_max": 5.0})):

        def square(writer: Writer, x: SSAValue, fields: dict[str, float] = fields) -> SSAValue:
            value = writer.cast(x, given)
            return writer(xnn.Multiply.make(value, value, element=made, **fields))

        yield Case(f"xnnpack.multiply qint8 by itself{name}", (whole,), square)
    yield node("xnnpack.abs of a scalar", xnn.Abs, torch.tensor(-1.5))
    yield Case(
        "xnnpack.add of one constant twice",
        (x,),
        lambda w, a: w(xnn.Add.make(w(xnn.Add.make(a, w.weight(y))), w.weight(y))),
    )


def _fully_connected(
    name: str, what: str, weight: torch.Tensor, held: Any, extra: Any, made: Any, **fields: Any
) -> Case:
    """`extra` is a bias and its type, or None; dynamic inputs are named `qdint8`."""
    entry = "fp16" if what == "qdint8" and made == f16 else what.replace("qdint8", "fp32")

    def write(writer: Writer, x: SSAValue) -> SSAValue:
        (value,) = entered(writer, entry, x)
        if what == "qdint8":
            value = writer.dynamic(value)
        operands = [value, writer.weight(weight, held)]
        if extra is not None:
            operands.append(writer.weight(*extra))
        return writer(xnn.FullyConnected.make(*operands, element=made, **fields))

    inputs = weight.shape[0 if fields.get("transpose_weights") else 1]
    return Case(f"xnnpack.fully_connected {name}", (numbers(entry, 2, 5, inputs),), write)


def products() -> Iterator[Case]:
    """Fully connected nodes and batch matrix products."""
    inputs, outputs = 64, 7
    w, b = numbers("fp32", outputs, inputs), numbers("fp32", outputs)
    w8, w4 = numbers("qint8", outputs, inputs), numbers("qint8", outputs, inputs) // 16
    u8 = numbers("quint8", outputs, inputs)
    b32 = (numbers("fp32", outputs) * 1000).int()
    steps = scales(outputs)
    c8, c4 = per_channel(8, steps), per_channel(4, steps)
    halves = torch.rand(outputs, 2, generator=GENERATOR).mul(0.02).bfloat16().float() + 2**-8
    g4 = grouped(halves.bfloat16().float(), 32)
    t8, tu = per_tensor(torch.int8, 0.02), per_tensor(torch.uint8, 0.02, 130)
    whole, each = bias([0.05 * 0.02]), bias([0.05 * step for step in steps])
    fc = _fully_connected
    yield fc("fp32", "fp32", w, None, (b,), f32)
    yield fc("fp32 without bias", "fp32", w, None, None, f32, output_min=0.0)
    yield fc("transposed", "fp32", w.T.contiguous(), None, (b,), f32, transpose_weights=True)
    yield fc("fp16", "fp16", w.half(), None, (b.half(),), f16)
    yield fc("fp16 with fp32 bias", "fp16", w.half(), None, (b,), f16)
    for made in (f32, bf16):
        yield fc(f"bf16 {made}", "bf16", w.bfloat16(), None, (b,), made)
        yield fc(f"bf16 {made} without bias", "bf16", w.bfloat16(), None, None, made)
    for made in (f32, f16):
        for name, weight, held in (("qcint8", w8, c8), ("qcint4", w4, c4), ("qbint4", w4, g4)):
            yield fc(f"qdint8 {name} {made}", "qdint8", weight, held, (b,), made)
            yield fc(f"qdint8 {name} {made} without bias", "qdint8", weight, held, None, made)
    for name, weight, held in (("qcint8", w8, c8), ("qcint4", w4, c4)):
        yield fc(f"fp32 {name}", "fp32", weight, held, (b * 100,), f32)
        yield fc(f"fp32 {name} without bias", "fp32", weight, held, None, f32)
    yield fc("qint8 qint8", "qint8", w8, t8, (b32, whole), WIDE["qint8"])
    yield fc("qint8 qcint8", "qint8", w8, c8, (b32, each), WIDE["qint8"], output_min=0.0)
    yield fc("qint8 qcint4", "qint8", w4, c4, (b32, each), WIDE["qint8"])
    yield fc("quint8 quint8", "quint8", u8, tu, (b32, whole), WIDE["quint8"])
    for what in ("fp32", "fp16"):
        pair = (numbers(what, 2, 5, 16), numbers(what, 7, 16))
        yield node(f"xnnpack.fully_connected {what} run-time weight", xnn.FullyConnected, *pair)
    a, cls = numbers("fp32", 2, 3, 4, 5), xnn.BatchMatrixMultiply
    for shape in ((2, 3, 5, 6), (3, 5, 6), (1, 1, 5, 6), (5, 6)):
        right = numbers("fp32", *shape)
        name, turned = cls.name, right.mT.contiguous()
        yield node(f"{name} {list(shape)}", cls, a, right)
        yield node(f"{name} {list(shape)} transposed", cls, a, turned, transpose_b=True)
    yield node(f"{name} fp16", cls, a.half(), numbers("fp16", 3, 5, 6))
    yield Case(
        "xnnpack.batch_matrix_multiply constant",
        (a,),
        lambda w, x: w(xnn.BatchMatrixMultiply.make(x, w.weight(right))),
    )
    yield Case(
        "xnnpack.batch_matrix_multiply qint8",
        (numbers("qint8", 2, 3, 4, 5), numbers("qint8", 2, 3, 5, 6)),
        lambda w, x, y: w(
            xnn.BatchMatrixMultiply.make(
                *entered(w, "qint8", x), w.cast(y, t8), element=WIDE["qint8"]
            )
        ),
    )
    m8, steps = numbers("qint8", 5, 6), scales(6)
    for name, axis in (("", 1), (" transposed", 0)):
        packed = m8 if axis else m8.T.contiguous()
        held = per_channel(8, steps, axis)

        def multiply(writer: Writer, x: SSAValue, packed: Any = packed, held: Any = held) -> Any:
            op = xnn.BatchMatrixMultiply.make(
                writer.dynamic(x),
                writer.weight(packed, held),
                element=f32,
                transpose_b=held.data.axis == 0,
            )
            return writer(op)

        yield Case(f"xnnpack.batch_matrix_multiply qdint8 qcint8{name}", (a,), multiply)


_GEOMETRY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {}),
    ("padded", {"padding": [1, 1, 1, 1], "output_min": -0.3, "output_max": 1.0}),
    ("uneven", {"stride": [2, 2], "padding": [0, 1, 2, 1]}),
    ("dilated", {"dilation": [2, 1], "padding": [1, 0, 0, 1]}),
)
_FILTERS: tuple[tuple[type[Any], str, tuple[int, ...], dict[str, Any]], ...] = (
    (xnn.Convolution2d, "", (8, 3, 2, 6), {}),
    (xnn.Convolution2d, " grouped", (8, 3, 2, 3), {"groups": 2}),
    (xnn.DepthwiseConvolution2d, "", (1, 3, 2, 6), {}),
    (xnn.DepthwiseConvolution2d, " doubled", (1, 3, 2, 12), {}),
    (xnn.Deconvolution2d, "", (8, 3, 2, 6), {}),
    (xnn.Deconvolution2d, " grouped", (8, 3, 2, 3), {"groups": 2}),
)


def convolutions() -> Iterator[Case]:
    """Every kind of filter, geometry and arithmetic."""
    for cls, kind, shape, groups in _FILTERS:
        for name, geometry in _GEOMETRY:
            fields = geometry | groups
            if cls is xnn.Deconvolution2d and "stride" in fields:
                fields = fields | {"adjustment": [1, 0]}
            for what in ("fp32", "fp16", "qint8", "quint8", "qcint8"):
                if cls is xnn.Deconvolution2d and what == "fp16":
                    continue
                yield _convolution(f"{cls.name}{kind} {name} {what}", cls, shape, what, fields)
    pointwise = (xnn.Convolution2d, (8, 1, 1, 6))
    for what in ("fp32", "fp16", "qint8", "quint8", "qcint8"):
        yield _convolution(f"xnnpack.convolution_2d pointwise {what}", *pointwise, what, {})
        grouped = (xnn.Convolution2d, (8, 1, 1, 3), what, {"groups": 2})
        yield _convolution(f"xnnpack.convolution_2d pointwise grouped {what}", *grouped)
    for cls, kind, shape, groups in (*_FILTERS, (pointwise[0], " pointwise", pointwise[1], {})):
        if cls is not xnn.DepthwiseConvolution2d:
            yield _dynamic_convolution(cls, kind, shape, groups)


def _convolution(
    name: str, cls: Any, shape: tuple[int, ...], what: str, fields: dict[str, Any]
) -> Case:
    axis = cls.CHANNEL_AXIS
    outputs = shape[axis]
    entry = "qint8" if what == "qcint8" else what
    weight = numbers(entry, *shape)
    if what.startswith("fp"):
        pair: tuple[Any, ...] = (weight * 0.3, None)
        extra: tuple[Any, ...] = (numbers(what, outputs),)
    else:
        steps = scales(outputs) if what == "qcint8" else [0.02]
        zero = 120 if what == "quint8" else 0
        held = per_channel(8, steps, axis) if what == "qcint8" else None
        pair = (weight, held or per_tensor(weight.dtype, 0.02, zero))
        extra = ((numbers("fp32", outputs) * 1000).int(), bias([0.05 * s for s in steps]))

    def write(writer: Writer, x: SSAValue) -> SSAValue:
        (value,) = entered(writer, entry, x)
        operands = [value, writer.weight(*pair), writer.weight(*extra)]
        return writer(cls.make(*operands, element=WIDE[entry], **fields))

    return Case(name, (numbers(entry, 2, 9, 10, 6),), write)


def _dynamic_convolution(
    cls: Any, kind: str, shape: tuple[int, ...], fields: dict[str, Any]
) -> Case:
    weight, held = numbers("qint8", *shape), per_channel(8, scales(shape[0]))
    extra = numbers("fp32", shape[0])

    def write(writer: Writer, x: SSAValue) -> SSAValue:
        value = writer.dynamic(x, 1 if "pointwise" in kind else 3)
        operands = [value, writer.weight(weight, held), writer.weight(extra)]
        return writer(cls.make(*operands, element=f32, **fields))

    return Case(f"{cls.name}{kind} qdint8", (numbers("fp32", 2, 9, 10, 6),), write)


_POOLS: tuple[dict[str, Any], ...] = (
    {"kernel": [2, 2], "stride": [2, 2]},
    {"kernel": [3, 2], "stride": [1, 2], "padding": [1, 0, 1, 1]},
    {"kernel": [3, 1], "stride": [2, 1], "output_min": -0.5, "output_max": 0.7},
    {"kernel": [2, 2], "stride": [3, 3]},
    {"kernel": [1, 1], "stride": [2, 3]},
)
_MOVES: tuple[tuple[type[Any], dict[str, Any]], ...] = (
    (xnn.StaticReshape, {"new_shape": [2, 90, 6]}),
    (xnn.StaticReshape, {"new_shape": [0, 6]}),
    (xnn.StaticReshape, {"new_shape": [1, 2, 9, 5, 2, 6]}),
    (xnn.StaticTranspose, {"perm": [0, 3, 1, 2]}),
    (xnn.StaticTranspose, {"perm": [3, 1, 0, 2]}),
    (xnn.StaticSlice, {"offsets": [0, 2, 1, 3], "sizes": [2, 4, 5, 3]}),
    (xnn.StaticSlice, {"offsets": [1, 0, 0, 0], "sizes": [1, 0, 3, 0]}),
    (
        xnn.StaticConstantPad,
        {"pre_paddings": [0, 1, 2, 0], "post_paddings": [1, 0, 0, 2], "padding_value": 1.5},
    ),
    (
        xnn.StaticConstantPad,
        {
            "pre_paddings": [0, 1, 0, 0],
            "post_paddings": [0, 0, 0, 0],
            "padding_value": float("-inf"),
        },
    ),
)


def images() -> Iterator[Case]:
    """Pooling, resizing, and what moves elements."""
    nodes: list[tuple[type[Any], dict[str, Any]]] = list(_MOVES)
    nodes += [(xnn.MaxPooling2d, fields) for fields in _POOLS]
    nodes += [(xnn.AveragePooling2d, fields) for fields in _POOLS]
    dilated = {"kernel": [3, 3], "stride": [2, 2], "dilation": [2, 1], "padding": [1, 1, 1, 1]}
    nodes += [(xnn.MaxPooling2d, dilated)]
    nodes += [(xnn.GlobalAveragePooling2d, {"keep_dims": keep}) for keep in (True, False)]
    for size in ((5, 7), (18, 20), (1, 1), (13, 31)):
        for corners in (False, True):
            fields = {"new_size": size, "align_corners": corners}
            nodes.append((xnn.StaticResizeBilinear2d, fields))
    for cls, fields in nodes:
        for what, held in GIVEN.items():
            if cls is xnn.AveragePooling2d and held is not None:
                continue

            def write(
                writer: Writer, x: SSAValue, cls: Any = cls, fields: Any = fields, what: str = what
            ) -> SSAValue:
                (value,) = entered(writer, what, x)
                made = MADE[what] if cls is xnn.GlobalAveragePooling2d else None
                return writer(cls.make(value, element=made, **fields))

            yield Case(f"{cls.name} {fields} {what}", (numbers(what, 2, 9, 10, 6),), write)
    for what in ("fp32", "fp16"):
        for name in ("square", "multiply", "square read twice"):

            def mean(writer: Writer, x: SSAValue, name: str = name) -> list[SSAValue]:
                product = name == "multiply"
                y = writer(xnn.Multiply.make(x, x) if product else xnn.Square.make(x))
                twice = [writer(xnn.Negate.make(y))] if "twice" in name else []
                return [writer(xnn.GlobalAveragePooling2d.make(y, keep_dims=True)), *twice]

            yield Case(f"xnnpack.mean of a {name} {what}", (numbers(what, 2, 9, 10, 6),), mean)
    for count, cls in xnn.CONCATENATES.items():
        for what in GIVEN:

            def join(
                writer: Writer, x: SSAValue, y: SSAValue, cls: Any = cls, what: str = what
            ) -> SSAValue:
                a, b = entered(writer, what, x, y)
                count = len(cls.get_irdl_definition().operands)
                parts = [a, b, a, b, b][:count]
                return writer(cls.make(*parts, axis=count - 2))

            pair = (numbers(what, 2, 3, 4, 5), numbers(what, 2, 3, 4, 5))
            yield Case(f"{cls.name} {count} {what}", pair, join)
    for kernel in ([2, 2], [3, 2], [3, 3], [1, 1]):
        for index in (i32, i64):

            def argmax(
                writer: Writer, x: SSAValue, kernel: Any = kernel, index: Any = index
            ) -> list[SSAValue]:
                shape = (2, 9 // kernel[0], 10 // kernel[1], 6)
                op = xnn.ArgMaxPooling2d.create(
                    operands=[x],
                    result_types=[tensor(shape, f32), tensor(shape, index)],
                    properties={"kernel": xnn.base.to_attribute(kernel)},
                )
                writer(op)
                return list(op.results)

            name = f"xnnpack.argmax_pooling_2d {kernel} {index}"
            yield Case(name, (numbers("fp32", 2, 9, 10, 6),), argmax)


def all_cases() -> list[Case]:
    """Every case; the same numbers each time."""
    GENERATOR.manual_seed(0)
    return [*elementwise(), *products(), *convolutions(), *images()]

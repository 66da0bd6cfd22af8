"""A smallest instance of every operator for each choice of element types, as text.

Only the element types vary: shapes, attributes and constants are such that nothing else can be
wrong, so that a verdict is one on the types. The text is generic MLIR, read by us and by tosa-opt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

INTEGERS = ("i1", "i4", "i8", "i16", "i32", "i48", "i64")
FLOATS = ("f16", "bf16", "f32", "f8E4M3FN", "f8E5M2")
NARROW = ("f6E2M3FN", "f6E3M2FN", "f4E2M1FN", "!tosa.mxint8")
SCALES = "f8E8M0FNU"
SCALED = tuple(
    f"!tosa.block_scaled<BLOCK_SHAPE_32:{SCALES}:{payload}>"
    for payload in ("f8E4M3FN", "f4E2M1FN", "!tosa.mxint8")
)
ELEMENTS = (*INTEGERS, *FLOATS, *NARROW, SCALES, *SCALED)

ONE_TYPE = (
    "abs", "bitwise_not", "ceil", "clz", "cos", "erf", "exp", "floor", "identity", "log",
    "logical_not", "reciprocal", "rsqrt", "sigmoid", "sin", "tanh",
)  # fmt: skip
TWO_OF_ONE_TYPE = (
    "add", "sub", "pow", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor",
    "intdiv", "logical_and", "logical_or", "logical_xor", "logical_left_shift",
    "logical_right_shift", "arithmetic_right_shift", "equal", "greater", "greater_equal",
)  # fmt: skip
REDUCTIONS = (
    "reduce_all", "reduce_any", "reduce_max", "reduce_min", "reduce_product", "reduce_sum",
)  # fmt: skip
SHAPE_BINARY = (
    "add_shape", "sub_shape", "mul_shape", "max_shape", "min_shape", "mod_shape",
    "div_ceil_shape", "div_floor_shape",
)  # fmt: skip
SHAPE_UNARY = ("exp2_shape", "log2_ceil_shape", "log2_floor_shape")
SHAPE_1 = "!tosa.shape<1>"
CHANNELS = 32
"""The last size everywhere: one block."""


@dataclass(frozen=True)
class Instance:
    """An operator's name, what tells it from its fellows, and a function that holds it."""

    operator: str
    types: tuple[str, ...]
    text: str


Constant = tuple[str, str, str]
"""The operator that makes it, its properties and its type."""


def tensor(element: str, *sizes: int) -> str:
    """`tensor<2x32xf32>`"""
    return f"tensor<{''.join(f'{size}x' for size in sizes)}{element}>"


def constant(element: str, *values: int) -> Constant:
    """A CONST of one axis."""
    numbers = ", ".join(str(v) if element.startswith("i") else f"{v}.0" for v in values)
    type_ = tensor("f32" if element.startswith("!tosa.block") else element, len(values))
    return "const", f"values = dense<[{numbers}]> : {type_}", type_


def zero(element: str) -> Constant | str:
    """A zero point; types that have no constants take an argument of their own."""
    if element == "!tosa.mxint8":
        return tensor(element, 1)
    return constant(element, int(element == SCALES))


def shape(*sizes: int) -> Constant:
    """A CONST_SHAPE."""
    values = f"values = dense<{list(sizes)}> : tensor<{len(sizes)}xindex>"
    return "const_shape", values, f"!tosa.shape<{len(sizes)}>"


def of(
    name: str,
    types: tuple[str, ...],
    operands: Sequence[str | Constant],
    properties: str = "",
    *results: str,
    returned: bool = True,
    regions: str = "",
) -> Instance:
    """An operator in a function that takes an argument for each operand that is a type."""
    ports, lines, taken = list[str](), list[str](), list[tuple[str, str]]()
    for operand in operands:
        if isinstance(operand, str):
            taken.append((f"%a{len(ports)}", operand))
            ports.append(f"%a{len(ports)}: {operand}")
        else:
            op, held, type_ = operand
            taken.append((f"%{len(lines)}", type_))
            lines.append(f'%{len(lines)} = "tosa.{op}"() <{{{held}}}> : () -> {type_}')
    names = ", ".join(f"%r{index}" for index in range(len(results)))
    given = ", ".join(results)
    left, fields = f"{names} = " * bool(results), f" <{{{properties}}}>" * bool(properties)
    lines.append(
        f'{left}"tosa.{name}"({", ".join(v for v, _ in taken)}){fields}{regions}'
        f" : ({', '.join(t for _, t in taken)}) -> ({given})"
    )
    made = returned and bool(results)
    lines.append(f"func.return {names} : {given}" if made else "func.return")
    arrow = f" -> ({given})" * returned
    body = "\n  ".join(lines)
    text = f"func.func @main({', '.join(ports)}){arrow} {{\n  {body}\n}}\n"
    return Instance(name, types, text)


def instances() -> Iterator[Instance]:
    """Every operator (but CUSTOM, which no table knows), with each choice of element types."""
    for make in (
        _elementwise, _casts, _layout, _indexed, _windows, _products, _block_scaled, _shapes,
        _structural,
    ):  # fmt: skip
        yield from make()


def _elementwise() -> Iterator[Instance]:
    for element in ELEMENTS:
        x, one = tensor(element, 2, CHANNELS), (element,)
        truth = tensor("i1", 2, CHANNELS)
        for name in ONE_TYPE:
            yield of(name, one, [x], "", x)
        for name in TWO_OF_ONE_TYPE:
            compares = name in ("equal", "greater", "greater_equal")
            fields = "round = false" if name == "arithmetic_right_shift" else ""
            yield of(name, one, [x, x], fields, truth if compares else x)
        for name in REDUCTIONS:
            yield of(name, one, [x], "axis = 0 : i32", tensor(element, 1, CHANNELS))
        yield of("select", one, [truth, x, x], "", x)
        yield of("negate", one, [x, zero(element), zero(element)], "", x)
        for result in sorted({element, "i32"}):
            made = tensor(result, 2, CHANNELS)
            yield of("mul", (element, result), [x, x, constant("i8", 0)], "", made)
        if element not in (*NARROW, *SCALED, SCALES):
            low, high = ("0", "0") if element.startswith("i") else ("0.0", "1.0")
            limit = "false" if element == "i1" else None
            low, high = limit or f"{low} : {element}", limit or f"{high} : {element}"
            yield of("clamp", one, [x], f"min_val = {low}, max_val = {high}", x)
    for element, size, result in (
        ("i8", 256, "i8"), ("i16", 513, "i32"), ("i16", 513, "i16"), ("i32", 513, "i32"),
    ):  # fmt: skip
        operands = [tensor(element, 2, CHANNELS), constant(element, *[0] * size)]
        yield of("table", (element, result), operands, "", tensor(result, 2, CHANNELS))


def _casts() -> Iterator[Instance]:
    for source, target in product(ELEMENTS, ELEMENTS):
        if source != target:
            made = tensor(target, 2, CHANNELS)
            yield of("cast", (source, target), [tensor(source, 2, CHANNELS)], "", made)
    for source, target in product(INTEGERS, INTEGERS):
        for mode, wide in (
            ("SINGLE_ROUND", True), ("SINGLE_ROUND", False), ("DOUBLE_ROUND", True),
            ("INEXACT_ROUND", True),
        ):  # fmt: skip
            if wide and source == "i48":
                continue
            kind = "i32" if wide else "i16"
            operands = [tensor(source, 2, CHANNELS), constant(kind, 1), constant("i8", 20)]
            operands += [zero(source), zero(target)]
            properties = (
                f"scale32 = {str(wide).lower()}, rounding_mode = #tosa.rounding_mode<{mode}>, "
                "per_channel = false, input_unsigned = false, output_unsigned = false"
            )
            made = tensor(target, 2, CHANNELS)
            yield of("rescale", (source, target, mode, kind), operands, properties, made)


def _layout() -> Iterator[Instance]:
    for element in ELEMENTS:
        one = (element,)

        def held(*sizes: int, element: str = element) -> str:
            return tensor(element, *sizes, CHANNELS)

        x = held(2, 3)
        yield of("reverse", one, [x], "axis = 0 : i32", x)
        yield of("transpose", one, [x], "perms = array<i32: 1, 0, 2>", held(3, 2))
        yield of("concat", one, [x, x], "axis = 0 : i32", held(4, 3))
        yield of("reshape", one, [x, shape(6, CHANNELS)], "", held(6))
        yield of("slice", one, [x, shape(0, 0, 0), shape(1, 3, CHANNELS)], "", held(1, 3))
        yield of("tile", one, [x, shape(2, 1, 1)], "", held(4, 3))
        yield of("pad", one, [x, shape(0, 1, 0, 0, 0, 0), zero(element)], "", held(3, 3))
        yield of("dim", one, [tensor(element, 2, 3)], "axis = 0 : i32", SHAPE_1, returned=False)
        for index in ("i16", "i32", "i64"):
            made = tensor(index, 3, CHANNELS)
            yield of("argmax", (element, index), [x], "axis = 0 : i32", made)
        results = dict.fromkeys(("i32", "i48", "f32", element))
        for mode, acc in product(("NEAREST_NEIGHBOR", "BILINEAR"), results):
            operands = [held(1, 2, 2), shape(2, 1, 2, 1), shape(0, 0), shape(0, 0)]
            fields, made = f"mode = #tosa.resize_mode<{mode}>", tensor(acc, 1, 3, 3, CHANNELS)
            yield of("resize", (element, acc, mode), operands, fields, made)
        if element not in SCALED and element != "!tosa.mxint8":
            number = "1.0" if not element.startswith("i") else "0"
            number = "false" if element == "i1" else number
            yield of("const", one, [], f"values = dense<{number}> : {x}", x)


def _indexed() -> Iterator[Instance]:
    for element, index in product(ELEMENTS, ("i16", "i32", "i64")):
        x, places = tensor(element, 1, 4, CHANNELS), tensor(index, 1, 4)
        yield of("gather", (element, index), [x, places], "", x)
        yield of("scatter", (element, index), [x, places, x], "", x)
        yield of("row_gather", (element, index), [x, places, constant("i32", 1)], "", x)


_SUMS = ("i32", "i48", "f16", "bf16", "f32")
_WINDOWED = ("i4", "i8", "i16", "i32", *FLOATS, *SCALED[:2])


def _windows() -> Iterator[Instance]:
    c = CHANNELS
    window = "kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>"
    sizes = [shape(2, 2), shape(2, 2), shape(0, 0, 0, 0)]
    for element in ELEMENTS:
        x, made = tensor(element, 1, 4, 4, c), tensor(element, 1, 2, 2, c)
        yield of("max_pool2d", (element,), [x], window, made)
        yield of("max_pool2d_adaptive", (element,), [x, *sizes], "", made)
        for acc in _SUMS:
            fields, operands = f"acc_type = {acc}", [x, zero(element), zero(element)]
            yield of("avg_pool2d", (element, acc), operands, f"{window}, {fields}", made)
            yield of("avg_pool2d_adaptive", (element, acc), [*operands, *sizes], fields, made)
    for name, image, weight, acc, result in product(
        ("conv2d", "conv3d", "depthwise_conv2d", "transpose_conv2d"),
        _WINDOWED, _WINDOWED, _SUMS, _SUMS,
    ):  # fmt: skip
        likely = weight == image or name == "conv2d"
        if (result != acc and {result, acc} & {"i32", "i48"}) or not (likely or weight == "i4"):
            continue
        spatial = 3 if name == "conv3d" else 2
        kernel = [1] * spatial
        weights = [*kernel, c, 1] if name == "depthwise_conv2d" else [c, *kernel, c]
        operands = [tensor(image, 1, *[2] * spatial, c), tensor(weight, *weights)]
        operands += [tensor(result, c), zero(image), zero(weight)]
        ones, none = ", ".join("1" * spatial), ", ".join("0" * 2 * spatial)
        pads = f"out_pad = array<i64: {none}>"
        if name != "transpose_conv2d":
            pads = f"pad = array<i64: {none}>, dilation = array<i64: {ones}>"
        fields = f"{pads}, stride = array<i64: {ones}>, acc_type = {acc}"
        made = tensor(result, 1, *[2] * spatial, c)
        yield of(name, (image, weight, acc, result), operands, fields, made)
    for element in ("f16", "bf16", "f32", "i32"):
        x, half = tensor(element, 1, 4, 4), tensor(element, 1, 4, 3)
        yield of("fft2d", (element,), [x, x], "inverse = false", x, x)
        yield of("rfft2d", (element,), [x], "", half, half)


def _products() -> Iterator[Instance]:
    factors = ("i4", "i8", "i16", "i32", *FLOATS, *SCALED)
    for name, a, other, result in product(("matmul", "matmul_t"), factors, factors, _SUMS):
        x, y, made = (tensor(kind, 1, CHANNELS, CHANNELS) for kind in (a, other, result))
        yield of(name, (a, other, result), [x, y, zero(a), zero(other)], "", made)


def _block_scaled() -> Iterator[Instance]:
    payloads = ("f8E4M3FN", "f8E5M2", *NARROW)
    size, single = (f"block_size = #tosa.block_size<BLOCK_SIZE_{n}>" for n in (32, 1))

    def pair(payload: str, *sizes: int) -> list[str]:
        """Data of one block in the last axis, and its scales."""
        return [tensor(payload, *sizes, 32), tensor(SCALES, *sizes, 1)]

    for payload, number in product(payloads, ("f16", "bf16", "f32")):
        x, blocks = tensor(number, 4, 32), pair(payload, 4)
        yield of("cast_to_block_scaled", (number, payload), [x], size, *blocks)
        yield of("cast_from_block_scaled", (payload, number), blocks, size, x)
    places, rows = {index: tensor(index, 1, 4) for index in ("i32", "i64")}, constant("i32", 1)
    for payload in payloads:
        x, made = pair(payload, 1, 4), tensor("f32", 1, 4, 4)
        yield of("matmul_t_block_scaled", (payload,), [*x, *x], size, made)
        operands = [*pair(payload, 1, 2, 2), *pair(payload, 4, 1, 1), tensor("f32", 4)]
        operands += [shape(0, 0, 0, 0), shape(1, 1), shape(1, 1)]
        yield of("conv2d_block_scaled", (payload,), operands, size, tensor("f32", 1, 2, 2, 4))
        types, operands = (payload, "scaled"), [*pair(payload, 2, 2), shape(4, 32)]
        yield of("reshape_block_scaled", types, operands, size, *pair(payload, 4))
        for index, at in places.items():
            types = (payload, index, "scaled")
            yield of("row_gather_block_scaled", types, [*x, at, rows], size, *x)
    for element in ELEMENTS:
        operands = [tensor(element, 2, 2, 32), shape(4, 32)]
        yield of("reshape_block_scaled", (element,), operands, single, tensor(element, 4, 32))
        x = tensor(element, 1, 4, 32)
        for index, at in places.items():
            yield of("row_gather_block_scaled", (element, index), [x, at, rows], single, x)


def _shapes() -> Iterator[Instance]:
    """Shapes are no results of functions."""

    def made(name: str, operands: Sequence[Constant], rank: int, *types: str) -> Instance:
        return of(name, types, operands, "", f"!tosa.shape<{rank}>", returned=False)

    for name in SHAPE_BINARY:
        yield made(name, [shape(4, 8), shape(2, 2)], 2)
    for name in SHAPE_UNARY:
        yield made(name, [shape(4, 8)], 2)
    yield made("concat_shape", [shape(4, 8), shape(2)], 3)
    for index in ("i32", "i64"):
        yield made("slice_shape", [shape(4, 8), constant(index, 0), constant(index, 1)], 1, index)
    yield of("assert_equal_shape", (), [shape(4), shape(4)], "allow_broadcast = false")
    name, values, type_ = shape(4, 8)
    yield of(name, (), [], values, type_, returned=False)


def _structural() -> Iterator[Instance]:
    def region(values: str, **arguments: str) -> str:
        """A region that yields some of its arguments."""
        ports = ", ".join(f"%{name}: {type_}" for name, type_ in arguments.items())
        types = ", ".join(arguments[value.strip(" %")] for value in values.split(","))
        return f'{{\n  ^bb0({ports}):\n  "tosa.yield"({values}) : ({types}) -> ()\n  }}'

    truth = tensor("i1")
    for element in ("i8", "f32"):
        x, one = tensor(element, 2), (element,)
        branches = f" ({region('%x', x=x)}, {region('%y', y=x)})"
        yield of("cond_if", one, [truth, x], "", x, regions=branches)
        loop = f" ({region('%p', p=truth, x=x)}, {region('%q, %y', q=truth, y=x)})"
        yield of("while_loop", one, [truth, x], "", truth, x, regions=loop)

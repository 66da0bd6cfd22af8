"""A smallest instance of every operator for each choice of element types, as text.

Only the element types vary: shapes, attributes and constants are such that nothing else can be
wrong, so that a verdict is one on the types. The text is generic MLIR, read by us and by tosa-opt.
"""

from __future__ import annotations

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
CHANNELS = 32
"""The last size everywhere: one block."""


@dataclass(frozen=True)
class Instance:
    """An operator's name, what tells it from its fellows, and a function that holds it."""

    operator: str
    types: tuple[str, ...]
    text: str


class _Body:
    """A function under construction."""

    def __init__(self) -> None:
        self.arguments: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.count = 0

    def argument(self, element: str, *sizes: int) -> tuple[str, str]:
        value = f"%a{len(self.arguments)}", tensor(element, *sizes)
        self.arguments.append(value)
        return value

    def constant(self, element: str, *values: int) -> tuple[str, str]:
        """A CONST of one axis."""
        is_float = not element.startswith("i")
        numbers = [f"{v}.0" if is_float else str(v) for v in values]
        held = "f32" if element.startswith("!tosa.block") else element
        type_ = tensor(held, len(values))
        return self._one("tosa.const", f"values = dense<[{', '.join(numbers)}]> : {type_}", type_)

    def zero(self, element: str) -> tuple[str, str]:
        """A zero point; types that have no constants take an argument of their own."""
        if element == "!tosa.mxint8":
            return self.argument(element, 1)
        if element == SCALES:
            return self.constant(element, 1)
        return self.constant(element, 0)

    def pair(self, payload: str, *sizes: int) -> tuple[tuple[str, str], tuple[str, str]]:
        """Data of one block in the last axis, and its scales."""
        return self.argument(payload, *sizes, 32), self.argument(SCALES, *sizes, 1)

    def shape(self, *sizes: int) -> tuple[str, str]:
        values = f"values = dense<{list(sizes)}> : tensor<{len(sizes)}xindex>"
        return self._one("tosa.const_shape", values, f"!tosa.shape<{len(sizes)}>")

    def _one(self, name: str, properties: str, type_: str) -> tuple[str, str]:
        value = f"%{self.count}"
        self.count += 1
        self.lines.append(f'{value} = "{name}"() <{{{properties}}}> : () -> {type_}')
        return value, type_

    def finish(
        self,
        name: str,
        operands: Sequence[tuple[str, str]],
        properties: str,
        *results: str,
        regions: str = "",
    ) -> str:
        """The text of the function, which ends in the operator."""
        taken = ", ".join(type_ for _, type_ in operands)
        names = [f"%r{index}" for index in range(len(results))]
        left = f"{', '.join(names)} = " if results else ""
        given = ", ".join(results)
        held = f" <{{{properties}}}>" if properties else ""
        self.lines.append(
            f'{left}"tosa.{name}"({", ".join(v for v, _ in operands)}){held}{regions}'
            f" : ({taken}) -> ({given})"
        )
        ports = ", ".join(f"{value}: {type_}" for value, type_ in self.arguments)
        returned = f"func.return {', '.join(names)} : {given}" if results else "func.return"
        lines = "\n  ".join([*self.lines, returned])
        return f"func.func @main({ports}) -> ({given}) {{\n  {lines}\n}}\n"


def tensor(element: str, *sizes: int) -> str:
    """`tensor<2x32xf32>`"""
    return f"tensor<{''.join(f'{size}x' for size in sizes)}{element}>"


def instances() -> Iterator[Instance]:
    """Every operator (but CUSTOM, which no table knows), with each choice of element types."""
    for make in (
        _elementwise, _casts, _layout, _indexed, _windows, _products, _block_scaled, _shapes,
        _structural,
    ):  # fmt: skip
        yield from make()


def _elementwise() -> Iterator[Instance]:
    for element in ELEMENTS:
        held = tensor(element, 2, CHANNELS)
        for name in ONE_TYPE:
            b = _Body()
            yield Instance(
                name, (element,), b.finish(name, [b.argument(element, 2, CHANNELS)], "", held)
            )
        for name in TWO_OF_ONE_TYPE:
            b = _Body()
            operands = [b.argument(element, 2, CHANNELS), b.argument(element, 2, CHANNELS)]
            compares = name in ("equal", "greater", "greater_equal")
            result = tensor("i1", 2, CHANNELS) if compares else held
            properties = "round = false" if name == "arithmetic_right_shift" else ""
            yield Instance(name, (element,), b.finish(name, operands, properties, result))
        for name in REDUCTIONS:
            b = _Body()
            operand = b.argument(element, 2, CHANNELS)
            result = tensor(element, 1, CHANNELS)
            yield Instance(name, (element,), b.finish(name, [operand], "axis = 0 : i32", result))
        b = _Body()
        operands = [b.argument("i1", 2, CHANNELS)]
        operands += [b.argument(element, 2, CHANNELS) for _ in range(2)]
        yield Instance("select", (element,), b.finish("select", operands, "", held))
        b = _Body()
        operands = [b.argument(element, 2, CHANNELS), b.zero(element), b.zero(element)]
        yield Instance("negate", (element,), b.finish("negate", operands, "", held))
        for result in sorted({element, "i32"}):
            b = _Body()
            operands = [b.argument(element, 2, CHANNELS) for _ in range(2)]
            operands.append(b.constant("i8", 0))
            text = b.finish("mul", operands, "", tensor(result, 2, CHANNELS))
            yield Instance("mul", (element, result), text)
        if element not in (*NARROW, *SCALED, SCALES):
            low, high = ("0", "0") if element.startswith("i") else ("0.0", "1.0")
            limit = "false" if element == "i1" else None
            low, high = limit or f"{low} : {element}", limit or f"{high} : {element}"
            b = _Body()
            operand = b.argument(element, 2, CHANNELS)
            properties = f"min_val = {low}, max_val = {high}"
            yield Instance("clamp", (element,), b.finish("clamp", [operand], properties, held))
    for element, size, result in (
        ("i8", 256, "i8"), ("i16", 513, "i32"), ("i16", 513, "i16"), ("i32", 513, "i32"),
    ):  # fmt: skip
        b = _Body()
        operands = [b.argument(element, 2, CHANNELS), b.constant(element, *[0] * size)]
        text = b.finish("table", operands, "", tensor(result, 2, CHANNELS))
        yield Instance("table", (element, result), text)


def _casts() -> Iterator[Instance]:
    for source, target in product(ELEMENTS, ELEMENTS):
        if source != target:
            b = _Body()
            operand = b.argument(source, 2, CHANNELS)
            text = b.finish("cast", [operand], "", tensor(target, 2, CHANNELS))
            yield Instance("cast", (source, target), text)
    for source, target in product(INTEGERS, INTEGERS):
        for mode, wide in (
            ("SINGLE_ROUND", True), ("SINGLE_ROUND", False), ("DOUBLE_ROUND", True),
            ("INEXACT_ROUND", True),
        ):  # fmt: skip
            if wide and source == "i48":
                continue
            b = _Body()
            multiplier = "i32" if wide else "i16"
            operands = [b.argument(source, 2, CHANNELS), b.constant(multiplier, 1)]
            operands += [b.constant("i8", 20), b.zero(source), b.zero(target)]
            properties = (
                f"scale32 = {str(wide).lower()}, rounding_mode = #tosa.rounding_mode<{mode}>, "
                "per_channel = false, input_unsigned = false, output_unsigned = false"
            )
            text = b.finish("rescale", operands, properties, tensor(target, 2, CHANNELS))
            yield Instance("rescale", (source, target, mode, multiplier), text)


def _layout() -> Iterator[Instance]:
    for element in ELEMENTS:
        held = tensor(element, 2, 3, CHANNELS)
        for name, properties in (
            ("reverse", "axis = 0 : i32"),
            ("transpose", "perms = array<i32: 1, 0, 2>"),
            ("concat", "axis = 0 : i32"),
        ):
            b = _Body()
            operands = [b.argument(element, 2, 3, CHANNELS)]
            if name == "concat":
                operands.append(b.argument(element, 2, 3, CHANNELS))
            result = {"concat": (4, 3), "transpose": (3, 2), "reverse": (2, 3)}[name]
            text = b.finish(name, operands, properties, tensor(element, *result, CHANNELS))
            yield Instance(name, (element,), text)
        for name, shapes, result in (
            ("reshape", ((6, CHANNELS),), (6, CHANNELS)),
            ("slice", ((0, 0, 0), (1, 3, CHANNELS)), (1, 3, CHANNELS)),
            ("tile", ((2, 1, 1),), (4, 3, CHANNELS)),
        ):
            b = _Body()
            operands = [b.argument(element, 2, 3, CHANNELS), *(b.shape(*s) for s in shapes)]
            yield Instance(name, (element,), b.finish(name, operands, "", tensor(element, *result)))
        b = _Body()
        operands = [b.argument(element, 2, 3, CHANNELS), b.shape(0, 1, 0, 0, 0, 0)]
        operands.append(b.zero(element))
        text = b.finish("pad", operands, "", tensor(element, 3, 3, CHANNELS))
        yield Instance("pad", (element,), text)
        b = _Body()
        text = b.finish("dim", [(b.argument(element, 2, 3))], "axis = 0 : i32", "!tosa.shape<1>")
        yield Instance("dim", (element,), _without_result(text))
        for index in ("i16", "i32", "i64"):
            b = _Body()
            operand = b.argument(element, 2, 3, CHANNELS)
            text = b.finish("argmax", [operand], "axis = 0 : i32", tensor(index, 3, CHANNELS))
            yield Instance("argmax", (element, index), text)
        results = dict.fromkeys(("i32", "i48", "f32", element))
        for name, acc in product(("NEAREST_NEIGHBOR", "BILINEAR"), results):
            b = _Body()
            operands = [b.argument(element, 1, 2, 2, CHANNELS), b.shape(2, 1, 2, 1)]
            operands += [b.shape(0, 0), b.shape(0, 0)]
            properties = f"mode = #tosa.resize_mode<{name}>"
            text = b.finish("resize", operands, properties, tensor(acc, 1, 3, 3, CHANNELS))
            yield Instance("resize", (element, acc, name), text)
        if element not in SCALED and element != "!tosa.mxint8":
            b = _Body()
            number = "1.0" if not element.startswith("i") else "0"
            number = "false" if element == "i1" else number
            text = b.finish("const", [], f"values = dense<{number}> : {held}", held)
            yield Instance("const", (element,), text)


def _indexed() -> Iterator[Instance]:
    for element, index in product(ELEMENTS, ("i16", "i32", "i64")):
        held = tensor(element, 1, 4, CHANNELS)
        b = _Body()
        operands = [b.argument(element, 1, 4, CHANNELS), b.argument(index, 1, 4)]
        yield Instance("gather", (element, index), b.finish("gather", operands, "", held))
        b = _Body()
        operands = [b.argument(element, 1, 4, CHANNELS), b.argument(index, 1, 4)]
        operands.append(b.argument(element, 1, 4, CHANNELS))
        yield Instance("scatter", (element, index), b.finish("scatter", operands, "", held))
        b = _Body()
        operands = [b.argument(element, 1, 4, CHANNELS), b.argument(index, 1, 4)]
        operands.append(b.constant("i32", 1))
        yield Instance("row_gather", (element, index), b.finish("row_gather", operands, "", held))


_SUMS = ("i32", "i48", "f16", "bf16", "f32")
_WINDOWED = ("i4", "i8", "i16", "i32", *FLOATS, *SCALED[:2])


def _windows() -> Iterator[Instance]:
    c = CHANNELS
    for element in (*ELEMENTS,):
        result = tensor(element, 1, 2, 2, c)
        b = _Body()
        properties = (
            "kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>"
        )
        text = b.finish("max_pool2d", [b.argument(element, 1, 4, 4, c)], properties, result)
        yield Instance("max_pool2d", (element,), text)
        b = _Body()
        operands = [b.argument(element, 1, 4, 4, c), b.shape(2, 2), b.shape(2, 2)]
        operands.append(b.shape(0, 0, 0, 0))
        text = b.finish("max_pool2d_adaptive", operands, "", result)
        yield Instance("max_pool2d_adaptive", (element,), text)
        for acc in _SUMS:
            b = _Body()
            operands = [b.argument(element, 1, 4, 4, c), b.zero(element), b.zero(element)]
            text = b.finish("avg_pool2d", operands, f"{properties}, acc_type = {acc}", result)
            yield Instance("avg_pool2d", (element, acc), text)
            b = _Body()
            operands = [b.argument(element, 1, 4, 4, c), b.zero(element), b.zero(element)]
            operands += [b.shape(2, 2), b.shape(2, 2), b.shape(0, 0, 0, 0)]
            text = b.finish("avg_pool2d_adaptive", operands, f"acc_type = {acc}", result)
            yield Instance("avg_pool2d_adaptive", (element, acc), text)
    for name, image, weight, acc, result in product(
        ("conv2d", "conv3d", "depthwise_conv2d", "transpose_conv2d"),
        _WINDOWED, _WINDOWED, _SUMS, ("i32", "i48", "f16", "bf16", "f32"),
    ):  # fmt: skip
        likely = weight == image or name == "conv2d"
        if (result != acc and {result, acc} & {"i32", "i48"}) or not (likely or weight == "i4"):
            continue
        spatial = 3 if name == "conv3d" else 2
        b = _Body()
        kernel = [1] * spatial
        weights = [*kernel, c, 1] if name == "depthwise_conv2d" else [c, *kernel, c]
        operands = [b.argument(image, 1, *[2] * spatial, c), b.argument(weight, *weights)]
        operands += [b.argument(result, c), b.zero(image), b.zero(weight)]
        ones, none = ", ".join("1" * spatial), ", ".join("0" * 2 * spatial)
        pads = f"out_pad = array<i64: {none}>"
        if name != "transpose_conv2d":
            pads = f"pad = array<i64: {none}>, dilation = array<i64: {ones}>"
        properties = f"{pads}, stride = array<i64: {ones}>, acc_type = {acc}"
        text = b.finish(name, operands, properties, tensor(result, 1, *[2] * spatial, c))
        yield Instance(name, (image, weight, acc, result), text)
    for element in ("f16", "bf16", "f32", "i32"):
        b = _Body()
        held = tensor(element, 1, 4, 4)
        operands = [b.argument(element, 1, 4, 4), b.argument(element, 1, 4, 4)]
        text = b.finish("fft2d", operands, "inverse = false", held, held)
        yield Instance("fft2d", (element,), text)
        b = _Body()
        half = tensor(element, 1, 4, 3)
        text = b.finish("rfft2d", [b.argument(element, 1, 4, 4)], "", half, half)
        yield Instance("rfft2d", (element,), text)


def _products() -> Iterator[Instance]:
    factors = ("i4", "i8", "i16", "i32", *FLOATS, *SCALED)
    results = ("i32", "i48", "f16", "bf16", "f32")
    for name, a, other, result in product(("matmul", "matmul_t"), factors, factors, results):
        b = _Body()
        size = CHANNELS
        operands = [b.argument(a, 1, size, size), b.argument(other, 1, size, size)]
        operands += [b.zero(a), b.zero(other)]
        text = b.finish(name, operands, "", tensor(result, 1, size, size))
        yield Instance(name, (a, other, result), text)


def _block_scaled() -> Iterator[Instance]:
    payloads = ("f8E4M3FN", "f8E5M2", *NARROW)
    size = "block_size = #tosa.block_size<BLOCK_SIZE_32>"
    single = "block_size = #tosa.block_size<BLOCK_SIZE_1>"
    for payload, number in product(payloads, ("f16", "bf16", "f32")):
        held, scale = tensor(payload, 4, 32), tensor(SCALES, 4, 1)
        b = _Body()
        text = b.finish("cast_to_block_scaled", [b.argument(number, 4, 32)], size, held, scale)
        yield Instance("cast_to_block_scaled", (number, payload), text)
        b = _Body()
        operands = [b.argument(payload, 4, 32), b.argument(SCALES, 4, 1)]
        text = b.finish("cast_from_block_scaled", operands, size, tensor(number, 4, 32))
        yield Instance("cast_from_block_scaled", (payload, number), text)
    for payload in payloads:
        b = _Body()
        operands = [*b.pair(payload, 1, 4), *b.pair(payload, 1, 4)]
        text = b.finish("matmul_t_block_scaled", operands, size, tensor("f32", 1, 4, 4))
        yield Instance("matmul_t_block_scaled", (payload,), text)
        b = _Body()
        operands = [*b.pair(payload, 1, 2, 2), *b.pair(payload, 4, 1, 1), b.argument("f32", 4)]
        operands += [b.shape(0, 0, 0, 0), b.shape(1, 1), b.shape(1, 1)]
        text = b.finish("conv2d_block_scaled", operands, size, tensor("f32", 1, 2, 2, 4))
        yield Instance("conv2d_block_scaled", (payload,), text)
        b = _Body()
        results = tensor(payload, 4, 32), tensor(SCALES, 4, 1)
        text = b.finish(
            "reshape_block_scaled", [*b.pair(payload, 2, 2), b.shape(4, 32)], size, *results
        )
        yield Instance("reshape_block_scaled", (payload, "scaled"), text)
        for index in ("i32", "i64"):
            b = _Body()
            operands = [*b.pair(payload, 1, 4), b.argument(index, 1, 4), b.constant("i32", 1)]
            results = tensor(payload, 1, 4, 32), tensor(SCALES, 1, 4, 1)
            text = b.finish("row_gather_block_scaled", operands, size, *results)
            yield Instance("row_gather_block_scaled", (payload, index, "scaled"), text)
    for element in ELEMENTS:
        b = _Body()
        operands = [b.argument(element, 2, 2, 32), b.shape(4, 32)]
        text = b.finish("reshape_block_scaled", operands, single, tensor(element, 4, 32))
        yield Instance("reshape_block_scaled", (element,), text)
        for index in ("i32", "i64"):
            b = _Body()
            operands = [b.argument(element, 1, 4, 32), b.argument(index, 1, 4)]
            operands.append(b.constant("i32", 1))
            result = tensor(element, 1, 4, 32)
            text = b.finish("row_gather_block_scaled", operands, single, result)
            yield Instance("row_gather_block_scaled", (element, index), text)


def _without_result(text: str) -> str:
    """The function that drops what its operator gives: shapes are no results of functions."""
    head, _, rest = text.partition(") -> (")
    lines = rest.partition(" {\n")[2].splitlines()
    return f"{head}) {{\n" + "\n".join([*lines[:-2], "  func.return", "}"]) + "\n"


def _shapes() -> Iterator[Instance]:
    for name in SHAPE_BINARY:
        b = _Body()
        text = b.finish(name, [b.shape(4, 8), b.shape(2, 2)], "", "!tosa.shape<2>")
        yield Instance(name, (), _without_result(text))
    for name in SHAPE_UNARY:
        b = _Body()
        text = b.finish(name, [b.shape(4, 8)], "", "!tosa.shape<2>")
        yield Instance(name, (), _without_result(text))
    b = _Body()
    text = b.finish("concat_shape", [b.shape(4, 8), b.shape(2)], "", "!tosa.shape<3>")
    yield Instance("concat_shape", (), _without_result(text))
    for index in ("i32", "i64"):
        b = _Body()
        operands = [b.shape(4, 8), b.constant(index, 0), b.constant(index, 1)]
        text = b.finish("slice_shape", operands, "", "!tosa.shape<1>")
        yield Instance("slice_shape", (index,), _without_result(text))
    b = _Body()
    text = b.finish("assert_equal_shape", [b.shape(4), b.shape(4)], "allow_broadcast = false")
    yield Instance("assert_equal_shape", (), text)
    yield Instance(
        "const_shape", (), _without_result(_Body().finish(
            "const_shape", [], "values = dense<[4, 8]> : tensor<2xindex>", "!tosa.shape<2>"
        )),
    )  # fmt: skip


def _structural() -> Iterator[Instance]:
    for element in ("i8", "f32"):
        held = tensor(element, 2)
        b = _Body()
        operands = [b.argument("i1"), b.argument(element, 2)]
        graph = f'{{\n  ^bb0(%x: {held}):\n  "tosa.yield"(%x) : ({held}) -> ()\n  }}'
        other = graph.replace("%x", "%y")
        text = b.finish("cond_if", operands, "", held, regions=f" ({graph}, {other})")
        yield Instance("cond_if", (element,), text)
        b = _Body()
        operands = [b.argument("i1"), b.argument(element, 2)]
        types = f"tensor<i1>, {held}"
        cond = (
            f"{{\n  ^bb0(%p: tensor<i1>, %x: {held}):\n"
            '  "tosa.yield"(%p) : (tensor<i1>) -> ()\n  }'
        )
        body = (
            f"{{\n  ^bb0(%q: tensor<i1>, %y: {held}):\n"
            f'  "tosa.yield"(%q, %y) : ({types}) -> ()\n  }}'
        )
        text = b.finish(
            "while_loop", operands, "", "tensor<i1>", held, regions=f" ({cond}, {body})"
        )
        yield Instance("while_loop", (element,), text)

"""Names of a delegate's nodes in XNNPACK's profiler: the debug map of a delegate.

ExecuTorch's XNNPACK backend reports each operator that it ran as an event. Its identifier is
XNNPACK's name of the operator and a number that counts the operators of that name in execution
order: `Convolution (NHWC, F32) IGEMM #2`. XNNPACK rewrites its graph before it runs it. This
module models the visible effects: a pointwise convolution runs as a fully connected layer, an
elementwise node with an output range is followed by a clamp, dynamically quantized rows are
computed inside the product that uses them, squares inside the mean that uses them, and
half-precision nodes without a kernel run between two conversions.

Source: `operator-type-defs.inc` and `src/subgraph` of XNNPACK, `XNNProfiler.cpp` of ExecuTorch;
`tests/xnnpack/test_events.py` compares this with the runtime's reports.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stepwell.dialects.xnnpack import (
    CONCATENATES,
    NODES,
    Add,
    ArgMaxPooling2d,
    AveragePooling2d,
    BatchMatrixMultiply,
    Clamp,
    Convert,
    Convolution2d,
    Copy,
    Deconvolution2d,
    DelegateOp,
    DepthwiseConvolution2d,
    Divide,
    FullyConnected,
    GlobalAveragePooling2d,
    Maximum,
    MaxPooling2d,
    Minimum,
    Multiply,
    PReLU,
    ScaledDotProductAttention,
    Square,
    StaticConstantPad,
    StaticReshape,
    StaticResizeBilinear2d,
    StaticSlice,
    StaticTranspose,
    Subtract,
    XnnpackOp,
)
from stepwell.dialects.xnnpack.base import constant_of
from stepwell.dialects.xnnpack.datatypes import datatype
from stepwell.dialects.xnnpack.elementwise import Unary
from stepwell.ir.diagnostics import node_name

Spellings = tuple[str, ...]
"""One event, by all its names: XNNPACK names some kernels after features of the processor."""

ROWS = ("QD8", "QDU8", "QP8")
"""Names of dynamically quantized rows: signed ones, those with 128 added (processors whose
byte products need an unsigned operand: VNNI), those packed before (KleidiAI). A runtime chooses
one by the processor, the same for all operators of a kind."""


def kind_of(event: str) -> str:
    """Return the processor-independent kind of an event, as `Convolution` of `Convolution (NHWC,
    F32)`.

    A quantization, or a conversion between float types, is a `Convert`; a processor with kernels
    for half precision or packed rows reports fewer of them.
    """
    return event.partition(" (")[0].removeprefix("Dynamic ")


def event_nodes(delegate: DelegateOp) -> dict[str, tuple[str, ...]]:
    """Return the identifier of each event of a delegate's run → the nodes of the model that it
    computes.

    An event without a node is listed with an empty tuple, because ExecuTorch's Inspector guesses
    by parts of names if an identifier is missing.
    """
    counts: Counter[str] = Counter()
    nodes: dict[str, tuple[str, ...]] = {}
    for op, spellings in events(delegate):
        node = node_name(op.location)
        for name in spellings:
            counts[name] += 1
            nodes[f"{name} #{counts[name]}"] = (node,) if node is not None else ()
    return nodes


def events(delegate: DelegateOp) -> Iterator[tuple[XnnpackOp, Spellings]]:
    """Yield the profiler's events of a delegate, in execution order."""
    for op in delegate.block.ops:
        if isinstance(op, XnnpackOp):
            for spellings in _EVENTS[type(op)](op):
                yield op, spellings


def _once(*names: str) -> list[Spellings]:
    return [names]


def _float(op: XnnpackOp) -> str:
    """Return the profiler's name of the first operand's type: `F32`, `F16`, `QS8` or `QU8`."""
    return _STORED.get(datatype(op.operands[0].type) or "", "F32")


_STORED = {"fp32": "F32", "fp16": "F16", "qint8": "QS8", "quint8": "QU8"}
_WIDTH = {"fp32": "X32", "fp16": "X16", "bf16": "X16", "qint8": "X8", "quint8": "X8"}
_WEIGHT = {"qcint8": "QC8W", "qcint4": "QC4W", "qbint4": "QB4W"}


def _elementwise(title: str) -> Callable[[XnnpackOp], list[Spellings]]:
    def name(op: XnnpackOp) -> list[Spellings]:
        clamped = op.output_range is not None and not isinstance(op, Clamp)
        return [(title,), *([("Clamp (NC)",)] if clamped else [])]

    return name


def _unary(op: Unary) -> list[Spellings]:
    title = op.EVENT or type(op).__name__
    return _once(f"{title} (NC, {_float(op)})") if op.MIXED else _elementwise(f"{title} (NC)")(op)


def _multiply(op: XnnpackOp) -> list[Spellings]:
    """Return the events of a Multiply; a value times itself runs as a square."""
    return _square(op) if _is_square(op) else _elementwise("Multiply (ND)")(op)


def _is_square(op: object) -> bool:
    return isinstance(op, Square) or (isinstance(op, Multiply) and op.operands[0] is op.operands[1])


def _square(op: XnnpackOp) -> list[Spellings]:
    """Return the events of a square; none if only a mean of floats uses it and computes it."""
    reader = op.results[0].get_user_of_unique_use()
    if isinstance(reader, GlobalAveragePooling2d) and _means_squares(reader):
        return []
    return _elementwise("Square (NC)")(op)


def _means_squares(op: XnnpackOp) -> bool:
    (given,) = op.operands
    squared = given.owner
    return (
        isinstance(squared, XnnpackOp)
        and _is_square(squared)
        and squared.output_range is None
        and _float(op) in ("F32", "F16")
    )


def _moved(title: str) -> Callable[[XnnpackOp], list[Spellings]]:
    def name(op: XnnpackOp) -> list[Spellings]:
        return _once(f"{title} {_WIDTH[datatype(op.operands[0].type) or 'fp32']})")

    return name


def _convert(op: XnnpackOp) -> list[Spellings]:
    """Return the events of a Convert; none if it quantizes rows for products, which do it."""
    if datatype(op.results[0].type) != "qdint8":
        return _once("Convert (NC)")
    readers = [use.operation for use in op.results[0].uses]
    packs = all(isinstance(r, XnnpackOp) and _packs_rows(r) for r in readers)
    return [] if packs else [tuple(f"Convert (NC, {_float(op)}, {rows})" for rows in ROWS)]


def _packs_rows(reader: XnnpackOp) -> bool:
    if not isinstance(reader, FullyConnected | BatchMatrixMultiply):
        return isinstance(reader, Convolution2d) and _is_product(reader)
    return True


def _product(op: XnnpackOp) -> list[Spellings]:
    """Return the events of a product, such as `Fully Connected (NC, QD8, F32, QC8W) GEMM`."""
    given, weight = datatype(op.operands[0].type), datatype(op.operands[1].type) or ""
    stored = _WEIGHT.get(weight, "QC8W")
    is_batch = isinstance(op, BatchMatrixMultiply)
    title = "Batch Matrix Multiply" if is_batch else "Fully Connected"
    if given == "qdint8":
        product = tuple(f"{title} (NC, {rows}, F32, {stored}) GEMM" for rows in ROWS)
        if datatype(op.results[0].type) == "fp16":
            return [("Convert (NC)",), product, ("Convert (NC)",)]
        return [product]
    if given == "bf16":  # XNNPACK computes it in f32.
        rounded = [("Convert (NC)",)] if datatype(op.results[0].type) == "bf16" else []
        return [("Convert (NC)",), (f"{title} (NC, F32) GEMM",), *rounded]
    if is_batch or weight == given:
        dynamic = not is_batch and constant_of(op.operands[1]) is None
        return _once(f"{'Dynamic ' if dynamic else ''}{title} (NC, {_float(op)}) GEMM")
    if weight in _WEIGHT:
        return _once(f"{title} (NC, {_float(op)}, {stored}) GEMM")
    return _once(f"{title} (NC, {_float(op)}) GEMM")


def _is_product(op: Convolution2d) -> bool:
    """Whether XNNPACK runs a convolution as a product: each output reads one input pixel."""
    return (
        op.window == (1, 1)
        and op.pair("stride") == (1, 1)
        and not any(op.paddings)
        and op.integer("groups", 1) == 1
    )


def _convolution(op: Any) -> list[Spellings]:
    if isinstance(op, Convolution2d) and _is_product(op):
        return _product(op)
    given = datatype(op.operands[0].type)
    stored = "QC8" if datatype(op.operands[1].type) == "qcint8" else _float(op)
    kind = "IGEMM"
    if isinstance(op, DepthwiseConvolution2d) and op.filter_shape[3] == op.channels:
        kind = "DWConv"
    if given == "qdint8":
        return [tuple(f"Convolution (NHWC, {rows}, F32, QC8W) {kind}" for rows in ROWS)]
    return _once(f"Convolution (NHWC, {stored}) {kind}")


def _deconvolution(op: Any) -> list[Spellings]:
    stored = f"NHWC, {_float(op)}"
    if datatype(op.operands[1].type) == "qcint8":
        stored = "NC, QS8, QC8W"
    strided = op.pair("stride") != (1, 1) and op.pair("dilation") == (1, 1)
    spread = all(s <= k for s, k in zip(op.pair("stride"), op.window, strict=True))
    kernel = "Subconv2D" if strided and spread else "IGEMM"
    if datatype(op.operands[0].type) == "qdint8":
        return [tuple(f"Deconvolution (NHWC, {rows}, F32, QC8W) {kernel}" for rows in ROWS)]
    return _once(f"Deconvolution ({stored}) {kernel}")


def _max_pooling(op: XnnpackOp) -> list[Spellings]:
    return _once(f"Max Pooling (NHWC, {_float(op).replace('Q', '')})")


def _average_pooling(op: Any) -> list[Spellings]:
    kind = "Pixelwise Average Pooling" if any(op.paddings) else "Average Pooling"
    return _once(f"Average Pooling (NHWC, {_float(op)}) {kind}")


def _mean(op: XnnpackOp) -> list[Spellings]:
    title = "Mean Squared (ND)" if _means_squares(op) else "Mean (ND)"
    return _once(f"{title} Reduce2" if _float(op) in ("F32", "F16") else title)


def _resize(op: XnnpackOp) -> list[Spellings]:
    resized: Spellings = ("Resize Bilinear (NHWC)",)
    if _float(op) == "F16":
        return [("Convert (NC)",), resized, ("Convert (NC)",)]
    return [resized]


_BINARY: Mapping[type[XnnpackOp], str] = {
    Add: "Add",
    Divide: "Divide",
    Maximum: "Maximum",
    Minimum: "Minimum",
    PReLU: "PReLU",
    Subtract: "Subtract",
}
_MOVED: Mapping[type[XnnpackOp], str] = {
    Copy: "Copy (NC,",
    **dict.fromkeys(CONCATENATES.values(), "Copy (NC,"),
    StaticConstantPad: "Constant Pad (ND,",
    StaticSlice: "Slice (ND,",
    StaticTranspose: "Transpose (ND,",
}
_EVENTS: Mapping[type[XnnpackOp], Callable[[Any], list[Spellings]]] = {
    **{cls: _unary for cls in NODES.values() if issubclass(cls, Unary)},
    **{cls: _elementwise(f"{title} (ND)") for cls, title in _BINARY.items()},
    **{cls: _moved(title) for cls, title in _MOVED.items()},
    ArgMaxPooling2d: lambda op: _once("ArgMax Pooling (NHWC, F32)"),
    AveragePooling2d: _average_pooling,
    BatchMatrixMultiply: _product,
    Convert: _convert,
    Convolution2d: _convolution,
    Deconvolution2d: _deconvolution,
    DepthwiseConvolution2d: _convolution,
    FullyConnected: _product,
    GlobalAveragePooling2d: _mean,
    MaxPooling2d: _max_pooling,
    Multiply: _multiply,
    Square: _square,
    ScaledDotProductAttention: lambda op: [],  # The runtime does not run it.
    StaticReshape: _elementwise("Static Reshape (NC)"),
    StaticResizeBilinear2d: _resize,
}

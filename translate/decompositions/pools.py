"""Decompositions of pools into pools of images, slices, or tables of the elements of windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import Deviation, loses_nans
from stepwell.ir.dtypes import f16, i64, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Refusal, Rewriter
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import dims, tensor
from stepwell.translate.decompositions.values import Value, cat, needs_static, no_refusal
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse
from stepwell.translate.range_analysis import is_never_nan, is_summable
from stepwell.translate.rewrites.xnnpack.floats.nans import carries_nans
from stepwell.translate.rewrites.xnnpack.nodes.guards import not_for_xnnpack
from stepwell.translate.rewrites.xnnpack.nodes.windows import edges


def reads_their_indices(op: SchemaOp) -> Refusal | None:
    """Refuse if the second result, the indices of the maxima, is used."""
    if any(indices.uses for indices in op.results[1:]):
        return Refusal("the indices of the maxima are used")
    return None


SPACES = {
    "aten.max_pool3d.default": 3,
    "aten.max_pool3d_with_indices.default": 3,
    "aten.max_pool2d.default": 2,
    "aten.max_pool1d.default": 1,
    "aten.avg_pool3d.default": 3,
    "aten.avg_pool2d.default": 2,
    "aten.avg_pool1d.default": 1,
}
"""Pool → the number of axes it runs over."""


@lowers(
    SPACES,
    to="aten",
    phases={"tosa/decompose": {"only_image_maxima": False}, "xnnpack/decompose": {}},
    bound=roundings("an average of averages rounds twice"),
    sample="""
    %y = aten.max_pool2d.default(%x, [2, 2]) : (tensor<3x6x6xf32>) -> tensor<3x3x3xf32>
    """,
)
def pool_by_images(
    x: Value, *, form: int, op: Any, out: Out, only_image_maxima: bool = True
) -> Any:
    """Rewrite pools of lines, of volumes, and of unbatched images as pools of images.

    XNNPACK's maxima may drop a NaN, which the stock flow has for images only (`only_image_maxima`).

    A maximum over a box is one over planes, then one over depths. So is an average: its divisor is
    the product of the axes' counts, whether padding counts or not.
    """
    needs_static(x)
    no_refusal(reads_their_indices(op))
    is_maximum = op.SCHEMA.operator.startswith("max")
    if (x.rank == 4 and form == 2) or (only_image_maxima and is_maximum and form != 2):
        return None
    if "divisor_override" in op.SCHEMA.by_name and op.arg("divisor_override") is not None:
        refuse("divisor_override is set; AVG_POOL2D divides by the number of elements")
    batch = (1,) if x.rank == form + 1 else ()
    (n, channels, *held), (_, _, *made) = (*batch, *x.shape), (*batch, *out.shape)
    if form == 1:
        y = _pooled(op, x.view(n, channels, 1, *held), form, (None, 0), (1, *made))
    elif form == 2:
        y = _pooled(op, x.view(n, channels, *held), form, range(2), made)
    else:
        depth, plane = held[0], made[1:]
        y = _pooled(op, x.view(n, channels * depth, *held[1:]), form, (1, 2), plane)
        y = y.view(n, channels, depth, prod(plane))
        y = _pooled(op, y, form, (0, None), (made[0], prod(plane)))
    return (y.view(*out.shape), *[None] * (len(op.results) - 1))


def _pooled(
    op: Any, x: Value, space: int, axes: Sequence[int | None], made: Sequence[int]
) -> Value:
    """Return the pool over two axes of an image; an axis that is None is not pooled."""

    def numbers(name: str, alone: int) -> list[int]:
        given = list(op.arg(name) or op.arg("kernel_size"))
        given = given * space if len(given) == 1 else given
        return [alone if axis is None else given[axis] for axis in axes]

    lists = [numbers("kernel_size", 1), numbers("stride", 1), numbers("padding", 0)]
    shape, rounded_up = (*x.shape[:2], *made), bool(op.arg("ceil_mode"))
    if op.SCHEMA.operator.startswith("avg"):
        counted = bool(op.arg("count_include_pad"))
        return x.call(aten.AvgPool2dDefault, *lists, rounded_up, counted, shape=shape)
    lists.append(numbers("dilation", 1))
    return x.call(aten.MaxPool2dDefault, *lists, rounded_up, shape=shape)


MOST = 1 << 20
"""The most elements of an index table: each is 64 bits, and gathers one element of each plane."""


WITH_PLACES = {
    **{f"aten.adaptive_max_pool{space}d.default": space for space in (1, 2, 3)},
    **{f"aten.max_pool{space}d_with_indices.default": space for space in (1, 2, 3)},
}


@lowers(
    WITH_PLACES,
    to="aten",
    phases=("tosa/decompose",),
    takes_empty=False,
    bound=EXACT,
    sample="""
    %m, %y = aten.adaptive_max_pool1d.default(%x, [2]) : (tensor<1x1x4xf32>) -> (tensor<1x1x2xf32>, tensor<1x1x2xi64>)
    func.return %y : tensor<1x1x2xi64>
    """,
)
def maxima_with_places(x: Value, *, form: int, op: Any, out: Out, b: Rewriter) -> Any:
    """Compute maxima with indices, by a constant table of the elements of each window.

    The table selects the elements to gather, and maps the position of a window's maximum to an
    index. A shorter window repeats its last element at its end.
    """
    if not op.results[1].uses:
        return None
    needs_static(x)
    sizes, made = x.shape[-form:], out.shape[-form:]
    spans = [list(_spans(op, at, *pair)) for at, pair in enumerate(zip(sizes, made, strict=True))]
    count = prod(max(map(len, axis)) for axis in spans) * prod(made)
    if count > MOST:
        refuse(f"the windows hold {count} elements, more than {MOST}")
    table = _table(sizes, spans)
    planes, (windows, longest) = prod(x.shape) // prod(sizes), table.shape
    places = Value(b.constant(table.reshape(-1), "places"), b)
    flat = x.view(planes, prod(sizes))
    each = flat.call(aten.IndexSelectDefault, 1, places, shape=(planes, windows * longest))
    each = each.view(planes, windows, longest)
    types = [tensor((planes, windows), kind) for kind in (x.dtype, i64)]
    greatest = b.insert(aten.MaxDim.make(each.ssa, 2, False, result_types=types)).results
    rows = Value(b.constant(torch.arange(windows) * longest, "rows"), b)
    at = (Value(greatest[1], b) + rows).view(planes * windows)
    found = places.call(aten.IndexSelectDefault, 0, at, shape=at.shape)
    return Value(greatest[0], b).view(*out.shape), found.view(*out.shape)


def _spans(op: Any, at: int, size: int, count: int) -> Iterator[range]:
    """Yield the elements of an axis in each window, without padding."""
    if op.SCHEMA.operator.startswith("adaptive"):
        yield from (range(i * size // count, -(-(i + 1) * size // count)) for i in range(count))
        return

    def number(name: str) -> int:
        given = list(op.arg(name) or op.arg("kernel_size"))
        return given[at if len(given) > 1 else 0]

    kernel, stride, pad, dilation = map(number, ("kernel_size", "stride", "padding", "dilation"))
    for i in range(count):
        start = i * stride - pad
        inside = [p for p in range(start, start + kernel * dilation, dilation) if 0 <= p < size]
        yield range(inside[0], inside[-1] + 1, dilation)


def _table(sizes: Sequence[int], spans: Sequence[Sequence[range]]) -> torch.Tensor:
    """Return each window's indices in PyTorch's order; the last one is repeated to fill a row."""
    steps = [prod(sizes[at + 1 :]) for at in range(len(sizes))]
    rows = [
        [sum(i * step for i, step in zip(where, steps, strict=True)) for where in product(*window)]
        for window in product(*spans)
    ]
    longest = max(map(len, rows))
    return torch.tensor([row + [row[-1]] * (longest - len(row)) for row in rows])


@lowers(
    "aten.max_pool2d.default",
    "aten.avg_pool2d.default",
    to="aten",
    bound=Bound(absolute=5e-324, reason="avg_pool2d adds to zero: −0 becomes +0"),
    sample=("1x2x4x4xf32", [1, 1], [2, 2]),
)
def unit_pooling_to_slice(x: Value, *, op: Any) -> Value | None:
    """Rewrite `max_pool2d(x, 1, stride=s)` and `avg_pool2d(x, 1, stride=s)` to `x[..., ::s, ::s]`.

    Padding is at most half a window, which is 0 here. A dilation has no effect.
    """
    if set(op.arg("kernel_size")) != {1}:
        return None
    stride = list(op.arg("stride"))
    if set(stride) <= {1}:
        return None
    if isinstance(op, aten.AvgPool2dDefault) and op.arg("divisor_override") not in (None, 1):
        refuse(f"divisor_override is {op.arg('divisor_override')}, not 1")
    for axis, step in enumerate(stride * 2 if len(stride) == 1 else stride, x.rank - 2):
        if step != 1:
            sizes = list(x.shape)
            if isinstance(size := sizes[axis], Size):
                refuse("the image has a symbolic size")
            sizes[axis] = -(-size // step)
            x = x.call(aten.SliceTensor, axis, 0, size, step, shape=sizes)
    return x


MAXIMA = "max_pool2d_with_indices.default max_pool2d.default"


@lowers(
    {f"aten.{name}": aten.MaxPool2dDefault for name in MAXIMA.split()}
    | {"aten.avg_pool2d.default": aten.AvgPool2dDefault},
    to="aten",
    sample="""
    %y, %i = aten.max_pool2d_with_indices.default(%x, [2]) : (tensor<1x3x8x8xf32>) -> (tensor<1x3x4x4xf32>, tensor<1x3x4x4xi64>)
    func.return %y : tensor<1x3x4x4xf32>
    """,
)
def normalize_pooling(x: Value, *, form: type[SchemaOp], op: Any, out: Out) -> Any:
    """Canonicalize 2-D poolings: values only, and every list written out.

    Only training and unpooling use the indices of `max_pool2d_with_indices`. A missing stride is
    the kernel's size.
    """
    no_refusal(reads_their_indices(op))
    kernel = op.arg("kernel_size")
    stated = {"kernel_size": kernel, "stride": op.arg("stride") or kernel}
    stated |= {name: op.arg(name) for name in form.SCHEMA.by_name if name not in ("self", *stated)}
    if isinstance(op, form) and op.present() == {"self": x.ssa, **stated}:
        return None
    return x.call(form, shape=out.shape, **stated), *[None] * (len(op.results) - 1)


ADAPTIVE = {
    **dict.fromkeys(
        (
            "aten.adaptive_avg_pool2d.default",
            "aten._adaptive_avg_pool2d.default",
            "aten.adaptive_avg_pool1d.default",
            "aten.adaptive_avg_pool3d.default",
        ),
        (aten.MeanDim, aten.AvgPool2dDefault),
    ),
    "aten.adaptive_max_pool2d.default": (aten.AmaxDefault, aten.MaxPool2dDefault),
}
"""Adaptive pools → their forms over whole planes and over windows."""


def _pool_loses(op: Any, program: Program) -> Deviation | None:
    """Return the deviation of the engine's pool, which may lose a NaN; means of planes lose
    none.
    """
    if not loses_nans(program.context):
        return None
    space, is_max = len(op.arg("output_size")), isinstance(op, aten.AdaptiveMaxPool2dDefault)
    if all(size == 1 for size in dims(op.results[0].type)[-space:]):
        return None
    if is_max:
        lost = Deviation("a NaN may be lost beside a number", accepted=True)
        return lost.unless(is_never_nan(op.operands[0], program))
    lost = Deviation("the average of a window with a NaN may be −∞")
    return lost.unless(is_summable(op.operands[0], program))


@lowers(
    ADAPTIVE,
    to="aten",
    takes_empty=False,
    bound=roundings("the mean may be summed in another order"),
    deviation=_pool_loses,
    sample=("1x3x8x8xf32", [4, 2]),
)
def adaptive_pool_to_pool(x: Value, *, form: Any, op: Any, out: Out) -> Any:
    """Rewrite adaptive poolings as ordinary ones where all windows are equal.

    An adaptive average to one element is the mean of the spatial axes. If the output size divides
    the input's, it is an average pool with kernel and stride of the quotient. Other sizes have
    windows of several lengths and are not rewritten.
    """
    no_refusal(reads_their_indices(op))
    space, others = len(op.arg("output_size")), [None] * (len(op.results) - 1)
    sizes, made = x.shape[-space:], out.shape[-space:]
    if all(size == 1 for size in made):
        over = list(range(x.rank - space, x.rank))
        return x.call(form[0], over, keepdim=True, shape=out.shape), *others
    windows: list[int] = []
    for before, after in zip(sizes, made, strict=True):
        if not isinstance(before, int) or not isinstance(after, int):
            refuse("the spatial axes are symbolic")
        if before % after:
            refuse(f"{before} elements become {after}, in windows of several lengths")
        windows.append(before // after)
    if space != 2:
        refuse(
            f"the op pools over {space} axes to more than one element; the supported forms pool over two"
        )
    return x.call(form[1], windows, windows, shape=out.shape), *others


MOST_PARTS = 64
"""The most windows of an axis: each takes a slice and a reduction."""


AVERAGES = (
    "adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool3d".split()
)


@lowers(
    {f"aten.{name}.default": aten.MeanDim for name in (*AVERAGES, "_adaptive_avg_pool3d")}
    | {f"aten.adaptive_max_pool{space}d.default": aten.AmaxDefault for space in (2, 3)},
    to="aten",
    phases={"xnnpack/decompose": {"only_uneven": True}, "tosa/decompose": {}},
    takes_empty=False,
    bound=roundings("a mean of means rounds twice"),
    sample=("1x2x5xf32", [3]),
)
def adaptive_pool_by_parts(
    x: Value, *, form: type[SchemaOp], op: Any, out: Out, only_uneven: bool = False
) -> Any:
    """Decompose adaptive pools with windows of several lengths into a reduction per window.

    `only_uneven` excludes windows of equal length (above one), for targets that have such a pool.
    """
    no_refusal(reads_their_indices(op))
    space = len(op.arg("output_size"))
    if any(isinstance(size, Size) for size in (*x.shape[-space:], *out.shape[-space:])):
        refuse("the spatial axes are symbolic")
    if (most := max(out.shape[-space:])) > MOST_PARTS:
        refuse(f"the op has {most} windows, more than {MOST_PARTS}")
    sizes = list(zip(x.shape[-space:], out.shape[-space:], strict=True))
    if only_uneven and not is_uneven(sizes):
        return None
    for at, (size, count) in enumerate(sizes, start=x.rank - space):
        if size == count:
            continue
        parts = [x.slice(at, i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
        # A window of one element is its own reduction.
        x = cat([p if p.shape[at] == 1 else p.reduce(form, [at]) for p in parts], at)
    return x, *[None] * (len(op.results) - 1)


def is_uneven(sizes: Sequence[tuple[int, int]]) -> bool:
    """Whether windows have several lengths, or all have one element."""
    return any(held % count for held, count in sizes) or all(held == count for held, count in sizes)


TAPS = (3, 4, 9, 25)
"""Window sizes for which XNNPACK has depthwise kernels of float32."""


WHOLE_AVERAGES = (
    "aten.avg_pool2d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool2d.default",
)


@lowers(
    *WHOLE_AVERAGES,
    to="aten",
    requires=not_for_xnnpack,
    bound=roundings("sums in another order"),
    sample=("1x2x4x4xf32", [3, 3], [1, 1], [1, 1]),
)
def average_by_convolution(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value | None:
    """Replace average pooling by a depthwise convolution, where XNNPACK's pooling would lose a NaN.

    XNNPACK's average pooling clamps its results to ±∞, and on some CPUs that turns NaN into −∞. The
    stock flow accepts this for plain windows. For counted padding and adaptive windows it has no
    pooling node, and a sum of products, which keeps NaN, costs about as much as a pool.
    """
    if out.dtype == f16 and carries_nans(op.operands, b.program):
        refuse("on some CPUs a convolution of halves turns a NaN into −∞")
    if x.rank != 4 or not isinstance(x.shape[1], int):
        refuse("the input is not a batch of images with a static number of channels")
    if isinstance(op, aten.AvgPool2dDefault):
        kernel, padding = (_pair(op.arg(name)) for name in ("kernel_size", "padding"))
        if any(padding) and not op.arg("count_include_pad"):
            refuse("windows at the edge count fewer cells")
        if any(edges(op, (0, 0))):
            refuse("windows extend past the edge, where fewer cells are counted")
        stride = _pair(op.arg("stride")) if op.arg("stride") else kernel
        divisor = op.arg("divisor_override") or prod(kernel)
    else:
        (rows, columns), sizes = x.shape[2:], out.shape[2:]
        if sizes == (1, 1):
            return None  # XNNPACK has a node for averages of whole planes.
        if isinstance(rows, Size) or isinstance(columns, Size):
            refuse("the image has a symbolic size, and so have its windows")
        if rows % sizes[0] or columns % sizes[1]:
            refuse(f"{rows}×{columns} become {sizes[0]}×{sizes[1]}, in windows of several sizes")
        kernel = stride = [rows // sizes[0], columns // sizes[1]]
        padding, divisor = [0, 0], prod(kernel)
    if prod(kernel) not in TAPS:  # Padding to TAPS with zero weights would turn ∞ nearby into NaN.
        refuse(f"XNNPACK's kernel for {prod(kernel)} cells also reads neighboring cells, times 0")
    channels = x.shape[1]
    equal = torch.full((channels, 1, *kernel), 1.0 / divisor, dtype=torch_dtype(x.dtype))
    numbers = (None, stride, padding, [1, 1], False, [0, 0], channels)
    weight = x.constant(equal, "average")
    return x.call(aten.ConvolutionDefault, weight, *numbers, shape=out.shape)


def _pair(numbers: Sequence[int]) -> list[int]:
    """Return (height, width) from a list of one or two numbers."""
    return [numbers[0], numbers[-1]]


RULES = lowerings_of(__name__)

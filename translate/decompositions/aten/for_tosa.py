"""Decompositions of operators that TOSA lacks, or that it would round too often."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.dtypes import bf16, element_type, f16, f32, has_torch_dtype, torch_dtype
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.types import element
from stepwell.translate.decompositions.aten import normalizations
from stepwell.translate.decompositions.aten.complex import COMPLEX, pair
from stepwell.translate.decompositions.aten.values import Value, again, answered, cat
from stepwell.translate.lowerings.lowering import Out, lowerings_of, lowers, refuse, step
from stepwell.translate.rewrites.building import emit
from stepwell.translate.rewrites.slices.written_place import place_of
from stepwell.translate.rewrites.tosa.operators.windows import is_image_mean
from stepwell.translate.rewrites.xnnpack.floats.singles import widened

OF_TENSORS = """add.Tensor sub.Tensor div.Tensor maximum.default minimum.default pow.Tensor_Tensor
    atan2.default eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor where.self cat.default
"""
WITH_NUMBERS = "add.Scalar sub.Scalar rsub.Scalar mul.Scalar div.Scalar div.Tensor"
"""Arithmetic whose result type determines the type of computation; integer division gives floats.
"""


@lowers(
    {f"aten.{name}": "common" for name in f"mul.Tensor {OF_TENSORS}".split()}
    | {f"aten.{name}": "result" for name in WITH_NUMBERS.split()},
    to="aten",
    sample=("4xf32", "4xi32"),
)
def promote_operands(*, form: str, op: Any, b: Rewriter) -> tuple[Value, ...] | None:
    """Promote operands of sums, products, comparisons, … to the element type that PyTorch uses."""
    first = 1 if isinstance(op, aten.WhereSelf) else 0
    types = [value.type for value in op.operands]
    if not all(isinstance(t, TensorType) and has_torch_dtype(element(t)) for t in types[first:]):
        return None
    values = [Value(value, b) for value in op.operands]
    common = element(op.results[0].type)
    if form == "common":
        common = element_type(reduce(_common, map(_of_type, values[first:])).dtype)
    if all(value.dtype == common for value in values[first:]):
        return None
    return again(op, [*values[:first], *(value.cast(common) for value in values[first:])])


def _of_type(value: Value) -> torch.Tensor:
    """Return a tensor of the type; PyTorch's promotion distinguishes tensors of rank 0."""
    return torch.empty([1] * value.rank, dtype=torch_dtype(value.dtype), device="meta")


def _common(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    shape = one.shape if one.dim() else other.shape
    return torch.empty(shape, dtype=torch.result_type(one, other), device="meta")


HALVES: tuple[Attribute, ...] = (f16, bf16)
ROUNDS_OFTEN = """_softmax.default layer_norm.default group_norm.default rms_norm.default
    _log_softmax.default logsumexp.default linalg_vector_norm.default sum.dim_IntList mean.dim
    prod.dim_int prod.default gelu.default hardsigmoid.default square.default lerp.Scalar
    softplus.default mish.default log_sigmoid.default elu.default selu.default celu.default"""


def _is_not_of_halves(op: SchemaOp) -> bool:
    """Whether its tensors are not all of a single half-precision type."""
    types = [value.type for value in (*op.results, *op.operands)]
    if any(not isinstance(type_, TensorType) for type_ in types):
        return True
    return element(types[0]) not in HALVES or len({element(type_) for type_ in types}) > 1


@lowers(
    *(f"aten.{name}" for name in ROUNDS_OFTEN.split()),
    *(anchor.name for anchor in step(normalizations.variance_to_means).anchors),
    to="aten",
    name="widen-halves-to-tosa",
    unless=_is_not_of_halves,
    bound=roundings("a result next to the middle of two halves"),
    sample=("2x4xf16", 1, False),
)
def widen_halves(*, op: Any, out: Out, b: Rewriter) -> tuple[Value, ...] | None:
    """Compute norms, softmax, sums, GELU, … of fp16 and bf16 in f32 between casts.

    PyTorch computes each operator on halves in f32 and rounds its result once. TOSA accumulates
    fp16 sums in fp16 (3000 ones add up to 2048), and a norm or an activation that is decomposed
    into operators rounds after each of them. So these ops are placed between two casts, as in
    PyTorch. The mean of an image is a pool, which accumulates in f32.
    """
    if is_image_mean(op, level_of(b.program.context.target)):
        return None
    wide = [Value(widened(b, value, "tosa_single"), b) for value in op.operands]
    return tuple(value.cast(out.dtype) for value in again(op, wide, f32))


@lowers(
    "aten.slice_scatter.default",
    "aten.select_scatter.default",
    to="aten",
    name="write-slice-by-cat-to-tosa",
    sample=("2x5xf32", "2x2xf32", 1, 1, 3),
)
def write_slice_by_cat(x: Value, new: Value, *, op: Any, b: Rewriter) -> Value:
    """Concatenate the rows before the slice, the new values, and the rows after it.

    A slice with a step is an `index_put` instead.
    """
    place = answered(place_of(op))
    at, start, stop = place.axis, place.start, place.stop
    if place.step != 1:
        rows = b.constant(torch.arange(start, stop, place.step), "rows")
        return Value(emit(b, aten.IndexPutDefault.make(x.ssa, [*[None] * at, rows], new.ssa)), b)
    length = x.shape[at]
    written = [n if i != at else stop - start for i, n in enumerate(x.shape)]
    parts = [x.slice(at, 0, start)] if start else []
    parts += [new.view(*written)] if stop > start else []
    parts += [x.slice(at, stop, length)] if stop < length else []
    return cat(parts, at)


BY_ROOT, BY_COUNT = 1, 2
"""PyTorch's codes for the scaling of an inverse transform."""


def _frames(op: Any, b: Rewriter) -> tuple[int, int, Value | None]:
    """Return length and hop of the frames of an `stft` or `istft`, and its window, if any."""
    tensors = [Value(v, b) for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]
    if not all(value.is_static for value in tensors):
        refuse("the shape is symbolic")
    window = op.operand("window")
    if window is not None and element(window.type) != f32:
        refuse("its window is not of single precision")
    length = op.arg("n_fft")
    hop, wide = op.arg("hop_length") or length // 4, op.arg("win_length") or length
    if not all(isinstance(number, int) for number in (length, hop, wide)):
        refuse("a length is known only at run time")
    return length, hop, None if window is None else Value(window, b)


def _window(length: int, window: Value | None, op: Any, b: Rewriter) -> Value | None:
    """Return the window centered in a frame and padded with zeros; ones if there is none."""
    wide = op.arg("win_length") or length
    if wide == length:
        return window
    window = window or Value(b.constant(torch.ones(wide)), b)
    before = (length - wide) // 2
    sides = (before, length - wide - before)
    first, last = ([Value(b.constant(torch.zeros(n)), b)] if n else [] for n in sides)
    return cat([*first, window.view(wide), *last], 0)


@lowers(
    "aten.stft.default",
    to="aten",
    name="stft-to-frames-to-tosa",
    bound=roundings("the same transform of frames that lie elsewhere"),
    sample=("12xf32", 4, 2, {"return_complex": True}),
)
def stft_to_frames(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Decompose `stft` into overlapping frames, a window, and a transform of each frame.

    PyTorch cuts frames by strides of memory; `unfold` does the same independent of the layout.
    """
    if x.dtype != f32:
        refuse("TOSA transforms real numbers of single precision")
    if op.arg("align_to_window"):
        refuse("its frames are aligned to the window")
    length, hop, window = _frames(op, b)
    batch = x.shape[:-1]
    at = len(batch)
    frames = Value(emit(b, aten.UnfoldDefault.make(x.ssa, at, length, hop)), b)
    if (window := _window(length, window, op, b)) is not None:
        frames = frames * window
    half = op.arg("onesided") is not False
    shape = (*batch, frames.shape[at], length // 2 + 1 if half else length)
    scaled = int(op.arg("normalized"))
    points = frames.call(aten._FftR2cDefault, [at + 1], scaled, half, shape=shape, dtype=COMPLEX)
    points = points.permute([*range(at), at + 1, at])
    return points if out.dtype == COMPLEX else Value(pair(points.ssa, b), b)


@lowers(
    "aten.istft.default",
    to="aten",
    name="istft-to-frames-to-tosa",
    bound=roundings("frames are added in another order"),
    sample="""
    %y = aten.istft.default(%x, 4, 2) : (tensor<3x4xcomplex<f32>>) -> tensor<6xf32>
    """,
)
def istft_to_frames(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Decompose `istft` into a transform of each frame, a window, and overlap-add.

    Frames are cut into pieces as long as the hop. The first pieces of all frames, then the second
    ones and so on, are added as whole rows. The sum is divided by the sum of the windows.
    """
    if x.dtype != COMPLEX or op.arg("return_complex"):
        refuse("its operand or result is not complex64 or float32")
    length, hop, window = _frames(op, b)
    *batch, points, count = x.shape
    if points != length // 2 + 1:  # For two points the one-sided transform is the full one.
        refuse("both halves of the points are given")
    start = length // 2 if op.arg("center") else 0
    stop = start + out.shape[-1]
    if stop > length + hop * (count - 1):
        refuse("the requested length exceeds its frames")
    at = len(batch)
    rows = x.permute([*range(at), at + 1, at])
    scaled, shape = BY_ROOT if op.arg("normalized") else BY_COUNT, (*batch, count, length)
    frames = rows.call(aten._FftC2rDefault, [at + 1], scaled, length, shape=shape, dtype=f32)
    window = _window(length, window, op, b) or Value(b.constant(torch.ones(length)), b)
    frames = frames * window
    weights = (window * window).view(1, length).expand(count, length)
    total, weight = (_overlapped(value, hop) for value in (frames, weights))
    total, weight = (value.slice(value.rank - 1, start, stop) for value in (total, weight))
    return total.call(aten.DivTensor, weight)


def _overlapped(frames: Value, hop: int) -> Value:
    """Overlap-add `[..., F, n]` to `[..., n + hop · (F - 1)]`: frame i starts at i · hop."""
    *batch, count, length = frames.shape
    pieces = -(-length // hop)
    if pieces * hop != length:
        frames = _padded(frames, [0, pieces * hop - length])
    at, parts = len(batch) + 1, list[Value]()
    for piece in range(pieces):
        part = frames.slice(at, piece * hop, (piece + 1) * hop)
        parts.append(_padded(part, [0, 0, piece, pieces - 1 - piece]) if pieces > 1 else part)
        if piece:
            parts[-2:] = [parts[-2] + parts[-1]]
    line = parts[0].view(*batch, (count + pieces - 1) * hop)
    return line.slice(at - 1, 0, length + hop * (count - 1))


def _padded(value: Value, around: list[int]) -> Value:
    op = aten.ConstantPadNdDefault.make(value.ssa, around, 0.0)
    return Value(emit(value.b, op), value.b)


RULES = lowerings_of(__name__)

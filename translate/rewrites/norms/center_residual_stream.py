"""Strength reduction: keep a residual stream at zero mean, so its norms need not center it.

Where every reader of a residual stream is a layer norm over the channels, adding one number to all
channels of a row changes nothing. Every op that writes the stream may therefore lose its mean over
the channels at compile time: the patch projection, class token and position constants, embedding
tables, the attention's output projection, the second linear of the MLP. Sums, slices and
concatenations of whole rows with zero mean have zero mean, and every layer norm saves its mean and
its subtraction.

The stream is the closure of a layer norm's operand over sums and layout ops, in both directions.
The channel axis is followed through them by element order, never by size. If one reader is no layer
norm, or the mean of one writer cannot be removed from its weights, the whole stream stays
unchanged.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<4x3xf32>
    %s = aten.linear.default(%x, %w) : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
    %y = aten.layer_norm.default(%s, [4], eps=1.0e-06) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %w = stepwell.weight <"w#centered.b0d7bc2dbd5e"> "constant" : tensor<4x3xf32>
    %0 = stepwell.weight <"row_mean#83bc22741743"> "constant" : tensor<1x4xf32>
    %1 = stepwell.weight <"epsilon#a12d79aeff6b"> "constant" : tensor<1xf32>
    %s = aten.linear.default(%x, %w) : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
    %2 = aten.mul.Tensor(%s, %s) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %3 = aten.linear.default(%2, %0, %1) : (tensor<2x4xf32>, tensor<1x4xf32>, tensor<1xf32>) -> tensor<2x1xf32>
    %4 = aten.rsqrt.default(%3) : (tensor<2x1xf32>) -> tensor<2x1xf32>
    %y = aten.mul.Tensor(%s, %4) : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeGuard

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.maps import axis_map
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.declared.families import is_movement
from stepwell.ir.declared.numerics import REORDERED, forbidden
from stepwell.ir.diagnostics import describe_op, node_name, op_name
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Event, History, Pass, Rewriter
from stepwell.ir.traversal import walk
from stepwell.ir.types import dims, element
from stepwell.ir.weights import recipe
from stepwell.translate.decompositions.values import Value
from stepwell.translate.rewrites.building import overflows
from stepwell.translate.rewrites.norms.row_statistics import normalize

SUMS = (aten.AddTensor, aten.SubTensor)


@recipe("centered")
def centered(weight: torch.Tensor, *, axis: int) -> torch.Tensor:
    """Subtract the mean over one axis from a tensor; the mean is computed in f64."""
    held = weight.double()
    return (held - held.mean(axis, keepdim=True)).to(weight.dtype)


class Stays(Exception):
    """Carries the reason why a residual stream is not centered."""


@dataclass
class ResidualStream:
    """A connected stream: values with their channel axis, the ops that write and normalize them."""

    channels: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    norms: dict[SchemaOp, None] = field(default_factory=dict[SchemaOp, None])
    writers: dict[SSAValue, tuple[tuple[int, int], ...]] = field(
        default_factory=dict[SSAValue, tuple[tuple[int, int], ...]]
    )
    """Map a value to the (operand, axis) pairs of its op to center; a constant is its operand 0."""


@dataclass(frozen=True)
class CenterResidualStream(Pass):
    """Removes the channel mean from every op that writes a stream only layer norms read."""

    name: ClassVar[str] = "center-residual-stream"
    bound: ClassVar[Bound] = Bound(
        2e-5, 1e-5, "the mean leaves through rounded weights; every sum has other terms"
    )

    def apply(self, program: Program, history: History) -> int:
        """Return the number of layer norms that lost their mean."""
        if forbidden(REORDERED, program.context):
            return 0
        return sum(self._center(func, program, history) for func in program.methods.values())

    def _center(self, func: FuncOp, program: Program, history: History) -> int:
        norms: list[SchemaOp] = []
        weights: dict[str, list[WeightOp]] = {}
        for op in walk(func):
            if isinstance(op, aten.LayerNormDefault):
                norms.append(op)
            elif isinstance(op, WeightOp):
                weights.setdefault(op.key.data, []).append(op)
        scopes: dict[Any, Any] = {}
        refused: dict[SSAValue, str] = {}
        count = 0
        for norm in norms:
            if norm.parent is None:
                continue
            stream = ResidualStream()
            try:
                explore(norm, stream, refused)
                check_sharing(weights, stream)
            except Stays as reason:
                refused.update(dict.fromkeys(stream.channels, str(reason)))
                history.refuse(self.name, norm, str(reason))
                continue
            count += len(stream.norms)
            center(stream, program, history, scopes)
        return count


def explore(norm: SchemaOp, stream: ResidualStream, refused: dict[SSAValue, str]) -> None:
    """Return the closure of a layer norm's operand: all values that must be centered with it.

    `refused` holds values of streams that cannot be centered. Meeting one decides at once, so all
    streams of a method together are traversed once.

    Raises:
        Stays: the stream cannot be centered, with the reason.
    """
    waiting = [(norm.operands[0], len(dims(norm.operands[0].type)) - 1)]
    while waiting:
        value, channel = waiting.pop()
        if value in refused:
            raise Stays(refused[value])
        if value in stream.channels:
            if stream.channels[value] != channel:
                raise Stays("a tensor of the stream has two different channel axes")
            continue
        stream.channels[value] = channel
        if element(value.type) != f32:
            raise Stays(f"weights rounded to {element(value.type)} would leave a mean")
        waiting.extend(_sources(value, channel, stream))
        for use in value.uses:
            waiting.extend(_continued(use.operation, use.index, channel, stream))


Place = tuple[SSAValue, int]


def carries_means(op: Operation | Block) -> TypeGuard[SchemaOp]:
    """Whether an op preserves the mean of each row, provided that it does not cut rows."""
    if not isinstance(op, SchemaOp):
        return False
    return isinstance(op, SUMS) or (is_movement(op) and len(op.results) == 1)


def _sources(value: SSAValue, channel: int, stream: ResidualStream) -> Iterator[Place]:
    """Return the values that must have zero mean so that `value` has; record the writer, if any."""
    op = value.owner
    if carries_means(op):
        axes = axis_map(op)
        for index in range(_tensors(op)):
            at = None if axes is None else axes.before(index, channel)
            if at is None:
                raise Stays(f"{_named(op)} writes the stream, and not whole rows of channels")
            yield op.operands[index], at
    elif isinstance(op, WeightOp):
        stream.writers[value] = ((0, channel),)
    elif isinstance(op, aten.LinearDefault):
        _require(op, channel == len(dims(value.type)) - 1, "is linear along another axis")
        stream.writers[value] = _weights(op, 1)
    elif isinstance(op, aten.ConvolutionDefault):
        _require(op, not op.arg("transposed"), "is a transposed convolution")
        _require(
            op, op.arg("groups") == 1, "works in groups: its outputs are sums of different inputs"
        )
        batched = len(dims(value.type)) == len(dims(op.operands[1].type))
        _require(
            op, batched and channel == 1, "writes other channels than those that are normalized"
        )
        stream.writers[value] = _weights(op, 1)
    elif isinstance(op, aten.EmbeddingDefault):
        _require(op, channel == len(dims(value.type)) - 1, "embeds along another axis")
        _require(op, weight_key(op.operands[0]) is not None, "reads a computed table")
        stream.writers[value] = ((0, 1),)
    elif isinstance(op, Operation):
        raise Stays(f"{_named(op)} writes the stream, and no weight contains its mean")
    else:
        raise Stays("an argument writes the stream")


def _continued(op: Operation, index: int, channel: int, stream: ResidualStream) -> Iterator[Place]:
    """Follow the stream through a reader; a layer norm over the channels ends the search.

    Raises:
        Stays: the reader's result depends on the mean.
    """
    if carries_means(op):
        axes = axis_map(op)
        at = None if axes is None else axes.after(index, channel)
        if at is None:
            raise Stays(f"{_named(op)} splits the channel axis")
        yield op.results[0], at
    elif isinstance(op, aten.LayerNormDefault) and index == 0:
        rank = len(dims(op.operands[0].type))
        whole = len(op.arg("normalized_shape")) == 1 and channel == rank - 1
        _require(op, whole, "normalizes other axes than the channels")
        width, eps = op.arg("normalized_shape")[0], op.arg("eps")
        _require(op, width != 0, "normalizes an axis without elements")
        _require(op, overflows(eps, f32) is None, f"adds {eps}, which overflows")
        stream.norms[op] = None
    else:
        raise Stays(f"{_named(op)} reads the stream and is no layer norm")


def _tensors(op: SchemaOp) -> int:
    """Return the number of leading operands that are tensors; dynamic sizes come after them."""
    return sum(isinstance(value.type, TensorType) for value in op.operands)


def _weights(op: SchemaOp, weight: int) -> tuple[tuple[int, int], ...]:
    """Return (operand, axis) of a layer's weight and then of its bias: both constants."""
    places = (weight,) if op.operand("bias") is None else (weight, weight + 1)
    for index in places:
        _require(
            op, weight_key(op.operands[index]) is not None, "has a weight computed at run time"
        )
    return tuple((index, 0) for index in places)


def check_sharing(weights: Mapping[str, Sequence[WeightOp]], stream: ResidualStream) -> None:
    """Check that only this stream reads the weights to center; a weight with other readers would be
    stored twice.

    A layer after a scaled norm of the stream folds the scale into its weight, and so has a weight
    of its own: a language model's head may be tied to its embedding.

    Args:
        weights: the ops of each key.
        stream: the weights and layer norms to be centered.

    Raises:
        Stays: another op reads a weight too.
    """
    for _, key, _ in _centerings(stream):
        for op in weights[key]:
            if op.result in stream.writers:
                continue
            for use in op.result.uses:
                if use.index == 1 and takes_a_scale(use.operation, stream):
                    continue
                results = use.operation.results
                places = stream.writers.get(results[0], ()) if len(results) == 1 else ()
                if all(index != use.index for index, _ in places):
                    reader = _named(use.operation)
                    raise Stays(f"{key!r} is read by {reader} too and would be kept twice")


def takes_a_scale(op: Operation, stream: ResidualStream) -> bool:
    """Whether a layer reads a scaled norm of the stream whose only readers are layers."""
    norm = op.operands[0].owner if isinstance(op, aten.LinearDefault) else None
    if not isinstance(norm, aten.LayerNormDefault) or norm not in stream.norms:
        return False
    readers = [use.operation for use in norm.results[0].uses]
    layers = all(isinstance(reader, aten.LinearDefault) for reader in readers)
    return layers and norm.operand("weight") is not None


def _centerings(stream: ResidualStream) -> Iterator[tuple[SSAValue, str, int]]:
    """Yield each weight from which a mean is subtracted: value, key and the mean's axis."""
    for value, places in stream.writers.items():
        owner = value.owner
        assert isinstance(owner, Operation)
        for index, at in places:
            weight = value if isinstance(owner, WeightOp) else owner.operands[index]
            key = weight_key(weight)
            assert key is not None
            yield weight, key, at


def center(
    stream: ResidualStream, program: Program, history: History, scopes: dict[Any, Any]
) -> None:
    """Derive the centered weights, and rewrite each layer norm without subtracting the mean."""
    for value, places in stream.writers.items():
        owner = value.owner
        assert isinstance(owner, Operation)
        if isinstance(owner, WeightOp):
            ((_, at),) = places
            reader = next(iter(value.uses)).operation
            rw = Rewriter(reader, program, scopes)
            key = program.weights.derive("centered", [owner.key.data], axis=at)
            rw.replace_value(value, rw.weight(key))
            continue
        rw = Rewriter(owner, program, scopes)
        for index, at in places:
            source = weight_key(owner.operands[index])
            assert source is not None
            key = program.weights.derive("centered", [source], axis=at)
            rw.set_operand(owner, index, rw.weight(key))
    for op in stream.norms:
        before = op.prev_op
        rw = Rewriter(op, program, scopes)
        value = normalize(Value(op.operands[0], rw), op.arg("eps"), is_centered=True)
        value = value.affine(op.operand("weight"), op.operand("bias"))
        root, where = (op_name(op), node_name(op.location)), describe_op(op)
        created = tuple(_between(before, op))
        rw.replace(op, [value.ssa])
        name = CenterResidualStream.name
        history.events.append(Event(name, root, (root,), created, where))


def _between(first: Operation | None, last: Operation) -> Iterator[tuple[str, str | None]]:
    op = last.prev_op
    while op is not None and op is not first:
        yield op_name(op), node_name(op.location)
        op = op.prev_op


def _require(op: Operation, holds: bool, otherwise: str) -> None:
    if not holds:
        raise Stays(f"{_named(op)} {otherwise}")


def _named(op: Operation) -> str:
    node = node_name(op.location)
    return f"{op_name(op)} ({node})" if node else op_name(op)

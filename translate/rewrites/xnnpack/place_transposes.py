"""Move transposes to where they meet and vanish.

Every convolution was lowered with a transpose to NHWC before it and one back behind it. A
transpose sinks through ops that do not care which axis is which — elementwise nodes, clamps,
concatenations — until it meets its inverse. It sinks only where every reader lets it pass, and
where fewer values need the old order further down than there are transposes that would go, so the
number of transposes never grows. A transpose that only moves axes of size one is a reshape.

Before:
    func.func @forward(%x: tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32> {
      %a = xnnpack.static_transpose(%x, perm=[0, 3, 1, 2]) : (tensor<1x2x3x4xf32>) -> tensor<1x4x2x3xf32>
      %b = xnnpack.tanh(%a) : (tensor<1x4x2x3xf32>) -> tensor<1x4x2x3xf32>
      %c = xnnpack.static_transpose(%b, perm=[0, 2, 3, 1]) : (tensor<1x4x2x3xf32>) -> tensor<1x2x3x4xf32>
      func.return %c : tensor<1x2x3x4xf32>
    }
After:
    func.func @forward(%x: tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32> {
      %b = xnnpack.tanh(%x) : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>
      func.return %b : tensor<1x2x3x4xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects import xnnpack
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.datatypes import datatype
from stepwell.dialects.xnnpack.elementwise import Binary, Unary
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.ir.weights import recipe

CONCATENATES = (
    xnnpack.Concatenate2,
    xnnpack.Concatenate3,
    xnnpack.Concatenate4,
    xnnpack.Concatenate5,
)
Order = tuple[int, ...]


@recipe("transposed_to")
def transposed_to(constant: torch.Tensor, *, order: list[int]) -> torch.Tensor:
    """A constant, filled up with leading axes of size one, in another order of axes."""
    missing = len(order) - constant.dim()
    return constant.reshape(*([1] * missing), *constant.shape).permute(order).contiguous()


@dataclass(frozen=True)
class TransposeOfTranspose:
    """A transpose of a transpose's operand, or of no consequence."""

    op: XnnpackOp
    source: SSAValue
    order: Order


@dataclass(frozen=True)
class MergeTransposes(Rewrite[TransposeOfTranspose]):
    """Two transposes in a row are one or none; one that moves unit axes only is a reshape."""

    name: ClassVar[str] = "merge-transposes"
    anchors: ClassVar[tuple[type[Operation], ...]] = (xnnpack.StaticTranspose,)

    def match(self, op: XnnpackOp, program: Program) -> TransposeOfTranspose | None:
        """The permutation of what stands before both."""
        inner = op.operands[0].owner
        order = op.ints("perm")
        if isinstance(inner, xnnpack.StaticTranspose):
            first = inner.ints("perm")
            return TransposeOfTranspose(op, inner.operands[0], tuple(first[i] for i in order))
        if moves_units_only(op.operands[0], order):
            return TransposeOfTranspose(op, op.operands[0], order)
        return None

    def build(self, match: TransposeOfTranspose, rw: Rewriter) -> None:
        """Nothing, a reshape, or one transpose."""
        result = match.op.output.type
        value = match.source
        if match.order == tuple(range(len(match.order))):
            pass
        elif moves_units_only(value, match.order):
            value = reshaped(rw, value, result)
        else:
            new = xnnpack.StaticTranspose.make(value, result=result, perm=match.order)
            value = rw.insert(new).results[0]
        rw.replace(match.op, [value])


@dataclass(frozen=True)
class ReshapeOfReshape:
    """A reshape whose operand is a reshape, or has the shape already."""

    op: XnnpackOp
    source: SSAValue


@dataclass(frozen=True)
class MergeReshapes(Rewrite[ReshapeOfReshape]):
    """Two reshapes in a row are one or none."""

    name: ClassVar[str] = "merge-reshapes"
    anchors: ClassVar[tuple[type[Operation], ...]] = (xnnpack.StaticReshape,)

    def match(self, op: XnnpackOp, program: Program) -> ReshapeOfReshape | None:
        """What stands before both, where all sizes are numbers."""
        source = op.operands[0]
        inner = source.owner
        if any(isinstance(d, str) for d in (*dims(source.type), *dims(op.output.type))):
            return None
        if isinstance(inner, xnnpack.StaticReshape):
            return ReshapeOfReshape(op, inner.operands[0])
        return ReshapeOfReshape(op, source) if source.type == op.output.type else None

    def build(self, match: ReshapeOfReshape, rw: Rewriter) -> None:
        """Nothing, or one reshape."""
        rw.replace(match.op, [reshaped(rw, match.source, match.op.output.type)])


@dataclass(frozen=True)
class TransposedOperands:
    """An op whose transposed operands may be read in the order before the transpose."""

    op: XnnpackOp
    order: Order


@dataclass(frozen=True)
class SinkTranspose(Rewrite[TransposedOperands]):
    """`f(transpose(x))` to `transpose(f(x))` for ops that do not care which axis is which."""

    name: ClassVar[str] = "sink-transpose"
    anchors: ClassVar[tuple[type[Operation], ...]] = (Unary, Binary, *CONCATENATES)

    def match(self, op: XnnpackOp, program: Program) -> TransposedOperands | Refusal | None:
        """Guards: one order for all operands, constants that can follow, readers that let pass."""
        if not passes(op):
            return None
        orders = {order for operand in op.operands if (order := order_of(operand)) is not None}
        if not orders:
            return None
        if len(orders) > 1:
            return Refusal("operands are transposed in different ways")
        order = orders.pop()
        rank = len(order)
        if len(dims(op.output.type)) != rank:
            return Refusal("the op broadcasts a transposed tensor to a higher rank")
        for operand in op.operands:
            if order_of(operand) is None and not follows(operand, order):
                return Refusal("an operand is computed in the other order of axes")
            if order_of(operand) is not None and not every_reader_passes(operand):
                return Refusal("the transposed tensor is read elsewhere, in that order")
        if grows(op, order):
            return Refusal(
                "below, more readers would want the order back than there are transposes"
            )
        return TransposedOperands(op, order)

    def build(self, match: TransposedOperands, rw: Rewriter) -> None:
        """The op on what stood before the transposes, then one transpose."""
        op, order = match.op, match.order
        back = inverse(order)
        operands = [_before(rw, operand, back) for operand in op.operands]
        shape = dims(op.output.type)
        result = tensor([shape[i] for i in back], element(op.output.type))
        properties = dict(op.properties)
        if isinstance(op, CONCATENATES):
            properties["axis"] = IntegerAttr(order[op.integer("axis", 0)], i64)
        new = type(op).create(operands=operands, result_types=[result], properties=properties)
        rw.insert(new)
        turned = xnnpack.StaticTranspose.make(
            new.results[0], result=op.output.type, perm=list(order)
        )
        rw.replace(op, [rw.insert(turned).results[0]])


def order_of(value: SSAValue) -> Order | None:
    """The permutation of the transpose that a value is, else None."""
    owner = value.owner
    return owner.ints("perm") if isinstance(owner, xnnpack.StaticTranspose) else None


def passes(op: Operation) -> bool:
    """Whether an op computes the same in every order of axes."""
    if isinstance(op, xnnpack.Softmax | xnnpack.PReLU):
        return False
    if isinstance(op, xnnpack.Convert):
        return datatype(op.output.type) != "qdint8"  # Whose scales belong to the last axes.
    return isinstance(op, (Unary, Binary, *CONCATENATES))


def every_reader_passes(value: SSAValue) -> bool:
    """Whether all readers of a transposed value are transposes or let one pass."""
    return all(
        isinstance(use.operation, xnnpack.StaticTranspose) or passes(use.operation)
        for use in value.uses
    )


FAR = 64
"""How many ops below a transpose are looked at before it sinks."""


def grows(op: XnnpackOp, order: Order) -> bool:
    """Whether sinking the transposes above `op` as far as they go leaves more than there were.

    Of the ops that let them pass, entries are operands transposed so already; each result that
    something else reads, or that lies further than `FAR` ops away, must be transposed back.
    """
    waiting: list[SSAValue] = [operand for operand in op.operands if order_of(operand) == order]
    entries, exits = len(set(waiting)), 0
    seen, ops = set(waiting), set[Operation]()
    while waiting:
        value = waiting.pop()
        leaves = False
        for use in value.uses:
            reader = use.operation
            if isinstance(reader, xnnpack.StaticTranspose) or reader in ops:
                continue
            if len(ops) >= FAR or not passes(reader) or _rank(reader.results[0]) != len(order):
                leaves = True
                continue
            ops.add(reader)
            more = [operand for operand in reader.operands if order_of(operand) == order]
            entries += len(set(more) - seen)
            waiting.extend(v for v in {reader.results[0], *more} if v not in seen)
            seen.update((reader.results[0], *more))
        exits += leaves
    return exits > entries


def _rank(value: SSAValue) -> int:
    return len(dims(value.type))


def follows(value: SSAValue, order: Order) -> bool:
    """Whether an operand that is not transposed can be brought into the order before for free."""
    if weight_key(value) is not None or all(d == 1 for d in dims(value.type)):
        return True
    rank = len(dims(value.type))
    return rank == len(order) and moves_units_only(value, inverse(order))


def inverse(order: Order) -> Order:
    """The permutation that undoes another."""
    return tuple(order.index(i) for i in range(len(order)))


def moves_units_only(value: SSAValue, order: Order) -> bool:
    """Whether a permutation keeps the order of the axes that are not of size one."""
    shape = dims(value.type)
    kept = [i for i in order if shape[i] != 1]
    return kept == sorted(kept) and not any(isinstance(d, str) for d in shape)


def reshaped(rw: Rewriter, value: SSAValue, type_: Attribute) -> SSAValue:
    """A value in the shape of a type."""
    if value.type == type_:
        return value
    sizes = [d for d in dims(type_) if isinstance(d, int)]
    return rw.insert(xnnpack.StaticReshape.make(value, result=type_, new_shape=sizes)).results[0]


def _before(rw: Rewriter, value: SSAValue, back: Order) -> SSAValue:
    """An operand in the order of axes before the transpose."""
    owner = value.owner
    if isinstance(owner, xnnpack.StaticTranspose):
        return owner.operands[0]
    shape = dims(value.type)
    if all(d == 1 for d in shape):
        return value
    key = weight_key(value)
    if key is None:
        return reshaped(rw, value, tensor([shape[i] for i in back], element(value.type)))
    return rw.weight(rw.weights.derive("transposed_to", [key], order=list(back)))


TRANSPOSES: tuple[Rewrite[Any], ...] = (
    MergeTransposes(),
    MergeReshapes(),
    SinkTranspose(),
)
"""For `Together("place-transposes", TRANSPOSES)`."""

"""Moves layout changes below ops that do not care about layout, where they meet and cancel.

Before:
    builtin.module {
      func.func @forward(%x: tensor<1x2x3x4xi8>, %t: tensor<256xi8>) -> tensor<1x4x2x3xi8> {
        %a = cmsis.transpose(%x) {perm = array<i64: 0, 3, 1, 2>}
            : (tensor<1x2x3x4xi8>) -> tensor<1x4x2x3xi8>
        %y = cmsis.quantized_activation(%a, %t)
            : (tensor<1x4x2x3xi8>, tensor<256xi8>) -> tensor<1x4x2x3xi8>
        func.return %y : tensor<1x4x2x3xi8>
      }
    }
After:
    builtin.module {
      func.func @forward(%x: tensor<1x2x3x4xi8>, %t: tensor<256xi8>) -> tensor<1x4x2x3xi8> {
        %y = cmsis.quantized_activation(%x, %t)
            : (tensor<1x2x3x4xi8>, tensor<256xi8>) -> tensor<1x2x3x4xi8>
        %a = cmsis.transpose(%y) {perm = array<i64: 0, 3, 1, 2>}
            : (tensor<1x2x3x4xi8>) -> tensor<1x4x2x3xi8>
        func.return %a : tensor<1x4x2x3xi8>
      }
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.ops import (
    CmsisOp,
    Maximum,
    Minimum,
    Pad,
    QuantizedActivation,
    QuantizedAdd,
    QuantizedDiv,
    QuantizedMul,
    Transpose,
)
from stepwell.dialects.quant import StorageCast, UniformQuantizedType
from stepwell.dialects.quant.types import storage_element
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor, with_element
from stepwell.translate.rewrites.cmsis.fold_kernel_sum import constant_key
from stepwell.translate.rewrites.cmsis.reshape import padded, transposed

UNARY: tuple[type[CmsisOp], ...] = (QuantizedActivation, Pad)
BINARY: tuple[type[CmsisOp], ...] = (QuantizedAdd, QuantizedMul, QuantizedDiv, Minimum, Maximum)
CAT, SLICE = op_class("aten.cat.default"), op_class("aten.slice.Tensor")


@dataclass(frozen=True)
class Layout:
    """An op whose varying operands are all transposed alike."""

    op: Operation
    order: tuple[int, ...]


@dataclass(frozen=True)
class SinkTranspose(Rewrite[Layout]):
    """op(transpose(x)) → transpose(op(x))."""

    name: ClassVar[str] = "sink-transpose"
    anchors: ClassVar[tuple[type[Operation], ...]] = (*UNARY, *BINARY, StorageCast)

    def match(self, op: Operation, program: Program) -> Layout | Refusal | None:
        """At least one operand is transposed, the others alike or constants of the same shape."""
        operands = _varying(op)
        orders: set[tuple[int, ...]] = set()
        for value in operands:
            maker = value.owner
            if isinstance(maker, Transpose):
                orders.add(maker.numbers("perm"))
            elif constant_key(value) is None:
                return None
        if len(orders) != 1 or len({len(dims(v.type)) for v in operands}) != 1:
            return None
        if isinstance(op, BINARY) and dims(operands[0].type) != dims(operands[1].type):
            return None
        return Layout(op, orders.pop())

    def build(self, match: Layout, rw: Rewriter) -> None:
        """Before the transposition, the op; behind it, the transposition."""
        op, order = match.op, match.order
        back = tuple(order.index(axis) for axis in range(len(order)))
        sources = [_source(rw, value, back) for value in _varying(op)]
        result = op.results[0].type
        shape = dims(result)
        made_type = tensor([shape[axis] for axis in back], element(result))
        if isinstance(op, StorageCast):
            value = _moved(rw, op, sources, order, made_type.element_type)
        elif isinstance(op, Pad):
            before, after = ([side[axis] for axis in back] for side in op.widths())
            value = padded(rw, sources[0], before, after, op.number("pad_value"))
        else:
            made = type(op).create(
                operands=[*sources, *op.operands[len(sources) :]],
                result_types=[made_type],
                properties=dict(op.properties),
            )
            value = rw.insert(made).results[0]
        rw.replace(op, [transposed(rw, value, order)])


def _varying(op: Operation) -> list[SSAValue]:
    """The operands that have the result's layout; none if the op is not one to sink below."""
    if isinstance(op, UNARY):
        return [op.operands[0]]
    if isinstance(op, BINARY):
        return list(op.operands)
    assert isinstance(op, StorageCast)
    movement = op.input.owner
    is_typed = isinstance(element(op.result.type), UniformQuantizedType)
    if not is_typed or not isinstance(movement, (CAT, SLICE)) or not op.input.has_one_use():
        return []
    found: list[SSAValue] = []
    for value in movement.operands:
        maker = value.owner
        if not isinstance(maker, StorageCast):
            return []
        found.append(maker.input)
    return found


def _source(rw: Rewriter, value: SSAValue, back: tuple[int, ...]) -> SSAValue:
    maker = value.owner
    return maker.input if isinstance(maker, Transpose) else transposed(rw, value, back)


def _moved(
    rw: Rewriter,
    op: StorageCast,
    sources: list[SSAValue],
    order: tuple[int, ...],
    held: object,
) -> SSAValue:
    """A concatenation or slice of stored integers, along the dimension where it now lies."""
    movement = op.input.owner
    assert isinstance(movement, SchemaOp) and isinstance(held, UniformQuantizedType)
    stored = storage_element(held.data)
    raw = [rw.insert(StorageCast(v, with_element(v.type, stored))).results[0] for v in sources]
    dim = order[cast(int, movement.arg("dim")) % len(order)]
    shape = dims(op.result.type)
    back = [order.index(axis) for axis in range(len(order))]
    type_ = tensor([shape[axis] for axis in back], stored)
    given = movement.present()
    given["dim"] = dim
    if isinstance(movement, CAT):
        given["tensors"] = raw
    else:
        given["self"] = raw[0]
    made = rw.insert(type(movement).from_arguments(given, [type_]))
    return rw.insert(StorageCast(made.results[0], tensor(dims(type_), held))).results[0]

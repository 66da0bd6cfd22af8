"""Takes channels-last inputs and outputs as they lie in memory, instead of transposing them.

A model traced with channels-last inputs declares them NCHW over NHWC memory. Seen as NHWC they are
row-major already, so the layout change at the door is a relabelling, which runs nothing.

Before:
    builtin.module {
      func.func @forward(%x: tensor<1x2x3x4xf32>) -> tensor<1x3x4x2xi8> attributes
          {stepwell.inputs = [{name = "x", dim_order = array<i64: 0, 2, 3, 1>}]} {
        %q = cmsis.quantize_per_tensor(%x) {scale = 0.5 : f64, zero_point = 0 : i64,
            quant_min = -128 : i64, quant_max = 127 : i64, dtype = "int8"}
            : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xi8>
        %y = cmsis.transpose(%q) {perm = array<i64: 0, 2, 3, 1>}
            : (tensor<1x2x3x4xi8>) -> tensor<1x3x4x2xi8>
        func.return %y : tensor<1x3x4x2xi8>
      }
    }
After:
    builtin.module {
      func.func @forward(%x: tensor<1x2x3x4xf32>) -> tensor<1x3x4x2xi8> attributes
          {stepwell.inputs = [{name = "x", dim_order = array<i64: 0, 2, 3, 1>}]} {
        %r = cmsis.relabel(%x) {perm = array<i64: 0, 2, 3, 1>}
            : (tensor<1x2x3x4xf32>) -> tensor<1x3x4x2xf32>
        %y = cmsis.quantize_per_tensor(%r) {scale = 0.5 : f64, zero_point = 0 : i64,
            quant_min = -128 : i64, quant_max = 127 : i64, dtype = "int8"}
            : (tensor<1x3x4x2xf32>) -> tensor<1x3x4x2xi8>
        func.return %y : tensor<1x3x4x2xi8>
      }
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from stepwell.dialects.cmsis.ops import (
    DequantizePerTensor,
    QuantizePerTensor,
    Relabel,
    Transpose,
)
from stepwell.dialects.quant import StorageCast
from stepwell.ir.axes.maps import inverse
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.rewriting.rewriter import remade
from stepwell.ir.signature import get_signature
from stepwell.ir.types import dims, element, tensor


@dataclass(frozen=True)
class Door:
    """A transposition next to an input or output that lies in memory as it asks for."""

    transpose: Transpose
    step: Operation
    order: tuple[int, ...]


@dataclass(frozen=True)
class RelabelInput(Rewrite[Door]):
    """transpose(quantise(input)) → quantise(relabel(input))."""

    name: ClassVar[str] = "relabel-input"
    anchors: ClassVar[tuple[type[Operation], ...]] = (Transpose,)

    def match(self, op: Transpose, program: Program) -> Door | Refusal | None:
        """The input's declared dim order is the transposition's."""
        step = op.input.owner
        if not isinstance(step, (QuantizePerTensor, StorageCast)):
            return None
        operand = step.operands[0]
        if not isinstance(operand, BlockArgument):
            return None
        func = operand.owner.parent_op()
        order = op.numbers("perm")
        if not isinstance(func, FuncOp) or input_order(func, operand) != order:
            return None
        return Door(op, step, order)

    def build(self, match: Door, rw: Rewriter) -> None:
        """Relabel, then the same step in the other layout."""
        operand = match.step.operands[0]
        seen = rw.insert(relabelled(operand, match.order))
        made = remade(match.step, seen.results, [match.transpose.output.type])
        rw.replace(match.transpose, rw.insert(made).results)


@dataclass(frozen=True)
class RelabelOutput(Rewrite[Door]):
    """dequantise(transpose(x)), returned → relabel(dequantise(x))."""

    name: ClassVar[str] = "relabel-output"
    anchors: ClassVar[tuple[type[Operation], ...]] = (DequantizePerTensor, StorageCast)

    def match(
        self, op: DequantizePerTensor | StorageCast, program: Program
    ) -> Door | Refusal | None:
        """Its only use is an output whose declared dim order undoes the transposition."""
        transpose = op.input.owner
        if not isinstance(transpose, Transpose):
            return None
        order = transpose.numbers("perm")
        return Door(transpose, op, order) if output_order(op) == inverse(order) else None

    def build(self, match: Door, rw: Rewriter) -> None:
        """The same step in the other layout, then relabel."""
        source = match.transpose.input
        type_ = tensor(dims(source.type), element(match.step.results[0].type))
        made = remade(match.step, [source], [type_])
        seen = rw.insert(relabelled(rw.insert(made).results[0], match.order))
        rw.replace(match.step, seen.results)


def is_relabelled(value: SSAValue, order: tuple[int, ...]) -> bool:
    """Whether a transpose between a value and its base in this order becomes a relabelling."""
    step = value.owner
    if isinstance(step, (QuantizePerTensor, StorageCast)):
        operand = step.operands[0]
        func = operand.owner.parent_op() if isinstance(operand, BlockArgument) else None
        if isinstance(func, FuncOp) and isinstance(operand, BlockArgument):
            return input_order(func, operand) == inverse(order)
    if not value.has_one_use():
        return False
    step = next(iter(value.uses)).operation
    declared = output_order(step) if isinstance(step, (DequantizePerTensor, StorageCast)) else None
    return declared is not None and declared == inverse(order)


def relabelled(value: SSAValue, order: tuple[int, ...]) -> Relabel:
    """A value under permuted dimensions, the bytes where they are."""
    shape = dims(value.type)
    result_type = tensor([shape[axis] for axis in order], element(value.type))
    return Relabel.make(value, result=result_type, perm=list(order))


def output_order(op: Operation) -> tuple[int, ...] | None:
    """The dim order of the port that alone takes an op's result, or None for row-major."""
    result = op.results[0]
    use = next(iter(result.uses)) if result.has_one_use() else None
    if use is None or not isinstance(use.operation, ReturnOp):
        return None
    func = cast(FuncOp, use.operation.parent_op())
    return get_signature(func).runtime_outputs[use.index].dim_order


def input_order(func: FuncOp, argument: BlockArgument) -> tuple[int, ...] | None:
    """The dim order that an argument's port declares, or None for row-major."""
    return get_signature(func).runtime_inputs[argument.index].dim_order

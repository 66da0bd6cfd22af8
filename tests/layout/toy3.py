"""A target from outside, of three ops: all that it tells the engines."""

from math import prod
from typing import Any, ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, TensorType, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def

from stepwell import Program, Refusal, Rewrite, Rewriter, interprets
from stepwell.dialects import aten
from stepwell.dialects.quant.ops import dequantize, quantize
from stepwell.dialects.quant.types import quantization
from stepwell.ir.axes.forms import along_rows, elementwise, mapped, permuted
from stepwell.ir.axes.maps import All, Along, AxisMap, HasAxes, Order, inverse
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.layout.assign import PlaceTransposes
from stepwell.translate.layout.table import Layouts, Turning
from stepwell.translate.quantized import recognize as q


class ToyOp(HasAxes, IRDLOperation):
    x = operand_def(TensorType)
    result = result_def(TensorType)


@irdl_op_definition
class Turn(ToyOp):
    name = "toy3.turn"
    order = prop_def(DenseArrayBase[IntegerType])

    def axes(self) -> Order:
        return tuple(self.order.get_values())

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return mapped(self, permuted(self.axes()))


@irdl_op_definition
class Mul(ToyOp):
    name = "toy3.mul"
    y = operand_def(TensorType)

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return elementwise(self)


@irdl_op_definition
class Linear(ToyOp):
    """Rows of floats or of int8 times a weight `[out, in]`."""

    name = "toy3.linear"
    w = operand_def(TensorType)

    def axis_map(self, result: int = 0) -> AxisMap | None:
        last = len(dims(self.result.type)) - 1
        return mapped(self, along_rows(last + 1, (last,)), (Along(last), All()))


@interprets(ToyOp)
def meaning(op: ToyOp, args: Any, interpreter: Any) -> Any:
    if isinstance(op, Turn):
        return (args[0].permute(op.axes()),)
    if isinstance(op, Mul):
        return (args[0] * args[1],)
    held = [quantization(value.type) for value in (*op.operands, op.result)]
    x, w = (dequantize(a, h) if h else a for a, h in zip(args, held[:2], strict=True))
    return (quantize(x @ w.T, held[2]) if held[2] else x @ w.T,)


def moved(type_: Any, order: Order) -> Any:
    return tensor([dims(type_)[axis] for axis in order], element(type_))


def turn(rw: Rewriter, x: SSAValue, order: Order) -> SSAValue:
    if isinstance(x.owner, Turn):
        x, order = x.owner.x, tuple(x.owner.axes()[axis] for axis in order)
    if order == tuple(range(len(order))):
        return x
    held = DenseArrayBase.from_list(i64, list(order))
    new = Turn(operands=[x], result_types=[moved(x.type, order)], properties={"order": held})
    return rw.insert(new).results[0]


class Lower(Rewrite[Any]):
    name = "lower-to-toy3"
    anchors = (aten.PermuteDefault, aten.MulTensor, aten.LinearDefault, Turn)

    def match(self, op: Any, program: Program) -> Any:
        return op if not isinstance(op, Turn) or isinstance(op.x.owner, Turn) else None

    def build(self, match: Any, rw: Rewriter) -> None:
        if isinstance(match, aten.PermuteDefault | Turn):
            order = match.axes() if isinstance(match, Turn) else tuple(match.arg("dims"))
            rw.replace(match, [turn(rw, match.operands[0], order)])
            return
        kind = Mul if isinstance(match, aten.MulTensor) else Linear
        new = kind(operands=list(match.operands), result_types=[match.results[0].type])
        rw.replace(match, [rw.insert(new).results[0]])


class LowerQuantized(Rewrite[Any]):
    name = "lower-int8-to-toy3"
    anchors = (aten.LinearDefault,)

    def match(self, op: Any, program: Program) -> Any:
        x, w = q.activation(op.operands[0]), q.stored_weight(op.operands[1])
        parts = (x, w, q.quantized_uses(op.results[0]))
        return next((part for part in parts if isinstance(part, Refusal)), (op, *parts))

    def build(self, match: Any, rw: Rewriter) -> None:
        op, x, w, uses = match
        weight = q.typed_weight(rw, w.key, op.operands[1].owner.input.type)
        for use, group in q.distinct(uses):
            new = Linear(operands=[x.value, weight], result_types=[use.type])
            q.deliver(rw, group, rw.insert(new).results[0])


class ToyLayouts(Layouts):
    KINDS: ClassVar[tuple[type[Operation], ...]] = (Mul, Linear)

    def transposed(self, value: SSAValue) -> tuple[SSAValue, Order] | None:
        return (value.owner.x, value.owner.axes()) if isinstance(value.owner, Turn) else None

    def data(self, op: Operation, axes: AxisMap) -> list[int]:
        return [0] if isinstance(op, Linear) else super().data(op, axes)

    def may_turn(self, op: Operation, turning: Turning) -> bool:
        return isinstance(op, Mul) or turning.order[-1] == len(turning.order) - 1

    def cost(self, value: SSAValue, order: Order) -> float:
        return float(prod(int(size) for size in dims(value.type)))

    def base(self, rw: Rewriter, value: SSAValue, order: Order) -> SSAValue:
        return turn(rw, value, inverse(order))

    def back(self, rw: Rewriter, base: SSAValue, order: Order, type_: Attribute) -> SSAValue:
        return turn(rw, base, order)

    def rebuilt(self, rw: Rewriter, op: Any, operands: list[SSAValue], order: Order) -> SSAValue:
        made = moved(op.result.type, inverse(order))
        return rw.insert(type(op).create(operands=operands, result_types=[made])).results[0]


class Place(PlaceTransposes):
    name: ClassVar[str] = "place-toy3"
    TABLE: ClassVar[Layouts] = ToyLayouts()

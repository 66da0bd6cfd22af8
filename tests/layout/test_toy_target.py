"""A target from outside, of three ops, that gives the layout engine a table and gets its cut."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import pytest
import torch
from xdsl.dialects.builtin import DenseArrayBase, IntegerType, TensorType, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def

import stepwell
from stepwell import Bound, History, Program, Rewrite, Rewriter, interprets
from stepwell.dialects import aten
from stepwell.ir.axes import AxisMap, HasAxes, Order, inverse
from stepwell.ir.axis_forms import along_rows, elementwise, mapped, permuted
from stepwell.ir.rewriting import Together
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.layout.assign import PlaceTransposes
from stepwell.translate.layout.table import Layouts, Turning


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
class Softmax(ToyOp):
    """Over the last axis."""

    name = "toy3.softmax"

    def axis_map(self, result: int = 0) -> AxisMap | None:
        rank = len(dims(self.x.type))
        return mapped(self, along_rows(rank, (rank - 1,)))


@interprets(ToyOp)
def meaning(op: ToyOp, args: Sequence[Any], interpreter: Any) -> Sequence[Any]:
    if isinstance(op, Turn):
        return (args[0].permute(op.axes()),)
    return (args[0] * args[1] if isinstance(op, Mul) else torch.softmax(args[0], -1),)


def turn(rw: Rewriter, x: SSAValue, order: Order) -> SSAValue:
    if isinstance(x.owner, Turn):
        x, order = x.owner.x, tuple(x.owner.axes()[axis] for axis in order)
    if order == tuple(range(len(order))):
        return x
    made = tensor([dims(x.type)[axis] for axis in order], element(x.type))
    held = DenseArrayBase.from_list(i64, list(order))
    return rw.insert(Turn(operands=[x], result_types=[made], properties={"order": held})).results[0]


class Lower(Rewrite[Any]):
    name = "lower-to-toy3"
    anchors = (aten.PermuteDefault, aten.MulTensor, aten.SoftmaxInt, Turn)

    def match(self, op: Any, program: Program) -> Any:
        return op if not isinstance(op, Turn) or isinstance(op.x.owner, Turn) else None

    def build(self, match: Any, rw: Rewriter) -> None:
        if isinstance(match, aten.PermuteDefault | Turn):
            order = match.axes() if isinstance(match, Turn) else tuple(match.arg("dims"))
            rw.replace(match, [turn(rw, match.operands[0], order)])
            return
        kind = Mul if isinstance(match, aten.MulTensor) else Softmax
        new = kind(operands=list(match.operands), result_types=[match.results[0].type])
        rw.replace(match, [rw.insert(new).results[0]])


class ToyLayouts(Layouts):
    KINDS: ClassVar[tuple[type[Operation], ...]] = (Mul, Softmax)

    def transposed(self, value: SSAValue) -> tuple[SSAValue, Order] | None:
        return (value.owner.x, value.owner.axes()) if isinstance(value.owner, Turn) else None

    def may_turn(self, op: Operation, turning: Turning) -> bool:
        return isinstance(op, Mul) or turning.order[-1] == len(turning.order) - 1

    def cost(self, value: SSAValue, order: Order) -> float:
        return float(prod(int(size) for size in dims(value.type)))

    def base(self, rw: Rewriter, value: SSAValue, order: Order) -> SSAValue:
        return turn(rw, value, inverse(order))

    def back(self, rw: Rewriter, base: SSAValue, order: Order, type_: Attribute) -> SSAValue:
        return turn(rw, base, order)

    def rebuilt(
        self, rw: Rewriter, op: Operation, operands: list[SSAValue], order: Order
    ) -> SSAValue:
        type_ = op.results[0].type
        made = tensor([dims(type_)[axis] for axis in inverse(order)], element(type_))
        return rw.insert(type(op).create(operands=operands, result_types=[made])).results[0]


class Place(PlaceTransposes):
    name: ClassVar[str] = "place-toy3"
    bound: ClassVar[Bound] = Bound()
    TABLE: ClassVar[Layouts] = ToyLayouts()


class Net(torch.nn.Module):
    order: Order

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        turned = torch.softmax((x * x).permute(self.order), -1) * y.permute(self.order)
        return (turned * turned).permute(inverse(self.order))


@pytest.mark.parametrize(("order", "left"), [((1, 0, 2), 0), ((0, 2, 1), 2)])
def test_three_ops_of_a_stranger_lose_the_transposes_that_a_cut_can_spare(
    order: Order, left: int
) -> None:
    """A softmax over the last axis turns where that stays last, and stays where it does not."""
    net, inputs = Net(), (torch.randn(2, 3, 4), torch.randn(2, 3, 4))
    net.order = order
    program = stepwell.from_exported_program(torch.export.export(net, inputs))
    for step in (Together("lower", (Lower(),)), Place(), Together("merge", (Lower(),))):
        step.apply(program, History())
    turns = [op for op in program.methods["forward"].walk() if isinstance(op, Turn)]
    assert sum(bool(op.result.first_use) for op in turns) == left
    assert torch.equal(program.run(*inputs)[0], net(*inputs))

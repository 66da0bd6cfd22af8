"""Shape rules of constants, branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, SSAValue

from stepwell.dialects.tosa.meaning.values import element_of
from stepwell.dialects.tosa.shapes.rules import Expected, Shape, need, shape_of, shaped
from stepwell.dialects.tosa.structural import CondIfOp, ConstOp, WhileLoopOp, YieldOp
from stepwell.ir.dtypes import i1
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import WeightAttr


@shaped(ConstOp)
def _const(op: ConstOp) -> Sequence[Expected]:
    if isinstance(op.values, WeightAttr):
        return [(None, None)]
    type_ = op.values.type
    assert isinstance(type_, TensorType)
    return [(tuple(type_.get_shape()), type_.element_type)]


@shaped(YieldOp)
def _yield(op: YieldOp) -> Sequence[Expected]:
    return []


def _one(shape: Shape) -> bool:
    return shape is None or all(isinstance(d, Size) or d == 1 for d in shape)


def _condition(value: SSAValue) -> None:
    need(element_of(value) == i1, f"the condition is {element_of(value)}, not i1")
    shape = shape_of(value)
    size = prod(d for d in shape or () if isinstance(d, int))
    need(_one(shape), f"the condition has {size} elements")


def _signature(
    block: Block, taken: Sequence[Attribute], attributes: Sequence[Attribute], what: str
) -> None:
    need(
        [a.type for a in block.args] == list(taken),
        f"{what} has other input types than its operands",
    )
    last = block.last_op
    need(isinstance(last, YieldOp), f"{what} does not end in tosa.yield")
    assert last is not None
    need([v.type for v in last.operands] == list(attributes), f"{what} yields other outputs")


@shaped(CondIfOp)
def _cond_if(op: CondIfOp) -> Sequence[Expected]:
    _condition(op.condition)
    taken, types = op.input_list.types, op.output_list.types
    _signature(op.then_graph.block, taken, types, "the then graph")
    _signature(op.else_graph.block, taken, types, "the else graph")
    return [(None, None)] * len(op.results)


@shaped(WhileLoopOp)
def _while_loop(op: WhileLoopOp) -> Sequence[Expected]:
    carried = op.input_list.types
    need(list(carried) == list(op.output_list.types), "inputs and outputs differ")
    _signature(op.body_graph.block, carried, carried, "the body graph")
    cond = op.cond_graph.block
    need([a.type for a in cond.args] == list(carried), "the condition graph has other input types")
    last = cond.last_op
    need(last is not None and len(last.operands) == 1, "the condition graph yields no condition")
    assert last is not None
    _condition(last.operands[0])
    return [(None, None)] * len(op.results)

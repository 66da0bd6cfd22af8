"""Choose the engine of each part of a program: a minimum cut of its data flow.

An operator on one side of the cut costs its time on that engine; a value that crosses costs its
bytes and a share of a call. Operators around stored integers stay together, so that each engine
sees whole quantized layers. The parts of OpenVINO's side are those that can be one delegate each
(`partitioning.py`). A part is moved only if it is faster there on every CPU that the program is
for, its calls and transfers included, and if OpenVINO runs all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from xdsl.dialects.builtin import FunctionType, IntegerType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack.costs import estimated
from stepwell.integrations.openvino.dialect import DelegateOp
from stepwell.integrations.openvino.engines.costs import QUANTIZED, EngineCosts, costs_for
from stepwell.integrations.openvino.partition import PartitionOpenvino
from stepwell.integrations.openvino.pipeline import OPENVINO
from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.context import Context
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import i1
from stepwell.ir.program import Program
from stepwell.ir.rewriting.pipeline import Pipeline
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.ir.types import dims, element
from stepwell.translate.rewrites.partitioning import Engine, stages_of

networkx = OnDemand("networkx")
WORTH = 0.1
"""The share of its time that a part must save to be moved."""


@dataclass(frozen=True)
class ForXnnpack(Pass):
    """Lower for XNNPACK from here on: the operators that are not moved are XNNPACK's."""

    name: ClassVar[str] = "for-xnnpack"

    def apply(self, program: Program, history: History) -> int:
        """Rename the target in the context, by which passes know XNNPACK's behavior."""
        program.context.target = "xnnpack"
        return 1


@dataclass(frozen=True)
class OffloadToOpenvino(Pass):
    """Move the parts of a program that OpenVINO computes faster into its delegates."""

    name: ClassVar[str] = "offload-to-openvino"

    def apply(self, program: Program, history: History) -> int:
        """Return the number of delegates created."""
        costs = costs_for(program)
        return sum(_offloaded(func, program, costs) for func in program.methods.values())


def _offloaded(func: FuncOp, program: Program, costs: Sequence[EngineCosts]) -> int:
    block = func.body.block
    ops = [op for op in block.ops if isinstance(op, SchemaOp) and _are_tensors(op)]
    if not costs or not ops:
        return 0
    moved = _cheaper_side(ops, costs)
    made = 0
    for part in _parts(block, moved):
        if all(_gain(part, each) > WORTH * _time(part, each, "xnnpack") for each in costs):
            made += _moved(part, func, program)
    return made


def _are_tensors(op: Operation) -> bool:
    values = (*op.operands, *op.results)
    return all(isinstance(value.type, TensorType) for value in values)


def _time(ops: Iterable[Operation], costs: EngineCosts, engine: str) -> float:
    return sum(costs.time(op, engine) for op in ops)


def _bytes(value: SSAValue) -> int:
    return 4 * estimated(dims(value.type))


def _cheaper_side(ops: Sequence[Operation], costs: Sequence[EngineCosts]) -> set[Operation]:
    """Return the operators on OpenVINO's side of the cheapest cut; CPUs count by their share."""
    wholes = [_time(ops, each, "xnnpack") or 1.0 for each in costs]

    def share(numbers: Iterable[float]) -> float:
        return sum(number / whole for number, whole in zip(numbers, wholes, strict=True))

    groups = _groups(ops)
    graph = networkx.DiGraph()
    graph.add_nodes_from(("x", "o"))
    for op in ops:
        on_x, on_o = (share(each.time(op, e) for each in costs) for e in ("xnnpack", "openvino"))
        _add(graph, "x", groups[op], on_o)
        _add(graph, groups[op], "o", on_x)
        for result in op.results:
            crossing = share(each.call / 2 + each.byte * _bytes(result) for each in costs)
            readers = {groups.get(use.operation, "x") for use in result.uses} - {groups[op]}
            for reader in readers:
                _add(graph, groups[op], reader, crossing)
                _add(graph, reader, groups[op], crossing)
    _, (_, far) = networkx.minimum_cut(graph, "x", "o")
    return {op for op in ops if groups[op] in far}


def _add(graph: Any, one: Any, other: Any, capacity: float) -> None:
    held = graph.get_edge_data(one, other, {"capacity": 0.0})["capacity"]
    graph.add_edge(one, other, capacity=held + capacity)


def _groups(ops: Sequence[Operation]) -> dict[Operation, Operation]:
    """Return a representative for each operator: the same where stored integers connect them."""
    groups = {op: op for op in ops}

    def root(op: Operation) -> Operation:
        while groups[op] is not op:
            op = groups[op]
        return op

    for op in ops:
        for value in op.operands:
            owner = value.owner
            casts = op.name.startswith(QUANTIZED), _name(owner).startswith(QUANTIZED)
            if isinstance(owner, Operation) and owner in groups and (any(casts) or _is_int(value)):
                groups[root(op)] = root(owner)
    return {op: root(op) for op in ops}


def _name(owner: Operation | Block) -> str:
    return owner.name if isinstance(owner, Operation) else ""


def _is_int(value: SSAValue) -> bool:
    of = element(value.type)
    return isinstance(of, IntegerType) and of != i1


def _parts(block: Block, moved: set[Operation]) -> list[list[Operation]]:
    """Return the operators of each delegate that the moved ones can form, in their order."""
    engine = Engine(moved.__contains__, lambda op: isinstance(op, WeightOp), _never, ReturnOp)
    members: dict[int, list[Operation]] = {}
    for op, stage in stages_of(block, engine).items():
        if op in moved:
            members.setdefault(stage, []).append(op)
    return [members[stage] for stage in sorted(members)]


def _never(*given: Any) -> Operation:
    raise AssertionError("parts are formed one by one")


def _ports(part: Sequence[Operation]) -> tuple[list[SSAValue], list[SSAValue]]:
    """Return the values that a part reads and those that it gives."""
    inside = set(part)
    read = {value: None for op in part for value in op.operands if value.owner not in inside}
    given: list[SSAValue] = []
    for op in part:
        given += [r for r in op.results if any(u.operation not in inside for u in r.uses)]
    return [value for value in read if not isinstance(value.owner, WeightOp)], given


def _gain(part: Sequence[Operation], costs: EngineCosts) -> float:
    read, given = _ports(part)
    inner = [v for v in read if isinstance(v.owner, Operation)]
    inner += [v for v in given if any(not isinstance(u.operation, ReturnOp) for u in v.uses)]
    crossing = costs.byte * sum(map(_bytes, inner)) + costs.call * bool(inner)
    return _time(part, costs, "xnnpack") - _time(part, costs, "openvino") - crossing


@cache
def _lowering() -> Pipeline:
    """Return the passes that form the delegates of OpenVINO."""
    names = [step.name for step in OPENVINO.steps]
    return Pipeline("openvino", OPENVINO.steps[: names.index(PartitionOpenvino.name) + 1])


def _moved(part: Sequence[Operation], func: FuncOp, program: Program) -> int:
    """Lower a part by itself; if it becomes one delegate, put that in its place."""
    read, given = _ports(part)
    lowered = _lowered(part, read, given, func, program)
    ops = lowered.body.block.ops
    delegates = [op for op in ops if isinstance(op, DelegateOp)]
    last = lowered.body.block.last_op
    assert last is not None
    if len(delegates) != 1 or any(value.owner is not delegates[0] for value in last.operands):
        return 0
    if any(not isinstance(op, WeightOp | DelegateOp | ReturnOp) for op in ops):
        return 0
    (delegate,) = delegates
    arguments = dict[SSAValue, SSAValue](zip(lowered.body.block.args, read, strict=True))
    made = DelegateOp.create(
        operands=[arguments[value] for value in delegate.operands],
        result_types=[result.type for result in delegate.results],
        properties=dict(delegate.properties),
        regions=[delegate.detach_region(delegate.body)],
    )
    block = func.body.block
    block.insert_op_before(made, part[0])
    made.location = part[-1].location
    for old, value in zip(given, last.operands, strict=True):
        new = made.results[value.index]  # pyright: ignore
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    for op in reversed(part):
        op.detach()
        op.erase()
    _order(block)
    return 1


def _order(block: Block) -> None:
    """Put every op after those that it reads; the order is kept otherwise."""
    ordered: dict[Operation, None] = {}
    for root in list(block.ops):
        pending = [root]
        while pending:
            op = pending[-1]
            owners = [value.owner for inner in op.walk() for value in inner.operands]
            missing = [
                o for o in owners
                if isinstance(o, Operation) and o.parent is block and o not in ordered
            ]  # fmt: skip
            pending += missing
            if not missing:
                ordered[pending.pop()] = None
    for op in ordered:
        op.detach()
    block.add_ops(ordered)


def _lowered(
    part: Sequence[Operation],
    read: Sequence[SSAValue],
    given: Sequence[SSAValue],
    func: FuncOp,
    program: Program,
) -> FuncOp:
    """Return a method that computes a part, lowered to OpenVINO."""
    block = Block(arg_types=[value.type for value in read])
    values: dict[SSAValue, SSAValue] = dict(zip(read, block.args, strict=True))
    for op in part:
        for value in op.operands:
            if isinstance(value.owner, WeightOp) and value not in values:
                copied = value.owner.clone()
                block.add_op(copied)
                values[value] = copied.result
    for op in part:
        block.add_op(op.clone(value_mapper=values))
    block.add_op(ReturnOp(*(values[value] for value in given)))
    types = FunctionType.from_lists([v.type for v in read], [v.type for v in given])
    method = FuncOp(func.sym_name.data, types, Region(block))
    held = {k: v for k, v in func.attributes.items() if k == "stepwell.ranges"}
    method.attributes.update(held)
    alone = Program(ModuleOp([method]), program.weights)
    alone.context = Context("openvino", {**program.context.options, "device": "CPU"})
    _lowering().run(alone)
    return method

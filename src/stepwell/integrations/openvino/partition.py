"""Partitioning: one delegate of OpenVINO for each contiguous part of the program.

ExecuTorch's backend passes no tensors without axes, so that these enter and leave a delegate with
one axis of size 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.integrations.openvino.dialect import (
    OPS,
    WRITES_OPERANDS,
    ConstantOp,
    DelegateOp,
    OpenvinoOp,
    YieldOp,
)
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound, History, Pass, Refusal, Rewrite, Rewriter
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.translate.rewrites.partitioning import Engine, partition
from stepwell.translate.rewrites.sizes.sizes import SizeBuilder, can_compute, sizes_of_inputs


@dataclass(frozen=True)
class PartitionOpenvino(Pass):
    """Group the operators of OpenVINO into as few delegates as the data flow allows."""

    name: ClassVar[str] = "partition-openvino"

    def apply(self, program: Program, history: History) -> int:
        """Return the number of delegates created; the program is then at the level `openvino`."""
        engine = Engine(
            lambda op: isinstance(op, OpenvinoOp),
            lambda op: isinstance(op, WeightOp | ConstantOp),
            partial(DelegateOp.make, program.context.option("device", "CPU")),
            YieldOp,
        )
        made = sum(partition(func.body.block, engine) for func in program.methods.values())
        set_level(program.module, "openvino")
        program.report("delegates", made)
        return made


@dataclass(frozen=True)
class GivePortsAnAxis(Rewrite[DelegateOp, DelegateOp]):
    """Pass tensors without axes to and from a delegate as tensors of one element."""

    name: ClassVar[str] = "give-ports-an-axis"
    anchors: ClassVar[tuple[type[DelegateOp], ...]] = (DelegateOp,)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: DelegateOp, program: Program) -> DelegateOp | None:
        """Match a delegate with such a port."""
        ports = (*op.operands, *op.results)
        return op if any(not dims(value.type) for value in ports) else None

    def build(self, match: DelegateOp, rw: Rewriter) -> None:
        """Reshape inside and outside."""
        body = match.body.clone()
        block, last = body.block, body.block.last_op
        assert last is not None and block.first_op is not None
        operands = [_viewed(rw, value, (1,)) for value in match.operands]
        for at, (argument, value) in enumerate(zip(block.args, operands, strict=True)):
            if argument.type != value.type:
                port = block.insert_arg(value.type, at)
                inner = _reshape(port, ())
                block.insert_ops_before(inner, block.first_op)
                argument.replace_all_uses_with(inner[1].results[0])
                block.erase_arg(argument)
        for at, value in enumerate(last.operands):
            if not dims(value.type):
                outer = _reshape(value, (1,))
                block.insert_ops_before(outer, last)
                last.operands[at] = outer[1].results[0]
        types = [value.type for value in last.operands]
        made = DelegateOp.create(
            operands=operands,
            result_types=types,
            properties=dict(match.properties),
            attributes=dict(match.attributes),
            regions=[body],
        )
        rw.insert(made)
        rw.replace(
            match,
            [
                _viewed(rw, r, dims(o.type))
                for r, o in zip(made.results, match.results, strict=True)
            ],
        )


@dataclass(frozen=True)
class AllocateOutputs(Rewrite[DelegateOp, DelegateOp]):
    """Give a delegate with results of symbolic sizes the tensors to which it writes.

    ExecuTorch's backend does not resize its outputs: they must have their sizes before the call.
    """

    name: ClassVar[str] = "allocate-outputs"
    anchors: ClassVar[tuple[type[DelegateOp], ...]] = (DelegateOp,)
    bound: ClassVar[Bound] = EXACT

    def match(self, op: DelegateOp, program: Program) -> DelegateOp | Refusal | None:
        """Match a delegate without such operands."""
        sizes = [size for result in op.results for size in dims(result.type)]
        if op.writes_operands or all(isinstance(size, int) for size in sizes):
            return None
        types = [value.type for value in op.operands]
        known = sizes_of_inputs(op.parent_block())
        lost = [str(size) for size in sizes if not can_compute(size, types, known)]
        return Refusal(f"no input has the sizes {', '.join(lost)}") if lost else op

    def build(self, match: DelegateOp, rw: Rewriter) -> None:
        """Append an empty tensor of each result's type to the operands."""
        sizes = SizeBuilder(rw, match.operands, match.parent_block())
        body = match.body.clone()
        empty: list[SSAValue] = []
        for result in match.results:
            shape = [sizes.value(size) for size in dims(result.type)]
            of, types = element(result.type), [result.type]
            made = aten.EmptyMemoryFormat.make(shape, dtype=of, result_types=types)
            empty.append(rw.insert(made).results[0])
            body.block.insert_arg(result.type, len(body.block.args))
        made = DelegateOp.create(
            operands=[*match.operands, *empty],
            result_types=[result.type for result in match.results],
            properties=dict(match.properties),
            attributes={WRITES_OPERANDS: UnitAttr()},
            regions=[body],
        )
        rw.replace(match, rw.insert(made).results)


def _reshape(value: SSAValue, shape: tuple[int, ...]) -> tuple[ConstantOp, OpenvinoOp]:
    sizes = ConstantOp.make(torch.tensor(shape, dtype=torch.int64))
    type_ = tensor(shape, element(value.type))
    return sizes, OPS["Reshape"].make([value, sizes.result], [type_], special_zero=False)


def _viewed(rw: Rewriter, value: SSAValue, shape: tuple[Dim, ...]) -> SSAValue:
    if dims(value.type) == shape or (dims(value.type) and shape == (1,)):
        return value
    type_ = tensor(shape, element(value.type))
    return rw.insert(aten.ViewDefault.make(value, list(shape), result_types=[type_])).results[0]

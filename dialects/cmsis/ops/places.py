"""Tensors as parts of a larger buffer: a range of rows, joined rows, and copied rows.

Rows of an NHWC tensor of batch 1 are consecutive in memory. Therefore a range of them is a tensor
in a part of the bytes, and several tensors can be written directly into the buffer of their
concatenation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    prop_def,
    var_operand_def,
)

from stepwell.dialects.aten import CatDefault
from stepwell.dialects.cmsis.ops.base import CmsisOp, result_problems, to_attribute
from stepwell.ir.axes.forms import elementwise, mapped, moved
from stepwell.ir.axes.maps import AxisMap
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.families import Family
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.types import dims, element


def outermost(value: SSAValue) -> int:
    """Return the first axis whose size is not 1: slices along it are contiguous."""
    shape = dims(value.type)
    return next((axis for axis, size in enumerate(shape) if size != 1), 0)


def _places_problem(op: CmsisOp, value: SSAValue, axis: int) -> Iterator[str]:
    shape = dims(value.type)
    if not 0 <= axis < len(shape) or any(size != 1 for size in shape[:axis]):
        yield f"axis {axis} of {list(shape)} is not its outermost: its slices are not contiguous"
    if element(value.type) != element(op.out.type):
        yield f"{value.type} becomes {op.out.type}; the element type must not change"


@irdl_op_definition
class Part(CmsisOp):
    """A view of consecutive slices of the outermost axis: operand and result share their bytes."""

    name = "cmsis.part"
    FAMILY: ClassVar[Family | None] = "part"
    input = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    start = prop_def(IntegerAttr)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        axis, start = self.number("axis"), self.number("start")
        yield from _places_problem(self, self.input, axis)
        given, out_dims = dims(self.input.type), dims(self.out.type)
        if len(out_dims) != len(given) or not 0 <= axis < len(given):
            yield f"the result has rank {len(out_dims)}, the operand {len(given)}"
            return
        whole, length = given[axis], out_dims[axis]
        if not isinstance(whole, int) or not isinstance(length, int):
            yield f"the size of axis {axis} is not known"
        elif not 0 <= start <= start + length <= whole:
            yield f"slices {start}:{start + length} of {whole}"
        yield from result_problems(self, (*given[:axis], length, *given[axis + 1 :]))

    def axis_map(self, result: int = 0) -> AxisMap | None:
        axis, rank = self.number("axis"), len(dims(self.input.type))
        return mapped(self, moved([self.number("start") * (at == axis) for at in range(rank)]))


@irdl_op_definition
class Join(CmsisOp):
    """A concatenation along the outermost axis in place: each operand is written at an offset of
    the buffer.

    Nothing is executed. Each operand must be the result of a kernel and be used by this op only.
    """

    name = "cmsis.join"
    FAMILY: ClassVar[Family | None] = "join"
    inputs = var_operand_def(TensorType)
    axis = prop_def(IntegerAttr)

    @classmethod
    def of(cls, values: Sequence[SSAValue], axis: int, result: Attribute) -> Join:
        """Create the `Join` of some values along an axis."""
        return cls(
            operands=[list(values)],
            result_types=[result],
            properties={"axis": to_attribute(axis)},
        )

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        axis = self.number("axis")
        total = 0
        for value in self.inputs:
            yield from _places_problem(self, value, axis)
            size = dims(value.type)[axis]
            total += size if isinstance(size, int) else 0
            if not writes_its_own(value.owner):
                yield f"{value.type} is not the result of a kernel: it has a buffer already"
            elif sum(isinstance(use.operation, Join) for use in value.uses) != 1:
                yield f"{value.type} would be in several buffers"
        if not self.inputs:
            yield "there are no operands to join"
            return
        shape = dims(self.inputs[0].type)
        yield from result_problems(self, (*shape[:axis], total, *shape[axis + 1 :]))


@irdl_op_definition
class Copy(CmsisOp):
    """A copy of the elements in a separate buffer."""

    name = "cmsis.copy"
    FAMILY: ClassVar[Family | None] = "reshape"
    input = operand_def(TensorType)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.input.type != self.out.type:
            yield f"{self.input.type} becomes {self.out.type}"

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return elementwise(self)


IN_PLACE = "in_place"
"""The attribute of an op whose result reuses an operand's bytes: the operand's index."""


def writes_its_own(op: Any) -> bool:
    """Whether an op is a kernel call whose result has a separate buffer."""
    if isinstance(op, CatDefault):
        return True
    if not isinstance(op, CmsisOp) or IN_PLACE in op.attributes:
        return False
    return bool(op.OPERATOR) or isinstance(op, Copy)


def is_view(op: Operation) -> bool:
    """Whether an op is only a view of bytes."""
    return isinstance(op, CmsisOp) and not op.OPERATOR and not isinstance(op, Copy)


@interprets(Part)
def _part(op: Part, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    axis = op.number("axis")
    return (args[0].narrow(axis, op.number("start"), dims(op.out.type)[axis]),)


@interprets(Join)
def _join(op: Join, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (torch.cat(list(args), op.number("axis")),)


@interprets(Copy)
def _copy(op: Copy, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (args[0].clone(),)

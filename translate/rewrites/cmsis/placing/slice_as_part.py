"""Slices of one run of memory as places in it: nothing is copied, and nothing runs.

The gates of a recurrent layer's step are such slices, and the steps of its projected inputs.

Before:
    %a = cmsis.minimum(%x, %x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5>>
    %r = quant.scast %a : tensor<1x4x!quant.uniform<i8:f32, 0.5>> to tensor<1x4xi8>
    %s = aten.slice.Tensor(%r, 1, 2, 4) : (tensor<1x4xi8>) -> tensor<1x2xi8>
    %p = quant.scast %s : tensor<1x2xi8> to tensor<1x2x!quant.uniform<i8:f32, 0.5>>
    %y = cmsis.minimum(%p, %p) : (tensor<1x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>>
After:
    %a = cmsis.minimum(%x, %x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5>>
    %p = cmsis.part(%a) {axis = 1 : i64, start = 2 : i64} : (tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>>
    %y = cmsis.minimum(%p, %p) : (tensor<1x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.func import ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.cmsis.ops import Part
from stepwell.dialects.quant import StorageCast
from stepwell.dialects.quant.types import quantization
from stepwell.ir.core import weight_key
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import EXACT, Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rewrites.building import axis, static_dims
from stepwell.translate.rewrites.cmsis.placing.reshape import reshaped
from stepwell.translate.rewrites.slices.hoist_slice_over_layout import static_bounds

VIEWS = (aten.ViewDefault, StorageCast)
"""What only names bytes."""

MOST_AXES = 3
"""Tensors of more axes may lie with their channels last."""


@dataclass(frozen=True)
class Run:
    """A slice that is one run of memory: its axis, where it begins, how many it takes."""

    op: SchemaOp
    axis: int
    start: int
    length: int


@dataclass(frozen=True)
class SliceAsPart(Rewrite[Run]):
    """`slice` and `select` on the outermost axis to `cmsis.part`."""

    name: ClassVar[str] = "slice-as-part"
    anchors: ClassVar[tuple[type[Operation], ...]] = (aten.SliceTensor, aten.SelectInt)
    bound: ClassVar[Bound] = EXACT
    takes_empty: ClassVar[bool] = False

    def match(self, op: SchemaOp, program: Program) -> Run | Refusal | None:
        """Guards: known places, nothing before the axis, memory that a kernel wrote row by row."""
        x, y = op.operands[0], op.results[0]
        if not isinstance(x.owner, StorageCast) or quantization(x.owner.input.type) is None:
            return Refusal("it is no slice of a quantised value's integers")
        held, made = static_dims(x), static_dims(y)
        if held is None or made is None or len(op.operands) > 1:
            return Refusal("a size or a place is known only at run time")
        if len(held) > MOST_AXES:
            return Refusal(f"a tensor of {len(held)} axes may lie with its channels last")
        at = axis(op.arg("dim"), len(held))
        if any(size != 1 for size in held[:at]):
            return Refusal("what it takes lies apart")
        if weight_key(source := _source(x)) is not None or isinstance(source, BlockArgument):
            return Refusal("it is an input's or a constant's")
        if _is_given_back(y):
            return Refusal("it is a result, which has bytes of its own")
        if isinstance(op, aten.SelectInt):
            index = op.arg("index")
            return Run(op, at, index % held[at], 1)
        bounds = static_bounds(op)
        if bounds is None:
            return Refusal(f"the step is {op.arg('step')}")
        return Run(op, at, bounds[1], made[at])

    def build(self, match: Run, rw: Rewriter) -> None:
        """The part; of one element's axis, a view without it."""
        op, cast = match.op, match.op.operands[0].owner
        assert isinstance(cast, StorageCast)
        x, shape = cast.input, list(dims(cast.input.type))
        shape[match.axis] = match.length
        result = tensor(shape, element(x.type))
        made = rw.insert(Part.make(x, result=result, axis=match.axis, start=match.start)).results[0]
        made = reshaped(rw, made, dims(op.results[0].type))
        for use in list(op.results[0].uses):
            back = use.operation
            if isinstance(back, StorageCast) and back.result.type == made.type:
                rw.replace(back, [made])
        if op.results[0].uses.get_length():
            rw.replace(op, [rw.insert(StorageCast(made, op.results[0].type)).results[0]])
        else:
            rw.erase(op)


def _is_given_back(value: SSAValue) -> bool:
    return any(
        isinstance(use.operation, ReturnOp)
        or (isinstance(use.operation, VIEWS) and _is_given_back(use.operation.results[0]))
        for use in value.uses
    )


def _source(value: SSAValue) -> SSAValue:
    """What a value that only names bytes names."""
    while isinstance(value.owner, VIEWS):
        value = value.owner.operands[0]
    return value

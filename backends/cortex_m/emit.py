"""cmsis IR → a `.pte` whose kernels are `cortex_m::*.out`: planned scratch, views without copies.

The emitter rewrites nothing. Casts between quantized and plain integers, views
and relabeled dimensions are further tensors over the same bytes. Multipliers and shifts become
constant tensors. A constant method, `stepwell_target`, states the CPU of a program.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

import torch
from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from stepwell.backends.cortex_m.schemas import declarations, field_of
from stepwell.backends.executorch.container import (
    Container,
    ScalarType,
    TensorValue,
    contiguous,
)
from stepwell.backends.executorch.kernels import missing_kernels
from stepwell.backends.executorch.kernels.scalar_types import scalar_type
from stepwell.backends.executorch.writing.builder import ContainerBuilder
from stepwell.backends.executorch.writing.emit import MethodEmitter, PayloadWriters
from stepwell.backends.executorch.writing.serialize import to_bytes
from stepwell.dialects.aten.schema import Argument
from stepwell.dialects.cmsis.arithmetic import offset_rows, row_overflows
from stepwell.dialects.cmsis.ops import (
    CmsisOp,
    Copy,
    Join,
    Pad,
    Part,
    QuantizedAdd,
    QuantizedLinear,
    QuantizedMul,
    Relabel,
)
from stepwell.dialects.cmsis.ops.base import TARGET, per_tensor
from stepwell.dialects.cmsis.ops.elementwise import is_channel_broadcast
from stepwell.dialects.cmsis.ops.layout import NCHW_TO_NHWC
from stepwell.dialects.cmsis.ops.movement import DTYPES, is_taken_as_channels_last
from stepwell.dialects.cmsis.ops.places import IN_PLACE
from stepwell.dialects.cmsis.ops.spatial import Spatial
from stepwell.dialects.quant import StorageCast
from stepwell.dialects.quant.types import stored_dtype
from stepwell.ir.core import weight_key
from stepwell.ir.diagnostics import Problem, UnsupportedError, describe_op
from stepwell.ir.program import Program
from stepwell.ir.signature import Port
from stepwell.ir.types import dims, is_static
from stepwell.ir.weight_bytes import dense_bytes

TARGET_METHOD = "stepwell_target"


def to_pte(program: Program) -> bytes:
    """Return the `.pte` of a program at the cmsis level."""
    return to_bytes(emit(program))


def emit(program: Program, delegates: PayloadWriters | None = None) -> Container:
    """Return the container of a program at the cmsis level, or at a level that adds delegates to
    it.

    Args:
        program: the program; each method becomes a method of the container.
        delegates: writers of payloads by the class of the delegate op.

    Raises:
        UnsupportedError: naming every op that has no kernel, or whose accumulator can overflow.
    """
    writers = dict(delegates or {})
    if problems := emission_problems(program, writers):
        raise UnsupportedError(problems)
    builder = ContainerBuilder()
    for name, func in program.methods.items():
        CortexMEmitter(builder, builder.method(name), program, func, writers).emit()
    stated = program.module.attributes.get(TARGET)
    if stated is not None:
        constant = builder.method(TARGET_METHOD)
        constant.outputs([constant.scalar(cast(Any, stated).data)])
    return builder.finish()


def emission_problems(
    program: Program, delegates: Collection[type[Operation]] = ()
) -> list[Problem]:
    """Return everything that `emit` refuses in a program; `delegates` are ops that have
    payloads.
    """
    own = {type(op) for op in program.module.walk() if isinstance(op, CmsisOp | StorageCast)}
    problems = missing_kernels.emission_problems(program, own | {*delegates})
    if TARGET_METHOD in program.methods:
        fact = f"a .pte of this target has a method {TARGET_METHOD!r} of its own"
        problems.append(Problem(fact, f"method @{TARGET_METHOD}", "give the method another name"))
    return [*problems, *_impossible_calls(program), *limit_problems(program)]


def _impossible_calls(program: Program) -> Iterator[Problem]:
    """Yield library calls of operators that the installed ExecuTorch lacks, or of a dynamic
    shape.
    """
    for op in program.module.walk():
        if not isinstance(op, CmsisOp) or not op.OPERATOR:
            continue
        if op.OPERATOR not in declarations():
            yield Problem(
                f"the cortex_m library of the installed ExecuTorch has no {op.OPERATOR}",
                describe_op(op),
                "pip install 'executorch>=1.5'",
            )
        if not op.RESIZES and not all(
            is_static(value.type) for value in (*op.operands, *op.results)
        ):
            yield Problem(
                f"{op.name}: the operator does not resize its result, and its shape is dynamic",
                describe_op(op),
                'lower(…, sizes="max") or sizes=4 (--sizes) pins the size; '
                "the program itself runs at any",
            )


class CortexMEmitter(MethodEmitter):
    """Emits kernel calls of the `cortex_m` library, in addition to those of ATen ops."""

    def _delegate(self, op: Operation) -> None:
        match op:
            case StorageCast():
                self.values[op.result] = self.values[op.input]
            case Relabel():
                self.values[op.out] = self._relabeled(op)
            case Part():
                self.values[op.out] = self._part(op)
            case Join():
                self.values[op.out] = self._joined(op)
            case Copy():
                self.values[op.out] = self._copied(op)
            case CmsisOp():
                self._library_call(op)
            case _:
                super()._delegate(op)

    # -- layouts -------------------------------------------------------------------------------

    def _order(self, value: int) -> tuple[int, ...]:
        """Return the dim order in which a tensor value lies in memory."""
        held = self.builder.value(value)
        assert isinstance(held, TensorValue)
        return held.dim_order

    def _view(self, source: int, type_: Attribute, order: Sequence[int], offset: int = 0) -> int:
        """Add another tensor over the bytes of `source`, from byte `offset` on."""
        return self.builder.tensor(
            self._scalar_type(type_),
            cast("tuple[int, ...]", dims(type_)),
            dim_order=order,
            storage_of=source,
            offset=offset,
        )

    def _relabeled(self, op: Relabel) -> int:
        source, perm = self.values[op.input], op.numbers("perm")
        order = tuple(perm.index(axis) for axis in self._order(source))
        seen = self._view(source, op.out.type, order)
        if not isinstance(op.input, BlockArgument):
            return seen
        # Readers take it row by row, and some inputs enter so whatever the model declares.
        return self._to_order(seen, op.out.type, contiguous(len(order)), order)

    def _part(self, op: Part) -> int:
        source = self.values[op.input]
        offset = op.number("start") * self._slice_bytes(op.input.type, op.number("axis"))
        return self._view(source, op.out.type, self._order(source), offset)

    def _slice_bytes(self, type_: Attribute, axis: int) -> int:
        """Return the bytes of one slice of an axis before which all axes have size 1."""
        inner = cast("tuple[int, ...]", dims(type_)[axis + 1 :])
        return math.prod(inner) * stored_dtype(type_).itemsize

    def _joined(self, op: Join) -> int:
        whole, axis, at = self.fresh(op.out.type), op.number("axis"), 0
        for value in op.inputs:
            self.builder.place(self.values[value], whole, at)
            at += cast(int, dims(value.type)[axis]) * self._slice_bytes(value.type, axis)
        return whole

    def _copied(self, op: Copy) -> int:
        source, none = self.values[op.input], self.builder.scalar(None)
        copy = self.fresh(op.out.type, Port("", self._order(source)))
        self.builder.call("aten::clone.out", [source, none, copy, copy], [self.handle])
        return copy

    def _entered(self, argument: SSAValue, value: int, port: Port) -> int:
        """Keep the memory layout of an input that is only used relabeled."""
        if argument.uses.get_length() and all(
            isinstance(use.operation, Relabel) for use in argument.uses
        ):
            return value
        return super()._entered(argument, value, port)

    def _to_order(
        self,
        value: int,
        type_: Attribute,
        order: tuple[int, ...] | None,
        current: tuple[int, ...] | None,
    ) -> int:
        if isinstance(type_, TensorType):
            current = self._order(value)
        return super()._to_order(value, type_, order, current)

    # -- calls ---------------------------------------------------------------------------------

    def _library_call(self, op: CmsisOp) -> None:
        schema = declarations()[op.OPERATOR]
        operands = self._operands(op)
        order = self._order(next(iter(operands.values())))
        is_elementwise = dims(op.out.type) in {dims(v.type) for v in op.operands}
        like_input = is_elementwise and order != contiguous(len(order))
        if IN_PLACE in op.attributes:
            taken = cast("IntegerAttr[Any]", op.attributes[IN_PLACE]).value.data
            source = list(operands.values())[taken]
            result = self._view(source, op.out.type, order)
        else:
            result = self.fresh(op.out.type, Port("", order) if like_input else None)
        args = [
            result if argument.name == "out" else self._argument(op, argument, operands)
            for argument in schema.arguments
        ]
        self.builder.call(f"cortex_m::{op.OPERATOR}.out", [*args, result], [self.handle])
        self.values[op.out] = result

    def _operands(self, op: CmsisOp) -> dict[str, int]:
        """Return the values of the tensors, the larger one first if channels broadcast."""
        values = {
            name: self.values[value]
            for name, value in op.named_operands.items()
            if value is not None
        }
        if isinstance(op, QuantizedAdd | QuantizedMul):
            first, second = op.pair
            for name, small, large in (("other", second, first), ("self_", first, second)):
                if dims(small.type) != dims(large.type) and is_channel_broadcast(
                    dims(small.type), dims(large.type)
                ):
                    values[name] = self._view(values[name], small.type, NCHW_TO_NHWC)
                    return dict(sorted(values.items(), key=lambda item: item[0] == name))
        return values

    def _argument(self, op: CmsisOp, argument: Argument, operands: dict[str, int]) -> int:
        name, builder = field_of(argument.name), self.builder
        if name in op.named_operands:
            return operands[name] if name in operands else builder.scalar(None)
        field = argument.name
        if argument.type.is_tensor:
            if field.endswith("scratch"):
                return builder.tensor(ScalarType.BYTE, (op.number(field),))
            values = torch.tensor(op.numbers(field), dtype=torch.int32)
            return builder.constant(ScalarType.INT, tuple(values.shape), dense_bytes(values))
        if argument.type.is_list:
            numbers = op.numbers(field)
            if isinstance(op, Pad) and is_taken_as_channels_last(dims(op.input.type)):
                numbers = tuple(numbers[axis] for axis in NCHW_TO_NHWC)
            return builder.ints(numbers)
        match argument.type.base:
            case "float":
                return builder.scalar(op.real(field))
            case "bool":
                return builder.scalar(op.flag(field))
            case "ScalarType":
                dtype = DTYPES[cast(Any, op.properties[field]).data]
                return builder.scalar(int(scalar_type(dtype)))
            case _:
                return builder.scalar(op.number(field))


# -- overflow of the kernels' int32 accumulators, exact for a program's actual weights -------------


def limit_problems(program: Program) -> Iterator[Problem]:
    """Yield every row of a linear layer or convolution whose sum can overflow int32."""
    for op in program.module.walk():
        if isinstance(op, QuantizedLinear | Spatial):
            weight = _constant(op.operands[1], program)
            if weight is None:
                continue
            bias = _constant(op.bias, program)
            for fact in _row_problems(op, weight, bias):
                yield Problem(f"{op.name}: {fact}", describe_op(op), "scale the layer down")


def _row_problems(
    op: QuantizedLinear | Spatial, weight: torch.Tensor, bias: torch.Tensor | None
) -> Iterator[str]:
    if isinstance(op, QuantizedLinear):
        rows, padded = offset_rows(weight, op.number("filter_offset")), False
    else:
        rows, padded = weight.movedim(op.CHANNEL_AXIS, 0).flatten(1), True
    offset = op.number("input_offset")
    tensor = per_tensor(op.operands[0])
    low, high = (tensor.low, tensor.high) if tensor is not None else (-128, 127)
    low, high = low + offset, high + offset
    if padded:
        low, high = min(low, 0), max(high, 0)
    for row_overflow in row_overflows(rows, bias, low, high, op.numbers("requantize_shifts")):
        reach = f"{row_overflow.low} … {row_overflow.high}"
        if row_overflow.in_sum:
            yield f"row {row_overflow.row} can accumulate {reach}, past int32"
        else:
            yield f"row {row_overflow.row}: requantizing {reach} overflows int32"


def _constant(value: SSAValue | None, program: Program) -> torch.Tensor | None:
    if value is None:
        return None
    maker = value.owner
    key = weight_key(maker.input if isinstance(maker, StorageCast) else value)
    return None if key is None else program.weights.get(key)

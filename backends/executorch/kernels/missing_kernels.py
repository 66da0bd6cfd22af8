"""What keeps a program from being emitted as a `.pte`; `lower` asks at its end, and `emit`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.backends.executorch.bounds import upper_bound
from stepwell.backends.executorch.decompose import lack_of_pieces
from stepwell.backends.executorch.kernels.kernel_calls import (
    kernel_limit,
    kernel_of,
    runs_as_kernel,
)
from stepwell.backends.executorch.kernels.scalar_types import is_scalar_type
from stepwell.backends.executorch.writing.emit_control import CONTROL
from stepwell.backends.executorch.writing.emit_scalars import has_scalar_kernels
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.control import MapOp, ScanOp, YieldOp
from stepwell.dialects.sym import SymOp
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import Problem, UnsupportedError, describe_op, op_name
from stepwell.ir.dtypes import dtype_name, has_torch_dtype, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.signature import get_signature
from stepwell.ir.types import ScalarType, dims, element, is_static

_OR_PIN = "; or pin its symbolic sizes: lower(..., sizes={...}) or --sizes"
_BOUNDARY = (WeightOp, StateOp, UpdateOp, MutateInputOp, ReturnOp, YieldOp)


def emission_problems(program: Program, delegates: Collection[type[Operation]]) -> list[Problem]:
    """Everything that a `.pte` cannot hold of a program, or the runtime would refuse of it.

    Args:
        program: whose ops have kernels or are delegates.
        delegates: the classes of ops that have payloads.
    """
    return [
        problem
        for func in program.methods.values()
        for problem in (*_missing_kernels(func, delegates), *_unbounded_sizes(func))
    ]


def _unbounded_sizes(func: FuncOp) -> Iterator[Problem]:
    """The symbolic sizes that have no upper bound, each at the first value that has it."""
    ranges, seen = get_signature(func).ranges, set[str]()
    where = f"method @{func.sym_name.data}"
    values = [(where, argument) for argument in func.body.block.args]
    values += [(describe_op(op), result) for op in func.body.walk() for result in op.results]
    for place, value in values:
        for dim in dims(value.type) if isinstance(value.type, TensorType) else ():
            if isinstance(dim, int) or str(dim) in seen:
                continue
            seen.add(str(dim))
            try:
                upper_bound(str(dim), ranges)
            except UnsupportedError as error:
                yield from (Problem(p.fact, place, p.help) for p in error.problems)


def _missing_kernels(func: FuncOp, delegates: Collection[type[Operation]]) -> list[Problem]:
    """Every op of a method that is no delegate and for which the runtime has no kernel."""
    problems: list[Problem] = []

    def look(block: Block) -> None:
        for op in block.ops:
            if (foreign := _foreign_dtype(op)) is not None:
                problems.append(
                    Problem(
                        f"{op_name(op)}: ExecuTorch has no element type {foreign}",
                        describe_op(op),
                        "convert the tensors around it; complex numbers as two real ones",
                    )
                )
            elif (long := _too_long(op)) is not None:
                problems.append(
                    Problem(
                        f"{op_name(op)}: an axis of {long} elements is above {LONGEST_AXIS}",
                        describe_op(op),
                        "ExecuTorch keeps sizes in 32 bits; make a smaller tensor",
                    )
                )
            elif not _can_be_emitted(op, delegates):
                problems.append(
                    Problem(
                        f"{op_name(op)}: {_lack(op)}",
                        describe_op(op),
                        "decompose it to operators that have one, or lower it into a delegate"
                        + _OR_PIN * any(map(_is_symbolic, (*op.operands, *op.results))),
                    )
                )
            elif isinstance(op, MapOp | ScanOp) and 0 in dims(op.sequences[0].type)[:1]:
                problems.append(
                    Problem(
                        f"{op.name}: it runs over an axis of size 0, which no loop of a .pte does",
                        describe_op(op),
                    )
                )
            elif type(op) in CONTROL:
                for region in op.regions:
                    look(region.block)

    look(func.body.block)
    return [*_numbers_of_the_call(func), *problems]


def _numbers_of_the_call(func: FuncOp) -> list[Problem]:
    """The inputs that are numbers: the runtime takes a number only as the program holds it."""
    ports = (port for port in get_signature(func).inputs if port.constant is None)
    return [
        Problem(
            f"input {port.name} is a number known only at run time",
            f"method @{func.sym_name.data}",
            "ExecuTorch takes numbers only as they were exported: give a tensor and read it with "
            ".item(), or leave it out of dynamic_shapes",
        )
        for port, argument in zip(ports, func.body.block.args, strict=True)
        if isinstance(argument.type, ScalarType)
    ]


def _is_symbolic(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and not is_static(value.type)


def _foreign_dtype(op: Operation) -> str | None:
    """The first dtype among an op's tensors that no value of a plan can have."""
    for value in (*op.operands, *op.results):
        type_ = value.type
        if isinstance(type_, TensorType) and has_torch_dtype(element(type_)):
            dtype = torch_dtype(element(type_))
            if not is_scalar_type(dtype):
                return dtype_name(element(type_))
    return None


LONGEST_AXIS = 2**31 - 1
"""Sizes of a tensor's value are int32 in the `.pte`."""


def _too_long(op: Operation) -> int | None:
    """The first size among an op's tensors that no value of a plan can have."""
    for value in (*op.operands, *op.results):
        for size in dims(value.type) if isinstance(value.type, TensorType) else ():
            if isinstance(size, int) and size > LONGEST_AXIS:
                return size
    return None


def _lack(op: Operation) -> str:
    said = "the ExecuTorch runtime has no kernel for it"
    if not isinstance(op, SchemaOp):
        return said
    limit = kernel_limit(op) if kernel_of(type(op)) else None
    return limit or said + lack_of_pieces(op)


def _can_be_emitted(op: Operation, delegates: Collection[type[Operation]]) -> bool:
    if isinstance(op, SchemaOp):
        return op.name in UNCHECKED or runs_as_kernel(op)
    if isinstance(op, SymOp):
        return has_scalar_kernels(op)
    return isinstance(op, _BOUNDARY) or type(op) in delegates or type(op) in CONTROL


UNCHECKED = frozenset(
    {
        "aten._assert_scalar.default",
        "aten._assert_tensor_metadata.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
    }
)
"""Assertions of export. A kernel cannot raise them; the runtime checks shapes where it runs."""

"""Find what prevents a program from being emitted as a `.pte`; used at the end of `lower` and by
`emit`.
"""

from collections.abc import Collection, Iterator, Mapping
from math import prod

from xdsl.dialects.builtin import ComplexType, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from stepwell.backends.executorch.bounds import upper_bound
from stepwell.backends.executorch.container import MAX_ELEMENTS, MAX_RANK, MAX_SIZE
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
from stepwell.dialects.control import MapOp, MapRowsOp, ScanOp, YieldOp
from stepwell.dialects.sym import SymOp
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import Problem, UnsupportedError, describe_op, op_name
from stepwell.ir.dtypes import dtype_name, has_torch_dtype, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.signature import get_signature
from stepwell.ir.traversal import walk
from stepwell.ir.types import ScalarType, dims, element, is_static

_OR_PIN = "; or pin its symbolic sizes: lower(..., sizes={...}) or --sizes"
_BOUNDARY = (WeightOp, StateOp, UpdateOp, MutateInputOp, ReturnOp, YieldOp)


def emission_problems(program: Program, delegates: Collection[type[Operation]]) -> list[Problem]:
    """Return everything in a program that a `.pte` cannot represent, or that the runtime would
    refuse.

    Args:
        program: the program, whose ops have kernels or are delegates.
        delegates: the classes of ops that have payloads.
    """
    problems: list[Problem] = []
    for func in program.methods.values():
        bounds: dict[str, int] = {}
        unbounded = list(_unbounded_sizes(func, bounds))
        problems += [*_unsupported_inputs(func, bounds), *_unsupported_outputs(func)]
        problems += [*_missing_kernels(func, delegates, bounds), *unbounded]
    return problems


def _unbounded_sizes(func: FuncOp, bounds: dict[str, int]) -> Iterator[Problem]:
    """Yield the symbolic sizes that have no upper bound, each at the first value that has it.

    The bounds of the other sizes are added to `bounds`.
    """
    ranges = get_signature(func).ranges
    where = f"method @{func.sym_name.data}"
    values = [(where, argument) for argument in func.body.block.args]
    values += [(describe_op(op), result) for op in walk(func) for result in op.results]
    for place, value in values:
        if not isinstance(value.type, TensorType) or is_static(value.type):
            continue
        for dim in dims(value.type):
            if isinstance(dim, int) or str(dim) in bounds:
                continue
            bounds[str(dim)] = 1
            try:
                bounds[str(dim)] = upper_bound(str(dim), ranges)
            except UnsupportedError as error:
                yield from (Problem(p.fact, place, p.help) for p in error.problems)


def _missing_kernels(
    func: FuncOp, delegates: Collection[type[Operation]], bounds: Mapping[str, int]
) -> list[Problem]:
    """Yield every op of a method that is not a delegate and has no kernel in the runtime."""
    problems: list[Problem] = []

    def look(block: Block) -> None:
        for op in block.ops:
            lacks = (_unsupported(value, bounds) for value in (*op.operands, *op.results))
            if lack := next(filter(None, lacks), None):
                problems.append(Problem(f"{op_name(op)}: {lack[0]}", describe_op(op), lack[1]))
            elif not _can_be_emitted(op, delegates):
                problems.append(
                    Problem(
                        f"{op_name(op)}: {_lack(op)}",
                        describe_op(op),
                        _remedy(op),
                    )
                )
            elif isinstance(op, MapOp | ScanOp) and 0 in dims(op.sequences[0].type)[:1]:
                problems.append(
                    Problem(
                        f"{op.name}: a .pte cannot express a loop over an axis of size 0",
                        describe_op(op),
                    )
                )
            elif type(op) in CONTROL:
                for region in op.regions:
                    look(region.block)

    look(func.body.block)
    return problems


def _unsupported_inputs(func: FuncOp, bounds: Mapping[str, int]) -> Iterator[Problem]:
    """Yield the inputs that no call can provide, such as dynamic numbers."""
    ports = (port for port in get_signature(func).inputs if port.constant is None)
    where = f"method @{func.sym_name.data}"
    for port, argument in zip(ports, func.body.block.args, strict=True):
        if isinstance(argument.type, ScalarType):
            yield Problem(
                f"input {port.name} is a number known only at run time",
                where,
                "ExecuTorch accepts only the exported number: pass a tensor and read it with "
                ".item(), or omit the input from dynamic_shapes",
            )
        elif _is_complex(argument):
            yield Problem(
                f"input {port.name}: {_COMPLEX}",
                where,
                f"pass torch.view_as_real({port.name}), and begin forward() with {port.name} = "
                f"torch.view_as_complex({port.name})",
            )
        elif lack := _unsupported(argument, bounds):
            yield Problem(f"input {port.name}: {lack[0]}", where, lack[1])


def _unsupported_outputs(func: FuncOp) -> Iterator[Problem]:
    """Yield complex outputs, and the constant ones that a method cannot return."""
    returned = func.body.block.last_op
    assert isinstance(returned, ReturnOp)
    for at, value in enumerate(returned.operands):
        if _is_complex(value):
            yield Problem(
                f"output {at}: {_COMPLEX}",
                describe_op(value.owner) if isinstance(value.owner, Operation) else "",
                "return torch.view_as_real(…) of it; the caller's torch.view_as_complex is exact",
            )
    for port in get_signature(func).outputs:
        match port.constant:
            case (int(value),) if not -(2**63) <= value < 2**63:
                fact = f"the integer {value} does not fit 64 bits"
            case (str(value),) if value.encode(errors="ignore").decode() != value:
                fact = f"the string {value!r} is not Unicode text"
            case _:
                continue
        yield Problem(fact, f"method @{func.sym_name.data}", "return another value")


_COMPLEX = "a program takes and returns real tensors only, and it is complex"


def _is_complex(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and isinstance(element(value.type), ComplexType)


def _is_symbolic(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and not is_static(value.type)


def _unsupported(value: SSAValue, bounds: Mapping[str, int]) -> tuple[str, str] | None:
    """Return why a `.pte` cannot contain a value's tensor, with a remedy; None if it can."""
    type_ = value.type
    if not isinstance(type_, TensorType):
        return None
    if has_torch_dtype(held := element(type_)) and not is_scalar_type(torch_dtype(held)):
        remedy = "convert the tensors around it; complex numbers as two real ones"
        return f"ExecuTorch has no element type {dtype_name(held)}", remedy
    sizes = [dim if isinstance(dim, int) else bounds.get(str(dim), 1) for dim in dims(type_)]
    if len(sizes) > MAX_RANK:
        return f"{len(sizes)} axes are above ExecuTorch's limit of {MAX_RANK}", "merge some of them"
    if max(sizes, default=0) > MAX_SIZE:
        remedy = "ExecuTorch keeps sizes in 32 bits; make a smaller tensor"
        return f"an axis of {max(sizes)} elements is above {MAX_SIZE}", remedy
    if (count := prod(sizes)) > MAX_ELEMENTS:
        remedy = "make a smaller tensor, or give a dynamic size a smaller upper bound"
        return f"a tensor of {count} elements is above {MAX_ELEMENTS}", remedy
    return None


def _lack(op: Operation) -> str:
    said = "the ExecuTorch runtime has no kernel for it"
    if not isinstance(op, SchemaOp):
        return said
    limit = kernel_limit(op) if kernel_of(type(op)) else None
    return limit or said + lack_of_pieces(op)


def _remedy(op: Operation) -> str:
    if isinstance(op, SchemaOp) and any(
        name in op.SCHEMA.by_name and op.arg(name) is True for name in ("train", "training")
    ):
        return "it is in training mode: call model.eval() before the export"
    is_symbolic = any(map(_is_symbolic, (*op.operands, *op.results)))
    help = "decompose it to operators that have one, or lower it into a delegate"
    return help + _OR_PIN * is_symbolic


def _can_be_emitted(op: Operation, delegates: Collection[type[Operation]]) -> bool:
    if isinstance(op, SchemaOp):
        return op.name in UNCHECKED or runs_as_kernel(op)
    if isinstance(op, SymOp):
        return has_scalar_kernels(op)
    if isinstance(op, MapRowsOp):  # The loops that read its rows compute them.
        return all(
            isinstance(use.operation, ScanOp) and result in use.operation.sequences
            for result in op.results
            for use in result.uses
        )
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

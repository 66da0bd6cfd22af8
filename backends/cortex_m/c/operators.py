"""Reconstruct, for code generation, the operator that a kernel call computes, as a block of one op.

The tensors that the call reads are arguments of the block. The semantics, axis maps and families
that are declared for ops can then be used without reading the rest of the program.
"""

from dataclasses import dataclass

from xdsl.ir import Block, SSAValue

from stepwell.backends.executorch.container import (
    Container,
    KernelCall,
    Method,
    TensorValue,
)
from stepwell.backends.executorch.reading.read_arguments import arguments_of, is_readable
from stepwell.backends.executorch.reading.value_slots import Places
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.types import IntType
from stepwell.ir.weights import WeightStore


@dataclass(frozen=True)
class KernelOperator:
    """The op of a kernel call, with its operands and results as indices of the method's values."""

    op: SchemaOp
    operands: tuple[int, ...]
    results: tuple[int, ...]

    def place(self, value: SSAValue) -> int:
        """Return the index of an operand among the method's values."""
        return self.operands[list(self.op.operands).index(value)]


class _CallValues(Places):
    """Maps values of a kernel call to SSA values; those without a constant are block arguments."""

    def __init__(self, container: Container, method: Method, changes: frozenset[int]) -> None:
        super().__init__(container, method, WeightStore(), {}, Block())
        self.changes = changes
        self.indices: dict[SSAValue, int] = {}

    def read(self, index: int) -> SSAValue:
        if index not in self.values:
            type_ = (
                self.type_of(index)
                if isinstance(self.method.values[index], TensorValue)
                else IntType(f"v{index}")
            )
            self.values[index] = self.block.insert_arg(type_, len(self.block.args))
            self.indices[self.values[index]] = index
        return self.values[index]

    def argument(self, index: int) -> object:
        return self.read(index) if index in self.changes else super().argument(index)


def operator_of(
    container: Container, method: Method, call: KernelCall, changes: frozenset[int]
) -> KernelOperator | None:
    """Return the op of a call; None if its kernel computes no operator.

    Args:
        container: the program.
        method: the method that contains the call.
        call: the instruction.
        changes: values that are numbers and depend on previous instructions.
    """
    pad = _CallValues(container, method, changes)
    if call.kernel == "aten::copy_":
        target, source = call.args[:2]
        values = [pad.read(target), pad.read(source)]
        cls = op_class("aten.copy.default")
        return KernelOperator(
            cls.make(*values, result_types=[pad.type_of(target)]), (target, source), (target,)
        )
    if not is_readable(call.kernel):
        return None
    arguments = arguments_of(pad, call, method.name)
    op = arguments.op.from_arguments(arguments.given, [pad.type_of(i) for i in arguments.results])
    return KernelOperator(op, tuple(pad.indices[value] for value in op.operands), arguments.results)

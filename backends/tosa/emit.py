"""Convert a TOSA-level program to a `Graph`: one operator per op, one tensor or shape per value."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from xdsl.dialects.builtin import (
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    UnrankedTensorType,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from stepwell.backends.tosa.flatbuffer import write_graph
from stepwell.backends.tosa.graph import (
    VERSION,
    AttributeValue,
    Graph,
    Operator,
    Region,
    Shape,
    Tensor,
)
from stepwell.backends.tosa.storage import held_dtype, stored_size, to_bytes
from stepwell.dialects.tosa.attributes import BlockScaledType, EnumerationAttr, ShapeType
from stepwell.dialects.tosa.base import Field, TosaOp
from stepwell.dialects.tosa.codes import code_of_element
from stepwell.dialects.tosa.constants import tensor_of_dense
from stepwell.dialects.tosa.generated import ConstShapeOp
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.dialects.tosa.structural import (
    CondIfOp,
    ConstOp,
    VariableReadOp,
    VariableWriteOp,
    WhileLoopOp,
    YieldOp,
)
from stepwell.ir.core import StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import (
    Problem,
    StepwellError,
    UnsupportedError,
    describe_location,
    describe_op,
    op_name,
)
from stepwell.ir.dtypes import i64
from stepwell.ir.program import Program
from stepwell.ir.types import WeightAttr, dims
from stepwell.ir.weight_bytes import dense_bytes

BLOCK_SHAPE_32 = 32
LARGEST = 2**31 - 2**20
"""The bytes of all constants: the largest offset of a flatbuffer is 2 GiB."""
TARGET = "tosa.target"
"""The module's attribute that names the target of the lowering."""


def to_tosa(program: Program, method: str = "forward") -> bytes:
    """Return the flatbuffer of one method of a program at level `tosa`.

    Inputs and outputs have their names in the signature. The program should have been
    verified; a program that a flatbuffer cannot represent raises `StepwellError`.
    """
    return write_graph(to_graph(program, method))


def to_graph(program: Program, method: str = "forward") -> Graph:
    """Return one method as a `Graph`, the plain data that `to_tosa` writes as a flatbuffer."""
    if program.level != "tosa":
        raise StepwellError(
            f"a program at level {program.level!r} has no TOSA flatbuffer",
            help='lower it first: stepwell.lower(program, "tosa-1.1+fp")',
        )
    func = program.method(method)
    if problems := list(_too_large(func)):
        raise UnsupportedError(problems)
    signature = program.signature(func.sym_name.data)
    inputs = [port.name for port in signature.runtime_inputs]
    outputs = [port.name for port in signature.runtime_outputs]
    emitter = _Emitter(program)
    emitter.main(func, inputs, outputs)
    return Graph(emitter.regions, _version(program))


def emission_problems(program: Program) -> list[Problem]:
    """Return everything in a program's methods that TOSA flatbuffers cannot represent."""
    return [problem for func in program.methods.values() for problem in _too_large(func)]


def _too_large(func: FuncOp) -> Iterator[Problem]:
    types = [op.results[0].type for op in func.walk() if isinstance(op, WeightOp | ConstOp)]
    if (size := sum(map(_constant_bytes, types))) > LARGEST:
        fact = f"the constants take {size} bytes: a TOSA flatbuffer holds at most 2 GiB"
        where = f"method @{func.sym_name.data}"
        yield Problem(fact, where, "quantize the weights, or split the model")


def _constant_bytes(type_: Attribute) -> int:
    assert isinstance(type_, TensorType)
    count, element = math.prod(type_.get_shape()), type_.element_type
    if isinstance(element, BlockScaledType):
        return stored_size(count, element.payload) + count // BLOCK_SHAPE_32
    return stored_size(count, element)


def _version(program: Program) -> tuple[int, int, int, bool]:
    """Return the version of the program's target; version 1.1 is a draft."""
    target = program.module.attributes.get(TARGET)
    if isinstance(target, StringAttr) and target.data.startswith("tosa-1.0"):
        return (1, 0, 0, False)
    return VERSION


@dataclass
class _Names:
    """Assigns names to values that are unique within one region."""

    taken: set[str] = field(default_factory=set[str])
    following: dict[str, int] = field(default_factory=dict[str, int])
    """The number to try next if a name is taken."""
    of: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])

    def give(self, value: SSAValue, wish: str) -> str:
        self.of[value] = name = self.unused(wish)
        return name

    def unused(self, wish: str) -> str:
        stem = re.sub(r"[^\w.\-/#]", "_", wish) or "value"
        name, number = stem, self.following.get(stem, 1)
        while name in self.taken:
            name, number = f"{stem}_{number}", number + 1
        self.taken.add(name)
        self.following[stem] = number
        return name


class _Emitter:
    def __init__(self, program: Program) -> None:
        self.weights = program.weights
        self.regions: list[Region] = []
        self.variables: dict[str, str] = {}

    def main(self, func: FuncOp, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        block = func.body.block
        last = block.last_op
        assert isinstance(last, ReturnOp)
        names = _Names()
        for argument, name in zip(block.args, inputs, strict=True):
            names.give(argument, name)
        wishes = {
            value: name
            for value, name in zip(last.operands, outputs, strict=True)
            if value not in names.of
        }
        self.region("main", block, names, wishes)

    def region(self, name: str, block: Block, names: _Names, wishes: dict[SSAValue, str]) -> None:
        region = Region(name, tuple(names.of[a] for a in block.args), ())
        self.regions.append(region)
        for argument in block.args:
            self.declare(region, argument, names.of[argument])
        # Names of outputs are reserved before other values can take them.
        promised = {value: names.give(value, wish) for value, wish in wishes.items()}
        for state in (op for op in block.ops if isinstance(op, StateOp)):
            self.read(region, state, names, promised)
        writes: list[UpdateOp] = []
        for op in block.ops:
            if isinstance(op, ReturnOp | YieldOp):
                self.write(region, writes, names)
                region.outputs = tuple(names.of[value] for value in op.operands)
                return
            if isinstance(op, StateOp):
                continue
            if isinstance(op, UpdateOp):
                writes.append(op)
                continue
            for index, result in enumerate(op.results):
                if result not in promised:
                    names.give(result, result.name_hint or f"{op.name.split('.')[1]}{index}")
            self.operator(region, op, names)

    def declare(
        self, region: Region, value: SSAValue, name: str, data: bytes = b"", scales: bytes = b""
    ) -> None:
        type_ = value.type
        if isinstance(type_, ShapeType):
            region.shapes.append(Shape(name, type_.rank.data, data))
            return
        if isinstance(type_, UnrankedTensorType):
            region.tensors.append(Tensor(name, (), _dtype(type_.element_type), data, True))
            return
        shape = tuple(d if isinstance(d, int) else -1 for d in dims(type_))
        assert isinstance(type_, TensorType)
        element: Attribute = type_.element_type
        if isinstance(element, BlockScaledType):
            region.tensors.append(
                Tensor(
                    name,
                    shape,
                    _dtype(element.payload),
                    data,
                    scale_type=_dtype(element.scale),
                    scale_data=scales,
                    block_shape=BLOCK_SHAPE_32,
                )
            )
        else:
            region.tensors.append(Tensor(name, shape, _dtype(element), data))

    def read(
        self, region: Region, op: StateOp, names: _Names, promised: dict[SSAValue, str]
    ) -> None:
        """Declare a variable and the operator that reads it at the start of the method."""
        variable, (result,) = self.variable(region, op.key.data, op.result, names), op.results
        if result not in promised:
            names.give(result, result.name_hint or "state")
        self.declare(region, result, names.of[result])
        append(region, op, VariableReadOp.CODE, (variable,), (names.of[result],))

    def write(self, region: Region, writes: Sequence[UpdateOp], names: _Names) -> None:
        """Write every variable's new value, after all reads."""
        for op in writes:
            variable = self.variable(region, op.key.data, op.value, names)
            append(region, op, VariableWriteOp.CODE, (names.of[op.value],), (variable,))

    def variable(self, region: Region, key: str, like: SSAValue, names: _Names) -> str:
        """Return the tensor of a mutable buffer, with its initial value."""
        if key not in self.variables:
            name = names.unused(key)
            type_ = like.type
            assert isinstance(type_, TensorType)
            element: Attribute = type_.element_type
            data = to_bytes(self.weights.get(key), element)
            shape = tuple(type_.get_shape())
            tensor = Tensor(name, shape, _dtype(element), data, variable=True, variable_name=key)
            region.tensors.append(tensor)
            self.variables[key] = name
        return self.variables[key]

    def operator(self, region: Region, op: Operation, names: _Names) -> None:
        if isinstance(op, WeightOp | ConstOp):
            (result,) = op.results
            scales = self.scales(op)
            self.declare(region, result, names.of[result], self.constant(op), scales)
            append(region, op, ConstOp.CODE, (), (names.of[result],))
            return
        if not isinstance(op, TosaOp):
            raise UnsupportedError(f"{op_name(op)}: not a TOSA operator", describe_op(op))
        if isinstance(op, ConstShapeOp):
            data = to_bytes(tensor_of_dense(op.values, torch.int64), i64)
            self.declare(region, op.output, names.of[op.output], data)
        else:
            for result in op.results:
                self.declare(region, result, names.of[result])
        inputs = tuple(names.of[value] for value in op.operands)
        outputs = tuple(names.of[value] for value in op.results)
        attributes = {field_.name: self.attribute(op, field_, names) for field_ in op.FIELDS}
        append(region, op, op.CODE, inputs, outputs, attributes)

    def scales(self, op: WeightOp | ConstOp) -> bytes:
        """Return the scales of a block-scaled constant, one byte each."""
        if isinstance(op, WeightOp) or op.scales is None:
            return b""
        return dense_bytes(self.weights.get(op.scales.data))

    def constant(self, op: WeightOp | ConstOp) -> bytes:
        type_ = op.results[0].type
        assert isinstance(type_, TensorType)
        element: Attribute = type_.element_type
        if isinstance(element, BlockScaledType):
            element = element.payload
        if isinstance(op, WeightOp):
            return to_bytes(self.weights.read(op.key.data), element)
        values = op.values
        if isinstance(values, WeightAttr):
            return to_bytes(self.weights.get(values.data), element)
        return to_bytes(tensor_of_dense(values, held_dtype(element)), element)

    def attribute(self, op: TosaOp, field_: Field, names: _Names) -> AttributeValue:
        if field_.kind == "region":
            return self.branch(op, field_)
        value = op.properties.get(field_.name)
        match value:
            case None if field_.kind == "bool":
                return False
            case None if field_.kind in op.ENUMERATIONS or field_.name in op.ENUMERATIONS:
                return op.ENUMERATIONS[field_.name].codes[field_.default or ""]
            case EnumerationAttr():
                return value.code
            case DenseArrayBase():
                return tuple(ints(value))
            case StringAttr():
                return value.data.encode("latin-1") if field_.kind == "bytes" else value.data
            case IntegerAttr() | FloatAttr() if field_.kind == "value":
                number = value.value.data
                type_ = value.type
                data = to_bytes(torch.tensor([number]).to(held_dtype(type_)), type_)
                return data.ljust(8, b"\0")  # as the TOSA serializer stores it
            case IntegerAttr():
                number = value.value.data
                return bool(number) if field_.kind == "bool" else number
            case Attribute() if field_.kind == "type":
                return _dtype(value)
            case _:
                raise StepwellError(
                    f"{op.name}: the flatbuffer cannot store {field_.name} = {value}",
                    describe_op(op),
                )

    def branch(self, op: TosaOp, field_: Field) -> str:
        assert isinstance(op, CondIfOp | WhileLoopOp)
        block = op.regions[field_.slot].block
        name = f"{field_.name}_{len(self.regions)}"
        names = _Names()
        for index, argument in enumerate(block.args):
            names.give(argument, f"input{index}")
        self.region(name, block, names, {})
        return name


def append(
    region: Region,
    op: Operation,
    code: int,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    attributes: dict[str, AttributeValue] | None = None,
) -> None:
    """Append the operator of an op to a region."""
    location = describe_location(op.location) or ""
    region.operators.append(Operator(code, inputs, outputs, attributes or {}, location))


def _dtype(element: Attribute) -> int:
    code = code_of_element(element)
    if code is None:
        raise UnsupportedError(f"TOSA has no element type {element}")
    return code

"""Read a `Graph` as a TOSA-level program."""

import math
from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    StringAttr,
    TensorType,
    UnrankedTensorType,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from stepwell.backends.tosa.flatbuffer import read_graph
from stepwell.backends.tosa.graph import AttributeValue, Graph, Operator, Shape, Tensor
from stepwell.backends.tosa.graph import Region as GraphRegion
from stepwell.backends.tosa.storage import from_bytes, is_held_as_codes, stored_size
from stepwell.dialects.tosa.attributes import BlockScaledType, EnumerationAttr, ShapeType
from stepwell.dialects.tosa.base import Field, TosaOp
from stepwell.dialects.tosa.codes import class_of_code, e8m0, element_of_code, i4
from stepwell.dialects.tosa.constants import INLINE, const, const_of_key, const_shape
from stepwell.dialects.tosa.generated import ConstShapeOp
from stepwell.dialects.tosa.structural import (
    CondIfOp,
    ConstOp,
    VariableOp,
    VariableReadOp,
    VariableWriteOp,
    WhileLoopOp,
    YieldOp,
)
from stepwell.ir.core import StateOp, UpdateOp
from stepwell.ir.diagnostics import ParseFailure, UnsupportedError, location_of
from stepwell.ir.dtypes import i1, i32, i64
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program
from stepwell.ir.signature import Port, Signature, set_signature
from stepwell.ir.types import AnyTensor, tensor
from stepwell.ir.weights import WeightStore

METHOD = "main"
"""The method made from a flatbuffer's first region; tosa-opt uses the same name."""


def read_tosa(data: bytes) -> Program:
    """Read the program in a `.tosa` file, at level `tosa`.

    Raises:
        ParseFailure: the bytes are not a TOSA flatbuffer, are damaged, or have inconsistent names.
        UnsupportedError: the file is valid, but the IR cannot represent it (a variable in a loop).
    """
    return program_of(read_graph(data))


def program_of(graph: Graph) -> Program:
    """Return the program of a file's plain data."""
    return names_of(graph)[0]


def names_of(graph: Graph) -> tuple[Program, dict[SSAValue, str]]:
    """Return the program of a file's plain data, and the file's name of each value of `main`."""
    weights = WeightStore()
    regions = {region.name: region for region in graph.regions}
    main = graph.regions[0]
    builder = _Builder(weights, regions)
    block = builder.block(main, None, set())
    returned = block.last_op
    assert isinstance(returned, ReturnOp)
    types = ([a.type for a in block.args], [v.type for v in returned.operands])
    func = FuncOp(METHOD, types, Region(block))
    set_signature(
        func,
        Signature(
            tuple(Port(name) for name in main.inputs), tuple(Port(name) for name in main.outputs)
        ),
    )
    module = ModuleOp([func])
    set_level(module, "tosa")
    return Program(module, weights), builder.names


class _Builder:
    def __init__(self, weights: WeightStore, regions: Mapping[str, GraphRegion]) -> None:
        self.weights = weights
        self.regions = regions
        self.names: dict[SSAValue, str] = {}
        self.written: set[str] = set()

    def block(
        self, region: GraphRegion, arguments: Sequence[Attribute] | None, open_: set[str]
    ) -> Block:
        """Read the block of a region; `open_` are the enclosing regions, to refuse recursion."""
        declared: dict[str, Tensor | Shape] = {t.name: t for t in region.tensors}
        declared.update({shape.name: shape for shape in region.shapes})

        def find(name: str) -> Tensor | Shape:
            if name not in declared:
                raise ParseFailure(f"region {region.name!r} declares no tensor {name!r}")
            return declared[name]

        types = [type_of(find(name)) for name in region.inputs]
        if arguments is not None and len(arguments) != len(types):
            raise ParseFailure(
                f"region {region.name!r} has {len(types)} inputs, the operator has {len(arguments)}"
            )
        block = Block(arg_types=types)
        values: dict[str, SSAValue] = dict(zip(region.inputs, block.args, strict=True))

        def value(name: str) -> SSAValue:
            if name not in values:
                constant = self.implied_constant(find(name))
                if constant is None:
                    raise ParseFailure(
                        f"{name!r} is used in region {region.name!r} before it is defined"
                    )
                block.add_op(constant)
                values[name] = constant.results[0]
            return values[name]

        for operator in region.operators:
            op = self.operator(operator, find, value, open_ | {region.name})
            block.add_op(op)
            if operator.location:
                op.location = location_of(operator.location)
            if isinstance(op, UpdateOp):
                continue
            for name, result in zip(operator.outputs, op.results, strict=True):
                if name in values:
                    raise ParseFailure(f"{name!r} is defined twice in region {region.name!r}")
                values[name] = result
                if SSAValue.is_valid_name(name):
                    result.name_hint = name
        outputs = [value(name) for name in region.outputs]
        if arguments is None:
            self.names = {held: name for name, held in values.items()}
        block.add_op(ReturnOp(*outputs) if arguments is None else YieldOp.create(operands=outputs))
        return block

    def implied_constant(self, held: Tensor | Shape) -> TosaOp | None:
        """Return the constant of a tensor that has data but no CONST operator."""
        if isinstance(held, Shape):
            return self.constant(held) if held.data or held.rank == 0 else None
        return self.constant(held) if held.data and not held.variable else None

    def constant(self, held: Tensor | Shape) -> TosaOp:
        if isinstance(held, Shape):
            sizes = from_bytes(held.data, [held.rank], i64)
            return const_shape([int(v) for v in sizes.tolist()])
        type_ = type_of(held)
        element: Attribute = type_.element_type
        if isinstance(element, BlockScaledType):
            return self.block_scaled_constant(held, type_, element)
        values = from_bytes(held.data, held.shape, element)
        if 0 < math.prod(held.shape) <= INLINE and is_written_in_text(element):
            return const(values, element)
        return const_of_key(self.weights.constant(values), type_)

    def block_scaled_constant(
        self, held: Tensor, type_: AnyTensor, element: BlockScaledType
    ) -> TosaOp:
        codes = from_bytes(held.data, held.shape, element.payload)
        blocks = [*held.shape[:-1], held.shape[-1] // 32]
        scales = from_bytes(held.scale_data, blocks, element.scale)
        return const_of_key(
            self.weights.constant(codes), type_, self.weights.constant(scales, "scales")
        )

    def operator(
        self,
        operator: Operator,
        find: Callable[[str], Tensor | Shape],
        value: Callable[[str], SSAValue],
        open_: set[str],
    ) -> Operation:
        cls = class_of_code(operator.code)
        assert cls is not None
        if cls in (VariableReadOp, VariableWriteOp):
            return self.access(cls, operator, find, value, open_)
        if cls is VariableOp:
            raise UnsupportedError(f"{cls.name}: not an operator of a graph; a tensor declares it")
        if cls in (ConstOp, ConstShapeOp):
            if len(operator.outputs) != 1:
                raise ParseFailure(f"{cls.name}: one output is needed")
            return self.constant(find(operator.outputs[0]))
        operands = [value(name) for name in operator.inputs]
        results = [type_of(find(name)) for name in operator.outputs]
        regions = [
            self.branch(cls, operator.attributes[field.name], operands, open_)
            for field in cls.FIELDS
            if field.kind == "region"
        ]
        properties = {
            field.name: attribute_of(cls, field, operator.attributes[field.name], operands)
            for field in cls.FIELDS
            if field.kind != "region"
        }
        for field in cls.FIELDS:  # Defaults are omitted, as in the text.
            value_ = properties.get(field.name)
            if field.default is not None and is_default(value_, field.default):
                del properties[field.name]
        return cls.create(
            operands=operands, result_types=results, properties=properties, regions=regions
        )

    def access(
        self,
        cls: type[TosaOp],
        operator: Operator,
        find: Callable[[str], Tensor | Shape],
        value: Callable[[str], SSAValue],
        open_: set[str],
    ) -> Operation:
        """Read an access to a variable: a read of its value at entry, or a write for the next
        call.
        """
        if len(open_) > 1:
            raise UnsupportedError(f"{cls.name}: branches and loops cannot use variables")
        if (len(operator.inputs), len(operator.outputs)) != (1, 1):
            raise ParseFailure(f"{cls.name}: one input and one output are needed")
        reads = cls is VariableReadOp
        held = find(operator.inputs[0] if reads else operator.outputs[0])
        if not isinstance(held, Tensor) or not held.variable or -1 in held.shape:
            raise ParseFailure(f"{cls.name}: {held.name!r} is no variable of known sizes")
        key = held.variable_name or held.name
        if reads and key in self.written:
            raise UnsupportedError(f"{cls.name}: variable {key!r} is read after it was written")
        if key not in self.weights:
            element = element_of_code(held.dtype)
            if element is None or is_held_as_codes(element):
                raise UnsupportedError(
                    f"{cls.name}: variables of element type {element} are not supported"
                )
            size = stored_size(math.prod(held.shape), element)
            self.weights.add(key, from_bytes(held.data or bytes(size), held.shape, element))
        if reads:
            return StateOp(key, type_of(held))
        if key in self.written:
            raise UnsupportedError(f"{cls.name}: variable {key!r} is written twice")
        self.written.add(key)
        return UpdateOp(key, value(operator.inputs[0]))

    def branch(
        self,
        cls: type[TosaOp],
        name: AttributeValue,
        operands: Sequence[SSAValue],
        open_: set[str],
    ) -> Region:
        if not isinstance(name, str) or name not in self.regions:
            raise ParseFailure(f"{cls.name}: there is no region {name!r}")
        if name in open_:
            raise ParseFailure(f"{cls.name}: region {name!r} contains itself")
        assert issubclass(cls, CondIfOp | WhileLoopOp)
        given = operands[1:] if cls is CondIfOp else operands
        return Region(self.block(self.regions[name], [v.type for v in given], open_))


def type_of(held: Tensor | Shape) -> AnyTensor:
    """Return the IR type of a declared tensor or shape."""
    if isinstance(held, Shape):
        return ShapeType.of(held.rank)  # pyright: ignore[reportReturnType]
    element = element_of_code(held.dtype)
    if element is None:
        raise ParseFailure(f"tensor {held.name!r} has element type number {held.dtype}")
    if held.scale_type:
        scale = element_of_code(held.scale_type)
        if scale is None:
            raise ParseFailure(f"tensor {held.name!r} has scale type number {held.scale_type}")
        element = BlockScaledType(scale, element)
    if held.is_unranked:
        return UnrankedTensorType(element)  # pyright: ignore[reportReturnType]
    if any(size < -1 for size in held.shape):
        raise ParseFailure(f"tensor {held.name!r} has shape {list(held.shape)}")
    if -1 in held.shape:
        return TensorType(element, [DYNAMIC_INDEX if d == -1 else d for d in held.shape])
    return tensor(held.shape, element)


def attribute_of(
    cls: type[TosaOp], field: Field, value: AttributeValue, operands: Sequence[SSAValue]
) -> Attribute:
    """Return the IR attribute for an attribute of the flatbuffer."""
    enumeration = cls.ENUMERATIONS.get(field.name)
    if enumeration is not None:
        case = enumeration.case_of(int(value)) if isinstance(value, int) else None
        if case is None and field.default is not None and value == 0:
            case = field.default
        if case is None:
            raise ParseFailure(f"{cls.name}: {field.name} has the unknown value {value!r}")
        return enumeration(case)
    match field.kind, value:
        case "i32", int():
            return IntegerAttr(value, i32)
        case "bool", int():
            return IntegerAttr(int(value), i1)
        case "i64s", tuple():
            return DenseArrayBase.from_list(IntegerType(64), list(value))
        case "i32s", tuple():
            return DenseArrayBase.from_list(IntegerType(32), list(value))
        case "string", str():
            return StringAttr(value)
        case "bytes", bytes():
            return StringAttr(value.decode("latin-1"))
        case "type", int():
            element = element_of_code(value)
            if element is None:
                raise ParseFailure(f"{cls.name}: {field.name} has element type number {value}")
            return element
        case "value", bytes():
            return _element_value(cls, value, operands)
        case _:
            raise ParseFailure(f"{cls.name}: {field.name} cannot be {value!r}")


def _element_value(
    cls: type[TosaOp], value: bytes, operands: Sequence[SSAValue]
) -> IntegerAttr | FloatAttr:
    type_ = operands[0].type if operands else None
    element: Attribute | None = type_.element_type if isinstance(type_, TensorType) else None
    if element is None or is_held_as_codes(element):
        raise ParseFailure(f"{cls.name}: a value needs an operand of a plain type")
    number = from_bytes(value, [1], element).item()
    if isinstance(element, IntegerType):
        return IntegerAttr(int(number), element)
    return FloatAttr(float(number), element)  # pyright: ignore[reportArgumentType]


def is_default(value: Attribute | None, default: str) -> bool:
    """Whether an attribute has its default value."""
    return value is not None and default == (
        value.data if isinstance(value, EnumerationAttr) else str(value)
    )


def is_written_in_text(element: Attribute) -> bool:
    """Whether small constants of this type are printed in the text: not if elements are payload
    codes.
    """
    return element != e8m0 and (element == i4 or not is_held_as_codes(element))

"""A SPIR-V module with one TOSA graph, as plain data.

Sources: the SPIR-V extensions SPV_ARM_tensors and SPV_ARM_graph, and the extended instruction set
TOSA.001000.1, whose operators take their attributes first, then their tensors, in the order of the
TOSA specification.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from stepwell.backends.tosa.graph import AttributeValue, Operator, Region, Shape, Tensor
from stepwell.dialects.tosa.base import Field, TosaOp
from stepwell.dialects.tosa.codes import ELEMENTS
from stepwell.dialects.tosa.generated import DTYPE_CODES, OPERATORS, ConstShapeOp
from stepwell.dialects.tosa.structural import ConstOp
from stepwell.ir.diagnostics import ParseFailure, UnsupportedError

_T = TypeVar("_T")
MAGIC, HEADER = 0x07230203, 5
"""The first word of a module, and the number of words before its instructions."""
INSTRUCTION_SET = "TOSA.001000.1"
NUMBERED = (
    "argmax avg_pool2d conv2d conv3d depthwise_conv2d fft2d matmul max_pool2d rfft2d "
    "transpose_conv2d clamp erf sigmoid tanh add arithmetic_right_shift bitwise_and bitwise_or "
    "bitwise_xor intdiv logical_and logical_left_shift logical_right_shift logical_or logical_xor "
    "maximum minimum mul pow sub table abs bitwise_not ceil clz cos exp floor log logical_not "
    "negate reciprocal rsqrt sin select equal greater greater_equal reduce_all reduce_any "
    "reduce_max reduce_min reduce_product reduce_sum concat pad reshape reverse slice tile "
    "transpose gather scatter resize cast rescale"
).split()
"""Operators by their number in the instruction set."""
SIZES = frozenset("shape padding start size multiples scale offset border".split())
"""Operands that are lists of sizes."""
ACCUMULATORS = {1: "INT32", 2: "FP16", 3: "FP32", 4: "INT48"}
"""Values of `acc_type`."""
LARGEST_REPEATED = 1 << 26
"""Upper limit in bytes of a constant that repeats one number, whose file can be very small."""

_IMPORT, _INSTRUCTION = 11, 12
_BOOL, _INT, _FLOAT, _ARRAY, _TENSOR = 20, 21, 22, 28, 4163
_TRUE, _FALSE, _NUMBER, _COMPOSITE, _NULL, _REPEATED = 41, 42, 43, 44, 46, 4461
_STORED, _ENTRY, _GRAPH, _INPUT, _OUTPUT, _END = 4181, 4182, 4183, 4184, 4185, 4186
_SKIPPED = frozenset([0, 3, 5, 6, 7, 8, 10, 14, 17, 32, 59, 71, 72, 4190])
"""Names, decorations, capabilities, the memory model, pointers, variables and types of graphs."""
_PLAIN_FLOAT = -1
_FLOATS = {(16, _PLAIN_FLOAT): "FP16", (32, _PLAIN_FLOAT): "FP32", (16, 0): "BF16",
           (8, 4214): "FP8E4M3", (8, 4215): "FP8E5M2"}  # fmt: skip
"""Element types by width and encoding."""
_INTEGERS = {64: "INT48"}
"""Element types with another width in SPIR-V, which has no 48-bit integers."""


class _Known(dict[int, _T]):
    """The definitions of a module by id."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def __missing__(self, of: int) -> _T:
        raise ParseFailure(f"SPIR-V: there is no {self.what} {of}")


@dataclass(frozen=True)
class _Element:
    """A scalar type: the specification's name, and the number of bits."""

    name: str
    bits: int


@dataclass(frozen=True)
class _TensorType:
    element: _Element
    shape: tuple[int, ...]


@dataclass
class _Constant:
    """A constant: numbers as bits, in row-major order; a repeated number is stored once."""

    type: Any
    bits: list[int]
    repeated: bool = False


@dataclass
class Module:
    """A module with one graph. `stored` are constants that the file stores outside the module.

    Attributes:
        region: its operators and tensors; a stored constant has no data yet.
        stored: the module's number of each stored constant, by name.
    """

    region: Region
    stored: dict[str, int] = field(default_factory=dict[str, int])


def read_module(words: Sequence[int], inputs: Sequence[str], outputs: Sequence[str]) -> Module:
    """Read the graph of a module.

    Args:
        words: the 32-bit words of the module.
        inputs, outputs: the names of inputs and outputs, by number.

    Raises:
        ParseFailure: the words are not SPIR-V, are damaged, or have inconsistent numbers.
        UnsupportedError: the module contains something other than one TOSA graph.
    """
    if len(words) < HEADER or words[0] != MAGIC:
        raise ParseFailure("the module does not begin as SPIR-V does")
    reader = _Reader(inputs, outputs)
    at = HEADER
    while at < len(words):
        length, code = words[at] >> 16, words[at] & 0xFFFF
        if not length or at + length > len(words):
            raise ParseFailure(f"SPIR-V: an instruction runs past the end, at word {at}")
        try:
            reader.read(code, words[at + 1 : at + length])
        except (IndexError, KeyError) as error:
            raise ParseFailure(
                f"SPIR-V: instruction {code} at word {at} has an operand out of range: {error}"
            ) from None
        at += length
    return reader.module()


class _Reader:
    def __init__(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.types = _Known[Any]("type")
        self.constants = _Known[_Constant]("constant")
        self.values = _Known[_TensorType]("value")
        self.names: dict[int, str] = {}
        self.sizes: dict[int, str] = {}
        self.ordered: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.given: dict[int, int] = {}
        self.stored: dict[str, int] = {}
        self.operators: list[tuple[type[TosaOp], int, Sequence[int]]] = []
        self.sets: set[int] = set()
        self.graphs = 0

    def read(self, code: int, words: Sequence[int]) -> None:
        """Read one SPIR-V instruction."""
        if code in _SKIPPED:
            return
        if code in (_BOOL, _INT, _FLOAT, _ARRAY, _TENSOR):
            self.types[words[0]] = self._type(code, words)
        elif code in (_TRUE, _FALSE, _NUMBER, _COMPOSITE, _NULL, _REPEATED):
            self.constants[words[1]] = self._constant(code, self.types[words[0]], words[2:])
            self.ordered[words[1]] = len(self.ordered)
        elif code == _IMPORT:
            name = struct.pack(f"<{len(words) - 1}I", *words[1:]).split(b"\0")[0]
            if name != INSTRUCTION_SET.encode():
                raise UnsupportedError(
                    f"SPIR-V: unknown instruction set {name.decode('ascii', 'replace')!r}",
                    help=f"{INSTRUCTION_SET} can be read",
                )
            self.sets.add(words[0])
        elif code == _STORED:
            self.values[words[1]] = self._tensor(words[0])
            self.names[words[1]] = f"constant_{words[2]}"
            self.stored[self.names[words[1]]] = words[2]
            self.ordered[words[1]] = len(self.ordered)
        elif code == _INPUT:
            number = self._number(words[2])
            self.values[words[1]] = self._tensor(words[0])
            self.names[words[1]] = self.inputs[number]
            self.taken[number] = words[1]
        elif code == _INSTRUCTION:
            if words[2] not in self.sets:
                raise ParseFailure(f"SPIR-V: there is no instruction set {words[2]}")
            cls = _NUMBERED[words[3]]
            self.values[words[1]] = self._tensor(words[0])
            self.operators.append((cls, words[1], words[4:]))
        elif code == _OUTPUT:
            self.given[self._number(words[1])] = words[0]
        elif code == _GRAPH:
            self.graphs += 1
        elif code not in (_ENTRY, _END):
            raise UnsupportedError(f"SPIR-V: instruction {code} is not supported in a TOSA graph")

    def _type(self, code: int, words: Sequence[int]) -> Any:
        match code:
            case 20:
                return _Element("BOOL", 1)
            case 21:
                return _Element(_INTEGERS.get(words[1], f"INT{words[1]}"), words[1])
            case 22:
                encoding = words[2] if len(words) > 2 else _PLAIN_FLOAT
                return _Element(_FLOATS[words[1], encoding], words[1])
            case 28:
                return _TensorType(self._element(words[1]), (self._number(words[2]),))
            case _:
                if len(words) < 4:
                    raise UnsupportedError("SPIR-V: tensors of dynamic sizes are not supported")
                shape = self.constants[words[3]]
                if shape.repeated or any(size >= 1 << 31 for size in shape.bits):
                    raise ParseFailure("SPIR-V: a tensor's shape is no list of sizes")
                return _TensorType(self._element(words[1]), tuple(shape.bits))

    def _element(self, of: int) -> _Element:
        element = self.types[of]
        if not isinstance(element, _Element) or element.name not in ELEMENTS:
            raise ParseFailure(f"SPIR-V: type {of} is no type of TOSA's elements")
        return element

    def _tensor(self, of: int) -> _TensorType:
        type_ = self.types[of]
        if not isinstance(type_, _TensorType):
            raise ParseFailure(f"SPIR-V: type {of} is no tensor")
        return type_

    def _constant(self, code: int, type_: Any, words: Sequence[int]) -> _Constant:
        match code:
            case 41 | 42:
                return _Constant(type_, [int(code == _TRUE)])
            case 43:
                if not isinstance(type_, _Element) or not words:
                    raise ParseFailure("SPIR-V: a constant number whose type is not numeric")
                whole = sum(word << 32 * at for at, word in enumerate(words))
                return _Constant(type_, [whole & ((1 << type_.bits) - 1)])
            case 46:
                return _Constant(type_, [0], repeated=True)
            case 44:
                parts = [self.constants[word] for word in words]
                if any(part.repeated or len(part.bits) != 1 for part in parts):
                    parts = [_Constant(part.type, _unfolded(part)) for part in parts]
                return _Constant(type_, [bits for part in parts for bits in part.bits])
            case _:
                return _Constant(type_, [self._number(words[0])], repeated=True)

    def _number(self, of: int) -> int:
        bits = self.constants[of].bits
        if len(bits) != 1:
            raise ParseFailure(f"SPIR-V: constant {of} is no number")
        return bits[0]

    def module(self) -> Module:
        """Return the module after all instructions were read."""
        if self.graphs != 1:
            raise UnsupportedError(f"SPIR-V: the module has {self.graphs} graphs, must be 1")
        for wanted, found, what in (
            (self.inputs, self.taken, "inputs"), (self.outputs, self.given, "outputs")
        ):  # fmt: skip
            if sorted(found) != list(range(len(wanted))):
                raise ParseFailure(f"SPIR-V: the graph's {what} are {sorted(found)}, "
                                   f"the file names {len(wanted)}")  # fmt: skip
        for number, name in enumerate(self.outputs):
            self.names.setdefault(self.given[number], name)
        region = Region("main", tuple(self.inputs), ())
        for of, type_ in self.values.items():
            name = self.names.setdefault(of, f"value_{of}")
            region.tensors.append(_declared(name, type_))
        operators = [self._operator(*parts, region) for parts in self.operators]
        region.operators = [*self._constants(), *operators]
        region.outputs = tuple(self._named(self.given[n], region) for n in range(len(self.given)))
        return Module(region, self.stored)

    def _constants(self) -> list[Operator]:
        """Return the constants that operators use, in the order of the module."""
        read = [(of, name, ConstOp) for of, name in self.names.items() if of in self.ordered]
        read += [(of, name, ConstShapeOp) for of, name in self.sizes.items()]
        read.sort(key=lambda one: self.ordered[one[0]])
        return [Operator(cls.CODE, (), (name,)) for _, name, cls in read]

    def _operator(
        self, cls: type[TosaOp], result: int, words: Sequence[int], region: Region
    ) -> Operator:
        fields = sorted(cls.FIELDS, key=lambda field: field.name == "local_bound")
        operands = cls.get_irdl_definition().operands
        values = words[len(fields) :]
        if len(values) < len(operands):
            raise ParseFailure(f"SPIR-V: {cls.name} has {len(words)} operands")
        attributes = {
            field.name: self._attribute(cls, field, word)
            for field, word in zip(fields, words, strict=False)
        }
        inputs = [
            self._sizes(word, region) if name in SIZES else self._named(word, region)
            for (name, _), word in zip(operands, values, strict=False)
        ]
        inputs += [self._named(word, region) for word in values[len(operands) :]]
        return Operator(cls.CODE, tuple(inputs), (self.names[result],), attributes)

    def _attribute(self, cls: type[TosaOp], field: Field, of: int) -> AttributeValue:
        constant = self.constants[of]
        match field.kind:
            case "i64s" | "i32s":
                return tuple(_signed(bits, 32) for bits in _unfolded(constant))
            case "value":
                if not isinstance(constant.type, _Element):
                    raise ParseFailure(f"SPIR-V: {field.name} of {cls.name} is no number")
                return _bytes([self._number(of)], constant.type)
            case "type":
                name = ACCUMULATORS.get(self._number(of))
                if name is None:
                    raise ParseFailure(f"SPIR-V: {cls.name} accumulates in {self._number(of)}")
                return DTYPE_CODES[name]
            case "bool":
                return bool(self._number(of))
            case _:
                return _signed(self._number(of), 32)

    def _sizes(self, of: int, region: Region) -> str:
        """Return the name of a constant list of sizes."""
        if of not in self.sizes:
            self.sizes[of] = f"sizes_{of}"
            sizes = [_signed(bits, 32) for bits in _unfolded(self.constants[of])]
            data = struct.pack(f"<{len(sizes)}q", *sizes)
            region.shapes.append(Shape(self.sizes[of], len(sizes), data))
        return self.sizes[of]

    def _named(self, of: int, region: Region) -> str:
        """Return the name of a value, or of a constant, which is declared when it is first used."""
        if of not in self.names:
            constant = self.constants[of]
            type_ = (
                constant.type
                if isinstance(constant.type, _TensorType)
                else _TensorType(constant.type, ())
            )
            self.names[of] = f"constant_of_{of}"
            region.tensors.append(_declared(self.names[of], type_, _data(constant, type_)))
        return self.names[of]


def _declared(name: str, type_: _TensorType, data: bytes = b"") -> Tensor:
    return Tensor(name, type_.shape, DTYPE_CODES[type_.element.name], data)


def _unfolded(held: _Constant) -> list[int]:
    """Return all numbers of a constant, with repeated numbers written out."""
    if not held.repeated:
        return held.bits
    shape = held.type.shape if isinstance(held.type, _TensorType) else ()
    return held.bits * _repeats(shape)


def _repeats(shape: Sequence[int]) -> int:
    count = math.prod(shape)
    if 8 * count > LARGEST_REPEATED:
        raise UnsupportedError(f"SPIR-V: a number repeated {count} times is too large a constant")
    return count


def _data(held: _Constant, type_: _TensorType) -> bytes:
    """Return the data of a constant in the format of a TOSA flatbuffer."""
    if not held.repeated and len(held.bits) != math.prod(type_.shape):
        raise ParseFailure(f"SPIR-V: {len(held.bits)} numbers for a tensor of {type_.shape}")
    if held.repeated and type_.element.bits >= 8:
        return _bytes(held.bits, type_.element) * _repeats(type_.shape)
    return _bytes(_unfolded(held), type_.element)


def _bytes(bits: Sequence[int], element: Any) -> bytes:
    if element.bits == 4:  # Two to a byte, the first in the low half.
        pairs = zip(bits[::2], [*bits[1::2], 0], strict=False)
        return bytes(low | high << 4 for low, high in pairs)
    width = max(element.bits, 8) // 8
    try:
        whole = b"".join(one.to_bytes(width, "little") for one in bits)
    except OverflowError:
        raise ParseFailure(f"SPIR-V: a number that is no {element.name}") from None
    return narrowed(whole, DTYPE_CODES[element.name])


def narrowed(data: bytes, dtype: int) -> bytes:
    """Convert the bytes of a constant from SPIR-V's form to TOSA's: int48 from 64 to 48 bits."""
    if dtype != DTYPE_CODES["INT48"]:
        return data
    return b"".join(data[at : at + 6] for at in range(0, len(data), 8))


def _signed(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> (width - 1) & 1 else bits


_BY_NAME = {cls.name.removeprefix("tosa."): cls for cls in OPERATORS}
_NUMBERED: Mapping[int, type[TosaOp]] = {at: _BY_NAME[name] for at, name in enumerate(NUMBERED)}

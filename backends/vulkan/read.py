"""Read the payload of a Vulkan delegate as a delegate op that contains ATen operators.

A payload is a list of values and a chain of operator calls on them. Each call states all arguments
of the operator's schema in order, then its result. Layouts on the GPU are not read, because they do
not change what an operator computes. Tensors have the element types that they have on the GPU:
`int32` for `int64`, and `float16` for `float32` if the option `force_fp16` was set.

The bytes are untrusted: offsets and vectors are checked as they are read, ids, buffers and sizes
here, and the result types of every operator are inferred. Any inconsistency raises `ParseFailure`.
An operator without a meaning here makes the delegate opaque, with the reason.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from stepwell.backends.executorch.container import Delegate
from stepwell.backends.executorch.reading.read_arguments import fitted
from stepwell.backends.executorch.reading.readers import (
    ReadContext,
    agrees,
    opaque_delegate,
    results_of,
)
from stepwell.backends.flatbuffer import Record
from stepwell.backends.vulkan.operators import MEANINGS, NUMBERS, PREPACK, Builder
from stepwell.backends.vulkan.schema import BACKEND, WHAT, dtype_of, read_graph
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import find
from stepwell.dialects.aten.schema import Argument
from stepwell.dialects.executorch import DelegateOp, YieldOp
from stepwell.ir.core import StateOp, WeightOp
from stepwell.ir.diagnostics import ParseFailure, StepwellError, UnsupportedError, quoted
from stepwell.ir.dtypes import element_type, i8, i64, ui8
from stepwell.ir.sizes.size import number_of
from stepwell.ir.types import dims, element, is_static, tensor_like

NAMESPACES = ("aten.", "dim_order_ops.", "quantized_decomposed.", "torchao.")
"""Operators whose schemas state their meaning."""
_FAILURES = (
    VerifyException, StepwellError, ArithmeticError, AssertionError, AttributeError, LookupError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
_LAYOUT = frozenset({"MemoryFormat", "Layout", "Device", "Generator"})


class VulkanReader:
    """Reads delegates of `VulkanBackend` as `executorch.delegate` ops."""

    def input_count(self, delegate: Delegate, context: ReadContext) -> int:
        """Return the number of the call's values that are inputs."""
        return len(read_graph(delegate.payload)[0]["input_ids"])

    def read(
        self,
        delegate: Delegate,
        inputs: Sequence[SSAValue],
        results: Sequence[Attribute],
        context: ReadContext,
    ) -> Operation:
        """Return the delegate as an op with these operands and result types.

        Raises:
            ParseFailure: the payload is malformed.
            UnsupportedError: sizes are dynamic, so that those of values cannot be inferred.
        """
        root, constants = read_graph(delegate.payload)
        if not all(is_static(value.type) for value in inputs):
            raise UnsupportedError(
                "a Vulkan delegate has dynamic sizes, but the file does not state which axes",
                help="read it at its largest sizes: read_pte(data, largest=True), show --largest",
            )
        reader = _Reader(root, constants, context)
        try:
            body = reader.block([value.type for value in inputs], results)
        except UnsupportedError as error:
            reason = error.problems[0].fact
            return opaque_delegate(delegate, inputs, results, context, reason)
        states = [state.result for state in reader.states.values()]
        return DelegateOp.make(BACKEND, [*inputs, *states], results_of(body), body)


class _Reader:
    def __init__(self, root: Record, constants: memoryview, context: ReadContext) -> None:
        self.values: list[tuple[str, Record] | None] = [v["value"] for v in root["values"]]
        self.root = root
        self.constants = constants
        self.context = context
        self.defined: dict[int, Any] = {}
        """SSA values of tensors and numbers of `SymInt`s, by the value's id."""
        self.states: dict[int, StateOp] = {}
        """The contents at entry of tensors that a graph keeps between calls."""
        chain = [(call["name"], call["args"]) for call in root["chain"] if call["args"]]
        written = {i for name, ids in chain if name != PREPACK for i in self._results(ids[-1])}
        self.kept = {ids[-1] for name, ids in chain if name == PREPACK} & written
        """Constants that are copied to the GPU once, and written by each call."""

    def block(self, inputs: Sequence[Attribute], results: Sequence[Attribute]) -> Block:
        """Add one or more ops for each call of the chain."""
        numbers, count = self.context.numbers, len(self.root["input_ids"])
        given: dict[int, int] = dict(enumerate(self.root["input_ids"]))
        written = dict(enumerate(self.root["output_ids"], count))
        for position in numbers:
            self.defined[given.pop(position)] = numbers[position]
        counted = [p for p, identity in written.items() if self._value(identity)[0] == "SymInt"]
        computed = {position: written.pop(position) for position in counted}
        if len(written) > len(results):
            raise UnsupportedError(
                f"the graph has {len(written)} outputs, the call {len(results)}: the runtime "
                "rejects it (a buffer that the graph writes is among its outputs)"
            )
        for what, ids, types in (("input", given, inputs), ("output", written, results)):
            if len(ids) != len(types):
                raise ParseFailure(f"{WHAT}: {len(ids)} {what}s, the call has {len(types)}")
        body = Block(arg_types=inputs)
        self.build = Builder(body, self.context.weights)
        for argument, identity in zip(body.args, given.values(), strict=True):
            self._define(identity, argument)
        for number, call in enumerate(self.root["chain"]):
            where = f"{WHAT}: call {number}, {call['name']}"
            try:
                self._call(call["name"] or "", call["args"], where)
            except UnsupportedError:
                raise
            except _FAILURES as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise ParseFailure(f"{where}: {reason}") from error
        try:
            outputs = list(map(self._output, written.values(), results))
            numbers |= {place: self._argument(identity) for place, identity in computed.items()}
        except RecursionError as error:
            raise ParseFailure(f"{WHAT}: a list contains itself") from error
        body.add_op(YieldOp.create(operands=[*outputs, *map(self._argument, self.states)]))
        for op in reversed(list(body.ops)):
            is_bare = isinstance(op, WeightOp) or op.name == "aten._to_copy.default"
            if is_bare and not any(op.results[0].uses):  # A packed weight, or unused indices.
                op.detach()
                op.erase()
        return body

    # -- values --------------------------------------------------------------------------------

    def _value(self, identity: int) -> tuple[str, Record]:
        if not 0 <= identity < len(self.values):
            raise ParseFailure(f"there is no value {identity}")
        value = self.values[identity]
        if value is None:
            raise ParseFailure(f"value {identity} is empty")
        return value

    def _tensor(self, identity: int) -> Record:
        kind, held = self._value(identity)
        if kind != "VkTensor":
            raise ParseFailure(f"value {identity} is {kind}, no tensor")
        return held

    def _define(self, identity: int, value: SSAValue) -> None:
        """Record a result, in the element type that the tensor has on the GPU."""
        held = self._tensor(identity)
        if identity in self.kept and identity not in self.states:
            value = self._state(identity, value)
        elif held["constant_id"] >= 0 or (identity in self.defined and identity not in self.kept):
            raise ParseFailure(f"value {identity} is computed twice, or is a constant")
        shape, declared = [number_of(size) for size in dims(value.type)], held["dims"]
        if len(shape) != len(declared):
            raise ParseFailure(f"value {identity} has sizes {declared}, computed are {shape}")
        if math.prod(shape) > math.prod(declared):  # ExecuTorch bounds each axis by itself.
            raise UnsupportedError(
                f"the graph has memory for sizes {declared} of value {identity}; they are {shape}"
            )
        self.defined[identity] = self.build.cast(value, self._element(held))

    def _state(self, identity: int, initial: SSAValue) -> SSAValue:
        """Return the content of a tensor that the graph keeps; it starts as a constant."""
        key = f"{self.context.prefix}.state{identity}"
        self.context.weights.add(key, self.build.stored(initial).clone())
        self.states[identity] = StateOp(key, initial.type)
        return self.build.block.insert_arg(initial.type, len(self.build.block.args))

    def _results(self, identity: int) -> list[int]:
        kind, held = self._value(identity)
        return held["items"] if kind == "ValueList" else [identity]

    def _element(self, held: Record) -> Attribute:
        return element_type(dtype_of(held["datatype"]))

    def _argument(self, identity: int) -> Any:
        """Return an argument: an SSA value, a list, or a Python value."""
        kind, held = self._value(identity)
        match kind:
            case "VkTensor" | "SymInt":
                if identity not in self.defined:
                    if kind == "SymInt" or held["constant_id"] < 0:
                        raise ParseFailure(f"value {identity} is read before it is computed")
                    self.defined[identity] = self._constant(held)
                return self.defined[identity]
            case "ValueList":
                return [self._argument(item) for item in held["items"]]
            case "Null":
                return None
            case "String":
                return held["string_val"]
            case "IntList" | "DoubleList" | "BoolList":
                return list(held["items"])
            case _:
                return held[{"Int": "int_val", "Double": "double_val", "Bool": "bool_val"}[kind]]

    def _output(self, identity: int, type_: Attribute) -> SSAValue:
        value = self._argument(identity)
        if not isinstance(value, SSAValue):
            raise ParseFailure(f"{WHAT}: output {identity} is no tensor")
        value = self.build.cast(value, element(type_))
        if not agrees(value.type, type_, ()):
            raise ParseFailure(f"{WHAT}: output {identity} is {value.type}, the call takes {type_}")
        return value

    def _constant(self, held: Record) -> SSAValue:
        index, dtype, shape = held["constant_id"], dtype_of(held["datatype"]), held["dims"]
        entries: list[Record] = self.root["constants"]
        if index >= len(entries):
            raise ParseFailure(f"there is no constant {index}")
        entry = entries[index]
        name = entry["named_key"]
        if name and name not in self.context.named_data:
            raise ParseFailure(f"the program has no data named {quoted(name)}")
        begin = 0 if name else entry["offset"]
        data = memoryview(self.context.named_data[name].data).cast("B") if name else self.constants
        count = math.prod(shape)
        data = data[begin : begin + count * dtype.itemsize]
        if len(data) < count * dtype.itemsize:
            raise ParseFailure(f"constant {index} has {len(data)} bytes, not {shape} of {dtype}")
        spelled = "x".join(map(str, shape))
        label = name or f"{self.context.prefix}.{index}"  # A name is the data's SHA-256.
        key = f"vulkan.{label[:16] if len(label) == 64 else label}.{str(dtype)[6:]}.{spelled}"
        if key not in self.context.weights:
            if data.readonly:
                data = memoryview(bytearray(data))
            stored = torch.frombuffer(data, dtype=dtype) if count else torch.empty(0, dtype=dtype)
            self.context.weights.add(key, stored.reshape(shape))
        return self.build.add(WeightOp(key, tensor_like(self.context.weights.get(key))))

    # -- calls ---------------------------------------------------------------------------------

    def _call(self, name: str, ids: Sequence[int], where: str) -> None:
        if not ids:
            raise ParseFailure("no arguments")
        arguments, last = ids[:-1], ids[-1]
        if name in NUMBERS:
            given = [self._argument(identity) for identity in arguments]
            self.defined[last] = NUMBERS[name](*given)
            return
        results = self._results(last)
        if name in MEANINGS:
            given = [self._argument(identity) for identity in arguments]
            made = MEANINGS[name](self.build, *given)
            values = list(made) if isinstance(made, tuple) else [made]
        else:
            cls = schema_class(name)
            if cls is None:
                raise UnsupportedError(f"{name}: the operator has no meaning here")
            values = self._schema_op(cls, arguments, results, where)
        if len(values) != len(results):
            raise ParseFailure(f"{len(results)} results, not {len(values)}")
        for identity, value in zip(results, values, strict=True):
            self._define(identity, value)

    def _schema_op(
        self, cls: type[SchemaOp], ids: Sequence[int], results: Sequence[int], where: str
    ) -> Sequence[SSAValue]:
        schema = cls.SCHEMA
        if len(ids) != len(schema.arguments):
            raise ParseFailure(f"{len(ids)} arguments, its schema has {len(schema.arguments)}")
        result = self._element(self._tensor(results[0]))
        given: dict[str, Any] = {}
        for argument, identity in zip(schema.arguments, ids, strict=True):
            value = self._argument(identity)
            if argument.type.base == "ScalarType" and not argument.default:
                given[argument.name] = _stated_dtype(schema.operator, given, result)
            elif argument.type.base not in _LAYOUT and argument.default != (value,):
                given[argument.name] = fitted(argument, _integral(argument, value, result), where)
        if schema.operator == "gather":
            given["index"] = self.build.cast(given["index"], i64)
        op = cls.from_arguments(given)
        if "dtype" in schema.by_name and element(op.results[0].type) != result:
            op.erase()
            op = cls.from_arguments({**given, "dtype": result})
        self.build.add(op)
        return op.results


def schema_class(name: str) -> type[SchemaOp] | None:
    """Return the op class of an operator that means what PyTorch's operator of its name does."""
    cls = find(name) if name.startswith(NAMESPACES) else None
    return None if cls is None or cls.SCHEMA.is_mutable else cls


def _integral(argument: Argument, value: Any, result: Attribute) -> Any:
    """Return a number as an integer where the schema, or an integer result, demands one.

    ExecuTorch writes equal numbers once, so that 1 may be stored as 1.0.
    """
    if isinstance(value, list):
        return [_integral(argument, item, result) for item in cast(list[Any], value)]
    kinds = ("int", "SymInt", "Scalar") if isinstance(result, IntegerType) else ("int", "SymInt")
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole and argument.type.base in kinds else value


def _stated_dtype(operator: str, given: Mapping[str, Any], result: Attribute) -> Attribute:
    """Return the dtype that an operator demands; payloads do not contain dtypes."""
    if operator.startswith("dequantize"):
        return element(given["input"].type)
    if operator.startswith("choose_qparams"):
        low = given.get("quant_min", given.get("qmin"))
        return ui8 if low is not None and low >= 0 else i8
    return result

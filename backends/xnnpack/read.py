"""Read the payload of an XNNPACK delegate, of any producer, as a delegate op.

The bytes are untrusted: offsets and vectors are checked as they are read, ids, buffers
and sizes here, and every node is verified. Any inconsistency raises `ParseFailure`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from xdsl.dialects.builtin import bf16, f16, f32
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.utils.exceptions import VerifyException

from stepwell.backends.executorch.container import Container, Data, Delegate
from stepwell.backends.executorch.reading.readers import ReadContext, agrees, results_of
from stepwell.backends.flatbuffer import Record, read_root
from stepwell.backends.xnnpack.emit import unpack_int4
from stepwell.backends.xnnpack.nodes import from_fields, input_names, output_names
from stepwell.backends.xnnpack.schema import NO_VALUE, datatypes, schema, split_header
from stepwell.dialects.quant.ops import StorageCast
from stepwell.dialects.quant.types import (
    Quantization,
    UniformQuantizedType,
    quantization,
    storage_element,
)
from stepwell.dialects.xnnpack import (
    NODES,
    DelegateOp,
    DynamicInt8Type,
    StaticReshape,
    XnnpackOp,
    YieldOp,
)
from stepwell.dialects.xnnpack.base import to_attribute
from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.inference import infer
from stepwell.ir.diagnostics import ParseFailure, StepwellError, UnsupportedError, quoted
from stepwell.ir.dtypes import i32, i64
from stepwell.ir.sizes.size import number_of
from stepwell.ir.types import dims, element, is_static, tensor, tensor_like, with_element
from stepwell.ir.weights import WeightStore

WHAT = "XNNPACK payload"
_MAX_RANK = 16
_BITS = {
    "qint8": (8, True), "quint8": (8, False), "qint32": (32, True), "qcint8": (8, True),
    "qcint32": (32, True), "qcint4": (4, True), "qbint4": (4, True),
}  # fmt: skip
_STORED = {
    "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
    "int32": torch.int32, "qint32": torch.int32,
    "qcint32": torch.int32, "qint8": torch.int8, "quint8": torch.uint8, "qcint8": torch.int8,
}  # fmt: skip


@dataclass(frozen=True)
class XnnpackReader:
    """Reads delegates of `XnnpackBackend` as `xnnpack.delegate` ops.

    Attributes:
        largest: give the nodes of a delegate with dynamic sizes the largest ones that its payload
            declares. Its block then has other types than its operands: the program can be
            interpreted at any size, and is not valid otherwise.
    """

    largest: bool = False

    def input_count(self, delegate: Delegate, context: ReadContext) -> int:
        """Return the number of the call's values that are inputs."""
        return len(_root(delegate.payload)[0]["input_ids"])

    def read(
        self,
        delegate: Delegate,
        inputs: Sequence[SSAValue],
        results: Sequence[Attribute],
        context: ReadContext,
    ) -> DelegateOp:
        """Return the delegate as an op with these operands and result types.

        Raises:
            ParseFailure: the payload is malformed.
            UnsupportedError: sizes are dynamic, so that those of nodes cannot be inferred.

        """
        named = {key: held.data for key, held in context.named_data.items()}
        types = [value.type for value in inputs]
        try:
            body = read_payload(
                *(delegate.payload, types, results, context.weights, named, context.prefix),
                largest=self.largest,
            )
        except ParseFailure as error:
            if all(is_static(type_) for type_ in (*types, *results)):
                raise
            raise UnsupportedError(
                f"a delegate with dynamic sizes cannot be opened: {error.problems[0].fact}",
                help="read it at its largest sizes: read_pte(data, largest=True), show --largest",
            ) from error
        return DelegateOp.make(inputs, results_of(body), body)


def check_payloads(container: Container) -> None:
    """Check that XNNPACK payloads are well formed, and that the file has the data they name.

    The runtime aborts the process on a payload that fails this check.

    Raises:
        ParseFailure: a payload is malformed, or names missing data.
    """
    known = {*container.named_data, *container.external_data}
    for method in container.methods:
        for delegate in method.delegates:
            if delegate.backend == "XnnpackBackend":
                for entry in _root(delegate.payload)[0]["constant_data"]:
                    if (key := entry["named_key"]) and key not in known:
                        raise ParseFailure(f"{WHAT}: the file has no data named {quoted(key)}")


def read_payload(
    data: Data,
    inputs: Sequence[Attribute],
    results: Sequence[Attribute],
    weights: WeightStore,
    named: Mapping[str, Data],
    prefix: str = "xnnpack",
    *,
    largest: bool = False,
) -> Block:
    """Read the sub-graph of a payload.

    Args:
        data: the payload.
        inputs: types of the external inputs, as the container states them.
        results: types of the external outputs.
        weights: the store that receives the constants.
        named: the program's named data.
        prefix: the prefix of the keys of constants that are inside the payload.
        largest: see `XnnpackReader`.

    Raises:
        ParseFailure: the payload is malformed, or contradicts the types.

    """
    root, constants = _root(data)
    return _Reader(root, constants, weights, named, prefix).block(inputs, results, largest=largest)


def _root(data: Data) -> tuple[Record, memoryview]:
    graph, constants = split_header(memoryview(data).cast("B"))
    if bytes(graph[4:8]) not in (b"XN00", b"XN01"):
        raise ParseFailure(f"{WHAT}: bytes 4 to 8 of the graph are {bytes(graph[4:8])!r}")
    return read_root(graph, schema(), check_identifier=False, what=WHAT), constants


@dataclass
class _Value:
    """A declared value: its tensor type, and the buffer of a constant."""

    type: Attribute
    what: str
    buffer: int
    external: int


class _Reader:
    def __init__(
        self,
        root: Record,
        constants: memoryview,
        weights: WeightStore,
        named: Mapping[str, Data],
        prefix: str,
    ) -> None:
        self.root = root
        self.constants = constants
        self.weights = weights
        self.named = named
        self.prefix = prefix
        self.names = {number: name for name, number in datatypes().items()}
        self.defined: dict[int, SSAValue] = {}
        self.values: dict[int, _Value] = {}

    def block(
        self, inputs: Sequence[Attribute], results: Sequence[Attribute], *, largest: bool = False
    ) -> Block:
        """Declare values, then add one op per node; `largest` is that of `XnnpackReader`."""
        for value in self.root["xvalues"]:
            self._declare(value)
        for node in self.root["xnodes"]:
            self._tokens_of_pointwise(node)
        input_ids, output_ids = self._external(len(inputs), len(results))
        if largest:
            inputs = [self._largest(i, type_) for i, type_ in zip(input_ids, inputs, strict=True)]
            results = [self._largest(i, t) for i, t in zip(output_ids, results, strict=True)]
        body = self.body = Block(arg_types=inputs)
        for arg, identity in zip(body.args, input_ids, strict=True):
            self.defined[identity] = self._typed(arg, self._value(identity))
        wanted = dict(zip(output_ids, results, strict=True))
        for number, node in enumerate(self.root["xnodes"]):
            if node["xnode_union"] is None:
                raise ParseFailure(f"{WHAT}: node {number} is empty")
            try:
                self._node(node, wanted)
            except (VerifyException, StepwellError) as error:
                name = node["xnode_union"][0]
                reason = str(error).splitlines()[0]
                raise ParseFailure(f"{WHAT}: node {number}, {name}: {reason}") from error
        outputs = [self._output(identity, wanted[identity]) for identity in output_ids]
        body.add_op(YieldOp.create(operands=outputs))
        return body

    def _largest(self, identity: int, type_: Attribute) -> Attribute:
        return tensor(dims(self._value(identity).type), element(type_))

    # -- values --------------------------------------------------------------------------------

    def _declare(self, record: Record) -> None:
        if record["xvalue_union"] is None:
            raise ParseFailure(f"{WHAT}: a value is empty")
        name, held = record["xvalue_union"]
        value = held if name == "XNNTensorValue" else held["tensor_value"]
        if value is None:
            raise ParseFailure(f"{WHAT}: a quantized value has no tensor")
        identity: int = value["id_out"]
        if identity in self.values or identity == NO_VALUE:
            raise ParseFailure(f"{WHAT}: value {identity} is declared twice, or as no value")
        shape: list[int] = value["dims"]
        what = self.names.get(value["datatype"], "")
        if len(shape) > _MAX_RANK:
            raise ParseFailure(f"{WHAT}: value {identity} has rank {len(shape)}")
        params = held["quant_params"] if name == "XNNQuantizedTensorValue" else None
        try:
            type_ = tensor(shape, self._element(what, params, shape))
        except VerifyException as error:
            raise ParseFailure(f"{WHAT}: value {identity}: {error}") from error
        buffer, external = value["constant_buffer_idx"], value["external_id"]
        self.values[identity] = _Value(type_, what, buffer, external)

    def _tokens_of_pointwise(self, node: Record) -> None:
        """Give a pointwise convolution's dynamically quantized input a scale for each pixel.

        XNNPACK runs the convolution as a fully connected node, whatever the value states.
        """
        if node["xnode_union"] is None or node["xnode_union"][0] != "XNNConv2d":
            return
        fields = node["xnode_union"][1]
        value = self.values.get(fields["input1_id"])
        ones = ("kernel_height", "kernel_width", "subsampling_height", "subsampling_width")
        sides = ("padding_top", "padding_right", "padding_bottom", "padding_left")
        if (
            value is not None
            and value.what == "qdint8"
            and all(fields[name] == 1 for name in (*ones, "groups"))
            and not any(fields[name] for name in sides)
            and fields["group_input_channels"] + fields["group_output_channels"] > 2
        ):
            value.type = with_element(value.type, DynamicInt8Type(1))

    def _element(
        self, what: str, params: tuple[str, Record] | None, shape: Sequence[int]
    ) -> Attribute:
        plain: dict[str, Attribute] = {"fp32": f32, "fp16": f16, "bf16": bf16, "int32": i32}
        if params is None:
            if what not in plain:
                raise ParseFailure(f"{WHAT}: datatype {what or 'unknown'} without parameters")
            return plain[what]
        kind, held = params
        if kind == "PerTokenDynamicQuant" and what == "qdint8":
            return DynamicInt8Type(held["num_nonbatch_dims"])
        if what not in _BITS:
            raise ParseFailure(f"{WHAT}: datatype {what or 'unknown'} is not known here")
        bits, signed = _BITS[what]
        low = -(1 << (bits - 1)) if signed else 0
        high = low + (1 << bits) - 1

        def made(
            scales: Sequence[float],
            zero: int = 0,
            blocks: tuple[tuple[int, int], ...] = (),
            grid: tuple[int, ...] = (),
            sub_channel: bool = False,
        ) -> Attribute:
            zeros = (zero,) * len(scales)
            return UniformQuantizedType(
                Quantization(
                    bits, signed, low, high, f32, tuple(scales), zeros, blocks, grid, sub_channel
                )
            )

        if kind == "PerTensorQuant" and what in ("qint8", "quint8", "qint32"):
            return made([held["scale"]], held["zero_point"])
        if kind == "PerChannelQuant" and what.startswith("qc"):
            axis = held["channel_dim"]
            if not 0 <= axis < len(shape):
                raise ParseFailure(f"{WHAT}: scales along axis {axis} of rank {len(shape)}")
            scales = self._scales(held, torch.float32, shape[axis])
            return made(scales, 0, ((axis, 1),), (len(scales),))
        if kind == "PerChannelGroupQuant" and what == "qbint4" and len(shape) == 2:
            size = held["group_size"]
            if size < 1 or shape[1] % size:
                raise ParseFailure(f"{WHAT}: groups of {size} in rows of {shape[1]}")
            grid = (shape[0], shape[1] // size)
            scales = self._scales(held, torch.bfloat16, math.prod(grid))
            return made(scales, 0, ((0, 1), (1, size)), grid, True)
        raise ParseFailure(f"{WHAT}: datatype {what} does not go with {kind}")

    def _scales(self, held: Record, dtype: torch.dtype, count: int) -> list[float]:
        if held["scale_buffer_idx"]:
            data = self._bytes(held["scale_buffer_idx"], count * dtype.itemsize)
            return _tensor(data, dtype, (count,)).float().tolist()
        scales: list[float] = held["scale"]
        if len(scales) != count:
            raise ParseFailure(f"{WHAT}: {len(scales)} scales where {count} are needed")
        if dtype == torch.bfloat16:  # The runtime truncates the lower half.
            return (torch.tensor(scales).view(torch.int32) & -65536).view(torch.float32).tolist()
        return scales

    def _external(self, inputs: int, results: int) -> tuple[list[int], list[int]]:
        """Return the ids of external inputs and outputs, in the order of the call's arguments."""
        found: list[list[int]] = []
        for name, count in (("input_ids", inputs), ("output_ids", results)):
            ids: list[int] = self.root[name]
            if len(ids) != count or len(set(ids)) != count:
                raise ParseFailure(f"{WHAT}: {len(ids)} {name}, the call has {count}")
            found.append(sorted(ids, key=lambda identity: self._value(identity).external))
        numbers = [self._value(identity).external for ids in found for identity in ids]
        if numbers != list(range(len(numbers))):
            raise ParseFailure(f"{WHAT}: external values are numbered {numbers[:8]}")
        return found[0], found[1]

    def _value(self, identity: int) -> _Value:
        value = self.values.get(identity)
        if value is None:
            raise ParseFailure(f"{WHAT}: value {identity} is not declared")
        return value

    def _typed(self, stored: SSAValue, value: _Value) -> SSAValue:
        """Return an input as the payload declares it: in its quantized type, a scalar as one
        element.
        """
        value_quantization = quantization(value.type)
        wanted = (
            element(value.type)
            if value_quantization is None
            else storage_element(value_quantization)
        )
        is_scalar = (dims(stored.type), dims(value.type)) == ((), (1,))
        is_of_rank = is_scalar or len(dims(stored.type)) == len(dims(value.type))
        if element(stored.type) != wanted or not is_of_rank:
            raise ParseFailure(f"{WHAT}: an input is {value.type}, the call gives {stored.type}")
        if value_quantization is not None:
            cast = StorageCast(stored, with_element(stored.type, element(value.type)))
            self.body.add_op(cast)
            stored = cast.result
        if is_scalar:
            scalar = StaticReshape.make(stored, result=value.type, new_shape=[1])
            self.body.add_op(scalar)
            stored = scalar.results[0]
        return stored

    def _operand(self, identity: int) -> SSAValue:
        if identity not in self.defined:
            value = self._value(identity)
            if not value.buffer:
                raise ParseFailure(f"{WHAT}: value {identity} is read before it is computed")
            self.defined[identity] = self._constant(value)
        return self.defined[identity]

    # -- constants -----------------------------------------------------------------------------

    def _constant(self, value: _Value) -> SSAValue:
        shape = [number_of(size) for size in dims(value.type)]
        entry = self._entry(value.buffer)
        label = entry["named_key"] or f"{self.prefix}.{value.buffer}"
        spelled = "x".join(str(size) for size in shape)
        key = f"xnnpack.{label}.{value.what}.{spelled}"
        if key not in self.weights:
            self.weights.add(key, self._stored(value, shape))
        weight = WeightOp(key, tensor_like(self.weights.get(key)))
        self.body.add_op(weight)
        if quantization(value.type) is None:
            return weight.result
        cast = StorageCast(weight.result, value.type)
        self.body.add_op(cast)
        return cast.result

    def _stored(self, value: _Value, shape: Sequence[int]) -> torch.Tensor:
        if value.what in ("qcint4", "qbint4"):
            if len(shape) != 2:
                raise ParseFailure(f"{WHAT}: 4-bit weights of rank {len(shape)}")
            row = (shape[1] + 1) // 2
            data = self._bytes(value.buffer, shape[0] * row)
            return unpack_int4(_tensor(data, torch.uint8, (shape[0], row)), shape[1])
        if value.what not in _STORED:
            raise ParseFailure(f"{WHAT}: a constant of datatype {value.what}")
        dtype = _STORED[value.what]
        data = self._bytes(value.buffer, math.prod(shape) * dtype.itemsize)
        return _tensor(data, dtype, shape)

    def _entry(self, index: int) -> Record:
        entries: list[Record] = self.root["constant_data"]
        if not 0 < index < len(entries):
            raise ParseFailure(f"{WHAT}: there is no constant {index}")
        return entries[index]

    def _bytes(self, index: int, size: int) -> memoryview:
        """Return the first `size` bytes of a constant."""
        entry = self._entry(index)
        if entry["named_key"]:
            key: str = entry["named_key"]
            if key not in self.named:
                raise ParseFailure(f"{WHAT}: the program has no data named {quoted(key)}")
            data = memoryview(self.named[key]).cast("B")
        else:
            data = self.constants[entry["offset"] : entry["offset"] + entry["size"]]
        if len(data) < size:
            raise ParseFailure(f"{WHAT}: constant {index} has {len(data)} bytes, {size} needed")
        return data[:size]

    # -- nodes ---------------------------------------------------------------------------------

    def _node(self, node: Record, wanted: Mapping[int, Attribute]) -> None:
        name, fields = node["xnode_union"]
        cls = NODES.get(name)
        if cls is None:
            raise ParseFailure(f"the dialect has no node {name}")
        ids: list[int] = [fields[field] for field in input_names(cls)]
        if ids[-1] == NO_VALUE:
            ids.pop()
        produced: list[int] = [fields[field] for field in output_names(cls)]
        if len(set(produced)) != len(produced) or any(p in self.defined for p in produced):
            raise ParseFailure("a value is computed twice")
        properties = from_fields(cls, fields) | _limits(node["output_min_max"])
        op = cls.create(
            operands=[self._operand(identity) for identity in ids],
            result_types=[self._result_type(identity, wanted) for identity in produced],
            properties={k: to_attribute(v) for k, v in properties.items() if v is not False},
        )
        self.body.add_op(op)
        _settle(op)
        for identity, result in zip(produced, op.results, strict=True):
            self.defined[identity] = result

    def _result_type(self, identity: int, wanted: Mapping[int, Attribute]) -> Attribute:
        value = self._value(identity)
        if value.buffer:
            raise ParseFailure(f"constant {identity} is computed")
        outside = wanted.get(identity)
        if outside is not None and element(outside) == i64 and value.what == "int32":
            return with_element(value.type, i64)
        return value.type

    def _output(self, identity: int, type_: Attribute) -> SSAValue:
        if identity not in self.defined:
            raise ParseFailure(f"{WHAT}: output {identity} is not computed")
        value = self.defined[identity]
        if quantization(value.type) is not None and quantization(type_) is None:
            cast = StorageCast(value, type_)
            self.body.add_op(cast)
            value = cast.result
        if not agrees(value.type, type_, [argument.type for argument in self.body.args]):
            raise ParseFailure(f"{WHAT}: output {identity} is {value.type}, the call takes {type_}")
        return value


def _settle(op: XnnpackOp) -> None:
    """Verify a node and give its results the shapes that follow from its operands.

    XNNPACK infers shapes itself at run time; the shapes stated in a payload are not used.
    """
    op.verify(verify_nested_ops=False)
    inferred = infer(op)
    assert inferred is not None
    for result, type_ in zip(op.results, inferred, strict=True):
        set_type(result, type_)


def _limits(held: Record | None) -> dict[str, Any]:
    if held is None:
        return {}
    low, high = held["output_min"], held["output_max"]
    if math.isnan(low) or math.isnan(high):
        raise ParseFailure("the output range is not a number")
    return {
        **({} if low == -math.inf else {"output_min": float(low)}),
        **({} if high == math.inf else {"output_max": float(high)}),
    }


def _tensor(data: memoryview, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    if not len(data):
        raise ParseFailure(f"{WHAT}: a constant has no bytes")
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(list(shape))

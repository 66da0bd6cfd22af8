"""Emit a delegate op as the payload that ExecuTorch's XNNPACK backend loads.

One op becomes one node, and one SSA value one XNNPACK value; nothing is rewritten. Constants are
stored outside the payload, by the hash of their content, so that delegates share them.

XNNPACK copies ("packs") the filters and biases of convolutions and fully connected nodes when a
delegate is loaded; to every other constant it keeps a pointer. Runtimes up to 1.4.0, and later
ones built with the weights cache, free those as well, and a program loaded from a file then reads
freed memory (executorch #17559, #18663, #22779). A constant that is not packed is therefore
refused here, unless the caller knows that the runtime keeps it; it should be an operand instead.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import cast

import torch
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.backends.executorch.bounds import upper_bound
from stepwell.backends.executorch.container import Data, NamedData
from stepwell.backends.executorch.writing.emit import DelegatePayload
from stepwell.backends.executorch.writing.weight_segment import Tail, padded
from stepwell.backends.flatbuffer import Record
from stepwell.backends.flatbuffer_writer import write_root
from stepwell.backends.xnnpack.events import event_nodes
from stepwell.backends.xnnpack.nodes import input_names, output_names, to_fields
from stepwell.backends.xnnpack.schema import (
    ALIGNMENT,
    NAMED,
    NO_VALUE,
    datatypes,
    schema,
    with_header,
)
from stepwell.dialects.quant.ops import StorageCast
from stepwell.dialects.quant.types import quantization
from stepwell.dialects.xnnpack import (
    DelegateOp,
    DynamicInt8Type,
    ScaledDotProductAttention,
    XnnpackOp,
    YieldOp,
    datatype,
)
from stepwell.dialects.xnnpack.base import constant_of, constant_size, int4_size
from stepwell.dialects.xnnpack.datatypes import INT4, group_size
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import Problem, StepwellError, UnsupportedError, describe_op, quoted
from stepwell.ir.platform.process_settings import without_collection
from stepwell.ir.signature import get_signature, method_of
from stepwell.ir.types import dims, element
from stepwell.ir.weight_bytes import dense_bytes, dense_size, dense_view
from stepwell.ir.weights import WeightStore

BACKEND = "XnnpackBackend"
_INPUT, _OUTPUT = 1, 2
_LIMIT = 2**31 - 1
"""The bytes of a constant."""


def payload(
    delegate: DelegateOp,
    weights: WeightStore,
    *,
    embed_unpacked_constants: bool = False,
    tail: Tail | None = None,
    outside: Collection[str] = (),
    files: Mapping[str, str] | None = None,
) -> DelegatePayload:
    """Return the payload that ExecuTorch needs to run a delegate.

    Args:
        delegate: its operands become external values 0, 1, …, its results the following ones.
        weights: the store of the weights in the delegate.
        embed_unpacked_constants: put constants that XNNPACK does not copy into the payload; only
            for runtimes known to keep them alive (1.4.1 and later, without the weights cache).
        tail: the segment that receives the constants; without it they stay in memory.
        outside: keys of weights that are also constants of the file: those are not written again.
        files: the separate `.ptd` files of weights, by key, in which they are found by name.

    Raises:
        UnsupportedError: names every constant that would have to be embedded, and every node
            that the runtime does not run.

    """
    if problems := list(delegate_problems(delegate, embed_unpacked_constants)):
        raise UnsupportedError(problems)
    emitter = _Emitter(delegate, weights, tail, outside, files or {})
    with without_collection():
        graph = write_root(schema(), emitter.graph())
    return DelegatePayload(
        BACKEND, with_header(graph), emitter.named_data, events=event_nodes(delegate)
    )


def delegate_problems(
    delegate: DelegateOp, embed_unpacked_constants: bool = False
) -> Iterator[Problem]:
    """Yield what prevents a delegate from being written: the format's or the runtime's limits."""
    for arg in delegate.block.args:
        users = [use.operation for use in arg.uses]
        if any(map(_is_cast, users)) and (
            len({op.results[0].type for op in users}) > 1 or not all(map(_is_cast, users))
        ):
            yield Problem(
                f"input {arg.index} of a delegate is read in several types",
                describe_op(delegate),
                "a value has one datatype in XNNPACK; give it to the delegate twice",
            )
    for op in delegate.block.ops:
        if (
            isinstance(op, WeightOp)
            and dense_size(op.result.type) > _LIMIT
            and (size := constant_size(op)) > _LIMIT
        ):
            yield Problem(
                f"the constant {quoted(op.key.data)} has {size} bytes; one of a delegate has up to "
                "2 GiB",
                next((describe_op(use.operation) for use in op.result.uses), describe_op(op)),
                "quantize the weights, or split the layer",
            )
        if isinstance(op, ScaledDotProductAttention):
            yield Problem(
                f"{op.name}: ExecuTorch's runtime does not run it (Unhandled node type)",
                describe_op(op),
                "decompose it, as the lowering of aten.scaled_dot_product_attention does",
            )
        if not isinstance(op, XnnpackOp):
            continue
        for index, value in enumerate(op.operands):
            weight = constant_of(value)
            if weight is not None and not op.packs(index) and not embed_unpacked_constants:
                yield Problem(
                    f"{op.name}: operand {index} is the constant {quoted(weight.key.data)}, which "
                    "XNNPACK does not copy and runtimes free",
                    describe_op(op),
                    "hand it to the delegate as an input, or emit with "
                    "embed_unpacked_constants=True for a runtime known to keep it",
                )


def room(delegate: DelegateOp) -> int:
    """Return an upper bound of the bytes of a delegate's constants in a segment: weights and
    scales.
    """
    values = [*delegate.block.args, *(value for op in delegate.block.ops for value in op.results)]
    scales = [
        len(value_quantization.scales)
        for value in values
        if (value_quantization := quantization(value.type))
    ]
    sizes = [constant_size(op) for op in delegate.block.ops if isinstance(op, WeightOp)]
    return sum(map(padded, (*sizes, *(4 * count for count in scales))))


class _Emitter:
    def __init__(
        self,
        delegate: DelegateOp,
        weights: WeightStore,
        tail: Tail | None,
        outside: Collection[str],
        files: Mapping[str, str],
    ) -> None:
        self.tail, self.outside, self.files = tail, outside, files
        self.delegate = delegate
        self.weights = weights
        self.named_data: dict[str, NamedData] = {}
        self.values: list[Record] = []
        self.constants: list[Record] = [{"offset": 0, "size": 0, "named_key": ""}]
        self.constant_index: dict[str, int] = {}
        self.ids: dict[SSAValue, int] = {}
        self.packed_ids: dict[tuple[SSAValue, bool], int] = {}

    def graph(self) -> Record:
        """Return the root table of the payload."""
        block = self.delegate.block
        last = cast(YieldOp, block.last_op)
        types = self._storage_types()
        inputs = [
            self._value(types.get(arg, arg.type), external=index, flags=_INPUT)
            for index, arg in enumerate(block.args)
        ]
        self.ids.update(zip(block.args, inputs, strict=True))
        outputs: list[int] = []
        for index, yielded in enumerate(last.operands, len(inputs)):
            value = yielded.owner.input if isinstance(yielded.owner, StorageCast) else yielded
            self.ids[value] = self._value(value.type, external=index, flags=_OUTPUT)
            outputs.append(self.ids[value])
        nodes: list[Record] = []
        for op in block.ops:
            if isinstance(op, XnnpackOp):
                nodes.append(self._node(op, len(nodes) + 1))
            elif isinstance(op, StorageCast) and op.input in self.ids:
                self.ids[op.result] = self.ids[op.input]
        return {
            "version": "0",
            "xnodes": nodes,
            "xvalues": self.values,
            "num_externs": len(inputs) + len(outputs),
            "input_ids": inputs,
            "output_ids": outputs,
            "constant_data": self.constants,
        }

    def _storage_types(self) -> dict[SSAValue, Attribute]:
        """Return the quantized type of each input that is passed as stored integers."""
        types: dict[SSAValue, Attribute] = {}
        for arg in self.delegate.block.args:
            for use in arg.uses:
                if _is_cast(use.operation):
                    types[arg] = use.operation.results[0].type
        return types

    def _node(self, op: XnnpackOp, handle: int) -> Record:
        ids = [self._operand(op, index) for index in range(len(op.operands))]
        names = input_names(type(op))
        ids += [NO_VALUE] * (len(names) - len(ids))
        node = dict(zip(names, ids, strict=True))
        for name, result in zip(output_names(type(op)), op.results, strict=True):
            if result not in self.ids:
                self.ids[result] = self._value(result.type)
            node[name] = self.ids[result]
        record: Record = {"xnode_union": (op.NODE, node | to_fields(op)), "debug_handle": handle}
        if (limits := op.output_range) is not None:
            record["output_min_max"] = {"output_min": limits[0], "output_max": limits[1]}
        return record

    def _operand(self, op: XnnpackOp, index: int) -> int:
        value = op.operands[index]
        if value in self.ids:
            return self.ids[value]
        weight, packed = constant_of(value), op.packs(index)
        assert weight is not None, f"operand {index} of {op.name} is not defined"
        # A value that is packed anywhere is freed, so a packed and an unpacked use are two values.
        known = self.packed_ids.get((value, packed))
        if known is None:
            known = self.packed_ids[value, packed] = self._constant(weight, value.type)
        return known

    # -- values --------------------------------------------------------------------------------

    def _value(
        self,
        type_: Attribute,
        *,
        buffer: int = 0,
        external: int = NO_VALUE,
        flags: int = 0,
        scales: tuple[str, str] | None = None,
    ) -> int:
        """Declare a value of this type and return its id.

        `scales` are the name and the file of a weight in a `.ptd`; its scales go there, too.
        """
        what = datatype(type_)
        assert what is not None, f"{type_} is not verified"
        sizes = [d if isinstance(d, int) else self._bound(str(d)) for d in dims(type_)]
        value = len(self.values)
        record: Record = {
            "datatype": datatypes()[what],
            "num_dims": len(sizes),
            "dims": sizes,
            "constant_buffer_idx": buffer,
            "external_id": external,
            "flags": flags,
            "id_out": value,
        }
        parameters = self._quantization(type_, what, scales)
        if parameters is None:
            self.values.append({"xvalue_union": ("XNNTensorValue", record)})
        else:
            quantized = {"tensor_value": record, "quant_params": parameters}
            self.values.append({"xvalue_union": ("XNNQuantizedTensorValue", quantized)})
        return value

    def _quantization(
        self, type_: Attribute, what: str, named: tuple[str, str] | None
    ) -> tuple[str, Record] | None:
        if isinstance(type_element := element(type_), DynamicInt8Type):
            return "PerTokenDynamicQuant", {"num_nonbatch_dims": type_element.data}
        params = quantization(type_)
        if params is None:
            return None
        if params.is_per_tensor:
            return "PerTensorQuant", {"scale": params.scale, "zero_point": params.zero_point}
        scales = params.scale_values()
        if what == "qbint4":
            scales = scales.to(torch.bfloat16)
        data = dense_bytes(scales)
        record: Record = {
            "scale": [],
            "channel_dim": params.axis or 0,
            "scale_buffer_idx": (
                self._buffer(_content_key(data), data)
                if named is None
                else self._buffer(f"{named[0]}.scales", data, file=named[1])
            ),
            "num_scales": len(params.scales),
        }
        if what == "qbint4":
            return "PerChannelGroupQuant", record | {"group_size": group_size(params)}
        return "PerChannelQuant", record

    def _bound(self, dim: str) -> int:
        """Return the upper bound of a symbolic size."""
        if self._ranges is None:
            raise StepwellError(
                f"size {dim} has no bound: the delegate is not in a method",
                describe_op(self.delegate),
            )
        return upper_bound(dim, self._ranges)

    @cached_property
    def _ranges(self) -> Mapping[str, tuple[int, int | None]] | None:
        """Return the bounds of the method's symbols, or None outside a method."""
        func = method_of(self.delegate)
        return None if func is None else get_signature(func).ranges

    # -- constants -----------------------------------------------------------------------------

    def _constant(self, weight: WeightOp, type_: Attribute) -> int:
        key, weights, size = weight.key.data, self.weights, dense_size(weight.result.type)
        data: Data
        is_int4 = datatype(type_) in INT4
        file = self.files.get(key)
        if file is not None:
            held = weights.get(key)
            data = dense_bytes(pack_int4(held)) if is_int4 else dense_view(held)
            key += ".int4" * is_int4
            return self._value(type_, buffer=self._buffer(key, data, file=file), scales=(key, file))
        is_shared = key in self.outside and not is_int4
        if self.tail is None or is_shared:
            name, held = weights.content_hash(key), weights.get(key)
            data = dense_bytes(pack_int4(held)) if is_int4 else dense_view(held)
        else:
            encoded = key + ".int4" * is_int4
            if encoded in self.tail.names:
                data = self.tail.segments[name := self.tail.names[encoded]]
            else:
                data = self.tail.place(int4_size(weight.result.type) if is_int4 else size, key)
                put = self.tail.put if data.readonly else None
                name = weights.write(key, data, pack_int4 if is_int4 else None, put)
                name = self.tail.name_for(name + ".int4" * is_int4, data)
                self.tail.names[encoded] = name
            return self._value(type_, buffer=self._buffer(name, data))
        name += ".int4" * is_int4
        return self._value(type_, buffer=self._buffer(name, data, is_shared=is_shared))

    def _buffer(
        self, key: str, data: Data, *, is_shared: bool = False, file: str | None = None
    ) -> int:
        """Return the index of a constant in the payload's table; add it if its key is new."""
        index = self.constant_index.get(key)
        if index is None:
            index = self.constant_index[key] = len(self.constants)
            self.constants.append({"offset": NAMED, "size": len(data), "named_key": key})
            if self.tail is not None and not is_shared and file is None:
                data = self.tail.keep(key, data)
            self.named_data[key] = NamedData(data, ALIGNMENT, file)
        return index


def _is_cast(op: Operation) -> bool:
    return isinstance(op, StorageCast)


def _content_key(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pack_int4(weight: torch.Tensor) -> torch.Tensor:
    """Pack rows of numbers from -8 to 7 as XNNPACK does: plus 8, two to a byte, low half first.

    Args:
        weight: `[outputs, inputs]`; an odd row is padded with a 0 that is never read.

    """
    if weight.shape[-1] % 2:
        weight = torch.nn.functional.pad(weight, (0, 1))
    flat = weight.reshape(-1)
    if flat.numel() % 8:
        flat = torch.nn.functional.pad(flat, (0, -flat.numel() % 8))
    elif flat.data_ptr() % 8 or flat.storage_offset() % 8:
        flat = flat.clone()
    words = flat.view(torch.int64) & 0x0F0F0F0F0F0F0F0F  # Eight numbers; the first is lowest.
    words.bitwise_or_(words >> 4)  # The low byte of each pair now has both.
    words.bitwise_xor_(0x0088008800880088)  # Adding 8 to a nibble flips its top bit.
    packed = words.view(torch.int16).to(torch.uint8)
    rows = (*weight.shape[:-1], weight.shape[-1] // 2)
    return packed[: weight.numel() // 2].view(rows)


def unpack_int4(packed: torch.Tensor, inputs: int) -> torch.Tensor:
    """Return the inverse of `pack_int4`: int8 numbers from -8 to 7, `[outputs, inputs]`."""
    low, high = packed & 15, packed >> 4
    pairs = torch.stack((low, high), dim=-1).reshape(packed.shape[0], -1)
    return pairs[:, :inputs].to(torch.int8) - 8

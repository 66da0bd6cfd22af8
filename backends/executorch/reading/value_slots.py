"""Track the SSA value of each slot of a method while its instructions are read in order.

A slot is a value of the method, or the bytes to which it refers (`arena`). A weight is added when
it is first read. Bytes that are read before they are written are state from the previous call.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from xdsl.ir import Attribute, Block, Operation, SSAValue

from stepwell.backends.executorch.container import (
    BoolList,
    Constant,
    Container,
    Data,
    DoubleList,
    Dynamism,
    External,
    IntList,
    Method,
    OptionalTensorList,
    Planned,
    State,
    Storage,
    TensorList,
    TensorValue,
    contiguous,
    strides,
)
from stepwell.backends.executorch.kernels.scalar_types import torch_dtype
from stepwell.backends.executorch.reading.arena import Arena
from stepwell.dialects.aten import CloneDefault
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.core import StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import ParseFailure, StepwellError, UnsupportedError
from stepwell.ir.dtypes import element_type
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import AnyTensor, Dim, dims, element, tensor
from stepwell.ir.weights import WeightStore
from stepwell.translate.rewrites.views.memory import is_laid_out

MAX_STATE = 2**32
"""The largest state without an initial value, in bytes, since a small file can request any size."""


class Places:
    """The values of one method, read and written by its instructions.

    `ranges` collects the bounds of the symbols created for dynamic dimensions.
    """

    def __init__(
        self,
        container: Container,
        method: Method,
        store: WeightStore,
        external: Mapping[str, Data],
        block: Block,
    ) -> None:
        self.container = container
        self.method = method
        self.stated = list(method.values)
        """The method's values; a tensor of dynamic shape gets its sizes when they are known."""
        self.store = store
        self.external = external
        self.block = block
        self.values: dict[int, SSAValue] = {}
        self.arenas: dict[int, Arena[int]] = {}
        self.states: dict[tuple[int, int], str] = {}
        self.entered: dict[str, SSAValue] = {}
        self.declared: dict[str, int] = {}
        """The value as which a state was first read."""
        self.weights: dict[int, SSAValue] = {}
        self.ranges: dict[str, tuple[int, int | None]] = {}
        self.numbers: dict[int, Any] = {}
        """The static numbers that instructions assigned to values, by the value's index."""
        self.stored: dict[int, SSAValue] | None = None
        """In the body of a loop that stacks slices: tensor → the slice stored in it."""

    def add(self, op: Operation) -> SSAValue:
        """Append an op to the block that is being read; return its first result."""
        self.block.add_op(op)
        return op.results[0]

    def op(self, name: str, *args: Any, types: Sequence[Attribute], **kwargs: Any) -> SSAValue:
        """Append an ATen op to the block that is being read; return its first result."""
        return self.add(op_class(name).make(*args, result_types=types, **kwargs))

    def type_of(self, index: int) -> AnyTensor:
        """Return the type that a tensor value declares; each dynamic dimension gets a new
        symbol.
        """
        value = self.tensor(index)
        stored = element_type(torch_dtype(value.scalar_type))
        if value.dynamism is Dynamism.STATIC:
            return tensor(value.sizes, stored)
        shape: list[Dim] = []
        for axis, size in enumerate(value.sizes):
            symbol = f"v{index}_{axis}"
            bounded = value.dynamism is Dynamism.BOUNDED
            self.ranges[symbol] = (0, size if bounded else None)
            shape.append(Size.symbol(symbol))
        return tensor(shape, stored)

    def settle(self, index: int, sizes: Sequence[int]) -> None:
        """Give a tensor of dynamic shape its sizes."""
        value = self.tensor(index)
        if value.dynamism is not Dynamism.STATIC:
            self.stated[index] = replace(value, sizes=tuple(sizes), dynamism=Dynamism.STATIC)

    def tensor(self, index: int) -> TensorValue:
        """Return value `index` of the method, which must be a tensor."""
        value = self.stated[index]
        if not isinstance(value, TensorValue):
            raise ParseFailure(f"value {index} is no tensor", f"method {self.method.name}")
        return value

    def write(self, index: int, value: SSAValue) -> None:
        """Record that the slot of value `index` now contains an SSA value."""
        self.values[index] = value
        self.numbers.pop(index, None)
        if (place := self.place_of(index)) is not None:
            arena, start, end = place
            arena.write(start, end, index)

    def place_of(self, index: int) -> tuple[Arena[int], int, int] | None:
        """Return the arena and byte range of a value; None if it has no bytes in an arena."""
        declared = self.stated[index]
        if not isinstance(declared, TensorValue) or not declared.nbytes:
            return None
        if not isinstance(declared.storage, Planned | State):
            return None
        start = declared.storage.offset
        arena = self.arenas.setdefault(declared.storage.memory_id, Arena())
        return arena, start, start + declared.nbytes

    def read(self, index: int) -> SSAValue:
        """Return the SSA value that value `index` currently holds."""
        declared = self.stated[index]
        if not isinstance(declared, TensorValue):
            if index not in self.values:
                return self._unwritten(index)
            return self.values[index]
        storage = declared.storage
        if isinstance(storage, Constant | External):
            return self._weight(index, declared)
        place = self.place_of(index)
        if storage is None or place is None:
            if index in self.values:
                return self.values[index]
            return self._undefined(index, declared)
        arena, start, end = place
        held = arena.read(start)
        if (held is None and arena.covering(start, end) is None) or self._is_new(storage):
            return self._at_entry(index, declared, storage)
        if held is not None and held.content == index:
            return self.values[index]
        if held is None or not self._is_readable_as(held.content, declared):
            gathered = self._gathered(arena, index, declared)
            if gathered is not None:
                return gathered
            first = arena.covering(start, start + 1) if held is None else [held]
            whose = "other values" if not first else f"value {first[0].content}"
            raise UnsupportedError(
                f"value {index} cannot be read from bytes that {whose} wrote",
                f"method {self.method.name}",
            )
        return self._seen_as(held.content, index)

    def laid_out(self, value: SSAValue) -> SSAValue:
        """Return a value in row-major order, as a kernel expects it, if torch's layout may
        differ.
        """
        for use in value.uses:
            if isinstance(use.operation, CloneDefault) and is_laid_out(use.operation.results[0]):
                return use.operation.results[0]
        laid_out = {"memory_format": "contiguous_format"}
        return self.op("aten.clone.default", value, **laid_out, types=[value.type])

    def _runs(self, arena: Arena[int], declared: TensorValue) -> list[tuple[int, int, int]] | None:
        """Return the writers whose bytes a tensor covers, in order: value, first and last element.

        The result is None if some bytes were not written, or were written as another element type.
        """
        assert isinstance(declared.storage, Planned | State)
        start = declared.storage.offset
        end = start + declared.nbytes
        found = arena.covering(start, end)
        if found is None:
            return None
        size = torch_dtype(declared.scalar_type).itemsize
        runs: list[tuple[int, int, int]] = []
        for held in found:
            first, last = max(start, held.start) - held.origin, min(end, held.end) - held.origin
            kind = self.tensor(held.content).scalar_type
            if kind != declared.scalar_type or first % size or last % size:
                return None
            runs.append((held.content, first // size, last // size))
        return runs

    def _gathered(self, arena: Arena[int], index: int, declared: TensorValue) -> SSAValue | None:
        """Return a tensor over a part of a written value, or over several parts in sequence."""
        found = self._runs(arena, declared)
        if found is None:
            return None
        runs = [self._run(writer, self.tensor(writer), *span) for writer, *span in found]
        lying = [declared.sizes[axis] for axis in declared.dim_order]
        kind = element(runs[0].type)
        if len(runs) > 1:
            count = math.prod(lying)
            runs = [self.op("aten.cat.default", runs, 0, types=[tensor([count], kind)])]
        value = self.as_type(index, runs[0], tensor(lying, kind))
        back = [declared.dim_order.index(axis) for axis in range(len(lying))]
        return self.permuted(value, back)

    def _run(self, content: int, writer: TensorValue, first: int, last: int) -> SSAValue:
        """Return elements `first` to `last` (excluded) of a written value, in memory order."""
        value = self.permuted(self.values[content], writer.dim_order)
        count, kind = math.prod(writer.sizes), element(value.type)
        flat = self.as_type(content, value, tensor([count], kind))
        if (first, last) == (0, count):
            return flat
        result_type = tensor([last - first], kind)
        return self.op("aten.slice.Tensor", flat, 0, first, last, 1, types=[result_type])

    def _seen_as(self, content: int, index: int) -> SSAValue:
        """Return the bytes of value `content`, with the sizes and dim order of value `index`."""
        writer, declared = self.tensor(content), self.tensor(index)
        value = self.values[content]
        if writer.dim_order == declared.dim_order and value.type == self.type_of(index):
            return value
        value = self.permuted(value, writer.dim_order)
        if declared.dim_order == contiguous(len(declared.sizes)):
            return self.as_type(content, value, self.type_of(index))
        lying = [declared.sizes[axis] for axis in declared.dim_order]
        value = self.as_type(content, value, tensor(lying, element(value.type)))
        back = [declared.dim_order.index(axis) for axis in range(len(lying))]
        return self.permuted(value, back)

    def permuted(self, value: SSAValue, order: Sequence[int]) -> SSAValue:
        """Return a value with its dimensions in another order."""
        if tuple(order) == contiguous(len(order)):
            return value
        types = [permuted_type(value.type, order)]
        return self.op("aten.permute.default", value, list(order), types=types)

    def _is_new(self, storage: Storage) -> bool:
        """Whether a slot is state that has not been read yet."""
        return isinstance(storage, State) and (storage.memory_id, storage.offset) not in self.states

    def _unwritten(self, index: int) -> SSAValue:
        raise ParseFailure(
            f"value {index} is read before anything wrote it", f"method {self.method.name}"
        )

    def _undefined(self, index: int, declared: TensorValue) -> SSAValue:
        if 0 in declared.sizes:
            key = self.store.constant(
                torch.empty(declared.sizes, dtype=torch_dtype(declared.scalar_type)), "empty"
            )
            return self.add(WeightOp(key, self.type_of(index)))
        return self._unwritten(index)

    def as_type(self, index: int, value: SSAValue, type_: Attribute) -> SSAValue:
        """Reinterpret the same bytes with another shape."""
        if value.type == type_:
            return value
        shape = dims(type_)
        if not all(isinstance(d, int) for d in shape):
            if self.tensor(index).sizes == tuple(self.ranges.get(str(d), (0, d))[1] for d in shape):
                return value
            raise UnsupportedError(
                f"value {index} is read in another shape, which is dynamic",
                f"method {self.method.name}",
            )
        return self.op("aten.view.default", value, list(shape), types=[type_])

    def _weight(self, index: int, declared: TensorValue) -> SSAValue:
        if index not in self.weights:
            key = self._weight_key(declared)
            op = WeightOp(key, self.type_of(index))
            later = [i for i in self.weights if i > index and self._is_defined(self.weights[i])]
            first = self.block.first_op
            if later:
                self.block.insert_op_before(op, cast(Operation, self.weights[min(later)].owner))
            elif earlier := [i for i in self.weights if self._is_defined(self.weights[i])]:
                self.block.insert_op_after(op, cast(Operation, self.weights[max(earlier)].owner))
            elif first is not None:
                self.block.insert_op_before(op, first)
            else:
                self.block.add_op(op)
            self.weights[index] = op.result
        return self.weights[index]

    def _is_defined(self, weight: SSAValue) -> bool:
        return isinstance(weight.owner, Operation) and weight.owner.parent is self.block

    def _weight_key(self, declared: TensorValue) -> str:
        storage = declared.storage
        if isinstance(storage, External):
            if storage.key not in self.external:
                raise StepwellError(
                    f"the constant {storage.key!r} is kept in a separate .ptd file",
                    help="pass that file, too",
                )
            data, base = self.external[storage.key], declared.name or storage.key
        else:
            assert isinstance(storage, Constant)
            data = self.container.constants[storage.index]
            base = declared.name or f"constant_{storage.index}"
        shape = "x".join(map(str, declared.sizes))
        for key in (base, f"{base}.{declared.scalar_type.name.lower()}{shape}"):
            tensor_ = as_tensor(declared, data)
            if key not in self.store:
                return self.store.add(key, tensor_)
            if _is_same(self.store.get(key), tensor_):
                return key
        return self.store.constant(as_tensor(declared, data), base)

    def _at_entry(self, index: int, declared: TensorValue, storage: Planned | State) -> SSAValue:
        """Return the value of a slot at the start of a call: initial, or from the last call."""
        place = (storage.memory_id, storage.offset)
        key = declared.name or f"state_{place[0]}_{place[1]}"
        if key not in self.store:
            if declared.nbytes > MAX_STATE:
                raise UnsupportedError(
                    f"state {key} has {declared.nbytes} bytes; at most {MAX_STATE} are read",
                    f"method {self.method.name}",
                )
            initial = (
                as_tensor(declared, self.container.mutable_data[storage.initial])
                if isinstance(storage, State)
                else torch.zeros(declared.sizes, dtype=torch_dtype(declared.scalar_type))
            )
            self.store.add(key, initial)
        op = StateOp(key, self.type_of(index))
        self.add(op)
        self.states[place] = key
        self.entered[key] = op.result
        self.declared[key] = index
        self.write(index, op.result)
        return op.result

    def argument(self, index: int) -> Any:
        """Return a kernel argument: an SSA value, a list, or a Python value."""
        value = self.stated[index]
        match value:
            case TensorValue():
                return self.read(index)
            case TensorList(items) | OptionalTensorList(items) | IntList(items):
                return [None if item < 0 else self.argument(item) for item in items]
            case BoolList(items) | DoubleList(items):
                return list(items)
            case _:
                return self.values.get(index, self._number(index))

    def _number(self, index: int) -> Any:
        return self.numbers.get(index, self.stated[index])

    def defines(self, index: int) -> bool:
        """Whether reading value `index` now yields a value that was written."""
        declared = self.stated[index]
        if not isinstance(declared, TensorValue):
            return index in self.values or index in self.numbers
        storage = declared.storage
        if isinstance(storage, Constant | External | State):
            return True
        place = self.place_of(index)
        if place is None:
            return index in self.values
        arena, start, _ = place
        held = arena.read(start)
        if held is not None and self._is_readable_as(held.content, declared):
            return True
        return self._runs(arena, declared) is not None

    def _is_readable_as(self, content: int, declared: TensorValue) -> bool:
        writer = self.tensor(content)
        return writer.scalar_type == declared.scalar_type and math.prod(writer.sizes) == math.prod(
            declared.sizes
        )

    def forget(self, index: int) -> None:
        """Mark the contents of the slot of value `index` as unknown."""
        self.values.pop(index, None)
        self.numbers.pop(index, None)
        place = self.place_of(index)
        if place is not None and not self._is_new(self.tensor(index).storage):
            arena, start, end = place
            arena.erase(start, end)

    def know(self, target: int, number: Any) -> None:
        """Assign a static number to value `target` of the method."""
        self.values.pop(target, None)
        self.numbers[target] = number

    def assign(self, target: int, source: int) -> None:
        """Assign value `source`, a number or the contents of its slot, to value `target`."""
        if not isinstance(self.stated[source], TensorValue):
            argument = self.argument(source)
            if not isinstance(argument, SSAValue):
                self.know(target, argument)
                return
        self.write(target, self.read(source))

    def write_updates(self) -> None:
        """Append the updates of every state that was written, completely or in part.

        Raises:
            UnsupportedError: bytes of a state are unknown at the end, or contain another type.
        """
        for place, key in self.states.items():
            value = self._at_exit(self.arenas[place[0]], key)
            if value is not self.entered[key]:
                self.block.add_op(UpdateOp(key, value))

    def _at_exit(self, arena: Arena[int], key: str) -> SSAValue:
        index = self.declared[key]
        declared = self.tensor(index)
        assert isinstance(declared.storage, Planned | State)
        held = arena.read(declared.storage.offset)
        if held is not None and self._is_readable_as(held.content, declared):
            return self._seen_as(held.content, index)
        gathered = self._gathered(arena, index, declared)
        if gathered is None:
            raise UnsupportedError(
                f"only a part of the final content of state {key} is known",
                f"method {self.method.name}",
            )
        return gathered


def permuted_type(type_: Attribute, order: Sequence[int]) -> AnyTensor:
    """Return a tensor type with its dimensions in another order."""
    shape = dims(type_)
    return tensor([shape[axis] for axis in order], element(type_))


def dim_order_of(value: TensorValue) -> tuple[int, ...] | None:
    """Return a dim order, or None if it is row-major."""
    return None if value.dim_order == contiguous(len(value.sizes)) else value.dim_order


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are identical: the same bytes with the same sizes and strides."""
    return (a.data_ptr(), a.dtype, a.shape, a.stride()) == (
        b.data_ptr(),
        b.dtype,
        b.shape,
        b.stride(),
    )


def as_tensor(declared: TensorValue, data: Data) -> torch.Tensor:
    """Return a torch tensor over a value's bytes; a view of them if they are writable."""
    view = memoryview(data)
    if view.readonly or not len(view):
        view = memoryview(bytearray(view))
    dtype = torch_dtype(declared.scalar_type)
    count = math.prod(declared.sizes)
    if not count:
        return torch.empty(declared.sizes, dtype=dtype)
    try:
        flat = torch.frombuffer(view, dtype=dtype, count=count)
    except ValueError as error:
        raise ParseFailure(f"a constant's bytes: {error}") from None
    return flat.as_strided(declared.sizes, strides(declared.sizes, declared.dim_order))

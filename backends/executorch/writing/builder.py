"""Build a container: number values, deduplicate constants, plan memory at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from stepwell.backends.executorch.container import (
    BoolList,
    Constant,
    Container,
    Data,
    Delegate,
    DelegateCall,
    DoubleList,
    Dynamism,
    External,
    Instruction,
    IntList,
    JumpFalse,
    KernelCall,
    Method,
    Move,
    NamedData,
    OptionalTensorList,
    Planned,
    ScalarType,
    State,
    TensorList,
    TensorValue,
    Value,
    are_equal,
    contiguous,
    sampled,
    touched,
)
from stepwell.backends.executorch.writing.memory import (
    ALIGNMENT,
    Lifetime,
    plan_memory,
    widened_by_loops,
)
from stepwell.backends.executorch.writing.partial_lifetimes import Buffer, Piece, plan_pieces
from stepwell.ir.diagnostics import StepwellError

ACTIVATIONS, STATE = 1, 2
"""Memory ids. State has a separate id, at the same offsets in every method: the runtime shares
arenas between methods, and activations of one method would overwrite the state of another."""

_MOST_SEARCHED = 128
"""Limit of buffers for the search, run if placing in order leaves over a sixteenth unused."""


class ContainerBuilder:
    """Collects methods and the data that they share: constants, state, named data."""

    def __init__(self, *, external_constants: bool = False) -> None:
        """Create a builder; `external_constants` puts constants into a separate `.ptd` file, by
        content hash.
        """
        self._external_constants = external_constants
        self._constants: list[Data] = [b""]
        self._constant_of: dict[tuple[int, bytes], list[int]] = {}
        self._states: dict[str, tuple[State | Planned, int]] = {}
        self._state_bytes = 0
        self._mutable_data: list[Data] = [b""]
        self._mutable_of: dict[bytes, int] = {}
        self._named: dict[str, NamedData] = {}
        self._external: dict[str, NamedData] = {}
        self._methods: dict[str, MethodBuilder] = {}

    def method(self, name: str) -> MethodBuilder:
        """Return a builder for a new method."""
        if name in self._methods:
            raise StepwellError(f"method {name!r} is declared more than once")
        self._methods[name] = MethodBuilder(self, name)
        return self._methods[name]

    def constant(
        self, data: Data, name: str | None = None, file: str | None = None
    ) -> Constant | External:
        """Return the storage of a constant with these bytes; equal bytes are stored once.

        With `file`, the constant is stored in that `.ptd` under `name`.
        """
        if file is not None and name is not None:
            self._external.setdefault(name, NamedData(data, ALIGNMENT, file))
            return External(name)
        if self._external_constants:
            key = f"constant_{hashlib.sha256(data).hexdigest()[:32]}_{len(data)}"
            self._external.setdefault(key, NamedData(data, ALIGNMENT))
            return External(key)
        alike = self._constant_of.setdefault((len(data), sampled(data)), [])
        for index in alike:
            if are_equal(self._constants[index], data):
                return Constant(index)
        alike.append(len(self._constants))
        self._constants.append(data)
        return Constant(alike[-1])

    def state(self, key: str, initial: Data, *, stored: bool = True) -> State | Planned:
        """Return the storage of the state `key`, the same in every method that uses it.

        Equal initial values are stored once. An initial value that is not `stored` is not in the
        file, so that the state begins with arbitrary memory.
        """
        known = self._states.get(key)
        if known is not None:
            if known[1] != len(initial):
                raise StepwellError(
                    f"state {key!r} has {len(initial)} bytes here, {known[1]} before: "
                    "methods that share a state must agree on its size"
                )
            return known[0]
        state: State | Planned = Planned(STATE, self._state_bytes)
        if stored:
            state = State(STATE, self._state_bytes, self._initial(initial))
        self._states[key] = (state, len(initial))
        self._state_bytes += (len(initial) + ALIGNMENT - 1) & -ALIGNMENT
        return state

    def _initial(self, data: Data) -> int:
        digest = hashlib.sha256(data).digest()
        index = self._mutable_of.setdefault(digest, len(self._mutable_data))
        if index == len(self._mutable_data):
            self._mutable_data.append(data)
        return index

    def add_named_data(self, named: Mapping[str, NamedData], *, external: bool = False) -> None:
        """Add data that delegates request by key; a key may be repeated with the same bytes."""
        for key, value in named.items():
            into = self._external if external or value.file is not None else self._named
            known = into.get(key)
            if known is None:
                into[key] = value
            elif known.data is not value.data and bytes(known.data) != bytes(value.data):
                raise StepwellError(f"two delegates have different data under the name {key!r}")
            elif known.alignment < value.alignment:
                into[key] = replace(known, alignment=value.alignment)

    def finish(self) -> Container:
        """Plan the memory of every method and return the container."""
        return Container(
            methods=tuple(b.finish(self._state_bytes) for b in self._methods.values()),
            constants=tuple(self._constants),
            mutable_data=tuple(self._mutable_data),
            named_data=dict(self._named),
            external_data=dict(self._external),
        )


class MethodBuilder:
    """Collects the values and instructions of one method, in execution order."""

    def __init__(self, container: ContainerBuilder, name: str) -> None:
        self._container = container
        self._name = name
        self._values: list[Value] = []
        self._scalars: dict[tuple[type, object], int] = {}
        self._planned: dict[int, int] = {}  # Tensor value -> the value whose storage it has.
        self._within: dict[int, int] = {}  # Tensor value -> its first byte there, if not 0.
        self._instructions: list[Instruction] = []
        self._delegates: list[Delegate] = []
        self._inputs: list[int] = []
        self._debug_handles: dict[int, tuple[int, ...]] = {}
        self.node_names: dict[int, str] = {}
        """Debug handle to the name of the model's node, for the Inspector."""

    def tensor(
        self,
        scalar_type: ScalarType,
        sizes: Sequence[int],
        *,
        dim_order: Sequence[int] | None = None,
        dynamism: Dynamism = Dynamism.STATIC,
        storage_of: int | None = None,
        offset: int = 0,
        borrowed: bool = False,
    ) -> int:
        """Add a tensor value, whose memory is planned when the method is finished.

        `sizes` are upper bounds if the tensor is dynamic. `storage_of` names another tensor of
        this method whose bytes this one shares, from byte `offset` on (a view of it). A `borrowed`
        input is in the caller's memory, and the caller sees writes to it.
        """
        index = self._add(
            TensorValue(
                scalar_type,
                tuple(sizes),
                tuple(dim_order) if dim_order is not None else contiguous(len(sizes)),
                dynamism=dynamism,
            )
        )
        if borrowed:
            return index
        if storage_of is None:
            self._planned[index] = index
        else:
            base = self._values[storage_of]
            assert isinstance(base, TensorValue)
            if storage_of in self._planned:
                self._planned[index] = self._planned[storage_of]
                self._within[index] = self._within.get(storage_of, 0) + offset
            else:
                assert not offset, "a part of a constant is a constant of its own"
                value = self._values[index]
                assert isinstance(value, TensorValue)
                self._values[index] = replace(value, storage=base.storage)
        return index

    def place(self, value: int, whole: int, offset: int) -> None:
        """Place a tensor with its own memory, and all that share it, within another's memory."""
        base, into = self._planned[value], self._planned[whole]
        assert base != into and not self._within.get(value, 0), "it has a place already"
        moved = self._within.get(whole, 0) + offset
        for index, held in self._planned.items():
            if held == base:
                self._planned[index] = into
                self._within[index] = self._within.get(index, 0) + moved

    def constant(
        self,
        scalar_type: ScalarType,
        sizes: Sequence[int],
        data: Data,
        *,
        name: str | None = None,
        file: str | None = None,
    ) -> int:
        """Add a constant tensor of these bytes (dense, row-major), optionally in a `.ptd`."""
        order = contiguous(len(sizes))
        if not len(data):  # No bytes to point to: an unplanned tensor without elements.
            return self._add(TensorValue(scalar_type, tuple(sizes), order, Planned(ACTIVATIONS, 0)))
        storage = self._container.constant(data, name, file)
        return self._add(TensorValue(scalar_type, tuple(sizes), order, storage, name=name))

    def state(
        self,
        key: str,
        scalar_type: ScalarType,
        sizes: Sequence[int],
        initial: Data,
        *,
        stored: bool = True,
    ) -> int:
        """Add a mutable tensor that keeps its value between calls, shared under `key`.

        A tensor that is not `stored` has no initial value in the file.
        """
        order = contiguous(len(sizes))
        storage = self._container.state(key, initial, stored=stored)
        return self._add(TensorValue(scalar_type, tuple(sizes), order, storage, name=key))

    def scalar(self, value: bool | int | float | str | None) -> int:
        """Add a constant scalar or None; equal ones are one value."""
        key = (type(value), repr(value))
        index = self._scalars.get(key)
        if index is None:
            index = self._scalars[key] = self._add(value)
        return index

    def variable(self, initial: bool | int | float) -> int:
        """Add a separate scalar that an instruction writes."""
        return self._add(initial)

    def ints(self, items: Iterable[int]) -> int:
        """Add a constant list of ints."""
        return self.list_of_ints([self.scalar(int(item)) for item in items])

    def list_of_ints(self, items: Sequence[int]) -> int:
        """Add a list of ints given by their value indices, which may be dynamic."""
        return self._constant_value(IntList(tuple(items)))

    def bools(self, items: Iterable[bool]) -> int:
        """Add a list of booleans."""
        return self._constant_value(BoolList(tuple(items)))

    def floats(self, items: Iterable[float]) -> int:
        """Add a list of floats."""
        return self._constant_value(DoubleList(tuple(float(item) for item in items)))

    def tensors(self, items: Sequence[int | None], *, optional: bool = False) -> int:
        """Add a list of tensor values; `optional` for kernels that take `Tensor?[]`."""
        if optional:
            return self._constant_value(
                OptionalTensorList(tuple(-1 if item is None else item for item in items))
            )
        assert all(item is not None for item in items)
        return self._constant_value(TensorList(tuple(item for item in items if item is not None)))

    def input(self, value: int) -> None:
        """Declare a value as an input; inputs are ordered as declared."""
        self._inputs.append(value)

    def call(self, kernel: str, args: Sequence[int], handles: Sequence[int] = ()) -> None:
        """Add a kernel call. Its arguments are those of its schema in order, outputs included, then
        the values that it returns (an `.out` kernel's output therefore occurs twice).
        """
        self._emit(KernelCall(kernel, tuple(args)), handles)

    def delegate(
        self, delegate: Delegate, args: Sequence[int], handles: Sequence[int] = ()
    ) -> None:
        """Add a delegate call: its inputs, then its outputs."""
        self._delegates.append(delegate)
        self._emit(DelegateCall(len(self._delegates) - 1, tuple(args)), handles)

    def move(self, source: int, target: int) -> None:
        """Assign the scalar `source` to the variable `target`.

        Between tensors a move would make two values share bytes without the memory planner's
        knowledge; copy them with a kernel.
        """
        for index in (source, target):
            if isinstance(self._values[index], TensorValue):
                raise StepwellError(f"value {index} is a tensor, which a move does not copy")
        self._emit(Move(source, target))

    def jump_if_false(self, condition: int) -> int:
        """Add a jump whose target `land` sets; return the instruction's number."""
        self._emit(JumpFalse(condition, 0))
        return len(self._instructions) - 1

    def jump_back(self, condition: int, target: int) -> None:
        """Add a jump to instruction `target`, taken if `condition` is false."""
        self._emit(JumpFalse(condition, target))

    @property
    def here(self) -> int:
        """Return the number of the next instruction."""
        return len(self._instructions)

    def land(self, jump: int) -> None:
        """Set the target of the jump at instruction `jump` to the next instruction."""
        instruction = self._instructions[jump]
        assert isinstance(instruction, JumpFalse)
        self._instructions[jump] = JumpFalse(instruction.condition, self.here)

    def outputs(
        self, values: Sequence[int], *, input_spec: str = "", output_spec: str = ""
    ) -> None:
        """Declare the method's outputs, and the pytree specs of inputs and outputs."""
        self._outputs = tuple(values)
        self._specs = (input_spec, output_spec)

    def value(self, index: int) -> Value:
        """Return the value that was added to the method at this index."""
        return self._values[index]

    def tensor_of(self, index: int) -> TensorValue:
        """Return the value with this index, which must be a tensor."""
        value = self._values[index]
        assert isinstance(value, TensorValue), f"value {index} is no tensor"
        return value

    def can_be_viewed(self, index: int) -> bool:
        """Whether other tensors may refer to a tensor's bytes, because no later instruction writes
        to them.
        """
        value = self._values[index]
        return index in self._planned or (
            isinstance(value, TensorValue) and isinstance(value.storage, Constant | External)
        )

    def share_storage(self, first: int, second: int) -> bool:
        """Whether two values are the same tensor or name the same bytes."""
        a, b = self._planned.get(first, first), self._planned.get(second, second)
        return a == b

    def finish(self, state_bytes: int) -> Method:
        """Plan memory and return the method; called by the container's builder."""
        arena = self._place_tensors()
        return Method(
            self._name,
            tuple(self._values),
            tuple(self._inputs),
            self._outputs,
            tuple(self._instructions),
            tuple(self._delegates),
            (0, arena, state_bytes) if state_bytes else (0, arena),
            *self._specs,
            self._debug_handles,
            self.node_names,
        )

    def _add(self, value: Value) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _constant_value(self, value: Value) -> int:
        key = (type(value), value)
        index = self._scalars.get(key)
        if index is None or isinstance(value, DoubleList):  # 0.0 == -0.0, and NaN differs.
            index = self._scalars[key] = self._add(value)
        return index

    def _emit(self, instruction: Instruction, handles: Sequence[int] = ()) -> None:
        if handles:
            self._debug_handles[len(self._instructions)] = tuple(handles)
        self._instructions.append(instruction)

    def _place_tensors(self) -> int:
        """Set the offset of every planned tensor; return the size of the arena in bytes."""
        buffers = self._buffers()
        bases = sorted(buffers)
        held = [buffers[base] for base in bases]
        if all(len(buffer.pieces) <= 1 for buffer in held):
            spans = [Lifetime(b.size, b.first, b.last) for b in held]
            plan = plan_memory(spans)
            is_far = plan.arena_size > plan.lower_bound + plan.lower_bound // 16
            if is_far and len(held) <= _MOST_SEARCHED:
                plan = min(plan, plan_pieces(held), key=lambda found: found.arena_size)
        else:
            plan = plan_pieces(held)
        offsets = dict(zip(bases, plan.offsets, strict=True))
        for index, base in self._planned.items():
            value = self._values[index]
            assert isinstance(value, TensorValue)
            offset = offsets.get(base, 0) + self._within.get(index, 0)
            self._values[index] = replace(value, storage=Planned(ACTIVATIONS, offset))
        return max(plan.arena_size, ALIGNMENT)

    def _buffers(self) -> dict[int, Buffer]:
        """Return each planned storage that is used: its byte ranges, and when each is live."""
        spans = self._spans()
        members: dict[int, list[int]] = {}
        for index, base in self._planned.items():
            members.setdefault(base, []).append(index)
        buffers: dict[int, Buffer] = {}
        for base, indices in members.items():
            reach = {index: self._bytes(index) for index in indices}
            used = [index for index in indices if index in spans]
            if not used:
                continue
            if not any(start for start, _ in reach.values()):
                first = min(spans[index][0] for index in used)
                last = max(spans[index][1] for index in used)
                buffers[base] = Buffer((Piece(0, max(e for _, e in reach.values()), first, last),))
                continue
            edges = sorted({edge for index in used for edge in reach[index]})
            pieces: list[Piece] = []
            for start, end in pairwise(edges):
                inside = [i for i in used if reach[i][0] <= start and end <= reach[i][1]]
                if inside:
                    first = min(spans[i][0] for i in inside)
                    last = max(spans[i][1] for i in inside)
                    pieces.append(Piece(start, end, first, last))
            buffers[base] = Buffer(tuple(pieces))
        return buffers

    def _bytes(self, index: int) -> tuple[int, int]:
        """Return the range of a tensor in the storage that it shares."""
        value, start = self._values[index], self._within.get(index, 0)
        assert isinstance(value, TensorValue)
        return start, start + value.nbytes

    def _spans(self) -> dict[int, tuple[int, int]]:
        """Return the first and last instruction at which each planned tensor is live."""
        spans: dict[int, tuple[int, int]] = {}

        def touch(index: int, step: int) -> None:
            if not 0 <= index < len(self._values):
                return  # `check` reports it with the other faults.
            value = self._values[index]
            if isinstance(value, TensorList | OptionalTensorList):
                for item in value.items:
                    if item >= 0:
                        touch(item, step)
                return
            if index in self._planned:
                first, last = spans.get(index, (step, step))
                spans[index] = (min(first, step), max(last, step))

        end = len(self._instructions)
        for index in self._inputs:
            touch(index, -1)
        for step, instruction in enumerate(self._instructions):
            for index in touched(instruction):
                touch(index, step)
        for index in self._outputs:
            touch(index, end)
        loops = [
            (instruction.target, step)
            for step, instruction in enumerate(self._instructions)
            if isinstance(instruction, JumpFalse) and instruction.target <= step
        ]
        return widened_by_loops(spans, loops)

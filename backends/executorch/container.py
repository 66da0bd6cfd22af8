"""The contents of a `.pte` file as plain data, for writing and reading.

A container has methods; a method is a table of values, a list of instructions that refer to values
by their index, and the delegates it calls. Nothing here depends on torch.fx or on ExecuTorch's
Python packages (importing those takes seconds), so a container can be read and examined cheaply.

Source: `schema/program.fbs` of ExecuTorch 1.5.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from stepwell.ir.diagnostics import StepwellError

Data = bytes | memoryview
"""Bytes; a `memoryview` if they stay in the tensor or file from which they came."""

_PART = 1 << 20
_SAMPLE = 1 << 12
"""The bytes that are compared at a time, and those of a sample."""

MAX_SIZE = 2**31 - 1
MAX_RANK = 16
"""`kTensorDimensionLimit` of the runtime."""
MAX_ELEMENTS = 2**40
"""Of one tensor; no machine has the memory."""


class ScalarType(IntEnum):
    """Element types by ExecuTorch's numbers, which are c10's."""

    BYTE = 0
    CHAR = 1
    SHORT = 2
    INT = 3
    LONG = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    COMPLEXFLOAT = 9
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    BITS16 = 22
    FLOAT8E5M2 = 23
    FLOAT8E4M3FN = 24
    FLOAT8E5M2FNUZ = 25
    FLOAT8E4M3FNUZ = 26
    UINT16 = 27
    UINT32 = 28
    UINT64 = 29

    @property
    def itemsize(self) -> int:
        """Return the number of bytes of an element."""
        return _ITEMSIZE[self]


_ITEMSIZE = {
    **dict.fromkeys(ScalarType, 1),
    **dict.fromkeys((ScalarType.SHORT, ScalarType.HALF, ScalarType.BFLOAT16, ScalarType.BITS16), 2),
    ScalarType.UINT16: 2,
    **dict.fromkeys((ScalarType.INT, ScalarType.FLOAT, ScalarType.QINT32, ScalarType.UINT32), 4),
    **dict.fromkeys((ScalarType.LONG, ScalarType.DOUBLE, ScalarType.UINT64), 8),
    ScalarType.COMPLEXFLOAT: 8,
}


class Dynamism(IntEnum):
    """Whether a tensor's sizes are exact, upper bounds, or unknown."""

    STATIC = 0
    BOUNDED = 1
    UNBOUNDED = 2


FUSED = "fused with: "
"""The start of the last line of a node's stack trace in an ETRecord (its format drops custom data):
the names of the nodes that were fused into it, the costliest first.
"""


@dataclass(frozen=True, slots=True)
class Planned:
    """The storage of a tensor in an arena; tensors with disjoint lifetimes may share bytes."""

    memory_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Constant:
    """The storage of a constant tensor: entry `index` of the container's constants."""

    index: int


@dataclass(frozen=True, slots=True)
class External:
    """The storage of a constant tensor under a name in a separate `.ptd` file."""

    key: str


@dataclass(frozen=True, slots=True)
class State:
    """The storage of a mutable tensor with an initial value.

    `initial` indexes the container's `mutable_data`. Methods share state by using the same
    memory id and offset: the runtime gives every method of a program the same arenas.
    """

    memory_id: int
    offset: int
    initial: int


Storage = Planned | Constant | External | State | None
"""The location of a tensor's bytes; None if they arrive at run time (an input without a copy)."""


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor: element type, sizes, order of dimensions in memory (outermost first), storage."""

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    storage: Storage = None
    dynamism: Dynamism = Dynamism.STATIC
    name: str | None = None

    @property
    def nbytes(self) -> int:
        """Return the number of bytes of the tensor at its upper-bound sizes."""
        return math.prod(self.sizes) * self.scalar_type.itemsize


@dataclass(frozen=True, slots=True)
class IntList:
    """Integers that kernels take as a list; the items are indices of `int` values."""

    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoolList:
    """A list of booleans that is stored in the value itself."""

    items: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class DoubleList:
    """A list of floats that is stored in the value itself."""

    items: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TensorList:
    """A list of tensors, by the indices of their values."""

    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OptionalTensorList:
    """Indices of tensor values, or -1 for None."""

    items: tuple[int, ...]


Value = (
    TensorValue
    | IntList
    | BoolList
    | DoubleList
    | TensorList
    | OptionalTensorList
    | int
    | float
    | bool
    | str
    | None
)


@dataclass(frozen=True, slots=True)
class KernelCall:
    """An instruction that runs a kernel of the runtime's registry, `aten::add.out`, on values."""

    kernel: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """An instruction that runs the `delegate`-th delegate; `args` are inputs, then outputs."""

    delegate: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """An instruction that assigns one value's contents, not its storage, to another value."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class JumpFalse:
    """An instruction that continues at instruction `target` if the bool value is false."""

    condition: int
    target: int


@dataclass(frozen=True, slots=True)
class Free:
    """An instruction that releases a dynamically allocated tensor."""

    value: int


Instruction = KernelCall | DelegateCall | Move | JumpFalse | Free


def touched(instruction: Instruction) -> tuple[int, ...]:
    """Return the values that an instruction reads or writes."""
    match instruction:
        case KernelCall(_, args) | DelegateCall(_, args):
            return args
        case Move(source, target):
            return (source, target)
        case JumpFalse(condition, _):
            return (condition,)
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Delegate:
    """A sub-graph for a backend: the backend's registered name, payload, `(key, bytes)` options."""

    backend: str
    payload: Data
    options: tuple[tuple[str, bytes], ...] = ()
    debug_map: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict[str, tuple[int, ...]], compare=False
    )
    """Backend's name of an event to debug handles; for the Inspector, not part of the file."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the program that a caller can run."""

    name: str
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    delegates: tuple[Delegate, ...] = ()
    arena_sizes: tuple[int, ...] = (0,)
    """Bytes of each arena by memory id; id 0 means the constants and its size is ignored."""
    input_spec: str = ""
    output_spec: str = ""
    debug_handles: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    """Instruction to debug handles; for the Inspector, not part of the file."""
    node_names: Mapping[int, str] = field(default_factory=dict[int, str], compare=False)
    """Debug handle to the name of the model's node; not part of the file."""

    @property
    def written_inputs(self) -> list[int]:
        """Return the indices of the inputs to which kernels write."""
        calls = [step for step in self.instructions if isinstance(step, KernelCall)]
        written = {index for call in calls for index in call.args[-1:]}
        return [place for place, index in enumerate(self.inputs) if index in written]


@dataclass(frozen=True, slots=True)
class NamedData:
    """Bytes that delegates request by key at load time, aligned to `alignment` bytes.

    `file` is the `.ptd` that contains them; None for the program, or its only `.ptd`.
    """

    data: Data
    alignment: int = 1
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """A whole program: `constants[0]` and `mutable_data[0]` are reserved and empty.

    A constant that was read from a file may have more bytes than its tensor, due to padding.
    """

    methods: tuple[Method, ...]
    constants: tuple[Data, ...] = (b"",)
    mutable_data: tuple[Data, ...] = (b"",)
    named_data: Mapping[str, NamedData] = field(default_factory=dict[str, NamedData])
    external_data: Mapping[str, NamedData] = field(default_factory=dict[str, NamedData])
    """The contents of `.ptd` files: constants of `External` tensors and delegates' data."""

    def method(self, name: str) -> Method:
        """Return the method of that name.

        Raises:
            StepwellError: the container has no such method.
        """
        for method in self.methods:
            if method.name == name:
                return method
        names = ", ".join(method.name for method in self.methods)
        raise StepwellError(f"the file has no method {name!r}", help=f"methods are {names}")


def contiguous(rank: int) -> tuple[int, ...]:
    """Return the dim order of a row-major tensor."""
    return tuple(range(rank))


def strides(sizes: Sequence[int], dim_order: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense tensor with this `dim_order`.

    A dimension of size 0 counts as 1, as in ExecuTorch and PyTorch.
    """
    result = [0] * len(sizes)
    step = 1
    for dim in reversed(dim_order):
        result[dim] = step
        step *= max(sizes[dim], 1)
    return tuple(result)


def are_equal(one: Data, other: Data) -> bool:
    """Whether two buffers are equal, compared in parts, because views compare byte by byte."""
    parts = (slice(at, at + _PART) for at in range(0, len(one), _PART))
    return len(one) == len(other) and all(bytes(one[at]) == bytes(other[at]) for at in parts)


def sampled(data: Data) -> bytes:
    """Return a digest of one page per megabyte; equal data has equal digests, but not
    conversely.
    """
    digest = hashlib.sha256()
    for begin in range(0, len(data), _PART):
        digest.update(data[begin : begin + _SAMPLE])
    return digest.digest()

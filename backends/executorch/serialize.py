"""A container to bytes, through ExecuTorch's own program schema and serialisers.

ExecuTorch's Python packages take seconds to import, so that is done when bytes are first needed.
The stock serialiser is linear: about 0.1 ms per instruction with its tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepwell.backends.executorch.check import check
from stepwell.backends.executorch.container import (
    BoolList,
    Constant,
    Container,
    Data,
    Delegate,
    DelegateCall,
    DoubleList,
    External,
    Free,
    Instruction,
    IntList,
    JumpFalse,
    KernelCall,
    Method,
    Move,
    NamedData,
    OptionalTensorList,
    Planned,
    State,
    TensorList,
    TensorValue,
    Value,
)

if TYPE_CHECKING:
    from executorch.exir import schema as et

EXTERNAL_TAG = "weights"
"""The tag of the one `.ptd` that is written; ExecuTorch would name the file `weights.ptd`."""


def to_bytes(container: Container) -> bytes:
    """The `.pte` file of a container. Raises `VerificationError` if the container is unsound."""
    check(container)
    from executorch.exir import schema as et
    from executorch.exir._serialize._named_data_store import NamedDataStoreOutput
    from executorch.exir._serialize._program import PTEFile, serialize_pte_binary

    payloads: list[et.BackendDelegateInlineData] = []
    program = et.Program(
        version=0,
        execution_plan=[_plan(method, payloads) for method in container.methods],
        constant_buffer=[_buffer(data) for data in container.constants],
        backend_delegate_data=payloads,
        segments=[],
        constant_segment=et.SubsegmentOffsets(segment_index=0, offsets=[]),
    )
    # The serialiser begins with a deep copy to protect its caller's program. This one is made
    # for it alone, and the copy would be a third of the time.
    object.__setattr__(program, "__deepcopy__", lambda memo: program)  # pyright: ignore
    buffers, entries = _entries(container.named_data)
    cord = serialize_pte_binary(
        PTEFile(
            program=program,
            mutable_data=[_buffer(data) for data in container.mutable_data]
            if len(container.mutable_data) > 1
            else None,
            named_data=NamedDataStoreOutput(buffers, entries, {}) if entries else None,
        ),
        extract_delegate_segments=True,
    )
    return bytes(cord)


def external_to_bytes(container: Container) -> bytes | None:
    """The `.ptd` file with a container's external data, or None if it has none."""
    if not container.external_data:
        return None
    check(container)
    from executorch.exir._serialize.data_serializer import DataPayload
    from executorch.exir.scalar_type import ScalarType
    from executorch.exir.tensor_layout import TensorLayout
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    buffers, entries = _entries(container.external_data)
    for method in container.methods:
        for value in method.values:
            if isinstance(value, TensorValue) and isinstance(value.storage, External):
                entries[value.storage.key].tensor_layout = TensorLayout(
                    ScalarType(int(value.scalar_type)), list(value.sizes), list(value.dim_order)
                )
    return bytes(FlatTensorSerializer().serialize(DataPayload(buffers, entries)))


def _buffer(data: Data) -> et.Buffer:
    from executorch.exir import schema as et

    return et.Buffer(storage=bytes(data))


def _entries(named: Mapping[str, NamedData]) -> tuple[list[Any], dict[str, Any]]:
    """The distinct buffers of named data, and entries that index them."""
    from executorch.exir._serialize.data_serializer import DataEntry

    buffers: list[Any] = []
    entries: dict[str, Any] = {}
    index_of: dict[int, int] = {}
    for key, value in named.items():
        index = index_of.get(id(value.data))
        if index is None:
            index = index_of[id(value.data)] = len(buffers)
            buffers.append(bytes(value.data))
        entries[key] = DataEntry(index, value.alignment, None)
    return buffers, entries


def _plan(method: Method, payloads: list[et.BackendDelegateInlineData]) -> et.ExecutionPlan:
    from executorch.exir import schema as et

    kernels: dict[str, int] = {}
    return et.ExecutionPlan(
        name=method.name,
        container_meta_type=et.ContainerMetadata(method.input_spec, method.output_spec),
        values=[et.EValue(_value(value)) for value in method.values],
        inputs=list(method.inputs),
        outputs=list(method.outputs),
        chains=[
            et.Chain(
                inputs=[],
                outputs=[],
                instructions=[
                    et.Instruction(_instruction(instruction, kernels))
                    for instruction in method.instructions
                ],
                stacktrace=None,
            )
        ],
        operators=[et.Operator(*_name_and_overload(kernel)) for kernel in kernels],
        delegates=[_delegate(delegate, payloads) for delegate in method.delegates],
        non_const_buffer_sizes=list(method.arena_sizes),
    )


def _name_and_overload(kernel: str) -> tuple[str, str]:
    name, _, overload = kernel.partition(".")
    return name, overload


def _delegate(
    delegate: Delegate, payloads: list[et.BackendDelegateInlineData]
) -> et.BackendDelegate:
    from executorch.exir import schema as et
    from executorch.exir.backend.compile_spec_schema import CompileSpec

    payloads.append(et.BackendDelegateInlineData(data=bytes(delegate.payload)))
    return et.BackendDelegate(
        id=delegate.backend,
        processed=et.BackendDelegateDataReference(et.DataLocation.INLINE, len(payloads) - 1),
        compile_specs=[CompileSpec(key, value) for key, value in delegate.options],
    )


def _value(value: Value) -> et.KernelTypes:
    from executorch.exir import schema as et

    match value:
        case TensorValue():
            return _tensor(value)
        case None:
            return et.Null()
        case bool():
            return et.Bool(value)
        case int():
            return et.Int(value)
        case float():
            return et.Double(value)
        case str():
            return et.String(value)
        case IntList(items):
            return et.IntList(list(items))
        case BoolList(items):
            return et.BoolList(list(items))
        case DoubleList(items):
            return et.DoubleList(list(items))
        case TensorList(items):
            return et.TensorList(list(items))
        case OptionalTensorList(items):
            return et.OptionalTensorList(list(items))


def _tensor(value: TensorValue) -> et.Tensor:
    from executorch.exir import schema as et

    data_index, memory_id, offset = 0, 0, 0
    match value.storage:
        case Constant(data_index):
            pass
        case State(memory_id, offset, data_index):
            pass
        case Planned(memory_id, offset):
            pass
        case _:
            pass
    external = value.storage if isinstance(value.storage, External) else None
    name = external.key if external else value.name
    return et.Tensor(
        scalar_type=int(value.scalar_type),  # pyright: ignore[reportArgumentType]
        storage_offset=0,
        sizes=list(value.sizes),
        dim_order=list(value.dim_order),
        requires_grad=False,
        layout=0,
        data_buffer_idx=data_index,
        allocation_info=et.AllocationDetails(memory_id, offset & 0xFFFFFFFF, offset >> 32)
        if memory_id
        else None,
        shape_dynamism=et.TensorShapeDynamism(int(value.dynamism)),
        extra_tensor_info=et.ExtraTensorInfo(
            fully_qualified_name=name,
            location=et.TensorDataLocation.EXTERNAL if external else et.TensorDataLocation.SEGMENT,
        )
        if name is not None or isinstance(value.storage, State)
        else None,
    )


def _instruction(instruction: Instruction, kernels: dict[str, int]) -> et.InstructionArguments:
    from executorch.exir import schema as et

    match instruction:
        case KernelCall(kernel, args):
            return et.KernelCall(kernels.setdefault(kernel, len(kernels)), list(args))
        case DelegateCall(delegate, args):
            return et.DelegateCall(delegate, list(args))
        case Move(source, target):
            return et.MoveCall(source, target)
        case JumpFalse(condition, target):
            return et.JumpFalseCall(condition, target)
        case Free(value):
            return et.FreeCall(value)

"""Convert values and instructions of a method to records of ExecuTorch's program schema, and back.

Records from a file are not trusted: a missing name or index raises `ParseFailure`.
"""

from collections.abc import Sequence
from typing import Any

from stepwell.backends.executorch.container import (
    BoolList,
    Constant,
    DelegateCall,
    DoubleList,
    Dynamism,
    External,
    Free,
    Instruction,
    IntList,
    JumpFalse,
    KernelCall,
    Move,
    OptionalTensorList,
    Planned,
    ScalarType,
    State,
    Storage,
    TensorList,
    TensorValue,
    Value,
)
from stepwell.backends.flatbuffer import Record
from stepwell.ir.diagnostics import ParseFailure, UnsupportedError

WHAT = "the .pte file"
_EXTERNAL = 1  # TensorDataLocation.EXTERNAL

_SCALARS = {bool: ("Bool", "bool_val"), int: ("Int", "int_val"), float: ("Double", "double_val"),
            str: ("String", "string_val")}  # fmt: skip
"""Class → the schema's name, and its field."""
_FIELDS = dict(_SCALARS.values())
_LISTS = {
    cls.__name__: cls for cls in (IntList, BoolList, DoubleList, TensorList, OptionalTensorList)
}
_INSTRUCTIONS: dict[type[Any], tuple[str, tuple[str, ...]]] = {
    DelegateCall: ("DelegateCall", ("delegate_index", "args")),
    Move: ("MoveCall", ("move_from", "move_to")),
    JumpFalse: ("JumpFalseCall", ("cond_value_index", "destination_instruction")),
    Free: ("FreeCall", ("value_index",)),
}
"""Class → the schema's name, and its fields in the order of the class's."""
_CLASSES = {name: (cls, fields) for cls, (name, fields) in _INSTRUCTIONS.items()}


def pick(items: Sequence[Any], index: int, what: str) -> Any:
    """Return the item at an index from a file; raise `ParseFailure` if it is out of range."""
    if not 0 <= index < len(items):
        raise ParseFailure(f"{WHAT} names {what} {index} of {len(items)}")
    return items[index]


def text(found: str | None, what: str) -> str:
    """Return the name of an object in a file; raise `ParseFailure` if it is missing."""
    if found is None:
        raise ParseFailure(f"{WHAT}: {what} has no name")
    return found


def instruction_record(instruction: Instruction, kernels: dict[str, int]) -> tuple[str, Record]:
    """Convert an instruction to its schema record; `kernels` collects the names of kernels with
    their indices.
    """
    if isinstance(instruction, KernelCall):
        index = kernels.setdefault(instruction.kernel, len(kernels))
        return "KernelCall", {"op_index": index, "args": instruction.args}
    name, fields = _INSTRUCTIONS[type(instruction)]
    held = (getattr(instruction, own) for own in instruction.__match_args__)
    return name, dict(zip(fields, held, strict=True))


def instruction_of(union: tuple[str, Record] | None, kernels: Sequence[str]) -> Instruction:
    """Convert a schema record to an instruction."""
    if union is None:
        raise ParseFailure(f"{WHAT}: an instruction is empty")
    name, record = union
    if name == "KernelCall":
        return KernelCall(pick(kernels, record["op_index"], "operator"), tuple(record["args"]))
    cls, fields = _CLASSES[name]
    held = (record[field] for field in fields)
    return cls(*(tuple(value) if isinstance(value, list) else value for value in held))


def value_record(value: Value) -> tuple[str, Record]:
    """Convert a value of a method to its schema record."""
    match value:
        case None:
            return "Null", {}
        case TensorValue():
            return "Tensor", _tensor_record(value)
        case bool() | int() | float() | str():
            name, field = _SCALARS[type(value)]
            return name, {field: value}
        case _:
            return type(value).__name__, {"items": value.items}


def value_of(union: tuple[str, Record] | None) -> Value:
    """Convert a schema record to a value of a method."""
    if union is None or union[0] == "Null":
        return None
    name, record = union
    if name == "Tensor":
        return _tensor_of(record)
    if name in _LISTS:
        return _LISTS[name](tuple(record["items"]))
    value: bool | int | float | str | None = record[_FIELDS[name]]
    return text(None, "a string value") if value is None else value


def _tensor_record(value: TensorValue) -> Record:
    storage = value.storage
    data_index = 0
    if isinstance(storage, Constant | State):
        data_index = storage.index if isinstance(storage, Constant) else storage.initial
    external = isinstance(storage, External)
    name = storage.key if isinstance(storage, External) else value.name
    extra: Record | None = None
    if name is not None or isinstance(storage, State):
        extra = {
            "mutable_data_segments_idx": 0,
            "fully_qualified_name": name,
            "location": _EXTERNAL if external else 0,
        }
    allocation: Record | None = None
    if isinstance(storage, Planned | State) and storage.memory_id:
        allocation = {
            "memory_id": storage.memory_id,
            "memory_offset_low": storage.offset & 0xFFFFFFFF,
            "memory_offset_high": storage.offset >> 32,
        }
    return {
        "scalar_type": int(value.scalar_type),
        "storage_offset": 0,
        "sizes": value.sizes,
        "dim_order": value.dim_order,
        "requires_grad": False,
        "layout": 0,
        "data_buffer_idx": data_index,
        "allocation_info": allocation,
        "shape_dynamism": int(value.dynamism),
        "extra_tensor_info": extra,
    }


def _tensor_of(record: Record) -> TensorValue:
    try:
        scalar_type = ScalarType(record["scalar_type"])
        dynamism = Dynamism(record["shape_dynamism"])
    except ValueError as error:
        raise ParseFailure(f"{WHAT}: {error}") from None
    if record["storage_offset"]:
        raise UnsupportedError(
            f"{WHAT}: a tensor has a storage offset, which the runtime does not support"
        )
    extra: Record = record["extra_tensor_info"] or {}
    name: str | None = extra.get("fully_qualified_name")
    where: Record | None = record["allocation_info"]
    data_index: int = record["data_buffer_idx"]
    storage: Storage = None
    if extra.get("location") == _EXTERNAL:
        storage = External(text(name, "an external tensor"))
        name = None
    elif where is not None:
        offset = where["memory_offset_low"] | where["memory_offset_high"] << 32
        storage = (
            State(where["memory_id"], offset, data_index)
            if data_index
            else Planned(where["memory_id"], offset)
        )
    elif data_index:
        storage = Constant(data_index)
    sizes, order = tuple(record["sizes"]), tuple(record["dim_order"])
    return TensorValue(scalar_type, sizes, order, storage, dynamism, name)

"""Verify a container: everything that the runtime does not check, before and after serialization.

A `.pte` with an index out of range or a tensor beyond its arena can kill the process that loads it,
so this check runs before a container is written, run or read as a program.
"""

from collections import Counter
from collections.abc import Iterator

from stepwell.backends.executorch.container import (
    MAX_RANK,
    MAX_SIZE,
    Constant,
    Container,
    DelegateCall,
    External,
    Free,
    Instruction,
    IntList,
    JumpFalse,
    KernelCall,
    Method,
    Move,
    OptionalTensorList,
    Planned,
    State,
    TensorList,
    TensorValue,
    Value,
)
from stepwell.ir.diagnostics import Problem, VerificationError

_MAX_PROBLEMS = 20
_MAX_ARENA = 2**63 - 1


def check(container: Container) -> None:
    """Raise `VerificationError` with the faults (at most 20) that are found in a container."""
    problems: list[Problem] = []
    for problem in _problems(container):
        problems.append(problem)
        if len(problems) == _MAX_PROBLEMS:
            break
    if problems:
        raise VerificationError(problems)


def _problems(container: Container) -> Iterator[Problem]:
    names = Counter(method.name for method in container.methods)
    if not names:
        yield Problem("the program has no method")
    for name in sorted(name for name, count in names.items() if count > 1):
        yield Problem(f"method {name!r} is declared more than once")
    for what, data in (("constant", container.constants), ("state", container.mutable_data)):
        if not data or len(data[0]):
            yield Problem(f"{what} 0 is reserved and must exist without bytes")
    for method in container.methods:
        for fact in _method_faults(container, method):
            yield Problem(fact, where=f"method {method.name}")


def _method_faults(container: Container, method: Method) -> Iterator[str]:
    count = len(method.values)
    for memory_id, size in enumerate(method.arena_sizes):
        if not 0 <= size <= _MAX_ARENA:
            yield f"arena {memory_id} has {size} bytes"
    for index, value in enumerate(method.values):
        for fact in _value_faults(container, method, value):
            yield f"value {index}: {fact}"
    for what, listed in (("input", method.inputs), ("output", method.outputs)):
        for position, index in enumerate(listed):
            if not 0 <= index < count:
                yield f"{what} {position} is value {index} of {count}"
    for position, instruction in enumerate(method.instructions):
        for fact in _instruction_faults(method, instruction):
            yield f"instruction {position}: {fact}"


def _value_faults(container: Container, method: Method, value: Value) -> Iterator[str]:
    match value:
        case TensorValue():
            yield from _tensor_faults(container, method, value)
        case IntList(items) | TensorList(items) | OptionalTensorList(items):
            for item in items:
                if item == -1 and isinstance(value, OptionalTensorList):
                    continue
                if not 0 <= item < len(method.values):
                    yield f"a list names value {item} of {len(method.values)}"
                    continue
                found = method.values[item]
                wants_int = isinstance(value, IntList)
                is_right = type(found) is int if wants_int else isinstance(found, TensorValue)
                if not is_right and not (found is None and isinstance(value, OptionalTensorList)):
                    yield (
                        f"a list of {'ints' if wants_int else 'tensors'} names value {item}, "
                        f"which is none"
                    )
        case int() if not -(2**63) <= value < 2**63:
            yield f"{value} does not fit 64 bits"
        case _:
            return


def _tensor_faults(container: Container, method: Method, value: TensorValue) -> Iterator[str]:
    rank = len(value.sizes)
    if rank > MAX_RANK:  # For such a rank not even the product of sizes is computed.
        yield f"{rank} dimensions; the runtime has at most {MAX_RANK}"
        return
    if any(not 0 <= size <= MAX_SIZE for size in value.sizes):
        yield f"sizes {value.sizes} are not within 0 and 2**31 - 1"
        return
    if len(value.dim_order) != rank:
        yield f"a dim order of {len(value.dim_order)} dimensions, where the tensor has {rank}"
    elif sorted(value.dim_order) != list(range(rank)):
        yield f"dim order {value.dim_order} is no permutation of {rank} dimensions"
    match value.storage:
        case Constant(index):
            yield from _data_faults("constant", container.constants, index, value.nbytes)
        case State(memory_id, offset, initial):
            yield from _data_faults("initial state", container.mutable_data, initial, value.nbytes)
            yield from _arena_faults(method, memory_id, offset, value.nbytes)
        case Planned(memory_id, offset):
            yield from _arena_faults(method, memory_id, offset, value.nbytes)
        case External(key):
            if not key:
                yield "an external tensor has no name"
        case None:
            return


def _data_faults(what: str, data: tuple[object, ...], index: int, nbytes: int) -> Iterator[str]:
    if not 0 < index < len(data):
        yield f"{what} {index} of {len(data)}"
        return
    held = data[index]
    assert isinstance(held, bytes | memoryview)
    if len(held) < nbytes:
        yield f"{what} {index} has {len(held)} bytes for a tensor of {nbytes}"


def _arena_faults(method: Method, memory_id: int, offset: int, nbytes: int) -> Iterator[str]:
    if not 0 < memory_id < len(method.arena_sizes):
        yield f"memory id {memory_id} where the method has {len(method.arena_sizes) - 1} arenas"
    elif not 0 <= offset <= offset + nbytes <= method.arena_sizes[memory_id]:
        yield (
            f"bytes {offset} to {offset + nbytes} of arena {memory_id}, "
            f"which has {method.arena_sizes[memory_id]}"
        )


def _instruction_faults(method: Method, instruction: Instruction) -> Iterator[str]:
    count = len(method.values)

    def out_of_range(*indices: int) -> Iterator[str]:
        for index in indices:
            if not 0 <= index < count:
                yield f"names value {index} of {count}"

    match instruction:
        case KernelCall(kernel, args):
            if "::" not in kernel:
                yield f"{kernel!r} is no kernel's name; it lacks a namespace"
            yield from out_of_range(*args)
        case DelegateCall(delegate, args):
            if not 0 <= delegate < len(method.delegates):
                yield f"calls delegate {delegate} of {len(method.delegates)}"
            yield from out_of_range(*args)
        case Move(source, target):
            yield from out_of_range(source, target)
        case JumpFalse(condition, target):
            yield from out_of_range(condition)
            if 0 <= condition < count and not isinstance(
                method.values[condition], bool | TensorValue
            ):
                yield f"jumps on value {condition}, which is no bool"
            if not 0 <= target <= len(method.instructions):
                yield f"jumps to {target} of {len(method.instructions)}"
        case Free(value):
            yield from out_of_range(value)

"""The interface of readers of delegates and of kernels that compute no ATen operator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from xdsl.ir import Attribute, Block, Operation, SSAValue

from stepwell.backends.executorch.container import Data, Delegate, KernelCall, NamedData
from stepwell.dialects.executorch import OpaqueDelegateOp
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.types import dims, element, is_static
from stepwell.ir.weights import WeightStore


@dataclass(frozen=True)
class ReadContext:
    """The context of a delegate reader: the weight store, and the program's named data."""

    weights: WeightStore
    named_data: Mapping[str, NamedData]
    prefix: str
    """A name that is unique among delegates of the program; the prefix for weight keys."""
    numbers: dict[int, int] = field(default_factory=dict[int, int])
    """Numbers among the call's values, by position; a reader adds those that the delegate
    computes."""


class DelegateReader(Protocol):
    """The interface of a reader that converts one backend's payloads to ops."""

    def input_count(self, delegate: Delegate, context: ReadContext) -> int | None:
        """Return the number of the call's values that are inputs; the others are outputs. None if
        the payload does not tell.
        """
        ...

    def read(
        self,
        delegate: Delegate,
        inputs: Sequence[SSAValue],
        results: Sequence[Attribute],
        context: ReadContext,
    ) -> Operation:
        """Return the delegate as an op with these operands and result types.

        Dynamic sizes of a result are replaced by those that follow from static inputs. State that
        the delegate keeps is passed as further operands, which are `StateOp`s in no block, and
        returned as further results.
        """
        ...


class KernelReader(Protocol):
    """Reads calls of a kernel that computes no ATen operator."""

    def __call__(
        self, call: KernelCall, inputs: Mapping[int, Any], results: Mapping[int, Attribute]
    ) -> Operation:
        """Return the call as an op.

        Args:
            call: the instruction.
            inputs: argument positions to SSA values and Python values.
            results: positions of written tensors to their types; the op's results have this order.
        """
        ...


@dataclass(frozen=True)
class Readers:
    """Readers by backend name, and by kernel name with the positions that the kernel writes."""

    delegates: Mapping[str, DelegateReader] = field(default_factory=dict[str, DelegateReader])
    kernels: Mapping[str, tuple[KernelReader, tuple[int, ...]]] = field(
        default_factory=dict[str, tuple[KernelReader, tuple[int, ...]]]
    )
    unread: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """By kernel name, the positions of scratch memory, whose contents are undefined."""


def opaque_delegate(
    delegate: Delegate,
    inputs: Sequence[SSAValue],
    results: Sequence[Attribute],
    context: ReadContext,
    reason: str | None = None,
) -> Operation:
    """Return a delegate as an op that keeps its payload, and the reason why it was not opened.

    Raises:
        UnsupportedError: the delegate takes or computes a number.
    """
    if context.numbers:
        raise UnsupportedError(reason or "an opaque delegate takes a number")

    def stored(name: str, data: Data) -> str:
        held = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return context.weights.add(f"{context.prefix}.{name}", held)

    options = [(name, stored(name, value)) for name, value in delegate.options if value]
    payload = stored("payload", delegate.payload)
    return OpaqueDelegateOp.make(delegate.backend, payload, inputs, results, options, reason)


def agrees(value: Attribute, stated: Attribute, inputs: Sequence[Attribute]) -> bool:
    """Whether a result has the type that the call states.

    Dynamic sizes of the call are those of the value if the inputs, and so all values, are static.
    """
    if is_static(stated) or not all(map(is_static, inputs)):
        return value == stated
    return (element(value), len(dims(value))) == (element(stated), len(dims(stated)))


def results_of(body: Block) -> list[Attribute]:
    """Return the types that a delegate's block yields."""
    last = body.last_op
    assert last is not None
    return [value.type for value in last.operands]

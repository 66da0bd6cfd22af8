"""Kernels that read memory as it lies, whatever order of dimensions their tensors state.

`cortex_m::transpose`, `softmax`, `linear` and their like, and the portable `cat` and `slice_copy`,
take a tensor's sizes in their logical order and its bytes from first to last (ExecuTorch's
`backends/cortex_m/ops`, `kernels/portable/cpu`). Of a channels-last tensor they make something else
than its sizes say: ExecuTorch's own flow emits such calls, and its `conv → permute → reshape →
linear` and `cat(conv, conv)` are 121 and 155 units off on a device. Here such a call is given
tensors over the same bytes in plain order, so that what is read computes what the device does.
"""

from __future__ import annotations

from dataclasses import replace

from stepwell.backends.executorch.container import (
    Container,
    KernelCall,
    Method,
    TensorList,
    TensorValue,
    Value,
    contiguous,
)

BLIND = frozenset(
    (
        *(
            f"cortex_m::{name}.out"
            for name in "transpose softmax quantized_linear quantized_batch_matmul minimum "
            "maximum".split()
        ),
        "aten::cat.out",
        "aten::slice_copy.Tensor_out",
    )
)
"""Kernels that do not look at the order of dimensions."""


def as_they_lie(container: Container) -> Container:
    """The container with each blind call on tensors in the order in which it reads them."""
    return replace(container, methods=tuple(map(_method, container.methods)))


def _method(method: Method) -> Method:
    values = list(method.values)
    instructions = [
        replace(step, args=tuple(_plain(index, values) for index in step.args))
        if isinstance(step, KernelCall) and step.kernel in BLIND
        else step
        for step in method.instructions
    ]
    return replace(method, values=tuple(values), instructions=tuple(instructions))


def _plain(index: int, values: list[Value]) -> int:
    """The index of a value over the same bytes in plain order; itself where it has that."""
    value = values[index]
    if isinstance(value, TensorList):
        items = tuple(_plain(item, values) for item in value.items)
        return index if items == value.items else _added(replace(value, items=items), values)
    if not isinstance(value, TensorValue):
        return index
    plain = contiguous(len(value.sizes))
    return index if value.dim_order == plain else _added(replace(value, dim_order=plain), values)


def _added(value: Value, values: list[Value]) -> int:
    values.append(value)
    return len(values) - 1

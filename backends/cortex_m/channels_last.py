"""Kernels that ignore the dim order of their tensors and read memory from first to last.

`cortex_m::transpose`, `softmax`, `linear` and similar kernels, and the portable `cat` and
`slice_copy`, use a tensor's sizes in their logical order and its bytes from first to last
(ExecuTorch's `backends/cortex_m/ops`, `kernels/portable/cpu`). For a channels-last tensor the
result differs from what its sizes say. ExecuTorch's own flow emits such calls: its `conv → permute
→ reshape → linear` and `cat(conv, conv)` are 121 and 155 units off on a device. This module
replaces their tensors by contiguous ones over the same bytes, so that a program that was read
computes what the device computes.
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
"""Kernels that ignore the dim order."""


def as_they_lie(container: Container) -> Container:
    """Return the container with the tensors of these calls in the order in which they are read."""
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
    """The index of a contiguous value over the same bytes, or the value itself."""
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

"""What rewrites share that run an operator on tensors without data and write down its calls."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from xdsl.ir import Attribute, SSAValue

from stepwell.ir.dtypes import element_type, torch_dtype

LAYOUT_ARGUMENTS = frozenset({"layout", "device", "pin_memory", "memory_format"})
"""Arguments that say where and how a tensor lies, and nothing of what is in it."""


@contextmanager
def without_onednn() -> Generator[None]:
    """Fused layers of oneDNN are no operators of a target; an LSTM is taken apart instead."""
    enabled = torch._C._get_mkldnn_enabled()  # pyright: ignore[reportPrivateUsage]
    torch._C._set_mkldnn_enabled(False)  # pyright: ignore[reportPrivateUsage]
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)  # pyright: ignore[reportPrivateUsage]


def to_torch(value: Any, fakes: Mapping[SSAValue, Any]) -> Any:
    """An op's argument as PyTorch takes it: values as fake tensors, element types as dtypes."""
    if isinstance(value, SSAValue):
        return fakes[value]
    if isinstance(value, Attribute):
        return torch_dtype(value)
    if isinstance(value, list | tuple):
        return [to_torch(item, fakes) for item in cast(Sequence[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {k: to_torch(v, fakes) for k, v in items if k not in LAYOUT_ARGUMENTS}
    return value


def to_ir(
    arguments: Mapping[str, Any],
    values: Mapping[int, SSAValue],
    size_of: Callable[[Any], Any] | None = None,
) -> dict[str, Any]:
    """The arguments of a recorded call as the IR holds them, without those of layout.

    Args:
        arguments: by schema name.
        values: what fake tensors stand for, by their identity.
        size_of: gives the run-time value of a `torch.SymInt`; without it there are none.
    """

    def held(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return values[id(value)]
        if size_of is not None and isinstance(value, torch.SymInt):
            return size_of(value.node.expr)
        if isinstance(value, torch.dtype):
            return element_type(value)
        if isinstance(value, list | tuple):
            return [held(item) for item in cast(Sequence[Any], value)]
        return value

    return {name: held(value) for name, value in arguments.items() if name not in LAYOUT_ARGUMENTS}

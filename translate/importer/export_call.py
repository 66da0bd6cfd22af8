"""Call `torch.export.export` exclusively, because it replaces PyTorch's globals."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram

from stepwell.ir.compat.torch.torch_globals import torch_alone

aten = torch.ops.aten
_RECURRENT = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)


def export(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
) -> ExportedProgram:
    """Return the program of a module; arguments and errors are those of `torch.export.export`.

    Recurrent layers stay whole and keep a dynamic length, which torch's own trace would fix.
    """
    named = None if kwargs is None else dict(kwargs)
    with torch_alone(), _recurrences_of_any_length():
        return torch.export.export(
            module, args, named, dynamic_shapes=dynamic_shapes, strict=strict
        )


@contextmanager
def _recurrences_of_any_length() -> Generator[None]:
    """Trace recurrent layers by a function of their sizes, not through steps of constant number."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd  # pyright: ignore
    before = [overload.py_kernels.pop(key, None) for overload in _RECURRENT]
    for overload in _RECURRENT:
        overload.py_impl(key)(_recurrence_of_sizes)
    try:
        yield
    finally:
        for overload, kernel in zip(_RECURRENT, before, strict=True):
            del overload.py_kernels[key]
            overload._dispatch_cache.clear()
            if kernel is not None:
                overload.py_impl(key)(kernel)


def _recurrence_of_sizes(
    x: torch.Tensor, begin: torch.Tensor | Sequence[torch.Tensor], *others: Any
) -> tuple[torch.Tensor, ...]:
    """Return tensors of the types of a layer's results, whose elements no trace reads."""
    states = (begin,) if isinstance(begin, torch.Tensor) else begin
    bidirectional = others[5]
    features = states[0].shape[-1] * (1 + bidirectional)
    return x.new_empty([*x.shape[:-1], features]), *(torch.empty_like(state) for state in states)

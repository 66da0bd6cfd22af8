"""Call `torch.export.export` exclusively, because it replaces PyTorch's globals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from stepwell.ir.compat.torch.torch_globals import torch_alone
from stepwell.ir.compat.torch.torch_private import traced_by
from stepwell.translate.decompositions.traced.recurrences import CELL_OF
from stepwell.translate.importer.packed_sequences import padded_instead_of_packed


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
    with torch_alone(), traced_by(_recurrence_of_sizes, tuple(CELL_OF)), padded_instead_of_packed():
        return torch.export.export(
            module, args, named, dynamic_shapes=dynamic_shapes, strict=strict
        )


def _recurrence_of_sizes(
    x: torch.Tensor, begin: torch.Tensor | Sequence[torch.Tensor], *others: Any
) -> tuple[torch.Tensor, ...]:
    """Return tensors of the types of a layer's results; torch's own steps would fix the length."""
    states = (begin,) if isinstance(begin, torch.Tensor) else begin
    bidirectional = others[5]
    features = states[0].shape[-1] * (1 + bidirectional)
    return x.new_empty([*x.shape[:-1], features]), *(torch.empty_like(state) for state in states)

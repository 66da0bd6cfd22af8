"""Call `torch.export.export` exclusively, because it replaces PyTorch's globals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram

from stepwell.ir.compat.torch.torch_globals import torch_alone


def export(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
) -> ExportedProgram:
    """Return the program of a module; arguments and errors are those of `torch.export.export`."""
    named = None if kwargs is None else dict(kwargs)
    with torch_alone():
        return torch.export.export(
            module, args, named, dynamic_shapes=dynamic_shapes, strict=strict
        )

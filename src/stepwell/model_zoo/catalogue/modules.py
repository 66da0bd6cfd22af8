"""torch's own modules, as PyTorch's tests configure and call them (`common_modules.module_db`)."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import nn

from stepwell.ir.compat.torch import torch_private
from stepwell.ir.compat.torch.torch_private import pytree
from stepwell.model_zoo.catalogue.models import Entry, Made
from stepwell.model_zoo.catalogue.weights import scaled

SAMPLES = 3
"""Number of configurations per module: the first ones are used."""
SKIPPED = ("nn.SyncBatchNorm", "nn.LazyModule", "nn.modules.lazy", "nn.CosineEmbeddingLoss1")
"""Modules that run on accelerators only, or have no shape before they run."""


class CallModule(nn.Module):
    """A module that calls a module or function: tensors are inputs, other arguments are fixed."""

    def __init__(self, called: Any, args: Any, kwargs: Any) -> None:
        super().__init__()
        self.called = called
        leaves, self.spec = pytree.tree_flatten((args, kwargs))
        self.fixed = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.at = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Call the wrapped module or function on the tensors."""
        leaves = list(self.fixed)
        for index, tensor in zip(self.at, tensors, strict=True):
            leaves[index] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        result = self.called(*args, **kwargs)
        return tuple(result) if isinstance(result, list) else result


def call(called: Any, args: Any, kwargs: Any) -> Made:
    """Prepare a call of a module or function for export.

    Integer inputs are indices and classes, so that their ranges are declared.
    """
    module = CallModule(called, args, kwargs)
    tensors = tuple(
        leaf.detach().clone(memory_format=torch.contiguous_format)  # Of its own memory.
        for leaf in pytree.tree_leaves((args, kwargs))
        if isinstance(leaf, torch.Tensor)
    )
    return Made(module.eval(), tensors, ranges=tuple(map(ends, tensors)))


def ends(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return the smallest and the largest of some integers; None for other values."""
    if (
        tensor.is_floating_point()
        or tensor.is_complex()
        or tensor.dtype == torch.bool
        or not tensor.numel()
    ):
        return None
    return int(tensor.min()), int(tensor.max())


def entries() -> Iterator[Entry]:
    """Yield the first configurations of each module."""
    for info in torch_private.module_db:
        if any(info.name.startswith(name) for name in SKIPPED):
            continue
        for index in range(len(configurations(info))):
            yield Entry(
                f"modules/{info.name.removeprefix('nn.').removeprefix('modules.')}/{index}",
                info.name,
                "module",
                lambda info=info, index=index: make(info, index),
                size=0.2,
            )


def configurations(info: Any) -> list[Any]:
    """Return the first configurations of a module."""
    func = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
    )
    return list(islice(func, SAMPLES))


def make(info: Any, index: int) -> Made:
    """Create a model from one of the configurations in which PyTorch tests a module."""
    sample = configurations(info)[index]
    module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
    given = sample.forward_input
    made = call(module.eval(), given.args, given.kwargs)
    assert made.module is not None
    return replace(made, module=scaled(made.module, made.inputs))

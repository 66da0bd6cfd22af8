"""Wrap models with keyword arguments and object results as functions of tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from stepwell.ir.compat.torch.torch_private import pytree


def tensors_in(result: Any) -> tuple[torch.Tensor, ...]:
    """Return the tensors of a result, in order."""
    values = result.to_tuple() if hasattr(result, "to_tuple") else result
    return tuple(leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor))


class TensorFunction(torch.nn.Module):
    """A model as a function from tensors to the tensors of its result."""

    def __init__(
        self, model: Any, names: Sequence[str] = (), fixed: Mapping[str, Any] | None = None
    ) -> None:
        """Wrap a model.

        Args:
            model: the model to call.
            names: the names of the last inputs, which are passed by keyword.
            fixed: other arguments, which are fixed.
        """
        super().__init__()
        self.model, self.names, self.fixed = model, tuple(names), dict(fixed or {})

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the model and return the tensors of its result."""
        first = len(inputs) - len(self.names)
        named = dict(zip(self.names, inputs[first:], strict=True))
        return tensors_in(self.model(*inputs[:first], **named, **self.fixed))

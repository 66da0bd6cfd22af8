"""Find axes of a model's inputs that may be dynamic, and create inputs of other sizes.

Three kinds of axes have names. The batch is the first axis of every input whose size there equals
that of the first input. Image axes are the last two axes of inputs of rank 4 and more. A sequence
is any other axis of inputs of rank 3 or less (and of masks over it). Trials decide which of them
can be dynamic: a linear layer specializes its channels, and no rule needs to know the channel axis.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.torch.torch_private import pytree

Place = tuple[int, int]
"""The number of an input tensor, and an axis of it."""
Sized = Mapping[Place, int]


@dataclass(frozen=True)
class Inputs:
    """The arguments of a model, and the names of their tensors."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        """Every axis of every input tensor."""
        return tuple((i, a) for i, tensor in enumerate(self.tensors) for a in range(tensor.dim()))

    @property
    def labels(self) -> list[str]:
        """Return the names as in source code: `x`, `states[0]`."""
        return [re.sub(r"^\['(\w+)'\]", r"\1", name) for name in self.names]

    def size(self, place: Place) -> int:
        """The size of an axis in the example."""
        return self.tensors[place[0]].shape[place[1]]

    def resized(self, sizes: Sized) -> Inputs:
        """Return copies of the inputs at other sizes.

        Values are repeated and cut: ids stay within the vocabulary, and masks stay masks.
        """
        tensors: list[torch.Tensor] = []
        for index, tensor in enumerate(self.tensors):
            for axis in range(tensor.dim()):
                tensor = _sized(tensor, axis, sizes.get((index, axis), tensor.shape[axis]))
            tensors.append(tensor.clone())
        others = iter(tensors)

        def another(leaf: Any) -> Any:
            return next(others) if isinstance(leaf, torch.Tensor) else leaf

        args, kwargs = pytree.tree_map(another, (self.args, dict(self.kwargs)))
        return Inputs(args, kwargs, self.names, tuple(tensors))


def inputs_of(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Inputs:
    """Collect the inputs' tensors, named after the parameters of `forward`."""
    given = (tuple(args), dict(kwargs or {}))
    tensors = tuple(leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor))
    try:
        bound = dict(inspect.signature(module.forward).bind(*given[0], **given[1]).arguments)
        leaves = pytree.tree_flatten_with_path(bound)[0]
    except TypeError:  # The model's call raises Python's message.
        leaves = pytree.tree_flatten_with_path(given)[0]
    names = [pytree.keystr(path) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
    return Inputs(*given, tuple(names), tensors)


def _sized(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    old = tensor.shape[axis]
    if size == old or old == 0:
        return tensor
    return torch.cat([tensor] * -(-size // old), axis).narrow(axis, 0, size)


def _batch(inputs: Inputs) -> list[Place]:
    first = next((t.shape[0] for t in inputs.tensors if t.dim()), None)
    return [(i, 0) for i, t in enumerate(inputs.tensors) if t.dim() and t.shape[0] == first]


def _image(inputs: Inputs) -> list[Place]:
    images = [(i, t) for i, t in enumerate(inputs.tensors) if t.dim() >= 4 and not _is_mask(t)]
    return [(i, axis) for i, t in images for axis in (t.dim() - 2, t.dim() - 1)]


def _sequence(inputs: Inputs) -> list[Place]:
    batch = set(_batch(inputs))
    rows = [
        place
        for place in inputs.places
        if inputs.tensors[place[0]].dim() <= 3 and place not in batch and inputs.size(place) > 1
    ]
    lengths = {inputs.size(place) for place in rows}
    over = [
        (i, axis)
        for i, t in enumerate(inputs.tensors)
        if t.dim() == 4 and _is_mask(t)
        for axis in (2, 3)
        if t.shape[axis] in lengths
    ]
    return rows + over


def _is_mask(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.bool or (
        tensor.dim() == 4
        and tensor.shape[1] == 1
        and (
            tensor.shape[0] == 1 and tensor.shape[2] == tensor.shape[3] and not _is_ordinary(tensor)
        )
    )


def _is_ordinary(tensor: torch.Tensor) -> bool:
    """Whether numbers are those of an image, not of a mask, which has two values."""
    return bool(tensor.unique().numel() > 2)


def _all(inputs: Inputs) -> list[Place]:
    batch = set(_batch(inputs))
    return [place for place in inputs.places if place in batch or inputs.size(place) > 1]


KINDS: Mapping[str, Callable[[Inputs], list[Place]]] = {
    "batch": _batch,
    "sequence": _sequence,
    "image": _image,
    "all": _all,
}
"""Names of sizes, and the input axes that have them."""


def widest(kind: str, given: int) -> int:
    """Return the default greatest size of an axis; memory is planned for it."""
    return max(2 * given, 8) if kind == "batch" else 2 * given

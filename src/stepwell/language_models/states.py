"""The state in a cache, as locations for buffers: keys, values, any other state."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

LENGTH = "cumulative_length"
"""Attributes that count tokens: not state here, because every call has its position."""


@dataclass(frozen=True)
class CacheLocation:
    """The location of a tensor of a cache: an attribute, or an entry of a list or mapping."""

    owner: Any
    key: Any
    name: str
    """The name of its buffer."""
    in_model: bool = False
    """Whether a module of the model owns it, and replaces the tensor in each call."""

    @property
    def tensor(self) -> Tensor:
        """Return the tensor at this location."""
        return self._entries[self.key]

    def put(self, tensor: Tensor) -> None:
        """Store a tensor at this location."""
        self._entries[self.key] = tensor

    @property
    def is_length(self) -> bool:
        """Whether it counts tokens."""
        return str(self.key).endswith(LENGTH)

    @property
    def is_recurrent(self) -> bool:
        """Whether it has no axis of tokens: each call rewrites it whole."""
        return self.in_model or "states" in self.name

    @property
    def _entries(self) -> Any:
        held = isinstance(self.owner, (MutableMapping, MutableSequence))
        return self.owner if held else vars(self.owner)


def places(cache: Any) -> list[CacheLocation]:
    """Return the locations of all tensors in a cache and in its layers."""
    found = list(_within(vars(cache), "state", seen=set()))
    return [place for place in found if place.tensor.numel() or place.is_length]


def _within(held: Any, name: str, seen: set[int]) -> Iterator[CacheLocation]:
    if id(held) in seen:
        return
    seen.add(id(held))
    entries = enumerate(held) if isinstance(held, MutableSequence) else list(held.items())
    for key, value in entries:
        below = f"{name}_{key}"
        if isinstance(value, Tensor):
            yield CacheLocation(held, key, below.removeprefix("state_layers_"))
        elif isinstance(value, (MutableMapping, MutableSequence)):
            yield from _within(value, below, seen)
        elif _is_of_cache(value):
            yield from _within(vars(value), below, seen)


def loose_tensors(model: Any) -> dict[tuple[str, str], Any]:
    """Collect attributes of modules that are tensors or may become one, except parameters and
    buffers.

    Returns:
        By the module's name and the attribute's.
    """
    return {
        (name, key): value
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if value is None or isinstance(value, Tensor)
    }


def left_behind(model: Any, before: dict[tuple[str, str], Any]) -> list[CacheLocation]:
    """Return the tensors that a run left in modules, except parameters and buffers."""
    return [
        CacheLocation(
            model.get_submodule(name), key, f"{name}.{key}".replace(".", "_"), in_model=True
        )
        for (name, key), value in loose_tensors(model).items()
        if value is not None and value is not before.get((name, key))
    ]


def _is_of_cache(value: Any) -> bool:
    return any(base.__module__ == "transformers.cache_utils" for base in type(value).__mro__)


def remembers(cache: Any) -> None:
    """Mark recurrent layers as initialized; their zero state is that before any token."""
    for layer in cache.layers:
        seen = getattr(layer, "has_previous_state", None)
        if isinstance(seen, MutableMapping):
            for key in seen:
                seen[key] = True

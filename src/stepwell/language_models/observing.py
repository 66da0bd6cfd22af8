"""Observe a model in one run on one token: its state, and the arguments of its attention.

Each tensor in a cache (keys, values or other state) gets a location, for which a buffer is made.
"""

import inspect
import sys
from collections.abc import Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.diagnostics import StepwellError, reported
from stepwell.language_models.attention import OBSERVED, AttentionCall, meaningful
from stepwell.quantization.quantizers import in_floats

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
        """Whether the tensor counts tokens."""
        return str(self.key).endswith(LENGTH)

    @property
    def is_recurrent(self) -> bool:
        """Whether the tensor has no axis of tokens, so that each call rewrites all of it."""
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
    """Collect attributes of modules that are or may become tensors, except parameters and buffers.

    Returns:
        A mapping from the module's and the attribute's name.
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
    """Mark recurrent layers as initialized: before the first token, their state is zero."""
    for layer in cache.layers:
        seen = getattr(layer, "has_previous_state", None)
        if isinstance(seen, MutableMapping):
            for key in seen:
                seen[key] = True


transformers = OnDemand("transformers")
cache_utils = OnDemand("transformers.cache_utils")


@dataclass
class Observed:
    """The observations of one run of a model."""

    cache: Any
    """A static cache of the whole context, its layers initialized and zero."""
    cache_name: str
    """The argument by which the model takes it."""
    calls: list[AttentionCall] = field(default_factory=list[AttentionCall])
    """Of its attention, in order; none where that cannot be exchanged."""
    in_modules: list[CacheLocation] = field(default_factory=list[CacheLocation])
    """State that modules keep themselves."""

    @property
    def states(self) -> list[CacheLocation]:
        """Return the state that must persist between calls."""
        return [*(at for at in places(self.cache) if not at.is_length), *self.in_modules]

    @property
    def is_recurrent(self) -> bool:
        """Whether a layer has state that each token rewrites."""
        return any(place.is_recurrent for place in self.states)


def own_attention(model: Any) -> str:
    """Return the name of an attention of transformers that the model supports and torch exports."""
    return "sdpa" if model._supports_sdpa else "eager"


def accepted(model: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the names of the arguments of a model's `forward`."""
    known = inspect.signature(model.forward).parameters
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())
    return {
        name: value
        for name, value in arguments.items()
        if name in known or (takes_any and name == "position_ids")
    }


def cache_argument(model: Any) -> str:
    """Return the cache's parameter name in `forward` (`cache` from transformers 5.24 on), or ""."""
    known = inspect.signature(model.forward).parameters
    names = ("past_key_values", "cache", "cache_params")
    return next((name for name in names if name in known), "")


def observe(model: Any, context: int, batch: int = 1) -> Observed:
    """Run a model on one token, with a static cache of `context` tokens.

    Args:
        model: the model, with a language model's head.
        context: the length of the cache, in tokens.
        batch: the number of conversations, one token each.

    Raises:
        StepwellError: the model's state is not accessible.
    """
    config = model.config.get_text_config()
    cache_name = cache_argument(model)
    if not cache_name:
        raise StepwellError(
            f"{config.model_type} takes no cache of transformers, so its state cannot be kept",
            help="export the model yourself, with its state as buffers or arguments",
        )
    found = Observed(static_cache(config, context), cache_name)
    model.set_attn_implementation(own_attention(model))
    _look_at_attention(model, found.calls)
    before = loose_tensors(model)
    _run(model, found, config, batch)
    found.in_modules = left_behind(model, before)
    if not found.states:
        raise StepwellError(f"{config.model_type} stores nothing in its cache argument")
    for place in (*places(found.cache), *found.in_modules):
        place.put(torch.zeros_like(place.tensor))
    return found


def _run(model: Any, found: Observed, config: Any, batch: int) -> None:
    arguments = {
        "input_ids": torch.zeros(batch, 1, dtype=torch.long),
        "position_ids": torch.zeros(1, 1, dtype=torch.long),
        found.cache_name: found.cache,
        "use_cache": True,
    }
    fact = f"{config.model_type} does not run with a static cache"
    with reported(fact), torch.no_grad(), in_floats(model):
        model(**accepted(model, arguments))


def _look_at_attention(model: Any, calls: list[AttentionCall]) -> None:
    """Record the arguments of the model's own attention, if it can be replaced."""
    name = own_attention(model)

    def own(module: Any, *arguments: Any, **more: Any) -> Any:
        if name == "sdpa":
            return transformers.AttentionInterface()[name](module, *arguments, **more)
        beside = sys.modules[type(module).__module__]
        return beside.eager_attention_forward(module, *arguments, **more)

    def attend(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **more: Any
    ) -> Any:
        sizes = (query.shape[-1], key.shape[-1], value.shape[-1])
        calls.append(AttentionCall(sizes, meaningful(more)))
        return own(module, query, key, value, attention_mask, **more)

    transformers.AttentionInterface.register(OBSERVED, attend)
    transformers.AttentionMaskInterface.register(
        OBSERVED, transformers.AttentionMaskInterface()[name]
    )
    model.set_attn_implementation(OBSERVED)


def static_cache(config: Any, context: int) -> Any:
    """Create a static cache in which every layer stores all keys; the mask applies a sliding
    window.

    Raises:
        StepwellError: transformers has no static cache layer of some kind.
    """
    try:
        cache = cache_utils.StaticCache(max_cache_len=context, config=config)
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise StepwellError(
            f"transformers has no static cache for {config.model_type}: {error}"
        ) from error
    for index, layer in enumerate(cache.layers):  # Rolling depends on values.
        if isinstance(layer, cache_utils.LinearAttentionAndStaticSlidingWindowAttentionLayer):
            count = layer.number_of_states
            cache.layers[index] = cache_utils.LinearAttentionAndStaticFullAttentionLayer(
                context, number_of_states=count
            )
        elif isinstance(layer, cache_utils.StaticSlidingWindowLayer):
            cache.layers[index] = cache_utils.StaticLayer(context)
    return cache

"""Register ExecuTorch's attention with transformers, and check for unsupported features."""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.diagnostics import StepwellError

transformers = OnDemand("transformers")
masking_utils = OnDemand("transformers.masking_utils")
cache_utils = OnDemand("transformers.cache_utils")


Attention = Literal["custom", "torch"]

CUSTOM = "stepwell-custom"
"""The name under which transformers knows ExecuTorch's attention."""
OBSERVED = "stepwell-observed"
"""The name of the model's own attention during observation."""

_UNDERSTOOD = frozenset(
    "scaling position_ids cache_position sliding_window use_cache output_attentions "
    "output_router_logits output_hidden_states cu_seq_lens_q cu_seq_lens_k max_length_q "
    "max_length_k num_items_in_batch deterministic target_dtype".split()
)
"""Arguments that are passed on, or that `sdpa` of transformers does not read: windows are masks."""


@dataclass
class Positions:
    """The position of the call's first token, as a value of the program."""

    context: int
    """The length of a cache, in tokens."""
    start: Any = 0


@dataclass(frozen=True)
class AttentionCall:
    """The observed call of one layer's attention."""

    sizes: tuple[int, int, int]
    """Of a head: of queries, keys, values."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Those that mean something."""


def meaningful(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an attention that affect its result."""
    neutral: dict[str, tuple[Any, ...]] = {"dropout": (None, 0.0, 0), "is_causal": (None, True)}
    return {
        name: value
        for name, value in arguments.items()
        if name not in _UNDERSTOOD
        and value is not None
        and not (name in neutral and value in neutral[name])
    }


def beyond_custom(calls: list[AttentionCall]) -> Iterator[str]:
    """Return the features of a model's attention that ExecuTorch's operators lack."""
    if not calls:
        yield "an attention that cannot be replaced"
    for call in calls:
        query, key, value = call.sizes
        if not query == key == value:
            yield f"heads of {key} numbers in keys and {value} in values"
        if "softcap" in call.arguments:
            yield "scores that are capped by tanh"
        elif call.arguments:
            yield f"an attention that is given {', '.join(sorted(call.arguments))}"


def register() -> None:
    """Register ExecuTorch's attention with transformers, which stores attentions by name."""
    importlib.import_module("executorch.extension.llm.custom_ops.custom_ops")

    transformers.AttentionInterface.register(CUSTOM, _attend)
    transformers.AttentionMaskInterface.register(CUSTOM, _mask)


def _mask(**how: Any) -> Tensor | None:
    """Return the mask over the cache's positions, or None if attention is plainly causal.

    Returns:
        `[1, 1, n, context]`, zero where a query sees a key and minus infinity elsewhere.
    """
    is_padded, is_overlaid = how.get("attention_mask") is not None, how.get("use_vmap", False)
    if not is_padded and not is_overlaid:
        window = how.get("local_size")
        if (
            how["mask_function"] is masking_utils.causal_mask_function
            or (window or 0) >= how["kv_length"]
        ):
            return None
    asked: dict[str, Any] = {**how, "allow_is_causal_skip": False}
    mask: Any = masking_utils.sdpa_mask(**asked)
    if mask is None:
        raise StepwellError("the model's attention is not causal: queries read later tokens")
    return torch.where(mask, 0.0, -torch.inf)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Attend with queries `[batch, heads, n, size]` to caches `[batch · heads, context, 1, size]`,
    causally.

    The operator's batch axis holds the heads of the caches, each with the queries that share it, so
    that the keys of a head are contiguous, which is faster to read.

    Raises:
        StepwellError: the operators do not support an argument.
    """
    if unknown := meaningful(more):
        raise StepwellError(
            f"{type(module).__name__} passes {', '.join(sorted(unknown))} to its attention, which "
            "ExecuTorch's attention does not have",
            help="attention='torch' keeps the model's own attention, over the whole cache",
        )
    start, context = module.stepwell_positions.start, module.stepwell_positions.context
    is_cache = key.shape == value.shape == (key.shape[0], context, 1, query.shape[3])
    batch, heads, count, size = query.shape
    if not is_cache or batch * heads % key.shape[0]:  # The operator would end the process.
        raise StepwellError(
            f"{type(module).__name__}: the attention reads keys of shape {list(key.shape)}, "
            f"which differs from the cache's, for queries of shape {list(query.shape)}",
            help="attention='torch' keeps the model's own attention, over the whole cache",
        )
    rows = None if attention_mask is None else attention_mask[0, 0]
    shared = key.shape[0]
    grouped = query.reshape(shared, batch * heads // shared, count, size).transpose(1, 2)
    asked = grouped.to(key.dtype)  # A mask is of singles whatever the cache is.
    made = torch.ops.llama.custom_sdpa(asked, key, value, start, rows, 0.0, rows is None, scaling)
    rows = made.to(query.dtype).transpose(0, 1)
    if batch == 1:
        return rows.reshape(1, count, heads, size), None
    return rows.reshape(count, batch, heads, size).transpose(0, 1), None


def custom_layer(layer: Any, positions: Positions, dtype: torch.dtype | None = None) -> Any:
    """Return a cache layer that ExecuTorch's operators write and read.

    Args:
        layer: a static layer, whose keys and values are `[batch, heads, context, size]`; it may
            also have recurrent state, which is kept.
        positions: the positions that the operators write to.
        dtype: the dtype of the cache and of the attention; by default the model's.
    """
    context = layer.keys.shape[2]
    is_recurrent = isinstance(layer, cache_utils.LinearAttentionCacheLayerMixin)
    kinds = (cache_utils.LinearAttentionLayer,) if is_recurrent else ()

    class Layer(*kinds, cache_utils.CacheLayerMixin):  # pyright: ignore[reportUntypedBaseClass]
        """A cache layer `[batch · heads, context, 1, size]` that `llama::update_cache` writes."""

        is_compileable = True
        is_sliding = False

        def __init__(self) -> None:
            super().__init__()
            self.__dict__.update(vars(layer))
            kept = dtype or layer.keys.dtype
            self.keys = layer.keys.flatten(0, 1).unsqueeze(2).to(kept, copy=True)
            self.values = layer.values.flatten(0, 1).unsqueeze(2).to(kept, copy=True)
            self.is_initialized = True

        def lazy_initialization(self, *_: Any, **__: Any) -> None:
            """Do nothing, because the layer is initialized when it is created."""

        def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
            """Write the new keys and values, and return the whole caches."""
            write = torch.ops.llama.update_cache
            kept: tuple[Any, Any] = (self.keys, self.values)
            for rows, held in zip((key_states, value_states), kept, strict=True):
                write(rows.flatten(0, 1).unsqueeze(2).to(held.dtype), held, positions.start)
            return kept

        def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
            """Return the sizes of a mask, which covers the whole cache."""
            return context, 0

        def get_seq_length(self) -> Any:
            return positions.start

        def get_max_length(self) -> int:
            return context

    return Layer()

"""ExecuTorch's attention under the name by which transformers calls it, and what it cannot take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from stepwell.ir.diagnostics import StepwellError

Attention = Literal["custom", "torch"]

CUSTOM = "stepwell-custom"
"""The name under which transformers knows ExecuTorch's attention."""
OBSERVED = "stepwell-observed"
"""The name of the model's own attention while `observing` looks."""

_UNDERSTOOD = frozenset(
    "scaling position_ids cache_position sliding_window use_cache output_attentions "
    "output_router_logits output_hidden_states cu_seq_lens_q cu_seq_lens_k max_length_q "
    "max_length_k num_items_in_batch deterministic target_dtype".split()
)
"""Arguments that are passed on, or that `sdpa` of transformers does not read: windows are masks."""


@dataclass
class Positions:
    """Where the tokens of the call that is running begin: a number of the program."""

    context: int
    """How many places a cache has."""
    start: Any = 0


@dataclass(frozen=True)
class Call:
    """One layer's call of its attention, as it was observed."""

    sizes: tuple[int, int, int]
    """Of a head: of queries, keys, values."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Those that mean something."""


def meaningful(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an attention that change what it computes."""
    neutral: dict[str, tuple[Any, ...]] = {"dropout": (None, 0.0, 0), "is_causal": (None, True)}
    return {
        name: value
        for name, value in arguments.items()
        if name not in _UNDERSTOOD
        and value is not None
        and not (name in neutral and value in neutral[name])
    }


def beyond_custom(calls: list[Call]) -> Iterator[str]:
    """What a model's attention has that ExecuTorch's operators have not."""
    if not calls:
        yield "an attention that is not exchangeable"
    for call in calls:
        query, key, value = call.sizes
        if not query == key == value:
            yield f"heads of {key} numbers in keys and {value} in values"
        if "softcap" in call.arguments:
            yield "scores that are capped by tanh"
        elif call.arguments:
            yield f"an attention that is given {', '.join(sorted(call.arguments))}"


def register() -> None:
    """Make ExecuTorch's attention known to transformers, which keeps such by name."""
    import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401  # pyright: ignore
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(CUSTOM, _attend)
    AttentionMaskInterface.register(CUSTOM, _mask)


def _mask(**how: Any) -> Tensor | None:
    """None where attention stops at the position, else which of the cache's places are seen.

    Returns:
        `[1, 1, n, context]`, zero where a query sees a key and minus infinity elsewhere.
    """
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    is_padded, is_overlaid = how.get("attention_mask") is not None, how.get("use_vmap", False)
    if not is_padded and not is_overlaid:
        window = how.get("local_size")
        if how["mask_function"] is causal_mask_function or (window or 0) >= how["kv_length"]:
            return None
    asked: dict[str, Any] = {**how, "allow_is_causal_skip": False}
    mask: Any = sdpa_mask(**asked)
    if mask is None:
        raise StepwellError("the model's attention looks at tokens that are to come")
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
    """Queries `[batch, heads, n, size]` over caches `[batch · heads, context, 1, size]`, causally.

    The caches' heads stand where the operator has its batch, each with the queries that share it:
    so a head's keys lie behind one another, which is read faster than every other row of a cache of
    tokens (`bench/attention.py`).

    Raises:
        StepwellError: it is given what the operators cannot take.
    """
    if unknown := meaningful(more):
        raise StepwellError(
            f"{type(module).__name__} gives its attention {', '.join(sorted(unknown))}, which "
            "ExecuTorch's attention does not have",
            help="attention='torch' keeps the model's own, over the whole cache",
        )
    start, context = module.stepwell_positions.start, module.stepwell_positions.context
    is_cache = key.shape == value.shape == (key.shape[0], context, 1, query.shape[3])
    batch, heads, count, size = query.shape
    if not is_cache or batch * heads % key.shape[0]:  # The operator would end the process.
        raise StepwellError(
            f"{type(module).__name__} gives its attention keys {list(key.shape)}, not those of its "
            f"cache, for queries {list(query.shape)}",
            help="attention='torch' keeps the model's own, over the whole cache",
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


def custom_layer(
    keys: Tensor, values: Tensor, positions: Positions, dtype: torch.dtype | None = None
) -> Any:
    """A layer of a cache which ExecuTorch's operators write and read.

    Args:
        keys, values: of a static layer, `[batch, heads, context, size]`.
        positions: where the operators write.
        dtype: of what is kept, and of what attention computes in; by default the model's.
    """
    from transformers.cache_utils import CacheLayerMixin

    context = keys.shape[2]

    class Layer(CacheLayerMixin):  # pyright: ignore[reportUntypedBaseClass]
        """Keys and values `[batch · heads, context, 1, size]`, by `llama::update_cache`."""

        is_compileable = True
        is_sliding = False

        def __init__(self) -> None:
            super().__init__()
            kept = dtype or keys.dtype
            self.keys = keys.flatten(0, 1).unsqueeze(2).to(kept, copy=True)
            self.values = values.flatten(0, 1).unsqueeze(2).to(kept, copy=True)
            self.is_initialized = True

        def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
            """Nothing waits."""

        def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
            """The caches themselves, with the new rows in them."""
            write = torch.ops.llama.update_cache
            kept: tuple[Any, Any] = (self.keys, self.values)
            for rows, held in zip((key_states, value_states), kept, strict=True):
                write(rows.flatten(0, 1).unsqueeze(2).to(held.dtype), held, positions.start)
            return kept

        def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
            """A mask, where one is needed, covers the cache."""
            return context, 0

        def get_seq_length(self) -> Any:
            return positions.start

        def get_max_length(self) -> int:
            return context

    return Layer()

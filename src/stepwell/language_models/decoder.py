"""The exported modules: a causal model with internal state, or with caches as arguments."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.language_models.attention import CUSTOM, Attention, Positions, custom_layer, register
from stepwell.language_models.observing import (
    Observed,
    accepted,
    cache_argument,
    own_attention,
    places,
    remembers,
)
from stepwell.language_models.recurrences import chunked_recurrences, needs_pair_masks, pair_masks

transformers = OnDemand("transformers")


Logits = Literal["last", "all"]
Takes = Literal["tokens", "embeddings"]


@dataclass(frozen=True)
class Form:
    """The form of a decoder: its inputs, outputs and attention."""

    context: int
    """Greatest number of tokens of a conversation."""
    any_length: bool
    """Whether it takes any number of tokens at once, or a single one."""
    attention: Attention
    """`custom`: ExecuTorch's operators, which stop at the position and write the cache in place.
    `torch`: the model's own, over the whole cache."""
    logits: Logits
    """Of the `last` token, `[1, vocabulary]`, or of `all`, `[1, n, vocabulary]`."""
    gives_mask: bool = False
    """Whether the model gets a mask without padding, for a model that would count tokens."""
    takes: Takes = "tokens"
    """`tokens` `[1, n]`, or their `embeddings` `[1, n, size]`."""
    batch: int = 1
    """Number of parallel conversations: the size of the first axis of tokens and logits."""
    cache_dtype: torch.dtype | None = None
    """Dtype of keys and values, for ExecuTorch's operators; by default the model's."""
    chunk: int | None = None
    """Greatest number of tokens of a call, if less than the context."""

    @property
    def max_tokens(self) -> int:
        """Return the greatest number of tokens of a call that takes any number."""
        return min(self.chunk or self.context, self.context - 1)

    @property
    def tokens(self) -> Tensor:
        """Return example tokens for the export."""
        return torch.ones(
            self.batch, min(3, self.max_tokens) if self.any_length else 1, dtype=torch.long
        )

    @property
    def rows(self) -> dict[int, Any] | None:
        """Return the dynamic axis of the tokens, for the export."""
        if not self.any_length:
            return None
        return {1: torch.export.Dim("tokens", min=1, max=self.max_tokens)}


class Decoder(nn.Module):
    """A module from tokens `[1, n]` and their start `[1]` to logits, `[1, vocabulary]` or of all
    tokens.
    """

    def __init__(self, model: Any, observed: Observed, form: Form) -> None:
        """Wrap a causal model, and register the observed state as buffers.

        Args:
            model: a `PreTrainedModel` with a language model's head, in eval mode.
            observed: the model's observed cache, to which this module then writes.
            form: the inputs and outputs of the decoder.
        """
        super().__init__()
        self.model, self.form, context = model, form, form.context
        self.cache, self.cache_name = observed.cache, observed.cache_name
        self.positions = Positions(context)
        if form.attention == "custom":
            self._attend_by_operators()
        else:
            model.set_attn_implementation(own_attention(model))
        remembers(self.cache)
        self.lengths = [place for place in places(self.cache) if place.is_length]
        self.states, self.is_recurrent = observed.states, observed.is_recurrent
        for place in self.states:
            self.register_buffer(place.name, place.tensor, persistent=False)
        self.pairs: Tensor | None
        masks = pair_masks(form.max_tokens) if needs_pair_masks(model) else None
        self.register_buffer("pairs", masks, persistent=False)
        self.rows: Tensor
        self.register_buffer("rows", torch.arange(context), persistent=False)
        if form.gives_mask:
            self.all_seen: Tensor
            seen = torch.ones(form.batch, context, dtype=torch.long)
            self.register_buffer("all_seen", seen, persistent=False)

    def _attend_by_operators(self) -> None:
        register()
        self.model.set_attn_implementation(CUSTOM)
        for index, layer in enumerate(self.cache.layers):
            if getattr(layer, "keys", None) is not None:
                made = custom_layer(layer, self.positions, self.form.cache_dtype)
                self.cache.layers[index] = made
        for module in self.model.modules():
            if hasattr(module, "layer_idx"):
                module.stepwell_positions = self.positions

    def forward(self, tokens: Tensor, input_pos: Tensor) -> Tensor:
        """Return the logits of the last token, or of all tokens; the inputs may be embeddings."""
        count = tokens.shape[1]
        # A position outside the cache has no row here: the program ends before it writes one.
        ends = torch.cat([input_pos, input_pos + (count - 1)])
        position = self.rows.index_select(0, ends)[:1]
        tensors = {place.name: place.tensor for place in self.states if place.in_model}
        is_continued = (position != 0).long()
        for place in self.states:  # While it is exported, buffers are fake tensors.
            buffer = getattr(self, place.name)
            if place.is_recurrent:  # A row is copied; the kernel of `where` takes each element.
                either = torch.stack([torch.zeros_like(buffer), buffer])
                buffer.copy_(either.index_select(0, is_continued)[0])
            place.put(buffer)
        for place in self.lengths:
            place.put(position[0].clone())
        if self.form.attention == "custom":
            start = position[0].item()
            torch._check(start >= 0)
            torch._check(start + count <= self.form.context)
            self.positions.start = start
        arguments = {
            "input_ids" if self.form.takes == "tokens" else "inputs_embeds": tokens,
            "position_ids": (torch.arange(count) + position)[None],
            self.cache_name: self.cache,
            "use_cache": True,
            **({"logits_to_keep": 1} if self.form.logits == "last" else {}),
            **({"attention_mask": self.all_seen} if self.form.gives_mask else {}),
        }
        with chunked_recurrences(self.model, self.cache, self.pairs):
            model = self.model(**accepted(self.model, arguments))
        for place in self.states:
            if place.in_model:
                getattr(self, place.name).copy_(place.tensor)
                place.put(tensors[place.name])
        return model.logits[:, -1] if self.form.logits == "last" else model.logits


class Growing(nn.Module):
    """A decoder whose caller owns the caches: transformers' `DynamicCache`, layer by layer."""

    def __init__(self, model: Any, observed: Observed) -> None:
        """Wrap a causal model whose caches are keys and values of all tokens."""
        super().__init__()
        model.set_attn_implementation(own_attention(model))
        self.model = model
        self.shapes = [(layer.keys, layer.values) for layer in observed.cache.layers]

    def forward(
        self, tokens: Tensor, keys: list[Tensor], values: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Append tokens to caches of p tokens; return the last logits and the longer caches.

        Args:
            tokens: the tokens, `[1, n]`.
            keys, values: the caches of each layer, `[1, heads, p, size]`.

        Returns:
            Logits `[1, vocabulary]`; keys and values `[1, heads, p + n, size]` of each layer.
        """
        cache: Any = transformers.DynamicCache()
        for layer, (key, value) in enumerate(zip(keys, values, strict=True)):
            cache.update(key, value, layer)
        past = keys[0].shape[2]
        model = self.model(
            **accepted(
                self.model,
                {
                    "input_ids": tokens,
                    "position_ids": (torch.arange(tokens.shape[1]) + past)[None],
                    cache_argument(self.model): cache,
                    "use_cache": True,
                    "logits_to_keep": 1,
                },
            )
        )
        layers = cache.layers
        return model.logits[:, -1], [x.keys for x in layers], [x.values for x in layers]

    def caches(self, length: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return caches of zeros for a number of tokens."""
        keys, values = zip(*self.shapes, strict=True)
        return (
            [torch.zeros_like(key[:, :, :length]) for key in keys],
            [torch.zeros_like(value[:, :, :length]) for value in values],
        )

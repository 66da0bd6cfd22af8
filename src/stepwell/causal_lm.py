"""A causal language model of `transformers` as a program: its caches inside, as runners call it.

`stepwell lower FOLDER` takes a folder of `save_pretrained` (`config.json` and safetensors,
whose weights stay mapped), `export_causal_lm` a model in memory. The method `forward` takes tokens
`[1, n]` and the position of the first one `[1]`, and gives the logits of the last one
`[1, vocabulary]`; beside it stand the methods that ExecuTorch's LLM runner asks about a model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stepwell.dialects.symbols import asked_quietly
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.switches import kept_stderr
from stepwell.translate.exporting import export
from stepwell.zoo.vision import imported

Attention = Literal["custom", "torch"]
Caches = Literal["static", "dynamic"]

CUSTOM = "stepwell-custom"
"""The name under which transformers knows ExecuTorch's attention."""
CONFIG = "config.json"


class _Positions:
    """Where the tokens of the call that is running begin: a number of the program."""

    start: Any = 0


class Decoder(nn.Module):
    """Tokens `[1, n]` and where they begin `[1]` to the logits of the last, `[1, vocabulary]`."""

    def __init__(self, model: Any, context: int, attention: Attention) -> None:
        """Put caches of `context` tokens beside a causal model.

        Args:
            model: a `PreTrainedModel` with a language model's head, in eval mode.
            context: how many tokens a conversation may have.
            attention: `custom`: ExecuTorch's operators, which stop at the position and write the
                cache in place. `torch`: the model's own, over the whole cache.

        Raises:
            StepwellError: the operators do not have what the model's attention asks for.
        """
        super().__init__()
        self.model, self.context, self.attention = model, context, attention
        self.positions = _Positions()
        config = model.config.get_text_config()
        if attention == "custom":
            _refuse_what_custom_attention_lacks(model, context)
            _register()
            model.set_attn_implementation(CUSTOM)
            self.cache: Any = _custom_cache(config, context, model.dtype, self.positions)
            for module in model.modules():
                if hasattr(module, "layer_idx"):
                    module.stepwell_positions = self.positions
        else:
            model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")
            self.cache = _static_cache(config, context, model.dtype)
        for index, layer in enumerate(self.cache.layers):
            for name in ("keys", "values"):
                self.register_buffer(f"{name}_{index}", getattr(layer, name), persistent=False)
            if attention == "torch":
                self.register_buffer(f"length_{index}", layer.cumulative_length, persistent=False)

    def forward(self, tokens: Tensor, input_pos: Tensor) -> Tensor:
        """The logits of the last token."""
        count = tokens.shape[1]
        self._point_at_buffers()
        if self.attention == "custom":
            start = input_pos[0].item()
            torch._check(start >= 0)
            torch._check(start + count <= self.context)
            self.positions.start = start
        else:
            for layer in self.cache.layers:
                layer.cumulative_length.copy_(input_pos[0])
        found = self.model(
            input_ids=tokens,
            position_ids=(torch.arange(count) + input_pos)[None],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return found.logits[:, -1]

    def _point_at_buffers(self) -> None:
        """Let the cache write to what this module holds now: while it is exported, fake tensors."""
        for index, layer in enumerate(self.cache.layers):
            layer.keys = getattr(self, f"keys_{index}")
            layer.values = getattr(self, f"values_{index}")
            if self.attention == "torch":
                layer.cumulative_length = getattr(self, f"length_{index}")


class Growing(nn.Module):
    """A decoder whose caller keeps the caches: transformers' `DynamicCache`, layer by layer."""

    def __init__(self, model: Any, context: int) -> None:
        """Wrap a causal model that is asked for at most `context` tokens.

        Raises:
            StepwellError: its caches are no keys and values of all tokens.
        """
        super().__init__()
        config = model.config.get_text_config()
        if (lacks := next(_unusual_layers(config, context), None)) is not None:
            raise StepwellError(
                f"{config.model_type} has {lacks}, and a dynamic cache keeps every token",
                help="cache='static' with attention='torch' has the model's own attention",
            )
        model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")
        self.model, self.config = model, config

    def forward(
        self, tokens: Tensor, keys: list[Tensor], values: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Tokens `[1, n]` behind caches of p to the last one's logits and caches of p + n.

        Args:
            tokens: `[1, n]`.
            keys, values: `[1, heads, p, size]` of each layer.

        Returns:
            Logits `[1, vocabulary]`; keys and values `[1, heads, p + n, size]` of each layer.
        """
        from transformers import DynamicCache

        cache: Any = DynamicCache()
        for layer, (key, value) in enumerate(zip(keys, values, strict=True)):
            cache.update(key, value, layer)
        past = keys[0].shape[2]
        found = self.model(
            input_ids=tokens,
            position_ids=(torch.arange(tokens.shape[1]) + past)[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        layers = cache.layers
        return found.logits[:, -1], [x.keys for x in layers], [x.values for x in layers]

    def caches(self, length: int) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values of as many tokens, all zeros."""
        heads, size = _heads_of(self.config)
        shape, dtype = (1, heads, length, size), self.model.dtype

        def made() -> list[Tensor]:
            return [torch.zeros(shape, dtype=dtype) for _ in range(self.config.num_hidden_layers)]

        return made(), made()


def _unusual_layers(config: Any, context: int) -> Iterator[str]:
    """What keeps layers from attending to every token of a conversation."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ()
    if window is not None and window < context and (not kinds or "sliding_attention" in kinds):
        yield f"windows of {window} tokens, shorter than the context of {context}"
    if any(kind not in ("full_attention", "sliding_attention") for kind in kinds):
        yield "layers that are not attention"


def _beyond_custom_attention(model: Any, config: Any, context: int) -> Iterator[str]:
    """What a model's attention has that ExecuTorch's operators have not."""
    yield from _unusual_layers(config, context)
    if getattr(config, "attn_logit_softcapping", None):
        yield "scores that are capped by tanh"
    if not getattr(model, "_supports_attention_backend", True):
        yield "an attention that is not exchangeable"


def _refuse_what_custom_attention_lacks(model: Any, context: int) -> None:
    config = model.config.get_text_config()
    lacks = next(_beyond_custom_attention(model, config, context), None)
    if lacks is not None:
        raise StepwellError(
            f"{config.model_type} has {lacks}, which ExecuTorch's attention does not have",
            help="attention='torch' keeps the model's own, over the whole cache",
        )


def _heads_of(config: Any) -> tuple[int, int]:
    """(heads of keys, size of a head)."""
    heads = config.num_attention_heads
    kept = getattr(config, "num_key_value_heads", None) or heads
    return kept, getattr(config, "head_dim", None) or config.hidden_size // heads


def _static_cache(config: Any, context: int, dtype: torch.dtype) -> Any:
    from transformers.cache_utils import StaticCache, StaticLayer, StaticSlidingWindowLayer

    cache = StaticCache(max_cache_len=context, config=config)
    for index, layer in enumerate(cache.layers):
        if isinstance(layer, StaticSlidingWindowLayer):  # Its rolling hangs on values.
            cache.layers[index] = StaticLayer(context)
    heads, size = _heads_of(config)
    cache.early_initialization(1, heads, size, dtype, torch.device("cpu"))
    return cache


def _custom_cache(config: Any, context: int, dtype: torch.dtype, positions: _Positions) -> Any:
    from transformers.cache_utils import Cache, CacheLayerMixin

    class Layer(CacheLayerMixin):  # pyright: ignore[reportUntypedBaseClass]
        """Keys and values `[1, context, heads, size]`, written by `llama::update_cache`."""

        is_compileable = True
        is_sliding = False

        def __init__(self) -> None:
            super().__init__()
            heads, size = _heads_of(config)
            self.keys = torch.zeros(1, context, heads, size, dtype=dtype)
            self.values = torch.zeros(1, context, heads, size, dtype=dtype)
            self.is_initialized = True

        def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
            """Nothing waits."""

        def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
            """The caches themselves, with the new rows in them."""
            write = torch.ops.llama.update_cache
            write(key_states.transpose(1, 2), self.keys, positions.start)
            write(value_states.transpose(1, 2), self.values, positions.start)
            return self.keys, self.values

        def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
            """No mask is made."""
            return context, 0

        def get_seq_length(self) -> Any:
            return positions.start

        def get_max_length(self) -> int:
            return context

    return Cache(layers=[Layer() for _ in range(config.num_hidden_layers)])


def _register() -> None:
    """Make ExecuTorch's attention known to transformers, which keeps such by name."""
    import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401  # pyright: ignore
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(CUSTOM, _attend)
    AttentionMaskInterface.register(CUSTOM, _no_mask)


def _no_mask(*_: Any, **__: Any) -> None:
    """Attention that stops at the position needs none."""


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Queries `[1, heads, n, size]` over caches `[1, context, heads, size]`, causally."""
    start = module.stepwell_positions.start
    made = torch.ops.llama.custom_sdpa(
        query.transpose(1, 2), key, value, start, None, 0.0, True, scaling
    )
    return made, None


@torch.no_grad()
def export_causal_lm(
    model: Any,
    *,
    context: int | None = None,
    attention: Attention | None = None,
    any_length: bool = True,
    cache: Caches = "static",
) -> dict[str, Any]:
    """Methods of a causal model of transformers, for `stepwell.lower`.

    Args:
        model: a `PreTrainedModel` with a language model's head.
        context: tokens of a conversation; by default what the model was made for, at most 2048.
        attention: see `Decoder`; by default `custom` with a static cache.
        any_length: tokens of any number at once; else one.
        cache: `static`: state of the program, for `context` tokens. `dynamic`: given with each call
            and given back longer, for callers who keep it; see `Growing`.

    Returns:
        `forward` as an `ExportedProgram`, and the values that ExecuTorch's LLM runner asks for.

    Raises:
        StepwellError: its attention has no such form, or torch does not export the model.
    """
    config = model.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None) or 2048
    size = context or min(longest, 2048)
    if size > longest:
        raise StepwellError(
            f"a context of {size} tokens is longer than the {longest} that the model was made for"
        )
    own = model.config._attn_implementation
    model = model.eval().requires_grad_(False)
    tokens = torch.ones(1, 3 if any_length else 1, dtype=torch.long)
    rows = {1: torch.export.Dim("tokens", max=size - 1)} if any_length else None
    if cache == "dynamic":
        if attention == "custom":
            raise StepwellError(
                "ExecuTorch's attention writes to a cache in place, and a dynamic one grows",
                help="attention='torch', or cache='static'",
            )
        attention, decoder = "torch", Growing(model, size)
        past = [{2: torch.export.Dim("past", max=size - 1)}] * config.num_hidden_layers
        given, shapes = (tokens, *decoder.caches(5)), (rows, past, past)
    else:
        attention = attention or "custom"
        decoder = Decoder(model, size, attention)
        given, shapes = (tokens, torch.tensor([0])), (rows, {0: 1}) if any_length else None
    with asked_quietly(), kept_stderr() as said:
        try:  # A strict export holds two copies of each weight, also of those that are mapped.
            program = export(decoder, given, dynamic_shapes=shapes)
        except Exception as error:
            error.add_note(said.getvalue())
            line = (str(error).strip().splitlines() or [""])[0]
            raise StepwellError(
                f"torch.export.export fails on {config.model_type}: {type(error).__name__}: {line}",
                help="any_length=False or the other attention may be exportable",
            ) from error
        finally:
            model.set_attn_implementation(own)
    told = metadata(config, size, attention, any_length)
    if cache == "dynamic":  # A runner that asks for a cache means one inside.
        told = {key: value for key, value in told.items() if not key.startswith("use_")}
    return {"forward": program, **told}


def metadata(config: Any, context: int, attention: Attention, any_length: bool) -> dict[str, Any]:
    """What ExecuTorch's LLM runner asks about a model, as methods that give values."""
    ends = config.eos_token_id
    ends = [ends] if isinstance(ends, int) else list(ends or [])
    return {
        "get_bos_id": config.bos_token_id or 0,
        "get_eos_ids": ends or [0],
        "get_max_seq_len": context,
        "get_max_context_len": context,
        "get_vocab_size": config.vocab_size,
        "get_n_layers": config.num_hidden_layers,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": attention == "custom",
        "enable_dynamic_shape": any_length,
    }


def is_causal_lm(folder: Path) -> bool:
    """Whether a folder is what `save_pretrained` writes of a causal language model."""
    file = folder / CONFIG
    if not file.is_file():
        return False
    try:
        held: Any = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return False
    kinds: Any = held.get("architectures") if isinstance(held, Mapping) else None
    return any("ForCausalLM" in str(kind) or "LMHead" in str(kind) for kind in kinds or ())


def load_causal_lm(folder: Path) -> Any:
    """The model of a folder; weights in safetensors stay mapped, and nothing is downloaded.

    Raises:
        StepwellError: transformers is not installed, or cannot read it.
    """
    try:
        transformers = imported("transformers")
    except ImportError as error:
        raise StepwellError(
            f"{folder} holds a model of transformers, which is not installed",
            help="the extra 'hf' brings it: pip install 'stepwell[hf]'",
        ) from error
    kind = transformers.AutoModelForCausalLM
    try:
        with kept_stderr():  # Its bars.
            return kind.from_pretrained(folder, dtype="auto", local_files_only=True)
    except Exception as error:  # Whatever transformers fails with is about the folder.
        line = (str(error).strip().splitlines() or [""])[0]
        raise StepwellError(f"transformers cannot read {folder}: {line}") from error

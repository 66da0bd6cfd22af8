"""What ExecuTorch's LLM runner asks about a model, as methods that give values."""

from __future__ import annotations

from typing import Any

from stepwell.causal_lm.attention import Attention


def metadata(
    model: Any, context: int, attention: Attention, any_length: bool, all_logits: bool = False
) -> dict[str, Any]:
    """Constant methods of a causal model.

    Tokens that end a turn are those of `generation_config.json` and of the model's own
    configuration; where none is named there is no such method, and the runner asks its tokenizer.
    """
    config = model.config.get_text_config()
    generation = getattr(model, "generation_config", None)
    ends = dict.fromkeys(
        token
        for source in (generation, config)
        for token in _as_list(getattr(source, "eos_token_id", None))
    )
    begin = getattr(generation, "bos_token_id", None)
    begin = getattr(config, "bos_token_id", None) if begin is None else begin
    return {
        **({} if begin is None else {"get_bos_id": begin}),
        **({"get_eos_ids": list(ends)} if ends else {}),
        "get_max_seq_len": context,
        "get_max_context_len": context,
        "get_vocab_size": config.vocab_size,
        "get_n_layers": config.num_hidden_layers,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": attention == "custom",
        "enable_dynamic_shape": any_length,
        **({"generate_full_logits": True} if all_logits else {}),
    }


def _as_list(tokens: Any) -> list[int]:
    if tokens is None:
        return []
    return [tokens] if isinstance(tokens, int) else list(tokens)

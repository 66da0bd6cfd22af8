"""Metadata of a model: its context length, and the constants that ExecuTorch's runner queries."""

from typing import Any

from stepwell.ir.diagnostics import StepwellError
from stepwell.language_models.attention import Attention


def context_of(config: Any, asked: int | None, usual: int) -> int:
    """Return the number of tokens for which a program has space.

    Args:
        config: configuration of the part that generates tokens.
        asked: the requested number, or None.
        usual: the upper limit of the default.

    Raises:
        StepwellError: more tokens were requested than the model supports.
    """
    names = ("max_target_positions", "max_position_embeddings")
    longest = next((n for name in names if (n := getattr(config, name, None))), None)
    size = asked or min(longest or usual, usual)
    if longest is not None and size > longest:
        raise StepwellError(
            f"a context of {size} tokens exceeds the {longest} tokens that the model supports"
        )
    return size


def metadata(
    model: Any, context: int, attention: Attention, any_length: bool, all_logits: bool = False
) -> dict[str, Any]:
    """Return the constant methods of a causal model.

    The end-of-turn tokens are those of `generation_config.json` and of the model's own
    configuration. If neither names one, the method is absent and the runner uses its tokenizer.
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

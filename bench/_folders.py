"""Small configurations of transformers' causal language models, by architecture."""

from __future__ import annotations

import dataclasses
from typing import Any

SIZES: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 128, "sliding_window": 16, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
    "v_head_dim": 16, "state_size": 8, "ssm_state_size": 8, "mamba_d_state": 8, "mamba_n_heads": 8,
    "mamba_d_head": 16, "mamba_n_groups": 1, "n_inner": 96, "ffn_dim": 96, "decoder_layers": 2,
    "decoder_ffn_dim": 96, "decoder_attention_heads": 4, "word_embed_proj_dim": 64,
}  # fmt: skip
"""What every configuration is given of what it has."""

_LATENT = {"num_key_value_heads": 4, "head_dim": 8, "first_k_dense_replace": 1}
_DELTA = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_CONVOLVED = {"layer_types": ["conv", "full_attention"]}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    **{
        name: {}
        for name in (
            "afmoe apertus arcee aria_text bart bitnet bloom cohere cohere2 ctrl cwm diffllama "
            "doge ernie4_5 ernie4_5_moe exaone4 exaone_moe falcon falcon_mamba flex_olmo gemma "
            "gemma2 gemma3_text glm glm4 glm4_moe gpt2 gpt_bigcode gpt_neox gpt_oss granite "
            "granitemoe granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe internlm3 jais2 "
            "jetmoe llama llama4_text mamba mbart minimax_m2 ministral mistral mixtral moshi mpt "
            "nanochat nemotron olmo olmo2 olmo3 olmoe opt persimmon phi phi3 phimoe qwen2 "
            "qwen2_moe qwen3 qwen3_moe seed_oss smollm3 solar_open stablelm starcoder2 vaultgemma "
            "xglm flint gpt-sw3 gpt_neox_japanese granite_swa granitemoe_swa hy_v3 hyperclovax "
            "iquestcoder laguna mellum ministral3"
        ).split()
    },
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "minicpm3", "youtu"),
        _LATENT,
    ),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid"), _DELTA),
    "bamba": {"attn_layer_indices": [1]},
    "biogpt": {},
    "codegen": {"rotary_dim": 8},
    "dots1": {"moe_intermediate_size": 64},
    "falcon_h1": {"mamba_d_ssm": 128},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 16},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "shared_intermediate_size": 64},
    "jamba": {"attn_layer_offset": 1, "attn_layer_period": 2, "mamba_dt_rank": 8},
    "lfm2": _CONVOLVED,
    "lfm2_moe": {**_CONVOLVED, "num_dense_layers": 1},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1, "chunk_size": 16},
    "nemotron_h": {"mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 1},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "rwkv": {},
}
"""What each is given besides: layers of every kind that it has."""


def config_of(name: str) -> Any:
    """A configuration of two layers."""
    import transformers

    kind = transformers.CONFIG_MAPPING[name]
    fields = {field.name for field in dataclasses.fields(kind)} | set(kind.attribute_map)
    given = {key: value for key, value in SIZES.items() if key in fields}
    return kind(**{**given, **ARCHITECTURES[name]})

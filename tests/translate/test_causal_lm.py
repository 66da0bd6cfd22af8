"""Causal language models of transformers, from folders and from memory, as runners call them."""

from pathlib import Path
from typing import Any

import pytest
import torch

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.cli.main import main
from stepwell.ir.diagnostics import StepwellError
from stepwell.language_models import (
    export_causal_lm,
    is_causal_lm,
    load_causal_lm,
    metadata,
    prepare,
)
from stepwell.language_models.observing import cache_argument
from stepwell.model_zoo.catalogue.vision import imported
from stepwell.quantization.quantizers import find_quantizer

from .language_models import largest_error, logits_of, needed, session_of
from .language_models import model_of as small

needed("transformers")
ENDS = {"bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": 0}
RECURRENT = ("Mamba", "Mamba2", "RecurrentGemma", "KimiLinear")


def model_of(kind: str, **more: Any) -> Any:
    """A recurrence amplifies what is off."""
    return small(kind, scale=1.5 if kind in RECURRENT else 3, **ENDS, **more)


@torch.no_grad()
def logits_one_by_one(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The same by the recurrence of a model that sums in another order where it sees all tokens."""
    cache = imported("transformers").DynamicCache(config=model.config)
    name = cache_argument(model)
    rows = [model(token[None, None], use_cache=True, **{name: cache}) for token in tokens[0]]
    return torch.stack([row.logits[0, -1] for row in rows])


PREFILL = ("prefill", "decode")
ONE_LAYER = {"num_hidden_layers": 1}
"""For a kind whose layers are alike; that caches of layers are kept apart Llama and Gemma2 show."""

OF_KIND: dict[str, dict[str, Any]] = {
    "Qwen3": {"head_dim": 16, **ONE_LAYER},
    "Gemma2": {"head_dim": 16, "sliding_window": 5},
    "Mistral": {"sliding_window": 5, **ONE_LAYER},
    "Mixtral": {"sliding_window": 5, "num_local_experts": 4, **ONE_LAYER},
    "Lfm2": {"layer_types": ["full_attention", "conv"]},
    "DeepseekV2": {  # Turns its heads by complex numbers.
        "num_key_value_heads": 4,
        "head_dim": 8,
        "q_lora_rank": 32,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 32,
    },
    "RecurrentGemma": {"block_types": ["recurrent", "attention"]},
    "Mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1, "chunk_size": 8, "state_size": 8},
    "Qwen3_5Text": {
        "head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
    },
    "Mamba": {"state_size": 8, "num_hidden_layers": 1},
    "KimiLinear": {  # A decay for each channel of keys.
        "num_key_value_heads": 4,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_heads": 2,
        "linear_head_dim": 16,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 32,
    },
    "FalconH1": {  # A layer has keys, values and two states of a recurrence.
        "head_dim": 16,
        "mamba_d_ssm": 64,
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 8,
        "mamba_chunk_size": 8,
        **ONE_LAYER,
    },
}
"""Windows that a conversation of 16 tokens passes, experts as they ship, states of recurrences."""

IN_PARTS = [(0, 7), (7, 12), *((at, at + 1) for at in range(12, 16))]
ONE_BY_ONE = [(at, at + 1) for at in range(12)]
IN_CHUNKS = [(0, 1), (1, 3), (3, 8), (8, 13), *((at, at + 1) for at in range(13, 16))]


@pytest.mark.parametrize(
    ("kind", "attention", "any_length"),
    [
        ("Llama", None, True),
        ("Qwen3", "torch", True),
        pytest.param("Llama", "torch", False, marks=pytest.mark.slow),
        pytest.param("Mistral", None, True, marks=pytest.mark.slow),
        pytest.param("Gemma2", None, True, marks=pytest.mark.slow),
        pytest.param("Mixtral", None, True, marks=pytest.mark.slow),
        pytest.param("Lfm2", None, None, marks=pytest.mark.slow),
        ("RecurrentGemma", None, None),
        ("DeepseekV2", None, True),
    ],
)
def test_a_conversation_in_parts_is_what_the_model_says_at_once(
    kind: str, attention: Any, any_length: bool
):
    model = model_of(kind, **OF_KIND.get(kind, {}))
    tokens = torch.randint(0, 96, (1, 16))
    methods = export_causal_lm(model, context=32, attention=attention, any_length=any_length)
    is_recurrent = any_length is None
    want = (logits_one_by_one if is_recurrent else logits_of)(model, tokens)
    session = PteSession.load(stepwell.lower(methods, "xnnpack").to_pte())
    parts = IN_PARTS if methods["enable_dynamic_shape"] else ONE_BY_ONE
    assert largest_error(session, tokens, want, parts) < 2e-5
    assert session.run(method="get_eos_ids") == (2, 3)
    assert session.run(method="get_max_seq_len") == (32,)


@pytest.mark.parametrize(
    ("kind", "attention"),
    [
        pytest.param("Qwen3_5Text", "custom", marks=pytest.mark.slow),
        pytest.param("KimiLinear", "torch", marks=pytest.mark.slow),
        pytest.param("Mamba2", "torch", marks=pytest.mark.slow),
        ("Mamba", "torch"),
        ("FalconH1", "custom"),
    ],
)
def test_a_recurrence_takes_a_prompt_in_chunks_and_goes_on(kind: str, attention: Any):
    model, tokens = model_of(kind, **OF_KIND[kind]), torch.randint(0, 96, (1, 16))
    notes: list[str] = []
    methods = export_causal_lm(model, context=32, chunk=5, methods=PREFILL, notes=notes)
    assert [methods[f"get_max_{what}_len"] for what in ("seq", "context")] == [5, 32]
    assert methods["use_sdpa_with_kv_cache"] == (attention == "custom")
    assert not any("a token at a time" in note for note in notes)
    session = PteSession.load(stepwell.lower(methods, "xnnpack").to_pte())
    want = logits_one_by_one(model, tokens)
    for begin, end in [*IN_CHUNKS, *IN_CHUNKS[1:3]]:
        method = "prefill" if end - begin > 1 or end == 1 else "decode"
        part = tokens[:, begin:end].contiguous()
        got = session.run(part, torch.tensor([begin]), method=method)[0][0]
        if (begin, end) == IN_CHUNKS[-1]:  # At position zero, nothing of this is left.
            session.run(tokens[:, :1].contiguous(), torch.tensor([0]), method="decode")
        assert float((got - want[end - 1]).abs().max()) < 2e-5 * float(want.abs().max())


@pytest.mark.parametrize("kind", ["Llama", "Mistral"])
def test_a_cache_in_halves_is_nearer_to_the_model_than_the_model_in_halves(kind: str):
    model = model_of(kind, **OF_KIND.get(kind, {}))
    tokens = torch.randint(0, 96, (1, 16))
    methods = export_causal_lm(model, context=32, cache_dtype="bf16")
    lowered = stepwell.lower(methods, "xnnpack")
    layers = model.config.num_hidden_layers
    state = [value.dtype for name, value in methods["forward"].named_buffers() if "keys" in name]
    assert state == [torch.bfloat16] * layers
    want = logits_of(model, tokens)
    off = largest_error(PteSession.load(lowered.to_pte()), tokens, want, IN_PARTS)
    whole = (logits_of(model.bfloat16(), tokens).float() - want).abs().max() / want.abs().max()
    assert 2e-5 < off < float(whole)


def test_a_dynamic_cache_is_given_and_given_back_longer():
    model = model_of("Llama")
    tokens = torch.randint(0, 96, (1, 16))
    want = logits_of(model, tokens)
    methods = export_causal_lm(model, context=32, cache="dynamic")
    session = PteSession.load(stepwell.lower(methods, "xnnpack").to_pte())
    caches = [torch.zeros(1, 2, 0, 16) for _ in range(4)]
    for begin, end in IN_PARTS:
        logits, *caches = session.run(tokens[:, begin:end].contiguous(), *caches)
        assert float((logits[0] - want[end - 1]).abs().max()) < 2e-5 * float(want.abs().max())
        assert [cache.shape[2] for cache in caches] == [end] * 4
    assert "use_kv_cache" not in methods


def test_a_folder_is_lowered_quantized_and_says_what_the_quantized_model_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, file = tmp_path / "llama", tmp_path / "llama.pte"
    model_of("Llama").save_pretrained(folder)
    arguments = ["--quantize", "8da4w", "--context", "32", "-o", str(file)]
    assert main(["lower", str(folder), *arguments]) == 0, capsys.readouterr().err
    model = find_quantizer("8da4w")(load_causal_lm(folder), ())
    tokens = torch.randint(0, 96, (1, 16))
    want = logits_of(model, tokens)
    session = PteSession.load(file.read_bytes())
    # An int8 activation may round to its neighbor where sums are made in another order.
    assert largest_error(session, tokens, want, IN_PARTS) < 0.05


def test_a_folder_of_something_else_is_none(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"architectures": ["BertForMaskedLM"]}')
    assert not is_causal_lm(tmp_path)
    (tmp_path / "config.json").write_text("no json")
    assert not is_causal_lm(tmp_path)


CUSTOM = {"attention": "custom"}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
DYNAMIC = {"cache": "dynamic"}
REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "capped scores": ("Gemma2", {"head_dim": 16}, CUSTOM, "capped by tanh"),
    "sinks": ("GptOss", {"head_dim": 16, **EXPERTS}, CUSTOM, "an attention that is given s_aux"),
    "keys repeated behind the cache": (
        "JetMoe",
        {"kv_channels": 16, **EXPERTS},
        CUSTOM,
        "which differs from the cache's",
    ),
    "any number of tokens for a recurrence of another form": (
        "RecurrentGemma",
        {"block_types": ["recurrent", "attention"]},
        {"any_length": True},
        "takes one token at a time",
    ),
    "a state that no cache holds": ("Rwkv", {}, {}, "takes no cache of transformers"),
    "a growing cache for custom attention": (
        "Llama",
        {},
        DYNAMIC | CUSTOM,
        "a dynamic cache grows",
    ),
    "a type of the caller's cache": (
        "Llama",
        {},
        {**DYNAMIC, "cache_dtype": "bf16"},
        "a dynamic cache has the compute dtype",
    ),
    "a type of a cache that the model keeps": (
        "Llama",
        {},
        {"attention": "torch", "cache_dtype": "bf16"},
        "keeps its cache in the compute dtype",
    ),
    "a type of a cache that there is not": (
        "Llama",
        {},
        {"cache_dtype": "int8"},
        "cache_dtype is int8",
    ),
    "windows that forget": (
        "Mistral",
        {"sliding_window": 8},
        DYNAMIC,
        "a dynamic cache keeps every token",
    ),
    "a chunk of one token": ("Llama", {}, {"chunk": 1}, "must be at least 4 tokens"),
    "a context that is too long": ("Llama", {}, {"context": 65}, "exceeds the 64 tokens"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_attention_cannot_say_is_refused(name: str):
    kind, settings, how, reason = REFUSED[name]
    with pytest.raises(StepwellError, match=reason):
        export_causal_lm(model_of(kind, **settings), **{"context": 32, **how})


def test_options_of_language_models_are_for_those(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["lower", str(tmp_path), "--context", "8"]) == 1
    assert "no folder of a causal language model" in capsys.readouterr().err


@pytest.mark.parametrize("attention", ["custom", "torch"])
def test_a_position_outside_the_cache_is_an_error_and_nothing_is_written(attention: Any):
    model, tokens = model_of("Llama"), torch.randint(0, 96, (1, 8))
    session = session_of(model, attention=attention)
    session.run(tokens, torch.tensor([0]))
    for begin, count in ((-1, 1), (-40, 2), (32, 1), (30, 3)):
        with pytest.raises(StepwellError, match="the runtime fails"):
            session.run(tokens[:, :count].contiguous(), torch.tensor([begin]))
    again = session.run(tokens[:, 7:].contiguous(), torch.tensor([7]))[0][0]
    want = logits_of(model, tokens)[7]
    assert float((again - want).abs().max()) < 2e-5 * float(want.abs().max())


def test_a_conversation_of_a_recurrence_begins_anew_at_position_zero():
    model, tokens = model_of("Mamba2", **OF_KIND["Mamba2"]), torch.randint(0, 96, (1, 2))
    session = session_of(model, any_length=False)
    first = session.run(tokens[:, :1].contiguous(), torch.tensor([0]))[0]
    session.run(tokens[:, 1:].contiguous(), torch.tensor([1]))
    assert torch.equal(session.run(tokens[:, :1].contiguous(), torch.tensor([0]))[0], first)


def test_ends_of_a_turn_are_those_of_the_generation_config_and_none_is_invented():
    model = model_of("Llama")
    model.generation_config.eos_token_id = [7, 2]
    assert metadata(model, 32, "custom", True)["get_eos_ids"] == [7, 2, 3]
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    assert "get_eos_ids" not in metadata(model, 32, "custom", True)


def test_all_logits_are_those_of_every_token():
    model, tokens = model_of("Llama"), torch.randint(0, 96, (1, 6))
    methods = export_causal_lm(model, context=32, logits="all")
    session = PteSession.load(stepwell.lower(methods, "xnnpack").to_pte())
    want = logits_of(model, tokens)
    got = session.run(tokens, torch.tensor([0]))[0][0]
    assert float((got - want).abs().max()) < 2e-5 * float(want.abs().max())
    assert methods["generate_full_logits"]


@pytest.mark.parametrize(
    ("kind", "embedding"), [("Llama", 8), pytest.param("Gemma", 4, marks=pytest.mark.slow)]
)
def test_a_folder_of_halves_is_quantized_with_its_table(
    kind: str, embedding: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, file = tmp_path / "model", tmp_path / "model.pte"
    more: dict[str, Any] = {"head_dim": 16} if kind == "Gemma" else {}
    model_of(kind, **more).to(torch.bfloat16).save_pretrained(folder)
    how = ["--quantize", "8da4w", "--embedding", str(embedding), "--context", "32"]
    assert main(["lower", str(folder), *how, "-o", str(file)]) == 0, capsys.readouterr().err
    model = prepare(load_causal_lm(folder), quantize="8da4w", embedding=embedding)
    tokens = torch.randint(0, 96, (1, 16))
    # An int8 activation may round to its neighbor where sums are made in another order.
    session = PteSession.load(file.read_bytes())
    assert largest_error(session, tokens, logits_of(model, tokens), IN_PARTS) < 0.05


def test_a_layer_of_four_bits_has_the_scales_that_its_kernel_holds():
    torch.manual_seed(0)
    layer = find_quantizer("8da4w")(torch.nn.Sequential(torch.nn.Linear(96, 64)), ())
    given = torch.randn(5, 96)
    program = torch.export.export(layer, (given,))
    got = PteSession.load(stepwell.lower(program, "xnnpack").to_pte()).run(given)[0]
    torch.testing.assert_close(got, layer(given), rtol=1e-5, atol=1e-6)


def test_groups_without_a_quantizer_that_has_them_are_refused():
    with pytest.raises(StepwellError, match="has no groups of weights"):
        prepare(model_of("Llama"), group=16)


def test_layers_of_gpt2_are_quantized_though_their_weights_lie_the_other_way_round():
    tokens = torch.randint(4, 96, (1, 9))
    model = model_of("GPT2")
    before = logits_of(model, tokens)
    linears = [n for n, m in model.named_modules() if type(m).__name__ == "Conv1D"]
    prepared = prepare(model, quantize="8da8w")
    after = logits_of(prepared, tokens)
    assert len(linears) == 8
    assert not any(type(m).__name__ == "Conv1D" for m in prepared.modules())
    assert 0 < (after - before).abs().max() < 0.1 * before.abs().max()


def test_layers_of_falcon_are_quantized_though_they_multiply_by_hand():
    tokens = torch.randint(4, 96, (1, 9))
    model = model_of("Falcon", num_kv_heads=2)
    assert any(type(m).__name__ == "FalconLinear" for m in model.modules())
    before = logits_of(model, tokens)
    after = logits_of(prepare(model, quantize="8da8w"), tokens)
    assert 0 < (after - before).abs().max() < 0.1 * before.abs().max()


def test_a_quantizer_that_finds_no_layer_is_refused():
    model = model_of("Llama")
    model.model.layers, model.lm_head = torch.nn.ModuleList(), torch.nn.Identity()
    with pytest.raises(StepwellError, match="no linear layer"):
        prepare(model, quantize="8da4w")


@pytest.mark.parametrize("attention", ["custom", "torch"])
def test_methods_share_a_state_and_verify_says_what_each_token_says(attention: Any):
    layers = 2 if attention == "custom" else 1
    model, tokens = model_of("Llama", num_hidden_layers=layers), torch.randint(0, 96, (1, 16))
    names = ("prefill", "decode", "verify")
    methods = export_causal_lm(model, context=32, attention=attention, methods=names)
    session = PteSession.load(stepwell.lower(methods, "xnnpack").to_pte())
    want = logits_of(model, tokens)
    of_turns = [("prefill", 0, 7), ("decode", 7, 8), ("verify", 8, 12), ("decode", 12, 13)]
    for method, begin, end in (*of_turns, ("verify", 13, 16)):
        part = tokens[:, begin:end].contiguous()
        got = session.run(part, torch.tensor([begin]), method=method)[0]
        assert got.shape == ((1, end - begin, 96) if method == "verify" else (1, 96))
        of = want[begin:end] if method == "verify" else want[end - 1]
        assert float((got[0] - of).abs().max()) < 2e-5 * float(want.abs().max())
    assert "forward" not in methods


def test_methods_of_a_recurrence_of_another_form_take_a_token():
    model = model_of("RecurrentGemma", **OF_KIND["RecurrentGemma"])
    with pytest.raises(StepwellError, match="takes one token at a time"):
        export_causal_lm(model, context=32, methods=("decode", "verify"))
    assert "decode" in export_causal_lm(model, context=32, methods=("decode",))


@pytest.mark.parametrize(
    ("how", "reason"),
    [({"methods": ("guess",)}, "has no method guess"), ({"cache": "dynamic"}, "share a state")],
)
def test_methods_that_there_are_not_are_refused(how: dict[str, Any], reason: str):
    with pytest.raises(StepwellError, match=reason):
        export_causal_lm(model_of("Llama"), **{"methods": ("decode",), "context": 32, **how})


@pytest.mark.parametrize(
    ("kind", "attention"),
    [("Llama", "custom"), ("Mixtral", None), ("Lfm2", None)],
)
def test_conversations_of_a_batch_are_each_what_the_model_says(kind: str, attention: Any):
    model, tokens = model_of(kind, **OF_KIND.get(kind, {})), torch.randint(0, 96, (3, 14))
    session = session_of(model, attention=attention, batch=3)
    with torch.no_grad():
        want = model(input_ids=tokens, use_cache=False).logits
    for begin, end in [*IN_PARTS[:2], (12, 13), (13, 14)]:
        got = session.run(tokens[:, begin:end].contiguous(), torch.tensor([begin]))[0]
        assert float((got - want[:, end - 1]).abs().max()) < 2e-5 * float(want.abs().max())

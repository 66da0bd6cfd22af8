"""Causal language models of transformers, from folders and from memory, as runners call them."""

from pathlib import Path
from typing import Any

import pytest
import torch

import stepwell
from stepwell.backends.executorch.runner import PteSession
from stepwell.causal_lm import export_causal_lm, is_causal_lm
from stepwell.cli import main
from stepwell.ir.diagnostics import StepwellError
from stepwell.zoo.vision import imported

pytest.importorskip("transformers", reason="the extra hf is not installed")
SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
    "pad_token_id": 0,
}


def model_of(kind: str, **more: Any) -> Any:
    """A small model with random weights that are large enough to matter."""
    torch.manual_seed(0)
    config = getattr(imported("transformers"), f"{kind}Config")(**SIZES, **more)
    model = imported("transformers").AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        parameter.data.mul_(3)
    return model


@torch.no_grad()
def logits_of(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The logits of every token, without a cache and with the model's own attention."""
    return model(input_ids=tokens, use_cache=False).logits[0]


def largest_error(
    session: PteSession, tokens: torch.Tensor, want: torch.Tensor, parts: list[tuple[int, int]]
) -> float:
    """How far a conversation in parts is off, as a share of the largest logit."""
    errors = []
    for begin, end in parts:
        got = session.run(tokens[:, begin:end].contiguous(), torch.tensor([begin]))[0][0]
        errors.append(float((got - want[end - 1]).abs().max()))
    return max(errors) / float(want.abs().max())


IN_PARTS = [(0, 7), (7, 12), *((at, at + 1) for at in range(12, 16))]
ONE_BY_ONE = [(at, at + 1) for at in range(8)]


@pytest.mark.parametrize(
    ("kind", "attention", "any_length"),
    [("Llama", "custom", True), ("Qwen3", "torch", True), ("Llama", "torch", False)],
)
def test_a_conversation_in_parts_is_what_the_model_says_at_once(
    kind: str, attention: Any, any_length: bool
):
    model = model_of(kind, **({"head_dim": 16} if kind == "Qwen3" else {}))
    tokens = torch.randint(0, 96, (1, 16))
    want = logits_of(model, tokens)
    methods = export_causal_lm(model, context=32, attention=attention, any_length=any_length)
    session = PteSession.load(stepwell.lower(methods, "xnnpack").to_pte())
    parts = IN_PARTS if any_length else ONE_BY_ONE
    assert largest_error(session, tokens, want, parts) < 2e-5
    assert session.run(method="get_eos_ids") == (2, 3)
    assert session.run(method="get_max_seq_len") == (32,)


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


def test_a_folder_is_lowered_quantised_and_says_what_the_quantised_model_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    from stepwell.causal_lm import load_causal_lm
    from stepwell.quantising import find_quantiser

    folder, file = tmp_path / "llama", tmp_path / "llama.pte"
    model_of("Llama").save_pretrained(folder)
    arguments = ["--quantise", "8da4w", "--context", "32", "-o", str(file)]
    assert main(["lower", str(folder), *arguments]) == 0, capsys.readouterr().err
    model = find_quantiser("8da4w")(load_causal_lm(folder), ())
    tokens = torch.randint(0, 96, (1, 16))
    want = logits_of(model, tokens)
    session = PteSession.load(file.read_bytes())
    # An int8 activation may round to its neighbour where sums are made in another order.
    assert largest_error(session, tokens, want, IN_PARTS) < 0.05


def test_a_folder_of_something_else_is_none(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"architectures": ["BertForMaskedLM"]}')
    assert not is_causal_lm(tmp_path)
    (tmp_path / "config.json").write_text("no json")
    assert not is_causal_lm(tmp_path)


REFUSED = {
    "windows": ("Mistral", {"sliding_window": 8}, {}, "windows of 8 tokens"),
    "capped scores": ("Gemma2", {"head_dim": 16}, {}, "capped by tanh"),
    "a growing cache for ExecuTorch's attention": (
        "Llama",
        {},
        {"cache": "dynamic", "attention": "custom"},
        "a dynamic one grows",
    ),
    "windows that forget": (
        "Mistral",
        {"sliding_window": 8},
        {"cache": "dynamic"},
        "a dynamic cache keeps every token",
    ),
    "a context that is too long": ("Llama", {}, {"context": 65}, "longer than the 64"),
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

"""ExecuTorch's own runner of language models says, with our programs, what eager PyTorch says."""

from pathlib import Path
from typing import Any

import pytest
import torch
from sampled import sampled

import stepwell
from stepwell.language_models import export_causal_lm, prepare

from .language_models import LETTERS, generated, model_of, needed, said_by, write_tokenizer

needed("transformers", "tokenizers")
runner: Any = pytest.importorskip(
    "executorch.extension.llm.runner", reason="this wheel of ExecuTorch has no runner"
)

PROMPT, COUNT = "hello,world", 12


def never_ending(kind: str, seed: int, **more: Any) -> Any:
    """A small model that never prefers the token which ends."""
    words = {"vocab_size": len(LETTERS) + 2, "bos_token_id": 0, "eos_token_id": 1}
    model = model_of(kind, seed=seed, tie_word_embeddings=False, **words, **more)
    model.to(more.get("dtype", torch.float32)).lm_head.weight.data[:2] = 0
    return model


CASES: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "single precision": ("Llama", {}, None),
    "weights of four bits": ("Llama", {}, "8da4w"),
    "bfloat16": ("Llama", {"dtype": torch.bfloat16}, None),
    "windows": ("Mistral", {"sliding_window": 8}, None),
    "a convolution with state, in chunks of four tokens": (
        "Lfm2",
        {"layer_types": ["conv", "full_attention"]},
        None,
    ),
}
CHUNKS = {"a convolution with state, in chunks of four tokens": 4}


def certain(tokens: list[int], kind: str, quantize: str | None, **more: Any) -> Any:
    """The first model that knows what it wants to say, and that."""
    for seed in range(50):
        model = prepare(never_ending(kind, seed, **more), quantize=quantize)
        want, margin = said_by(model, tokens, COUNT)
        if margin > 0.02:
            return model, want
    raise AssertionError("every model hesitates")


@pytest.mark.parametrize("name", sampled(CASES, "windows", "weights of four bits"))
def test_the_text_runner_says_what_the_model_says_and_again_after_a_reset(
    name: str, tmp_path: Path
):
    kind, more, quantize = CASES[name]
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json", "<s>", "</s>")
    model, want = certain(tokenizer.encode(PROMPT).ids, kind, quantize, **more)
    methods = export_causal_lm(model, context=48, chunk=CHUNKS.get(name))
    stepwell.lower(methods, "xnnpack").save(tmp_path / "model.pte")
    made = runner.TextLLMRunner(str(tmp_path / "model.pte"), str(tmp_path / "tokenizer.json"))
    for _ in range(2):
        assert generated(made, PROMPT, COUNT) == tokenizer.decode(want)
        made.reset()


def test_a_text_runner_that_goes_on_past_the_cache_is_told_so_and_nothing_is_lost(tmp_path: Path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json", "<s>", "</s>")
    model, want = certain(tokenizer.encode(PROMPT).ids, "Llama", None)
    methods = export_causal_lm(model, context=16)
    methods |= {"get_max_seq_len": 999, "get_max_context_len": 999}  # Which the cache has not.
    stepwell.lower(methods, "xnnpack").save(tmp_path / "model.pte")
    made = runner.TextLLMRunner(str(tmp_path / "model.pte"), str(tmp_path / "tokenizer.json"))
    with pytest.raises(RuntimeError):
        generated(made, PROMPT, COUNT)
    made.reset()
    assert generated(made, PROMPT, 4) == tokenizer.decode(want[:4])

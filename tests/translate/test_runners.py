"""ExecuTorch's own runner of language models says, with our programs, what eager PyTorch says."""

import string
from pathlib import Path
from typing import Any

import pytest
import torch

import stepwell
from stepwell.language_models import export_causal_lm, prepare
from stepwell.model_zoo.catalogue.vision import imported

transformers: Any = pytest.importorskip("transformers", reason="the extra hf is not installed")
tokenizers: Any = pytest.importorskip("tokenizers", reason="the extra hf is not installed")
runner: Any = pytest.importorskip(
    "executorch.extension.llm.runner", reason="this wheel of ExecuTorch has no runner"
)

LETTERS = [*string.ascii_letters, *string.digits, *string.punctuation]
PROMPT, COUNT = "hello,world", 12


def write_tokenizer(file: Path) -> Any:
    """A letter a token, behind one that begins and one that ends."""
    vocabulary = {letter: at for at, letter in enumerate(["<s>", "</s>", *LETTERS])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>"])
    made.save(str(file))
    return made


def model_of(kind: str, seed: int, **more: Any) -> Any:
    """A small model that never prefers the token which ends."""
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(LETTERS) + 2,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
        **more,
    )
    model = imported("transformers").AutoModelForCausalLM.from_config(config).eval()
    model.to(more.get("dtype", torch.float32))
    for parameter in model.parameters():
        parameter.data.mul_(3)
    model.lm_head.weight.data[:2] = 0
    return model


@torch.no_grad()
def said_by(model: Any, tokens: list[int]) -> tuple[list[int], float]:
    """What a model says greedily, and by how much it prefers that at the least."""
    given, margin = torch.tensor([tokens]), float("inf")
    for _ in range(COUNT):
        logits = model(input_ids=given, use_cache=False).logits[0, -1]
        first, second = logits.topk(2).values.tolist()
        margin = min(margin, (first - second) / float(logits.abs().max()))
        given = torch.cat([given, logits.argmax()[None, None]], 1)
    return given[0, len(tokens) :].tolist(), margin


CASES: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "single precision": ("Llama", {}, None),
    "weights of four bits": ("Llama", {}, "8da4w"),
    "bfloat16": ("Llama", {"dtype": torch.bfloat16}, None),
    "windows": ("Mistral", {"sliding_window": 8}, None),
    "a recurrence, a token at a time": (
        "Lfm2",
        {"layer_types": ["conv", "full_attention"]},
        None,
    ),
}


def certain(tokens: list[int], kind: str, quantize: str | None, **more: Any) -> Any:
    """The first model that knows what it wants to say, and that."""
    for seed in range(50):
        model = prepare(model_of(kind, seed, **more), quantize=quantize)
        want, margin = said_by(model, tokens)
        if margin > 0.02:
            return model, want
    raise AssertionError("every model hesitates")


def generate(made: Any, count: int) -> str:
    """What a runner says of itself."""
    how = runner.GenerationConfig()
    how.max_new_tokens, how.temperature, how.echo = count, 0.0, False
    how.num_bos = how.num_eos = 0
    said: list[str] = []
    made.generate(PROMPT, how, token_callback=said.append)
    return "".join(said)


@pytest.mark.parametrize("name", CASES)
def test_the_text_runner_says_what_the_model_says_and_again_after_a_reset(
    name: str, tmp_path: Path
):
    kind, more, quantize = CASES[name]
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    model, want = certain(tokenizer.encode(PROMPT).ids, kind, quantize, **more)
    stepwell.lower(export_causal_lm(model, context=48), "xnnpack").save(tmp_path / "model.pte")
    made = runner.TextLLMRunner(str(tmp_path / "model.pte"), str(tmp_path / "tokenizer.json"))
    for _ in range(2):
        assert generate(made, COUNT) == tokenizer.decode(want)
        made.reset()


def test_a_text_runner_that_goes_on_past_the_cache_is_told_so_and_nothing_is_lost(tmp_path: Path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    model, want = certain(tokenizer.encode(PROMPT).ids, "Llama", None)
    methods = export_causal_lm(model, context=16)
    methods |= {"get_max_seq_len": 999, "get_max_context_len": 999}  # Which the cache has not.
    stepwell.lower(methods, "xnnpack").save(tmp_path / "model.pte")
    made = runner.TextLLMRunner(str(tmp_path / "model.pte"), str(tmp_path / "tokenizer.json"))
    with pytest.raises(RuntimeError):
        generate(made, COUNT)
    made.reset()
    assert generate(made, 4) == tokenizer.decode(want[:4])

"""What tests of language models share: small models, conversations in parts, runners."""

import string
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import stepwell
from stepwell.backends.executorch.running.runner import PteSession
from stepwell.language_models import export_causal_lm
from stepwell.model_zoo.catalogue.vision import imported

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
PARTS = [(0, 7), (7, 12), (12, 13), (13, 16)]
"""A conversation of 16 tokens, from where to where."""
LETTERS = [*string.ascii_letters, *string.digits, *string.punctuation]


def needed(*packages: str) -> None:
    """Skip the module where a package is not installed."""
    for package in packages:
        if find_spec(package.partition(".")[0]) is None:
            pytest.skip(f"{package} is not installed", allow_module_level=True)


def model_of(kind: str, *, seed: int = 0, scale: float = 3, **more: Any) -> Any:
    """A small model with random weights that are large enough to matter."""
    torch.manual_seed(seed)
    config = getattr(imported("transformers"), f"{kind}Config")(**{**SIZES, **more})
    model = imported("transformers").AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        parameter.data.mul_(scale)
    return model


@torch.no_grad()
def logits_of(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The logits of every token, without a cache and with the model's own attention."""
    return model(input_ids=tokens, use_cache=False).logits[0]


def session_of(model: Any, **how: Any) -> PteSession:
    """A model lowered with room for 32 tokens, and loaded."""
    methods = export_causal_lm(model, **{"context": 32, **how})
    return PteSession.load(stepwell.lower(methods, "xnnpack").to_pte())


def largest_error(
    session: PteSession,
    tokens: torch.Tensor,
    want: torch.Tensor,
    parts: Sequence[tuple[int, int]] = PARTS,
) -> float:
    """How far a conversation in parts is off, as a share of the largest logit."""
    errors = []
    for begin, end in parts:
        got = session.run(tokens[:, begin:end].contiguous(), torch.tensor([begin]))[0][0]
        errors.append(float((got - want[end - 1]).abs().max()))
    return max(errors) / float(want.abs().max())


def write_tokenizer(file: Path, *special: str) -> Any:
    """A letter a token, behind special ones: the first begins, the second ends."""
    tokenizers = imported("tokenizers")
    vocabulary = {letter: at for at, letter in enumerate([*special, *LETTERS])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens([*special])
    made.save(str(file))
    return made


@torch.no_grad()
def said_by(model: Any, tokens: list[int], count: int, **more: Any) -> tuple[list[int], float]:
    """What a model says greedily, and by how much it prefers that at the least."""
    given, margin = torch.tensor([tokens]), float("inf")
    for _ in range(count):
        logits = model(input_ids=given, use_cache=False, **more).logits[0, -1]
        first, second = logits.topk(2).values.tolist()
        margin = min(margin, (first - second) / float(logits.abs().max()))
        given = torch.cat([given, logits.argmax()[None, None]], 1)
    return given[0, len(tokens) :].tolist(), margin


def generated(made: Any, prompt: Any, count: int) -> str:
    """What a runner of ExecuTorch says greedily."""
    runner: Any = pytest.importorskip("executorch.extension.llm.runner")
    how = runner.GenerationConfig()
    how.max_new_tokens, how.temperature, how.echo = count, 0.0, False
    how.num_bos = how.num_eos = 0
    said: list[str] = []
    made.generate(prompt, how, token_callback=said.append)
    return "".join(said)

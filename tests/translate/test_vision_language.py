"""A model that reads images, said by ExecuTorch's own runner of such models."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from stepwell.cli.main import main
from stepwell.ir.diagnostics import StepwellError
from stepwell.language_models import export_vision_language, is_vision_language

from .language_models import LETTERS, SIZES, generated, needed, said_by, write_tokenizer

needed("transformers", "tokenizers")
transformers: Any = import_module("transformers")
runner: Any = pytest.importorskip(
    "executorch.extension.llm.runner", reason="this wheel of ExecuTorch has no runner"
)

IMAGE, SIDE, COUNT = 2, 16, 8
"""The token of an image, its height and width, and how many tokens are said."""
TEXT = {**SIZES, "vocab_size": len(LETTERS) + 3, "bos_token_id": 0, "eos_token_id": 1}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": SIDE,
    "patch_size": 8,
    "projection_dim": 32,
}


def llava(seed: int) -> Any:
    """A small LLaVA that never prefers a token which is no letter."""
    torch.manual_seed(seed)
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION),
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_id=IMAGE,
        tie_word_embeddings=False,
    )
    model = transformers.LlavaForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        parameter.data.mul_(3 if parameter.dim() > 1 else 1)
    model.lm_head.weight.data[:3] = 0
    return model


def test_the_multimodal_runner_says_what_the_model_says_of_an_image(tmp_path: Path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json", "<s>", "</s>", "<image>")
    image = torch.rand(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(3))
    before, behind = tokenizer.encode("see:").ids, tokenizer.encode("what?").ids
    patches = (SIDE // VISION["patch_size"]) ** 2
    row = [*before, *[IMAGE] * patches, *behind]
    for seed in range(50):
        model = llava(seed)
        want, margin = said_by(model, row, COUNT, pixel_values=image)
        blind, _ = said_by(model, row, COUNT, pixel_values=torch.zeros_like(image))
        if margin > 0.02 and want != blind:
            break
    else:
        raise AssertionError("every model hesitates, or does not look")
    model.save_pretrained(tmp_path / "llava")
    how = ["--context", "48", "-o", str(tmp_path / "model.pte")]
    assert main(["lower", str(tmp_path / "llava"), *how]) == 0
    made = runner.MultimodalRunner(str(tmp_path / "model.pte"), str(tmp_path / "tokenizer.json"))
    parts = [
        runner.make_text_input("see:"),
        runner.make_image_input(image[0]),
        runner.make_text_input("what?"),
    ]
    assert generated(made, parts, COUNT) == tokenizer.decode(want)


def test_an_image_that_is_more_than_embeddings_in_a_row_is_refused(tmp_path: Path):
    vision = {key: value for key, value in VISION.items() if key != "projection_dim"}
    config = transformers.Gemma3Config(
        vision_config={**vision, "model_type": "siglip_vision_model"},
        text_config={**TEXT, "head_dim": 16},
        mm_tokens_per_image=4,
        image_token_index=IMAGE,
    )
    model = transformers.Gemma3ForConditionalGeneration(config)
    model.save_pretrained(tmp_path)
    assert is_vision_language(tmp_path)
    with pytest.raises(StepwellError, match="attend to later ones"):
        export_vision_language(model)

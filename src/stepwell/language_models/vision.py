"""Models that read images among the tokens, as the methods that `MultimodalRunner` requires.

`token_embedding` looks up tokens `[1, n]`. `vision_encoder` maps an image `[1, 3, h, w]` to the
embeddings that replace its tokens. `text_decoder` takes either embeddings `[1, n, size]` and the
position of the first `[1]`, and returns logits `[1, vocabulary]`; its state is part of the program.
"""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from stepwell.dialects.symbols import asked_quietly
from stepwell.ir.diagnostics import StepwellError, reported
from stepwell.language_models.attention import Attention
from stepwell.language_models.exporting import (
    as_it_was,
    export_causal_lm,
    exported,
    insist_on_agreement,
)
from stepwell.language_models.observing import own_attention
from stepwell.quantization.quantizers import in_floats

_OTHERWISE = {
    "token_type_ids": "lets the tokens of an image attend to later ones",
    "mm_token_type_ids": "lets the tokens of an image attend to later ones",
    "image_grid_thw": "gives the tokens of an image positions along two axes",
    "pixel_attention_mask": "cuts an image into tiles",
}
"""Arguments that show that a model treats an image as more than a sequence of embeddings."""


class TokenEmbedding(nn.Module):
    """A module from tokens `[1, n]` to embeddings `[1, n, size]`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.table = model.get_input_embeddings()

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the tokens' rows of the table."""
        return self.table(tokens)


class VisionEncoder(nn.Module):
    """A module from an image `[1, channels, h, w]` to embeddings `[1, n, size]`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        """Return the embeddings that replace the image's tokens."""
        told = self.model.get_image_features(image)
        features = getattr(told, "pooler_output", told)
        features = features if isinstance(features, Tensor) else torch.cat(tuple(features))
        return features.reshape(1, -1, features.shape[-1])


@torch.no_grad()
def export_vision_language(
    model: Any,
    *,
    context: int | None = None,
    attention: Attention | None = None,
    notes: list[str] | None = None,
) -> dict[str, Any]:
    """Export the methods of a model that reads images, for `stepwell.lower`.

    Args:
        model: a `PreTrainedModel` with a language model's head and `get_image_features`.
        context: the most tokens of a conversation, including those of images; as for
            `export_causal_lm`.
        attention: the attention of the decoder, as for `export_causal_lm`.
        notes: a list that receives a sentence for each choice that the model required.

    Returns:
        `token_embedding`, `vision_encoder` and `text_decoder` as `ExportedProgram`, and the values
        that ExecuTorch's runners query.

    Raises:
        StepwellError: the model treats an image as more than a sequence of embeddings, torch cannot
            export the model, or the methods disagree with the model on an image.
    """
    known = inspect.signature(model.forward).parameters
    otherwise = next((said for name, said in _OTHERWISE.items() if name in known), None)
    if otherwise is not None or not hasattr(model, "get_image_features"):
        raise StepwellError(
            f"{model.config.model_type} {otherwise or 'has no method get_image_features'}, but "
            "a runner passes an image as a sequence of embeddings",
            help="lower its language model alone: save_pretrained(model.language_model)",
        )
    told = export_causal_lm(
        model, context=context, attention=attention, takes="embeddings", notes=notes
    )
    vision, size = model.config.vision_config, told["get_max_context_len"]
    channels = getattr(vision, "num_channels", 3)
    seeded = torch.Generator().manual_seed(0)
    image = torch.rand(1, channels, vision.image_size, vision.image_size, generator=seeded)
    image = image.to(model.dtype)
    tokens = torch.arange(3)[None]
    with as_it_was(model), asked_quietly():
        model.set_attn_implementation(own_attention(model))
        encoder = VisionEncoder(model)
        with in_floats(model):
            _compare(model, encoder(image), image)
        axes = {1: torch.export.Dim("tokens", min=1, max=size - 1)}
        table = exported(model, TokenEmbedding(model), (tokens,), (axes,))
        seen = exported(model, encoder, (image,), None)
    return {
        "token_embedding": table,
        "vision_encoder": seen,
        "text_decoder": told.pop("forward"),
    } | told


def _compare(model: Any, seen: Tensor, image: Tensor) -> None:
    """Compare a run on an image's embeddings among tokens with the model's run on the image.

    Raises:
        StepwellError: the results differ.
    """
    config = model.config
    marker = getattr(config, "image_token_id", getattr(config, "image_token_index", None))
    words = torch.arange(4)[None] + 3
    tokens = torch.cat([words, torch.full((1, seen.shape[1]), marker or 0), words], 1)
    look_up = model.get_input_embeddings()
    row = torch.cat([look_up(words), seen, look_up(words)], 1)
    with reported(f"{config.model_type} takes its images in another form"):
        want = model(input_ids=tokens, pixel_values=image, use_cache=False).logits[0, -4:]
    got = model(inputs_embeds=row, use_cache=False).logits[0, -4:]
    what = f"{config.model_type} on the embeddings of an image"
    insist_on_agreement(model, got, want, what)

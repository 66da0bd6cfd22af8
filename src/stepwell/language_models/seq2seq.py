"""Models with an encoder and a decoder (T5, BART, Whisper) as a program of two methods.

The method `encoder` takes the input (tokens `[1, n]`, or audio features) and returns the encoder's
states. `text_decoder` takes a token `[1, 1]`, these states and the token's position `[1]`, and
returns logits `[1, vocabulary]`. ExecuTorch's runner of speech models requires these names and this
order. The decoder's own keys and values are state of the program; the keys and values of the
encoder's states are recomputed in each call.
"""

from typing import Any

import torch
from torch import Tensor, nn

from stepwell.dialects.symbols import asked_quietly
from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.language_models.exporting import REPORT, as_it_was, exported, insist_on_agreement
from stepwell.language_models.metadata import context_of, metadata
from stepwell.language_models.observing import (
    accepted,
    cache_argument,
    own_attention,
    places,
    remembers,
    static_cache,
)
from stepwell.quantization.quantizers import in_floats

transformers = OnDemand("transformers")
modeling_outputs = OnDemand("transformers.modeling_outputs")


_USUAL_CONTEXT = 512


class Encoder(nn.Module):
    """A module from the model's input to the encoder's states `[1, n, size]`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder, self.name = model.get_encoder(), model.main_input_name

    def forward(self, given: Tensor) -> Tensor:
        """Return the states for tokens `[1, n]`, or for features `[1, bins, frames]`."""
        return self.encoder(**{self.name: given}).last_hidden_state


class TextDecoder(nn.Module):
    """A module from a token `[1, 1]`, states and a position `[1]` to logits `[1, vocabulary]`."""

    def __init__(self, model: Any, cache: Any, context: int) -> None:
        """Wrap a model, and register the decoder's state as buffers.

        Args:
            model: a `PreTrainedModel` with an encoder and a decoder, in eval mode.
            cache: an initialized static cache of the decoder, to which this module writes.
            context: the most tokens of an answer.
        """
        super().__init__()
        self.model, self.cache = model, cache
        remembers(cache)
        self.lengths = [place for place in places(cache) if place.is_length]
        self.states = [place for place in places(cache) if not place.is_length]
        for place in self.states:
            place.put(torch.zeros_like(place.tensor))
            self.register_buffer(place.name, place.tensor, persistent=False)
        self.rows: Tensor
        self.register_buffer("rows", torch.arange(context), persistent=False)

    def forward(self, tokens: Tensor, encoder_output: Tensor, input_pos: Tensor) -> Tensor:
        """Return the logits of the next token."""
        # A position outside the cache has no row here: the program ends before it writes one.
        position = self.rows.index_select(0, input_pos)
        for place in self.states:  # While it is exported, buffers are fake tensors.
            place.put(getattr(self, place.name))
        for place in self.lengths:
            place.put(position[0].clone())
        return _said(self.model, self.cache, tokens, encoder_output, position).logits[:, -1]


def _said(model: Any, cache: Any, tokens: Tensor, encoder_output: Tensor, position: Tensor) -> Any:
    """Call a model with its decoder's cache, without caching the encoder's states."""
    return model(
        **accepted(
            model,
            {
                "encoder_outputs": modeling_outputs.BaseModelOutput(
                    last_hidden_state=encoder_output
                ),
                "decoder_input_ids": tokens,
                "decoder_position_ids": position[None],
                cache_argument(model): transformers.EncoderDecoderCache(
                    cache, transformers.DynamicCache()
                ),
                "use_cache": True,
            },
        )
    )


@torch.no_grad()
def export_seq2seq(model: Any, *, context: int | None = None) -> dict[str, Any]:
    """Export the methods of a model with an encoder and a decoder, for `stepwell.lower`.

    Args:
        model: a `PreTrainedModel` with a head of a language model.
        context: the most tokens of an answer, and of an input text; by default the model's maximum,
            at most 512.

    Returns:
        `encoder` and `text_decoder` as `ExportedProgram`, and the values that runners query.

    Raises:
        StepwellError: torch cannot export the model, or the methods disagree with the model.
    """
    config = model.config.get_text_config(decoder=True)
    size = context_of(config, context, _USUAL_CONTEXT)
    model = model.eval().requires_grad_(False)
    with as_it_was(model), asked_quietly():
        model.set_attn_implementation(own_attention(model))
        given, open_axes = _example(model, size)
        encoder, one = Encoder(model), torch.zeros(1, 1, dtype=torch.long)
        cache = static_cache(config, size)
        with in_floats(model):
            states = encoder(given)
            _said(model, cache, one, states, torch.zeros(1, dtype=torch.long))
            decoder = TextDecoder(model, cache, size)
            _compare(model, decoder, given, states)
        axes = None if open_axes is None else {1: open_axes}
        programs = {
            "encoder": exported(model, encoder, (given,), (axes,)),
            "text_decoder": exported(
                model, decoder, (one, states, torch.tensor([0])), (None, axes, None)
            ),
        }
    told = metadata(model, size, "torch", False)
    start = getattr(model.generation_config, "decoder_start_token_id", None)
    return {**programs, **told, **({} if start is None else {"decoder_start_token_id": start})}


def _example(model: Any, size: int) -> tuple[Tensor, Any]:
    """Return an example input of the encoder, and its dynamic axis."""
    config = model.config
    if model.main_input_name == "input_ids":
        length = torch.export.Dim("length", min=2, max=size)
        return torch.arange(5)[None] % config.get_text_config().vocab_size, length
    frames = 2 * config.max_source_positions  # Its first convolution takes every other one.
    return torch.zeros(1, config.num_mel_bins, frames, dtype=model.dtype), None


def _compare(model: Any, decoder: TextDecoder, given: Tensor, states: Tensor) -> None:
    """Compare the decoder and the model on some tokens, and restore the state.

    Raises:
        StepwellError: the results disagree.
    """
    config = model.config.get_text_config(decoder=True)
    count = min(6, len(decoder.rows))
    tokens = (torch.arange(count) * 7 + 3)[None] % config.vocab_size
    said = [decoder(tokens[:, at : at + 1], states, torch.tensor([at]))[0] for at in range(count)]
    for place in decoder.states:
        getattr(decoder, place.name).zero_()
    arguments = {model.main_input_name: given, "decoder_input_ids": tokens, "use_cache": False}
    want = model(**arguments).logits[0]
    insist_on_agreement(
        model, torch.stack(said), want, f"{config.model_type} with its state inside", REPORT
    )

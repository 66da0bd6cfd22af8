"""Recurrences over the tokens of a call at once are those that transformers takes one by one."""

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from stepwell.language_models import recurrences
from stepwell.model_zoo.catalogue.vision import imported

from .language_models import needed

needed("transformers")
BATCH, HEADS, SHARED, KEYS, VALUES, CHUNK = 2, 4, 2, 16, 24, 64


def module(kind: str) -> Any:
    return imported(f"transformers.models.{kind}.modeling_{kind}")


def delta_rule(n: int, decay: float) -> tuple[Any, Any, tuple[Tensor, ...], dict[str, Any]]:
    """Of a token: query, key, value, decay, and how much it corrects."""
    given = (
        *torch.randn(2, BATCH, n, HEADS // SHARED, KEYS),
        torch.randn(BATCH, n, HEADS, VALUES),
        -decay * torch.rand(BATCH, n, HEADS),
        torch.rand(BATCH, n, HEADS),
    )
    how = {
        "initial_state": torch.randn(BATCH, HEADS, KEYS, VALUES),
        "output_final_state": True,
        "use_qk_l2norm_in_kernel": True,
    }
    names = ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule")
    return *(getattr(module("qwen3_next"), name) for name in names), given, how


def by_channel(n: int, decay: float) -> tuple[Any, Any, tuple[Tensor, ...], dict[str, Any]]:
    _, _, (_, _, value, _, beta), how = delta_rule(n, decay)
    keys = torch.randn(2, BATCH, n, HEADS, KEYS)
    names = ("chunk_kimi_delta_attention", "recurrent_kimi_delta_attention")
    given = (*keys, value, -decay * torch.rand(BATCH, n, HEADS, KEYS), beta)
    return *(getattr(module("kimi_linear"), name) for name in names), given, how


def state_space(n: int, decay: float) -> tuple[Any, Any, tuple[Any, ...], dict[str, Any]]:
    """One by one: the same function of transformers, in chunks of one token."""
    steps = torch.randn(BATCH, n, HEADS)
    pairs = torch.randn(2, BATCH, n, SHARED, KEYS)
    given = (torch.randn(BATCH, n, HEADS, VALUES), steps, -decay * torch.rand(HEADS), *pairs)
    how = {
        "D": torch.randn(HEADS),
        "dt_bias": torch.randn(HEADS),
        "dt_softplus": True,
        "initial_states": torch.randn(BATCH, HEADS, VALUES, KEYS),
        "return_final_states": True,
        "chunk_size": 1,
    }
    chunks = module("mamba2").mamba2_chunk_scan
    return chunks, chunks, given, how


def selective(n: int, decay: float) -> tuple[Any, Any, tuple[Any, ...], dict[str, Any]]:
    """One by one: the function for a token, which writes the state."""
    x, steps, z = torch.randn(3, BATCH, HEADS, n)
    pairs = torch.randn(2, BATCH, KEYS, n)
    decays, D, bias = -decay * torch.rand(HEADS, KEYS), torch.randn(HEADS), torch.randn(HEADS)
    mamba, state = module("mamba"), STATE.clone()

    def recurrent(*_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        made = [
            mamba.mamba_selective_state_update(
                state, *(of[..., at] for of in (x, steps)), decays,
                *(of[..., at] for of in pairs), D, z=z[..., at], dt_bias=bias, dt_softplus=True,
            )
            for at in range(n)
        ]  # fmt: skip
        return torch.stack(made, -1), state

    how = {"D": D, "z": z, "delta_bias": bias, "delta_softplus": True}
    return mamba.mamba_selective_scan, recurrent, (x, steps, decays, *pairs), how


STATE = torch.randn(BATCH, HEADS, KEYS, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("decay", [0.05, 1, 30], ids=["hardly", "as usual", "at once"])
@pytest.mark.parametrize("kind", [delta_rule, by_channel, state_space, selective])
def test_tokens_at_once_are_those_one_by_one(kind: Any, decay: float):
    torch.manual_seed(0)
    call = recurrences._Call(recurrences.pair_masks(CHUNK), STATE)
    for count in (1, 2, 5, 33, 63, 64):
        replaced, recurrent, given, how = kind(count, decay)
        chunked_recurrences = functools.partial(recurrences._CHUNKED[replaced.__name__], call)
        for got, want in zip(
            chunked_recurrences(*given, **how), recurrent(*given, **how), strict=True
        ):
            assert float((got - want).abs().max()) < 2e-5 * float(want.abs().max())


def test_functions_of_transformers_are_there_again_afterwards():
    lfm2 = module("lfm2")
    model = imported("transformers").Lfm2ForCausalLM
    before = lfm2.causal_conv1d_fn
    sizes = {"hidden_size": 16, "intermediate_size": 16, "vocab_size": 8, "num_hidden_layers": 1}
    made = model(imported("transformers").Lfm2Config(**sizes, layer_types=["conv"]))
    with recurrences.chunked_recurrences(made, imported("transformers").DynamicCache(), None):
        assert lfm2.causal_conv1d_fn is not before
    assert lfm2.causal_conv1d_fn is before
    assert not recurrences.needs_pair_masks(made)

"""A small language model says the same, token by token, before and after lowering."""

import copy
from collections.abc import Callable
from functools import cache

import pytest
import torch
from sampled import sampled
from torch import Tensor
from torch.export import ExportedProgram, export
from torch.nn import functional

import stepwell
from llama import CONTEXT, VOCABULARY, Llama, llama_4layers
from quantized import by_groups
from stepwell.backends.executorch.running.runner import PteSession

TOKENS = 24
Step = Callable[[Tensor, Tensor], Tensor]


@cache
@torch.enable_grad()
def taught() -> tuple[Llama, list[int]]:
    """The Llama of four layers, and a text that it has learned by heart.

    Random weights prefer a token by a hair, which a rounding in int8 decides otherwise. A model
    that was trained prefers one clearly; a text by heart is the shortest training.
    """
    model, _ = llama_4layers()
    assert isinstance(model, Llama)
    text = torch.randint(
        0, VOCABULARY, (1, CONTEXT + 1), generator=torch.Generator().manual_seed(4)
    )
    positions = torch.arange(CONTEXT)
    for block in model.blocks:
        block.attention.cached = False
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(40):
        logits = model(text[:, :-1], positions)
        loss = functional.cross_entropy(logits[0], text[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for block in model.blocks:
        block.attention.cached = True
    return model.requires_grad_(False), text[0, : TOKENS + 1].tolist()


def greedy(step: Step, first: int) -> list[int]:
    """The likeliest token each time, one at a time, over what the cache holds."""
    said = [first]
    for position in range(TOKENS):
        logits = step(torch.tensor([[said[-1]]]), torch.tensor([position]))
        said.append(int(logits[0, -1].argmax()))
    return said


def in_single(model: Llama) -> ExportedProgram:
    return export(model, (torch.tensor([[0]]), torch.tensor([0])))


def in_four_bits(model: Llama) -> ExportedProgram:
    """torchao's 8da4w; the model is quantized in place."""
    return by_groups(model, (torch.tensor([[0]]), torch.tensor([0])))


@pytest.mark.parametrize("program", sampled([in_single, in_four_bits], in_four_bits))
@torch.no_grad()
def test_tokens_are_the_same_before_and_after(program: Callable[[Llama], ExportedProgram]) -> None:
    model, text = taught()
    model = copy.deepcopy(model)
    exported = program(model)
    lowered = stepwell.lower(exported, "xnnpack")
    assert {"aten.embedding.default", "aten.index.Tensor", "aten.index_put.default"} == {
        *lowered.report.outside
    }
    session = PteSession.load(lowered.to_pte())
    ours = greedy(lambda *given: session.run(*given)[0], text[0])
    theirs = greedy(model, text[0])  # Quantized where the program is: writes its own caches.
    assert ours == theirs
    assert len(set(ours)) > TOKENS / 2
    if program is in_single:
        assert ours == text

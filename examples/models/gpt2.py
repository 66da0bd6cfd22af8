"""A GPT-2 style language model (Radford et al. 2019) of two layers, with tied embeddings."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import randomize

WIDTH, HEADS, VOCABULARY, CONTEXT = 256, 4, 1000, 64


class Block(nn.Module):
    """A pre-norm block: causal self-attention, then an MLP with the tanh form of GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.expand = nn.Linear(WIDTH, 4 * WIDTH)
        self.contract = nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x: Tensor) -> Tensor:
        """Causal self-attention over ``[batch, tokens, WIDTH]``."""
        batch, tokens, _ = x.shape
        q, k, v = (
            part.view(batch, tokens, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(x).split(WIDTH, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(batch, tokens, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.contract(F.gelu(self.expand(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Tokens ``[batch, tokens]``, int64, to logits ``[batch, tokens, VOCABULARY]``."""

    def __init__(self, layers: int, context: int = CONTEXT) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position_embedding = nn.Embedding(context, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.token_embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        return self.head(self.norm(self.blocks(x)))


def gpt2_2layers(tokens: int = 32) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """256 wide, 4 heads, a prompt of ``tokens`` from a vocabulary of 1000: 1.9 M parameters."""
    generator = torch.Generator().manual_seed(1)
    prompt = torch.randint(0, VOCABULARY, (1, tokens), generator=generator)
    return randomize(GPT2(2, max(tokens, CONTEXT))), (prompt,)

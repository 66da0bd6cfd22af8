"""Blocks of later language models: Qwen 3, Gemma 2, and a mixture of experts, routed densely."""

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

from random_weights import random_input, randomize

WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, EXPERTS, CHOSEN = 32, 4, 2, 8, 64, 4, 2


class RMSNorm(nn.Module):
    """Computed in float32; Gemma's parameter is the scale minus one."""

    def __init__(self, width: int, from_one: bool = False) -> None:
        super().__init__()
        self.weight, self.from_one = nn.Parameter(torch.ones(width)), from_one

    def forward(self, x: Tensor) -> Tensor:
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        if self.from_one:
            return (y * (1.0 + self.weight.float())).type_as(x)
        return self.weight * y.to(x.dtype)


def turns(positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines ``[1, tokens, HEAD]``."""
    inverse = 1.0 / (10000.0 ** (torch.arange(0, HEAD, 2).float() / HEAD))
    angles = (inverse[None, :, None] @ positions[:, None, :].float()).transpose(1, 2)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs whose elements are in the two halves of a head."""
    left, right = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return x * cos.unsqueeze(1) + torch.cat((-right, left), dim=-1) * sin.unsqueeze(1)


def repeat(x: Tensor) -> Tensor:
    """Repeat keys or values for each query head."""
    batch, heads, tokens, size = x.shape
    x = x[:, :, None, :, :].expand(batch, heads, HEADS // KV_HEADS, tokens, size)
    return x.reshape(batch, HEADS, tokens, size)


class Attention(nn.Module):
    """Grouped queries; norms on heads (Qwen 3), or scores capped by tanh (Gemma 2)."""

    def __init__(self, normed: bool = False, cap: float | None = None, window: int = 0) -> None:
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k_proj = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.v_proj = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.q_norm = RMSNorm(HEAD) if normed else nn.Identity()
        self.k_norm = RMSNorm(HEAD) if normed else nn.Identity()
        self.cap, self.window = cap, window

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        shape = (batch, tokens, -1, HEAD)
        q = self.q_norm(self.q_proj(x).view(shape)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(shape)).transpose(1, 2)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        k, v = repeat(k), repeat(v)
        scores = torch.matmul(q, k.transpose(2, 3)) * HEAD**-0.5
        if self.cap is not None:
            scores = torch.tanh(scores / self.cap) * self.cap
        places = torch.arange(tokens)
        seen = places[None, :] <= places[:, None]
        if self.window:
            seen = seen & (places[None, :] > places[:, None] - self.window)
        mask = torch.where(seen, 0.0, torch.finfo(x.dtype).min).to(x.dtype)
        scores = scores + mask[None, None]
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        y = torch.matmul(weights, v).transpose(1, 2).contiguous()
        return self.o_proj(y.reshape(batch, tokens, -1).contiguous())


class GatedMLP(nn.Module):
    """``down(act(gate(x)) * up(x))``."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.gate, self.up = (
            nn.Linear(WIDTH, HIDDEN, bias=False),
            nn.Linear(WIDTH, HIDDEN, bias=False),
        )
        self.down, self.act = nn.Linear(HIDDEN, WIDTH, bias=False), activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Every expert computes every token; the router's weights of those not chosen are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList([GatedMLP(nn.SiLU()) for _ in range(EXPERTS)])

    def forward(self, x: Tensor) -> Tensor:
        shares = F.softmax(self.gate(x), dim=-1, dtype=torch.float)
        best, chosen = torch.topk(shares, CHOSEN, dim=-1)
        best = best / best.sum(dim=-1, keepdim=True)
        routing = torch.zeros_like(shares).scatter(-1, chosen, best).to(x.dtype)
        y = torch.stack([expert(x) for expert in self.experts], dim=-2)
        return (routing.unsqueeze(-1) * y).sum(dim=-2)


class Block(nn.Module):
    """Norms before attention and MLP."""

    def __init__(self, attention: Attention, mlp: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.attention, self.mlp = attention, mlp

    def forward(self, x: Tensor) -> Tensor:
        cos, sin = (t.to(x.dtype) for t in turns(torch.arange(x.shape[1])[None]))
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Gemma(nn.Module):
    """Norms around attention and MLP, a window, and logits capped by tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([RMSNorm(WIDTH, from_one=True) for _ in range(5)])
        self.attention = Attention(cap=50.0, window=8)
        self.mlp = GatedMLP(nn.GELU(approximate="tanh"))
        self.lm_head = nn.Linear(WIDTH, 100, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.tensor(WIDTH**0.5, dtype=x.dtype)
        cos, sin = (t.to(x.dtype) for t in turns(torch.arange(x.shape[1])[None]))
        x = x + self.norms[1](self.attention(self.norms[0](x), cos, sin))
        x = x + self.norms[3](self.mlp(self.norms[2](x)))
        return torch.tanh(self.lm_head(self.norms[4](x)) / 30.0) * 30.0


def qwen3_block() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A block over 16 tokens."""
    return randomize(Block(Attention(True), GatedMLP(nn.SiLU()))), (random_input(1, 16, WIDTH),)


def qwen3_block_of_any_length() -> tuple[nn.Module, tuple[Tensor, ...], object]:
    """A block over a dynamic number of tokens."""
    return *qwen3_block(), ({1: Dim("tokens", min=2, max=128)},)


def gemma2() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A block and a head over 16 tokens, each of which attends to eight."""
    return randomize(Gemma()), (random_input(1, 16, WIDTH),)


def gemma2_in_bfloat16() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The same in bfloat16."""
    module, (x,) = gemma2()
    return module.bfloat16(), (x.bfloat16(),)


def mixture_of_experts() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Two of four experts for each of 16 tokens."""
    return randomize(Block(Attention(), Experts())), (random_input(1, 16, WIDTH),)

"""Recurrences that train in parallel: a Mamba block, and a block of RWKV, both unrolled."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from random_weights import random_input, randomize

WIDTH, INNER, STATES, RANK, STEPS = 16, 32, 8, 4, 12


class Mamba(nn.Module):
    """A selective state space (Gu and Dao 2023), ``[batch, steps, WIDTH]``."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj = nn.Linear(WIDTH, 2 * INNER, bias=False)
        self.conv1d = nn.Conv1d(INNER, INNER, 4, groups=INNER, padding=3)
        self.x_proj = nn.Linear(INNER, RANK + 2 * STATES, bias=False)
        self.dt_proj = nn.Linear(RANK, INNER)
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, STATES + 1)).repeat(INNER, 1))
        self.D = nn.Parameter(torch.ones(INNER))
        self.out_proj = nn.Linear(INNER, WIDTH, bias=False)

    def scan(self, x: Tensor) -> Tensor:
        """States over time for ``[batch, steps, INNER]``."""
        A = -torch.exp(self.A_log.float())
        delta, B, C = self.x_proj(x).split([RANK, STATES, STATES], dim=-1)
        delta = F.softplus(self.dt_proj(delta))
        decay = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        added = torch.einsum("bld,bln,bld->bldn", delta, B, x)
        state = torch.zeros(x.shape[0], INNER, STATES)
        outputs: list[Tensor] = []
        for step in range(x.shape[1]):
            state = decay[:, step] * state + added[:, step]
            outputs.append(torch.einsum("bdn,bn->bd", state, C[:, step]))
        return torch.stack(outputs, dim=1) + x * self.D

    def forward(self, x: Tensor) -> Tensor:
        steps = x.shape[1]
        x, gate = self.in_proj(x).split([INNER, INNER], dim=-1)
        x = self.conv1d(x.transpose(1, 2))[:, :, :steps].transpose(1, 2)
        return self.out_proj(self.scan(F.silu(x)) * F.silu(gate))


class TimeMix(nn.Module):
    """RWKV's attention (Peng et al. 2023), with the largest exponent stored separately."""

    def __init__(self) -> None:
        super().__init__()
        self.time_decay = nn.Parameter(torch.empty(WIDTH))
        self.time_first = nn.Parameter(torch.empty(WIDTH))
        self.mix_k = nn.Parameter(torch.empty(1, 1, WIDTH))
        self.mix_v = nn.Parameter(torch.empty(1, 1, WIDTH))
        self.mix_r = nn.Parameter(torch.empty(1, 1, WIDTH))
        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, WIDTH, bias=False)
        self.receptance = nn.Linear(WIDTH, WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)

    def wkv(self, k: Tensor, v: Tensor) -> Tensor:
        """A mean of values, weighted by their keys and their age."""
        decay, first = -torch.exp(self.time_decay), self.time_first
        above = below = torch.zeros_like(k[:, 0])
        largest = torch.full_like(k[:, 0], -1e38)
        outputs: list[Tensor] = []
        for step in range(k.shape[1]):
            now, value = k[:, step], v[:, step]
            top = torch.maximum(largest, first + now)
            old, new = torch.exp(largest - top), torch.exp(first + now - top)
            outputs.append((old * above + new * value) / (old * below + new))
            top = torch.maximum(largest + decay, now)
            old, new = torch.exp(largest + decay - top), torch.exp(now - top)
            above, below, largest = old * above + new * value, old * below + new, top
        return torch.stack(outputs, dim=1)

    def forward(self, x: Tensor) -> Tensor:
        before = self.time_shift(x)
        k = self.key(x * self.mix_k + before * (1 - self.mix_k))
        v = self.value(x * self.mix_v + before * (1 - self.mix_v))
        r = self.receptance(x * self.mix_r + before * (1 - self.mix_r))
        return self.output(torch.sigmoid(r) * self.wkv(k, v))


class ChannelMix(nn.Module):
    """RWKV's MLP: a squared rectifier followed by a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.mix_k = nn.Parameter(torch.empty(1, 1, WIDTH))
        self.mix_r = nn.Parameter(torch.empty(1, 1, WIDTH))
        self.key = nn.Linear(WIDTH, INNER, bias=False)
        self.receptance = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        before = self.time_shift(x)
        k = self.key(x * self.mix_k + before * (1 - self.mix_k))
        r = self.receptance(x * self.mix_r + before * (1 - self.mix_r))
        return torch.sigmoid(r) * self.value(torch.square(torch.relu(k)))


class RWKV(nn.Module):
    """One block with its two norms."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.att, self.ffn = TimeMix(), ChannelMix()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.att(self.ln1(x))
        return x + self.ffn(self.ln2(x))


def mamba() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Twelve steps."""
    return randomize(Mamba()), (random_input(1, STEPS, WIDTH),)


def rwkv() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Twelve steps."""
    return randomize(RWKV()), (random_input(1, STEPS, WIDTH),)

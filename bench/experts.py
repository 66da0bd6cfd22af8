"""Mixtures of experts on XNNPACK: each token's experts looked up, or all of them multiplied.

    python bench/experts.py [--rounds 30] [--experts 8,2,256,512 …] [--tokens 1 16 128]

A layer as transformers exports it: a norm, a router, `topk`, the weights of each token's experts
copied by `index`, batched products, the weighted sum. Programs run turn by turn on one thread; the
tenth percentile of each: the stock flow, stepwell with experts looked up, and as it chooses.
"""

from __future__ import annotations

import argparse
import copy
import logging
import statistics

import torch
from _report import prepare, show
from torch import nn
from xnnpack import run_in_turn, set_threads

import stepwell
from stepwell.integrations.executorch.stock import stock_pte

LAYERS = ("8,2,256,512", "32,4,256,256", "64,6,256,256", "8,2,512,1024")
"""Experts, of which each token takes, width, width within an expert."""
FLOWS = ("stock", "looked up", "stepwell")
STEPS = ("multiply-all-experts", "add-up-before-experts", "choose-by-rank")
"""What writes the dense form."""


class Experts(nn.Module):
    """A norm, and the sum of the experts that a softmax over all of them ranks first."""

    def __init__(self, experts: int, taken: int, width: int, inner: int) -> None:
        super().__init__()
        self.taken = taken
        self.norm = nn.RMSNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, 2 * inner, width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, width, inner) * inner**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        scores, places = self.router(x).softmax(-1).topk(self.taken)
        scores = (scores / scores.sum(-1, keepdim=True)).reshape(-1)
        places = places.reshape(-1)
        rows = x.repeat_interleave(self.taken, 0).unsqueeze(-1)
        gate, up = (self.up[places] @ rows).squeeze(-1).chunk(2, -1)
        made = (self.down[places] @ (nn.functional.silu(gate) * up).unsqueeze(-1)).squeeze(-1)
        return (made * scores.unsqueeze(-1)).view(len(x), self.taken, -1).sum(1)


def p10(programs: dict[str, bytes], inputs: tuple[torch.Tensor], rounds: int) -> dict[str, float]:
    """Milliseconds of each program."""
    times, _ = run_in_turn(programs, inputs, rounds)
    return {name: statistics.quantiles(held, n=10)[0] for name, held in times.items()}


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--experts", nargs="+", default=LAYERS)
    parser.add_argument("--tokens", nargs="+", type=int, default=(1, 16, 128))
    given = parser.parse_args()
    prepare()
    set_threads(1)
    logging.disable(logging.CRITICAL)
    routed = stepwell.PIPELINES["xnnpack"].without(*STEPS)
    rows: list[list[object]] = []
    for layer in given.experts:
        module = Experts(*map(int, layer.split(","))).eval()
        for tokens in given.tokens:
            x = (torch.randn(tokens, int(layer.split(",")[2])),)
            exported = torch.export.export(module, x)
            ours = stepwell.lower(exported, "xnnpack")
            looked_up = stepwell.lower(exported, "xnnpack", routed)
            ptes = stock_pte(copy.deepcopy(exported)), looked_up.to_pte(), ours.to_pte()
            found = p10(dict(zip(FLOWS, ptes, strict=True)), x, given.rounds)
            times = [f"{found[flow]:.3f}" for flow in FLOWS]
            error = f"{(ours.run(*x)[0] - module(*x)).abs().max():.1e}"
            delegates = f"{looked_up.report.delegates} → {ours.report.delegates}"
            rows.append([layer, tokens, *times, delegates, error])
    columns = ["experts, taken, width, inner", "tokens", *(f"{flow}, ms" for flow in FLOWS)]
    show("Mixtures of experts", [*columns, "delegates", "error"], rows)


if __name__ == "__main__":
    main()

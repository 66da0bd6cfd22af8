"""How much work a lowering is, counted and not timed: it grows with the program, and no faster."""

import cProfile

import torch
from torch import nn

import stepwell


class Block(nn.Module):
    """A norm, two layers, an activation and a residual sum: each of the driver's groups fires."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def calls_to_lower(blocks: int) -> int:
    """Calls of Python functions from an exported program to the bytes, once all is imported."""
    module = nn.Sequential(*(Block() for _ in range(blocks))).eval()
    exported = torch.export.export(module, (torch.randn(4, 8),))
    stepwell.lower(exported, "xnnpack").to_pte()
    profile = cProfile.Profile(builtins=False)
    profile.runcall(lambda: stepwell.lower(exported, "xnnpack").to_pte())
    return sum(entry.callcount for entry in profile.getstats())


def test_python_calls_an_op_do_not_grow_with_the_program() -> None:
    few, many = calls_to_lower(8), calls_to_lower(32)
    assert many < 4.2 * few

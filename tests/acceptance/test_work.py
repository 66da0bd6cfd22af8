"""How much work a lowering is, counted and not timed: it grows with the program, and no faster."""

import cProfile

import torch
from eager import Function, exported
from torch import nn

import stepwell


def block(x: torch.Tensor, norm: nn.Module, up: nn.Module, down: nn.Module) -> torch.Tensor:
    """A norm, two layers, an activation and a residual sum: each of the driver's groups fires."""
    return x + down(nn.functional.gelu(up(norm(x))))


def calls_to_lower(blocks: int) -> int:
    """Calls of Python functions from an exported program to the bytes, once all is imported."""
    layers = [
        Function(block, nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)) for _ in range(blocks)
    ]
    program = exported(nn.Sequential(*layers), torch.randn(4, 8))
    stepwell.lower(program, "xnnpack").to_pte()
    profile = cProfile.Profile(builtins=False)
    profile.runcall(lambda: stepwell.lower(program, "xnnpack").to_pte())
    return sum(entry.callcount for entry in profile.getstats())


def test_python_calls_an_op_do_not_grow_with_the_program() -> None:
    few, many = calls_to_lower(8), calls_to_lower(32)
    assert many < 4.2 * few

"""Random weights with which every output of a model has a nontrivial scale.

PyTorch's own initial values hide mistakes: zero biases, unit norms and batch statistics that change
nothing, and outputs so small that a wrong result is still within any tolerance.
"""

import math
from typing import TypeVar

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

M = TypeVar("M", bound=nn.Module)

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d)


def randomize(module: M, seed: int = 0) -> M:
    """Fill every parameter and batch statistic from ``seed``, and return the module in eval mode.

    Matrices and kernels preserve the variance of their input (twice it for convolutions, because a
    rectifier follows). Norms scale by about 1 and shift by about 0.1, with different values for
    each.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            for name, parameter in part.named_parameters(recurse=False):
                if isinstance(part, NORMS) and name == "weight":
                    parameter.uniform_(0.7, 1.3, generator=generator)
                elif name == "bias":
                    parameter.normal_(0.0, 0.1, generator=generator)
                elif isinstance(part, ParametrizationList) and name == "original0":
                    parameter.uniform_(1.0, 1.6, generator=generator)  # The scale of weight norm.
                elif isinstance(part, CONVOLUTIONS):
                    deviation = math.sqrt(2.0 / parameter[0].numel())
                    parameter.normal_(0.0, deviation, generator=generator)
                elif isinstance(part, nn.Linear):
                    deviation = math.sqrt(1.0 / part.in_features)
                    parameter.normal_(0.0, deviation, generator=generator)
                else:
                    parameter.normal_(0.0, 0.5, generator=generator)
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
                part.running_mean.normal_(0.0, 0.1, generator=generator)
                part.running_var.uniform_(0.7, 1.3, generator=generator)
    return module.eval()


def random_input(*shape: int, seed: int = 1) -> torch.Tensor:
    """Return a normal float32 tensor of ``shape``."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))

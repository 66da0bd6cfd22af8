"""Weights that resemble trained ones: not constant, with batch norms fitted to their inputs."""

import contextlib
from typing import Any

import torch
from torch import nn

NOISE = 0.1
"""Noise that is added to constant initial parameters."""


@torch.no_grad()
def scaled(module: nn.Module, inputs: tuple[Any, ...]) -> nn.Module:
    """Give a module weights that resemble trained ones, and put it into eval mode.

    Parameters with a constant initial value (scales of layers and norms, biases, tokens) get noise,
    so that branches that start as zero contribute. Means and variances of batch norms are measured
    on a batch of noise.
    """
    for parameter in module.parameters():
        if not parameter.is_floating_point() or parameter.numel() < 2:
            continue
        if bool((parameter == parameter.flatten()[0]).all()):
            parameter.add_(NOISE * torch.randn_like(parameter))
    calibrate(module, inputs)
    return module.eval()


@torch.no_grad()
def calibrate(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Set the mean and variance of every batch norm from a batch that resembles the inputs."""
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    norms = [norm for norm in norms if norm.running_mean is not None]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # An average of all batches, of which there is one.
        norm.train()

    def batch(value: Any) -> Any:
        if not torch.is_tensor(value) or not value.is_floating_point() or value.dim() < 2:
            return value
        return torch.randn(4, *value.shape[1:])

    with contextlib.suppress(ValueError, RuntimeError):  # One value a channel, or a fixed batch.
        module(*(batch(value) for value in inputs))
    for norm in norms:
        norm.eval()
        if norm.running_mean is None or not torch.isfinite(norm.running_mean).all():
            norm.reset_running_stats()

"""Distillation: train weights so that the quantized program answers like the float model.

The numbers before rounding (weights, and biases and norms, which stay floats) are optimized by
gradient descent on the divergence between the float model's answers and the quantized program's,
batch by batch; gradients pass through roundings unchanged (Bengio et al. 2013). Activations are
rounded as in the quantized program, so that the weights also compensate their rounding. No labels
are needed.
"""

from collections.abc import Sequence
from math import cos, pi

import torch
import torch.nn.functional as F
from torch import Tensor

from stepwell.quantization.recovery.weights import Weights
from stepwell.quantization.sensitivity.metrics import Batch, first, log_probabilities
from stepwell.quantization.sensitivity.replay import Playback

STEPS = 200
"""Number of training steps; they cycle through the batches."""
RATE = 0.01
"""Length of a step, as a share of a tensor's root mean square."""


def divergence(tensor: Tensor, wanted: Tensor) -> Tensor:
    """Return the KL divergence of class probabilities, or the relative squared distance of
    numbers.
    """
    if tensor.dim() < 2 or tensor.shape[-1] < 2:
        return (tensor - wanted).square().mean() / wanted.square().mean().clamp_min(1e-30)
    logs, theirs = map(log_probabilities, (tensor, wanted))
    return F.kl_div(logs, theirs, reduction="batchmean", log_target=True)


def distil(weights: Weights, batches: Sequence[Batch], steps: int = STEPS) -> Weights:
    """Train weights on these batches so that the program comes closer to the float model."""
    result = weights.copy()
    groups: list[dict[str, object]] = []
    for tensor in result.tensors():
        tensor.requires_grad_()
        size = float(tensor.detach().square().mean().sqrt())
        groups.append({"params": [tensor], "lr": RATE * max(size, 1e-3)})
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99))
    rates = [group["lr"] for group in optimizer.param_groups]
    wanted = [
        first(Playback(weights.pair, inputs, free=True).outputs).detach() for inputs, _ in batches
    ]
    for step in range(steps):
        share = (1 + cos(pi * step / steps)) / 2
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * share
        at = step % len(batches)
        with torch.enable_grad():
            loss = divergence(first(result.run(batches[at][0], grad=True).outputs), wanted[at])
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
    return result.copy()

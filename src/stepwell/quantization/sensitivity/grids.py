"""The numbers that a quantized operand can take: rounding to them, with straight-through
gradients.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from stepwell.dialects.tosa_mxfp.payloads import BLOCK, Payload, payload_named


def _exponent(x: Tensor) -> Tensor:
    """Return floor(log2(|x|)) of normal float32, as int32; -127 for zero."""
    return ((x.contiguous().view(torch.int32) >> 23) & 0xFF) - 127


def _power_of_two(exponent: Tensor) -> Tensor:
    return ((exponent.clamp(-126, 127) + 127) << 23).view(torch.float32)


def _to_grid(x: Tensor, kind: Payload) -> Tensor:
    step = _exponent(x).clamp_(min=kind.minimum_exponent) - kind.mantissa_bits
    return (x * _power_of_two(-step)).round_().mul_(_power_of_two(step))


def block_exponents(blocks: Tensor, kind: Payload) -> Tensor:
    """Return the exponent of each block's scale, `[..., 1]`, as the MX cast chooses it."""
    largest = blocks.abs().amax(-1, keepdim=True)
    scale = _exponent(largest) - kind.maximum_exponent
    return scale + (_to_grid(largest * _power_of_two(-scale), kind) > kind.maximum)


def on_scale(x: Tensor, exponents: Tensor, kind: Payload) -> Tensor:
    """Round numbers to a payload with scales of these exponents."""
    values = _to_grid(x * _power_of_two(-exponents), kind).clamp(kind.lowest, kind.maximum)
    return values * _power_of_two(exponents)


def as_blocks(x: Tensor, axis: int, groups: int = 1) -> Tensor:
    """Return a float32 tensor as `[..., blocks, 32]`; a shorter axis is a single block."""
    moved = x.float().movedim(axis, -1)
    if groups > 1:
        moved = moved.unflatten(-1, (groups, -1))
    size = moved.shape[-1]
    if size <= BLOCK:
        return moved.unsqueeze(-2)
    return F.pad(moved, (0, -size % BLOCK)).unflatten(-1, (-1, BLOCK))


def from_blocks(blocks: Tensor, like: Tensor, axis: int, groups: int = 1) -> Tensor:
    """Reassemble a tensor from the blocks that `as_blocks` returned."""
    rows = blocks.flatten(-2)[..., : like.shape[axis] // groups]
    return (rows.flatten(-2) if groups > 1 else rows).movedim(-1, axis).to(like.dtype)


def rounded(x: Tensor, payload: str, axis: int, groups: int = 1) -> Tensor:
    """Cast a tensor to a payload in blocks along an axis, and back; gradients pass unchanged.

    The computation is in float32, with the bits of `fake_quantize` for finite normal numbers.
    """
    kind = payload_named(payload)
    with torch.no_grad():
        blocks = as_blocks(x, axis, groups)
        held = from_blocks(on_scale(blocks, block_exponents(blocks, kind), kind), x, axis, groups)
    return held if not x.requires_grad else x + (held - x).detach()

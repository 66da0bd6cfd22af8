"""`nn.MultiheadAttention` whose four projections compute in MX."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepwell.ir.diagnostics import StepwellError
from stepwell.translate.mxfp.layers import MxLinear

Convert = Callable[[nn.Linear], MxLinear]
"""Converts a linear layer to MX."""


class MxMultiheadAttention(nn.Module):
    """`nn.MultiheadAttention` with query, key, value and output projections in MX.

    The products of two activations stay floats (`to_mxfp` of a program converts these products
    too). Weights are views of the module's weights.

    Raises:
        StepwellError: the module has `add_bias_kv` or `add_zero_attn`, which no projection
            computes.
    """

    in_proj_bias = None
    """Keeps `nn.TransformerEncoderLayer` from its fused path, which would compute in floats."""

    def __init__(self, attention: nn.MultiheadAttention, convert: Convert) -> None:
        super().__init__()
        if attention.bias_k is not None or attention.add_zero_attn:
            raise StepwellError(
                "nn.MultiheadAttention with add_bias_kv or add_zero_attn has no MX form",
                help="leave it out by layers=, or convert the exported program",
            )
        self.embed_dim, self.num_heads = attention.embed_dim, attention.num_heads
        self.dropout, self.batch_first = attention.dropout, attention.batch_first
        self._qkv_same_embed_dim = attention._qkv_same_embed_dim  # pyright: ignore[reportPrivateUsage]
        projections = (convert(linear) for linear in _projections(attention))
        self.q_proj, self.k_proj, self.v_proj = projections
        self.out_proj = convert(attention.out_proj)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention on `[L, B, E]` (`[B, L, E]` if `batch_first`, or without batch)."""
        if is_causal and attn_mask is None:
            raise StepwellError(
                "is_causal is a hint about attn_mask, which is missing", help="give attn_mask"
            )
        batched = query.dim() == 3
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        if key_padding_mask is not None and key_padding_mask.dim() == 1:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        q, k, v = (
            self._heads(project(x))
            for project, x in zip(
                (self.q_proj, self.k_proj, self.v_proj), (query, key, value), strict=True
            )
        )
        mask = self._mask(attn_mask, key_padding_mask, q)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = (q / sqrt(q.shape[-1])) @ k.transpose(-2, -1)
            weights = (scores if mask is None else scores + mask).softmax(-1)
            weights = F.dropout(weights, dropout) if dropout else weights
            y = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        y = self.out_proj(y.transpose(1, 2).flatten(2))
        if not batched:
            return y.squeeze(0), None if weights is None else weights.squeeze(0)
        return (y if self.batch_first else y.transpose(0, 1)), weights

    def _heads(self, x: Tensor) -> Tensor:
        """Reshape `[B, L, E]` to `[B, H, L, E / H]`."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _mask(self, mask: Tensor | None, padding: Tensor | None, q: Tensor) -> Tensor | None:
        """Return the sum of both masks, to be added to the scores `[B, H, L, S]`."""
        held = None if mask is None else _added(mask, q.dtype)
        if held is not None and held.dim() == 3:
            held = held.unflatten(0, (-1, self.num_heads))
        if padding is None:
            return held
        kept = _added(padding, q.dtype)[:, None, None, :]
        return kept if held is None else held + kept


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return -inf where a boolean masks a position out, else 0."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -torch.inf)


def _projections(attention: nn.MultiheadAttention) -> list[nn.Linear]:
    """Return the query, key and value projections, which share the module's memory."""
    own = dict(attention.named_parameters(recurse=False))
    joined, bias = own.get("in_proj_weight"), own.get("in_proj_bias")
    if joined is not None:
        weights = list(joined.chunk(3))
    else:
        weights: list[Tensor] = [own[f"{name}_proj_weight"] for name in "qkv"]
    biases = [None] * 3 if bias is None else list(bias.chunk(3))
    projections: list[nn.Linear] = []
    for weight, shift in zip(weights, biases, strict=True):
        out, depth = weight.shape
        linear = nn.Linear(depth, out, shift is not None, device="meta")
        linear.weight = nn.Parameter(weight.detach(), weight.requires_grad)
        if shift is not None:
            linear.bias = nn.Parameter(shift.detach(), shift.requires_grad)
        projections.append(linear)
    return projections

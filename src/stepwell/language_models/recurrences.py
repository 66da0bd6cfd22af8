"""Recurrent layers of transformers over several tokens, in forms that torch exports.

transformers pads a prompt to chunks of 64 tokens and loops over them, which torch cannot export
with a dynamic length. In a call of a program, the tokens are one chunk of n ≤ `chunk` tokens
without padding, and the layers continue from their state. While the decoder runs or is exported,
the functions of this file replace those of the same names in transformers' modules. Matrices of
pairs of tokens replace the loop, except in a selective scan, whose decay differs in each element of
the state: it stays a loop over tokens, behind products that all tokens share.
"""

import functools
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from stepwell.ir.compat.torch.lazy_imports import OnDemand
from stepwell.ir.compat.torch.torch_private import scan

activations = OnDemand("transformers.activations")

CHUNK = 64
"""Default of the greatest number of tokens of a call, if work grows with its square."""


def pair_masks(chunk: int) -> Tensor:
    """Return masks over pairs of tokens (i, j), `[2 + 2 · levels, 1, 1, chunk + 1, chunk + 1]`.

    The first is 1 where j ≤ i, the second where j = i. Level k has blocks of 2ᵏ⁺¹ tokens: a mask is
    1 where i is in the second half and j in the first half of the same block, and another one where
    j is between i and the middle of its block (in the second half including i, in the first half
    not). There is one row more than a call has tokens, so that torch need not specialize on it.
    """
    at = torch.arange(chunk + 1)
    i, j = at[:, None], at
    found = [j <= i, j == i]
    levels = range((chunk - 1).bit_length())
    halves = [(i >> level, j >> level) for level in levels]
    found += [(p >> 1 == q >> 1) & (p > q) for p, q in halves]
    found += [(p == q) & torch.where(p % 2 == 1, j <= i, j > i) for p, q in halves]
    return torch.stack(found)[:, None, None].float()


def needs_pair_masks(model: Any) -> bool:
    """Whether a layer computes with pairs of the tokens of a call, so that a call has few."""
    return any(name in _PAIRS for _, name in _functions(model))


def has_chunked_form(model: Any) -> bool:
    """Whether recurrent layers of the model call functions that have another form here."""
    return bool(_functions(model))


@contextmanager
def chunked_recurrences(model: Any, cache: Any, masks: Tensor | None) -> Generator[None]:
    """Let recurrent layers take the tokens of a call, and continue from their state.

    Args:
        model: the model.
        cache: its cache, initialized.
        masks: those of `pair_masks` for the greatest number of tokens of a call, if it has pairs.
    """
    kept, call = _functions(model), _Call(masks)
    if not kept:
        yield
        return
    read = cache.get_recurrent_state

    def remember(*where: Any, **more: Any) -> Tensor:
        call.state = read(*where, **more)
        return call.state

    cache.get_recurrent_state = remember
    try:
        for file, name in kept:
            vars(file)[name] = functools.partial(_CHUNKED[name], call)
        yield
    finally:
        del cache.get_recurrent_state
        for (file, name), function in kept.items():
            vars(file)[name] = function


def _functions(model: Any) -> dict[tuple[ModuleType, str], Any]:
    """Return the functions of transformers' modules that have another form here."""
    files = {sys.modules[type(layer).__module__] for layer in model.modules()}
    return {
        (file, name): vars(file)[name] for file in files for name in _CHUNKED if name in vars(file)
    }


@dataclass
class _Call:
    """What the functions of a call read."""

    masks: Any
    """Those of `pair_masks`."""
    state: Any = None
    """The recurrent state that a layer read last; selective scans do not get it."""


def _convolve(
    call: _Call,
    inputs: Tensor,
    weight: Tensor,
    bias: Any = None,
    activation: Any = None,
    **_: Any,
) -> Tensor:
    """Convolve the inputs of k earlier tokens and n new ones, `[batch, channels, k + n]`."""
    made = functional.conv1d(
        inputs.to(weight.dtype), weight[:, None], bias, groups=weight.shape[0]
    )[:, :, 1:]
    return (made if activation is None else activations.ACT2FN[activation](made)).to(inputs.dtype)


def _delta_rule(
    call: _Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    initial_state: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Apply the gated delta rule to n tokens: S ← e^g S + k β (v − kᵀ e^g S)ᵀ, then qᵀ S.

    The n differences β (v − kᵀ e^g S) are the solution of a unit lower triangular system.

    Args:
        call: the masks.
        query, key: `[batch, n, heads of keys, size]`.
        value: `[batch, n, heads, size of values]`.
        g: logarithms of decay, `[batch, n, heads]`, or also per channel of keys, `[…, size]`.
        beta: `[batch, n, heads]`.
        initial_state: S, `[batch, heads, size, size of values]`.
        use_qk_l2norm_in_kernel: whether queries and keys are scaled to length 1 first.

    Returns:
        Like `value`, and the next state.
    """
    dtype, shared = query.dtype, value.shape[2] // key.shape[2]
    if shared > 1:
        query, key = (x.repeat_interleave(shared, dim=2) for x in (query, key))
    g = g[..., None] if g.dim() == 3 else g
    query, key, value, g, beta = (
        x.transpose(1, 2).float() for x in (query, key, value, g, beta[..., None])
    )
    if use_qk_l2norm_in_kernel:
        query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    query = query * query.shape[-1] ** -0.5
    pairs = _Pairs(call.masks, g)
    state, solved = initial_state.float(), pairs.solved(pairs.products(key * beta, key))
    new = solved @ ((value - (key * pairs.since_start) @ state) * beta)
    out = (query * pairs.since_start) @ state + pairs.products(query, key) @ new
    state = state * pairs.whole.transpose(-1, -2) + (key * pairs.to_end).transpose(-1, -2) @ new
    return out.transpose(1, 2).to(dtype), state


def _state_space(
    call: _Call,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    initial_states: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Apply Mamba-2's state space to n tokens: S ← e^(A dt) S + dt x Bᵀ, then S C + D x.

    Args:
        call: the masks.
        hidden_states: x, `[batch, n, heads, size]`.
        dt: steps, `[batch, n, heads]`, before bias, softplus and limits.
        A, D: `[heads]`.
        B, C: `[batch, n, groups, size of states]`.
        initial_states: S, `[batch, heads, size, size of states]`.
        dt_bias, dt_softplus, dt_limit: applied to the steps in this order.

    Returns:
        Like `hidden_states`, and the next state.
    """
    steps = dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
    steps = torch.clamp(functional.softplus(steps) if dt_softplus else steps, *dt_limit).float()
    x, shared = hidden_states.float(), hidden_states.shape[2] // B.shape[2]
    new = (x * steps[..., None]).transpose(1, 2)
    read, write = (c.float().repeat_interleave(shared, dim=2).transpose(1, 2) for c in (C, B))
    pairs = _Pairs(call.masks, (A.float() * steps).transpose(1, 2)[..., None])
    state = initial_states.float()
    out = (read * pairs.since_start) @ state.transpose(-1, -2) + pairs.products(read, write) @ new
    state = state * pairs.whole + (new * pairs.to_end).transpose(-1, -2) @ write
    out = out.transpose(1, 2).contiguous()  # Some models view it with other axes.
    return out if D is None else out + x * D[:, None], state


def _selective_scan(
    call: _Call,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Apply Mamba's state space to n tokens: S ← e^(A dt) S + dt x Bᵀ, then (S C + D x) silu(z).

    Args:
        call: the state S, `[batch, channels, size of states]`.
        hidden_states: x, `[batch, channels, n]`.
        dt: steps, `[batch, channels, n]`, before bias and softplus.
        A: `[channels, size of states]`.
        B, C: `[batch, size of states, n]`.
        D: `[channels]`.
        z: `[batch, channels, n]`.
        delta_bias, delta_softplus: applied to the steps in this order.

    Returns:
        Like `hidden_states`, and the next state.
    """
    steps = dt if delta_bias is None else dt + delta_bias.to(dt.dtype)[:, None]
    steps = functional.softplus(steps) if delta_softplus else steps
    decay = A.float()

    def step(state: Tensor, token: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        x, dt, write, read = token
        state = state * (dt[..., None] * decay).exp() + (dt * x)[..., None] * write[:, None]
        return state.clone(), (state * read[:, None]).sum(-1)

    tokens = tuple(x.float().permute(2, 0, 1) for x in (hidden_states, steps, B, C))
    state, out = _each(step, call.state.float(), tokens)
    out = out.permute(1, 2, 0).to(hidden_states.dtype)
    out = out if D is None else out + hidden_states * D[:, None]
    return out if z is None else out * functional.silu(z), state


def _each(
    step: Callable[..., Any], state: Tensor, tokens: tuple[Tensor, ...]
) -> tuple[Any, Tensor]:
    """Take a step for each token: a loop of the program in an export, and of Python in eager."""
    if torch.compiler.is_exporting():
        return scan(step, state, tokens)
    made: list[Tensor] = []
    for token in zip(*tokens, strict=True):
        state, out = step(state, token)
        made.append(out)
    return state, torch.stack(made)


class _Pairs:
    """Decays between pairs of the n tokens of a call."""

    def __init__(self, masks: Tensor, g: Tensor) -> None:
        """Sum logarithms of decay, `[batch, heads, n, 1 or channels]`."""
        count: Any = g.shape[2]
        levels = 0 if isinstance(count, int) and count == 1 else masks.shape[0] // 2 - 1
        self.causal, self.same, *rest = masks[..., :count, :count].unbind()
        self.halves, self.middles = rest[:levels], rest[len(rest) - levels :]
        self.g, sums = g, self.causal @ g
        self.since_start, self.to_end = sums.exp(), (sums[:, :, -1:] - sums).exp()
        self.whole = sums[:, :, -1:].exp()
        self.decay: Tensor | None = None
        if g.shape[-1] == 1:  # No exponent is positive, not even outside the mask.
            self.decay = ((sums - sums.transpose(-1, -2)) * self.causal).exp() * self.causal

    def products(self, left: Tensor, right: Tensor) -> Tensor:
        """Return `left[i] · right[j]`, decayed from j to i, for each pair with j ≤ i.

        A decay per channel is a factor of both sides: from i, and from j, to a token between them.
        """
        if self.decay is not None:
            return (left @ right.transpose(-1, -2)) * self.decay
        found = (left @ right.transpose(-1, -2)) * self.same
        for half, middle in zip(self.halves, self.middles, strict=True):
            to_middle = (middle @ self.g).exp()
            found = found + (left * to_middle) @ (right * to_middle).transpose(-1, -2) * half
        return found

    def solved(self, lower: Tensor) -> Tensor:
        """Return the inverse of I + L, where L has the entries of `lower` with j < i.

        In each level, the inverses of both halves of a block make that of the block, in the order
        of a forward substitution: powers of L, which grow, do not occur.
        """
        found = self.same
        for level, half in enumerate(self.halves):
            step = lower * half
            found = found - (step if level == 0 else found @ step @ found)
        return found


_PAIRS = {
    "torch_chunk_gated_delta_rule": _delta_rule,
    "torch_recurrent_gated_delta_rule": _delta_rule,  # For one token: sums, not products.
    "chunk_kimi_delta_attention": _delta_rule,
    "recurrent_kimi_delta_attention": _delta_rule,
    "mamba2_chunk_scan": _state_space,
}
_CHUNKED = {"causal_conv1d_fn": _convolve, "mamba_selective_scan": _selective_scan, **_PAIRS}

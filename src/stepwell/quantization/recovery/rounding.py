"""GPTQ: round weights one input at a time; each input compensates the error of earlier ones.

GPTQ (Frantar et al. 2022) with quantized activations, and with the float model's results as the
target: `Xf Wᵀ ≈ Xq W'ᵀ`, so that a layer also compensates the error of the layers before it.
The scales are those of rounding to nearest.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa_mxfp.payloads import payload_named
from stepwell.ir.core import weight_key
from stepwell.ir.diagnostics import op_name
from stepwell.quantization.recovery.weights import Weights
from stepwell.quantization.sensitivity.grids import (
    as_blocks,
    block_exponents,
    from_blocks,
    on_scale,
    rounded,
)
from stepwell.quantization.sensitivity.metrics import Batch
from stepwell.quantization.sensitivity.quantization_points import Site
from stepwell.quantization.sensitivity.replay import Playback
from stepwell.translate.rewrites.mxfp.choose_mxfp import MxConv2dOp, MxLinearOp, block_axis

DAMPING = 0.01
"""Added to the diagonal of the second moments, as a share of its mean."""
ROWS = 4096
"""Greatest number of activation rows per batch for the second moments."""
Snap = Callable[[Tensor], Tensor]
"""Rounds a whole weight, on scales that were chosen for the original weight."""


def second_order(weights: Weights, batches: Sequence[Batch]) -> Weights:
    """Round weights by GPTQ, layer by layer in program order."""
    result = weights.copy()
    floats = [Playback(weights.pair, inputs, free=True) for inputs, _ in batches]
    for site in weights.pair.sites:
        held = _numbers(result, site)
        if held is None:
            continue
        numbers, snap = held
        rows = [rows_of(result.run(play.inputs), play, site) for play in floats]
        if any(pair is None for pair in rows):
            continue
        ours = torch.cat([pair[0] for pair in rows if pair is not None]).double()
        theirs = torch.cat([pair[1] for pair in rows if pair is not None]).double()
        flat = numbers.flatten(1)
        chosen = solved(
            flat,
            ours,
            theirs,
            lambda w, like=numbers, to=snap: to(w.reshape(like.shape)).flatten(1),
        )
        numbers.copy_(chosen.reshape(numbers.shape))
    return result


def solved(weight: Tensor, ours: Tensor, theirs: Tensor, snap: Snap) -> Tensor:
    """Round a weight `[O, K]` so that `ours @ result.T` is close to `theirs @ weight.T`."""
    moments = ours.T @ ours / len(ours)
    damp = DAMPING * float(moments.diagonal().mean()) + 1e-12
    moments = moments + damp * torch.eye(len(moments), dtype=torch.float64)
    wide = weight.double()
    # The best fit without rounding, regularized towards the weight itself.
    cross = ours.T @ (theirs - ours) @ wide.T / len(ours)
    wide = wide + torch.linalg.solve(moments, cross).T
    upper = torch.linalg.cholesky(
        torch.cholesky_inverse(torch.linalg.cholesky(moments)), upper=True
    )
    for k in range(wide.shape[1]):
        at = snap(wide.float())[:, k].double()
        wide[:, k + 1 :] -= ((wide[:, k] - at) / upper[k, k])[:, None] * upper[k, k + 1 :]
        wide[:, k] = at
    return wide.float()


def _numbers(weights: Weights, site: Site) -> tuple[Tensor, Snap] | None:
    """Return a point's weight and its grid; None if the weight's shape is not that of a layer."""
    at = site.weight
    op = site.op
    if at is None or not isinstance(op, SchemaOp):
        return None
    if not _is_layer(site):
        return None
    if (site, at) in weights.stepped:
        numbers, steps = weights.stepped[site, at]
        return numbers, lambda w: (steps.integers(w) - steps.zero) * steps.scale
    key = weight_key(op.operands[at])
    if not site.is_mx or key not in weights.plain:
        return None
    numbers = weights.plain[key]
    kind, axis = payload_named(op.arg("weight_payload")), block_axis(op)
    scales = block_exponents(as_blocks(numbers, axis), kind)

    def snap(w: Tensor) -> Tensor:
        return from_blocks(on_scale(as_blocks(w, axis), scales, kind), w, axis)

    return numbers, snap


def _is_layer(site: Site) -> bool:
    op = site.op
    if site.weight is None or not isinstance(op, SchemaOp):
        return False
    if isinstance(op, MxLinearOp) or op_name(op).startswith("aten.linear"):
        return True
    convolves = op_name(op).startswith(("aten.conv2d", "aten.convolution"))
    return (isinstance(op, MxConv2dOp) or convolves) and op.arg("groups") == 1


def rows_of(now: Playback, floats: Playback, site: Site) -> tuple[Tensor, Tensor] | None:
    """Return the inputs that a point's weight multiplies, quantized and in floats: `[N, K]` each.

    The result is None for ops other than linear layers and convolutions without groups.
    """
    if not _is_layer(site):
        return None
    ours, theirs = now.operands(site, free=False)[0], floats.operands(site, free=True)[0]
    op = site.op
    assert isinstance(op, SchemaOp)
    if site.is_mx:
        ours = rounded(ours, op.arg("payload"), block_axis(op))
    if not (isinstance(op, MxLinearOp) or op_name(op).startswith("aten.linear")):
        kernel = tuple(int(n) for n in op.operands[1].type.get_shape()[2:])  # pyright: ignore
        if len(kernel) != 2:
            return None
        numbers = {n: tuple[int, ...](op.arg(n)) for n in ("dilation", "padding", "stride")}
        ours, theirs = (F.unfold(x, kernel, **numbers).transpose(1, 2) for x in (ours, theirs))
    rows = [x.reshape(-1, x.shape[-1]) for x in (ours, theirs)]
    some = torch.randperm(len(rows[0]), generator=torch.Generator().manual_seed(0))[:ROWS]
    return rows[0][some], rows[1][some]

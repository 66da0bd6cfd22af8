"""Weight scale search: for each row or group, the scale whose integers have the least error.

A quantizer ends the range at the largest weight. If that weight is far from all others, finer steps
for the others gain more than clipping it loses. The criterion is the error of the layer's result:
`e H eᵀ`, with the error `e` of the weights that share a scale and the second moments `H` of the
layer's inputs. Scales keep their type and number (bfloat16 stays bfloat16), so that the program
changes in constants only.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.attributes import attribute
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import weight_key
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError
from stepwell.quantization.recovery.rounding import rows_of
from stepwell.quantization.recovery.weights import Steps, Weights, renew
from stepwell.quantization.sensitivity.metrics import Batch
from stepwell.quantization.sensitivity.quantization_points import Quantized, Site, constant_key
from stepwell.quantization.sensitivity.replay import Playback

PARTS = tuple(1 - step / 20 for step in range(14))
"""Factors of a scale that are tried."""
Places = tuple[Site, int]
"""A quantization point and an operand's number."""


def rescaled(weights: Weights, batches: Sequence[Batch]) -> Weights:
    """Return the weights in a program whose weight scales have the least error.

    Raises:
        StepwellError: the program has no integer weights.
    """
    if not weights.stepped:
        raise StepwellError(
            "the recovery method 'scales' chooses scales of integer weights, but the program has "
            "none",
            help='quantize="int8" or "8da4w"',
        )
    floats = [Playback(weights.pair, inputs, free=True) for inputs, _ in batches]
    now = [weights.run(inputs) for inputs, _ in batches]
    ratios: dict[Places, Tensor] = {}
    for (site, at), (numbers, steps) in weights.stepped.items():
        if at == site.weight:
            pairs = [rows_of(a, b, site) for a, b in zip(now, floats, strict=True)]
            rows = [pair[0] for pair in pairs if pair is not None]
            which = sharing(weights.pair, site.op.operands[at])
            ratios[site, at] = searched(numbers, steps, which, torch.cat(rows) if rows else None)
    return with_scales(weights, ratios)


def searched(numbers: Tensor, steps: Steps, which: Tensor, rows: Tensor | None) -> Tensor:
    """Return, for each scale, the factor from `PARTS` with the least squared error of the results.

    Args:
        numbers: the weight, rows first.
        steps: the weight's quantization grid.
        which: for each element, the index of its scale.
        rows: the layer's inputs, `[N, K]`; None: all errors have the same weight.
    """
    flat, share = numbers.flatten(1), which.flatten(1)
    if rows is None or rows.shape[1] != flat.shape[1]:
        moments = torch.eye(flat.shape[1])
    else:
        moments = rows.T @ rows / len(rows) * (share[0][:, None] == share[0][None, :])
    best = torch.full((int(which.max()) + 1,), torch.inf)
    parts = torch.ones_like(best)
    for part in PARTS:
        tried = replace(steps, scale=_representable(steps.scale * part, steps.scale))
        error = (tried.rounded(numbers) - numbers).flatten(1)
        lost = torch.zeros_like(best)
        lost.index_add_(0, share.flatten(), (error * (error @ moments)).flatten())
        wins = lost < best
        best, parts = torch.where(wins, lost, best), torch.where(wins, part, parts)
    return parts


def _representable(scale: Tensor, like: Tensor) -> Tensor:
    """Round a scale to bfloat16 if the scales `like` are bfloat16 numbers."""
    is_short = torch.equal(like, like.bfloat16().float())
    return scale.bfloat16().float() if is_short else scale


def sharing(pair: Quantized, value: SSAValue) -> Tensor:
    """Return, for each element of a dequantized constant, the index of its scale."""
    op = value.owner
    assert isinstance(op, SchemaOp)
    runs = Interpreter(pair.program.weights)
    bound: dict[SSAValue, Any] = {}
    for operand in op.operands:
        assert isinstance(operand.owner, Operation)
        runs.step(operand.owner, bound)
    integers = bound[op.operands[0]]
    at = scale_at(op)
    if at is None:
        return torch.zeros(integers.shape, dtype=torch.long)
    scale = bound[op.operands[at]]
    bound[op.operands[at]] = torch.arange(float(scale.numel())).reshape(scale.shape)
    numbers: list[Tensor] = []
    for integer in (0, 1):
        bound[op.operands[0]] = torch.full_like(integers, integer)
        runs.step(op, bound)
        numbers.append(bound[op.results[0]].double())
    return (numbers[1] - numbers[0]).round().long()


def scale_at(op: SchemaOp) -> int | None:
    """Return the index of a dequantize op's scale operand; None if scales are an attribute."""
    return 1 if len(op.operands) > 1 and weight_key(op.operands[1]) is not None else None


def with_scales(weights: Weights, ratios: dict[Places, Tensor]) -> Weights:
    """Return the weights in a program whose weight scales are multiplied by these ratios.

    The integers of a bias are adjusted: their scale is the input's scale times the weight's.
    """
    program = weights.pair.program.clone()
    pair = replace(weights.pair, program=program)
    named = {site.name: site for site in pair.sites}
    for (site, at), parts in ratios.items():
        own = named[site.name]
        op = own.op.operands[at].owner
        assert isinstance(op, SchemaOp)
        rescale(pair, op, parts)
        for bias in biases_of(own):
            rescale(pair, bias, parts)
            requantize(pair, bias, parts)
    return weights.moved(pair)


def biases_of(site: Site) -> list[SchemaOp]:
    """Return the dequantize ops of the integers of a layer's bias."""
    if site.weight is None:
        return []
    values = site.op.operands[site.weight + 1 :]
    return [v.owner for v in values if isinstance(v.owner, SchemaOp) and constant_key(v)]


def rescale(pair: Quantized, op: SchemaOp, ratio: Tensor | float) -> None:
    """Multiply the scales of a constant's dequantize op by a ratio, in place."""
    at = scale_at(op)
    if at is None:
        op.properties["scale"] = attribute(op.arg("scale") * float(ratio))
        return
    scale = pair.program.weights.get(weight_key(op.operands[at]) or "")
    parts = ratio.reshape(scale.shape) if isinstance(ratio, Tensor) and ratio.numel() > 1 else ratio
    renew(pair.program, op, at, _representable((scale * parts).to(scale.dtype), scale))


def requantize(pair: Quantized, op: SchemaOp, ratio: Tensor | float) -> None:
    """Divide integers by a ratio, so that they represent the same numbers at the changed scales."""
    store = pair.program.weights
    whole = store.get(weight_key(op.operands[0]) or "")
    limit = torch.iinfo(whole.dtype)
    integers = (whole.double() / ratio).round().clamp(limit.min, limit.max).to(whole.dtype)
    renew(pair.program, op, 0, integers)

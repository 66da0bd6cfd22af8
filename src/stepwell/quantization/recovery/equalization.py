"""Channel equalization: scale channels against each other to reduce the quantization loss.

A channel with a larger range leaves fewer steps to the other channels, in an activation or in the
columns of a weight. The weights and norms around a channel can absorb its scale (`channels.py`
finds where). Between layers, this is equalization (Nagel et al. 2019); after a norm, smoothing
(Xiao et al. 2023); with float activations, it protects weights with large inputs (Lin et al. 2024).
All use the formula `s = B^β / A^α`, with the range A of a channel as an activation and its range B
as a column of weights. Each group of channels takes the exponents with which the program diverges
least from the float model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from xdsl.ir import Operation

from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.quantization.recovery.channels import Channels
from stepwell.quantization.recovery.clipping import (
    Ends,
    Range,
    casts_of,
    ranges_of,
    values_of,
    with_ranges,
)
from stepwell.quantization.recovery.scales import sharing, with_scales
from stepwell.quantization.recovery.weights import BALANCED, Weights, renew
from stepwell.quantization.sensitivity.metrics import Batch, Tally, judged
from stepwell.quantization.sensitivity.quantization_points import (
    Quantized,
    Site,
    constant_key,
    is_dequantized,
)
from stepwell.quantization.sensitivity.replay import Playback

EXPONENTS = ((0.5, 0.5), (0.5, 0.0), (1.0, 0.0), (0.0, 1.0))
"""Exponents (α, β) of the ranges of activations and of weight columns that are tried."""
FURTHEST = 5.0
"""Greatest logarithm of a channel's scale."""
WINS = 0.98
"""A group is scaled if the divergence falls below this part of its previous value."""
ROUNDS = 2
"""Number of sweeps over the groups: the choice for one depends on the others."""
LOOKED_AT = 2
"""Number of batches for trying exponents."""


def balanced(weights: Weights, batches: Sequence[Batch]) -> Weights:
    """Scale channels of weights where that reduces the loss; the float function is unchanged.

    Raises:
        StepwellError: no channel of the program can be scaled.
    """
    looked_at = batches[:LOOKED_AT]
    plays = [Playback(weights.pair, inputs, free=True) for inputs, _ in looked_at]
    gauge = Gauge.of(weights, plays)
    groups = list(gauge.groups())
    if not groups:
        raise StepwellError(
            "the recovery method 'balancing' scales channels between layers, but the ops in "
            "between do not allow it",
            help="a scale passes through ReLU, sums, and norms with factors, but not through "
            "functions with f(s·x) ≠ s·f(x)",
        )
    best, least = weights, _divergence(weights, looked_at, plays)
    chosen = torch.zeros(len(gauge.roots))
    for group in groups * ROUNDS:
        start = chosen
        for alpha, beta in EXPONENTS:
            tried = start.clone()
            tried[group] = gauge.logarithms(group, alpha, beta)
            scaled = gauge.scaled(tried)
            lost = _divergence(scaled, looked_at, plays)
            if lost < WINS * least:
                best, least, chosen = scaled, lost, tried
    return best


def _divergence(weights: Weights, batches: Sequence[Batch], floats: Sequence[Playback]) -> float:
    lost = Tally()
    for (inputs, labels), play in zip(batches, floats, strict=True):
        lost.add(judged(weights.run(inputs).outputs, labels, play.outputs).divergence)
    return lost.mean


@dataclass
class Gauge:
    """The channels of a program that can be scaled, with the range of each.

    Attributes:
        weights: the weights of the program.
        channels: the channels of the program.
        roots: the representative of each channel.
        plays: the recorded runs of the program in floats, one for each batch.
        activations, columns: the logarithms of a channel's ranges, by representative; 0 without a
            range.
    """

    weights: Weights
    channels: Channels
    roots: Tensor
    plays: Sequence[Playback]
    activations: Tensor
    columns: Tensor

    @classmethod
    def of(cls, weights: Weights, plays: Sequence[Playback]) -> Gauge:
        """Find the channels of a program, and measure their ranges."""
        channels = Channels(weights.pair, plays[0].values, _followed(weights.pair))
        roots = channels.roots()
        zeros = torch.zeros(len(roots))
        gauge = cls(weights, channels, roots, plays, zeros, zeros)
        return replace(gauge, activations=gauge._reach(gauge._read()),
                       columns=gauge._reach(gauge._columns()))  # fmt: skip

    def groups(self) -> Iterator[Tensor]:
        """Return groups of representatives that were created together, in program order."""
        used = {abs(root) for f in self.channels.factors for part in (f.up, f.down)
                for root in self.roots[part.abs()].unique().tolist()}  # fmt: skip
        groups: list[set[int]] = []
        for first, last in self.channels.spans:
            span = {abs(root) for root in self.roots[first:last].tolist()} & used - {0}
            joined = [group for group in groups if group & span]
            groups = [group for group in groups if not group & span]
            if span:
                groups.append(span.union(*joined))
        yield from (torch.tensor(sorted(group)) for group in groups if len(group) > 1)

    def logarithms(self, group: Tensor, alpha: float, beta: float) -> Tensor:
        """Return the logarithm of the scale of each channel of a group."""
        scale = beta * self.columns[group] - alpha * self.activations[group]
        return (scale - scale.mean()).clamp(-FURTHEST, FURTHEST)

    def _read(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the activations that layers and products read, with their channels."""
        for site in self.weights.pair.sites:
            for at, value in enumerate(site.op.operands):
                if constant_key(value) is None:
                    numbers = self.channels.of(value)
                    for play in self.plays:
                        read = play.operands(site, free=True)[at]
                        if isinstance(read, Tensor) and read.shape == numbers.shape:
                            yield read, numbers

    def _columns(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield weights with the channels that they read; inverse channels are negative."""
        for factor in self.channels.factors:
            tensor = self.weights.numbers(factor.op, factor.at)
            assert tensor is not None
            if tensor.dim() > 1:
                yield tensor, factor.down.expand(tensor.shape)

    def _reach(self, read: Iterator[tuple[Tensor, Tensor]]) -> Tensor:
        """Return the logarithm of each channel's largest number, minus that of its inverse
        channel.
        """
        most = torch.zeros(2, len(self.roots))
        for tensor, numbers in read:
            own = self.roots[numbers.abs()] * numbers.sign()
            for side, sign in enumerate((1, -1)):
                some = own * sign > 0
                most[side].scatter_reduce_(
                    0, own[some].abs(), tensor[some].abs().float(), "amax", include_self=True
                )
        logs = [
            torch.where(side > 0, side.clamp_min(1e-4 * float(side.max())).log(), 0.0)
            for side in most
        ]
        return logs[0] - logs[1]

    # -- a program whose channels are scaled -----------------------------------------------------

    def scaled(self, logarithms: Tensor) -> Weights:
        """Return the weights, multiplied and divided by the scales of their channels.

        Ranges of activations and scales of weights are adjusted to the new ranges.

        Args:
            logarithms: the logarithm of the scale of each representative.
        """

        def scale(numbers: Tensor) -> Tensor:
            own = self.roots[numbers.abs()] * numbers.sign()
            return (own.sign() * logarithms[own.abs()]).exp()

        pair = self.weights.pair
        ratios = {
            (f.op, f.at): ratio
            for f in self.channels.factors
            if not bool(((ratio := scale(f.up) / scale(f.down)) == 1).all())
        }
        moved = self.weights.moved(with_ranges(pair, self._ends(scale)))
        parts: dict[tuple[Site, int], Tensor] = {}
        by_op = _alike(pair.program, moved.pair.program)
        sites = {site.op: site for site in moved.pair.sites}
        for (op, at), ratio in ratios.items():
            site = sites.get(by_op[op])
            if site is not None and at == site.weight and (site, at) in moved.stepped:
                numbers = moved.stepped[site, at][0]
                parts[site, at] = _grown(
                    numbers, numbers * ratio, sharing(moved.pair, site.op.operands[at])
                )
        moved = with_scales(moved, parts)
        by_op = _alike(pair.program, moved.pair.program)
        return _multiplied(moved, {(by_op[op], at): ratio for (op, at), ratio in ratios.items()})

    def _ends(self, scale: Callable[[Tensor], Tensor]) -> dict[Range, Ends]:
        """Adjust ranges of activations; their margin over the observed values is unchanged."""
        pair = self.weights.pair
        casts = list(casts_of(pair))
        wanted: dict[Range, Ends] = {}
        for one in ranges_of(casts, pair):
            before, after = [0.0, 0.0], [0.0, 0.0]
            for value in values_of(casts, one):
                factors = scale(self.channels.of(value))
                for play in self.plays:
                    tensor = play.values[pair.ahead[value]]
                    for seen, of in ((before, tensor), (after, tensor * factors)):
                        seen[0] = min(seen[0], float(of.min()))
                        seen[1] = max(seen[1], float(of.max()))
            if before != after:
                low, high = (n / b if b else 1.0 for n, b in zip(after, before, strict=True))
                if one.is_symmetric:
                    low = high = max(-after[0], after[1]) / max(-before[0], before[1])
                wanted[one] = Ends(one.ends.low * low, one.ends.high * high)
        return wanted


def _followed(pair: Quantized) -> Callable[[object], bool]:
    """Whether the range of a quantized activation can be adjusted to its channels' scales."""
    casts = list(casts_of(pair))
    inside = {value for one in ranges_of(casts, pair) for value in values_of(casts, one)}
    fixed = {cast.results[0] for cast in casts if is_dequantized(cast.results[0])} - inside
    return lambda value: value not in fixed


def _alike(program: Program, other: Program) -> dict[Operation, Operation]:
    """Pair the ops of a program with the ops of another that differs in constants only."""
    ours, theirs = (
        [op for op in p.method().body.block.ops if not isinstance(op, WeightOp)]
        for p in (program, other)
    )
    return dict(zip(ours, theirs, strict=True))


def _grown(before: Tensor, after: Tensor, which: Tensor) -> Tensor:
    """Return the factor by which the range of each scale grows."""
    most = torch.zeros(2, int(which.max()) + 1)
    for side, tensor in zip(most, (before, after), strict=True):
        side.scatter_reduce_(0, which.flatten(), tensor.abs().flatten(), "amax")
    return torch.where(most[0] > 0, most[1] / most[0], 1.0)


def _multiplied(weights: Weights, ratios: dict[tuple[Operation, int], Tensor]) -> Weights:
    """Multiply constants, their unrounded numbers and the float model's constants by factors."""
    pair = replace(weights.pair, original=weights.pair.original.clone())
    theirs = _alike(weights.pair.original, pair.original)
    layers = weights.pair.layers
    sites = {site.op: site for site in weights.pair.sites}
    plain, stepped = dict(weights.plain), dict(weights.stepped)
    for (op, at), ratio in ratios.items():
        site = sites.get(op)
        if op in layers and weight_key(layers[op].operands[at]):
            own = theirs[layers[op]]
            tensor = pair.original.weights.get(weight_key(own.operands[at]) or "")
            numbers = weights.numbers(op, at)
            assert numbers is not None
            beside = ratio.expand(numbers.shape).reshape(tensor.shape)
            renew(pair.original, own, at, tensor * beside)
        if site is not None and (site, at) in stepped:
            numbers, steps = stepped[site, at]
            stepped[site, at] = numbers * ratio, steps
            continue
        key = weight_key(op.operands[at]) or ""
        renew(pair.program, op, at, pair.program.weights.get(key) * ratio, BALANCED)
        plain[weight_key(op.operands[at]) or ""] = plain.pop(key) * ratio
    return Weights(pair, plain, stepped).moved(replace(pair))

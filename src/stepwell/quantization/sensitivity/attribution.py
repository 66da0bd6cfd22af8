"""Sensitivity analysis: quantize each quantization point alone, and free each alone, on equal
samples.

First, a cheap estimate with gradients of one float run ranks all points. To second order,
the divergence by the rounding at a point is half the mean of (g·δ)², where δ is the change of the
point's result by rounding, and g the gradient of the log-probability of a class drawn from the
model's answer (the Gauss-Newton term of the divergence, Hutchinson's estimate with drawn classes).
The points with the highest ranks are then measured.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from xdsl.dialects.func import ReturnOp
from xdsl.ir import SSAValue

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.platform.files import write_atomically
from stepwell.quantization.sensitivity.metrics import (
    Batch,
    Judged,
    Metric,
    Tally,
    first,
    flips,
    judged,
    log_probabilities,
)
from stepwell.quantization.sensitivity.quantization_points import Quantized, Site
from stepwell.quantization.sensitivity.replay import Playback

Progress = Callable[[str, int, int], None]
"""Called with the current action, its number and their count."""
MEASURED = 32
"""Number of quantization points that are measured, those that rank first."""
DRAWN = 256
"""Least number of samples times class draws for the estimate on a batch."""
PAIRS = 3
"""Number of pairs of the worst points that are freed together."""
MODULES = 3
"""Number of modules with several points that are freed as a whole."""


@dataclass
class Share:
    """The loss of one quantization point.

    Attributes:
        name: the name of the point.
        estimate: the estimated divergence that the point's rounding causes, to second order.
        alone: the loss with only this point quantized, minus the float model's loss.
        freed: the loss of the quantized program, minus the loss with only this point freed.
        score: the score with only this point freed, minus the score of the quantized program.
        divergence: the divergence from the float model with only this point quantized.
    """

    name: str
    estimate: float = 0.0
    alone: Tally = field(default_factory=Tally)
    freed: Tally = field(default_factory=Tally)
    score: Tally = field(default_factory=Tally)
    divergence: Tally = field(default_factory=Tally)


@dataclass
class Attribution:
    """How the loss of a quantized program is distributed over its quantization points.

    Attributes:
        loss, score: the quantized program's loss and score, minus the float model's.
        divergence: the divergence of the quantized program from the float model.
        shares: the loss of each measured point, by name.
        pairs: by two names, the loss of the quantized program, minus the loss with both points
            freed.
        modules: by name, the loss of the quantized program, minus the loss with all points of
            the module freed; for modules with several points.
    """

    loss: Tally = field(default_factory=Tally)
    score: Tally = field(default_factory=Tally)
    divergence: Tally = field(default_factory=Tally)
    shares: dict[str, Share] = field(default_factory=dict[str, Share])
    pairs: dict[str, Tally] = field(default_factory=dict[str, Tally])
    modules: dict[str, Tally] = field(default_factory=dict[str, Tally])

    @property
    def is_lost(self) -> bool:
        """Whether the loss rises or the score falls significantly."""
        return self.rises or self.falls

    @property
    def rises(self) -> bool:
        """Whether the loss rises significantly; a NaN counts as a rise."""
        return self.loss.is_more

    @property
    def falls(self) -> bool:
        """Whether the score falls significantly, if each sample has a score."""
        of_samples = self.score.count == self.loss.count
        return of_samples and self.score.is_sure and self.score.mean < 0

    @property
    def module(self) -> str | None:
        """Return the module that loses most, if significantly and if none of its points does so
        alone.
        """
        if any(share.freed.is_more for share in self.worst[:1]):
            return None
        sure = {name: tally.mean for name, tally in self.modules.items() if tally.is_more}
        return max(sure, key=lambda name: sure[name], default=None)

    @property
    def worst(self) -> list[Share]:
        """Return the quantization points, sorted by the loss that freeing each one alone
        recovers, largest first.
        """
        return sorted(self.shares.values(), key=lambda one: -_number(one.freed.mean))


def _number(value: float) -> float:
    return value if value == value else float("inf")


def estimates(quantized: Quantized, batches: Sequence[Batch], seed: int = 0) -> dict[Site, float]:
    """Estimate the divergence that rounding at each quantization point causes, by gradients."""
    found = dict.fromkeys(quantized.sites, 0.0)
    random = torch.Generator().manual_seed(seed)
    for inputs, _ in batches:
        steps: dict[SSAValue, Any] = {}

        def adjust(of: SSAValue, value: Any, steps: dict[SSAValue, Any] = steps) -> Any:
            if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
                return value
            steps[of] = torch.zeros_like(value, requires_grad=True)
            return value + steps[of]

        play = Playback(quantized, inputs, free=True, grad=True, adjust=adjust)
        end = first(play.outputs)
        count = max(1, DRAWN // len(end)) if end.dim() else 1
        draws: list[dict[SSAValue | None, Any]] = []
        for _ in range(count):
            with torch.enable_grad():
                drawn = _drawn(end, random)
            into = [*steps.values(), end]
            slopes = torch.autograd.grad(drawn, into, retain_graph=True, allow_unused=True)
            draws.append(dict(zip([*steps, None], slopes, strict=True)))
        with torch.no_grad():
            for site in quantized.sites:
                rounded = play.operands(site, free=False)
                moved: dict[SSAValue | None, Any] = {}
                if isinstance(site.op, ReturnOp):
                    moved[None] = first(rounded) - end
                else:
                    results = play.evaluated(site, rounded, free=False)
                    for of, value in zip(site.op.results, results, strict=True):
                        if of in steps:
                            moved[of] = value - play.values[of]
                for draw in draws:
                    rows = [
                        _by_sample(change * draw[of], len(end))
                        for of, change in moved.items()
                        if draw[of] is not None
                    ]
                    square = sum(rows, torch.zeros(1)).square().sum() / len(end)
                    found[site] += float(square) / 2 / len(batches) / count
    return found


def _by_sample(change: torch.Tensor, samples: int) -> torch.Tensor:
    """Return the sum over each sample; one sum if the elements are not divisible by samples."""
    return change.reshape(1 if change.numel() % samples else samples, -1).sum(-1)


def _drawn(end: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Return the negative log-likelihood of randomly drawn classes; for numbers, a random sum."""
    if end.dim() < 2 or end.shape[-1] < 2:
        return (end * torch.randn(end.shape, generator=random)).sum()
    logs = log_probabilities(end)
    drawn = torch.multinomial(logs.detach().exp().nan_to_num(1.0), 1, generator=random)
    return -logs.gather(-1, drawn).sum()


def attribute(
    quantized: Quantized,
    batches: Sequence[Batch],
    metric: Metric | None = None,
    *,
    most: int = MEASURED,
    pairs: int = PAIRS,
    ranked_on: int = 1,
    resume: Path | None = None,
    progress: Progress | None = None,
) -> Attribution:
    """Rank quantization points by gradients, then measure the first ones on every batch.

    Args:
        quantized: the quantized program and the float program.
        batches: the batches of inputs and labels.
        metric: the score of outputs and labels; None: chosen by the kind of labels.
        most: the number of points that are measured.
        pairs: the number of pairs of points that are freed together.
        ranked_on: the number of batches for the gradients.
        resume: a file that stores the result of each batch; measuring continues after these.
        progress: called for each batch.

    Raises:
        StepwellError: the file belongs to another program, or a batch does not fit the program.
    """
    ranks = estimates(quantized, batches[:ranked_on])
    sites = sorted(quantized.sites, key=lambda site: -_number(ranks[site]))[:most]
    result = Attribution(shares={site.name: Share(site.name, ranks[site]) for site in sites})
    together = {
        f"{one.name} + {other.name}": (one, other)
        for one, other in list(combinations(sites[: pairs if pairs < 2 else 3], 2))[:pairs]
    }
    modules = _modules(quantized, ranks)
    done = _kept(resume, result, [site.name for site in sites])
    for number, (inputs, labels) in enumerate(batches):
        if progress is not None:
            progress("batch", number, len(batches))
        if number < done:
            continue
        _measure(quantized, inputs, labels, metric, sites, together, modules, result)
        if resume is not None:
            names = [site.name for site in sites]
            kept = {"sites": names, "batches": number + 1, "found": asdict(result)}
            write_atomically(resume, json.dumps(kept).encode())
    return result


def _measure(
    quantized: Quantized,
    inputs: Sequence[Any],
    labels: Any,
    metric: Metric | None,
    sites: Sequence[Site],
    together: Mapping[str, Sequence[Site]],
    modules: Mapping[str, Sequence[Site]],
    result: Attribution,
) -> None:
    """Measure one batch and add its results."""
    floats = Playback(quantized, inputs, free=True)
    whole = Playback(quantized, inputs, free=False)

    def judge(outputs: Sequence[Any]) -> Judged:
        return judged(outputs, labels, floats.outputs, metric)

    base, low = judge(floats.outputs), judge(whole.outputs)
    result.loss.add(low.loss - base.loss, flips(low, base))
    result.score.add(low.score - base.score)
    result.divergence.add(low.divergence)
    for site in sites:
        share = result.shares[site.name]
        alone, freed = judge(floats.flipped(site)), judge(whole.flipped(site))
        share.alone.add(alone.loss - base.loss, flips(alone, base))
        share.freed.add(low.loss - freed.loss, flips(low, freed))
        share.score.add(freed.score - low.score)
        share.divergence.add(alone.divergence)
    for groups, tallies in ((together, result.pairs), (modules, result.modules)):
        for name, group in groups.items():
            freed = judge(whole.flipped(*group))
            tallies.setdefault(name, Tally()).add(low.loss - freed.loss, flips(low, freed))


def whole(module: str) -> str:
    """Return the label of a module's combined points."""
    return f"all quantization points of {module}"


def _modules(quantized: Quantized, ranks: Mapping[Site, float]) -> dict[str, list[Site]]:
    """Return the modules whose quantization points have the largest estimated losses in sum, with
    these points.
    """
    groups: dict[str, list[Site]] = {}
    for site in quantized.sites:
        groups.setdefault(site.module, []).append(site)
    several = [name for name, sites in groups.items() if len(sites) > 1]
    several.sort(key=lambda name: -sum(_number(ranks[site]) for site in groups[name]))
    return {name: groups[name] for name in several[:MODULES]}


def _kept(resume: Path | None, result: Attribution, names: Sequence[str]) -> int:
    """Load the measurements of a file; return the number of batches in it."""
    if resume is None or not resume.exists():
        return 0
    try:
        kept = json.loads(resume.read_text())
        found, batches = kept["found"], int(kept["batches"])
        same = kept["sites"] == list(names)
    except (ValueError, KeyError, TypeError) as error:
        raise StepwellError(
            f"{resume} contains no measurements", help="name another file"
        ) from error
    if not same:
        raise StepwellError(f"{resume} was measured on another program", help="name another file")
    for name in ("loss", "score", "divergence"):
        setattr(result, name, Tally(**found[name]))
    for name, held in found["shares"].items():
        tallies = {key: Tally(**value) for key, value in held.items() if isinstance(value, dict)}
        result.shares[name] = Share(name, held["estimate"], **tallies)
    for name in ("pairs", "modules"):
        setattr(result, name, {of: Tally(**tally) for of, tally in found[name].items()})
    return batches

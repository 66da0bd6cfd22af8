"""Recovery methods, each accepted only if it helps on batches to which it was not fitted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.options import nearest
from stepwell.quantization.recovery.bias_correction import corrected
from stepwell.quantization.recovery.clipping import clipped
from stepwell.quantization.recovery.distillation import distil
from stepwell.quantization.recovery.equalization import balanced
from stepwell.quantization.recovery.mixed_precision import chosen_ways, mixed, replaced
from stepwell.quantization.recovery.mixtures import mixture_text
from stepwell.quantization.recovery.rounding import second_order
from stepwell.quantization.recovery.scales import rescaled
from stepwell.quantization.recovery.weights import Weights
from stepwell.quantization.sensitivity.metrics import Batch, Judged, Metric, difference, judged
from stepwell.quantization.sensitivity.quantization_points import Quantized
from stepwell.quantization.sensitivity.replay import Playback
from stepwell.quantization.sensitivity.result import Accuracy, Cured

Cure = Callable[[Weights, Sequence[Batch]], Weights]
CURES: Mapping[str, Cure] = {
    "mixing": mixed,
    "clipping": clipped,
    "balancing": balanced,
    "scales": lambda weights, batches: rescaled(weights, batches[:MOMENTS]),
    "rounding": lambda weights, batches: second_order(weights, batches[:MOMENTS]),
    "biases": lambda weights, batches: corrected(weights, batches[:MOMENTS]),
    "distilling": distil,
}
"""Recovery methods by name: they fit new weights on batches, or choose other payloads."""
MOMENTS = 4
"""Number of batches for computing moments."""


def cured(
    accuracy: Accuracy,
    pair: Quantized,
    fit: Sequence[Batch],
    held_out: Sequence[Batch],
    metric: Metric | None,
    cures: Sequence[str],
    budget: Mapping[str, Any],
) -> Accuracy:
    """Apply recovery methods in order to the program of an accuracy result; keep those that help.

    `fit` are the batches for fitting, `held_out` those for accepting. `budget` limits `mixing`.

    Raises:
        StepwellError: no recovery method has this name.
    """
    for name in cures:
        if name not in CURES:
            raise StepwellError(
                f"there is no recovery method {name!r}",
                help=nearest(name, CURES) + f"recovery methods: {', '.join(CURES)}",
            )
    floats = [Playback(pair, inputs, free=True).outputs for inputs, _ in held_out]

    def judge(weights: Weights | None) -> list[Judged]:
        with torch.no_grad():
            runs = (Playback(pair, x, free=False) if weights is None else weights.run(x)
                    for x, _ in held_out)  # fmt: skip
            return [
                judged(run.outputs, labels, wanted, metric)
                for run, (_, labels), wanted in zip(runs, held_out, floats, strict=True)
            ]

    base = [judged(f, labels, f, metric) for f, (_, labels) in zip(floats, held_out, strict=True)]
    low = now = judge(None)
    best = weights = Weights.of(pair)
    kept = False
    tried: list[Cured] = []
    for name in cures:
        ways = chosen_ways(best, fit, **budget) if name == "mixing" else {}
        weights = replaced(best, ways) if name == "mixing" else CURES[name](best, fit)
        given = judge(weights)
        loss, score = difference(now, given, "loss"), difference(given, now, "score")
        lost, won = difference(low, base, "loss"), difference(low, given, "loss")
        wins = loss.mean > 0 and not (score.is_sure and score.mean < 0)
        why = "" if wins else f"on held-out batches the loss moves by {-loss.mean:+.4f}"
        part = won.mean / lost.mean if lost.mean else 0.0
        mixture = mixture_text(accuracy.form, ways) if ways else ""
        tried.append(Cured(name, part, score, wins, why, mixture))
        if wins:
            best, now, kept = weights, given, True
    return replace(accuracy, cures=tuple(tried), program=best.program() if kept else pair.program)

"""Bias correction: choose biases that cancel the shift of each channel's mean by rounding.

The error of a weight times the mean of its input is the same for every sample, and after a ReLU no
input has a mean of zero. Layers are corrected in program order, so that each layer also corrects
the remaining error of the layers before it (Nagel et al. 2019, from data).
"""

from collections.abc import Sequence

from torch import Tensor

from stepwell.ir.diagnostics import StepwellError, op_name
from stepwell.quantization.recovery.weights import Weights
from stepwell.quantization.sensitivity.metrics import Batch
from stepwell.quantization.sensitivity.quantization_points import Site
from stepwell.quantization.sensitivity.replay import Playback

LAYERS = ("aten.linear", "aten.conv", "stepwell_mx.")
"""Prefixes of the names of ops that add a bias to each channel."""


def corrected(weights: Weights, batches: Sequence[Batch]) -> Weights:
    """Correct the biases so that channels have the float model's means; weights are unchanged.

    Raises:
        StepwellError: no quantized layer of the program has a bias.
    """
    result = weights.copy()
    biases = {
        site: bias for site in weights.pair.sites if (bias := _bias(result, site)) is not None
    }
    if not biases:
        raise StepwellError(
            "the recovery method 'biases' changes biases of quantized layers, but the program "
            "has none",
            help="give the layers biases, possibly all zero",
        )
    floats = [Playback(weights.pair, inputs, free=True) for inputs, _ in batches]
    for site, bias in biases.items():
        of = site.op.results[0]
        axis = -1 if "linear" in op_name(site.op) else 1
        moved = [(play.values[of] - result.run(play.inputs).values[of]).movedim(axis, 0).flatten(1)
                 for play in floats]  # fmt: skip
        bias += sum(change.mean(1) for change in moved) / len(moved)
    return result


def _bias(weights: Weights, site: Site) -> Tensor | None:
    """Return the bias of a layer, if recovery methods may change it; else None."""
    if site.weight is None or not op_name(site.op).startswith(LAYERS):
        return None
    at = site.weight + 1
    if len(site.op.operands) <= at or "transpose" in op_name(site.op):
        return None
    return weights.numbers(site.op, at)

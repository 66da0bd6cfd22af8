"""The error of each layer in each MX payload, for targets with MX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.ir.program import Program
from stepwell.targets.target import Target
from stepwell.translate.mxfp.accuracy import mx_accuracy
from stepwell.validation.recording import Recording


def accuracy_of_payloads(
    source: Program, target: Target, recordings: Mapping[str, Sequence[Recording]]
) -> str:
    """The error of each layer in each MX payload, on the first plain sample; "" without MX."""
    extensions = target.name.split("+")
    if "mxfp" not in extensions and "mx_common" not in extensions:
        return ""
    (runs, *others) = recordings.values()
    samples = [run.sample.inputs for run in runs if run.sample.plain][:1]
    if others or not samples or source.level != "aten":
        return ""
    measured = mx_accuracy(source, samples)
    return str(measured) if measured.layers else ""

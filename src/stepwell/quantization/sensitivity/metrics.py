"""Evaluate the outputs of a batch: a loss and a score per sample, and paired differences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stepwell.ir.diagnostics import StepwellError

Metric = Callable[[Any, Any], Any]
"""Maps outputs and labels to a score per sample, or one for all; higher is better."""
Batch = tuple[tuple[Any, ...], Any]
"""Inputs of a call, and labels or None."""

SURE = 2.0
"""Number of standard errors beyond which a difference is significant."""


@dataclass(frozen=True)
class Judged:
    """The evaluated outputs of a batch, sample by sample.

    Attributes:
        loss: `[N]`; cross-entropy with class labels, squared error with numbers, without labels
            the divergence from the float model.
        score: `[N]` or `[1]`; 1 if the class is right (without labels: equals the float model's),
            or the metric's value.
        divergence: `[N]`; the Kullback-Leibler divergence from the float model's classes, or the
            squared distance relative to the float model's numbers.
        choice: `[N]`; the class; None if outputs are numbers.
    """

    loss: Tensor
    score: Tensor
    divergence: Tensor
    choice: Tensor | None


def first(outputs: Sequence[Any]) -> Tensor:
    """Return the floating-point output that is evaluated.

    Raises:
        StepwellError: no output is a float tensor.
    """
    for value in outputs:
        if isinstance(value, Tensor) and value.dtype.is_floating_point:
            return value
    raise StepwellError(
        "the model returns no float tensor, on which accuracy is measured",
        help="pass a program that returns logits or numbers",
    )


def judged(
    outputs: Sequence[Any], labels: Any, reference: Sequence[Any], metric: Metric | None = None
) -> Judged:
    """Evaluate a batch of outputs against its labels; without labels, against the float model's
    outputs.

    Raises:
        StepwellError: the number of labels is not the number of rows of the outputs.
    """
    given, wanted = first(outputs).detach().float(), first(reference).detach().float()
    classes = isinstance(labels, Tensor) and not labels.dtype.is_floating_point
    if isinstance(labels, Tensor) and labels.dtype.is_floating_point:
        result = _of_numbers(given, labels, wanted)
    elif given.dim() < 2 or given.shape[-1] < 2:
        result = _of_numbers(given, wanted, wanted)
    else:
        if classes and labels.numel() * given.shape[-1] != given.numel():
            raise StepwellError(
                f"labels of shape {list(labels.shape)} do not match the outputs' rows, "
                f"{list(given.shape[:-1])}",
                help="a batch is (inputs, labels); labels are classes, or numbers like the outputs",
            )
        result = _of_classes(given.flatten(0, -2), wanted.flatten(0, -2),
                             labels.flatten() if classes else None)  # fmt: skip
    if metric is None:
        return result
    score = torch.as_tensor(metric(outputs[0] if len(outputs) == 1 else tuple(outputs), labels))
    return Judged(result.loss, score.float().flatten(), result.divergence, result.choice)


def log_probabilities(tensor: Tensor) -> Tensor:
    """Return the logarithms of the probabilities of classes, a row for each sample."""
    return F.log_softmax(tensor.float().flatten(0, -2), -1)


def _of_classes(tensor: Tensor, wanted: Tensor, labels: Tensor | None) -> Judged:
    logs, theirs = log_probabilities(tensor), log_probabilities(wanted)
    divergence = (theirs.exp() * (theirs - logs)).sum(-1)
    choice = tensor.argmax(-1)
    if labels is None:
        return Judged(divergence, (choice == wanted.argmax(-1)).float(), divergence, choice)
    loss = -logs.gather(-1, labels[:, None].long())[:, 0]
    return Judged(loss, (choice == labels).float(), divergence, choice)


def _of_numbers(tensor: Tensor, labels: Tensor, wanted: Tensor) -> Judged:
    def rows(x: Tensor) -> Tensor:
        return x.reshape(len(x), -1) if x.dim() else x.reshape(1, 1)

    loss = (rows(tensor) - rows(labels.float())).square().mean(-1)
    size = rows(wanted).square().mean().clamp_min(1e-30)
    divergence = (rows(tensor) - rows(wanted)).square().mean(-1) / size
    return Judged(loss, -loss, divergence, None)


@dataclass
class Tally:
    """The sums of a paired difference over samples, accumulated over batches.

    Attributes:
        count: the number of samples.
        total, squares: the sums of the differences and of their squares.
        flips: the number of samples whose class changed.
    """

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    flips: int = 0

    def add(self, difference: Tensor, flips: int = 0) -> None:
        """Add the differences of some samples."""
        wide = difference.double()
        self.count += wide.numel()
        self.total += float(wide.sum())
        self.squares += float(wide.square().sum())
        self.flips += flips

    @property
    def mean(self) -> float:
        """Return the mean of the differences."""
        return self.total / max(self.count, 1)

    @property
    def error(self) -> float:
        """Return the standard error of the mean."""
        variance = max(self.squares / max(self.count, 1) - self.mean**2, 0.0)
        return sqrt(variance / max(self.count - 1, 1))

    @property
    def is_sure(self) -> bool:
        """Whether the mean difference is significant; NaN counts as significant."""
        return not abs(self.mean) <= SURE * self.error

    @property
    def is_more(self) -> bool:
        """Whether the mean difference is significantly greater than zero; NaN counts as greater."""
        return self.is_sure and not self.mean < 0


def flips(one: Judged, other: Judged) -> int:
    """Return the number of samples whose class differs between two evaluations."""
    if one.choice is None or other.choice is None:
        return 0
    return int((one.choice != other.choice).sum())


def difference(one: Sequence[Judged], other: Sequence[Judged], what: str) -> Tally:
    """Return the paired differences of loss and score, sample by sample."""
    tally = Tally()
    for a, b in zip(one, other, strict=True):
        tally.add(getattr(a, what) - getattr(b, what))
    return tally

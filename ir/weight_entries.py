"""What a weight store holds: given tensors, derived ones, and counters of its work."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.types import AnyTensor


class UnknownValue(StepwellError):
    """Raised if elements of a weight are needed of which only the type is known."""


@dataclass
class Given:
    """A tensor of the program.

    Attributes:
        tensor: stored without `requires_grad`.
        trainable: whether it required a gradient; an exported torch program restores that.
        is_known: whether its elements are the program's; False for a placeholder.
    """

    tensor: torch.Tensor
    trainable: bool | None = None
    is_known: bool = True


@dataclass
class Derived:
    """A weight that a recipe computes from other keys; `tensor` is set by the first evaluation."""

    recipe: str
    sources: tuple[str, ...]
    parameters: tuple[tuple[str, Any], ...]
    type: AnyTensor
    tensor: torch.Tensor | None = None


Entry = Given | Derived


@dataclass
class WeightCounts:
    """Counters of the work of a store and its children; tests assert on them.

    Attributes:
        evaluated: evaluations of recipes; one that proceeds by rows counts once.
        elements: the elements that were computed of each derived weight.
        hashed: hashes of whole tensors.
        kept: the bytes of derived tensors that are in memory.
    """

    evaluated: int = 0
    elements: Counter[str] = field(default_factory=Counter[str])
    hashed: int = 0
    kept: int = 0

"""The arithmetic of expressions with plain numbers that represent arbitrary ones."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from stepwell.validation.certificates.checker.expressions import Arithmetic, variable


def arithmetic_with(names: Mapping[float, str]) -> Callable[[bool, int], Arithmetic]:
    """Return the arithmetic in which some plain numbers are variables of these names."""

    class WithUnknown(Arithmetic):
        def numbers(self, value: Any, dtype: torch.dtype | None = None) -> Tensor:
            if isinstance(value, bool | Tensor) or value not in names:
                return super().numbers(value, dtype)
            is_float = isinstance(value, float) or (dtype is not None and dtype.is_floating_point)
            wide = torch.float64 if is_float else torch.int64  # As PyTorch converts a number.
            held = variable(f"number {names[value]}", [], self.seed)
            return self.cast(held, wide, dtype or wide)

    return WithUnknown

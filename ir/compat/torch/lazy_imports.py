"""torch, numpy and other packages, imported on first use.

Importing torch takes more than a second, numpy a tenth. Reading, verifying, rewriting and printing
a text need neither, so modules on that path import them from here: `from
stepwell.ir.compat.torch.lazy_imports import torch`. `NAME = OnDemand("package")` at the top of a
module does the same for a package that is optional, or slow to import and seldom needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class OnDemand:
    """A package that is imported on the first access to an attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, found)
        return found


if TYPE_CHECKING:
    import numpy as numpy
    import sympy as sympy
    import torch as torch
    import torch.nn.functional as functional
    from torch.fx.experimental import symbolic_shapes as symbolic_shapes

    from stepwell.ir.compat.torch.torch_private import pytree
else:
    numpy = OnDemand("numpy")
    torch = OnDemand("torch")
    functional = OnDemand("torch.nn.functional")
    pytree = OnDemand("torch.utils._pytree")
    symbolic_shapes = OnDemand("torch.fx.experimental.symbolic_shapes")
    sympy = OnDemand("sympy")

__all__ = ["functional", "numpy", "pytree", "symbolic_shapes", "sympy", "torch"]

"""Operators as functions over others, where PyTorch's tables have no such function.

What stands for an operator without a kernel is PyTorch's own decomposition, if it has one. Here is
what it has not: arithmetic that products, slices, comparisons and greatest numbers express. Each
function takes an operator's arguments and gives its results, in torch's words; it is traced as
PyTorch's are (`traced_calls.py`), so all targets share it. `NotImplemented` leaves an operator to
others, a `CannotTraceError` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepwell.translate.compositions.arithmetic import ARITHMETIC
from stepwell.translate.compositions.curves import CURVES
from stepwell.translate.compositions.draws import DRAWS
from stepwell.translate.compositions.layers import LAYERS
from stepwell.translate.compositions.orders import ORDERS
from stepwell.translate.compositions.polynomials import POLYNOMIALS
from stepwell.translate.compositions.pools import POOLS
from stepwell.translate.compositions.scatters import SCATTERS
from stepwell.translate.compositions.volumes import VOLUMES

COMPOSITIONS: dict[Any, Callable[..., Any]] = {}
"""Operator → the function that computes it by others."""

for _table in (ARITHMETIC, CURVES, DRAWS, LAYERS, ORDERS, POLYNOMIALS, POOLS, SCATTERS, VOLUMES):
    assert not _table.keys() & COMPOSITIONS.keys(), "one function an operator"
    COMPOSITIONS.update(_table)

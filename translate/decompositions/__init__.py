"""Operators as functions over others, where PyTorch's tables have no such function.

What stands for an operator without a kernel is PyTorch's own decomposition, if it has one. Here is
what it has not: arithmetic that products, slices, comparisons and greatest numbers express. Each
function takes an operator's arguments and gives its results, in torch's words; it is traced as
PyTorch's are (`traced_calls.py`), so all targets share it. `NotImplemented` leaves an operator to
others, a `CannotTraceError` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stepwell.dialects.aten.registry import overload_of
from stepwell.translate.decompositions.arithmetic import ARITHMETIC
from stepwell.translate.decompositions.curves import CURVES
from stepwell.translate.decompositions.draws import DRAWS
from stepwell.translate.decompositions.layers import LAYERS, NAMED_LAYERS
from stepwell.translate.decompositions.orders import ORDERS
from stepwell.translate.decompositions.polynomials import POLYNOMIALS
from stepwell.translate.decompositions.pools import POOLS
from stepwell.translate.decompositions.recurrences import RECURRENCES
from stepwell.translate.decompositions.scatters import SCATTERS
from stepwell.translate.decompositions.volumes import VOLUMES


class Compositions(Mapping[Any, Callable[..., Any]]):
    """Operator → the function that computes it by others; some operators are known by name."""

    def __init__(self, named: Mapping[str, Callable[..., Any]], *tables: Mapping[Any, Any]) -> None:
        self._named = named
        self._known: dict[Any, Callable[..., Any]] = {}
        for table in tables:
            assert not table.keys() & self._known.keys(), "one function an operator"
            self._known.update(table)

    def __getitem__(self, overload: Any) -> Callable[..., Any]:
        found = self._known.get(overload)
        return self._named[str(overload)] if found is None else found

    def __iter__(self) -> Iterator[Any]:
        yield from self._known
        yield from map(overload_of, self._named)

    def __len__(self) -> int:
        return len(self._known) + len(self._named)


COMPOSITIONS = Compositions(
    NAMED_LAYERS,
    *(ARITHMETIC, CURVES, DRAWS, LAYERS, ORDERS, POLYNOMIALS, POOLS),
    *(RECURRENCES, SCATTERS, VOLUMES),
)

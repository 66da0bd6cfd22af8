"""Decompositions of operators for which PyTorch has no decomposition.

PyTorch's own table decomposes many operators. This package has decompositions that are missing
there: arithmetic that products, slices, comparisons and maxima can express. Each function takes an
operator's arguments and returns its results in PyTorch's operators. The function is traced like
PyTorch's decompositions (`traced_calls.py`), so that all targets share it. A function returns
`NotImplemented` to leave an operator to other rules, and raises a `CannotTraceError` to state why
it cannot decompose it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stepwell.dialects.aten.registry import overload_of
from stepwell.translate.decompositions.traced.arithmetic import ARITHMETIC
from stepwell.translate.decompositions.traced.curves import CURVES
from stepwell.translate.decompositions.traced.draws import DRAWS
from stepwell.translate.decompositions.traced.layers import LAYERS, NAMED_LAYERS
from stepwell.translate.decompositions.traced.orders import ORDERS
from stepwell.translate.decompositions.traced.polynomials import POLYNOMIALS
from stepwell.translate.decompositions.traced.pools import POOLS
from stepwell.translate.decompositions.traced.recurrences import RECURRENCES
from stepwell.translate.decompositions.traced.scatters import SCATTERS
from stepwell.translate.decompositions.traced.volumes import VOLUMES


class Decompositions(Mapping[Any, Callable[..., Any]]):
    """A table from operators to decompositions; operators of optional libraries are registered by
    name.
    """

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


DECOMPOSITIONS = Decompositions(
    NAMED_LAYERS,
    *(ARITHMETIC, CURVES, DRAWS, LAYERS, ORDERS, POLYNOMIALS, POOLS),
    *(RECURRENCES, SCATTERS, VOLUMES),
)

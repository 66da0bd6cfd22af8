"""What plain `xdsl-opt` sees of stepwell: dialects and passes, through xDSL's universe.

`tosa` is left out: xDSL has a dialect of that name, and two universes may not share one. Schema
ops are made from torch's schemas when their dialect is first named (about a third of a second).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from xdsl.ir import Dialect
from xdsl.passes import ModulePass
from xdsl.universe import Universe

SCHEMA_NAMESPACES = ("aten", "quantized_decomposed")


def _stepwell() -> Dialect:
    from stepwell.ir.core import Stepwell

    return Stepwell


def _schema_dialect(namespace: str) -> Callable[[], Dialect]:
    def load() -> Dialect:
        from stepwell.dialects.aten import Aten
        from stepwell.dialects.aten.registry import classes_of

        attributes = list(Aten.attributes) if namespace == "aten" else []
        return Dialect(namespace, list(classes_of(namespace)), attributes)

    return load


def _package(name: str) -> Callable[[], Dialect]:
    def load() -> Dialect:
        module = importlib.import_module(f"stepwell.dialects.{name}")
        return next(v for v in vars(module).values() if isinstance(v, Dialect) and v.name == name)

    return load


def _passes() -> dict[str, Callable[[], type[ModulePass]]]:
    from stepwell.steps import all_passes

    return all_passes()


STEPWELL = Universe(
    all_dialects={
        "stepwell": _stepwell,
        **{name: _schema_dialect(name) for name in SCHEMA_NAMESPACES},
        **{name: _package(name) for name in ("quant", "cmsis", "xnnpack", "tosa_mxfp")},
    },
    all_passes=_passes(),
)
"""The entry point `xdsl.universe`."""

"""Provide stepwell's dialects and passes to plain `xdsl-opt`, through xDSL's universe.

xDSL has a dialect `tosa` with a fifth of TOSA's ops, and two universes must not share a name. If
stepwell is installed, `xdsl-opt` uses our dialect in its place, with every op of the schema. Schema
ops are created from torch's schemas when their dialect is first named (about a third of a second).
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import suppress

from xdsl.ir import Dialect, Operation
from xdsl.passes import ModulePass
from xdsl.universe import XDSL_UNIVERSE, Universe
from xdsl.utils.exceptions import PyRDLOpDefinitionError

from stepwell.dialects import HOMES, PACKAGES
from stepwell.dialects.aten import Aten
from stepwell.dialects.aten.registry import LIBRARIES, find
from stepwell.ir.compat.torch import torch_private
from stepwell.ir.core import Stepwell
from stepwell.ir.diagnostics import StepwellError
from stepwell.pipelines.pass_pipeline.named_passes import all_passes

SCHEMA_NAMESPACES = ("aten", "quantized_decomposed")


def _stepwell() -> Dialect:
    return Stepwell


def _schema_dialect(namespace: str) -> Callable[[], Dialect]:
    def load() -> Dialect:
        attributes = list(Aten.attributes) if namespace == "aten" else []
        return Dialect(namespace, list(_schema_ops(namespace)), attributes)

    return load


def _schema_ops(namespace: str) -> Iterator[type[Operation]]:
    """Return every functional operator of a namespace that torch knows."""
    if namespace in LIBRARIES:
        importlib.import_module(LIBRARIES[namespace])
    for qualified in torch_private.operator_names():
        space, _, name = qualified.partition("::")
        if space == namespace:
            operator, _, overload = name.partition(".")
            # Operators that write to their arguments, or return several lists, have no op class.
            with suppress(StepwellError, PyRDLOpDefinitionError):
                if (found := find(f"{space}.{operator}.{overload or 'default'}")) is not None:
                    yield found


def _package(name: str) -> Callable[[], Dialect]:
    def load() -> Dialect:
        module = importlib.import_module(f"stepwell.dialects.{HOMES.get(name, name)}")
        return next(v for v in vars(module).values() if isinstance(v, Dialect) and v.name == name)

    return load


def _passes() -> dict[str, Callable[[], type[ModulePass]]]:
    return all_passes()


# This module is imported by xDSL alone, while it gathers universes, before it compares their names.
XDSL_UNIVERSE.all_dialects.pop("tosa", None)

STEPWELL = Universe(
    all_dialects={
        "stepwell": _stepwell,
        **{name: _schema_dialect(name) for name in SCHEMA_NAMESPACES},
        **{name: _package(name) for name in PACKAGES if name not in SCHEMA_NAMESPACES},
    },
    all_passes=_passes(),
)
"""The entry point `xdsl.universe`."""

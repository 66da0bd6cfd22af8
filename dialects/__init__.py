"""The dialects: one package for the operations of each level.

Importing one of these packages registers all dialects with the parser; a dialect is loaded when a
text first uses it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

from xdsl.ir import Dialect, Operation

from stepwell.ir.compat.torch import torch_private
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.levels import register_level_loader
from stepwell.ir.syntax.text import register_dialect, register_names, register_op_finder

PACKAGES = (
    "aten",
    "cmsis",
    "control",
    "ethosu",
    "executorch",
    "quant",
    "sym",
    "tosa",
    "tosa_mxfp",
    "xnnpack",
)
"""Packages (or modules) of this folder that define the `Dialect` of their name."""

HOMES = {"tosa_mxfp": "tosa_mxfp.executorch"}
"""The module that defines a package's dialect, if the package itself does not."""


def _loader(name: str) -> Callable[[], Dialect]:
    def load() -> Dialect:
        module = importlib.import_module(f"stepwell.dialects.{HOMES.get(name, name)}")
        for value in vars(module).values():
            if isinstance(value, Dialect) and value.name == name:
                return value
        raise StepwellError(f"stepwell.dialects.{name} defines no dialect {name!r}")

    return load


LEVELS = ("aten", "cmsis", "ethosu", "executorch", "tosa", "xnnpack")
"""The packages that define a level."""

for _name in PACKAGES:
    register_dialect(_name, _loader(_name))
for _name in LEVELS:
    register_level_loader(_name, _loader(_name))


@register_op_finder
def find_schema_op(name: str) -> type[Operation] | None:
    """Return the op class of a torch operator of any namespace."""
    if name.count(".") != 2 or name.startswith("torch."):
        return None
    from stepwell.dialects.aten.registry import find

    return find(name)


@register_names
def schema_names(dialect: str) -> Iterator[str]:
    """List the names of torch's operators of a namespace, as in the IR."""
    for qualified in torch_private.operator_names():
        space, _, name = qualified.partition("::")
        if space == dialect:
            yield f"{space}.{name}" if "." in name else f"{space}.{name}.default"


register_dialect("torch", lambda: importlib.import_module("stepwell.dialects.torch_mlir").Torch)


@register_op_finder
def find_torch_mlir_op(name: str) -> type[Operation] | None:
    """Return the op class of an operator of torch-mlir's dialect."""
    if not name.startswith(("torch.", "torch_c.")):
        return None
    from stepwell.dialects.torch_mlir import find_torch_op

    return find_torch_op(name)


@register_op_finder
def find_linalg_op(name: str) -> type[Operation] | None:
    """Return the op class of a named operator of `linalg` that xDSL does not define."""
    if not name.startswith(("linalg.", "tensor.")):
        return None
    from stepwell.dialects.linalg_named import CLASSES

    return CLASSES.get(name)


def make_known() -> None:
    """Register every dialect with the parser, as importing this package does."""

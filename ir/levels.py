"""Levels: which ops a program may contain at each stage of lowering.

The verifier of a level is a table of the ops that the level allows (as in tinygrad's specs). A
module states its level in the attribute `stepwell.level`; dialects register their levels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from xdsl.dialects import get_all_dialects
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation

from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.side_effects import is_one_of
from stepwell.ir.traversal import walk

COMMON = (ModuleOp, FuncOp, ReturnOp, WeightOp, StateOp, UpdateOp, MutateInputOp)
LEVEL = "stepwell.level"
AFTER = "stepwell.after"
"""The attribute of a module whose lowering stopped after a pass: `"xnnpack/share-nodes"`."""
CMSIS_TARGET = "cmsis.target"
"""The module attribute that names the CPU and instruction set of a program."""
TOSA_TARGET = "tosa.target"
"""The module attribute that names the version, profiles and extensions of TOSA of a program."""


UPSTREAM = "upstream"
"""The level of a program in MLIR's own dialects. Only MLIR's rules apply; the importer maps it to
ATen operators.
"""


@dataclass(frozen=True)
class Level:
    """A level: a name and a membership test, which returns None for allowed ops, else the
    reason.
    """

    name: str
    refuses: Callable[[Operation], str | None]

    def check(self, op: Operation) -> str | None:
        """Return why `op` is not allowed at this level, or None."""
        return None if is_one_of(type(op), COMMON) else self.refuses(op)


LEVELS: dict[str, Level] = {}
_LOADERS: dict[str, Callable[[], object]] = {}


def register_level(level: Level) -> Level:
    """Register a level by name.

    Raises:
        StepwellError: the name is registered already.
    """
    if level.name in LEVELS:
        raise StepwellError(f"level {level.name!r} is registered twice")
    LEVELS[level.name] = level
    return level


register_level(Level(UPSTREAM, lambda op: None))


def register_level_loader(name: str, load: Callable[[], object]) -> None:
    """Register the function that imports the module of a level; the import registers the level."""
    _LOADERS[name] = load


def find_level(name: str) -> Level | None:
    """Return the level of a name, importing its dialect if necessary; None for an unknown name."""
    if name not in LEVELS and name in _LOADERS:
        _LOADERS[name]()
    return LEVELS.get(name)


def known_levels() -> list[str]:
    """List the names of all levels."""
    return sorted({*LEVELS, *_LOADERS})


def level_of(module: ModuleOp) -> str:
    """Return the level that a module states; if it states none, derive it from the module's ops."""
    attr = module.attributes.get(LEVEL)
    if isinstance(attr, StringAttr):
        return attr.data
    dialects = {op.name.partition(".")[0] for op in walk(module)}
    found_level = next((level for level in _DOWNWARDS if level in dialects), None)
    if found_level == "tosa" and dialects & _upstream_dialects():
        return UPSTREAM  # A mixture of TOSA and other dialects is MLIR's own.
    return found_level or (UPSTREAM if dialects & _upstream_dialects() else "aten")


@cache
def _upstream_dialects() -> frozenset[str]:
    """Return the dialects of MLIR, xDSL and torch-mlir that stepwell does not define."""
    names = {*get_all_dialects(), "torch", "torch_c"}
    return frozenset(names - {*LEVELS, *_LOADERS, "builtin", "func"})


_DOWNWARDS = ("ethosu", "cmsis", "tosa", "xnnpack")
"""Levels named like their dialect, in the order in which they may contain ops of the next ones."""


def stopped_after(module: ModuleOp) -> str | None:
    """Return `TARGET/PASS` if the module's lowering stopped after a pass, else None."""
    attr = module.attributes.get(AFTER)
    return attr.data if isinstance(attr, StringAttr) else None


def set_level(module: ModuleOp, name: str) -> None:
    """State the level of a module."""
    module.attributes[LEVEL] = StringAttr(name)

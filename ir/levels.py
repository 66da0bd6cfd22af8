"""Levels: what a program may contain at each step of the stair.

The verifier of a level is a table of what that level may hold (an idea of tinygrad's specs). A
module says its level in `stepwell.level`; dialects register theirs.
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
"""Says of a module that it stopped on its way to a target: `"xnnpack/share-nodes"`."""
CMSIS_TARGET = "cmsis.target"
"""The module attribute that says what CPU and instruction set a program is for."""
TOSA_TARGET = "tosa.target"
"""The module attribute that says which version, profiles and extensions of TOSA a program has."""


UPSTREAM = "upstream"
"""The level of a text of MLIR's own dialects: nothing but MLIR's rules is asked of it, and torch's
operators are what it comes in as."""


@dataclass(frozen=True)
class Level:
    """A name and a test of membership: None if the op belongs, else why it does not."""

    name: str
    refuses: Callable[[Operation], str | None]

    def check(self, op: Operation) -> str | None:
        """Why `op` may not stand at this level, or None."""
        return None if is_one_of(type(op), COMMON) else self.refuses(op)


LEVELS: dict[str, Level] = {}
_LOADERS: dict[str, Callable[[], object]] = {}


def register_level(level: Level) -> Level:
    """Make a level known by name; a second one of the same name is an error."""
    if level.name in LEVELS:
        raise StepwellError(f"level {level.name!r} is registered twice")
    LEVELS[level.name] = level
    return level


register_level(Level(UPSTREAM, lambda op: None))


def register_level_loader(name: str, load: Callable[[], object]) -> None:
    """Say what to import for a level that a module may name; its import registers the level."""
    _LOADERS[name] = load


def find_level(name: str) -> Level | None:
    """A level by its name, its dialect imported if need be; None if there is none."""
    if name not in LEVELS and name in _LOADERS:
        _LOADERS[name]()
    return LEVELS.get(name)


def known_levels() -> list[str]:
    """The names of all levels."""
    return sorted({*LEVELS, *_LOADERS})


def level_of(module: ModuleOp) -> str:
    """The level a module says it is at; when it does not say, that of the ops that stand in it."""
    attr = module.attributes.get(LEVEL)
    if isinstance(attr, StringAttr):
        return attr.data
    dialects = {op.name.partition(".")[0] for op in walk(module)}
    stands = next((level for level in _DOWNWARDS if level in dialects), None)
    if stands == "tosa" and dialects & _upstream_dialects():
        return UPSTREAM  # TOSA beside other dialects is MLIR's own mixture.
    return stands or (UPSTREAM if dialects & _upstream_dialects() else "aten")


@cache
def _upstream_dialects() -> frozenset[str]:
    """Dialects of MLIR, of xDSL and of torch-mlir that are none of ours."""
    names = {*get_all_dialects(), "torch", "torch_c"}
    return frozenset(names - {*LEVELS, *_LOADERS, "builtin", "func"})


_DOWNWARDS = ("ethosu", "cmsis", "tosa", "xnnpack")
"""Levels whose ops are of the dialect of that name, the one that may hold others' ops first."""


def stopped_after(module: ModuleOp) -> str | None:
    """`TARGET/STEP`, if the module stopped behind a step on its way to a target."""
    attr = module.attributes.get(AFTER)
    return attr.data if isinstance(attr, StringAttr) else None


def set_level(module: ModuleOp, name: str) -> None:
    """State the level of a module."""
    module.attributes[LEVEL] = StringAttr(name)

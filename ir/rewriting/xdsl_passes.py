"""Passes and patterns of xDSL as passes of a pipeline.

    stepwell.PIPELINES["xnnpack"].after("normalize", CommonSubexpressionElimination())

A pass of xDSL changes a module. Its name in a pipeline is its own, that of a pattern the name of
its class (`FoldZero` is `fold-zero`). Neither states an error bound: `stepwell check` takes it as
exact.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.context import Context
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern

from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, NamedPass, Pass, Step

Xdsl = ModulePass | RewritePattern
AnyStep = Step | type[Step] | Xdsl | type[Xdsl]
"""A pass, one of xDSL's, or a class of them that needs no arguments."""


@dataclass(frozen=True)
class XdslPass(Pass):
    """A pass or a pattern of xDSL; the pass counts as one change if it changes the module."""

    held: Xdsl
    name: ClassVar[str] = "xdsl-pass"

    def apply(self, program: Program, history: History) -> int:
        """Apply the pass to the module, or the pattern everywhere until nothing changes."""
        if isinstance(self.held, RewritePattern):
            counted = _Counted(self.held)
            PatternRewriteWalker(counted).rewrite_module(program.module)
            return counted.changes
        before = program.module.clone()
        self.held.apply(Context(), program.module)
        return int(not before.is_structurally_equivalent(program.module))


class _Counted(RewritePattern):
    """A pattern that counts the operations that it changes."""

    def __init__(self, held: RewritePattern) -> None:
        self.held, self.changes = held, 0

    def match_and_rewrite(self, op: Any, rewriter: PatternRewriter) -> None:
        """Apply the pattern to one operation."""
        acted = rewriter.has_done_action
        rewriter.has_done_action = False
        self.held.match_and_rewrite(op, rewriter)
        self.changes += rewriter.has_done_action
        rewriter.has_done_action |= acted


def as_step(step: Any) -> Any:
    """Return a pass or pattern of xDSL, or a class of them, as a pass; other values unchanged."""
    if isinstance(step, type) and issubclass(step, ModulePass | RewritePattern):
        step = step()
    if isinstance(step, ModulePass):
        return NamedPass(step.name, XdslPass(step))
    if isinstance(step, RewritePattern):
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(step).__name__.lstrip("_"))
        return NamedPass(words.lower(), XdslPass(step))
    return step


def needs_arguments(cls: type[Xdsl]) -> bool:
    """Whether a class cannot be made without arguments."""
    given = inspect.signature(cls).parameters.values()
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(one.default is one.empty and one.kind not in optional for one in given)

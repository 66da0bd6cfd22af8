"""What a target provides for lowerings that are functions: its values, builder and error bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewriter
from stepwell.translate.quantized.layers import Layer, Parts
from stepwell.translate.quantized.recognize import Activation, Use


@dataclass(frozen=True)
class Goal:
    """The description of a target for the lowerings to it.

    Attributes:
        bound: the default error bound of a lowering's results.
        writer: creates the builder that records operators before they are inserted.
        value: wraps an SSA value in the target's value type.
        shape: the sizes of an SSA value, in the target's types.
        unfit: why the target does not support values: (values, program, sizes may be symbolic);
            None if it supports all of them.
    """

    bound: Bound
    writer: Callable[[Rewriter], Any]
    value: Callable[[SSAValue, Any], Any]
    shape: Callable[[SSAValue], tuple[Any, ...]]
    unfit: Callable[[Sequence[SSAValue], Program, bool], Refusal | None] | None


@dataclass(frozen=True)
class Grammar:
    """The description of a target for lowerings of layers between casts to it.

    Attributes:
        layer: (op, its parts, program, sizes may be symbolic) to the layer, or why the layer stays
            a float.
        value: wraps the integers of an activation.
        delivered: computes the replacement of a quantized result from the function's result for it.
        bound: the default error bound of a lowering's results.
    """

    layer: Callable[[SchemaOp, Parts, Program, bool], Layer | Refusal | None]
    value: Callable[[Activation, Any], Any]
    delivered: Callable[[Any, Use, Any], SSAValue]
    bound: Bound


GOALS: dict[str, Goal] = {}
GRAMMARS: dict[str, Grammar] = {}


def goal(name: str, found: Goal) -> None:
    """Register a target for `lowers`."""
    assert name not in GOALS, f"the target {name} is registered twice"
    GOALS[name] = found


def grammar(name: str, found: Grammar) -> None:
    """Register how a target lowers layers between casts."""
    assert name not in GRAMMARS, f"the grammar of {name} is registered twice"
    GRAMMARS[name] = found

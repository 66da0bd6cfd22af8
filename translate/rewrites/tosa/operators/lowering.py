"""The base of the rewrites from aten ops to TOSA operators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.tosa.codes import code_of_element
from stepwell.dialects.tosa.limits import EIGHT_K, Level
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.bounds import roundings
from stepwell.ir.dtypes import dtype_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import IntType, dims, element, is_static
from stepwell.translate.rewrites.tosa.operators.building import FLOATS, Builder, shape_of
from stepwell.translate.rewrites.tosa.operators.sizes import inexpressible, is_known


@dataclass(frozen=True)
class Lowerable:
    """An op that passed every guard."""

    op: SchemaOp


@dataclass(frozen=True)
class LowerToTosa(Rewrite[Lowerable]):
    """One aten op to TOSA operators with the same result; subclasses write guard and operators."""

    bound: ClassVar[Bound] = roundings("TOSA's operators round in another order")
    takes_symbols: ClassVar[bool] = True
    """Whether sizes may be symbolic; `refuses` says which ones, where not all."""

    def match(self, op: SchemaOp, program: Program) -> Lowerable | Refusal | None:
        """Guards: tensors of element types TOSA has, of sizes it can name, then the op's own."""
        level = level_of(program.context.target)
        for value in (*op.operands, *op.results):
            if self.takes_symbols and is_scalar(value):
                continue
            refusal = unfit(value, self.takes_symbols, level)
            if refusal is not None:
                return refusal
        return self.refuses(op) or Lowerable(op)

    def refuses(self, op: SchemaOp) -> Refusal | None:
        """Why this op cannot be lowered, or None."""
        return None

    @abstractmethod
    def lower(self, op: SchemaOp, b: Builder) -> SSAValue | tuple[SSAValue | None, ...]:
        """Write the operators; what replaces the op's result, or each of its results that is used."""

    def build(self, match: Lowerable, rw: Rewriter) -> None:
        """Put the operators in the op's place."""
        made = self.lower(match.op, Builder(rw))
        values = made if isinstance(made, tuple) else (made,)
        for result, value in zip(match.op.results, values, strict=True):
            if value is None:
                continue
            if value.name_hint is None:
                value.name_hint = result.name_hint
            assert value.type == result.type, f"{match.op.name}: {value.type} for {result.type}"
            rw.replace_value(result, value)
        rw.erase(match.op)


def is_scalar(value: SSAValue) -> bool:
    """Whether a value is a size: an argument of a view, which the result's type spells too."""
    return isinstance(value.type, IntType)


def unfit(value: SSAValue, symbols: bool = False, level: Level = EIGHT_K) -> Refusal | None:
    """Why TOSA has no such tensor."""
    type_ = value.type
    if not isinstance(type_, TensorType):
        return Refusal(f"it takes or gives {type_}, a number known only at run time")
    held: Attribute = element(type_)
    if code_of_element(held) is None:
        return Refusal(f"TOSA has no element type {dtype_name(held)}")
    if not is_static(type_):
        if not symbols:
            return Refusal(f"the shape {list(dims(type_))} is symbolic")
        reason = inexpressible(value)
        if reason is not None:
            return Refusal(reason)
    if len(dims(type_)) > level.rank:
        return Refusal(f"rank {len(dims(type_))} is above TOSA's limit of {level.rank}")
    if 0 in dims(type_):
        return Refusal("TOSA has no empty tensors")
    return None


def needs_floats(op: SchemaOp) -> Refusal | None:
    """The operators used for this op compute on floats only."""
    held = element(op.operands[0].type)
    return (
        None
        if held in FLOATS
        else Refusal(f"TOSA has no operator for {op.name} on {dtype_name(held)}")
    )


def needs_known(value: SSAValue, axes: Sequence[int], what: str) -> Refusal | None:
    """The operators used for this op need numbers for some of a tensor's sizes."""
    shape = shape_of(value)
    if is_known([shape[axis] for axis in axes]):
        return None
    return Refusal(f"{what} {[str(shape[axis]) for axis in axes]} is symbolic")


def reduced_axes(op: SchemaOp) -> list[int]:
    """The axes that a reduction runs over, from first to last; all of them if none is named."""
    rank = len(shape_of(op.operands[0]))
    named = op.arg("dim") if "dim" in op.SCHEMA.by_name else None
    listed = [named] if isinstance(named, int) else list(named or range(rank))
    return sorted(axis % max(rank, 1) for axis in listed)


def is_number(value: object) -> bool:
    """Whether an argument is known at compile time."""
    return isinstance(value, int | float)

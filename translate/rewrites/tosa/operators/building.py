"""Build TOSA operators: the lowering of one aten op, operator by operator.

Constants are weights before the op that needs them; `share-common-subexpressions` merges equal ones
at the end.  TOSA broadcasts equal ranks only, so a constant of another rank is reshaped at compile
time, and a computed value by a RESHAPE.  Sizes are ints, or symbolic expressions where they are
dynamic (`sizes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import copysign, prod
from typing import Any

from xdsl.dialects.builtin import DenseArrayBase, IntegerType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.limits import LevelLimits
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.dialects.tosa.targets import level_of
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.dtypes import bf16, f16, f32, i32, torch_dtype
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import Dim
from stepwell.ir.types import dims, element, tensor
from stepwell.ir.weights import WeightStore, recipe
from stepwell.translate.rewrites.tosa.operators.sizes import shape_constant

FLOATS: tuple[Attribute, ...] = (f32, f16, bf16)
"""Element types of TOSA's floating-point operators."""


@recipe("tosa_reshape")
def tosa_reshape(weight: torch.Tensor, *, shape: Sequence[int]) -> torch.Tensor:
    """Give a constant another shape by a RESHAPE operator."""
    return weight.reshape(list(shape))


@recipe("tosa_permute")
def tosa_permute(weight: torch.Tensor, *, order: Sequence[int]) -> torch.Tensor:
    """Permute the axes of a constant."""
    return weight.permute(list(order))


@recipe("tosa_single")
def tosa_single(weight: torch.Tensor) -> torch.Tensor:
    """Convert a constant to f32."""
    return weight.float()


def shape_of(value: SSAValue) -> tuple[Any, ...]:
    """Return the sizes of a tensor value: ints, and a `Size` for each dynamic dimension."""
    return dims(value.type)


def i64s(values: Sequence[int]) -> DenseArrayBase:
    """Return an `array<i64: …>` attribute."""
    return DenseArrayBase.from_list(IntegerType(64), list(values))


def i32s(values: Sequence[int]) -> DenseArrayBase:
    """Return an `array<i32: …>` attribute."""
    return DenseArrayBase.from_list(IntegerType(32), list(values))


def broadcast(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the broadcast shape of two shapes of one rank."""
    return tuple(right if left == 1 else left for left, right in zip(a, b, strict=True))


def accumulator(attribute: Attribute) -> Attribute:
    """Return the accumulator type of products and averages: 32 bits."""
    return f32 if attribute in FLOATS else i32


@dataclass(frozen=True)
class Builder:
    """Builds operators in front of the op that is being lowered."""

    rw: Rewriter

    @property
    def level(self) -> LevelLimits:
        """Return the target to which the program is lowered."""
        return level_of(self.rw.program.context.target)

    def op(
        self,
        cls: type[TosaOp],
        operands: Sequence[SSAValue],
        shape: Sequence[Dim],
        held: Attribute,
        **properties: Attribute,
    ) -> SSAValue:
        """Build one operator with one result."""
        type_ = tensor(shape, held)
        new = cls.create(operands=list(operands), result_types=[type_], properties=properties)
        return self.rw.insert(new).results[0]

    # -- constants ---------------------------------------------------------------------------

    def weight(self, key: str) -> SSAValue:
        """Insert a weight, and return its value."""
        return self.rw.insert(WeightOp(key, self.rw.weights.type_of(key))).results[0]

    def constant(self, values: torch.Tensor) -> SSAValue:
        """Build a small constant tensor."""
        return self.weight(self.rw.weights.constant(values.contiguous()))

    def number(self, number: float, rank: int, held: Attribute) -> SSAValue:
        """Build a tensor of one element."""
        tensor_, key = _one_element(number, copysign(1.0, number), rank, held)
        if key not in self.rw.weights:
            self.rw.weights.constant(tensor_)
        return self.rw.insert(WeightOp(key, tensor([1] * rank, held))).results[0]

    def splat(self, number: float, like: SSAValue) -> SSAValue:
        """Build a tensor of one number that broadcasts to `like`."""
        return self.number(number, len(dims(like.type)), element(like.type))

    def zero(self, attribute: Attribute) -> SSAValue:
        """Build the zero point `[0]`."""
        return self.number(0.0, 1, attribute)

    def sizes(self, values: Sequence[Dim]) -> SSAValue:
        """Build a list of sizes as an operand."""
        return shape_constant(values, self.rw)

    # -- moving elements ---------------------------------------------------------------------

    def reshape(self, value: SSAValue, shape: Sequence[Dim]) -> SSAValue:
        """Reshape a value; a constant is reshaped at compile time."""
        if shape_of(value) == tuple(shape):
            return value
        key = weight_key(value)
        if key is not None:
            return self.weight(self.rw.weights.derive("tosa_reshape", [key], shape=list(shape)))
        return self.op(t.ReshapeOp, [value, self.sizes(shape)], shape, element(value.type))

    def transpose(self, value: SSAValue, order: Sequence[int]) -> SSAValue:
        """Permute the axes of a value; a constant is transposed at compile time."""
        if list(order) == list(range(len(order))):
            return value
        before = value.owner
        if isinstance(before, t.TransposeOp):
            earlier = ints(before.perms)
            if [earlier[axis] for axis in order] == list(range(len(order))):
                return before.input
        key = weight_key(value)
        if key is not None:
            return self.weight(self.rw.weights.derive("tosa_permute", [key], order=list(order)))
        value_shape = shape_of(value)
        shape = [value_shape[axis] for axis in order]
        return self.op(t.TransposeOp, [value], shape, element(value.type), perms=i32s(order))


@lru_cache(maxsize=1024, typed=True)
def _one_element(
    number: float, sign: float, rank: int, held: Attribute
) -> tuple[torch.Tensor, str]:
    """Return a tensor of one element and its key in a weight store.

    `sign` is the number's sign, because 0.0 == -0.0 and the cache must distinguish both.
    """
    value = torch.full([1] * rank, number, dtype=torch_dtype(held))
    return value, WeightStore().constant(value)


def elements(shape: Sequence[Dim]) -> Any:
    """Return the number of elements of a shape."""
    return prod(shape)


@recipe("tosa_slice")
def tosa_slice(weight: torch.Tensor, *, axis: int, start: int, size: int) -> torch.Tensor:
    """Slice a tensor along one axis."""
    return weight.narrow(axis, start, size)

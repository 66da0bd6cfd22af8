"""Write a transpose over the fewest axes, where the reshapes that takes are there already.

Axes of size 1 and axes that stay neighbours are no business of a transpose.  Attention's
`[1, 3, 197, 64]` to `[1, 197, 3, 64]` between reshapes is `[3, 197, 64]` to `[197, 3, 64]`.

Before:
    %s = tosa.const_shape {values = dense<[1, 3, 4, 8]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %a = tosa.reshape %x, %s : (tensor<3x4x8xf32>, !tosa.shape<4>) -> tensor<1x3x4x8xf32>
    %b = tosa.transpose %a {perms = array<i32: 0, 2, 1, 3>} : (tensor<1x3x4x8xf32>) -> tensor<1x4x3x8xf32>
    %r = tosa.const_shape {values = dense<[4, 24]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %y = tosa.reshape %b, %r : (tensor<1x4x3x8xf32>, !tosa.shape<2>) -> tensor<4x24xf32>
After:
    %s = tosa.const_shape {values = dense<[1, 3, 4, 8]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %a = tosa.reshape %x, %s : (tensor<3x4x8xf32>, !tosa.shape<4>) -> tensor<1x3x4x8xf32>
    %0 = tosa.const_shape {values = dense<[3, 4, 8]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %1 = tosa.reshape %a, %0 : (tensor<1x3x4x8xf32>, !tosa.shape<3>) -> tensor<3x4x8xf32>
    %2 = tosa.transpose %1 {perms = array<i32: 1, 0, 2>} : (tensor<3x4x8xf32>) -> tensor<4x3x8xf32>
    %3 = tosa.const_shape {values = dense<[1, 4, 3, 8]> : tensor<4xindex>} : () -> !tosa.shape<4>
    %b = tosa.reshape %2, %3 : (tensor<4x3x8xf32>, !tosa.shape<4>) -> tensor<1x4x3x8xf32>
    %r = tosa.const_shape {values = dense<[4, 24]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %y = tosa.reshape %b, %r : (tensor<1x4x3x8xf32>, !tosa.shape<2>) -> tensor<4x24xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Refusal, Rewrite, Rewriter
from stepwell.translate.rewrites.tosa.operators.building import Builder, shape_of
from stepwell.translate.rewrites.tosa.operators.sizes import is_spelled


@dataclass(frozen=True)
class Simplified:
    """`op` is a reshape to `shape`, a transpose in `order`, and a reshape."""

    op: t.TransposeOp
    shape: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class SimplifyTranspose(Rewrite[Simplified]):
    """A transpose between reshapes to one of fewer axes."""

    name: ClassVar[str] = "simplify-transpose"
    anchors: ClassVar[tuple[type[Operation], ...]] = (t.TransposeOp,)

    def match(self, op: t.TransposeOp, program: Program) -> Simplified | Refusal | None:
        """Each reshape that is needed must merge with one that is there."""
        if not is_spelled(op.input):
            return Refusal("the shape is not known")
        held = shape_of(op.input)
        shape, order = simplest(held, ints(op.perms))
        if len(shape) == len(held):
            return None
        if not takes_reshape(op.input):
            return Refusal("what it reads is not a reshape")
        if not all(isinstance(use.operation, t.ReshapeOp) for use in op.output.uses):
            return Refusal("one of its readers is not a reshape")
        return Simplified(op, shape, order)

    def build(self, match: Simplified, rw: Rewriter) -> None:
        """Three operators, of which the outer two merge with their neighbours."""
        b = Builder(rw)
        value = b.transpose(b.reshape(match.op.input, match.shape), match.order)
        rw.replace(match.op, [b.reshape(value, shape_of(match.op.output))])


def takes_reshape(value: SSAValue) -> bool:
    """Whether a reshape behind this value merges: into another one, or over a slice."""
    owner = value.owner
    if isinstance(owner, t.SliceOp):
        owner = owner.input1.owner
        return isinstance(owner, t.ReshapeOp | t.TransposeOp)
    return isinstance(owner, t.ReshapeOp)


def simplest(shape: Sequence[int], order: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and order of the same transpose over the fewest axes."""
    runs: list[list[int]] = []
    for axis in order:
        if shape[axis] == 1:
            continue
        if runs and _follows(runs[-1][-1], axis, shape):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    in_source = sorted(runs)
    sizes = tuple(prod(shape[axis] for axis in run) for run in in_source)
    return sizes, tuple(in_source.index(run) for run in runs)


def _follows(first: int, second: int, shape: Sequence[int]) -> bool:
    """Whether nothing but axes of size 1 stands between two axes, in rising order."""
    return first < second and all(shape[axis] == 1 for axis in range(first + 1, second))

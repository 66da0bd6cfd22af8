"""Canonicalize every reordering of axes to `aten.permute.default` with axes from the front.

rule permute-axes-from-front
    Axes that are counted from the back.
Before:
    %y = aten.permute.default(%x, $d)
After:
    %y = aten.permute.default(%x, axes_from_front($d))
where not are_from_front($d) for termination
for $d = [-1, 0]

rule permute-copy-to-permute
    A copy is its operand.
Before:
    %y = aten.permute_copy.default(%x, $d)
After:
    %y = aten.permute.default(%x, axes_from_front($d))
for $d = [1, 0]

rule transpose-to-permute
    Two axes exchanged.
Before:
    %y = aten.$swap(%x, $a, $b)
After:
    %y = aten.permute.default(%x, swapped(%x, $a, $b))
for each $swap of transpose.int, transpose_copy.int, swapaxes.default, swapdims.default
for $a = 0, $b = -1

rule matrix-transpose-to-permute
    The last two axes exchanged; a vector stays what it is.
Before:
    %y = aten.$turn.default(%x)
After:
    %y = aten.permute.default(%x, swapped(%x, -1, -2))
for each $turn of t, t_copy, mT

rule adjoint-to-permute
    The adjoint of a real matrix is its transpose.
Before:
    %y = aten.adjoint.default(%x) : (tensor<$*S x $E>) -> …
After:
    %y = aten.permute.default(%x, swapped(%x, -1, -2))
where not is_complex($E) else "the adjoint of a complex tensor conjugates it"
not for %x = "tensor<2x3xcomplex<f32>>"

rule numpy-transpose-to-permute
    All axes in reverse.
Before:
    %y = aten.numpy_T.default(%x)
After:
    %y = aten.permute.default(%x, reversed_axes(%x))

rule movedim-to-permute
    An axis that goes elsewhere; the others keep their order.
Before:
    %y = aten.$move.int(%x, $s, $d)
After:
    %y = aten.permute.default(%x, moved(%x, [$s], [$d]))
for each $move of movedim, moveaxis
for $s = 0, $d = 1

rule movedims-to-permute
    Axes that go elsewhere; the others keep their order.
Before:
    %y = aten.$move.intlist(%x, $s, $d)
After:
    %y = aten.permute.default(%x, moved(%x, $s, $d))
for each $move of movedim, moveaxis
for $s = [0], $d = [-1]
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import axis
from stepwell.translate.rules import read_rules


def are_from_front(numbers: Sequence[int]) -> bool:
    """Return axes counted from the front."""
    return all(number >= 0 for number in numbers)


def axes_from_front(order: Sequence[int]) -> list[int]:
    """Return a permutation with its axes counted from the front."""
    return [axis(at, len(order)) for at in order]


def is_complex(of: Attribute) -> bool:
    """Whether the element type is complex."""
    return torch_dtype(of).is_complex


def swapped(value: SSAValue, first: int, second: int) -> list[int]:
    """Return the identity permutation with two axes exchanged; for rank 0 or 1 the identity."""
    order = list(range(len(dims(value.type))))
    if len(order) > 1:
        a, b = axis(first, len(order)), axis(second, len(order))
        order[a], order[b] = order[b], order[a]
    return order


def reversed_axes(value: SSAValue) -> list[int]:
    """Return all axes in reverse order."""
    return list(reversed(range(len(dims(value.type)))))


def moved(value: SSAValue, source: Sequence[int], destination: Sequence[int]) -> list[int]:
    """Return the permutation of `torch.movedim`: `source` axes go to `destination`."""
    rank = len(dims(value.type))
    if not rank:
        return []
    order = [-1] * rank
    for start, end in zip(source, destination, strict=True):
        order[axis(end, rank)] = axis(start, rank)
    rest = iter(i for i in range(rank) if i not in order)
    return [i if i >= 0 else next(rest) for i in order]


RULES = read_rules(__doc__, globals())

"""Follow the axes of a tensor through permutations and reshapes.

An axis of a result is a list of axes of the tensor that is moved, merged in row-major order. Two
values whose axes are the same lists, of the same tensor, are equal, whatever the sizes are.
"""

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Operation, SSAValue

from stepwell.ir.axes.maps import Along, Flat, Once, axis_map
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.sizes.size import UNKNOWN, Size, settled
from stepwell.ir.types import Dim, dims
from stepwell.ir.weights import WeightStore

Atoms = tuple[SSAValue | str, tuple[Dim, ...], tuple[tuple[int, ...], ...]]
"""A value, or a weight's key, with its shape; and the merged axes of it on each axis."""
_ORDERS = {"cmsis.permute": "permutation", "tosa_permute": "order"}
"""Recipes that permute a weight, and the name of the order."""


def atoms(value: SSAValue, weights: WeightStore) -> Atoms | None:
    """Return the tensor that a value rearranges and, for each axis, the merged axes of it; None if
    an op between them is followed no further. Axes of size 1 are in no list.
    """
    shape = dims(value.type)
    op = value.owner
    if isinstance(op, WeightOp):
        return _of_weight(op.key.data, weights)
    if not isinstance(op, Operation) or not is_of(op, "rearrangement"):
        return value, shape, _own(shape)
    before = atoms(op.operands[0], weights)
    axes = axis_map(op)
    if before is None or axes is None or axes.links[0] is None:
        return None
    source, sizes, held = before
    made: dict[int, tuple[int, ...]] = {}
    for axis, link in enumerate(axes.links[0]):
        match link:
            case Along() if link.is_plain and link.axis not in made:
                made[link.axis] = held[axis]
            case Once() if not held[axis]:
                pass
            case Flat(sources=sources, targets=targets):
                if axis == sources[0]:
                    whole = [atom for each in sources for atom in held[each]]
                    parts = _split(whole, sizes, [shape[target] for target in targets])
                    if parts is None:
                        return None
                    made |= dict(zip(targets, parts, strict=True))
            case _:
                return None
    if any(size != 1 and axis not in made for axis, size in enumerate(shape)):
        return None
    return source, sizes, tuple(made.get(axis, ()) for axis in range(len(shape)))


def _own(shape: Sequence[Dim]) -> tuple[tuple[int, ...], ...]:
    return tuple((axis,) if size != 1 else () for axis, size in enumerate(shape))


def _of_weight(key: str, weights: WeightStore) -> Atoms | None:
    """Return the axes of a weight, or of one that a recipe permutes."""
    made = weights.recipe_of(key)
    if made is None or made[0] not in _ORDERS:
        shape = dims(weights.type_of(key))
        return key, shape, _own(shape)
    before = _of_weight(made[1][0], weights)
    if before is None:
        return None
    source, sizes, held = before
    return source, sizes, tuple(held[axis] for axis in made[2][_ORDERS[made[0]]])


def _split(
    whole: Sequence[int], sizes: Sequence[Any], wanted: Sequence[Any]
) -> list[tuple[int, ...]] | None:
    """Split a list of axes into lists with given products of sizes; None if it is impossible."""
    if any(size == UNKNOWN for size in (*wanted, *(sizes[atom] for atom in whole))):
        return [tuple(whole)] if len(wanted) == 1 else None
    waiting, found = list(whole), list[tuple[int, ...]]()
    for size in wanted:
        part, product = list[int](), Size.of(1)
        while waiting and settled(product) != size:
            part.append(waiting.pop(0))
            product = product * Size.of(sizes[part[-1]])
        if settled(product) != size:
            return None
        found.append(tuple(part))
    return None if waiting else found

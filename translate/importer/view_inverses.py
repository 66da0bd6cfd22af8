"""The inverse of a view: the value of a tensor after one of its views was written.

    y = x[1]; y.add_(z)        y' = aten.add(x[1], z),  x' = aten.select_scatter(x, y', 0, 1)

Permutes and reshapes are inverted; slices are scattered into the tensor that they were taken from.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.types import IntType, dims
from stepwell.translate.importer.aliases import View, arguments, base_name

Appends = Callable[..., SSAValue]
"""Appends the op of a name (`"slice_scatter.default"`) and returns its result."""
Undo = Callable[[Appends, View, SSAValue, SSAValue], SSAValue]


def put_back(write: Appends, view: View, base: SSAValue, part: SSAValue) -> SSAValue:
    """Return the base after a write to a view of it.

    Args:
        write: the function that appends an op.
        view: a view for which `can_be_put_back` is true.
        base: the base before the write.
        part: the new value of the view.
    """
    return _UNDO[base_name(view.node.target)](write, view, base, part)


def can_be_put_back(view: View) -> bool:
    """Whether a write through a view determines the new value of its base."""
    name = base_name(view.node.target)
    if not view.sure or name not in _UNDO or view.base.meta["val"].is_complex():
        return False
    if name in _PIECES or name == "narrow":
        return isinstance(_piece(view), tuple)
    return name not in _RESHAPES or _same_elements(view)


def is_reshape(view: View) -> bool:
    """Whether a view is a reshape of its base's elements."""
    return view.index is None and base_name(view.node.target) in _RESHAPES


def _same_elements(view: View) -> bool:
    """Whether a view has its base's dtype; `view.dtype` reinterprets memory as other numbers."""
    value, base = view.node.meta["val"], view.base.meta["val"]
    return value.dtype == base.dtype


def sizes_of(write: Appends, tensor: SSAValue) -> list[Any]:
    """Return the sizes of a tensor; dynamic ones are queried by an op."""
    assert isinstance(tensor.type, TensorType)
    return [
        dim
        if isinstance(dim, int)
        else write("sym_size.int", tensor, axis, result_types=[IntType(str(dim))])
        for axis, dim in enumerate(dims(tensor.type))
    ]


def _scattered(name: str) -> Undo:
    """Return the inverse of a view: a function that writes the view's new contents into its base,
    by the scatter operator `name` with the view's arguments.
    """

    def undo(write: Appends, view: View, base: SSAValue, part: SSAValue) -> SSAValue:
        given = arguments(view.node)
        given.pop("self")
        return write(name, base, part, **given)

    return undo


def _to_its_shape(write: Appends, view: View, base: SSAValue, part: SSAValue) -> SSAValue:
    return write("view.default", part, sizes_of(write, base))


def _permuted(write: Appends, view: View, base: SSAValue, part: SSAValue) -> SSAValue:
    order = _order(view)
    return write("permute.default", part, [order.index(axis) for axis in range(len(order))])


def _order(view: View) -> list[int]:
    """Return the axis of the base for each axis of the view, computed by PyTorch."""
    rank = view.base.meta["val"].dim()
    sizes = torch.empty(tuple(range(2, rank + 2)), device="meta")
    target: Any = view.node.target
    given = arguments(view.node)
    given.pop("self")
    return [size - 2 for size in target(sizes, **given).shape]


def _written_piece(write: Appends, view: View, base: SSAValue, part: SSAValue) -> SSAValue:
    piece = _piece(view)
    assert piece is not None
    axis, start, end = piece
    if end is None:
        return write("select_scatter.default", base, part, axis, start)
    return write("slice_scatter.default", base, part, axis, start, end)


def _piece(view: View) -> tuple[int, int, int | None] | None:
    """Return axis, start and end of one of the parts of a split; end is None for a single row."""
    given = arguments(view.node)
    name = base_name(view.node.target)
    rank = view.base.meta["val"].dim()
    named: dict[str, int] = {"hsplit": 0 if rank == 1 else 1, "vsplit": 0, "dsplit": 2}
    axis: int = named[name] if name in named else given.get("dim", 0)
    axis %= rank
    if name == "narrow":
        start, length = given["start"], given["length"]
        if not isinstance(start, int) or not isinstance(length, int) or start < 0:
            return None
        return axis, start, start + length
    assert view.index is not None
    pieces = view.node.meta["val"]
    index = view.index % len(pieces)
    if name == "unbind":
        return axis, index, None
    sizes = [piece.shape[axis] for piece in pieces[: index + 1]]
    if not all(isinstance(size, int) for size in sizes):
        return None
    *_, start, end = itertools.accumulate(sizes, initial=0)
    return axis, start, end


_RESHAPES = frozenset(
    "view _unsafe_view reshape flatten unflatten view_as reshape_as unsqueeze squeeze ravel".split()
)
_PIECES = frozenset("split split_with_sizes chunk tensor_split hsplit vsplit dsplit unbind".split())
_ORDERS = "transpose t numpy_T mT permute movedim swapaxes swapdims moveaxis".split()
_UNDO: dict[str, Undo] = {
    "slice": _scattered("slice_scatter.default"),
    "select": _scattered("select_scatter.default"),
    "diagonal": _scattered("diagonal_scatter.default"),
    "narrow": _written_piece,
    **dict.fromkeys(_PIECES, _written_piece),
    **dict.fromkeys(_RESHAPES, _to_its_shape),
    **dict.fromkeys(_ORDERS, _permuted),
}

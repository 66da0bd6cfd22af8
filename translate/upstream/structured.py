"""Semantics of `linalg` on tensors: loops over an iteration space as operators on whole tensors.

Each operand is expanded along the axes of the space that its map names, and the body computes
elementwise on these. The body's reduction to its output runs over the axes that the output's map
omits. A sum of products is a product of matrices (`einsum`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from xdsl.dialects import linalg
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineMap

from stepwell.translate.upstream.meanings import (
    MEANINGS,
    CannotImport,
    Rule,
    Undefined,
    defined,
    dtype_of,
    shape_of,
)
from stepwell.translate.upstream.named import NAMED

SUMS = ("arith.addf", "arith.addi")
PRODUCTS = ("arith.mulf", "arith.muli")
FOLDS = {
    "arith.addf": (torch.sum, torch.add),
    "arith.addi": (torch.sum, torch.add),
    "arith.maximumf": (torch.amax, torch.maximum),
    "arith.maxnumf": (torch.amax, torch.fmax),
    "arith.maxsi": (torch.amax, torch.maximum),
    "arith.minimumf": (torch.amin, torch.minimum),
    "arith.minnumf": (torch.amin, torch.fmin),
    "arith.minsi": (torch.amin, torch.minimum),
    "arith.andi": (torch.all, torch.logical_and),
    "arith.ori": (torch.any, torch.logical_or),
}
"""Op by which a body reduces to its output → (over an axis, of two)."""


def _axes(affine_map: AffineMap) -> list[int | None]:
    """Return the iteration-space axis for each axis of an operand; None for the constant 0."""
    axes: list[int | None] = []
    for result in affine_map.results:
        if isinstance(result, AffineDimExpr):
            axes.append(result.position)
        elif isinstance(result, AffineConstantExpr) and result.value == 0:
            axes.append(None)
        else:
            raise CannotImport(f"its map {affine_map} is no choice of axes")
    named = [axis for axis in axes if axis is not None]
    if len(set(named)) < len(named):
        raise CannotImport(f"its map {affine_map} takes a diagonal")
    return axes


def _along(value: torch.Tensor, axes: Sequence[int | None], rank: int) -> torch.Tensor:
    """Return a tensor with its axes in the order of the iteration space; missing axes get size
    1.
    """
    kept = [(at, axis) for at, axis in enumerate(axes) if axis is not None]
    still = [at for at, axis in enumerate(axes) if axis is None]
    for at in reversed(still):
        value = value.select(at, 0)
    order = sorted(range(len(kept)), key=lambda i: kept[i][1])
    if order != list(range(len(kept))):
        value = value.permute(order)
    present = {axis for _, axis in kept}
    for axis in range(rank):
        if axis not in present:
            value = value.unsqueeze(axis)
    return value


def generic(op: linalg.GenericOp, args: Sequence[Any]) -> Any:
    """Compute a `linalg.generic` whose indexing maps select axes."""
    maps = [held.data for held in op.indexing_maps.data]
    kinds = [held.data.value for held in op.iterator_types.data]
    return looped(op, op.body.block, maps, kinds, args, len(op.inputs))


def looped(
    op: Operation,
    body: Block,
    maps: Sequence[AffineMap],
    kinds: Sequence[str],
    args: Sequence[Any],
    inputs: int,
) -> list[Any]:
    """Return the results of a body over an iteration space."""
    rank = len(kinds)
    axes = [_axes(held) for held in maps]
    sizes = _sizes(op, axes, rank)
    reduced = [axis for axis, kind in enumerate(kinds) if kind == "reduction"]
    if any(kind not in ("parallel", "reduction") for kind in kinds):
        raise CannotImport("it has an iterator that is neither parallel nor a reduction")
    values: dict[SSAValue, Any] = around(op, args)
    for argument, value, along in zip(body.args, args[: len(axes)], axes, strict=True):
        is_tensor = isinstance(value, torch.Tensor)
        values[argument] = _along(value, along, rank) if is_tensor else value
    last = body.last_op
    assert last is not None
    results: list[Any] = []
    for number, yielded in enumerate(last.operands):
        place = inputs + number
        result = op.results[number].type
        if reduced:
            made = _folded(
                yielded, body.args[place], values, sizes, reduced, args[place], axes, place
            )
        else:
            made = _given_back(_value(yielded, values, sizes), sizes, axes[place], result)
        results.append(made)
    return results


def free_values(op: Operation) -> list[SSAValue]:
    """Return the values from outside an op that its regions read, each once."""
    values: dict[SSAValue, None] = {}
    for inner in (inner for region in op.regions for inner in region.walk()):
        for operand in inner.operands:
            block = operand.owner.parent if isinstance(operand.owner, Operation) else operand.owner
            holder = None if block is None else block.parent_op()
            while holder is not None and holder is not op:
                holder = holder.parent_op()
            if holder is None:
                values[operand] = None
    return list(values)


def around(op: Operation, args: Sequence[Any]) -> dict[SSAValue, Any]:
    """Return the outer values that an op's regions read; an import rule gets them after the
    operands.
    """
    return dict(zip(free_values(op), args[len(op.operands) :], strict=True))


def _sizes(op: Operation, axes: Sequence[Sequence[int | None]], rank: int) -> list[int]:
    sizes = [0] * rank
    for operand, along in zip(op.operands, axes, strict=True):
        shape = shape_of(operand.type) if along else []
        for axis, size in zip(along, shape, strict=True):
            if axis is not None:
                sizes[axis] = size
    return sizes


def _given_back(value: Any, sizes: Sequence[int], axes: Sequence[int | None], type_: Any) -> Any:
    """Reduce a value over the whole iteration space to a result's axes."""
    dtype, shape = dtype_of(type_), shape_of(type_)
    if not isinstance(value, torch.Tensor):
        return torch.full(shape, value, dtype=dtype)
    if list(value.shape) != list(sizes):
        value = value.expand(list(sizes))
    order = [axis for axis in axes if axis is not None]
    if order != list(range(len(order))):
        value = value.permute(order)
    return value.reshape(shape) if list(value.shape) != shape else value


def _value(wanted: SSAValue, values: dict[SSAValue, Any], sizes: Sequence[int]) -> Any:
    """Return a value of a body, computed on whole tensors."""
    if wanted not in values:
        owner = wanted.owner
        if not isinstance(owner, Operation):
            raise CannotImport("its body reads values from outside")
        if owner.name == "linalg.index":
            axis = int(owner.properties["dim"].value.data)  # pyright: ignore
            shape = [1] * len(sizes)
            shape[axis] = sizes[axis]
            values[wanted] = torch.arange(sizes[axis]).reshape(shape)
            return values[wanted]
        rule = MEANINGS.get(owner.name)
        if rule is None:
            raise CannotImport(f"{owner.name} in its body has no equivalent in PyTorch")
        given = [_value(operand, values, sizes) for operand in owner.operands]
        values[wanted] = rule(owner, [defined(value) for value in given])
    return values[wanted]


def _folded(
    yielded: SSAValue,
    into: SSAValue,
    values: dict[SSAValue, Any],
    sizes: Sequence[int],
    reduced: Sequence[int],
    initial: Any,
    axes: Sequence[Sequence[int | None]],
    place: int,
) -> Any:
    """Return the reduction of a body to its output."""
    owner = yielded.owner
    if not isinstance(owner, Operation) or owner.name not in FOLDS or into not in owner.operands:
        raise CannotImport("its body adds to its output by no operation that is known")
    (rest,) = [operand for operand in owner.operands if operand is not into]
    over, of_two = FOLDS[owner.name]
    maker = rest.owner
    out = [axis for axis in axes[place] if axis is not None]
    product = maker if isinstance(maker, Operation) and maker.name in PRODUCTS else None
    if owner.name in SUMS and product is not None and len(product.operands) == 2:
        one, other = (_value(operand, values, sizes) for operand in product.operands)
        if all(isinstance(value, torch.Tensor) for value in (one, other)):
            made = _einsum(one, other, out, sizes)
            return _with_initial(of_two, made, initial)
    value = _value(rest, values, sizes)
    if not isinstance(value, torch.Tensor):
        raise CannotImport("its operand is no tensor")
    made = over(value.expand(list(sizes)), list(reduced))
    order = sorted(out)
    if order != out:
        made = made.permute([order.index(axis) for axis in out])
    return _with_initial(of_two, made.to(value.dtype), initial)


def _einsum(
    one: torch.Tensor, other: torch.Tensor, out: Sequence[int], sizes: Sequence[int]
) -> Any:
    letters = "abcdefghijklmnop"
    spelled: list[str] = []
    tensors: list[torch.Tensor] = []
    for value in (one, other):
        kept = [axis for axis in range(len(sizes)) if value.shape[axis] == sizes[axis]]
        spelled.append("".join(letters[axis] for axis in kept))
        tensors.append(value.reshape([sizes[axis] for axis in kept]))
    if any(all(letters[axis] not in text for text in spelled) for axis in out):
        raise CannotImport("an axis of its output is in neither operand")
    return torch.einsum(f"{spelled[0]},{spelled[1]}->{''.join(letters[a] for a in out)}", *tensors)


def _with_initial(of_two: Any, tensor: torch.Tensor, initial: Any) -> Any:
    """Combine a reduction with its initial output; zeros are also added, for the sign of zero."""
    if isinstance(initial, Undefined):
        raise CannotImport("it adds to an empty tensor, which is undefined")
    return of_two(initial, tensor) if isinstance(initial, torch.Tensor) else tensor


def _fill(op: linalg.FillOp, args: Sequence[Any]) -> Any:
    type_ = op.operands[-1].type
    if isinstance(args[0], torch.Tensor):
        return args[0].expand(shape_of(type_)).to(dtype_of(type_))
    return torch.full(shape_of(type_), args[0], dtype=dtype_of(type_))


def _broadcast(op: linalg.BroadcastOp, args: Sequence[Any]) -> Any:
    value = defined(args[0])
    for axis in sorted(int(v) for v in op.dimensions.get_values()):
        value = value.unsqueeze(axis)
    return value.expand(shape_of(op.init.type))


def _reduce(op: linalg.ReduceOp, args: Sequence[Any]) -> Any:
    reduced = [int(v) for v in op.dimensions.get_values()]
    rank = len(shape_of(op.input.type))
    kept = [axis for axis in range(rank) if axis not in reduced]
    maps = [AffineMap.identity(rank), AffineMap(rank, 0, tuple(map(AffineDimExpr, kept)))]
    kinds = ["reduction" if axis in reduced else "parallel" for axis in range(rank)]
    return looped(op, op.region.block, maps, kinds, args, 1)


STRUCTURED: dict[str, Rule] = {
    **NAMED,
    "linalg.generic": generic,
    "linalg.fill": _fill,
    "linalg.copy": lambda op, args: defined(args[0]).clone(),
    "linalg.transpose": lambda op, args: defined(args[0]).permute(
        [int(v) for v in op.permutation.get_values()]
    ),
    "linalg.broadcast": _broadcast,
    "linalg.reduce": _reduce,
}
"""Name of an op → function of it and its operands."""

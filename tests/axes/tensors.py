"""Meanings over tensors of floats: what an op's own meaning is compared with."""

from typing import Any

import torch
from torch import Tensor
from xdsl.ir import Operation

from stepwell.ir.axes.maps import All, Along, axis_map
from stepwell.ir.declared.scalar_semantics import Scalar, Term, meaning
from stepwell.ir.dtypes import torch_dtype
from stepwell.translate.decompositions.traced.semantics import OF_NUMBERS, OF_TENSORS

FUNCTIONS = {**OF_NUMBERS, **OF_TENSORS}
FOLDS = {"total": torch.sum, "average": torch.mean, "greatest": torch.amax, "least": torch.amin}


def evaluated(op: Operation, operands: list[Tensor]) -> Tensor | None:
    """An op's first result by its meaning; None where that is not an expression."""
    said = meaning(op)
    if said is None or said.element is None:
        return None
    given = dict(zip(op.operands, operands, strict=True))
    axes = axis_map(op)
    first = next((t for t in operands if t.dtype.is_floating_point), operands[0])
    dtype = first.dtype if first.dtype.is_floating_point else torch.float32
    folded = [
        axis
        for axis, link in enumerate((axes.links[0] if axes else None) or ())
        if type(link) is All
    ]

    def placed(value: Any) -> Tensor:
        """An operand, with axes of size 1 where the map puts its axes among the result's."""
        tensor = given[value]
        links = None if axes is None else axes.links[list(op.operands).index(value)]
        if not links or tensor.dim() >= operands[0].dim():
            return tensor
        places = [getattr(link, "axis", None) for link in links]
        if None in places or not all(type(link) is Along for link in links):
            return tensor
        shape = [1] * operands[0].dim()
        for size, place in zip(tensor.shape, places, strict=True):
            shape[place] = size
        return tensor.reshape(shape)

    def of(term: Scalar) -> Tensor:
        if not isinstance(term, Term):
            return torch.tensor(term, dtype=dtype if isinstance(term, float) else None)
        if term.value is not None:
            return placed(term.value)
        parts = [of(part) for part in term.operands]
        if term.function == "cast":
            assert term.to is not None
            return parts[0].to(torch_dtype(term.to))
        if term.function in FOLDS:
            return FOLDS[term.function](parts[0], dim=folded, keepdim=True)
        if any(part.dtype.is_floating_point for part in parts) and term.function != "where":
            parts = [part.to(dtype) for part in parts]
        return FUNCTIONS[term.function](*parts)

    return of(said.element)

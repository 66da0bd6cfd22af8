"""An instance of every elementwise operator of the table, from its schema alone.

An operator that needs other arguments than tensors and numbers has a sample in `samples.py`.
"""

from collections.abc import Iterator
from typing import Any

import torch

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.operators import OPERATORS
from stepwell.dialects.aten.registry import torch_overload
from stepwell.ir.declared.families import is_of
from stepwell.ir.dtypes import element_type

ONE, SEVERAL = ((4, 1, 5),), ((2, 3, 4), (3, 1), (4,))
"""The shapes of an operator's only tensor, and of several."""
NUMBERS = ((torch.float32, 0.5), (torch.int8, 2), (torch.bool, True))
"""The first element type that the operator takes, and a number of its kind."""


def elementwise_samples(sampled: set[str]) -> tuple[str, ...]:
    """One sample for each operator that has none yet."""
    found = (sample_of(cls) for cls in elementwise_ops() if cls.name not in sampled)
    return tuple(sample for sample in found if sample)


def elementwise_ops() -> Iterator[type[SchemaOp]]:
    return (cls for cls in OPERATORS if is_of(cls, "elementwise") and not is_of(cls, "cast"))


def sample_of(cls: type[SchemaOp]) -> str:
    required = [a for a in cls.SCHEMA.arguments if not a.default and not a.type.nullable]
    tensors = [a for a in required if a.type.is_tensor]
    shapes = dict(zip(tensors, ONE if len(tensors) == 1 else SEVERAL, strict=False))
    for dtype, number in NUMBERS:
        given: list[Any] = []
        for argument in required:
            if argument in shapes:
                kind = torch.bool if argument.name in ("condition", "mask") else dtype
                given.append(torch.ones(shapes[argument], dtype=kind))
            else:
                given.append(number if argument.type.base in ("Scalar", "float") else 1)
        try:
            torch_overload(cls)(*given)
        except (RuntimeError, TypeError):
            continue
        return f"%y = {cls.name}({', '.join(_text(n, value) for n, value in enumerate(given))})"
    return ""


def _text(number: int, value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return str(value).lower()
    return f"%v{number}: {element_type(value.dtype)}{list(value.shape)}"

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


def elementwise_samples(others: tuple[str, ...]) -> tuple[str, ...]:
    """One sample for each operator that has none among the others."""
    sampled = {sample.partition(" = ")[2].partition("(")[0] for sample in others}
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
            result = torch_overload(cls)(*given)
        except (RuntimeError, TypeError):
            continue
        return _text(cls.name, given, result)
    return ""


def _text(name: str, given: list[Any], result: torch.Tensor) -> str:
    values = [
        f"%v{n}" if isinstance(v, torch.Tensor) else str(v).lower() for n, v in enumerate(given)
    ]
    types = [_type(value) for value in given if isinstance(value, torch.Tensor)]
    return f"%y = {name}({', '.join(values)}) : ({', '.join(types)}) -> {_type(result)}"


def _type(value: torch.Tensor) -> str:
    return f"tensor<{''.join(f'{size}x' for size in value.shape)}{element_type(value.dtype)}>"

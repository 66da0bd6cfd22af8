"""Decompositions of elementwise operators by their scalar semantics.

`@means` declares an element of the result as an expression of elements of the operands. Evaluated
on tensors, the expression is a decomposition that all targets share. Targets use it for an operator
that has no kernel, no lowering and no decomposition in PyTorch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from stepwell.ir.compat.torch.torch_private import schema_of
from stepwell.ir.declared.families import families_of
from stepwell.ir.declared.scalar_semantics import Term, expression_of, parameters_of

OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "less": operator.lt,
    "less_equal": operator.le,
    "negate": operator.neg,
    "where": torch.where,
}
"""Primitives that take a tensor and a number."""
OF_TENSORS: dict[str, Callable[..., Any]] = {
    "absolute": torch.abs,
    "not_": torch.logical_not,
    "is_nan": torch.isnan,
    "quotient": torch.floor_divide,
    "modulo": torch.remainder,
    "power": torch.pow,
    "equal": torch.eq,
    "and_": torch.logical_and,
    "or_": torch.logical_or,
    "xor": torch.logical_xor,
    "invert": torch.bitwise_not,
    **{
        name: getattr(torch, name)
        for name in "exp expm1 log log1p sqrt rsqrt reciprocal sin cos tan tanh erf atan asin acos "
        "sinh cosh floor ceil round trunc sign minimum maximum".split()
    },
}
"""Primitives that take tensors only."""


def semantic_function(overload: Any) -> Callable[..., Any] | None:
    """Return the scalar semantics of an operator as a function of tensors; None if it has none.

    Halves are computed in float32. The function returns `NotImplemented` for integers, for a single
    primitive, and for an expression with a primitive that tensors lack.
    """
    schema = schema_of(overload)
    name = f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
    expression = expression_of(name)
    if expression is None or "elementwise" not in families_of(name):
        return None
    defaults = {argument.name: argument.default_value for argument in schema.arguments}
    count, named = parameters_of(expression)

    def computed(*args: Any, **kwargs: Any) -> Any:
        given = {**defaults, **dict(zip(defaults, args, strict=False)), **kwargs}
        tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
        dtypes = {value.dtype for value in tensors.values()} - {torch.bool}
        if not dtypes or not all(dtype.is_floating_point for dtype in dtypes):
            return NotImplemented
        narrow = reduce(torch.promote_types, dtypes)
        wide = torch.promote_types(narrow, torch.float32)
        leaves = {name: Term("element", ()) for name in tensors}
        known = {
            id(leaves[name]): value if value.dtype == torch.bool else value.to(wide)
            for name, value in tensors.items()
        }
        terms = {**given, **leaves}
        root = expression(*list(terms.values())[:count], **{n: terms.get(n) for n in named})
        if all(not isinstance(each, Term) or id(each) in known for each in root.operands):
            return NotImplemented
        made = _evaluated(root, known, wide)
        return made.to(narrow) if isinstance(made, Tensor) and made.is_floating_point() else made

    return computed


def _evaluated(term: Any, known: dict[int, Any], dtype: torch.dtype) -> Any:
    if not isinstance(term, Term):
        return term
    if id(term) not in known:
        operands = [_evaluated(each, known, dtype) for each in term.operands]
        function = OF_NUMBERS.get(term.function)
        if function is None:
            function = OF_TENSORS.get(term.function)
            operands = [
                each if isinstance(each, Tensor) else torch.full([], each, dtype=dtype)
                for each in operands
            ]
        if function is None or any(each is NotImplemented for each in operands):
            return NotImplemented
        known[id(term)] = function(*operands)
    return known[id(term)]

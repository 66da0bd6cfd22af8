"""How folded weights are computed: one recipe for any pure operator, evaluated once, when needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.rewriting import Rewriter
from stepwell.ir.weights import recipe

SOURCE, DTYPE = "source", "dtype"


@recipe("transpose")
def transpose(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The tensor with its axes in another order: a view, no copy."""
    return tensor.permute(*order)


@recipe("operator")
def operator(
    *sources: torch.Tensor, op: str, args: list[Any], kwargs: dict[str, Any], result: int
) -> torch.Tensor:
    """One result of a pure operator over weights.

    Args:
        sources: the tensors that `{"source": i}` in the arguments stand for.
        op: its name in the IR, `aten.mul.Scalar`.
        args, kwargs: its arguments as JSON, dtypes as `{"dtype": "float32"}`.
        result: which of its results.
    """
    namespace, name, overload = op.split(".")
    if op == "aten.view.default":
        name = "reshape"
    call = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    device = sources[0].device if sources else None
    keywords = {key: _decode(value, sources) for key, value in kwargs.items()}
    if device is not None and "device" in keywords:
        keywords["device"] = device
    given = call(*[_decode(value, sources) for value in args], **keywords)
    return given[result] if isinstance(given, list | tuple) else given


def derive(rw: Rewriter, name: str, keys: Sequence[str], **params: Any) -> SSAValue:
    """The value of a derived weight."""
    return rw.weight(rw.weights.derive(name, list(keys), **params))


def encode_call(op: SchemaOp, sources: Sequence[SSAValue]) -> dict[str, Any] | None:
    """The parameters of the `operator` recipe for an op, None where an argument has no JSON form."""
    positional, keywords = op.bind()
    try:
        return {
            "op": op.name,
            "args": [_encode(value, sources) for value in positional],
            "kwargs": {key: _encode(value, sources) for key, value in keywords.items()},
        }
    except TypeError:
        return None


def _encode(value: Any, sources: Sequence[SSAValue]) -> Any:
    if isinstance(value, SSAValue):
        if value not in sources:
            raise TypeError
        return {SOURCE: list(sources).index(value)}
    if isinstance(value, list):
        return [_encode(item, sources) for item in cast(list[Any], value)]
    if isinstance(value, Attribute):
        return {DTYPE: str(torch_dtype(value)).removeprefix("torch.")}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError


def _decode(value: Any, sources: Sequence[torch.Tensor]) -> Any:
    if isinstance(value, dict):
        held = cast(dict[str, Any], value)
        return sources[held[SOURCE]] if SOURCE in held else getattr(torch, held[DTYPE])
    if isinstance(value, list):
        return [_decode(item, sources) for item in cast(list[Any], value)]
    if isinstance(value, str) and value.startswith("torch."):
        return getattr(torch, value.removeprefix("torch."))
    return value

"""Recipes of folded weights: one for any pure operator, evaluated once, when needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.interpretation import flat_results, plan_of, torch_object
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.dtypes import dtype_name
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.weights import recipe

SOURCE, DTYPE = "source", "dtype"
NAMED = {"Layout": torch_object, "MemoryFormat": torch_object, "Device": torch.device}
"""Arguments that are written by name."""


@recipe("transpose", lambda held: None if held["order"][0] else "of the first")
def transpose(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """Permute the axes of the tensor: a view, no copy."""
    return tensor.permute(*order)


@recipe("operator")
def operator(
    *sources: torch.Tensor, op: str, arguments: dict[str, Any], result: int
) -> torch.Tensor:
    """Compute one result of a pure operator over weights.

    Args:
        sources: the tensors that `{"source": i}` in the arguments refer to.
        op: the operator's name in the IR, such as `aten.mul.Scalar`.
        arguments: by schema name, as JSON; dtypes as `{"dtype": "float32"}`, layouts, devices
            and memory formats by name.
        result: the index of the operator's result.
    """
    if (
        "as_strided" not in op
    ):  # Kernels may sum in another order on other strides; runs use dense values.
        sources = tuple(source.contiguous() for source in sources)
    cls = op_class(op)
    held: dict[str, Any] = {}
    for name, value in arguments.items():
        convert = NAMED.get(cls.SCHEMA.by_name[name].type.base)
        held[name] = convert(value) if convert and value is not None else _decode(value, sources)
    for argument in cls.SCHEMA.arguments:
        if argument.type.nullable and not argument.default:
            held.setdefault(argument.name, None)
    if "device" in held and sources:
        held["device"] = sources[0].device
    overload = plan_of(cls).overload(**held)
    return flat_results(overload)[result]


def derive(rw: Rewriter, name: str, keys: Sequence[str], **params: Any) -> SSAValue:
    """Return the value of a derived weight."""
    return rw.weight(rw.weights.derive(name, list(keys), **params))


def encode_call(op: SchemaOp, sources: Sequence[SSAValue]) -> dict[str, Any] | None:
    """Return the parameters of an op's `operator` recipe; None if an argument has no JSON form."""
    try:
        arguments = {name: _encode(value, sources) for name, value in op.present().items()}
    except TypeError:
        return None
    return {"op": op.name, "arguments": arguments}


def _encode(value: Any, sources: Sequence[SSAValue]) -> Any:
    if isinstance(value, SSAValue):
        if value not in sources:
            raise TypeError
        return {SOURCE: list(sources).index(value)}
    if isinstance(value, list):
        return [_encode(item, sources) for item in cast(list[Any], value)]
    if isinstance(value, Attribute):
        return {DTYPE: dtype_name(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError


def _decode(value: Any, sources: Sequence[torch.Tensor]) -> Any:
    if isinstance(value, dict):
        held = cast(dict[str, Any], value)
        return sources[held[SOURCE]] if SOURCE in held else getattr(torch, held[DTYPE])
    if isinstance(value, list):
        return [_decode(item, sources) for item in cast(list[Any], value)]
    return value

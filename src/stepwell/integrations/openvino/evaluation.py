"""The interpreter's rule and the result types of every operator, from `meaning.py`.

Operands that are axes, sizes or counts (`STATED`, by their names in the table) are passed to the
functions as Python numbers and lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.integrations.openvino.dialect import ConstantOp, DelegateOp, OpenvinoOp
from stepwell.integrations.openvino.meaning import MEANINGS
from stepwell.ir.declared.inference import infers
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.dtypes import element_type, torch_dtype
from stepwell.ir.sizes.size import UNKNOWN, Size
from stepwell.ir.types import dims, element, tensor

STATED = frozenset(
    "axes axis begin depth end input_order k output_shape pads_begin pads_end reduction_axes "
    "repeats scales_or_sizes split_lengths start step stop strides target_shape".split()
)
"""Names of operands that must be known for the result's type."""
BYTES = (torch.int8, torch.uint8)
"""Integers that kernels compute with as if they were floats."""
MOVES = frozenset(
    "Broadcast Concat Convert Gather Pad Reshape Slice Split Squeeze StridedSlice Tile Transpose "
    "Unsqueeze VariadicSplit".split()
)
"""Operators that move elements, or convert them."""


def _called(op: OpenvinoOp, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Call an operator's function; operands with a name of `STATED` become numbers and lists."""
    function = MEANINGS.get(op.TYPE)
    if function is None:
        raise UnsupportedError(f"{op.name}: the interpreter has no rule for it")
    computes = op.TYPE not in MOVES
    given = [
        value.tolist()
        if op.SIGNATURE.operand_name(at) in STATED
        else value.to(torch.float32)
        if computes and value.dtype in BYTES
        else value
        for at, value in enumerate(operands)
    ]
    found = function(*given, **op.values())
    return found if isinstance(found, tuple) else (found,)


@interprets(OpenvinoOp)
def _operator(op: OpenvinoOp, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    found = zip(_called(op, args), op.results, strict=False)
    return [value.to(torch_dtype(element(result.type))) for value, result in found]


@interprets(ConstantOp)
def _constant(op: ConstantOp, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (op.tensor(),)


@interprets(DelegateOp)
def _delegate(op: DelegateOp, args: Sequence[Any], ctx: Any) -> Sequence[Any]:
    return ctx.run_region(op.body, args)


# -- result types ----------------------------------------------------------------------------


@infers(OpenvinoOp)
def types_of(op: OpenvinoOp) -> Sequence[Attribute]:
    """Infer result types by the operator's function on tensors without data.

    Symbolic sizes are replaced by numbers, twice; the stated types must agree with both.
    """
    stated = [result.type for result in op.results]
    values = (*op.operands, *op.results)
    if op.TYPE not in MEANINGS or any(UNKNOWN in dims(value.type) for value in values):
        return stated
    if any(torch_dtype(element(value.type)) in BYTES for value in values):
        return stated  # An integer kernel of a program that was read: any of several types.
    symbols = {
        name
        for value in values
        for size in dims(value.type)
        if isinstance(size, Size)
        for name in size.symbols
    }
    if not symbols:
        return _types_for(op, {}) or stated
    for numbers in (4, 12), (8, 24):
        sizes = {name: numbers[at % 2] for at, name in enumerate(sorted(symbols))}
        given, found = [_at(type_, sizes) for type_ in stated], _types_for(op, sizes)
        if found is not None and given != found:
            raise StepwellError(f"results of types {given} are {found}, where sizes are {sizes}")
    return stated


def _at(type_: Attribute, sizes: Mapping[str, int]) -> Attribute:
    """Return a type for these values of symbols."""
    return tensor(
        [d.evaluate(sizes) if isinstance(d, Size) else d for d in dims(type_)], element(type_)
    )


def _types_for(op: OpenvinoOp, sizes: Mapping[str, int]) -> list[Attribute] | None:
    operands: list[Tensor] = []
    for at, value in enumerate(op.operands):
        is_stated = op.SIGNATURE.operand_name(at) in STATED
        made = _known(value, sizes) if is_stated else _without_data(value.type, sizes)
        if made is None:
            return None
        operands.append(made)
    try:
        found = _called(op, operands)
    except StepwellError:
        raise
    except Exception as error:  # PyTorch's functions raise any class.
        raise StepwellError((str(error).splitlines() or ["?"])[0]) from error
    made = found[: len(op.results) or None]  # Some versions have fewer results.
    return [tensor([int(d) for d in t.shape], element_type(t.dtype)) for t in made]


def _without_data(type_: Attribute, sizes: Mapping[str, int]) -> Tensor:
    shape = dims(_at(type_, sizes))
    return torch.empty(
        [int(str(d)) for d in shape], dtype=torch_dtype(element(type_)), device="meta"
    )


def _known(value: SSAValue, sizes: Mapping[str, int]) -> Tensor | None:
    """Return a value that is computed from constants and sizes; None if it is not."""
    owner = value.owner
    if isinstance(owner, ConstantOp):
        return owner.tensor()
    if not isinstance(owner, OpenvinoOp) or not isinstance(value.type, TensorType):
        return None
    if owner.TYPE == "ShapeOf":
        shape = _without_data(owner.operands[0].type, sizes).shape
        return torch.tensor(shape, dtype=torch.int64)
    operands = [_known(operand, sizes) for operand in owner.operands]
    if any(operand is None for operand in operands):
        return None
    return _called(owner, operands)[value.index]  # pyright: ignore

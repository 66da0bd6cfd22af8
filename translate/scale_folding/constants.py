"""Products and sums with a constant per channel, and channels followed along axis maps."""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.maps import AxisMap, axis_map
from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.core import weight_key
from stepwell.ir.declared.families import is_movement
from stepwell.ir.types import dims, element

Constants = tuple[SSAValue, str | None, str | None]
"""A source, the key of its scale, and the key of the shift that is added then."""


def constant_along(op: SchemaOp, axis: int) -> tuple[SSAValue, str] | None:
    """Return (tensor, key of the constant) of a sum or product with a constant, if the result has
    the tensor's type.

    The constant has one element, or one for each index of an axis of the tensor.
    """
    result = op.results[0].type
    one, another = operands_of(op)[:2]
    for constant, other in ((another, one), (one, another)):
        key = weight_key(constant)
        if key is None or other.type != result:
            continue
        constant_dims = dims(constant.type)
        at = axis - len(dims(result)) + len(constant_dims)
        is_along = all(size == 1 for place, size in enumerate(constant_dims) if place != at)
        if is_along and element(constant.type) == element(result):
            return other, key
    return None


def constant_side(value: SSAValue, cls: type[SchemaOp], axis: int) -> tuple[SSAValue, str] | None:
    """Return (other operand, key) if a value is a product, or a plain sum, with such a constant."""
    owner = value.owner
    if not isinstance(owner, cls) or type(owner) is not cls:
        return None
    if cls is aten.AddTensor and owner.arg("alpha") != 1:
        return None
    return constant_along(owner, axis)


def constants_of(value: SSAValue, axis: int) -> Constants:
    """Return the constants of a sum, a product, or a sum of a product without other users."""
    shift = scale = None
    shifted = constant_side(value, aten.AddTensor, axis)
    if shifted is not None:
        value, shift = shifted
    scaled = constant_side(value, aten.MulTensor, axis)
    if scaled is not None and (shift is None or value.has_one_use()):
        value, scale = scaled
    return value, scale, shift


def _axes(op: Operation | Block) -> AxisMap | None:
    """Return the axis map of an op that passes on scales and shifts of whole channels."""
    moves = isinstance(op, Operation) and is_movement(op) and len(op.results) == 1
    return axis_map(op) if moves else None


def channels_before(op: Operation | Block, axis: int) -> tuple[SSAValue, int] | None:
    """Return the operand of a data movement op, and the operand's axis that becomes the given
    result axis unchanged.
    """
    axes = _axes(op)
    at = None if axes is None or not axes.shapes[0] else axes.before(0, axis)
    return None if at is None or not isinstance(op, SchemaOp) else (op.operands[0], at)


def channels_behind(op: Operation, index: int, axis: int) -> int | None:
    """Return the result axis that the given operand axis of a data movement op becomes
    unchanged.
    """
    axes = _axes(op)
    return None if axes is None else axes.after(index, axis)

"""XNNPACK's nodes that only move elements."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, TensorType
from xdsl.irdl import operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.xnnpack.base import XnnpackOp, node, same_everywhere, same_parameters
from stepwell.dialects.xnnpack.datatypes import FLOATS, MAX_RANK, STATIC_INT8
from stepwell.ir.axes.forms import concatenated, mapped, moved, permuted, reshaped
from stepwell.ir.axes.maps import AxisMap
from stepwell.ir.declared.families import Family
from stepwell.ir.types import dims


class _Movement(XnnpackOp):
    """The base class of data movement nodes; quantized elements keep their parameters."""

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        same_everywhere(given, made, (*FLOATS, "bf16", *STATIC_INT8), self.name)
        same_parameters(self)

    def check_axes(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a field that must have one number per dimension of the input."""
        values = self.ints(name)
        rank = len(dims(self.operands[0].type))
        if len(values) != rank:
            raise VerifyException(f"{name} has {len(values)} numbers for {rank} dimensions")
        return values


@node
class StaticReshape(_Movement):
    """The same elements in row-major order in another shape.

    One size of `new_shape` may be 0: it is inferred from the others.
    """

    name = "xnnpack.static_reshape"
    FAMILY: ClassVar[Family | None] = "reshape"
    input = operand_def(TensorType)
    new_shape = prop_def(DenseArrayBase)

    def check(self) -> None:
        shape = self.ints("new_shape")
        if len(shape) > MAX_RANK:
            raise VerifyException(f"new_shape has rank {len(shape)}; the limit is {MAX_RANK}")
        if (shape and min(shape) < 0) or shape.count(0) > 1:
            raise VerifyException("sizes of new_shape must be positive, except for at most one 0")

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return mapped(self, reshaped(dims(self.input.type), dims(self.output.type)))


@node
class StaticTranspose(_Movement):
    """Transpose: result axis i is input axis `perm[i]`."""

    name = "xnnpack.static_transpose"
    FAMILY: ClassVar[Family | None] = "permutation"
    input = operand_def(TensorType)
    perm = prop_def(DenseArrayBase)

    def check(self) -> None:
        perm = self.check_axes("perm")
        if sorted(perm) != list(range(len(perm))):
            raise VerifyException(f"{list(perm)} is not a permutation")
        if not perm:
            raise VerifyException("a scalar has no axes to transpose")

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return mapped(self, permuted(self.ints("perm")))


@node
class StaticSlice(_Movement):
    """Slice: `sizes[i]` elements of axis i from `offsets[i]` on; 0: all elements from there on."""

    name = "xnnpack.static_slice"
    FAMILY: ClassVar[Family | None] = "part"
    input = operand_def(TensorType)
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)

    def check(self) -> None:
        offsets, sizes = self.check_axes("offsets"), self.check_axes("sizes")
        if not offsets:
            raise VerifyException("a scalar has no axes to slice")
        for axis, (offset, size, dim) in enumerate(
            zip(offsets, sizes, dims(self.input.type), strict=True)
        ):
            if offset < 0 or size < 0:
                raise VerifyException(f"axis {axis}: a slice must begin and end inside the tensor")
            if isinstance(dim, int) and offset + max(size, 1) > max(dim, 1):
                raise VerifyException(f"axis {axis}: {offset}+{size} exceeds its size, {dim}")

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return mapped(self, moved(self.ints("offsets")))


@node
class StaticConstantPad(_Movement):
    """Pad: `pre_paddings[i]` elements before axis i, `post_paddings[i]` after, `padding_value`."""

    name = "xnnpack.static_constant_pad"
    FAMILY: ClassVar[Family | None] = "padding"
    input = operand_def(TensorType)
    pre_paddings = prop_def(DenseArrayBase)
    post_paddings = prop_def(DenseArrayBase)
    padding_value = prop_def(FloatAttr)

    def check(self) -> None:
        if not dims(self.input.type):
            raise VerifyException("a scalar has no axes to pad")
        if min(*self.check_axes("pre_paddings"), *self.check_axes("post_paddings")) < 0:
            raise VerifyException("paddings must not be negative")

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return mapped(self, moved([-count for count in self.ints("pre_paddings")]))


class Concatenate(_Movement):
    """The base class of concatenations: inputs one after another along `axis`."""

    FAMILY: ClassVar[Family | None] = "join"
    axis = prop_def(IntegerAttr)

    def check(self) -> None:
        rank = len(dims(self.operands[0].type))
        if not 0 <= self.integer("axis", 0) < rank:
            raise VerifyException(f"a tensor of rank {rank} has no axis {self.integer('axis', 0)}")

    def axis_map(self, result: int = 0) -> AxisMap | None:
        shapes = [dims(value.type) for value in self.operands]
        return mapped(self, *concatenated(shapes, self.integer("axis", 0)))


@node
class Concatenate2(Concatenate):
    """Two tensors one after another along `axis`."""

    name = "xnnpack.concatenate2"
    input1 = operand_def(TensorType)
    input2 = operand_def(TensorType)


@node
class Concatenate3(Concatenate):
    """Three tensors one after another along `axis`."""

    name = "xnnpack.concatenate3"
    input1 = operand_def(TensorType)
    input2 = operand_def(TensorType)
    input3 = operand_def(TensorType)


@node
class Concatenate4(Concatenate):
    """Four tensors one after another along `axis`."""

    name = "xnnpack.concatenate4"
    input1 = operand_def(TensorType)
    input2 = operand_def(TensorType)
    input3 = operand_def(TensorType)
    input4 = operand_def(TensorType)


@node
class Concatenate5(Concatenate):
    """Five tensors one after another along `axis`."""

    name = "xnnpack.concatenate5"
    input1 = operand_def(TensorType)
    input2 = operand_def(TensorType)
    input3 = operand_def(TensorType)
    input4 = operand_def(TensorType)
    input5 = operand_def(TensorType)


CONCATENATES: dict[int, type[Concatenate]] = {
    2: Concatenate2,
    3: Concatenate3,
    4: Concatenate4,
    5: Concatenate5,
}
"""The node that concatenates a number of tensors."""

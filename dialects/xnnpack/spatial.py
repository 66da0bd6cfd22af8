"""Nodes with a window over an image. Images are NHWC.

`padding` is `[top, right, bottom, left]` as in XNNPACK; pairs are `[height, width]`.
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, TensorType, UnitAttr
from xdsl.irdl import (
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.xnnpack.base import (
    XnnpackOp,
    full_range,
    node,
    rank,
    same_everywhere,
    same_parameters,
)
from stepwell.dialects.xnnpack.datatypes import FLOATS, STATIC_INT8, DynamicInt8Type, datatype
from stepwell.dialects.xnnpack.weights import check_bias, check_scale, check_static, check_weight
from stepwell.ir.axes.forms import mapped, reduced
from stepwell.ir.axes.maps import All, Along, AxisMap, Link, Links
from stepwell.ir.declared.families import Family
from stepwell.ir.types import Dim, dims, element

Combination = tuple[str, str, str | None, str]

_STATIC: tuple[Combination, ...] = (
    ("fp32", "fp32", "fp32", "fp32"),
    ("fp16", "fp16", "fp16", "fp16"),
    ("fp16", "fp16", "fp32", "fp16"),
    ("qint8", "qint8", "qint32", "qint8"),
    ("qint8", "qcint8", "qcint32", "qint8"),
    ("quint8", "quint8", "qint32", "quint8"),
)
_DYNAMIC: tuple[Combination, ...] = (("qdint8", "qcint8", "fp32", "fp32"),)


class _Window(XnnpackOp):
    """The base class of nodes with a window."""

    padding = opt_prop_def(DenseArrayBase)
    stride = opt_prop_def(DenseArrayBase)
    dilation = opt_prop_def(DenseArrayBase)

    @property
    def paddings(self) -> tuple[int, ...]:
        """Return the paddings in the order top, right, bottom, left."""
        return self.ints("padding") if self.flag("padding") else (0, 0, 0, 0)

    def pair(self, name: str, default: int = 1) -> tuple[int, int]:
        """Return the field `name` as `(height, width)`."""
        if not self.flag(name):
            return default, default
        height, width = self.ints(name)
        return height, width

    @property
    def window(self) -> tuple[int, int]:
        """Return the height and width of the window, before dilation."""
        raise NotImplementedError

    def check(self) -> None:
        rank(self, 0, 4)
        if len(self.paddings) != 4 or min(self.paddings) < 0:
            raise VerifyException("padding is [top, right, bottom, left], none negative")
        for name in ("stride", "dilation"):
            if self.flag(name) and (len(self.ints(name)) != 2 or min(self.ints(name)) < 1):
                raise VerifyException(f"{name} is [height, width], both positive")

    def image_links(self, channels: Link) -> Links:
        """Return the axis links of the image; `channels` is the link of its channel axis."""
        top, _, _, left = self.paddings
        extents = zip(self.window, self.pair("dilation"), strict=True)
        reach = [(size - 1) * dilation + 1 for size, dilation in extents]
        down, across = self.pair("stride")
        return (
            Along(0),
            Along(1, down, -top, reach[0]),
            Along(2, across, -left, reach[1]),
            channels,
        )


class _Convolution(_Window):
    """The base class of convolutions: sliding windows with weights."""

    FAMILY: ClassVar[Family | None] = "product"
    PACKED: ClassVar[frozenset[int]] = frozenset({1, 2})
    DATATYPES: ClassVar[tuple[Combination, ...]]
    CHANNEL_AXIS: ClassVar[int] = 0
    input = operand_def(TensorType)
    filter = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    output_min = opt_prop_def(FloatAttr)
    output_max = opt_prop_def(FloatAttr)

    @property
    def filter_shape(self) -> tuple[int, int, int, int]:
        """Return the four sizes of the filter."""
        sizes = [size for size in rank(self, 1, 4) if isinstance(size, int)]
        if len(sizes) != 4:
            raise VerifyException("the filter's sizes must be known")
        first, second, third, fourth = sizes
        return first, second, third, fourth

    @property
    def window(self) -> tuple[int, int]:
        return self.filter_shape[1:3]

    @property
    def shared_dimensions(self) -> int:
        """Return how many trailing dimensions of a dynamically quantized input share a scale."""
        return 3

    @property
    def channels(self) -> Dim:
        """Return the number of input channels."""
        return rank(self, 0, 4)[3]

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        image, weight, *rest = given
        found = (image, weight, rest[0] if rest else None, made[0])
        if not any(found in (c, (c[0], c[1], None, c[3])) for c in self.DATATYPES):
            names = ", ".join(str(name) for name in found)
            raise VerifyException(f"XNNPACK has no kernel of {self.name} for {names}")
        full_range(self.result.type)

    def check(self) -> None:
        super().check()
        held = element(self.input.type)
        if isinstance(held, DynamicInt8Type) and held.data != self.shared_dimensions:
            raise VerifyException(
                f"this node requires an input whose last {self.shared_dimensions} dimensions share "
                f"a scale: dynamic_int8<{self.shared_dimensions}>"
            )
        check_scale(self)
        if datatype(self.filter.type) in (*STATIC_INT8, "qcint8"):
            check_weight(self, 1, channel_axis=self.CHANNEL_AXIS)
        else:
            check_static(self, 1)
        if self.bias is not None:
            check_bias(self, 2, self.filter_shape[self.CHANNEL_AXIS])
            check_static(self, 2)
        self.check_channels()

    def axis_map(self, result: int = 0) -> AxisMap | None:
        filter = tuple(Along(3) if axis == self.CHANNEL_AXIS else All() for axis in range(4))
        return mapped(self, self.image_links(All(3)), filter, (Along(3),))

    def check_channels(self) -> None:
        """Raise unless filter and input agree on the number of channels."""
        raise NotImplementedError


def check_groups(op: Convolution2d | Deconvolution2d) -> None:
    """Raise unless inputs and outputs are divisible by the number of groups."""
    groups = op.integer("groups", 1)
    outputs, _, _, inputs = op.filter_shape
    if groups < 1 or outputs % groups:
        raise VerifyException(f"{outputs} outputs do not divide into {groups} groups")
    if op.channels != inputs * groups:
        raise VerifyException(
            f"the input has {op.channels} channels, the filter expects {inputs} in each of "
            f"{groups} groups"
        )


@node
class Convolution2d(_Convolution):
    """Cross-correlation. Filter `[outputs, height, width, inputs / groups]`, bias `[outputs]`."""

    name = "xnnpack.convolution_2d"
    NODE: ClassVar[str] = "XNNConv2d"
    DATATYPES: ClassVar[tuple[Combination, ...]] = _STATIC + _DYNAMIC
    groups = opt_prop_def(IntegerAttr)

    @property
    def shared_dimensions(self) -> int:
        """Return 1 for a pointwise convolution, which XNNPACK converts to a fully connected node (a
        token per pixel).
        """
        is_pointwise = (
            self.window == (1, 1)
            and self.pair("stride") == (1, 1)
            and not any(self.paddings)
            and self.integer("groups", 1) == 1
            and self.filter_shape[0] + self.filter_shape[3] > 2
        )
        return 1 if is_pointwise else 3

    def check_channels(self) -> None:
        check_groups(self)


@node
class DepthwiseConvolution2d(_Convolution):
    """Convolution of each channel separately. Filter `[1, height, width, channels · multiplier]`.

    Output channel `c · multiplier + m` depends on input channel `c`.
    """

    name = "xnnpack.depthwise_convolution_2d"
    NODE: ClassVar[str] = "XNNDepthwiseConv2d"
    DATATYPES: ClassVar[tuple[Combination, ...]] = _STATIC
    CHANNEL_AXIS: ClassVar[int] = 3

    def check_channels(self) -> None:
        leading, _, _, outputs = self.filter_shape
        if leading != 1:
            raise VerifyException(f"the filter's first dimension is {leading}, must be 1")
        if not isinstance(self.channels, int) or outputs % self.channels:
            raise VerifyException(
                f"{outputs} outputs are not a multiple of {self.channels} channels"
            )

    def image_links(self, channels: Link) -> Links:
        """Return the axis links of the image; channels are kept if each has one output."""
        return super().image_links(Along(3) if self.filter_shape[3] == self.channels else channels)


@node
class Deconvolution2d(_Convolution):
    """Transposed convolution. Filter `[outputs, height, width, inputs / groups]`.

    The result has `stride · (n − 1) + adjustment + dilation · (window − 1) + 1 − padding` rows.
    """

    name = "xnnpack.deconvolution_2d"
    NODE: ClassVar[str] = "XNNConvTranspose2d"
    DATATYPES: ClassVar[tuple[Combination, ...]] = tuple(
        c for c in _STATIC + _DYNAMIC if c[0] != "fp16"
    )
    groups = opt_prop_def(IntegerAttr)
    adjustment = opt_prop_def(DenseArrayBase)

    def check_channels(self) -> None:
        check_groups(self)
        adjustment, stride = self.pair("adjustment", 0), self.pair("stride")
        if any(not 0 <= a < s for a, s in zip(adjustment, stride, strict=True)):
            raise VerifyException(f"adjustment {adjustment} must be less than stride {stride}")

    def image_links(self, channels: Link) -> Links:
        """Return axis links that read the whole height and width of the image.

        No stride expresses which input pixels reach a pixel of the result.
        """
        return (Along(0), All(1), All(2), channels)


class _Pooling(_Window):
    """The base class of pooling nodes: sliding windows without weights."""

    DATATYPES: ClassVar[tuple[str, ...]]
    kernel = prop_def(DenseArrayBase)
    input = operand_def(TensorType)

    @property
    def window(self) -> tuple[int, int]:
        return self.pair("kernel")

    def check(self) -> None:
        super().check()
        if len(self.ints("kernel")) != 2 or min(self.ints("kernel")) < 1:
            raise VerifyException("kernel is [height, width], both positive")
        top, right, bottom, left = self.paddings
        dilation = self.pair("dilation")
        extents = [(k - 1) * d + 1 for k, d in zip(self.window, dilation, strict=True)]
        if max(top, bottom) >= extents[0] or max(left, right) >= extents[1]:
            raise VerifyException("a window must not be entirely in the padding")

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return mapped(self, self.image_links(Along(3)), result=result)


@node
class MaxPooling2d(_Pooling):
    """The maximum of each window; padding never wins."""

    name = "xnnpack.max_pooling_2d"
    output_min = opt_prop_def(FloatAttr)
    output_max = opt_prop_def(FloatAttr)

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        same_everywhere(given, made, FLOATS + STATIC_INT8, self.name)
        same_parameters(self)


@node
class AveragePooling2d(_Pooling):
    """The mean of the image's pixels in each window; padding is not counted."""

    name = "xnnpack.average_pooling_2d"
    NODE: ClassVar[str] = "XNNAvgPooling2d"
    output_min = opt_prop_def(FloatAttr)
    output_max = opt_prop_def(FloatAttr)

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        same_everywhere(given, made, FLOATS, self.name)

    def check(self) -> None:
        super().check()
        if self.pair("dilation") != (1, 1):
            raise VerifyException("average pooling has no dilation")


@node
class ArgMaxPooling2d(_Pooling):
    """The maximum of each window and its index in the window, in column-major order.

    Windows do not overlap: the stride is the kernel. The index is an int32; ExecuTorch widens it if
    the delegate's output is `i64`. Padding repeats the image's edge.
    """

    name = "xnnpack.argmax_pooling_2d"
    result = result_def(TensorType)
    index = result_def(TensorType)

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        if (*given, *made) != ("fp32", "fp32", "int32"):
            raise VerifyException("XNNPACK pools by argmax from fp32 to fp32 and int32")

    def check(self) -> None:
        super().check()
        if self.pair("dilation") != (1, 1) or self.pair("stride") not in ((1, 1), self.window):
            raise VerifyException("windows of argmax pooling are adjacent and not dilated")


@node
class GlobalAveragePooling2d(XnnpackOp):
    """The mean over height and width, the two axes before the last.

    They have size 1 with `keep_dims`, else they are removed.
    """

    name = "xnnpack.global_average_pooling_2d"
    NODE: ClassVar[str] = "XNNGlobalAvgPooling2d"
    input = operand_def(TensorType)
    output_min = opt_prop_def(FloatAttr)
    output_max = opt_prop_def(FloatAttr)
    keep_dims = opt_prop_def(UnitAttr)

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        same_everywhere(given, made, FLOATS + STATIC_INT8, self.name)
        full_range(self.result.type)

    def check(self) -> None:
        rank(self, 0, 3, 4, 5, 6)

    def axis_map(self, result: int = 0) -> AxisMap | None:
        axes = len(dims(self.input.type))
        return mapped(self, reduced(axes, (axes - 3, axes - 2), self.flag("keep_dims")))


@node
class StaticResizeBilinear2d(XnnpackOp):
    """Bilinear interpolation to `[height, width]`.

    Without `align_corners`, pixel centers are at halves (torch's `align_corners=False`).
    """

    name = "xnnpack.static_resize_bilinear_2d"
    NODE: ClassVar[str] = "XNNStaticResizeBilinear2D"
    input = operand_def(TensorType)
    new_size = prop_def(DenseArrayBase)
    align_corners = opt_prop_def(UnitAttr)

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        same_everywhere(given, made, FLOATS + STATIC_INT8, self.name)
        same_parameters(self)

    def check(self) -> None:
        rank(self, 0, 4)
        if len(self.ints("new_size")) != 2 or min(self.ints("new_size")) < 1:
            raise VerifyException("new_size is [height, width], both positive")

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return mapped(self, (Along(0), All(1), All(2), Along(3)))

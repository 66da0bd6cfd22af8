"""Convolution, depthwise convolution and transposed convolution, in both layouts.

Weights are OHWI (depthwise: 1HWO), requantization is per output channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, cast

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType
from xdsl.irdl import (
    AttrSizedOperandSegments,
    operand_def,
    opt_operand_def,
    prop_def,
)

from stepwell.dialects.cmsis import kernels
from stepwell.dialects.cmsis.arithmetic import SHIFT_RANGE, Multiplier, quantize_multiplier
from stepwell.dialects.cmsis.ops.base import (
    CmsisOp,
    activation_problems,
    int8_problems,
    multiplier_problems,
    operator,
    per_tensor,
    result_problems,
    zero_point_problems,
)
from stepwell.dialects.cmsis.ops.layout import (
    from_nhwc,
    nhwc_shape,
    own_link,
    own_shape,
    placed,
    spatial_size,
    to_nhwc,
    window_links,
)
from stepwell.dialects.cmsis.target import (
    Target,
    convolution_scratch,
    depthwise_scratch,
    transpose_convolution_scratch,
)
from stepwell.dialects.quant.types import quantization
from stepwell.ir.axes.forms import mapped
from stepwell.ir.axes.maps import All, Along, AxisMap, Link, Links
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.families import Family
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.dtypes import i32
from stepwell.ir.sizes.size import UNKNOWN, number_of
from stepwell.ir.types import Dim, dims, element


class Spatial(CmsisOp):
    """The base class of the three convolutions."""

    FAMILY: ClassVar[Family | None] = "product"
    IS_NHWC: ClassVar[bool] = False
    CHANNEL_AXIS: ClassVar[int] = 0
    """The axis of output channels in the weight."""
    MULTIPLIER_BITS: ClassVar[dict[str, int]] = {
        "requantize_multipliers": 32,
        "requantize_shifts": 32,
    }
    input = operand_def(TensorType)
    weight = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    stride = prop_def(DenseArrayBase)
    padding = prop_def(DenseArrayBase)
    dilation = prop_def(DenseArrayBase)
    input_offset = prop_def(IntegerAttr)
    output_offset = prop_def(IntegerAttr)
    requantize_multipliers = prop_def(DenseArrayBase)
    requantize_shifts = prop_def(DenseArrayBase)
    activation_min = prop_def(IntegerAttr)
    activation_max = prop_def(IntegerAttr)
    scratch = prop_def(IntegerAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @property
    def requantizations(self) -> tuple[Multiplier, ...]:
        """Return the multiplier and shift of every output channel."""
        pairs = zip(
            self.numbers("requantize_multipliers"), self.numbers("requantize_shifts"), strict=True
        )
        return tuple(Multiplier(m, s) for m, s in pairs)

    def nhwc(self) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
        """Return the input and output shapes as NHWC."""
        return (
            nhwc_shape(dims(self.input.type), self.IS_NHWC),
            nhwc_shape(dims(self.out.type), self.IS_NHWC),
        )

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from int8_problems(self, "input", "weight", "out")
        ranks = [len(dims(v.type)) for v in (self.input, self.weight, self.out)]
        if ranks != [4, 4, 4]:
            yield f"ranks of input, weight and result are {ranks}; all must be 4"
            return
        for field in ("stride", "padding", "dilation"):
            least = 0 if field == "padding" else 1
            if len(self.numbers(field)) != 2 or min(self.numbers(field)) < least:
                yield f"{field} is {list(self.numbers(field))}"
                return
        yield from self.shape_problems()
        channels = dims(self.weight.type)[self.CHANNEL_AXIS]
        if self.bias is not None and (
            dims(self.bias.type) != (channels,) or element(self.bias.type) != i32
        ):
            yield f"bias is {self.bias.type}, not int32 of {channels}"
        yield from activation_problems(self)
        yield from zero_point_problems(
            self, input_offset=(self.input, -1), output_offset=(self.out, 1)
        )
        yield from self._requantization_problems(channels)
        yield from self.scratch_problems()

    def axis_map(self, result: int = 0) -> AxisMap | None:
        link = own_link(Along(3), self.IS_NHWC)
        weight = tuple(link if axis == self.CHANNEL_AXIS else All() for axis in range(4))
        return mapped(self, self.image_links(All(3)), weight, (link,))

    def image_links(self, channels: Link) -> Links:
        """Return the axis links of the image; `channels` is the link of its channel axis."""
        kernel, dilation = dims(self.weight.type)[1:3], self.numbers("dilation")
        reach = [(cast(int, k) - 1) * by + 1 for k, by in zip(kernel, dilation, strict=True)]
        stride, padding = self.numbers("stride"), self.numbers("padding")
        return window_links(reach, stride, padding, channels, self.IS_NHWC)

    def shape_problems(self) -> Iterator[str]:
        """Yield why the result's shape does not follow from the operands'."""
        raise NotImplementedError

    def _windows(self, *sizes: Dim) -> tuple[Dim, Dim]:
        """Return the number of windows along height and width, for the input's (h, w) and the
        kernel's.

        The kernels use the stated size of the result and read cells after the image as padding,
        so that a range of rows of a larger result is one call (`stream-rows`). Therefore any height
        is valid whose last window begins in the input, and any width that `is_same_padding`.
        """
        stride, padding, dilation = (self.numbers(f) for f in ("stride", "padding", "dilation"))
        height, width = (
            spatial_size(size, cast(int, kernel), stride[axis], padding[axis], dilation[axis])
            for axis, (size, kernel) in enumerate(zip(sizes[:2], sizes[2:], strict=True))
        )
        _, (_, stated, across, _) = self.nhwc()
        if isinstance(stated, int) and isinstance(height, int) and isinstance(sizes[0], int):
            begins = (stated - 1) * stride[0] - padding[0]
            height = stated if stated > 0 and begins < sizes[0] else height
        if isinstance(across, int) and isinstance(sizes[1], int):
            width = across if is_same_padding(self, 1, sizes[1], padding[1]) else width
        return height, width

    @property
    def output_size(self) -> tuple[int, int] | None:
        """Return the height and width of the result, if they are static."""
        _, (_, height, width, _) = self.nhwc()
        if isinstance(height, int) and isinstance(width, int):
            return height, width
        return None

    def needed_scratch(self, target: Target) -> dict[str, int]:
        given, made = self.nhwc()
        if not all(isinstance(size, int) for size in (*given, *made)):
            return {}
        known: dict[str, Any] = {
            "input_nhwc": given,
            "output_nhwc": made,
            "stride": self.numbers("stride"),
            "padding": self.numbers("padding"),
            "input_offset": self.number("input_offset"),
            "output_offset": self.number("output_offset"),
            "activation": self.activation,
        }
        return self._scratch(target, known)

    def _scratch(self, target: Target, known: dict[str, Any]) -> dict[str, int]:
        """Return the scratch sizes, given the parameters on which all kernels' sizes depend."""
        raise NotImplementedError

    def _requantization_problems(self, channels: Dim) -> Iterator[str]:
        counts = [
            len(self.numbers(field)) for field in ("requantize_multipliers", "requantize_shifts")
        ]
        if counts != [channels, channels]:
            yield f"{counts[0]} multipliers and {counts[1]} shifts for {channels} channels"
            return
        tensor, weight, out = (
            per_tensor(self.input),
            quantization(self.weight.type),
            per_tensor(self.out),
        )
        scales: Sequence[float | None] = [None] * number_of(channels)
        if tensor is not None and weight is not None and out is not None:
            if not weight.is_symmetric:
                yield "the weight has a zero point; the kernel does not support one"
            if weight.axis not in (None, self.CHANNEL_AXIS):
                yield f"the weight is quantized along axis {weight.axis}, not {self.CHANNEL_AXIS}"
                return
            held = (
                weight.scales if weight.axis is not None else [weight.scale] * number_of(channels)
            )
            scales = [tensor.scale * scale / out.scale for scale in held]
        factors = [quantize_multiplier(scale) for scale in scales if scale is not None]
        if [f.multiplier for f in factors] == [*self.numbers("requantize_multipliers")] and [
            f.shift for f in factors
        ] == [*self.numbers("requantize_shifts")]:
            least, most = SHIFT_RANGE
            if all(least <= factor.shift <= most for factor in factors):
                return  # The usual case, checked in one comparison.
        for channel, (stated, scale) in enumerate(zip(self.requantizations, scales, strict=True)):
            wanted = None if scale is None else quantize_multiplier(scale)
            multiplier_problem = next(
                multiplier_problems(f"channel {channel}", stated, wanted), None
            )
            if multiplier_problem is not None:
                yield multiplier_problem
                return


def is_same_padding(op: Spatial, axis: int, size: int, before: int) -> bool:
    """Whether the cells that a convolution's windows read after `size` cells are as many as before
    them, or one more, and fewer than a window in sum: TensorFlow's `same`, which every kernel of
    CMSIS-NN supports.

    Args:
        op: the convolution, whose result, weight, stride and dilation count.
        axis: 0 for rows, 1 for columns.
        size: the cells of the image along the axis.
        before: the padding before them.
    """
    _, made = op.nhwc()
    count, kernel = made[1 + axis], dims(op.weight.type)[1 + axis]
    if not isinstance(count, int) or not isinstance(kernel, int):
        return False
    reach = (kernel - 1) * op.numbers("dilation")[axis] + 1
    after = (count - 1) * op.numbers("stride")[axis] + reach - before - size
    return before <= after <= before + 1 and before + after < reach


def is_misread_row(op: Spatial) -> bool:
    """Whether CMSIS-NN computes a convolution of images of height 1 wrongly, or fails.

    MVE builds run `arm_convolve_1_x_n_s8` for it. It fails unless the padding at the end is that at
    the begin, or a cell more or less. Its windows at the end are a copy of the row's last cells and
    of padding, which is right only if the first of these windows reads one cell of padding.
    """
    (_, height, size, channels), (_, _, count, _) = op.nhwc()
    _, tall, kernel, inputs = dims(op.weight.type)
    stride, before = op.numbers("stride")[1], op.numbers("padding")[1]
    numbers = (size, channels, count, kernel, inputs)
    if (height, tall, op.numbers("dilation")[1]) != (1, 1, 1):
        return False
    if not all(isinstance(number, int) for number in numbers):
        return False
    size, channels, count, kernel, inputs = cast("tuple[int, ...]", numbers)
    if (
        stride * channels % 4
        or inputs != channels
        or (kernel == 1 and not any(op.numbers("padding")))
    ):
        return False  # Another kernel runs.
    total = (count - 1) * stride + kernel - size
    odd = (total % 2) * (1 if total > 0 else -1)  # As C's remainder.
    after = before + odd
    if before + after != total:
        return True
    first, last = (0 if side == 0 else max(1, -(-side // stride)) for side in (before, after))
    if first + last > count:
        return False  # It falls back to the kernel for images.
    fits = (last - 1) * stride == after - 1 and (odd == 0 or stride == 1 or last == 1)
    return last > 0 and not fits


class _Conv(Spatial):
    """Convolution by the kernel `arm_convolve_wrapper_s8`; groups follow from the shapes."""

    def shape_problems(self) -> Iterator[str]:
        (n, h, w, c), _ = self.nhwc()
        o, kh, kw, ci = cast("tuple[int, ...]", dims(self.weight.type))
        if isinstance(c, int) and (c % ci or o % (c // ci)):
            yield f"{c} channels do not divide into groups of {ci} for {o} outputs"
        yield from result_problems(
            self, own_shape((n, *self._windows(h, w, kh, kw), o), self.IS_NHWC)
        )

    def _scratch(self, target: Target, known: dict[str, Any]) -> dict[str, int]:
        filter_ohwi = cast("tuple[int, ...]", dims(self.weight.type))
        dilation = self.numbers("dilation")
        size = convolution_scratch(target.isa, filter_ohwi=filter_ohwi, dilation=dilation, **known)
        return {"scratch": size}


@operator
class QuantizedConv2d(_Conv):
    """Convolution of a tensor that is logically NCHW."""

    name = "cmsis.quantized_conv2d"


@operator
class QuantizedConv2dNhwc(_Conv):
    """Convolution of an NHWC tensor."""

    name = "cmsis.quantized_conv2d_nhwc"
    IS_NHWC: ClassVar[bool] = True


class _Depthwise(Spatial):
    """Depthwise convolution by `arm_depthwise_conv_wrapper_s8`.

    Output channel c·m + j reads input channel c.
    """

    CHANNEL_AXIS: ClassVar[int] = 3
    depth_multiplier = prop_def(IntegerAttr)

    def image_links(self, channels: Link) -> Links:
        """Return the axis links of the image; channels are kept if each has one output."""
        return super().image_links(Along(3) if self.number("depth_multiplier") == 1 else channels)

    def shape_problems(self) -> Iterator[str]:
        (n, h, w, c), _ = self.nhwc()
        one, kh, kw, o = cast("tuple[int, ...]", dims(self.weight.type))
        if one != 1 or (isinstance(c, int) and o != c * self.number("depth_multiplier")):
            yield f"weight {[one, kh, kw, o]} for {c} channels times depth_multiplier"
        yield from result_problems(
            self, own_shape((n, *self._windows(h, w, kh, kw), o), self.IS_NHWC)
        )

    def _scratch(self, target: Target, known: dict[str, Any]) -> dict[str, int]:
        size = depthwise_scratch(
            target.isa,
            filter_1hwo=cast("tuple[int, ...]", dims(self.weight.type)),
            dilation=self.numbers("dilation"),
            depth_multiplier=self.number("depth_multiplier"),
            **known,
        )
        return {"scratch": size}


@operator
class QuantizedDepthwiseConv2d(_Depthwise):
    """Depthwise convolution of a tensor that is logically NCHW."""

    name = "cmsis.quantized_depthwise_conv2d"


@operator
class QuantizedDepthwiseConv2dNhwc(_Depthwise):
    """Depthwise convolution of an NHWC tensor."""

    name = "cmsis.quantized_depthwise_conv2d_nhwc"
    IS_NHWC: ClassVar[bool] = True


class _TransposeConv(Spatial):
    """Transposed convolution by `arm_transpose_conv_wrapper_s8`.

    A second scratch buffer is for the reversed convolution.
    """

    output_padding = prop_def(DenseArrayBase)
    output_scratch = prop_def(IntegerAttr)

    def image_links(self, channels: Link) -> Links:
        """Return the axis links of the image operand, all of whose rows and columns are read."""
        return placed((Along(0), All(1), All(2), channels), self.IS_NHWC)

    def shape_problems(self) -> Iterator[str]:
        (n, h, w, c), _ = self.nhwc()
        o, kh, kw, ci = cast("tuple[int, ...]", dims(self.weight.type))
        if ci != c:
            yield f"the weight has {ci} input channels, the input has {c}; the kernel has no groups"
        if self.numbers("dilation") != (1, 1):
            yield f"dilation {list(self.numbers('dilation'))}; the kernel does not support it"
        if any(self.numbers("output_padding")):
            yield "output_padding: the kernel leaves the cells it adds unwritten"
        stride, padding = self.numbers("stride"), self.numbers("padding")
        size: list[Dim] = [
            (d - 1) * stride[i] - 2 * padding[i] + k if isinstance(d, int) else UNKNOWN
            for i, (d, k) in enumerate(((h, kh), (w, kw)))
        ]
        yield from result_problems(self, own_shape((n, *size, o), self.IS_NHWC))

    def _scratch(self, target: Target, known: dict[str, Any]) -> dict[str, int]:
        sizes = transpose_convolution_scratch(
            target.isa,
            filter_ohwi=cast("tuple[int, ...]", dims(self.weight.type)),
            output_padding=self.numbers("output_padding"),
            **known,
        )
        return dict(zip(("scratch", "output_scratch"), sizes, strict=True))


@operator
class QuantizedTransposeConv2d(_TransposeConv):
    """Transposed convolution of a tensor that is logically NCHW."""

    name = "cmsis.quantized_transpose_conv2d"


@operator
class QuantizedTransposeConv2dNhwc(_TransposeConv):
    """Transposed convolution of an NHWC tensor."""

    name = "cmsis.quantized_transpose_conv2d_nhwc"
    IS_NHWC: ClassVar[bool] = True


def _common(op: Spatial, bias: Any) -> dict[str, Any]:
    return {
        "bias": bias,
        "stride": op.numbers("stride"),
        "padding": op.numbers("padding"),
        "input_offset": op.number("input_offset"),
        "output_offset": op.number("output_offset"),
        "multiplier": torch.tensor(op.numbers("requantize_multipliers")),
        "shift": torch.tensor(op.numbers("requantize_shifts")),
        "activation": op.activation,
    }


def _operands(op: Spatial, args: Sequence[Any]) -> tuple[Any, Any, Any]:
    return to_nhwc(args[0], op.IS_NHWC), args[1], args[2] if op.bias is not None else None


@interprets(_Conv, _Depthwise)
def _conv(op: _Conv | _Depthwise, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    x, weight, bias = _operands(op, args)
    kernel = kernels.conv_s8 if isinstance(op, _Conv) else kernels.depthwise_conv_s8
    out = kernel(
        x,
        weight,
        dilation=op.numbers("dilation"),
        output_size=op.output_size,
        **_common(op, bias),
    )
    return (from_nhwc(out, op.IS_NHWC),)


@interprets(_TransposeConv)
def _transpose_conv(op: _TransposeConv, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    x, weight, bias = _operands(op, args)
    out = kernels.transpose_conv_s8(
        x, weight, output_padding=op.numbers("output_padding"), **_common(op, bias)
    )
    return (from_nhwc(out, op.IS_NHWC),)

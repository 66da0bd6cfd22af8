"""Average and maximum pooling, in both layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from xdsl.dialects.builtin import BoolAttr, DenseArrayBase, IntegerAttr, TensorType
from xdsl.irdl import operand_def, prop_def

from stepwell.dialects.cmsis import kernels
from stepwell.dialects.cmsis.ops.base import (
    CmsisOp,
    activation_problems,
    int8_problems,
    operator,
    result_problems,
    same_quantization_problems,
    zero_point_problems,
)
from stepwell.dialects.cmsis.ops.layout import (
    from_nhwc,
    nhwc_shape,
    own_shape,
    spatial_size,
    to_nhwc,
    window_links,
)
from stepwell.dialects.cmsis.target import Target, avgpool_scratch
from stepwell.ir.axes.forms import mapped
from stepwell.ir.axes.maps import Along, AxisMap
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.types import Dim, dims


class _Pool(CmsisOp):
    """The base class of pooling ops: a window over height and width; the scale is unchanged."""

    IS_NHWC: ClassVar[bool] = False
    input = operand_def(TensorType)
    kernel_size = prop_def(DenseArrayBase)
    stride = prop_def(DenseArrayBase)
    padding = prop_def(DenseArrayBase)
    ceil_mode = prop_def(BoolAttr)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from int8_problems(self, "input", "out")
        yield from same_quantization_problems(self, "input")
        given = dims(self.input.type)
        windows = [self.numbers(field) for field in ("kernel_size", "stride", "padding")]
        if len(given) != 4 or any(len(pair) != 2 for pair in windows):
            yield f"input of rank {len(given)}; pooling is over height and width of rank 4"
            return
        kernel, stride, padding = windows
        if any(s < 1 for s in stride) or any(k < 1 for k in kernel):
            yield f"kernel {list(kernel)} and stride {list(stride)} must be positive"
            return
        if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
            yield f"padding {list(padding)} is more than half the kernel: a window may be empty"
        n, h, w, c = nhwc_shape(given, self.IS_NHWC)
        size = [
            spatial_size(d, k, s, p, 1, self.flag("ceil_mode"))
            for d, k, s, p in zip((h, w), kernel, stride, padding, strict=True)
        ]
        yield from result_problems(self, own_shape((n, *size, c), self.IS_NHWC))

    def axis_map(self, result: int = 0) -> AxisMap | None:
        kernel, stride, padding = (
            self.numbers(name) for name in ("kernel_size", "stride", "padding")
        )
        return mapped(self, window_links(kernel, stride, padding, Along(3), self.IS_NHWC))

    def output_size(self) -> tuple[Dim, Dim]:
        """Return the height and width of the result."""
        _, height, width, _ = nhwc_shape(dims(self.out.type), self.IS_NHWC)
        return height, width


class _AvgPool(_Pool):
    """Average the valid cells by `arm_avgpool_s8`; multiplier and shift are ignored."""

    zero_point = prop_def(IntegerAttr)
    multiplier_ = prop_def(IntegerAttr, prop_name="multiplier")
    shift = prop_def(IntegerAttr)
    scratch = prop_def(IntegerAttr)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from zero_point_problems(self, zero_point=(self.input, 1))
        yield from self.scratch_problems()

    def needed_scratch(self, target: Target) -> dict[str, int]:
        *_, channels = nhwc_shape(dims(self.input.type), self.IS_NHWC)
        width = self.output_size()[1]
        if not isinstance(channels, int) or not isinstance(width, int):
            return {}
        return {"scratch": avgpool_scratch(target.isa, output_width=width, channels=channels)}


@operator
class QuantizedAvgPool2d(_AvgPool):
    """Average pooling of a tensor that is logically NCHW."""

    name = "cmsis.quantized_avg_pool2d"


@operator
class QuantizedAvgPool2dNhwc(_AvgPool):
    """Average pooling of an NHWC tensor."""

    name = "cmsis.quantized_avg_pool2d_nhwc"
    IS_NHWC: ClassVar[bool] = True


class _MaxPool(_Pool):
    """Maximum pooling by the kernel `arm_max_pool_s8`."""

    dilation = prop_def(DenseArrayBase)
    input_zero_point = prop_def(IntegerAttr)
    output_zero_point = prop_def(IntegerAttr)
    activation_min = prop_def(IntegerAttr)
    activation_max = prop_def(IntegerAttr)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.numbers("dilation") != (1, 1):
            yield f"dilation {list(self.numbers('dilation'))}; the kernel does not support it"
        if self.flag("ceil_mode"):
            yield "the kernel does not round its output size up"
        yield from activation_problems(self)
        yield from zero_point_problems(
            self, input_zero_point=(self.input, 1), output_zero_point=(self.out, 1)
        )


@operator
class QuantizedMaxPool2d(_MaxPool):
    """Maximum pooling of a tensor that is logically NCHW."""

    name = "cmsis.quantized_max_pool2d"


@operator
class QuantizedMaxPool2dNhwc(_MaxPool):
    """Maximum pooling of an NHWC tensor."""

    name = "cmsis.quantized_max_pool2d_nhwc"
    IS_NHWC: ClassVar[bool] = True


def _window(op: _Pool, value: Any) -> dict[str, Any]:
    kernel, stride, padding = (op.numbers(f) for f in ("kernel_size", "stride", "padding"))
    ceil = op.flag("ceil_mode")
    size = [
        spatial_size(int(value.shape[1 + axis]), kernel[axis], stride[axis], padding[axis], 1, ceil)
        for axis in (0, 1)
    ]
    return {"kernel": kernel, "stride": stride, "padding": padding, "output_size": size}


@interprets(_AvgPool)
def _avg_pool(op: _AvgPool, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    x = to_nhwc(args[0], op.IS_NHWC)
    return (from_nhwc(kernels.avgpool_s8(x, **_window(op, x)), op.IS_NHWC),)


@interprets(_MaxPool)
def _max_pool(op: _MaxPool, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    x = to_nhwc(args[0], op.IS_NHWC)
    return (
        from_nhwc(kernels.max_pool_s8(x, activation=op.activation, **_window(op, x)), op.IS_NHWC),
    )

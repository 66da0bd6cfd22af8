"""Write C calls of the kernels of the `cortex_m` library, and copies."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from stepwell.backends.cortex_m.c.writer import Handler, MethodWriter, literal
from stepwell.backends.executorch.container import (
    KernelCall,
    ScalarType,
    strides,
)
from stepwell.ir.diagnostics import UnsupportedError


def _convolution(section: str) -> Handler:
    def write(w: MethodWriter, a: dict[str, Any]) -> None:
        given, made = w.image(a, "input"), w.image(a, "out")
        filter_ = w.tensor(a["weight"]).sizes
        values = {
            "batch": given[0], "in_h": given[1], "in_w": given[2], "in_c": given[3],
            "kernel_h": filter_[1], "kernel_w": filter_[2], "kernel_c": filter_[3],
            "out_h": made[1], "out_w": made[2], "out_c": made[3],
            "stride_h": a["stride"][0], "stride_w": a["stride"][1],
            "pad_h": a["padding"][0], "pad_w": a["padding"][1],
            "dilation_h": a["dilation"][0], "dilation_w": a["dilation"][1],
            "in_offset": a["input_offset"], "out_offset": a["output_offset"],
            "low": a["activation_min"], "high": a["activation_max"],
        }  # fmt: skip
        w.call(
            section,
            [
                w.params("conv", values),
                w.pointer(a["input"]),
                w.pointer(a["weight"]),
                w.pointer(a["bias"], "int32_t"),
                w.pointer(a["requantize_multipliers"], "int32_t"),
                w.pointer(a["requantize_shifts"], "int32_t"),
                w.pointer(a["out"]),
            ],
        )

    return write


def _linear(w: MethodWriter, a: dict[str, Any]) -> None:
    columns, inner = w.tensor(a["weights"]).sizes
    sums = a["kernel_sum"] is not None
    values = {
        "batch": 1, "rows": w.count(a["input"]) // inner, "inner": inner, "columns": columns,
        # Kernel sums contain the bias and the input's offset times the weights.
        "in_offset": 0 if sums else a["input_offset"],
        "filter_offset": a["filter_offset"], "out_offset": a["output_offset"],
        "multiplier": a["requantize_multipliers"][0], "shift": a["requantize_shifts"][0],
        "low": a["activation_min"], "high": a["activation_max"],
    }  # fmt: skip
    bias = a["kernel_sum"] if sums else a["bias"]
    w.call(
        "linear",
        [
            w.params("matmul", values),
            w.pointer(a["input"]),
            w.pointer(a["weights"]),
            w.pointer(bias, "int32_t"),
            w.pointer(a["out"]),
        ],
    )


def _batch_matmul(w: MethodWriter, a: dict[str, Any]) -> None:
    batch, rows, inner = w.tensor(a["lhs"]).sizes
    values = {
        "batch": batch, "rows": rows, "inner": inner,
        "columns": w.tensor(a["rhs_transposed"]).sizes[1],
        "in_offset": a["lhs_zero_point"], "filter_offset": a["rhs_zero_point"],
        "out_offset": a["output_zero_point"],
        "multiplier": a["output_multiplier"], "shift": a["output_shift"],
        "low": -128, "high": 127,
    }  # fmt: skip
    operands = [w.pointer(a[name]) for name in ("lhs", "rhs_transposed", "out")]
    w.call("batch_matmul", [w.params("matmul", values), *operands])


def _pair(w: MethodWriter, a: dict[str, Any]) -> list[str]:
    return [w.pointer(a[name]) for name in ("self", "other", "out")]


def _add(w: MethodWriter, a: dict[str, Any]) -> None:
    values = {
        "count": w.count(a["out"]), "period": w.count(a["other"]),
        "a_offset": -a["self_zero_point"], "a_multiplier": a["self_multiplier"],
        "a_shift": a["self_shift"], "b_offset": -a["other_zero_point"],
        "b_multiplier": a["other_multiplier"], "b_shift": a["other_shift"],
        "out_offset": a["output_zero_point"], "out_multiplier": a["output_multiplier"],
        "out_shift": a["output_shift"], "low": a["activation_min"], "high": a["activation_max"],
    }  # fmt: skip
    w.call("add", [w.params("add", values), *_pair(w, a)])


def _mul(w: MethodWriter, a: dict[str, Any]) -> None:
    values = {
        "count": w.count(a["out"]), "period": w.count(a["other"]),
        "a_offset": -a["self_zero_point"], "b_offset": -a["other_zero_point"],
        "out_offset": a["output_zero_point"], "out_multiplier": a["output_multiplier"],
        "out_shift": a["output_shift"],
    }  # fmt: skip
    w.call("mul", [w.params("mul", values), *_pair(w, a)])


def _div(w: MethodWriter, a: dict[str, Any]) -> None:
    if w.tensor(a["self"]).scalar_type is not ScalarType.CHAR:
        raise UnsupportedError("an int16 division has no kernel in C", w.method.name)
    values = {
        "count": w.count(a["out"]), "a_zero": a["self_zero_point"],
        "b_zero": a["other_zero_point"], "out_zero": a["output_zero_point"],
        "scale": float(a["output_scale"]),
    }  # fmt: skip
    w.call("div", [w.params("div", values), *_pair(w, a)])


def _select(greater: bool) -> Handler:
    def write(w: MethodWriter, a: dict[str, Any]) -> None:
        size = w.physical(a["out"])
        padded = [1] * (4 - len(size)) + size

        def steps(index: int) -> list[int]:
            own = [1] * (4 - len(w.physical(index))) + w.physical(index)
            found = strides(own, range(4))
            return [0 if n == 1 else step for n, step in zip(own, found, strict=True)]

        values = {
            "size": padded, "a_stride": steps(a["self"]), "b_stride": steps(a["other"]),
            "greater": int(greater),
        }  # fmt: skip
        w.call("select", [w.params("select", values), *_pair(w, a)])

    return write


def _activation(w: MethodWriter, a: dict[str, Any]) -> None:
    w.call("activation", [w.count(a["out"]), *(w.pointer(a[n]) for n in ("input", "lut", "out"))])


def _pool(section: str) -> Handler:
    def write(w: MethodWriter, a: dict[str, Any]) -> None:
        given, made = w.image(a, "input"), w.image(a, "out")
        values = {
            "batch": given[0], "in_h": given[1], "in_w": given[2], "channels": given[3],
            "out_h": made[1], "out_w": made[2],
            "kernel_h": a["kernel_size"][0], "kernel_w": a["kernel_size"][1],
            "stride_h": a["stride"][0], "stride_w": a["stride"][1],
            "pad_h": a["padding"][0], "pad_w": a["padding"][1],
            "low": a.get("activation_min", -128), "high": a.get("activation_max", 127),
        }  # fmt: skip
        w.call(section, [w.params("pool", values), w.pointer(a["input"]), w.pointer(a["out"])])

    return write


def _softmax(w: MethodWriter, a: dict[str, Any]) -> None:
    size = w.tensor(a["input"]).sizes[-1]
    numbers = [w.count(a["input"]) // size, size, a["input_multiplier"], a["input_shift"]]
    w.call("softmax", [*numbers, a["diff_min"], w.pointer(a["input"]), w.pointer(a["out"])])


def _permuted(w: MethodWriter, source: int, order: Sequence[int], result: int) -> None:
    """Write a copy of `source` in row-major order of its permuted dimensions."""
    size = w.tensor(source).scalar_type.itemsize
    axes = _axes(w, source, order)
    if axes and axes[-1][1] == 1:  # Elements adjacent in both are copied as one.
        run, _ = axes.pop()
        size *= run
        axes = [(count, step // run) for count, step in axes]
    if len(axes) > 6:
        raise UnsupportedError(
            "transpositions of more than 6 dimensions are not supported", w.method.name
        )
    axes = [(1, 0)] * (6 - len(axes)) + axes
    sizes, steps = ([axis[k] for axis in axes] for k in (0, 1))
    given, made = (w.pointer(i, "uint8_t") for i in (source, result))
    params = w.params("permute", {"bytes": size, "size": sizes, "stride": steps})
    w.call("permute", [params, given, made])


def lies_in_runs(w: MethodWriter, source: int, order: Sequence[int]) -> bool:
    """Whether a permutation keeps several adjacent elements next to each other."""
    axes = _axes(w, source, order)
    return not axes or axes[-1][1] == 1


def _axes(w: MethodWriter, source: int, order: Sequence[int]) -> list[tuple[int, int]]:
    value = w.tensor(source)
    apart = strides(value.sizes, value.dim_order)
    return _joined([(value.sizes[axis], apart[axis]) for axis in order])


def _joined(axes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sizes and strides without axes of size one, in which contiguous neighbors are
    merged.
    """
    joined: list[tuple[int, int]] = []
    for size, step in axes:
        if size != 1 and joined and joined[-1][1] == size * step:
            joined[-1] = joined[-1][0] * size, step
        elif size != 1:
            joined.append((size, step))
    return joined


def _transpose(w: MethodWriter, a: dict[str, Any]) -> None:
    _permuted(w, a["input"], a["perm"], a["out"])


def _pad(w: MethodWriter, a: dict[str, Any]) -> None:
    values = {
        "size": w.as_padded(a["input"]), "before": a["pre_pad"], "after": a["post_pad"],
        "value": a["pad_value"],
    }  # fmt: skip
    w.call("pad", [w.params("pad", values), w.pointer(a["input"]), w.pointer(a["out"])])


def _quantize(w: MethodWriter, a: dict[str, Any]) -> None:
    _only_int8(w, a["out"])
    numbers = [w.count(a["out"]), literal(float(a["scale"]))]
    numbers += [a[name] for name in ("zero_point", "quant_min", "quant_max")]
    w.call("quantize", [*numbers, w.pointer(a["input"], "uint8_t"), w.pointer(a["out"])])


def _dequantize(w: MethodWriter, a: dict[str, Any]) -> None:
    _only_int8(w, a["input"])
    numbers = [w.count(a["out"]), literal(float(a["scale"])), a["zero_point"]]
    w.call("dequantize", [*numbers, w.pointer(a["input"]), w.pointer(a["out"], "uint8_t")])


def _only_int8(w: MethodWriter, index: int) -> None:
    if w.tensor(index).scalar_type is not ScalarType.CHAR:
        raise UnsupportedError("int16 casts have no kernel in C", w.method.name)


def _copy(w: MethodWriter, a: dict[str, Any]) -> None:
    args = cast(KernelCall, a["call"]).args
    value, made = w.tensor(args[0]), w.tensor(args[-1])
    if value.scalar_type is not made.scalar_type:
        raise UnsupportedError("the copy converts elements")
    rows = tuple(range(len(value.sizes)))  # A view of other sizes has elements row by row.
    is_view = value.sizes != made.sizes
    if is_view and made.dim_order != tuple(range(len(made.sizes))):
        raise UnsupportedError("a view whose elements do not lie row by row is not supported")
    order = rows if is_view else made.dim_order
    if value.dim_order == order:
        w.statements.append(f"memcpy({w.pointer(args[-1])}, {w.pointer(args[0])}, {value.nbytes});")
    else:
        _permuted(w, args[0], order, args[-1])


def by_kernel(handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """Return handlers by kernel instead of operator: an operator has a kernel per image layout."""
    return {
        f"cortex_m::{name}{layout}.out": handler
        for name, handler in handlers.items()
        for layout in ("", "_nhwc")
    }


HANDLERS: dict[str, Handler] = {
    **by_kernel(
        {
            "quantize_per_tensor": _quantize,
            "dequantize_per_tensor": _dequantize,
            "quantized_add": _add,
            "quantized_mul": _mul,
            "quantized_div": _div,
            "quantized_activation": _activation,
            "minimum": _select(False),
            "maximum": _select(True),
            "quantized_linear": _linear,
            "softmax": _softmax,
            "transpose": _transpose,
            "pad": _pad,
            "quantized_batch_matmul": _batch_matmul,
            "quantized_conv2d": _convolution("conv2d"),
            "quantized_depthwise_conv2d": _convolution("depthwise_conv2d"),
            "quantized_transpose_conv2d": _convolution("transpose_conv2d"),
            "quantized_avg_pool2d": _pool("avg_pool2d"),
            "quantized_max_pool2d": _pool("max_pool2d"),
        }
    ),
    "aten::clone.out": _copy,
    "aten::view_copy.out": _copy,
    "dim_order_ops::_to_dim_order_copy.out": _copy,
    "dim_order_ops::_clone_dim_order.out": _copy,
}
"""Kernel name → the writer of its calls."""

"""Writers of calls of CMSIS-NN's public API: the functions that ExecuTorch's kernels call.

The functions, their parameters and their order are those of the `.pte` (ExecuTorch's
`backends/cortex_m/ops`). Kernels of that library that do not use CMSIS-NN (casts, tables,
quotients, copies) use stepwell's own kernels.
"""

from collections.abc import Sequence
from typing import Any

from stepwell.backends.cortex_m.c.calls import HANDLERS, by_kernel, lies_in_runs
from stepwell.backends.cortex_m.c.writer import Handler, Library, MethodWriter
from stepwell.backends.executorch.container import Planned
from stepwell.dialects.cmsis.target import Isa
from stepwell.ir.diagnostics import UnsupportedError

CMSIS_NN = Library(
    header="arm_nnfunctions.h",
    status="ARM_CMSIS_NN_SUCCESS",
    cmake="""\
# CMSIS-NN as you built it: -DCMSIS_NN_INCLUDE=<its Include> -DCMSIS_NN_LIBRARY=<libcmsis-nn.a>
set(CMSIS_NN_INCLUDE "" CACHE PATH "the folder of arm_nnfunctions.h")
set(CMSIS_NN_LIBRARY "" CACHE FILEPATH "the built library")
target_include_directories({name}_model SYSTEM PUBLIC ${{CMSIS_NN_INCLUDE}})
target_link_libraries({name}_model PUBLIC ${{CMSIS_NN_LIBRARY}})
""",
)
_DIMS = "nhwc"
_LEFT_SHIFT = 20
"""The number of bits by which ExecuTorch's kernel shifts operands of a sum to the left."""


def _dims(w: MethodWriter, sizes: Sequence[int]) -> str:
    return w.structure("cmsis_nn_dims", dict(zip(_DIMS, sizes, strict=True)))


def _tile(pair: Sequence[int]) -> dict[str, int]:
    return {"w": pair[1], "h": pair[0]}


def _buffer(w: MethodWriter, index: int) -> str:
    """Declare a `cmsis_nn_context` for planned scratch memory; return its C expression."""
    storage, size = w.tensor(index).storage, w.tensor(index).nbytes
    assert isinstance(storage, Planned)
    where = f"&memory.bytes[{storage.offset}]" if size else "NULL"
    return w.structure("cmsis_nn_context", {"buf": where, "size": size})


def _per_channel(w: MethodWriter, a: dict[str, Any]) -> str:
    # The library's structure has non-const pointers to data that it does not write.
    named = {
        "multiplier": w.pointer(a["requantize_multipliers"], "int32_t"),
        "shift": w.pointer(a["requantize_shifts"], "int32_t"),
    }
    return w.structure(
        "cmsis_nn_per_channel_quant_params",
        {field: f"(int32_t *){pointer}" for field, pointer in named.items()},
    )


def _per_tensor(w: MethodWriter, multiplier: int, shift: int) -> str:
    values = {"multiplier": multiplier, "shift": shift}
    return w.structure("cmsis_nn_per_tensor_quant_params", values)


def _activation(a: dict[str, Any]) -> dict[str, int]:
    return {"min": a.get("activation_min", -128), "max": a.get("activation_max", 127)}


def _fully_connected(offsets: Sequence[int], a: dict[str, Any]) -> dict[str, Any]:
    names = ("input_offset", "filter_offset", "output_offset")
    return {**dict(zip(names, offsets, strict=True)), "activation": _activation(a)}


def _convolution(function: str, structure: str) -> Handler:
    """Write a convolution of any kind; `extra` are the additional fields of its parameters."""

    def write(w: MethodWriter, a: dict[str, Any]) -> None:
        given, made = w.image(a, "input"), w.image(a, "out")
        extra: dict[str, Any] = {}
        contexts = [_buffer(w, a["scratch"])]
        if "depth_multiplier" in a:
            extra["ch_mult"] = a["depth_multiplier"]
        if "output_padding" in a:
            extra["padding_offsets"] = _tile(a["output_padding"])
            contexts.append(_buffer(w, a["output_scratch"]))
        params = {
            "input_offset": a["input_offset"],
            "output_offset": a["output_offset"],
            **extra,
            **{name: _tile(a[name]) for name in ("stride", "padding", "dilation")},
            "activation": _activation(a),
        }
        w.checked_call(
            function,
            [
                *contexts,
                w.structure(structure, params),
                _per_channel(w, a),
                _dims(w, given),
                w.pointer(a["input"]),
                _dims(w, w.tensor(a["weight"]).sizes),
                w.pointer(a["weight"]),
                _dims(w, (1, 1, 1, made[3])),
                w.pointer(a["bias"], "int32_t"),
                _dims(w, made),
                w.pointer(a["out"]),
            ],
        )

    return write


def _linear(w: MethodWriter, a: dict[str, Any]) -> None:
    columns, inner = w.tensor(a["weights"]).sizes
    rows = w.count(a["input"]) // inner
    sums = a["kernel_sum"]
    buffer = "NULL" if sums is None else f"(int32_t *){w.pointer(sums, 'int32_t')}"
    offsets = [a["input_offset"], a["filter_offset"], a["output_offset"]]
    w.checked_call(
        "arm_fully_connected_s8",
        [
            w.structure("cmsis_nn_context", {"buf": buffer, "size": 0}),
            w.structure("cmsis_nn_fc_params", _fully_connected(offsets, a)),
            _per_tensor(w, a["requantize_multipliers"][0], a["requantize_shifts"][0]),
            _dims(w, (rows, 1, 1, inner)),
            w.pointer(a["input"]),
            _dims(w, (inner, 1, 1, columns)),
            w.pointer(a["weights"]),
            _dims(w, (1, 1, 1, columns)),
            w.pointer(a["bias"], "int32_t"),
            _dims(w, (rows, 1, 1, columns)),
            w.pointer(a["out"]),
        ],
    )


def _batch_matmul(w: MethodWriter, a: dict[str, Any]) -> None:
    offsets = [a["lhs_zero_point"], a["rhs_zero_point"], a["output_zero_point"]]
    params = {"adj_x": "false", "adj_y": "false", "fc_params": _fully_connected(offsets, {})}
    operands = (
        text
        for name in ("lhs", "rhs_transposed", "out")
        for text in (_dims(w, (1, *w.tensor(a[name]).sizes)), w.pointer(a[name]))
    )
    w.checked_call(
        "arm_batch_matmul_s8",
        [
            _buffer(w, a["scratch"]),
            w.structure("cmsis_nn_bmm_params", params),
            _per_tensor(w, a["output_multiplier"], a["output_shift"]),
            *operands,
        ],
    )


def _elementwise(
    w: MethodWriter, a: dict[str, Any], function: str, inputs: list[int], output: list[int]
) -> None:
    """Write one call for each block of the larger operand that is as long as the smaller
    operand.
    """
    count, period = w.count(a["out"]), w.count(a["other"])
    pointers = [w.pointer(a[name]) for name in ("self", "other", "out")]
    if count != period:
        pointers[0], pointers[2] = (f"{pointers[k]} + at" for k in (0, 2))
        w.statements.append(f"for (int32_t at = 0; at < {count}; at += {period}) {{")
    w.checked_call(function, [*pointers[:2], *inputs, pointers[2], *output, period])
    if count != period:
        w.statements.append("}")


def _add(w: MethodWriter, a: dict[str, Any]) -> None:
    inputs = [
        value
        for name in ("self", "other")
        for value in (-a[f"{name}_zero_point"], a[f"{name}_multiplier"], a[f"{name}_shift"])
    ]
    output = [a["output_zero_point"], a["output_multiplier"], a["output_shift"]]
    output += [a["activation_min"], a["activation_max"]]
    _elementwise(w, a, "arm_elementwise_add_s8", [*inputs, _LEFT_SHIFT], output)


def _mul(w: MethodWriter, a: dict[str, Any]) -> None:
    inputs = [-a["self_zero_point"], -a["other_zero_point"]]
    output = [a["output_zero_point"], a["output_multiplier"], a["output_shift"], -128, 127]
    _elementwise(w, a, "arm_elementwise_mul_s8", inputs, output)


def _select(function: str) -> Handler:
    def write(w: MethodWriter, a: dict[str, Any]) -> None:
        if any(len(w.physical(a[name])) > len(_DIMS) for name in ("self", "other", "out")):
            HANDLERS[f"cortex_m::{function.removeprefix('arm_').removesuffix('_s8')}.out"](w, a)
            return
        operands = (
            text
            for name in ("self", "other", "out")
            for text in (w.pointer(a[name]), _dims(w, _of_rank_4(w.physical(a[name]))))
        )
        w.checked_call(function, ["NULL", *operands])

    return write


def _of_rank_4(sizes: Sequence[int]) -> list[int]:
    return [1] * (len(_DIMS) - len(sizes)) + list(sizes)


def _pool(function: str) -> Handler:
    def write(w: MethodWriter, a: dict[str, Any]) -> None:
        context = w.structure("cmsis_nn_context", {"buf": "NULL", "size": 0})
        params = {
            "stride": _tile(a["stride"]),
            "padding": _tile(a["padding"]),
            "activation": _activation(a),
        }
        w.checked_call(
            function,
            [
                _buffer(w, a["scratch"]) if "scratch" in a else context,
                w.structure("cmsis_nn_pool_params", params),
                _dims(w, w.image(a, "input")),
                w.pointer(a["input"]),
                _dims(w, (1, *a["kernel_size"], 1)),
                _dims(w, w.image(a, "out")),
                w.pointer(a["out"]),
            ],
        )

    return write


def _softmax(w: MethodWriter, a: dict[str, Any]) -> None:
    size = w.tensor(a["input"]).sizes[-1]
    numbers = [w.count(a["input"]) // size, size, a["input_multiplier"], a["input_shift"]]
    numbers += [a["diff_min"]]
    arguments = ", ".join(map(str, [w.pointer(a["input"]), *numbers, w.pointer(a["out"])]))
    w.statements.append(f"arm_softmax_s8({arguments});")


def _transpose(w: MethodWriter, a: dict[str, Any]) -> None:
    perm = a["perm"]
    if len(perm) > len(_DIMS):
        raise UnsupportedError(
            "transpositions of more than 4 dimensions are not supported", w.method.name
        )

    def sizes(index: int) -> list[int]:
        found = list(w.tensor(index).sizes)
        return found + [1] * (len(_DIMS) - len(found))

    order = [*perm, *range(len(perm), len(_DIMS))]
    params = {"num_dims": len(perm), "permutations": w.numbers("uint32_t", order)}
    w.checked_call(
        "arm_transpose_s8",
        [
            w.pointer(a["input"]),
            w.pointer(a["out"]),
            _dims(w, sizes(a["input"])),
            _dims(w, sizes(a["out"])),
            w.structure("cmsis_nn_transpose_params", params),
        ],
    )


def _pad(w: MethodWriter, a: dict[str, Any]) -> None:
    w.checked_call(
        "arm_pad_s8",
        [
            w.pointer(a["input"]),
            w.pointer(a["out"]),
            a["pad_value"],
            _dims(w, w.as_padded(a["input"])),
            _dims(w, a["pre_pad"]),
            _dims(w, a["post_pad"]),
        ],
    )


CMSIS_NN_HANDLERS: dict[str, Handler] = {
    **HANDLERS,
    **by_kernel(
        {
            "quantized_linear": _linear,
            "quantized_batch_matmul": _batch_matmul,
            "quantized_add": _add,
            "quantized_mul": _mul,
            "minimum": _select("arm_minimum_s8"),
            "maximum": _select("arm_maximum_s8"),
            "softmax": _softmax,
            "transpose": _transpose,
            "pad": _pad,
            "quantized_conv2d": _convolution("arm_convolve_wrapper_s8", "cmsis_nn_conv_params"),
            "quantized_depthwise_conv2d": _convolution(
                "arm_depthwise_conv_wrapper_s8", "cmsis_nn_dw_conv_params"
            ),
            "quantized_transpose_conv2d": _convolution(
                "arm_transpose_conv_wrapper_s8", "cmsis_nn_transpose_conv_params"
            ),
            "quantized_avg_pool2d": _pool("arm_avgpool_s8"),
            "quantized_max_pool2d": _pool("arm_max_pool_s8"),
        }
    ),
}
"""Kernel name → the writer of its calls, with CMSIS-NN's functions where they exist."""


# -- mixed programs: for each call, the kernel that needs fewer instructions ----------------------

_FEWER: dict[Isa, frozenset[str]] = {
    Isa.MVE: frozenset(
        "quantized_linear quantized_batch_matmul quantized_add quantized_mul softmax "
        "quantized_depthwise_conv2d quantized_transpose_conv2d quantized_max_pool2d".split()
    ),
    Isa.DSP: frozenset(
        "quantized_linear quantized_batch_matmul quantized_add softmax "
        "quantized_transpose_conv2d".split()
    ),
    Isa.SCALAR: frozenset(
        "quantized_batch_matmul quantized_add quantized_mul softmax quantized_depthwise_conv2d "
        "quantized_transpose_conv2d quantized_avg_pool2d quantized_max_pool2d".split()
    ),
}
"""The form of CMSIS-NN's build → operators whose own kernel needs fewer instructions.

Instructions are counted call by call under qemu in ten nets (`bench/c_instructions.py` has the
sums). For these operators no measured net needs more on the whole; some linear layers with eight
numbers a row do.
"""


def has_own_kernel(operator: str, isa: Isa) -> bool:
    """Whether a program with CMSIS-NN's and stepwell's kernels uses stepwell's for an operator."""
    return operator.removesuffix("_nhwc") in _FEWER[isa]


def mixed_handlers(isa: Isa) -> dict[str, Handler]:
    """Return the writer of each kernel's calls, which uses CMSIS-NN's kernel or stepwell's own."""
    own = by_kernel({name: HANDLERS[f"cortex_m::{name}.out"] for name in _FEWER[isa]})
    return {**CMSIS_NN_HANDLERS, **own, _TRANSPOSE: _mixed_transpose}


_TRANSPOSE = "cortex_m::transpose.out"


def _mixed_transpose(w: MethodWriter, a: dict[str, Any]) -> None:
    """Copy contiguous rows with stepwell's own kernel, single bytes with CMSIS-NN's kernel."""
    handlers = HANDLERS if lies_in_runs(w, a["input"], a["perm"]) else CMSIS_NN_HANDLERS
    handlers[_TRANSPOSE](w, a)

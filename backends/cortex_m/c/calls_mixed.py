"""Calls of CMSIS-NN, and of our own kernels where those need fewer instructions.

Instructions are counted call by call under qemu in ten nets (`bench/c_instructions.py` has the
sums). For the operators named here no measured call needs more, except some linear layers with
eight numbers a row.
"""

from __future__ import annotations

from typing import Any

from stepwell.backends.cortex_m.c.calls import HANDLERS, lies_in_runs
from stepwell.backends.cortex_m.c.calls_cmsis_nn import CMSIS_NN_HANDLERS
from stepwell.backends.cortex_m.c.writer import Handler, MethodWriter
from stepwell.dialects.cmsis.target import Isa

_FEWER: dict[Isa, frozenset[str]] = {
    Isa.MVE: frozenset(
        "quantized_linear quantized_batch_matmul quantized_add quantized_mul softmax "
        "quantized_depthwise_conv2d quantized_transpose_conv2d quantized_max_pool2d".split()
    ),
    Isa.DSP: frozenset({"softmax"}),
    Isa.SCALAR: frozenset({"softmax"}),
}
"""The form of CMSIS-NN's build → operators whose own kernel needs fewer instructions."""


def has_own_kernel(operator: str, isa: Isa) -> bool:
    """Whether a mixed program calls our own kernel for an operator of the library."""
    return operator.removesuffix("_nhwc") in _FEWER[isa]


def mixed_handlers(isa: Isa) -> dict[str, Handler]:
    """Kernel name → the writer of its calls."""
    own = {
        name: handler
        for name, handler in HANDLERS.items()
        if has_own_kernel(name.removeprefix("cortex_m::").removesuffix(".out"), isa)
    }
    return {**CMSIS_NN_HANDLERS, **own, _TRANSPOSE: _transpose}


_TRANSPOSE = "cortex_m::transpose.out"


def _transpose(w: MethodWriter, a: dict[str, Any]) -> None:
    """Copy contiguous rows with our own kernel, single bytes with CMSIS-NN's."""
    handlers = HANDLERS if lies_in_runs(w, a["input"], a["perm"]) else CMSIS_NN_HANDLERS
    handlers[_TRANSPOSE](w, a)

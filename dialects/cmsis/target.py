"""Cortex-M CPUs, their instruction sets, and the scratch memory CMSIS-NN's kernels need there."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from stepwell.ir.diagnostics import UnsupportedError, VerificationError


@cache
def _cmsis_nn() -> Any:
    """Return CMSIS-NN's own functions of buffer sizes, which ExecuTorch's wheel ships."""
    return importlib.import_module("executorch.backends.cortex_m.library.cmsis_nn")


class Isa(StrEnum):
    """An instruction set for which CMSIS-NN's kernels are compiled."""

    SCALAR = "scalar"
    DSP = "dsp"
    MVE = "mve"


_CPUS: dict[str, tuple[Isa, ...]] = {
    "cortex-m0": (Isa.SCALAR,),
    "cortex-m0plus": (Isa.SCALAR,),
    "cortex-m3": (Isa.SCALAR,),
    "cortex-m23": (Isa.SCALAR,),
    "cortex-m4": (Isa.DSP, Isa.SCALAR),
    "cortex-m7": (Isa.DSP, Isa.SCALAR),
    "cortex-m33": (Isa.DSP, Isa.SCALAR),
    "cortex-m35p": (Isa.DSP, Isa.SCALAR),
    "cortex-m55": (Isa.MVE, Isa.DSP, Isa.SCALAR),
    "cortex-m85": (Isa.MVE, Isa.DSP, Isa.SCALAR),
}

CPUS: tuple[str, ...] = tuple(_CPUS)
"""Every CPU a program can be lowered for."""


@dataclass(frozen=True)
class Target:
    """A CPU and the instruction set for which its kernels are built."""

    cpu: str
    isa: Isa

    @property
    def reads_kernel_sum(self) -> bool:
        """Whether `arm_fully_connected_s8` takes its bias from the kernel sums (MVE)."""
        return self.isa is Isa.MVE

    def __str__(self) -> str:
        default = _CPUS[self.cpu][0]
        return self.cpu if self.isa is default else f"{self.cpu}+{self.isa}"


def target(name: str) -> Target:
    """Parse a CPU name such as `cortex-m55`, or `cortex-m55+dsp` for a build without the best
    extension.
    """
    cpu, _, isa_name = name.partition("+")
    supported = _CPUS.get(cpu)
    if supported is None:
        raise UnsupportedError(
            f"{cpu} is not a Cortex-M CPU that CMSIS-NN is built for",
            help="choose one of " + ", ".join(CPUS),
        )
    if not isa_name:
        return Target(cpu, supported[0])
    if isa_name not in {str(isa) for isa in supported}:
        raise UnsupportedError(
            f"{cpu} has no {isa_name} instruction set",
            help="it has " + ", ".join(str(isa) for isa in supported),
        )
    return Target(cpu, Isa(isa_name))


def convolution_scratch(
    isa: Isa,
    *,
    input_nhwc: Sequence[int],
    filter_ohwi: Sequence[int],
    output_nhwc: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    input_offset: int,
    output_offset: int,
    activation: tuple[int, int],
) -> int:
    """Return the bytes of scratch memory that `arm_convolve_wrapper_s8` needs."""
    return _bytes(
        "convolve_wrapper_buffer_size",
        isa,
        input_nhwc=list(input_nhwc),
        filter_nhwc=list(filter_ohwi),
        output_nhwc=list(output_nhwc),
        padding_hw=list(padding),
        stride_hw=list(stride),
        dilation_hw=list(dilation),
        input_offset=input_offset,
        output_offset=output_offset,
        activation_min=activation[0],
        activation_max=activation[1],
    )


def depthwise_scratch(
    isa: Isa,
    *,
    input_nhwc: Sequence[int],
    filter_1hwo: Sequence[int],
    output_nhwc: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    depth_multiplier: int,
    input_offset: int,
    output_offset: int,
    activation: tuple[int, int],
) -> int:
    """Return the bytes of scratch memory that `arm_depthwise_conv_wrapper_s8` needs."""
    one, height, width, channels = filter_1hwo
    return _bytes(
        "depthwise_conv_wrapper_buffer_size",
        isa,
        input_nhwc=list(input_nhwc),
        filter_nhwc=[channels, height, width, one],
        output_nhwc=list(output_nhwc),
        padding_hw=list(padding),
        stride_hw=list(stride),
        dilation_hw=list(dilation),
        ch_mult=depth_multiplier,
        input_offset=input_offset,
        output_offset=output_offset,
        activation_min=activation[0],
        activation_max=activation[1],
    )


def transpose_convolution_scratch(
    isa: Isa,
    *,
    input_nhwc: Sequence[int],
    filter_ohwi: Sequence[int],
    output_nhwc: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    input_offset: int,
    output_offset: int,
    activation: tuple[int, int],
) -> tuple[int, int]:
    """Return the bytes of (row buffer, reversed-convolution buffer) of
    `arm_transpose_conv_wrapper_s8`.
    """
    common: dict[str, Any] = {
        "input_nhwc": list(input_nhwc),
        "filter_nhwc": list(filter_ohwi),
        "padding_hw": list(padding),
        "stride_hw": list(stride),
        "dilation_hw": [1, 1],
        "padding_offsets_hw": list(output_padding),
        "input_offset": input_offset,
        "output_offset": output_offset,
        "activation_min": activation[0],
        "activation_max": activation[1],
    }
    rows = _bytes("transpose_conv_buffer_size", isa, output_nhwc=list(output_nhwc), **common)
    return rows, _bytes("transpose_conv_reverse_conv_buffer_size", isa, **common)


def fully_connected_scratch(isa: Isa, *, inner: int, outputs: int) -> int:
    """Return the bytes of the kernel sums of a fully connected layer or batch matmul of N =
    `outputs`.
    """
    return _bytes("fully_connected_buffer_size", isa, filter_nhwc=[inner, 1, 1, outputs])


def avgpool_scratch(isa: Isa, *, output_width: int, channels: int) -> int:
    """Return the bytes of scratch memory that `arm_avgpool_s8` needs."""
    return _bytes(
        "avgpool_buffer_size",
        isa,
        dim_dst_width=output_width,
        ch_src=channels,
    )


def _bytes(function: str, isa: Isa, **given: Any) -> int:
    """Return the result of CMSIS-NN's function for the size of a buffer.

    Raises:
        VerificationError: a number does not fit 32 bits.
    """
    library = _cmsis_nn()
    backend = getattr(library.Backend, isa.name)
    try:
        return int(getattr(library, function)(backend, library.DataType.A8W8, **given))
    except TypeError as error:
        fact = f"a number of a kernel does not fit the 32 bits of {function}"
        raise VerificationError(fact) from error

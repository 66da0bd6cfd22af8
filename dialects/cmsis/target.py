"""The cores of small devices, their instruction sets, and the scratch memory of CMSIS-NN's kernels.

`CORES` is the table: Cortex-M CPUs, for which ExecuTorch's `cortex_m` library is built, and the
cores of the targets `c…`, for which a program is C without a runtime.
"""

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
    """An instruction set for which kernels are compiled; `portable` is stepwell's own plain C."""

    PORTABLE = "portable"
    SCALAR = "scalar"
    DSP = "dsp"
    MVE = "mve"


@dataclass(frozen=True)
class Core:
    """A core, and how its C is compiled.

    Attributes:
        isas: the instruction sets for which kernels are built, the best first.
        flags: what selects the core in GCC or Clang.
        hard_floats: whether it computes with single-precision floats in hardware.
        vectors: the origin of vector instructions; "" if there are none.
        devices: examples of devices.
    """

    isas: tuple[Isa, ...]
    flags: tuple[str, ...]
    hard_floats: bool = False
    vectors: str = ""
    devices: str = ""

    @property
    def is_cortex_m(self) -> bool:
        """Whether ExecuTorch's `cortex_m` library is built for the core."""
        return Isa.PORTABLE not in self.isas


_DSP, _MVE, _PLAIN = (Isa.DSP, Isa.SCALAR), (Isa.MVE, Isa.DSP, Isa.SCALAR), (Isa.PORTABLE,)
_INTRINSICS = "Arm's MVE intrinsics"
_BY_COMPILER = "the compiler's, from plain C"


def _cortex_m(name: str, isas: tuple[Isa, ...], fpu: str = "", vectors: str = "") -> Core:
    floats = ("-mfloat-abi=hard", *([f"-mfpu={fpu}"] if fpu != "auto" else [])) if fpu else ()
    return Core(isas, ("-mthumb", f"-mcpu=cortex-m{name}", *floats), bool(fpu), vectors)


CORES: dict[str, Core] = {
    "cortex-m0": _cortex_m("0", (Isa.SCALAR,)),
    "cortex-m0plus": _cortex_m("0plus", (Isa.SCALAR,)),
    "cortex-m3": _cortex_m("3", (Isa.SCALAR,)),
    "cortex-m23": _cortex_m("23", (Isa.SCALAR,)),
    "cortex-m4": _cortex_m("4", _DSP, "fpv4-sp-d16"),
    "cortex-m7": _cortex_m("7", _DSP, "fpv5-d16"),
    "cortex-m33": _cortex_m("33", _DSP, "fpv5-sp-d16"),
    "cortex-m35p": _cortex_m("35p", _DSP, "fpv5-sp-d16"),
    "cortex-m55": _cortex_m("55", _MVE, "auto", _INTRINSICS),
    "cortex-m85": _cortex_m("85", _MVE, "auto", _INTRINSICS),
    "c": Core(_PLAIN, (), devices="any core with a C99 compiler and 32-bit integers"),
    "c-rv32imc": Core(
        _PLAIN, ("-march=rv32imc", "-mabi=ilp32"), devices="RISC-V: ESP32-C3, CH32V, GD32VF103"
    ),
    "c-rv32imafc": Core(
        _PLAIN, ("-march=rv32imafc", "-mabi=ilp32f"), True, devices="RISC-V: ESP32-P4, BL616, HPM"
    ),
    "c-rv32gcv": Core(
        _PLAIN,
        ("-march=rv32gcv", "-mabi=ilp32d"),
        True,
        _BY_COMPILER,
        "RISC-V with vectors, for Clang (GCC from 14)",
    ),
    "c-xtensa": Core(_PLAIN, (), devices="Xtensa LX: ESP8266, ESP32, ESP32-S3"),
    "c-wasm32": Core(_PLAIN, ("--target=wasm32-wasi",), True, devices="WebAssembly"),
    "c-wasm32-simd": Core(
        _PLAIN,
        ("--target=wasm32-wasi", "-msimd128"),
        True,
        "intrinsics of wasm_simd128.h for products, else the compiler's",
        "WebAssembly with 128-bit vectors: browsers since 2023",
    ),
}
"""Every core a program can be lowered for, by name."""

CPUS: tuple[str, ...] = tuple(name for name, core in CORES.items() if core.is_cortex_m)
"""The Cortex-M CPUs, which an NPU may have beside it and a `.pte` can be emitted for."""

C_TARGETS: tuple[str, ...] = tuple(name for name in CORES if name not in CPUS)
"""The targets whose only artifact is C without a runtime."""


@dataclass(frozen=True)
class Target:
    """A CPU and the instruction set for which its kernels are built."""

    cpu: str
    isa: Isa

    @property
    def core(self) -> Core:
        """Return the entry of `CORES`."""
        return CORES[self.cpu]

    @property
    def reads_kernel_sum(self) -> bool:
        """Whether `arm_fully_connected_s8` takes its bias from the kernel sums (MVE)."""
        return self.isa is Isa.MVE

    def __str__(self) -> str:
        default = CORES[self.cpu].isas[0]
        return self.cpu if self.isa is default else f"{self.cpu}+{self.isa}"


def target(name: str) -> Target:
    """Parse a CPU name such as `cortex-m55`, or `cortex-m55+dsp` for a build without the best
    extension.
    """
    cpu, _, isa_name = name.partition("+")
    if cpu not in CORES:
        raise UnsupportedError(
            f"{cpu} is not a Cortex-M CPU that CMSIS-NN is built for, nor a core of the target c",
            help="choose one of " + ", ".join(CORES),
        )
    supported = CORES[cpu].isas
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
    """Return the result of CMSIS-NN's function for the size of a buffer; 0 for portable kernels.

    Raises:
        VerificationError: a number does not fit 32 bits.
    """
    if isa is Isa.PORTABLE:
        return 0
    library = _cmsis_nn()
    backend = getattr(library.Backend, isa.name)
    try:
        return int(getattr(library, function)(backend, library.DataType.A8W8, **given))
    except TypeError as error:
        fact = f"a number of a kernel does not fit the 32 bits of {function}"
        raise VerificationError(fact) from error

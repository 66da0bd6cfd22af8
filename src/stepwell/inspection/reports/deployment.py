"""What an application needs to run a `.pte`: kernels, backends, memory, inputs and outputs.

    stepwell explain --deploy model.pte

The names of libraries are the CMake targets of ExecuTorch's build (`kernels/`, `backends/`). Its
option `EXECUTORCH_SELECT_OPS_LIST` selects kernels (docs.pytorch.org/executorch, "Kernel Library
Selective Build").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stepwell.backends.cortex_m.emit import TARGET_METHOD
from stepwell.backends.executorch.container import (
    Container,
    Dynamism,
    KernelCall,
    Method,
    TensorValue,
    contiguous,
)
from stepwell.backends.executorch.kernels.scalar_types import torch_dtype
from stepwell.dialects.quant.ports import INPUT, OUTPUT, meanings
from stepwell.dialects.quant.types import Quantization
from stepwell.ir.program import Program

KERNEL_LIBRARIES = {
    "aten": "portable_ops_lib", "dim_order_ops": "portable_ops_lib",
    "quantized_decomposed": "quantized_ops_lib", "cortex_m": "cortex_m_ops_lib",
    "llama": "custom_ops", "executorch_prim": "executorch",
}  # fmt: skip
"""The namespace of a kernel → the library of ExecuTorch's build that registers it."""
BACKEND_LIBRARIES = {
    "XnnpackBackend": "xnnpack_backend", "VulkanBackend": "vulkan_backend",
    "VgfBackend": "vgf_backend", "EthosUBackend": "executorch_delegate_ethos_u",
    "OpenvinoBackend": "openvino_backend",
}  # fmt: skip
"""The name of a backend in a `.pte` → the library that registers it."""
_OWN = "aten::"


@dataclass(frozen=True)
class Port:
    """An input or output of a method.

    Attributes:
        kind: the dtype of a tensor, or the type of another value.
        sizes: the sizes of a tensor; of a dynamic one, their upper bounds.
        order: the dimensions in memory, outermost first, if they do not lie in order.
        is_dynamic: whether calls may have smaller sizes.
        quantization: what the integers mean, if the model has floats there.
    """

    kind: str
    sizes: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    is_dynamic: bool = False
    quantization: Quantization | None = None

    def __str__(self) -> str:
        text = f"{self.kind} {' x '.join(map(str, self.sizes))}".rstrip()
        text += " at most" if self.is_dynamic else ""
        text += f", dimensions in memory {list(self.order)}" if self.order else ""
        held = self.quantization
        return text + (f", (q - {held.zero_point}) * {held.scale!r}" if held else "")


@dataclass(frozen=True)
class Deployment:
    """What an application needs to run a `.pte`.

    Attributes:
        ports: by method and side (`input`, `output`), the method's ports.
        kernels: the kernels that the runtime must register, `aten::add.out`.
        backends: the backends that it must register, `XnnpackBackend`.
        arena: by method, the bytes of its memory plan, without delegates' own memory.
        size: the bytes of the file.
    """

    ports: Mapping[tuple[str, str], tuple[Port, ...]]
    kernels: tuple[str, ...]
    backends: tuple[str, ...]
    arena: Mapping[str, int]
    size: int

    @property
    def libraries(self) -> tuple[str, ...]:
        """Return the CMake targets of ExecuTorch's build to link; ? for one that is not known."""
        spaces = (kernel.partition("::")[0] for kernel in self.kernels)
        found = [KERNEL_LIBRARIES.get(space, f"? ({space}::)") for space in spaces]
        found += [BACKEND_LIBRARIES.get(name, f"? ({name})") for name in self.backends]
        return tuple(dict.fromkeys(["executorch", *found]))

    def __str__(self) -> str:
        lines: list[str] = []
        for name, planned in self.arena.items():
            lines.append(f"method {name}: {planned:,} bytes of planned memory")
            for side in (INPUT, OUTPUT):
                ports = enumerate(self.ports[name, side])
                lines += [f"  {side} {at}: {port}" for at, port in ports]
        lines.append(f"backends: {', '.join(self.backends) or 'none'}")
        lines.append(f"kernels: {', '.join(self.kernels) or 'none'}")
        lines.append(f"link: {' '.join(self.libraries)}")
        selected = [kernel for kernel in self.kernels if kernel.startswith(_OWN)]
        lines.append(f'selective build: -DEXECUTORCH_SELECT_OPS_LIST="{",".join(selected)}"')
        return "\n".join([*lines, f"file: {self.size:,} bytes"])


def deployment(container: Container, program: Program, size: int) -> Deployment:
    """Return what a container needs.

    Args:
        container: the contents of a `.pte`.
        program: the program that was read from it.
        size: the bytes of the file.
    """
    methods = [method for method in container.methods if method.name != TARGET_METHOD]
    kernels = {
        step.kernel
        for method in methods
        for step in method.instructions
        if isinstance(step, KernelCall)
    }
    ports = {
        (method.name, side): tuple(_ports(method, side, indices, program))
        for method in methods
        for side, indices in ((INPUT, method.inputs), (OUTPUT, method.outputs))
    }
    return Deployment(
        ports,
        tuple(sorted(kernels)),
        tuple(sorted({held.backend for method in methods for held in method.delegates})),
        {method.name: sum(method.arena_sizes[1:]) for method in methods},
        size,
    )


def _ports(method: Method, side: str, indices: Sequence[int], program: Program) -> Iterator[Port]:
    func = program.methods.get(method.name)
    means = [] if func is None else meanings(func, side)
    for at, index in enumerate(indices):
        value = method.values[index]
        if not isinstance(value, TensorValue):
            yield Port(type(value).__name__)
            continue
        plain = contiguous(len(value.sizes))
        is_plain = value.dim_order == plain or math.prod(value.sizes) == max(value.sizes, default=1)
        yield Port(
            str(torch_dtype(value.scalar_type)).removeprefix("torch."),
            value.sizes,
            () if is_plain else value.dim_order,
            value.dynamism is not Dynamism.STATIC,
            means[at] if at < len(means) else None,
        )

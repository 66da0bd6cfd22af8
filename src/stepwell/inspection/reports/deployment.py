"""What an application needs to run a program: kernels, backends, memory, inputs and outputs.

    stepwell explain --deploy model.pte
    lowered.deployment()

The names of libraries are the CMake targets of ExecuTorch's build (`kernels/`, `backends/`). Its
option `EXECUTORCH_SELECT_OPS_LIST` selects kernels (docs.pytorch.org/executorch, "Kernel Library
Selective Build"). The text of a selection is that of its `codegen/tools/gen_oplist.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from stepwell.backends.cortex_m.c.standalone import Sources
from stepwell.backends.cortex_m.c.writer import meaning_macros
from stepwell.backends.cortex_m.emit import TARGET_METHOD
from stepwell.backends.executorch.container import (
    Container,
    Dynamism,
    KernelCall,
    Method,
    OptionalTensorList,
    TensorList,
    TensorValue,
    contiguous,
)
from stepwell.backends.executorch.kernels.scalar_types import torch_name
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.inventory import packed_weights
from stepwell.dialects.quant.ports import INPUT, OUTPUT, meanings
from stepwell.dialects.quant.types import Quantization
from stepwell.dialects.xnnpack import DelegateOp
from stepwell.inspection.viewer.workspace import workspace_plan
from stepwell.ir.diagnostics import StepwellError, UnsupportedError
from stepwell.ir.program import Program
from stepwell.loaders.artifacts import read_pte
from stepwell.lowered import Lowered

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
FIRST_RUNTIME = "1.4"
"""The oldest runtime on which programs are tested (`docs/versions.md`)."""
SINCE = dict.fromkeys(
    ["llama::gated_delta_rule.out", "llama::quantized_moe_ffn.out",
     *(f"cortex_m::quantized_{name}.out" for name in "avg_pool2d_nhwc conv2d_nhwc div "
       "depthwise_conv2d_nhwc max_pool2d_nhwc transpose_conv2d_nhwc".split())], "1.5")  # fmt: skip
"""Kernels that the libraries of 1.5.1 have and those of `FIRST_RUNTIME` (1.4.1) lack."""
_SELECTED, _XNNPACK = ("aten::", "dim_order_ops::"), "XnnpackBackend"
_OPERATOR = """
    debug_info: [null]
    include_all_overloads: false
    is_root_operator: true
    is_used_for_training: true"""


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
    """What an application needs to run a program.

    Attributes:
        ports: by method and side (`input`, `output`), the method's ports.
        kernels: the kernels that the runtime must register, `aten::add.out`.
        variants: by kernel, the dtypes and orders of dimensions of its calls as the keys of
            ExecuTorch's selective build, `v1/6;0,1|6;0,1` (float32, row-major; input and output).
        backends: the backends that it must register, `XnnpackBackend`.
        arena: by method, the bytes of its memory plan, without delegates' own memory.
        constants: the bytes of weights and of delegates' payloads, which the file contains.
        packed: the bytes of weights that XNNPACK packs when a method is loaded.
        workspace: the bytes of XNNPACK's largest workspace, without operators' scratch; None if a
            size is dynamic.
        size: the bytes of the file; of C, those of its constants.
        runtime: the oldest tested ExecuTorch that runs it; None for C without a runtime.
    """

    ports: Mapping[tuple[str, str], tuple[Port, ...]]
    kernels: tuple[str, ...]
    variants: Mapping[str, tuple[str, ...]]
    backends: tuple[str, ...]
    arena: Mapping[str, int]
    constants: int
    packed: int
    workspace: int | None
    size: int
    runtime: str | None = FIRST_RUNTIME

    @property
    def resident(self) -> int:
        """Return the bytes that stay allocated while all methods are loaded: the constants, memory
        plans, packed weights and XNNPACK's workspace as far as it is known.
        """
        return sum((self.constants, *self.arena.values(), self.packed, self.workspace or 0))

    def selective_build_yaml(self) -> str:
        """Return the kernels as `selected_operators.yaml`, which ExecuTorch's code generator takes
        (`--op-selection-yaml-path`).
        """
        keys = "".join(
            "\n  - ".join([f"\n  {kernel}:", *self.variants[kernel]]) for kernel in self.kernels
        )
        operators = "".join(f"\n  {kernel}:{_OPERATOR}" for kernel in self.kernels)
        return (
            f"build_features: []\ncustom_classes: []\net_kernel_metadata: {keys or '{}'}\n"
            "include_all_non_op_selectives: false\ninclude_all_operators: false\n"
            f"kernel_metadata: {{}}\noperators: {operators or '{}'}\n"
        )

    @property
    def libraries(self) -> tuple[str, ...]:
        """Return the CMake targets of ExecuTorch's build to link; ? for one that is not known."""
        if self.runtime is None:
            return ()
        spaces = (kernel.partition("::")[0] for kernel in self.kernels)
        found = [KERNEL_LIBRARIES.get(space, f"? ({space}::)") for space in spaces]
        found += [BACKEND_LIBRARIES.get(name, f"? ({name})") for name in self.backends]
        return tuple(dict.fromkeys(["executorch", *found]))

    def c_lines(self, name: str) -> list[str]:
        """Return this text as a comment, and macros of the memory plan and of integers' meaning.

        Args:
            name: the first part of the macros' names: `NAME_INPUT_0_SCALE`.
        """
        lines = [f"/* {self}".replace("\n", "\n * "), " */"]
        for method, planned in self.arena.items():
            own = f"{name}_{method}" if len(self.arena) > 1 else name
            lines.append(f"#define {own.upper()}_ARENA_BYTES {planned}")
            for side in (INPUT, OUTPUT):
                for at, port in enumerate(self.ports[method, side]):
                    if (held := port.quantization) is not None:
                        lines += meaning_macros(f"{own}_{side}_{at}".upper(), held)
        return lines

    def __str__(self) -> str:
        lines: list[str] = []
        for name, planned in self.arena.items():
            lines.append(f"method {name}: {planned:,} bytes of planned memory")
            for side in (INPUT, OUTPUT):
                ports = enumerate(self.ports[name, side])
                lines += [f"  {side} {at}: {port}" for at, port in ports]
        others = "".join(f", without {b}'s own" for b in self.backends if b != _XNNPACK)
        others += ", without the workspace" if self.workspace is None else ""
        parts = [f"{self.constants:,} of constants", f"{self.resident:,} bytes resident{others}"]
        if _XNNPACK in self.backends:
            known = "unknown (dynamic sizes)" if self.workspace is None else f"{self.workspace:,}"
            parts[1:1] = [f"{self.packed:,} of packed weights", f"{known} of XNNPACK's workspace"]
        lines.append(f"memory: {', '.join(parts)}")
        if self.runtime is None:
            return "\n".join([*lines, "runtime: none, the C library alone"])
        lines.append(f"runtime: ExecuTorch {self.runtime} or later")
        lines.append(f"backends: {', '.join(self.backends) or 'none'}")
        lines.append(f"kernels: {', '.join(self.kernels) or 'none'}")
        lines.append(f"link: {' '.join(self.libraries)}")
        selected = [kernel for kernel in self.kernels if kernel.startswith(_SELECTED)]
        option = f'-DEXECUTORCH_SELECT_OPS_LIST="{",".join(selected)}"'  # Empty: all of them.
        lines.append(f"selective build: {option if selected else 'no kernels to select'}")
        return "\n".join([*lines, f"file: {self.size:,} bytes"])


def deployment_of(lowered: Lowered) -> Deployment:
    """Return what an application needs to run a lowered program.

    Raises:
        StepwellError: the target's artifact is neither a `.pte` nor C.
    """
    kind, artifact = lowered.target.artifact, lowered.artifact
    if kind == "c":
        return deployment_of_c(artifact, lowered.program)
    if kind != "pte":
        fact = f"the target {lowered.target.name} writes .{kind}, which an application does not run"
        raise StepwellError(fact, help="lower to xnnpack, cortex-m55 or c")
    needs = deployment(read_container(artifact), lowered.program, len(artifact))
    if needs.workspace is None:
        with suppress(UnsupportedError):
            needs = replace(needs, workspace=_workspace(read_pte(artifact, largest=True)))
    return needs


def deployment_of_c(sources: Sources, program: Program) -> Deployment:
    """Return what C without a runtime needs, with the program of which it was made."""
    methods = tuple(sources.methods.values())
    arena = {method.name: sources.arena for method in methods}
    ports, size = _all_ports(methods, program), sources.constants
    return Deployment(ports, (), {}, (), arena, size, 0, 0, size, None)


def deployment(container: Container, program: Program, size: int) -> Deployment:
    """Return what a container needs.

    Args:
        container: the contents of a `.pte`.
        program: the program that was read from it.
        size: the bytes of the file.
    """
    methods = [method for method in container.methods if method.name != TARGET_METHOD]
    variants: dict[str, set[str]] = {}
    for method in methods:
        for step in method.instructions:
            if isinstance(step, KernelCall):
                variants.setdefault(step.kernel, set()).add(_key(method, step))
    payloads = [held.payload for method in methods for held in method.delegates]
    named = (*container.named_data.values(), *container.external_data.values())
    weights = [*container.constants, *container.mutable_data, *(each.data for each in named)]
    return Deployment(
        _all_ports(methods, program),
        tuple(sorted(variants)),
        {kernel: tuple(sorted(keys)) for kernel, keys in variants.items()},
        tuple(sorted({held.backend for method in methods for held in method.delegates})),
        {method.name: sum(method.arena_sizes[1:]) for method in methods},
        sum(map(len, [*payloads, *weights])),
        packed_weights(program)[0],
        _workspace(program),
        size,
        max((SINCE.get(kernel, FIRST_RUNTIME) for kernel in variants), default=FIRST_RUNTIME),
    )


def _workspace(program: Program) -> int | None:
    """Return the bytes of the largest workspace of a delegate; None if a size is dynamic."""
    delegates = (op for op in program.module.walk() if isinstance(op, DelegateOp))
    plans = [workspace_plan(op, "") for op in delegates]
    sizes = [plan.size for plan in plans if plan]
    return None if None in plans else max(sizes, default=0)


def _key(method: Method, call: KernelCall) -> str:
    """Return the key of a call: a list of tensors has the dtype and order of its first one."""
    keys: list[str] = []
    for index in call.args:
        value = method.values[index]
        if isinstance(value, TensorList | OptionalTensorList):
            value = next((method.values[item] for item in value.items if item >= 0), None)
        if isinstance(value, TensorValue):
            keys.append(f"{int(value.scalar_type)};{','.join(map(str, value.dim_order))}")
    return f"v1/{'|'.join(keys)}"


def _all_ports(
    methods: Sequence[Method], program: Program
) -> dict[tuple[str, str], tuple[Port, ...]]:
    return {
        (method.name, side): tuple(_ports(method, side, indices, program))
        for method in methods
        for side, indices in ((INPUT, method.inputs), (OUTPUT, method.outputs))
    }


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
            torch_name(value.scalar_type),
            value.sizes,
            () if is_plain else value.dim_order,
            value.dynamism is not Dynamism.STATIC,
            means[at] if at < len(means) else None,
        )

"""From a functional operator to the runtime kernel that computes it, and back.

The runtime has kernels in `.out` form: `aten::add.out(Tensor self, Tensor other, *, Scalar
alpha=1, Tensor(a!) out)` computes `aten.add.Tensor`. The pair is found from the schemas alone, as
in ExecuTorch's to-out-variant pass: same operator name (or its `_copy` form, for views), same
arguments by name and type once outputs are set aside. Torch's `.out` forms lack dtype, layout,
device and pin_memory, which the output tensor answers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from stepwell.backends.executorch.kernels import QUANTIZED, RUNTIME
from stepwell.dialects.aten.schema import Argument, Schema, parse_schema
from stepwell.ir.diagnostics import ParseFailure

_ANSWERED_BY_OUTPUT = frozenset({"dtype", "layout", "device", "pin_memory"})

_SAME_FUNCTION = {
    # Operators that compute what another name computes, with the same arguments.
    "_unsafe_view": "view",
    "reshape": "view",
}
_RENAMED = {"reshape": {"shape": "size"}}


@dataclass(frozen=True)
class Input:
    """A kernel argument that is the functional operator's argument of this name."""

    name: str


@dataclass(frozen=True)
class Output:
    """A kernel argument that is the functional operator's result of this index."""

    index: int


@dataclass(frozen=True)
class KernelSignature:
    """How a kernel is called for a functional operator.

    `arguments` are the kernel's in its order; after them the instruction names the results again
    (`aten::add.out(self, other, alpha, out, out)`), several as one list of tensors.
    """

    kernel: str
    schema: Schema
    arguments: tuple[Input | Output, ...]

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The arguments the kernel writes."""
        return tuple(a for a in self.arguments if isinstance(a, Output))


@functools.cache
def kernel_schema(kernel: str) -> Schema | None:
    """The schema of a kernel, or None if the runtime has no kernel of that name."""
    text = RUNTIME.get(kernel) or QUANTIZED.get(kernel)
    return parse_schema(text) if text else None


@functools.cache
def _kernels_by_name() -> dict[str, tuple[str, ...]]:
    """Kernels by namespace and operator name, `aten::add` to its overloads."""
    found: dict[str, tuple[str, ...]] = {}
    for kernel in (*RUNTIME, *QUANTIZED):
        name = kernel.partition(".")[0]
        found[name] = (*found.get(name, ()), kernel)
    return found


@functools.cache
def out_variant(op_name: str) -> KernelSignature | None:
    """The kernel for a functional operator, `aten.view.default` to `aten::view_copy.out`.

    None if the runtime has none: the operator must then be decomposed or delegated.
    """
    schema = functional_schema(op_name)
    return kernel_for(schema) if schema is not None else None


@functools.cache
def functional_schema(op_name: str) -> Schema | None:
    """The schema torch has for an operator named as the IR names it, or None."""
    import torch

    namespace, _, rest = op_name.partition(".")
    name, _, overload = rest.rpartition(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None or overload not in packet.overloads():
        return None
    try:
        return parse_schema(str(getattr(packet, overload)._schema))
    except ParseFailure:
        return None  # It takes something no program holds (a Storage, a class): it has no kernel.


def kernel_for(functional: Schema) -> KernelSignature | None:
    """The kernel whose schema is the `.out` form of a functional one."""
    if functional.is_mutable:
        return None
    operator = _SAME_FUNCTION.get(functional.operator, functional.operator)
    renamed = _RENAMED.get(functional.operator, {})
    for name in (operator, f"{operator}_copy"):
        for kernel in _kernels_by_name().get(f"{functional.namespace}::{name}", ()):
            schema = kernel_schema(kernel)
            assert schema is not None
            arguments = _matched(functional, schema, renamed)
            if arguments is not None:
                return KernelSignature(kernel, schema, arguments)
    return None


def _matched(
    functional: Schema, kernel: Schema, renamed: dict[str, str]
) -> tuple[Input | Output, ...] | None:
    """How the kernel's arguments come from the functional's, or None if they do not."""
    written = [argument for argument in kernel.arguments if argument.written]
    read = {a.name: a for a in kernel.arguments if not a.written}
    if not written and any(r.type.is_tensor for r in functional.returns):
        return None
    if len(written) != sum(r.type.is_tensor for r in functional.returns):
        return None
    names: dict[str, str] = {}
    for argument in functional.arguments:
        name = renamed.get(argument.name, argument.name)
        counterpart = read.pop(name, None)
        if counterpart is None:
            if argument.name in _ANSWERED_BY_OUTPUT:
                continue
            return None
        if not _same_type(argument, counterpart):
            return None
        names[name] = argument.name
    if read:
        return None
    indices = {argument.name: index for index, argument in enumerate(written)}
    return tuple(
        Output(indices[a.name]) if a.written else Input(names[a.name]) for a in kernel.arguments
    )


def _same_type(functional: Argument, kernel: Argument) -> bool:
    def essence(argument: Argument) -> tuple[str, bool, bool]:
        # ExecuTorch's own operators say int where torch says SymInt.
        base = "int" if argument.type.base == "SymInt" else argument.type.base
        return base, argument.type.is_list, argument.type.nullable

    return essence(functional) == essence(kernel)

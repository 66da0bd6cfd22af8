"""From a functional operator to the runtime kernel that computes it, and back.

The runtime has kernels in `.out` form: `aten::add.out(Tensor self, Tensor other, *, Scalar
alpha=1, Tensor(a!) out)` computes `aten.add.Tensor`. The pair is found from the schemas only, as
in ExecuTorch's to-out-variant pass: same operator name (or its `_copy` form, for views), same
arguments by name and type, except outputs. Torch's `.out` forms lack dtype, layout,
device and pin_memory, which the output tensor determines.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass

from stepwell.backends.executorch.kernels.kernel_tables import (
    chosen_kernel,
    kernel_schema,
    kernels_of,
)
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import FURTHER_LIBRARIES, LIBRARIES, find
from stepwell.dialects.aten.schema import Argument, Schema
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.torch.torch_private import schema_of

_ANSWERED_BY_OUTPUT = frozenset({"dtype", "layout", "device", "pin_memory"})

_SAME_FUNCTION = {
    # Operators equivalent to an operator of another name, with the same arguments.
    "_unsafe_view": "view",
    "reshape": "view",
    "item": "_local_scalar_dense",
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
class InPlace:
    """A kernel argument that is the functional operator's argument of this name and a result.

    The kernel writes to this argument; `index` is the index of the result.
    """

    name: str
    index: int


Role = Input | Output | InPlace
"""The role of a kernel argument in the functional operator."""


@dataclass(frozen=True)
class KernelSignature:
    """The call of a kernel for a functional operator.

    `arguments` are the kernel's in its order; after them the instruction names the results again
    (`aten::add.out(self, other, alpha, out, out)`), several as one list of tensors.
    """

    kernel: str
    schema: Schema
    arguments: tuple[Role, ...]


def kernel_for(functional: Schema) -> KernelSignature | None:
    """Return the kernel whose schema is the `.out` form of a functional schema.

    A custom operator that writes to arguments has a kernel that writes to the same arguments.
    """
    chosen = chosen_kernel(functional.op_name)
    if chosen is not None:
        schema = kernel_schema(chosen)
        arguments = matched_arguments(functional, schema) if schema is not None else None
        return KernelSignature(chosen, schema, arguments) if schema and arguments else None
    operator = _SAME_FUNCTION.get(functional.operator, functional.operator)
    renamed = _RENAMED.get(functional.operator, {})
    for name in (operator, f"{operator}_copy"):
        for kernel in kernels_of(f"{functional.namespace}::{name}"):
            schema = kernel_schema(kernel)
            assert schema is not None
            arguments = matched_arguments(functional, schema, renamed)
            if arguments is not None:
                return KernelSignature(kernel, schema, arguments)
    return None


def matched_arguments(
    functional: Schema, kernel: Schema, renamed: Mapping[str, str] | None = None
) -> tuple[Role, ...] | None:
    """Return how a kernel's arguments follow from the functional operator's; None if they do
    not.
    """
    after = {a.name: len(functional.returns) + i for i, a in enumerate(functional.written)}
    if any(not argument.written for argument in kernel.arguments if argument.name in after):
        return None
    written = [a for a in kernel.arguments if a.written and a.name not in after]
    read = {a.name: a for a in kernel.arguments if not a.written or a.name in after}
    if not written and any(r.type.is_tensor for r in functional.returns):
        return None
    if len(written) != sum(r.type.is_tensor for r in functional.returns):
        return None
    names: dict[str, str] = {}
    for argument in functional.arguments:
        name = (renamed or {}).get(argument.name, argument.name)
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

    def role(name: str) -> Role:
        if name in indices:
            return Output(indices[name])
        return InPlace(names[name], after[name]) if name in after else Input(names[name])

    return tuple(role(argument.name) for argument in kernel.arguments)


def _same_type(functional: Argument, kernel: Argument) -> bool:
    def essence(argument: Argument) -> tuple[str, bool, bool]:
        # ExecuTorch's own operators have int where torch has SymInt.
        base = "int" if argument.type.base == "SymInt" else argument.type.base
        return base, argument.type.is_list, argument.type.nullable

    return essence(functional) == essence(kernel)


@dataclass(frozen=True)
class Functional:
    """The op class that a kernel computes, and the op's argument for each kernel argument."""

    op: type[SchemaOp]
    signature: KernelSignature


@functools.cache
def functional_of(kernel: str) -> Functional | None:
    """Return the functional operator of a kernel: `aten::add.out` is `aten.add.Tensor`.

    The result is None for in-place kernels and for the runtime's own ones.
    """
    schema = kernel_schema(kernel)
    if schema is None:
        return None
    for libraries in (LIBRARIES, FURTHER_LIBRARIES):
        if schema.namespace in libraries and not _is_loaded(schema):
            importlib.import_module(libraries[schema.namespace])
    packet = getattr(getattr(torch.ops, schema.namespace, None), schema.operator, None)
    for overload in packet.overloads() if packet is not None else ():
        if schema.namespace == "aten" and schema_of(getattr(packet, overload)).is_mutable:
            continue
        cls = find(f"{schema.namespace}.{schema.operator}.{overload}")
        signature = kernel_for(cls.SCHEMA) if cls is not None else None
        if cls is not None and signature is not None and signature.kernel == kernel:
            return Functional(cls, signature)
    return None


def _is_loaded(schema: Schema) -> bool:
    namespace = getattr(torch.ops, schema.namespace, None)
    return hasattr(namespace, schema.operator)

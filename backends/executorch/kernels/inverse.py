"""From a kernel's name to the functional operator that it computes: the inverse of `signatures`."""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass

from stepwell.backends.executorch.kernels.kernel_tables import kernel_schema
from stepwell.backends.executorch.kernels.signatures import KernelSignature, kernel_for
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import FURTHER_LIBRARIES, LIBRARIES, find
from stepwell.dialects.aten.schema import Schema
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.torch.torch_private import schema_of


@dataclass(frozen=True)
class Functional:
    """The op class that a kernel computes, and the op's argument for each kernel argument."""

    op: type[SchemaOp]
    signature: KernelSignature


@functools.cache
def functional_of(kernel: str) -> Functional | None:
    """The functional operator of a kernel: `aten::add.out` is `aten.add.Tensor`.

    None for kernels that compute no functional operator: in-place ones, the runtime's own.
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

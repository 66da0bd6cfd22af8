"""Generate `backends/executorch/kernels/stock.json`: the installed runtime's kernels, with schemas.

    python tools/generate_kernels.py

The wheel's runtime contains the portable and optimized kernels; `executorch.kernels.quantized` adds
those of `quantized_decomposed`, `executorch.extension.llm.custom_ops` those for language models.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import Any

from stepwell.backends.executorch.kernels.kernel_tables import STOCK
from stepwell.ir.compat.torch import torch_private
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.translate import executorch_private

UNREGISTERED = {
    # Kernels whose schema ExecuTorch states only in C++: kernels/prim_ops of 1.5.
    "executorch_prim::et_copy_index.tensor": "(Tensor(a!) copy_to, Tensor copy_from, int index) -> "
    "Tensor(a!)",
    "executorch_prim::et_view.default": "(Tensor self, int[] size, *, Tensor(a!) out) -> "
    "Tensor(a!)",
    "executorch_prim::floordiv.int": "(int a, int b) -> int",
    "executorch_prim::mod.int": "(int a, int b) -> int",
}


_OF_LIBRARIES = {"quantized_decomposed": "QUANTIZED", "llama": "LLM", "preprocess": "PREPROCESS"}
"""Namespaces of kernels that the runtime itself lacks, and the table that contains them."""


def runtime_kernels() -> dict[str, frozenset[str]]:
    """Names of the runtime's own kernels and of those that its libraries add, by table.

    If libraries were already loaded in this process, kernels are distinguished by namespace.
    """
    for library in ("kernels.quantized", "extension.llm.custom_ops.custom_ops"):
        importlib.import_module(f"executorch.{library}")
    names = executorch_private.kernel_names()
    tables: dict[str, set[str]] = {"RUNTIME": set(), "QUANTIZED": set(), "LLM": set()}
    for name in names:
        tables.setdefault(_OF_LIBRARIES.get(name.partition("::")[0], "RUNTIME"), set()).add(name)
    return {table: frozenset(tables[table]) for table in ("RUNTIME", "QUANTIZED", "LLM")}


def schema_text(kernel: str) -> str:
    """The schema of a kernel in PyTorch's notation."""
    for registry in ("dim_order_ops_registry", "executorch_prim_ops_registry"):
        importlib.import_module(f"executorch.exir.passes.{registry}")
    if kernel in UNREGISTERED:
        return kernel + UNREGISTERED[kernel]
    namespace, _, rest = kernel.partition("::")
    name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name)
    return str(torch_private.schema_of(getattr(packet, overload or "default")))


def generate() -> str:
    """Return the text of `stock.json`."""
    return as_json(
        {
            table: {name: schema_text(name) for name in sorted(names)}
            for table, names in runtime_kernels().items()
        }
    )


def as_json(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Write tables of kernels, one kernel a line."""
    texts = [
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f"{json.dumps(kernel)}: {json.dumps(row)}" for kernel, row in table.items())
        + "\n}"
        for name, table in tables.items()
    ]
    return "{\n" + ",\n".join(texts) + "\n}\n"


if __name__ == "__main__":
    STOCK.write_text(generate(), encoding="utf-8")

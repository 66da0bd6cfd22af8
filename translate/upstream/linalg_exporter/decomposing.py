"""PyTorch's own decompositions of operators that cannot be exported directly."""

from __future__ import annotations

from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.torch.torch_globals import torch_alone
from stepwell.ir.compat.torch.torch_private import decomposition_table
from stepwell.ir.program import Program
from stepwell.translate.decompositions.traced.statistics import STATISTICS
from stepwell.translate.exporter.to_torch import to_exported_program
from stepwell.translate.importer.from_torch import from_exported_program


def decomposed(program: Program) -> Program:
    """Return an equivalent program in PyTorch's core operators, by its own decompositions."""
    more = {
        operator: function
        for operator, function in decomposition_table.items()
        if str(operator).split(".")[1:2] in _PACKETS
    }
    exported = to_exported_program(program)
    with torch_alone(), torch.no_grad():
        table = torch.export.default_decompositions()
        table.pop(torch.ops.aten.roll.default)  # It would become an index of remainders.
        exported = exported.run_decompositions({**table, **more, **STATISTICS})
    return from_exported_program(exported)


_TAKEN_APART = (
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
    "linalg_vector_norm hardshrink tril triu upsample_nearest2d upsample_bilinear2d repeat "
    "_scaled_dot_product_flash_attention_for_cpu _safe_softmax"
).split()
"""Operators that PyTorch decomposes on request."""
_PACKETS = [[name] for name in _TAKEN_APART]

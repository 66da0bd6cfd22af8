"""Legalization: decompose ops outside delegates into operators with a kernel in the runtime.

One op at a time runs on fake tensors of its operands' types. PyTorch's own dispatcher,
composite kernels and decomposition tables decompose it until every part has a kernel, and the
parts are written as IR. This module has no code for particular operators.

Before:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %y = aten.silu.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
After:
    func.func @forward(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %s = aten.sigmoid.default(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
      %y = aten.mul.Tensor(%x, %s) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      func.return %y : tensor<2x3xf32>
    }
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from stepwell.backends.executorch.kernels.kernel_calls import kernel_of, runs_as_kernel, uncomputed
from stepwell.backends.executorch.writing.emit_control import CONTROL
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import of_overload
from stepwell.ir.compat.torch.torch_private import schema_of
from stepwell.ir.diagnostics import op_name
from stepwell.ir.dtypes import has_torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import element
from stepwell.translate.decompositions.traced import DECOMPOSITIONS
from stepwell.translate.decompositions.traced.integers import EXACT
from stepwell.translate.rewrites.calls.decompose_composites import (
    composite_function,
    decomposition_of,
    decompositions,
)
from stepwell.translate.rewrites.calls.traced_calls import Trace, trace


@dataclass(frozen=True)
class Decomposition:
    """The ops into which an op is decomposed."""

    op: SchemaOp
    pieces: Trace


@dataclass(frozen=True)
class DecomposeForKernels(Rewrite[Decomposition]):
    """Legalization: decompose an op without a kernel by PyTorch's own decompositions."""

    name: ClassVar[str] = "decompose-for-kernels"
    anchors: ClassVar[tuple[type[Operation], ...]] = (SchemaOp,)
    bound: ClassVar[Bound] = Bound(2e-5, 1e-5, "PyTorch's decompositions compute in another order")

    def match(self, op: SchemaOp, program: Program) -> Decomposition | Refusal | None:
        """Match an op outside delegates that has no kernel, if all parts of its decomposition have
        one.
        """
        if runs_as_kernel(op):
            return None
        if not isinstance(op.parent_op(), FuncOp) and type(op.parent_op()) not in CONTROL:
            return None
        for value in (*op.operands, *op.results):
            type_ = value.type
            if isinstance(type_, TensorType) and not has_torch_dtype(element(type_)):
                return Refusal(
                    f"an operand or result has type {type_}, which PyTorch does not have"
                )
        signature = kernel_of(type(op))
        if signature is not None and (reason := uncomputed(op, signature)):
            return Refusal(reason)
        if not all(isinstance(result.type, TensorType) for result in op.results):
            return Refusal("the op returns a number known only at run time")
        pieces = trace(op, _function_of)
        return pieces if isinstance(pieces, Refusal) else Decomposition(op, pieces)

    def build(self, match: Decomposition, rw: Rewriter) -> None:
        """Replace the op by the ops of its decomposition."""
        match.pieces.write(match.op, rw)


def lack_of_pieces(op: SchemaOp) -> str:
    """Return a clause that states why PyTorch's decomposition of an op without a kernel does not
    help.
    """
    found = trace(op, _function_of)
    if not isinstance(found, Refusal):
        return ""
    if found.reason.startswith(op_name(op)):
        return ", and PyTorch computes it by no others that have one"
    return f", nor for what PyTorch computes it by: {found.reason}"


def _function_of(overload: Any, is_root: bool) -> Callable[..., Any] | None:
    """Return the function that decomposes an operator.

    The result is None for a part that has a kernel; the op itself (`is_root`) is decomposed anyway.
    """
    if _has_kernel(overload) and not is_root:
        return None
    if overload in EXACT:
        return EXACT[overload]
    if overload in DECOMPOSITIONS:
        return DECOMPOSITIONS[overload]
    is_composite = composite_function(overload) is not None
    function = decompositions().get(overload) if is_composite else decomposition_of(overload)
    return function or getattr(overload, "impl_aten", overload.decompose)


@functools.cache
def _has_kernel(overload: Any) -> bool:
    return not schema_of(overload).is_mutable and kernel_of(of_overload(overload)) is not None

"""Decomposition: replace operators by the operators from which PyTorch computes them.

A composite operator has no kernel: PyTorch's dispatcher runs a function over other operators. That
function, run here on tensors without data, shows which. The result is therefore that of eager
PyTorch, and no operator needs code here. The pass runs after a target's lowerings, on the remaining
ops.

Before:
    %y = aten.pairwise_distance.default(%x, %z, 1.0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2xf32>
After:
    %0 = aten.sub.Tensor(%x, %z) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %1 = aten.add.Scalar(%0, 1.0e-06) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %y = aten.norm.ScalarOpt_dim(%1, 1.0, [1]) : (tensor<2x3xf32>) -> tensor<2xf32>
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from xdsl.ir import Operation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import torch_overload
from stepwell.ir.compat.torch import torch_private
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.torch.torch_private import has_kernel_for_key, schema_of
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter
from stepwell.translate.decompositions.traced import DECOMPOSITIONS
from stepwell.translate.decompositions.traced.semantics import semantic_function
from stepwell.translate.rewrites.calls.recorded_calls import FunctionOf
from stepwell.translate.rewrites.calls.traced_calls import Trace, trace
from stepwell.translate.rewrites.constants.fold_constants import is_plain

TABLED = frozenset(
    """_prelu_kernel affine_grid_generator aminmax heaviside masked_fill.Scalar masked_fill.Tensor
    mse_loss rot90 xlogy.Tensor addcdiv""".split()
)
"""Operators with kernels whose entry in PyTorch's decomposition table computes the same result."""


def composite_function(overload: Any, is_root: bool = False) -> Callable[..., Any] | None:
    """Return the decomposition of an operator, if PyTorch has one.

    A composite is recognized by its name; `is_root` (whether `overload` is the op that is
    decomposed) is unused.
    """
    name = schema_of(overload).name.partition("::")[2]
    overload_name = schema_of(overload).overload_name
    name = f"{name}.{overload_name}" if overload_name else name
    if overload.namespace == "aten" and name in TABLED:
        return torch_private.decomposition_table[overload]
    key = "CompositeImplicitAutograd"
    is_composite = has_kernel_for_key(overload.name(), key)
    return DECOMPOSITIONS.get(overload, overload.decompose) if is_composite else None


@cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions by operator; the core operator set's take precedence."""
    return {**torch_private.decomposition_table, **torch_private.core_aten_decompositions()}


def decomposition_of(overload: Any) -> Callable[..., Any] | None:
    """Return PyTorch's decomposition of an operator that is not composite.

    For an operator without one, or with one that only names its kernel (`prims.cosh` of `cosh`),
    return its declared scalar semantics, if there are any.
    """
    function = decompositions().get(overload)
    name = schema_of(overload).name.partition("::")[2]
    if function is None or hasattr(torch.ops.prims, name):
        return semantic_function(overload) or function
    return function


@dataclass(frozen=True)
class Composite:
    """The calls that an operator is decomposed into."""

    op: SchemaOp
    pieces: Trace


@dataclass(frozen=True)
class DecomposeComposites(Rewrite[Composite]):
    """Replace a composite operator by the operators that its decomposition calls.

    Attributes:
        function_of: the function that returns an operator's decomposition, defined at the top of a
            module.
    """

    name: ClassVar[str] = "decompose-composites"
    anchors: ClassVar[tuple[type[Operation], ...]] = (SchemaOp,)
    bound: ClassVar[Bound] = roundings("its pieces may round in another order")
    function_of: FunctionOf = composite_function

    def match(self, op: SchemaOp, program: Program) -> Composite | Refusal | None:
        """Match composite ops of static sizes whose decomposition writes no operand's view."""
        overload = torch_overload(type(op))
        if (op.SCHEMA.namespace != "aten" and overload not in DECOMPOSITIONS) or self.function_of(
            overload, True
        ) is None:
            return None
        values = (*op.operands, *op.results)
        if not all(is_plain(value.type) for value in values):
            return Refusal(
                "the shape is symbolic, or its result is a number known only at run time"
            )
        pieces = trace(op, self.function_of)
        return pieces if isinstance(pieces, Refusal) else Composite(op, pieces)

    def build(self, match: Composite, rw: Rewriter) -> None:
        """Write the recorded calls in order."""
        match.pieces.write(match.op, rw)

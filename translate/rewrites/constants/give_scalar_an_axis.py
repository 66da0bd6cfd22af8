"""Let an op along an axis of a tensor without axes run on one with a single axis.

PyTorch takes the axes 0 and -1 of a tensor of rank 0, and reduces, sums up, flips or selects its one
element. No target knows of such an axis, and the portable kernels fail or end the process.

Before:
    %y = aten.cumsum.default(%x, 0) : (tensor<f32>) -> tensor<f32>
After:
    %0 = aten.view.default(%x, [1]) : (tensor<f32>) -> tensor<1xf32>
    %1 = aten.cumsum.default(%0, 0) : (tensor<1xf32>) -> tensor<1xf32>
    %y = aten.view.default(%1, []) : (tensor<1xf32>) -> tensor<f32>
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.building import view

_NAMES = (
    "sum.dim_IntList mean.dim prod.dim_int amax amin aminmax max.dim min.dim argmax argmin any.dim "
    "any.dims all.dim all.dims std.dim std.correction var.dim var.correction var_mean.dim "
    "var_mean.correction std_mean.dim std_mean.correction norm.ScalarOpt_dim linalg_vector_norm "
    "logsumexp median.dim kthvalue softmax.int log_softmax.int _softmax "
    "_log_softmax _safe_softmax cumsum cumprod flip sort sort.stable "
    "argsort topk index_select gather scatter.src scatter.value scatter_add scatter_reduce.two "
    "unfold select_scatter cosine_similarity"
).split()


def _classes() -> tuple[type[SchemaOp], ...]:
    named = (name if "." in name else f"{name}.default" for name in _NAMES)
    return tuple(op_class(f"aten.{name}") for name in named)


WITH_INDEX = ("index", "src")
"""What has the axes of the tensor it selects from: without axes too, it is given one."""


@dataclass(frozen=True)
class WithoutAxes:
    """An op, and its tensors that get an axis, by argument."""

    op: SchemaOp
    tensors: Mapping[str, SSAValue]
    stated: Mapping[str, Any]


@dataclass(frozen=True)
class GiveScalarAnAxis(Rewrite[WithoutAxes]):
    """`op(x, axis)` of a tensor of rank 0 to `op(x.view(1), axis).view([])`."""

    name: ClassVar[str] = "give-scalar-an-axis"
    bound: ClassVar[Bound] = Bound(0.0, 2**-126, "a norm squares: a denormal may become zero")
    anchors: ClassVar[tuple[type[Operation], ...]] = _classes()

    def match(self, op: SchemaOp, program: Program) -> WithoutAxes | Refusal | None:
        """Guard: the tensor that it runs along has no axes."""
        first = op.SCHEMA.arguments[0].name
        if not is_without_axes(op.operands[0]):
            return None
        stated = op.present()
        others = [name for name in WITH_INDEX if name in stated]
        if any(op.SCHEMA.by_name[n].type.is_list for n in (first, *others)):
            return None
        lifted = [first, *(n for n in others if is_without_axes(stated[n]))]
        return WithoutAxes(op, {name: stated[name] for name in lifted}, stated)

    def build(self, match: WithoutAxes, rw: Rewriter) -> None:
        """Views with one axis, the op on them, and its results as they were."""
        lifted = {name: view(rw, value, [1]) for name, value in match.tensors.items()}
        new = rw.insert(type(match.op).from_arguments({**match.stated, **lifted}))
        results = zip(new.results, match.op.results, strict=True)
        rw.replace(match.op, [view(rw, mine, dims(old.type)) for mine, old in results])


def is_without_axes(value: object) -> bool:
    """Whether a value is a tensor of rank 0."""
    return (
        isinstance(value, SSAValue) and isinstance(value.type, TensorType) and not dims(value.type)
    )

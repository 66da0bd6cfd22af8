"""The rewrites of the plug-in."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import FloatAttr, TensorType, f32, f64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation

from stepwell import Bound, Program, Refusal, Rewrite, Rewriter
from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell_toy.dialect import AddOp, ReluOp, ScaleOp


@dataclass(frozen=True)
class Form:
    """The replacement of an op: a class of toy's, its operands and properties."""

    op: Operation
    cls: type[IRDLOperation]
    operands: tuple[SSAValue, ...]
    properties: dict[str, Attribute]


@dataclass(frozen=True)
class LowerToToy(Rewrite[Form, SchemaOp]):
    """Lower `aten` ops and the custom operator `toy_ops.twice` to those of the toy machine."""

    name = "lower-to-toy"
    anchors = (SchemaOp,)

    def match(self, op: SchemaOp, program: Program) -> Form | Refusal | None:
        """Match an op that the machine supports, on f32 tensors of one shape."""
        form = _form(op)
        if form is None:
            return Refusal("the toy machine adds, scales and rectifies")
        result = op.results[0].type
        if not isinstance(result, TensorType) or result.element_type != f32:
            return Refusal("the toy machine computes in f32")
        if {operand.type for operand in form.operands} != {result}:
            return Refusal("the toy machine does not broadcast")
        return form

    def build(self, match: Form, rw: Rewriter) -> None:
        """Replace one op by one."""
        types = [result.type for result in match.op.results]
        made = match.cls.build(
            operands=match.operands, properties=match.properties, result_types=types
        )
        rw.replace(match.op, [rw.insert(made).results[0]])


def _form(op: SchemaOp) -> Form | None:
    if isinstance(op, aten.AddTensor) and op.arg("alpha") == 1:
        return Form(op, AddOp, tuple(op.operands), {})
    if isinstance(op, aten.ReluDefault):
        return Form(op, ReluOp, (op.operands[0],), {})
    factor = 2.0 if op.name == "toy_ops.twice.default" else None
    if isinstance(op, aten.MulScalar):
        factor = float(op.arg("other"))
    if factor is None:
        return None
    return Form(op, ScaleOp, (op.operands[0],), {"factor": FloatAttr(factor, f64)})


@dataclass(frozen=True)
class MergeScales(Rewrite[ScaleOp, ScaleOp]):
    """Merge `toy.scale (toy.scale %x, a), b` to `toy.scale %x, a·b`: one rounding
    instead of two.
    """

    name = "merge-scales"
    anchors = (ScaleOp,)
    bound = Bound(relative=2**-22, reason="one rounding instead of two")

    def match(self, op: ScaleOp, program: Program) -> ScaleOp | None:
        """Match a scale of a scale."""
        return op if isinstance(op.x.owner, ScaleOp) else None

    def build(self, match: ScaleOp, rw: Rewriter) -> None:
        """Build a scale by the product of the factors."""
        inner = match.x.owner
        assert isinstance(inner, ScaleOp)
        factor = FloatAttr(inner.factor.value.data * match.factor.value.data, f64)
        merged = ScaleOp(
            operands=[inner.x],
            properties={"factor": factor},
            result_types=[match.result.type],
        )
        rw.replace(match, [rw.insert(merged).results[0]])

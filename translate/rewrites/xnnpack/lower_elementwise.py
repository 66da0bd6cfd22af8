"""Elementwise ops, one for one.

Before:
    %y = aten.tanh.default(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
After:
    %y = xnnpack.tanh(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import Operation, SSAValue

from stepwell.dialects import aten, xnnpack
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.shapes import broadcast
from stepwell.ir.core import WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import f32
from stepwell.ir.numerics import FLUSHED, Deviation
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims
from stepwell.translate.rewrites.aten.building import overflows
from stepwell.translate.rewrites.xnnpack.guards import not_for_xnnpack, stands_among_integers

UNARY: dict[type[Operation], type[XnnpackOp]] = {
    aten.AbsDefault: xnnpack.Abs,
    aten.CeilDefault: xnnpack.Ceiling,
    aten.CosDefault: xnnpack.Cosine,
    aten.ExpDefault: xnnpack.Exp,
    aten.FloorDefault: xnnpack.Floor,
    aten.HardswishDefault: xnnpack.Hardswish,
    aten.LogDefault: xnnpack.Log,
    aten.NegDefault: xnnpack.Negate,
    aten.RsqrtDefault: xnnpack.ReciprocalSquareRoot,
    aten.SigmoidDefault: xnnpack.Sigmoid,
    aten.SinDefault: xnnpack.Sine,
    aten.SqrtDefault: xnnpack.SquareRoot,
    aten.TanhDefault: xnnpack.Tanh,
}
BINARY: dict[type[Operation], type[XnnpackOp]] = {
    aten.AddTensor: xnnpack.Add,
    aten.SubTensor: xnnpack.Subtract,
    aten.MulTensor: xnnpack.Multiply,
    aten.DivTensor: xnnpack.Divide,
    aten.MaximumDefault: xnnpack.Maximum,
    aten.MinimumDefault: xnnpack.Minimum,
}


@dataclass(frozen=True)
class Elementwise:
    """An op with its node and the node's fields."""

    op: SchemaOp
    node: type[XnnpackOp]
    operands: tuple[SSAValue, ...]
    fields: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class LowerElementwise(Rewrite[Elementwise]):
    """`aten.tanh` to `xnnpack.tanh`, `aten.add` to `xnnpack.add`, and so on."""

    name: ClassVar[str] = "lower-elementwise"
    anchors: ClassVar[tuple[type[Operation], ...]] = (
        *UNARY,
        *BINARY,
        aten.GeluDefault,
        aten.EluDefault,
        aten.LeakyReluDefault,
        aten.PreluDefault,
        aten._PreluKernelDefault,
    )
    bound: ClassVar[Bound] = Bound(1e-5, 1e-6, "XNNPACK approximates exp, tanh, erf, log, sin")
    deviation: ClassVar[Deviation | None] = FLUSHED

    def match(self, op: SchemaOp, program: Program) -> Elementwise | Refusal | None:
        """Guards: float elements, plain forms only."""
        refusal = not_for_xnnpack(op)
        if refusal is not None:
            return refusal
        if all(isinstance(operand.owner, WeightOp) for operand in op.operands):
            return Refusal("all operands are constants; XNNPACK needs one that is computed")
        if stands_among_integers(op):
            return Refusal("its floats are computed from integers and become integers")
        if type(op) in UNARY:
            return Elementwise(op, UNARY[type(op)], (op.operands[0],))
        if type(op) in BINARY:
            return self._binary(op)
        if isinstance(op, aten.GeluDefault):
            if op.arg("approximate") != "none":
                return Refusal("XNNPACK's gelu is the exact one, not the tanh form")
            return Elementwise(op, xnnpack.Gelu, (op.operands[0],))
        if isinstance(op, aten.EluDefault):
            if op.arg("scale") != 1 or op.arg("input_scale") != 1:
                return Refusal("XNNPACK's elu scales neither input nor output")
            alpha = float(op.arg("alpha"))
            if not alpha > 0:
                return Refusal(f"alpha is {alpha}; XNNPACK's is positive")
            if refusal := overflows(alpha, f32):
                return refusal
            return Elementwise(op, xnnpack.ELU, (op.operands[0],), (("alpha", alpha),))
        if isinstance(op, aten.LeakyReluDefault):
            slope = float(op.arg("negative_slope"))
            if refusal := overflows(slope, f32):
                return refusal
            fields = (("negative_slope", slope),)
            return Elementwise(op, xnnpack.LeakyReLU, (op.operands[0],), fields)
        return self._prelu(op)

    def build(self, match: Elementwise, rw: Rewriter) -> None:
        """The node in the op's place."""
        result = match.op.results[0]
        new = match.node.make(*match.operands, result=result.type, **dict(match.fields))
        rw.insert(new)
        rw.replace(match.op, [new.output])

    def _binary(self, op: SchemaOp) -> Elementwise | Refusal:
        if "alpha" in op.SCHEMA.by_name and op.arg("alpha") != 1:
            return Refusal(f"alpha is {op.arg('alpha')}, not 1")
        left, right = op.operands[0], op.operands[1]
        try:
            broadcast(dims(left.type), dims(right.type))
        except StepwellError as error:  # Sizes of run time that the model knows to be the same.
            return Refusal(str(error).splitlines()[0])
        if left is right and isinstance(op, aten.MulTensor):
            return Elementwise(op, xnnpack.Square, (left,))
        return Elementwise(op, BINARY[type(op)], (left, right))

    def _prelu(self, op: SchemaOp) -> Elementwise | Refusal:
        shape = dims(op.operands[0].type)
        slopes = dims(op.operands[1].type)
        if not shape and slopes:
            return Refusal("a single number has no axis for slopes")
        if slopes not in ((), (1,)) and (len(shape) > 2 or slopes != shape[-1:]):
            return Refusal("the slopes stand on an axis that is not the last")
        return Elementwise(op, xnnpack.PReLU, (op.operands[0], op.operands[1]))

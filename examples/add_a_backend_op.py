"""Add an op of your own: `demo.axpy`, a·x + y in one go, with its text, meaning and lowering.

Everything below is a user's code in a user's file. The op gets a type rule and a meaning, a level
says what may stand at it, a rewrite makes it from `aten.mul.Tensor` and `aten.add.Tensor`; then
`check`, the text form and the verifier work as they do for ops of the house.

Run: python examples/add_a_backend_op.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Dialect, Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

import stepwell
from stepwell import History, Pass, Refusal, Rewrite, Rewriter
from stepwell.checking import check
from stepwell.dialects import aten
from stepwell.ir.inference import infers
from stepwell.ir.interpretation import interprets
from stepwell.ir.levels import Level, register_level, set_level
from stepwell.ir.program import Program
from stepwell.ir.text import register_dialect


@irdl_op_definition
class AxpyOp(IRDLOperation):
    """`demo.axpy %a, %x, %y`: a·x + y, element by element; all of one type."""

    name = "demo.axpy"
    a = operand_def(TensorType)
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$a `,` $x `,` $y attr-dict `:` `(` type(operands) `)` `->` type($result)"
    )


register_dialect("demo", lambda: Dialect("demo", [AxpyOp]))


@infers(AxpyOp)
def axpy_type(op: Operation) -> Sequence[Attribute]:
    """The result has the operands' type."""
    return (op.operands[0].type,)


@interprets(AxpyOp)
def axpy_meaning(op: Operation, args: Sequence[Any], interpreter: Any) -> Sequence[Any]:
    """Multiply, then add, each rounded: what the two ops did."""
    a, x, y = args
    return (a * x + y,)


register_level(
    Level(
        "demo",
        lambda op: (
            None
            if op.name.startswith(("aten.", "demo."))
            else "neither an aten op nor one of demo's"
        ),
    )
)


@dataclass(frozen=True)
class FormAxpy(Rewrite[Any]):
    """`add(mul(a, x), y)` to `demo.axpy`, where the product has no other reader."""

    name = "form-axpy"
    anchors = (aten.AddTensor,)

    def match(self, op: Any, program: Program) -> Any:
        """Guards: no alpha, equal types, a product read once."""
        product, y = op.operands[0].owner, op.operands[1]
        if not isinstance(product, aten.MulTensor):
            return None
        if op.arg("alpha") != 1:
            return Refusal("the added value is scaled by alpha")
        if len({v.type for v in (*product.operands, y)}) != 1:
            return Refusal("operands are broadcast")
        if len(list(product.results[0].uses)) != 1:
            return Refusal("the product has other readers")
        return op, [*product.operands, y]

    def build(self, match: Any, rw: Rewriter) -> None:
        """One op for two."""
        op, operands = match
        new = AxpyOp(operands=operands, result_types=[op.results[0].type])
        rw.replace(op, [rw.insert(new).results[0]])


@dataclass(frozen=True)
class EnterDemo(Pass):
    """States the level, so that the verifier applies its table."""

    name = "enter-demo"

    def apply(self, program: Program, history: History) -> int:
        """Mark the module."""
        set_level(program.module, "demo")
        return 1


DEMO = stepwell.Pipeline("demo", (FormAxpy(), EnterDemo()))


class Model(torch.nn.Module):
    """One product that is added, and one that is read twice."""

    def forward(self, a: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """`a·x + y`, then `a·y` used twice."""
        first = a * x + y
        second = a * y
        return first - (second + x) * second


def main() -> None:
    """Lower, print, parse back, and let `check` compare every application."""
    torch.manual_seed(0)
    inputs = tuple(torch.randn(2, 3) for _ in range(3))
    source = stepwell.from_exported_program(torch.export.export(Model(), inputs))
    program = stepwell.Program.of(source.clone())
    run = DEMO.run(program)
    program.verify()
    print(program)
    for refusal in run.history.refusals.values():
        print(f"{refusal.rewrite} left {refusal.node} alone: {refusal.reason}")
    again = stepwell.parse(str(program), program.weights)
    assert torch.equal(again.run(*inputs)[0], source.run(*inputs)[0])
    print(check(source, "xnnpack", DEMO, inputs=inputs, artefact=False))


if __name__ == "__main__":
    main()

"""Add an op of your own: `demo.axpy`, a·x + y in one op, with its text, semantics and lowering.

Everything below is a user's code in a user's file. The op gets a type inference rule and an
interpreter function. A level defines which ops it allows, a rewrite creates the op from
`aten.mul.Tensor` and `aten.add.Tensor`, a target emits bytes and an engine runs them. Then `lower`,
`check`, the textual form and the verifier work as for stepwell's own ops.

Run: python examples/add_a_backend_op.py Or:  stepwell lower --load examples/add_a_backend_op.py
examples/add_a_backend_op.py:make -t demo `examples/plugin/` is the same as a package that can be
installed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Dialect, Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

import stepwell
from stepwell import (
    Bound,
    History,
    Level,
    Pass,
    Program,
    Refusal,
    Rewrite,
    Rewriter,
    StepwellError,
    check,
    infers,
    interprets,
    set_level,
)
from stepwell.dialects import aten


@irdl_op_definition
class AxpyOp(IRDLOperation):
    """`demo.axpy %a, %x, %y`: a·x + y, elementwise; all of one type."""

    name = "demo.axpy"
    a = operand_def(TensorType)
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str | None] = (
        "$a `,` $x `,` $y attr-dict `:` `(` type(operands) `)` `->` type($result)"
    )


@infers(AxpyOp)
def axpy_type(op: Operation) -> Sequence[Attribute]:
    """The result has the operands' type."""
    return (op.operands[0].type,)


@interprets(AxpyOp)
def axpy_meaning(op: Operation, args: Sequence[Any], interpreter: Any) -> Sequence[Any]:
    """Multiply, then add, each rounded, like the two ops."""
    a, x, y = args
    return (a * x + y,)


MACHINE = ("demo.axpy", "aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor")
"""The instructions of the demo machine."""
LEVEL = Level(
    "demo",
    lambda op: None if op.name in MACHINE else f"the machine has {', '.join(MACHINE)}",
)


@dataclass(frozen=True)
class FormAxpy(Rewrite[Any]):
    """`add(mul(a, x), y)` to `demo.axpy`, if the product has no other use."""

    name = "form-axpy"
    anchors = (aten.AddTensor,)

    def match(self, op: Any, program: Program) -> Any:
        """Guards: no alpha, equal types, a product with a single use."""
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
        """Replace two ops by one."""
        op, operands = match
        new = AxpyOp(operands=operands, result_types=[op.results[0].type])
        rw.replace(op, [rw.insert(new).results[0]])


@dataclass(frozen=True)
class EnterDemo(Pass):
    """State the level, so that the verifier applies its table."""

    name = "enter-demo"

    def apply(self, program: Program, history: History) -> int:
        """Set the level of the module."""
        set_level(program.module, "demo")
        return 1


PIPELINE = stepwell.Pipeline("demo", (FormAxpy(), EnterDemo()))


def emit(program: Program) -> bytes:
    """Write the machine's file: JSON, one instruction per value."""
    func = program.method()
    numbers: dict[Any, int] = {argument: at for at, argument in enumerate(func.body.block.args)}
    code: list[list[Any]] = []
    for op in func.body.block.ops:
        if op.name == "func.return":
            outputs = [numbers[value] for value in op.operands]
            return json.dumps({"code": code, "outputs": outputs}).encode()
        code.append([op.name, *(numbers[value] for value in op.operands)])
        numbers[op.results[0]] = len(numbers)
    raise StepwellError("the method does not end in func.return")


def run(artifact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    """The machine itself: numpy, in f32."""
    held = json.loads(artifact)
    values = [np.asarray(value, np.float32) for value in inputs]
    with np.errstate(all="ignore"):
        for name, *operands in held["code"]:
            first, second, *third = (values[at] for at in operands)
            product = first * second
            plain = {"add": first + second, "sub": first - second, "mul": product}
            values.append(product + third[0] if third else plain[name.split(".")[1]])
    return tuple(torch.from_numpy(values[at]) for at in held["outputs"])


TARGET = stepwell.Target(
    "demo", PIPELINE, "axpy", {"axpy": emit}, run, bound=Bound(), dialects=("demo", "aten")
)


def plugin(registry: stepwell.Registry) -> None:
    """The entry point for `--load` and `stepwell.load_plugin`: registers everything
    under its name.
    """
    registry.dialect(Dialect("demo", [AxpyOp]), level=LEVEL)
    registry.step(FormAxpy, EnterDemo)
    registry.target(TARGET)


class Model(torch.nn.Module):
    """One product that is added, and one with two uses."""

    def forward(self, a: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """`a·x + y`, then `a·y` used twice."""
        first = a * x + y
        second = a * y
        return first - (second + x) * second


def make() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The model, in the form that commands take."""
    torch.manual_seed(0)
    return Model(), tuple(torch.randn(2, 3) for _ in range(3))


def main() -> None:
    """Lower, print, parse back, write the artifact, run it, and check every pass and the bytes."""
    model, inputs = make()
    brought = stepwell.load_plugin(plugin)
    source = stepwell.from_exported_program(torch.export.export(model, inputs))
    lowered = stepwell.lower(source, "demo", check=True)
    print(lowered.program)
    for refusal in lowered.report.refusals:
        print(f"{refusal.rewrite} left {refusal.node} alone: {refusal.reason}")
    again = stepwell.parse(str(lowered.program), source.weights)
    assert torch.equal(again.run(*inputs)[0], source.run(*inputs)[0])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.axpy"
        lowered.save(path)
        print(f"{path.name}: {path.read_text()}")
    assert torch.equal(lowered.run(*inputs)[0], model(*inputs))
    print(check(source, "demo", inputs=inputs))
    stepwell.unload_plugin(brought.name)


if __name__ == "__main__":
    main()

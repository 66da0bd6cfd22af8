"""The target `toy`: its pipeline, and a `.toy` file written, read back and run.

The file is JSON: shapes of the inputs, one instruction per value, and the values that are returned.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from xdsl.dialects.func import ReturnOp

import stepwell
from stepwell import (
    Bound,
    GreedyRewrites,
    History,
    Pass,
    Pipeline,
    Program,
    StepwellError,
    Target,
    set_level,
)
from stepwell.ir.core import WeightOp, tensor_type
from stepwell.ir.weights import WeightStore
from stepwell_toy.dialect import AddOp, ScaleOp
from stepwell_toy.rewrites import LowerToToy, MergeScales


@dataclass(frozen=True)
class EnterToy(Pass):
    """State that the program is at the level `toy`; the verifier applies its table from then on."""

    name = "enter-toy"

    def apply(self, program: Program, history: History) -> int:
        """Set the level of the module."""
        set_level(program.module, "toy")
        return 1


PIPELINE = Pipeline("toy", (GreedyRewrites("lower", (LowerToToy(),)), MergeScales(), EnterToy()))


def emit(program: Program) -> bytes:
    """Write a program at the level `toy` as bytes."""
    func = program.method()
    numbers: dict[Any, int] = {argument: at for at, argument in enumerate(func.body.block.args)}
    code: list[Any] = []
    outputs: list[int] = []
    for op in func.body.block.ops:
        if isinstance(op, ReturnOp):
            outputs = [numbers[value] for value in op.operands]
            continue
        if isinstance(op, WeightOp):
            code.append(["constant", program.weights.get(op.key.data).tolist()])
        elif isinstance(op, ScaleOp):
            code.append(["scale", numbers[op.x], op.factor.value.data])
        else:
            name = "add" if isinstance(op, AddOp) else "relu"
            code.append([name, *(numbers[value] for value in op.operands)])
        numbers[op.results[0]] = len(numbers)
    shapes = [list(tensor_type(argument).get_shape()) for argument in func.body.block.args]
    return json.dumps({"inputs": shapes, "code": code, "outputs": outputs}).encode()


def run(artifact: bytes, inputs: Sequence[Any], method: str) -> tuple[Any, ...]:
    """The machine: numpy, in f32."""
    held = json.loads(artifact)
    values: list[Any] = [np.asarray(value, np.float32) for value in inputs]
    for name, *operands in held["code"]:
        values.append(_computed(name, operands, values))
    return tuple(torch.from_numpy(values[at].copy()) for at in held["outputs"])


def _computed(name: str, operands: Sequence[Any], values: Sequence[Any]) -> Any:
    """Execute one instruction; overflow gives infinities without a warning."""
    with np.errstate(all="ignore"):
        if name == "constant":
            return np.asarray(operands[0], np.float32)
        if name == "scale":
            return values[operands[0]] * np.float32(operands[1])
        if name == "add":
            return values[operands[0]] + values[operands[1]]
        if name == "relu":
            return np.maximum(values[operands[0]], np.float32(0))
    raise StepwellError(f"the toy machine has no instruction {name!r}")


def read(artifact: bytes) -> Program:
    """Read the program of a `.toy`, here via its text."""
    try:
        held = json.loads(artifact)
    except ValueError as error:
        raise StepwellError(f"not a .toy file: {error}") from None
    shape = "x".join(map(str, held["inputs"][0]))
    type_ = f"tensor<{shape}xf32>"
    weights = WeightStore()
    lines: list[str] = []
    number = len(held["inputs"])
    for name, *operands in held["code"]:
        if name == "constant":
            key = weights.add(f"constant_{number}", torch.tensor(operands[0]))
            said = f'stepwell.weight <"{key}"> "constant" : {type_}'
        elif name == "scale":
            said = f"toy.scale %v{operands[0]}, {operands[1]!r} : ({type_}) -> {type_}"
        else:
            types = ", ".join([type_] * len(operands))
            said = f"toy.{name} {', '.join(f'%v{n}' for n in operands)} : ({types}) -> {type_}"
        lines.append(f"%v{number} = {said}")
        number += 1
    arguments = ", ".join(f"%v{at}: {type_}" for at in range(len(held["inputs"])))
    results = ", ".join([type_] * len(held["outputs"]))
    returned = ", ".join(f"%v{at}" for at in held["outputs"])
    text = "\n".join(
        [
            'module attributes {stepwell.level = "toy"} {',
            f"func.func @forward({arguments}) -> ({results}) {{",
            *lines,
            f"func.return {returned} : {results}",
            "}",
            "}",
        ]
    )
    return stepwell.parse(text, weights)


def make_target() -> Target:
    """Create the target; its engine is exact: one rounding per instruction, like its op's
    interpreter function.
    """
    return Target(
        "toy",
        PIPELINE,
        "toy",
        {"toy": emit},
        run,
        bound=Bound(),
        reader=read,
        dialects=("toy",),
    )

"""Cut a minimal program out of the source, as a script for a report to another tool.

The script computes the operators where both programs part by PyTorch, lowers them by ExecuTorch's
own flow and compares both results. It needs neither stepwell nor the model.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.interpretation import call_arguments
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.core import WeightOp
from stepwell.ir.platform.files import write_atomically
from stepwell.ir.weights import WeightStore

LINES = 40
"""The most operators of a script."""

_TEXT = '''"""{title}

    python {name}
"""

import pathlib

import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
{imports}
inf, nan = float("inf"), float("nan")
held = torch.load(pathlib.Path(__file__).with_suffix(".pt"))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, tensor in held["weights"].items():
            self.register_buffer(name, tensor)

    def forward(self, {arguments}):
{body}
        return {result}


model, inputs = Model().eval(), tuple(held["inputs"])
with torch.no_grad():
    wanted = model(*inputs)
exported = torch.export.export(model, inputs)
edge = to_edge_transform_and_lower(exported, partitioner=[{partitioner}])
program = Runtime.get().load_program(edge.to_executorch().buffer)
found = program.load_method("forward").execute([x.clone() for x in inputs])[0]
print("eager     ", wanted.flatten()[:6].tolist())
print("executorch", found.flatten()[:6].tolist())
apart = (wanted.double() - found.double()).abs().nan_to_num(0.0)
place = int(apart.flatten().argmax())
print(f"largest difference {{apart.max():.6g}}, of {{wanted.flatten()[place]}} and "
      f"{{found.flatten()[place]}}")
'''
_XNNPACK = (
    "from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner\n"
)


class _Name:
    """An argument that is printed as a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Reproduction:
    """A script, and the tensors that it reads from the file of its name with the suffix `.pt`."""

    text: str
    inputs: Sequence[Any]
    weights: Mapping[str, Tensor]

    def save(self, path: Path) -> list[Path]:
        """Write the script and its tensors; return both paths.

        Raises:
            StepwellError: a file cannot be written.
        """
        held = io.BytesIO()
        torch.save({"inputs": list(self.inputs), "weights": dict(self.weights)}, held)
        beside = path.with_suffix(".pt")
        write_atomically(beside, held.getvalue())
        write_atomically(path, self.text.replace("NAME", path.name).encode())
        return [path, beside]


def reproduction(
    ops: Sequence[Operation],
    result: SSAValue,
    values: Mapping[SSAValue, Any],
    weights: WeightStore,
    title: str,
    *,
    delegated: bool,
) -> Reproduction | None:
    """Return the script of some operators; None if one of them is no operator of PyTorch.

    Args:
        ops: the operators, in order.
        result: the value that the script compares.
        values: the values of the source in the call that shows the difference.
        weights: the weights of the source.
        title: the first sentence of the script.
        delegated: whether the artifact runs them on XNNPACK.
    """
    calls = [op for op in ops if not isinstance(op, WeightOp)]
    if len(calls) > LINES or not all(isinstance(op, SchemaOp) for op in calls):
        return None
    names: dict[SSAValue, str] = {}
    given, held, body = list[Any](), dict[str, Tensor](), list[str]()
    for op in calls:
        for value in op.operands:
            if value in names:
                continue
            if isinstance(value.owner, WeightOp):
                names[value] = f"self.weight_{len(held)}"
                held[f"weight_{len(held)}"] = weights.get(value.owner.key.data).detach().clone()
            elif value not in values:
                return None
            else:
                names[value] = f"x{len(given)}"
                given.append(values[value])
        assert isinstance(op, SchemaOp)
        positional, keywords = call_arguments(op, [_Name(names[v]) for v in op.operands])
        for at, value in enumerate(op.results):
            names[value] = f"y{len(names)}_{at}"
        told = [repr(each) for each in positional]
        told += [f"{name}={each!r}" for name, each in keywords.items()]
        left = ", ".join(names[value] for value in op.results)
        body.append(f"        {left} = torch.ops.{op.name}({', '.join(told)})")
    if not all(isinstance(each, Tensor) for each in given) or not given:
        return None
    text = _TEXT.format(
        title=title,
        name="NAME",
        imports=_XNNPACK if delegated else "",
        partitioner="XnnpackPartitioner()" if delegated else "",
        arguments=", ".join(f"x{at}" for at in range(len(given))),
        body="\n".join(body),
        result=names[result],
    )
    return Reproduction(text, given, held)

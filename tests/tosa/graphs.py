"""Small TOSA programs for the tests, and the conformance graphs kept in `conformance.zip`."""

import subprocess
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import export
from torch.utils import _pytree as pytree
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

import stepwell
from stepwell.backends.tosa.installed import tool
from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program

ARCHIVE = Path(__file__).with_name("conformance.zip")


Function = Callable[..., Any]


class Of(nn.Module):
    """A function or module, or several by name, as a module."""

    def __init__(self, function: Function | Mapping[str, Function]) -> None:
        super().__init__()
        self.functions = dict(function) if isinstance(function, Mapping) else {"": function}
        self.held = nn.ModuleList(f for f in self.functions.values() if isinstance(f, nn.Module))

    def forward(self, *inputs: Tensor) -> Any:
        if "" in self.functions:
            return self.functions[""](*inputs)
        return {name: function(*inputs) for name, function in self.functions.items()}


def lowered(
    function: Function | Mapping[str, Function],
    *inputs: Tensor,
    target: str = "tosa-1.0+fp+int",
    **options: Any,
) -> stepwell.Lowered:
    """A function or module, or several, as one graph."""
    return stepwell.lower(export(Of(function).eval(), inputs), target, **options)


def assert_agree(
    low: stepwell.Lowered,
    function: Function | Mapping[str, Function],
    *inputs: Tensor,
    rtol: float = 0.0,
    atol: float | None = None,
) -> None:
    """The reference model and the interpreter give eager PyTorch's values, NaN included."""
    with torch.no_grad():
        expected = pytree.tree_flatten_with_path(Of(function).eval()(*inputs))[0]
    for engine, found in (("model", low.run(*inputs)), ("interpreter", low.program.run(*inputs))):
        for (path, wanted), made in zip(expected, found, strict=True):
            at = f"{engine}{pytree.keystr(path)}"
            torch.testing.assert_close(
                made.to(wanted.dtype), wanted, rtol=rtol, atol=rtol if atol is None else atol,
                equal_nan=True, msg=lambda m, at=at: f"{at}: {m}",
            )  # fmt: skip


def agree(
    function: Function | Mapping[str, Function],
    *inputs: Tensor,
    target: str = "tosa-1.0+fp+int",
    rtol: float = 0.0,
    atol: float | None = None,
) -> stepwell.Lowered:
    """Lower, and compare both engines with eager PyTorch."""
    low = lowered(function, *inputs, target=target)
    assert_agree(low, function, *inputs, rtol=rtol, atol=atol)
    return low


def operators(low: stepwell.Lowered, name: str = "") -> list[str]:
    """The operators of a graph that have a name, without `tosa.`; or all."""
    names = [op.name.removeprefix("tosa.") for op in low.program.module.walk()]
    return [found for found in names if name in ("", found)]


def program_of_op(
    cls: type[TosaOp],
    inputs: Sequence[Attribute],
    results: Sequence[Attribute],
    constants: Sequence[Operation] = (),
    **properties: Attribute,
) -> Program:
    """A program of one operator: its operands are the inputs, then the constants."""
    block = Block(arg_types=inputs)
    block.add_ops(constants)
    operands: list[SSAValue] = [*block.args, *(op.results[0] for op in constants)]
    op = cls.create(operands=operands, result_types=results, properties=properties)
    block.add_ops([op, ReturnOp(*op.results)])
    module = ModuleOp([FuncOp("main", (list(inputs), list(results)), Region(block))])
    set_level(module, "tosa")
    return Program(module)


@cache
def conformance(kind: str) -> dict[str, dict[str, bytes]]:
    """The graphs made by tosa-tools' generator: name to files (`test.tosa`, `in0`, `out0`, …)."""
    graphs: dict[str, dict[str, bytes]] = {}
    with zipfile.ZipFile(ARCHIVE) as archive:
        for entry in archive.namelist():
            found, name, file = entry.split("/")
            if found == kind:
                graphs.setdefault(name, {})[file] = archive.read(entry)
    return graphs


def bits(x: torch.Tensor) -> torch.Tensor:
    """A tensor's bits, with every NaN the same."""
    if not x.dtype.is_floating_point:
        return x
    if x.dtype.itemsize == 1:
        nan = torch.isnan(x.to(torch.float32)) if x.dtype != torch.float8_e8m0fnu else x != x
        return x.view(torch.uint8).masked_fill(nan, 255)
    x = torch.where(torch.isnan(x), torch.nan, x)
    return x.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.dtype.itemsize])


def tosa_opt(
    *passes: str, source: str | Path = "/dev/null", output: str | Path = "/dev/null"
) -> str:
    """Run passes of MLIR's tosa-opt; what it prints of errors is returned, nothing if none."""
    pipeline = f"--pass-pipeline=builtin.module({','.join(passes)})"
    command = [tool("tosa-opt"), pipeline, source, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr or f"exit {done.returncode}" if done.returncode else ""


def deserialize(path: Path) -> str:
    """The pass that reads a flatbuffer."""
    return f"tosa-deserialize{{tosa-flatbuffer-filename={path}}}"


def validate(target: str) -> str:
    """The passes that check a module for a target."""
    return f"tosa-attach-target{{{target}}},tosa-validate{{strict-op-spec-alignment}}"


def assert_tosa_opt_accepts(held: str | bytes, target: str, folder: Path) -> None:
    """Its parser or deserializer, its verifier and the validation for a target take a graph."""
    path = folder / ("graph.mlir" if isinstance(held, str) else "graph.tosa")
    path.write_bytes(held.encode() if isinstance(held, str) else held)
    if isinstance(held, str):
        said = tosa_opt(validate(target), source=path)
    else:
        said = tosa_opt(deserialize(path), validate(target))
    assert not said, said

"""Small TOSA programs for the tests, and the conformance graphs kept in `conformance.zip`."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from stepwell.dialects.tosa.base import TosaOp
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program

ARCHIVE = Path(__file__).with_name("conformance.zip")


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

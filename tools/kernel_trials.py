"""Single calls of the runtime's kernels, in processes that a call may end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_leaves, tree_map
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from stepwell.backends.executorch.kernels.signatures import KernelSignature, kernel_for
from stepwell.dialects.aten.registry import of_overload
from stepwell.dialects.aten.schema import Schema, parse_schema
from stepwell.ir.compat.torch.torch_private import schema_of
from stepwell.ir.diagnostics import ParseFailure
from stepwell.ir.dtypes import element_type
from stepwell.ir.program import Program
from stepwell.ir.types import tensor_like
from stepwell.ir.weights import WeightStore

T = TypeVar("T")


def program_of(
    overload: Any, args: Any, kwargs: dict[str, Any], results: Sequence[torch.Tensor]
) -> Program:
    """A program of one call, whose inputs are the tensors among its arguments."""
    leaves = {id(t): t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
    block = Block(arg_types=[tensor_like(t) for t in leaves.values()])
    values = dict(zip(leaves, block.args, strict=True))

    def held(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return values[id(value)]
        return element_type(value) if isinstance(value, torch.dtype) else value

    positional, named = tree_map(held, (args, kwargs))
    types = [tensor_like(result) for result in results]
    op = of_overload(overload).make(*positional, result_types=types, **named)
    block.add_ops([op, ReturnOp(*op.results)])
    inputs = [argument.type for argument in block.args]
    func = FuncOp("forward", FunctionType.from_lists(inputs, types), Region(block))
    return Program(ModuleOp([func]), WeightStore())


def in_forks(items: Sequence[T], outcome: Callable[[T], Any]) -> Iterator[tuple[T, Any]]:
    """Each item with its outcome, as JSON keeps it; None if computing it ended the process.

    A fork computes the outcomes in order until one of them ends it; another goes on after that.
    """
    at = 0
    while at < len(items):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            with os.fdopen(writer, "w", buffering=1) as stream:
                for item in items[at:]:
                    stream.write(json.dumps([outcome(item)]) + "\n")
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as stream:
            told = [json.loads(line) for line in stream if line.endswith("\n")]
        os.waitpid(child, 0)
        yield from zip(items[at:], (found for (found,) in told), strict=False)
        at += len(told)
        if at < len(items):
            yield items[at], None
            at += 1


@cache
def out_variant(op_name: str) -> KernelSignature | None:
    """The kernel for a functional operator, `aten.view.default` to `aten::view_copy.out`.

    None if the runtime has none: the operator must then be decomposed or delegated.
    """
    schema = functional_schema(op_name)
    return kernel_for(schema) if schema is not None else None


@cache
def functional_schema(op_name: str) -> Schema | None:
    """Torch's schema of an operator with this name in the IR, or None."""
    namespace, _, rest = op_name.partition(".")
    name, _, overload = rest.rpartition(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None or overload not in packet.overloads():
        return None
    try:
        return parse_schema(str(schema_of(getattr(packet, overload))))
    except ParseFailure:
        return None  # An argument type that no program holds (a Storage, a class): no kernel.

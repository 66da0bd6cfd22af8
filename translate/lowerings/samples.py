"""The example of a lowering: a call of one op, built from the decorator's `sample`."""

from __future__ import annotations

from textwrap import dedent
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.schema import Argument
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.dtypes import torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, run_rewrites
from stepwell.ir.sizes.size import number_of
from stepwell.ir.syntax.inline_values import with_values
from stepwell.ir.syntax.snippets import module_of_ops
from stepwell.ir.syntax.text import parse_module, to_text
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.ir.weights import WeightStore
from stepwell.translate.lowerings.lowering import Lowering
from stepwell.translate.rules.compiling import element_named

_NUMBERS: dict[str, Any] = {"Scalar": 2.0, "float": 2.0, "int": 1, "SymInt": 1, "bool": False}


def examples_of(lowering: type[Lowering]) -> list[tuple[str, str]]:
    """Return (before, after) as IR texts: the sample call, and the result of the lowering."""
    if isinstance(lowering.sample, str):
        texts = dedent(lowering.sample).strip().split("\n\n")
        return [_example(lowering, module_of_ops(text)) for text in texts]
    return [_example(lowering, called(lowering))]


def _example(lowering: type[Lowering], method: ModuleOp) -> tuple[str, str]:
    before = to_text(method) + "\n"
    program = Program(parse_module(before), WeightStore())
    stated = [op for op in program.module.walk() if isinstance(op, WeightOp)]
    for op in stated:
        program.weights.add(op.key.data, _filled(op))
    run_rewrites(program, [lowering()], History())
    names = {op.key.data for op in stated}  # Derived weights of any contents.
    shown = with_values(program.module, program.weights)
    for op in shown.walk():
        if isinstance(op, WeightOp) and op.key.data.partition("#")[0] in names:
            op.properties.pop("value", None)
    return before, to_text(shown) + "\n"


def _filled(op: WeightOp) -> torch.Tensor:
    """Return a weight's contents: zeros, or the elements that its name requests."""
    shape = [number_of(size) for size in dims(op.result.type)]
    dtype = torch_dtype(element(op.result.type))
    if op.key.data.endswith("#rolled"):
        return torch.arange(shape[0]).roll(1).to(dtype)
    if op.key.data.endswith("#squares"):
        return (torch.arange(shape[0]).square() % 13).to(dtype)
    return (torch.ones if op.key.data.endswith("#ones") else torch.zeros)(shape, dtype=dtype)


def called(lowering: type[Lowering]) -> ModuleOp:
    """Return a method that calls the lowering's first op with the arguments of its sample."""
    assert not isinstance(lowering.sample, str)
    cls = cast("type[SchemaOp]", lowering.anchors[0])
    block = Block()
    given: list[Any] = list(lowering.sample or ())
    named: dict[str, Any] = given.pop() if given and isinstance(given[-1], dict) else {}
    positional = [a for a in cls.SCHEMA.arguments if not a.keyword_only]
    stated: dict[str, Any] = {
        argument.name: _argument(argument, value, block)
        for argument, value in zip(positional, given, strict=False)
    }
    stated |= {
        name: _argument(cls.SCHEMA.by_name[name], value, block) for name, value in named.items()
    }
    for argument in positional[len(given) :] if not given else ():
        if not argument.default:
            stated[argument.name] = _argument(argument, None, block)
    op: Operation = cls.make(**stated)
    block.add_op(op)
    for result, name in zip(op.results, "yzuvw", strict=False):
        result.name_hint = name
    block.add_op(ReturnOp(*op.results))
    types = ([arg.type for arg in block.args], [result.type for result in op.results])
    return ModuleOp([FuncOp("forward", types, Region(block))])


def _argument(argument: Argument, value: Any, block: Block) -> Any:
    """Convert an argument of a sample: tensors become arguments of the method."""
    if not argument.type.is_tensor:
        return _NUMBERS.get(argument.type.base) if value is None else value
    if isinstance(value, list):
        return [_argument(argument, item, block) for item in cast("list[Any]", value)]
    if value is not None or not argument.type.nullable:
        return _tensor(value or "2x4xf32", block)
    return None


def _tensor(text: str, block: Block) -> SSAValue:
    """Return a block argument for a text such as `2x4xf32`; a word as size is a symbol."""
    *sizes, element = text.split("x")
    shape: list[Dim | str] = [int(size) if size.isdigit() else size for size in sizes if size]
    arg = block.insert_arg(tensor(shape, element_named(element, cast(Any, None))), len(block.args))
    arg.name_hint = "xzuvw"[len(block.args) - 1]
    return arg

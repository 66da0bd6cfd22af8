"""Compare both sides of a candidate by what today's flow makes of them.

A term of a target's nodes is raised to PyTorch's operators and lowered again; if that is not
possible, the target's passes run on it as it is. A candidate says something new only if the flow
leaves the first term more expensive than the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from stepwell.cost_model.discovery.enumeration import NAMES, Candidate, Tree, inputs_of
from stepwell.cost_model.discovery.evaluation import append_node
from stepwell.cost_model.discovery.grammar import Grammar, Node, input_type
from stepwell.cost_model.optimum import cost
from stepwell.dialects.quant.types import quantization
from stepwell.dialects.xnnpack.elementwise import Convert
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import f32
from stepwell.ir.program import Program
from stepwell.ir.types import dims, tensor
from stepwell.ir.weights import WeightStore
from stepwell.lowering import lower
from stepwell.program import Program as PublicProgram

FLOWS = {"aten": ("xnnpack", "tosa-1.0+fp+int", "cortex-m55")}
"""The targets that lower the terms of a level without a target of its own."""


def program_of(
    grammar: Grammar,
    nodes: Sequence[Node],
    trees: Sequence[Tree],
    sizes: Mapping[str, Any],
    *,
    takes_floats: bool = False,
) -> Program:
    """Return a program that computes some terms of the same inputs.

    Args:
        takes_floats: whether quantized inputs and results are converted from and to float32, as a
            program's ports are.

    Raises:
        NotApplicable: a node does not take these sizes.
    """
    used = sorted(set().union(*map(inputs_of, trees)))
    types = [input_type(grammar.inputs[number], sizes) for number in used]
    block = Block(arg_types=[_plain(type_) if takes_floats else type_ for type_ in types])
    values: dict[Tree, SSAValue] = {}
    for number, argument, type_ in zip(used, block.args, types, strict=True):
        argument.name_hint = NAMES[number]
        values[number] = _converted(argument, type_, block)

    def value(tree: Tree) -> SSAValue:
        if tree not in values:
            assert not isinstance(tree, int)
            operands = [value(part) for part in tree[1]]
            values[tree] = append_node(nodes[tree[0]], operands, block).results[0]
        return values[tree]

    results = [value(tree) for tree in trees]
    if takes_floats:
        results = [_converted(result, _plain(result.type), block) for result in results]
    block.add_op(ReturnOp(*results))
    kind = ([a.type for a in block.args], [result.type for result in results])
    method = FuncOp("forward", kind, Region(block))
    return Program(ModuleOp([method], {"stepwell.level": StringAttr(grammar.level)}), WeightStore())


def _plain(type_: Any) -> Any:
    return tensor(dims(type_), f32) if quantization(type_) else type_


def _converted(value: SSAValue, type_: Any, block: Block) -> SSAValue:
    if value.type == type_:
        return value
    op = Convert.create(operands=[value], result_types=[type_])
    block.add_op(op)
    return op.results[0]


def flows(
    grammar: Grammar, nodes: Sequence[Node], pair: Candidate, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Return the ratio of the costs of a candidate's sides after each flow that lowers both, by
    target.
    """
    ratios: dict[str, float] = {}
    for target in FLOWS.get(grammar.target, (grammar.target,)):
        before, after = (
            _lowered(program_of(grammar, nodes, [tree], sizes, takes_floats=True), target)
            for tree in (pair.before, pair.after)
        )
        if before is not None and after is not None:
            ratios[target] = before / max(after, 1.0)
    return ratios


def _lowered(program: Program, target: str) -> float | None:
    """Return the cost of a program after the flow to a target; None if it is not lowered."""
    public = PublicProgram(program.module, program.weights)
    for raises in (True, False):
        try:
            source = public.raise_to("aten") if raises else public
            return cost(lower(source, target).program, target)
        except StepwellError:
            continue
    return None

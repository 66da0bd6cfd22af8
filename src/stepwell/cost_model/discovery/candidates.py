"""Compare both sides of a candidate by what today's flow makes of them.

A term of a target's nodes is raised to PyTorch's operators and lowered again; if that is not
possible, the target's passes run on it as it is. A candidate says something new only if the flow
leaves the first term more expensive than the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from stepwell.cost_model.discovery.enumeration import GAIN, NAMES, Candidate, Tree, inputs_of
from stepwell.cost_model.discovery.evaluation import FAILS, appended
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
        StepwellError: a term has no op for these sizes.
    """
    used = sorted(set().union(*map(inputs_of, trees)))
    types = [input_type(grammar.inputs[number], sizes) for number in used]
    block = Block(arg_types=[_plain(type_) if takes_floats else type_ for type_ in types])
    made: dict[Tree, SSAValue] = {}
    for number, argument, type_ in zip(used, block.args, types, strict=True):
        argument.name_hint = NAMES[number]
        made[number] = _converted(argument, type_, block)

    def value(tree: Tree) -> SSAValue:
        if tree not in made:
            assert not isinstance(tree, int)
            op = appended(nodes[tree[0]], [value(part) for part in tree[1]], block)
            if op is None:
                raise StepwellError(f"{nodes[tree[0]]} does not take its operands")
            made[tree] = op.results[0]
        return made[tree]

    results = [value(tree) for tree in trees]
    if takes_floats:
        results = [_converted(result, _plain(result.type), block) for result in results]
    block.add_op(ReturnOp(*results))
    kind = ([a.type for a in block.args], [result.type for result in results])
    module = ModuleOp(
        [FuncOp("forward", kind, Region(block))],
        {"stepwell.level": StringAttr(grammar.level)},
    )
    return Program(module, WeightStore())


def _plain(type_: Any) -> Any:
    return tensor(dims(type_), f32) if quantization(type_) else type_


def _converted(value: SSAValue, type_: Any, block: Block) -> SSAValue:
    if value.type == type_:
        return value
    op = Convert.create(operands=[value], result_types=[type_])
    block.add_op(op)
    return op.results[0]


@dataclass(frozen=True)
class Flow:
    """The costs of both sides of a candidate behind today's flow to a target."""

    target: str
    before: float
    after: float

    @property
    def is_new(self) -> bool:
        """Whether the flow does not reach the cheaper side by itself."""
        return self.before > self.after * GAIN


def flows(grammar: Grammar, nodes: Sequence[Node], found: Candidate, sizes: Mapping[str, int]
) -> list[Flow]:  # fmt: skip
    """Return the costs of a candidate's sides behind each flow that lowers both."""
    costs: list[Flow] = []
    for target in FLOWS.get(grammar.target, (grammar.target,)):
        both = [
            _lowered(program_of(grammar, nodes, [tree], sizes, takes_floats=True), target)
            for tree in (found.before, found.after)
        ]
        if both[0] is not None and both[1] is not None:
            costs.append(Flow(target, both[0], both[1]))
    return costs


def _lowered(program: Program, target: str) -> float | None:
    """Return the cost of a program behind the flow to a target; None if it is not lowered."""
    public = PublicProgram(program.module, program.weights)
    try:
        raised = public.raise_to("aten")
        return cost(lower(raised, target).program, target)
    except FAILS:
        pass
    try:
        return cost(lower(public, target).program, target)
    except FAILS:
        return None

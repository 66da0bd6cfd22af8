"""Export of an aten program to text of `linalg` on tensors, `tensor`, `arith`, `math`, `scf`.

An op is written from its declaration: `@means` gives the body of a `linalg.generic` and its
reductions, `@maps` its indexing maps. Data movement becomes `tensor`'s slices, concatenations and
reshapes, or a `generic` that yields its operand. Convolutions and pools are named operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

import stepwell.dialects.reduction_semantics  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.control import CondOp, WhileLoopOp, YieldOp
from stepwell.ir.axes.maps import Along, Flat, Links, Once, axis_map
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_movement
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.declared.scalar_semantics import meaning
from stepwell.ir.diagnostics import (
    Problem,
    StepwellError,
    UnsupportedError,
    describe_op,
    op_name,
)
from stepwell.ir.program import Program
from stepwell.ir.renderers import gives
from stepwell.ir.types import dims, element
from stepwell.translate.upstream.linalg_exporter.bodies import BodyValue
from stepwell.translate.upstream.linalg_exporter.computing import computed
from stepwell.translate.upstream.linalg_exporter.decomposing import decomposed
from stepwell.translate.upstream.linalg_exporter.operators import STATED, WRITERS, truth_of
from stepwell.translate.upstream.linalg_exporter.writing import (
    Text,
    affine,
    is_tensor,
    spelled,
    tensor_type,
)


@gives("linalg", Program)
def to_linalg(program: Program) -> str:
    """Return a program as MLIR text: `linalg` on tensors, `tensor`, `arith`, `math` and `scf`.

    Args:
        program: a program at level aten.

    Raises:
        StepwellError: the program is at another level.
        UnsupportedError: lists every op without an equivalent.
    """
    if program.level != "aten":
        raise StepwellError(
            f"a program at level {program.level!r} cannot be exported to linalg",
            help='program.raise_to("aten") may raise it first',
        )
    text, problems = _written(program)
    if problems:
        text, problems = _written(decomposed(program))
    if problems:
        raise UnsupportedError(problems)
    return text


def _written(program: Program) -> tuple[str, list[Problem]]:
    problems: list[Problem] = []
    lines = ["module {"]
    for func in program.methods.values():
        lines += _Outgoing(program, problems).lines(func)
    return "\n".join([*lines, "}", ""]), problems


class _Outgoing(Text):
    """Writes one method in the linalg dialect."""

    def __init__(self, program: Program, problems: list[Problem]) -> None:
        super().__init__(program)
        self.problems = problems

    def lines(self, func: FuncOp) -> Iterator[str]:
        """Yield the method, line by line."""
        block = func.body.block
        for at, arg in enumerate(block.args):
            self.names[arg] = f"%arg{at}"
        given = ", ".join(f"{self.names[arg]}: {spelled(arg.type)}" for arg in block.args)
        last = block.last_op
        values = list(last.operands) if isinstance(last, ReturnOp) else []
        results = ", ".join(spelled(value.type) for value in values)
        self.block(block)
        yield f"  func.func @{func.sym_name.data}({given}) -> ({results}) {{"
        yield from (f"    {line}" for line in self.out)
        names = ", ".join(self.names.get(value, "%missing") for value in values)
        yield f"    return {names} : {results}" if values else "    return"
        yield "  }"

    def block(self, block: Block) -> None:
        """Write the ops of a block except the last one."""
        for op in block.ops:
            if isinstance(op, ReturnOp | YieldOp):
                continue
            try:
                self.op(op)
            except StepwellError as error:
                fact = f"{op_name(op)}: {error.problems[0].fact}"
                self.problems.append(
                    Problem(fact, describe_op(op), "docs/mlir.md lists the supported ops")
                )
                self.names.update((result, "%missing") for result in op.results)

    def op(self, op: Operation) -> None:
        """Write one op in the linalg dialect."""
        if isinstance(op, WeightOp):
            self.names[op.result] = self.literal(self.program.weights.get(op.key.data))
        elif isinstance(op, CondOp):
            self.cond(op)
        elif isinstance(op, WhileLoopOp):
            self.while_loop(op)
        elif not isinstance(op, SchemaOp):
            raise UnsupportedError("MLIR has no such op")
        elif not op.results:
            if op.name not in STATED:
                raise UnsupportedError("the op has no result")
        elif not any(isinstance(value.type, TensorType) for value in op.operands):
            self.known(op)
        elif op.name in WRITERS:
            WRITERS[op.name](self, op)
        elif is_movement(op):
            self.moved(op)
        else:
            self.expressed(op)

    def expressed(self, op: SchemaOp) -> None:
        """Write an op whose elements are expressions of its operands' elements.

        An op may read one value at two positions (a matrix times itself); each operand is therefore
        a separate value when semantics and axis maps are queried.
        """
        asked = op
        if len(set(op.operands)) < len(op.operands):
            asked = op.clone()
            for at, value in enumerate(op.operands):
                if value in op.operands[:at]:
                    asked.operands[at] = Block(arg_types=[value.type]).args[0]
                    self.names[asked.operands[at]] = self.names[value]
        try:
            found = meaning(asked)
            term = truth_of(asked) if found is None else found.element
            if term is None or any(result.uses for result in op.results[1:]):
                raise UnsupportedError("the semantics is not declared as an expression")
            self.names[op.results[0]] = computed(self, asked, term)
        finally:
            if asked is not op:
                asked.drop_all_references()

    def known(self, op: SchemaOp) -> None:
        """Write an op without tensor operands as a constant."""
        bound: dict[SSAValue, Any] = {}
        if op.operands:
            raise UnsupportedError("a number is known only at run time")
        Interpreter(self.program.weights).step(op, bound)
        self.names[op.results[0]] = self.literal(bound[op.results[0]])

    # -- data movement ---------------------------------------------------------------------------

    def moved(self, op: SchemaOp) -> None:
        """Write an op that moves elements without changing them."""
        source, *more = (value for value in op.operands if is_tensor(value))
        if more:
            raise UnsupportedError("the op has no axis map")
        for at, result in enumerate(op.results):
            axes = axis_map(op, at) if len(op.results) > 1 else axis_map(op)
            if axes is None or axes.links[0] is None:
                raise UnsupportedError("the op has no axis map")
            links = axes.links[0]
            if any(isinstance(link, Flat) for link in links) or _drops(links, len(axes.shape)):
                self.names[result] = self.reshaped(source, result)
            elif _is_slice(links, axes.shape):
                self.names[result] = self.sliced(source, result, links)
            else:
                self.names[result] = self.reordered(source, result, links)

    def reshaped(self, source: SSAValue, result: SSAValue) -> str:
        """Write a reshape: all axes are collapsed to one, which is expanded again."""
        given, made, dtype = dims(source.type), dims(result.type), element(source.type)
        name = self.names[source]
        if given == made:
            return name
        whole = [size for size in (*given, *made) if not isinstance(size, int)]
        if whole:
            raise UnsupportedError("views of dynamic sizes are not supported")
        flat = tensor_type([prod(given)], dtype)  # pyright: ignore[reportArgumentType]
        if len(given) != 1:
            groups = f"[[{', '.join(map(str, range(len(given))))}]]" if given else "[]"
            word, more = ("collapse_shape", "") if given else ("expand_shape", " output_shape [1]")
            name = self.line(
                f"tensor.{word} {name} {groups}{more} : {tensor_type(given, dtype)} into {flat}"
            )
        if len(made) == 1:
            return name
        if not made:
            return self.line(
                f"tensor.collapse_shape {name} [] : {flat} into {tensor_type(made, dtype)}"
            )
        groups, sizes = (", ".join(map(str, of)) for of in (range(len(made)), made))
        return self.line(
            f"tensor.expand_shape {name} [[{groups}]] output_shape [{sizes}] : {flat} "
            f"into {tensor_type(made, dtype)}"
        )

    def sliced(self, source: SSAValue, result: SSAValue, links: Links) -> str:
        """Write a slice of a tensor."""
        alongs = [link for link in links if isinstance(link, Along)]
        made = dims(result.type)
        if dims(source.type) == made and all(link.is_plain for link in alongs):
            return self.names[source]
        sizes = {at: (source, at) for at, link in enumerate(alongs) if link.is_plain}
        names = [self.size(sizes, at, size) or size for at, size in enumerate(made)]
        offsets, strides = [a.offset for a in alongs], [a.stride for a in alongs]
        types = spelled(source.type), spelled(result.type)
        return self.slice(self.names[source], types, offsets, names, strides)

    def reordered(self, source: SSAValue, result: SSAValue, links: Links) -> str:
        """Write permuted, repeated or reversed axes."""
        made, dtype = dims(result.type), element(result.type)
        sizes = {
            link.axis: (source, at)
            for at, link in enumerate(links)
            if isinstance(link, Along) and link.is_plain
        }
        given = (self.names[source], spelled(source.type), _indices(links))
        out = self.empty(made, dtype, sizes)
        one, other = BodyValue("%in", dtype), BodyValue("%out", dtype)
        return self.generic([given], out, made, [], [one, other], one)

    # -- control flow ----------------------------------------------------------------------------

    def region(self, block: Block, given: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the lines of a region with these arguments, and the names that it yields."""
        outer, self.out = self.out, []
        self.names.update(zip(block.args, given, strict=True))
        self.block(block)
        lines, self.out = self.out, outer
        last = block.last_op
        assert last is not None
        return lines, [self.names[value] for value in last.operands]

    def truth(self, name: str, type_: Attribute) -> str:
        """Return the number in a boolean tensor of rank 0."""
        return f"tensor.extract {name}[] : {spelled(type_)}"

    def cond(self, op: CondOp) -> None:
        """Write a `torch.cond` as `scf.if`."""
        given = [self.names[value] for value in op.inputs]
        chosen = self.line(self.truth(self.names[op.predicate], op.predicate.type))
        types = ", ".join(spelled(value.type) for value in op.outputs)
        parts = [self.region(r.block, given) for r in (op.if_true, op.if_false)]
        bodies = [
            [*(f"  {line}" for line in lines), f"  scf.yield {', '.join(names)} : {types}"]
            for lines, names in parts
        ]
        head = f"scf.if {chosen} -> ({types}) {{"
        self._of_several(op, head, [*bodies[0], "} else {", *bodies[1], "}"])

    def while_loop(self, op: WhileLoopOp) -> None:
        """Write a `while_loop` as `scf.while`."""
        more = [self.names[value] for value in op.additional]
        start = [self.names[value] for value in op.carried]
        types = [spelled(value.type) for value in op.carried]
        joined = ", ".join(types)
        before, after = ([self.fresh() for _ in start] for _ in range(2))
        lines, (goes_on,) = self.region(op.condition.block, [*before, *more])
        last = op.condition.block.last_op
        assert last is not None
        truth = self.fresh()
        lines += [
            f"{truth} = {self.truth(goes_on, last.operands[0].type)}",
            f"scf.condition({truth}) {', '.join(before)} : {joined}",
        ]
        inner, names = self.region(op.body.block, [*after, *more])
        pairs = ", ".join(f"{b} = {s}" for b, s in zip(before, start, strict=True))
        arguments = ", ".join(f"{a}: {t}" for a, t in zip(after, types, strict=True))
        self._of_several(
            op,
            f"scf.while ({pairs}) : ({joined}) -> ({joined}) {{",
            [
                *(f"  {line}" for line in lines),
                "} do {",
                f"^bb0({arguments}):",
                *(f"  {line}" for line in inner),
                f"  scf.yield {', '.join(names)} : {joined}",
                "}",
            ],
        )

    def _of_several(self, op: Operation, head: str, lines: Sequence[str]) -> None:
        """Write an op with regions and any number of results."""
        name = self.fresh()
        count = len(op.results)
        made = name if count == 1 else f"{name}:{count}"
        self.out += [f"{made} = {head}", *lines]
        for at, result in enumerate(op.results):
            self.names[result] = name if count == 1 else f"{name}#{at}"


def _indices(links: Links) -> str:
    """Return the source indices of data movement."""
    found: list[str] = []
    for link in links:
        if isinstance(link, Along) and link.reach == 1:
            found.append(affine(link, f"d{link.axis}"))
        elif isinstance(link, Once):
            found.append("0")
        else:
            raise UnsupportedError("the axis map does not name single elements")
    return ", ".join(found)


def _drops(links: Links, rank: int) -> bool:
    """Whether only axes of size 1 are added or dropped."""
    return any(isinstance(link, Once) and link.axis is None for link in links) and rank != len(
        links
    )


def _is_slice(links: Links, shape: Sequence[Any]) -> bool:
    """Whether each axis keeps its position and is read forwards."""
    return len(links) == len(shape) and all(
        isinstance(link, Along) and link.axis == at and link.stride > 0 and link.offset >= 0
        for at, link in enumerate(links)
    )

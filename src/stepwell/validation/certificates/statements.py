"""A statement: a method whose results are pairs of values that are claimed to be equal.

    func.func @equal(%v3: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
      %v5 = aten.relu.default(%v3) : …
      %v9 = xnnpack.clamp(%v3) {output_min = 0.0 : f32} : …
      func.return %v5, %v9
    }

`%v5` was replaced by `%v9`; `%v3` is an arbitrary tensor. Values are named by their numbers in the
program.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from stepwell.validation.certificates.checker.check import Definition, EqualityGraph

NEAR = 12
"""The limit of ops before a replaced value that are part of a statement."""


@dataclass(frozen=True, eq=False)
class Recorded(Definition):
    """An op of the program as it was when it was recorded.

    Attributes:
        op: an op of the recorded class, whose operands may have changed since.
        properties, attributes, regions: those of the op at that time.
    """

    op: Operation
    properties: dict[str, Attribute]
    attributes: dict[str, Attribute]
    regions: tuple[Region, ...]


class TooLarge(Exception):
    """Raised if a certificate's statement would have too many ops."""


Made = Callable[[int], Recorded | None]
"""Returns the current definition of a value; None if it is an input."""


@dataclass
class Cone:
    """The ops from which the values of a statement are computed.

    Attributes:
        graph: the graph of all definitions.
        made: a function that returns the definition of a value.
        fresh: the values that are defined by the application to prove.
        deep: how many more ops before the statement's operands are included; −1: all.
        most: the largest number of ops in a statement.
    """

    graph: EqualityGraph
    made: Made
    fresh: set[int]
    deep: int = 0
    most: int = 400
    inputs: list[int] = field(default_factory=list[int])
    order: list[Recorded] = field(default_factory=list[Recorded])
    _above: set[int] = field(default_factory=set[int])

    def look(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Collect the ops of a certificate's statement, each after the ops that compute its
        operands.

        Raises:
            TooLarge: the statement has more than `most` ops.
        """
        if self.deep >= 0:
            shared = self._shared([new for _, new in pairs])
            for _ in range(self.deep):
                shared = {above for value in shared for above in self._read_by(value) or [value]}
            self._above = self._reached(shared)
            self._above -= self._computed_from(shared) - shared
        self._define(value for pair in pairs for value in pair)

    def _read_by(self, value: int) -> Sequence[int]:
        made = self.made(value)
        return () if made is None else made.operands

    def _reached(self, values: Iterable[int], through: set[int] | None = None) -> set[int]:
        """Return some values and all values from which they are computed; with `through`, follow
        only operands in that set.
        """
        found: set[int] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value not in found:
                found.add(value)
                if through is None or value in through:
                    waiting += self._read_by(value)
        return found

    def _computed_from(self, shared: set[int]) -> set[int]:
        """Return the values of a statement that are computed, directly or indirectly, from the
        values that its two sides share.
        """
        readers: dict[int, list[int]] = {}
        for value in self._above:
            for operand in self._read_by(value):
                readers.setdefault(operand, []).append(value)
        found, waiting = set[int](), list(shared)
        while waiting:
            new = set(readers.get(waiting.pop(), ())) - found
            found |= new
            waiting += new
        return found

    def _shared(self, values: Sequence[int]) -> set[int]:
        """Return the values that the new side of a statement uses and that existed before the
        application, without weights.
        """
        made = {value: self.made(value) for value in self._reached(values, self.fresh)}
        return {
            value
            for value, held in made.items()
            if held is None or (value not in self.fresh and held.operands)
        }

    def _expands(self, value: int, depth: int) -> bool:
        made = self.made(value)
        if made is None:
            return False
        if not made.operands:
            return made.op.name != "stepwell.state"
        if value in self.fresh or self.deep < 0:
            return True
        return value not in self._above and depth < NEAR + self.deep

    def _define(self, values: Iterable[int]) -> None:
        waiting = [(value, 0, False) for value in values][::-1]
        begun: set[int] = set()
        while waiting:
            value, depth, is_left = waiting.pop()
            made = self.made(value)
            if is_left:
                assert made is not None
                self.order.append(made)
            elif value not in begun:
                begun.add(value)
                if not self._expands(value, depth):
                    self.inputs.append(value)
                    continue
                assert made is not None
                if len(begun) > self.most:
                    raise TooLarge
                begun |= set(made.results)
                waiting.append((value, depth, True))
                waiting += [(each, depth + 1, False) for each in made.operands]

    def module(
        self, pairs: Sequence[tuple[int, int]], types: Callable[[int], Attribute]
    ) -> ModuleOp:
        """Return a module whose only method computes both sides of the statement."""
        of = self.graph.of
        inputs = {of(value): value for value in self.inputs}
        block = Block(arg_types=[types(value) for value in inputs.values()])
        known: dict[int, SSAValue] = dict(zip(inputs, block.args, strict=True))
        for value, result in zip(inputs.values(), block.args, strict=True):
            result.name_hint = f"v{value}"
        for made in self.order:
            if all(of(v) in known and v not in self.fresh for v in made.results):
                continue
            op = remade(made, [known[of(value)] for value in made.operands])
            block.add_op(op)
            for value, result in zip(made.results, op.results, strict=True):
                known.setdefault(of(value), result)
                result.name_hint = f"v{value}"
        results = [known[of(pair[side])] for side in (0, 1) for pair in pairs]
        block.add_op(ReturnOp(*results))
        kind = ([a.type for a in block.args], [v.type for v in results])
        return ModuleOp([FuncOp("equal", kind, Region(block))])


def remade(definition: Recorded, operands: Sequence[SSAValue]) -> Operation:
    """Create a copy of a recorded op with other operands."""
    return type(definition.op).create(
        operands=list(operands),
        result_types=[result.type for result in definition.op.results],
        properties=dict(definition.properties),
        attributes=dict(definition.attributes),
        regions=[region.clone() for region in definition.regions],
    )

"""Enumerate all terms of a grammar bottom-up, and collect equal terms of different cost.

Terms with the same fingerprint form a class. Larger terms are built from the cheapest term of each
class only: a term that contains another one of the class is rewritten by the rule for that part.
Terms that are more expensive than the cheapest one of their class are *candidates*. `minimal`
removes those that are instances of others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, TypeAlias

from xdsl.ir import Attribute

from stepwell.cost_model.discovery.evaluation import Evaluator, fingerprint, values_of
from stepwell.cost_model.discovery.grammar import Grammar, Node, input_type
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.types import dims, element

Tree: TypeAlias = "int | tuple[int, tuple[Tree, ...]]"
"""A term: the number of an input, or a node's number with the operands."""
Term: TypeAlias = "int | tuple[int, tuple[int, ...]]"
"""The number of an input, or a node's number with the classes of its operands."""
NAMES = "xyzwuv"
"""The names of inputs."""
GAIN = 1.01
"""The least ratio of costs of a candidate."""


@dataclass
class Class:
    """The terms with one fingerprint, by the cheapest of them.

    Attributes:
        term: the cheapest term.
        nodes: the classes of all nodes of this term, itself included; one that is used twice is
            computed once.
        cost, own: the sum of the costs of these nodes, and the cost of its outermost node.
        types: the type at each of the grammar's sizes, and at large sizes.
        values: the value at each of the grammar's sizes; empty for a term of the largest size.
    """

    term: Term
    nodes: frozenset[int]
    cost: float
    own: float
    types: tuple[Attribute, ...]
    values: list[torch.Tensor]


@dataclass(frozen=True)
class Candidate:
    """Two terms that are equal on all numbers that were tried, the first more expensive."""

    before: tuple[int, tuple[Tree, ...]]
    after: Tree


@dataclass
class Enumeration:
    """The terms of a grammar.

    Attributes:
        grammar: the nodes, inputs and sizes.
        budget: the number of terms after which the enumeration ends.
        terms: the number of terms that were computed.
        complete: the largest number of nodes up to which all terms were enumerated.
        equal: the terms that are not the cheapest of their class, with the class.
        applied: the nodes that took some operands.
    """

    grammar: Grammar
    budget: int = 1 << 62
    terms: int = 0
    complete: int = 0
    equal: list[tuple[Term, int]] = field(default_factory=list["tuple[Term, int]"])
    classes: list[Class] = field(default_factory=list[Class])
    nodes: list[Node] = field(default_factory=list[Node])
    applied: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self.nodes = self.grammar.expanded()
        self._evaluator = Evaluator(self.grammar)
        self._known: dict[bytes, int] = {}
        self._kinds: dict[Tree, Any] = {}
        self._by_size: list[list[int]] = [[]]
        sizes = self.grammar.sizes
        inputs = [values_of(self.grammar, each, at) for at, each in enumerate(sizes)]
        for number, text in enumerate(self.grammar.inputs):
            types = tuple(input_type(text, each) for each in (*sizes, self._evaluator.large))
            values = [each[number] for each in inputs]
            digest = fingerprint(values, types[:-1])
            self._insert(digest, Class(number, frozenset(), 0.0, 0.0, types, values), 0)

    def run(self) -> None:
        """Enumerate all terms, by their number of nodes, until the budget is used up."""
        commuting = {at for at, node in enumerate(self.nodes) if self._commutes(at, node)}
        for size in range(1, self.grammar.most + 1):
            self._by_size.append([])
            for count in sorted({node.operands for node in self.nodes}):
                numbers = [at for at, node in enumerate(self.nodes) if node.operands == count]
                for operands in self._operands(count, size - 1):
                    is_turned = count == 2 and operands[0] > operands[1]
                    for number in numbers:
                        if is_turned and number in commuting:
                            continue
                        self._add(number, operands, size)
                        if self.terms >= self.budget:
                            return
            self.complete = size

    def _operands(self, count: int, size: int) -> Iterator[tuple[int, ...]]:
        """Yield all lists of `count` classes whose smallest terms have `size` nodes in all."""
        for sizes in product(range(size + 1), repeat=count):
            if sum(sizes) == size:
                yield from product(*(self._by_size[each] for each in sizes))

    def _commutes(self, number: int, node: Node) -> bool:
        """Whether the value of a node of two inputs does not depend on their order."""
        if node.operands != 2:
            return False
        values = [
            [
                each and each[0]
                for each in (self._compute(number, (a, b)), self._compute(number, (b, a)))
            ]
            for a, b in combinations(self._by_size[0], 2)
        ]
        return all(a == b for a, b in values) and any(a for a, _ in values)

    def _compute(
        self, number: int, operands: tuple[int, ...]
    ) -> tuple[bytes, tuple[Attribute, ...], list[torch.Tensor], float] | None:
        """Return a term's fingerprint, types, values and own cost; None if it is no term."""
        node, classes = self.nodes[number], [self.classes[each] for each in operands]
        columns = zip(*(each.types for each in classes), strict=True)
        applications = [self._evaluator.applied(node, types) for types in columns]
        known = [each for each in applications if each is not None]
        if len(known) < len(applications):
            return None
        self.applied.add(number)
        values = [
            self._evaluator.run(each, [operand.values[at] for operand in classes])
            for at, each in enumerate(known[:-1])
        ]
        types = tuple(each.type for each in known)
        return fingerprint(values, types[:-1]), types, values, known[-1].cost

    def _add(self, number: int, operands: tuple[int, ...], size: int) -> None:
        computed = self._compute(number, operands)
        if computed is None:
            return
        self.terms += 1
        digest, types, values, own = computed
        nodes, cost = self._cost(operands, own)
        known = self._known.get(digest)
        term: Term = (number, operands)
        if known is None:
            values = values if size < self.grammar.most else []
            self._insert(digest, Class(term, nodes, cost, own, types, values), size)
            return
        equal = self.classes[known]
        if cost * GAIN < equal.cost:
            term, equal.term, equal.own = equal.term, term, own
            self._recount(known)
        self.equal.append((term, known))

    def _cost(self, operands: Sequence[int], own: float) -> tuple[frozenset[int], float]:
        """Return the nodes of a term's operands, and the cost of the term."""
        nodes = frozenset[int]().union(*(self.classes[each].nodes for each in operands))
        return nodes, own + sum(self.classes[each].own for each in nodes)

    def _insert(self, digest: bytes, new: Class, size: int) -> None:
        """Add a class, whose smallest term has `size` nodes."""
        number = len(self.classes)
        self._known[digest] = number
        self._by_size[size].append(number)
        new.nodes = new.nodes | {number} if size else new.nodes
        self.classes.append(new)

    def _recount(self, changed: int) -> None:
        """Compute the nodes and the cost of each class anew whose term reads a changed one."""
        for number, each in enumerate(self.classes):
            if changed in each.nodes:
                each.nodes = self._reached(number)
                each.cost = sum(self.classes[part].own for part in each.nodes)

    def _reached(self, number: int) -> frozenset[int]:
        """Return the classes of all nodes of a class's cheapest term."""
        term = self.classes[number].term
        parts = () if isinstance(term, int) else (frozenset({number}), *map(self._reached, term[1]))
        return frozenset[int]().union(*parts)

    def candidates(self) -> Iterator[Candidate]:
        """Yield each term that has a cheaper equal one without further inputs."""
        for term, known in self.equal:
            assert not isinstance(term, int)  # An input costs nothing.
            number, operands = term
            cheap, types = self.classes[known], [self.classes[each].types[-1] for each in operands]
            applied = self._evaluator.applied(self.nodes[number], tuple(types))
            assert applied is not None
            nodes, cost = self._cost(operands, applied.cost)
            if known in nodes or known in operands or cost > cheap.cost * GAIN:
                before, after = (number, tuple(map(self.tree, operands))), self.tree(known)
                if inputs_of(after) <= inputs_of(before):
                    yield Candidate(before, after)

    def minimal(self, pairs: Iterable[Candidate]) -> list[Candidate]:
        """Return the pairs that are no instances of others, the smallest first."""
        patterns: dict[tuple[int, ...], list[Tree]] = defaultdict(list)
        found: list[Candidate] = []

        def order(each: Candidate) -> tuple[int, int, int]:
            return size_of(each.before), -len(inputs_of(each.before)), size_of(each.after)

        for each in sorted(pairs, key=order):
            number, operands = each.before
            heads = [-1 if isinstance(part, int) else part[0] for part in operands]
            near = product([number], *({-1, head} for head in heads))
            instances = (
                matches(pattern, each.before, self.kind_of)
                for key in near
                for pattern in patterns.get(key, ())
            )
            if not any(instances):
                found.append(each)
                patterns[number, *heads].append(each.before)
        return found

    def kind_of(self, tree: Tree) -> Any:
        """Return the element type and the rank of a term that `tree` returned."""
        return self._kinds[tree]

    def tree(self, number: int) -> Tree:
        """Return the cheapest term of a class."""
        known = self.classes[number]
        term = known.term
        tree = term if isinstance(term, int) else (term[0], tuple(map(self.tree, term[1])))
        self._kinds[tree] = element(known.types[0]), len(dims(known.types[0]))
        return tree


def size_of(tree: Tree) -> int:
    """Return the number of nodes of a term; one that is used twice counts twice."""
    return 0 if isinstance(tree, int) else 1 + sum(map(size_of, tree[1]))


def inputs_of(tree: Tree) -> set[int]:
    """Return the inputs of a term."""
    return {tree} if isinstance(tree, int) else set[int]().union(*map(inputs_of, tree[1]))


def matches(
    pattern: Tree, tree: Tree, kind_of: Callable[[Tree], Any], bound: dict[int, Tree] | None = None
) -> bool:
    """Whether a term is an instance of another one, whose inputs stand for any terms of the same
    element type and rank (`kind_of`).
    """
    bound = {} if bound is None else bound
    if isinstance(pattern, int):
        return bound.setdefault(pattern, tree) == tree and kind_of(pattern) == kind_of(tree)
    if isinstance(tree, int) or pattern[0] != tree[0]:
        return False
    pairs = zip(pattern[1], tree[1], strict=True)
    return all(matches(p, t, kind_of, bound) for p, t in pairs)


def render(tree: Tree, nodes: Sequence[Node]) -> str:
    """Return a term as text."""
    if isinstance(tree, int):
        return NAMES[tree]
    node = nodes[tree[0]]
    operands = [render(part, nodes) for part in tree[1]]
    arguments = [f"{name}={text}" for name, text in node.arguments]
    return f"{node.op.partition('.')[2]}({', '.join(operands + arguments)})"

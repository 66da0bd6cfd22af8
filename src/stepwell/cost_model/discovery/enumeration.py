"""Enumerate all terms of a grammar bottom-up, and collect equal terms of different cost.

Terms with the same fingerprint form a class. Larger terms are built from the cheapest term of each
class only, so that a term that contains a reducible part is not built: the rule for the part
reduces it. Each new term that has a cheaper one in its class is a *candidate*, unless a candidate
found before rewrites it at its root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeAlias

import torch
from xdsl.ir import Attribute

from stepwell.cost_model.discovery.evaluation import Evaluator, fingerprint, values_of
from stepwell.cost_model.discovery.grammar import OFFSETS, Grammar, Node, input_type
from stepwell.ir.types import dims, element

Tree: TypeAlias = "int | tuple[int, tuple[Tree, ...]]"
"""A term: the number of an input, or a node's number with the operands."""
NAMES = "xyzwuv"
"""The names of inputs."""
GAIN = 1.01
"""The least ratio of costs of a candidate."""


@dataclass
class Class:
    """The terms with one fingerprint, by the cheapest of them.

    Attributes:
        node, operands: the cheapest term: the node's number (−1: an input, whose number is the
            operand), and its operands' classes.
        parts: the classes of all nodes of the smallest term, itself included, which count.
        used: the classes of all nodes of the cheapest term, itself included.
        cost, own: the sum of the costs of these nodes, and the cost of its own node.
        types: the type at each of the grammar's sizes, and at large sizes.
        values: the value at each of the grammar's sizes; empty for a term of the largest size.
    """

    node: int
    operands: tuple[int, ...]
    parts: frozenset[int]
    used: frozenset[int]
    cost: float
    own: float
    types: tuple[Attribute, ...]
    values: list[torch.Tensor]


@dataclass(frozen=True)
class Candidate:
    """Two terms that are equal on all numbers that were tried, the first more expensive."""

    before: Tree
    after: Tree
    cost_before: float
    cost_after: float


@dataclass
class Enumeration:
    """The terms of a grammar.

    Attributes:
        grammar: the nodes, inputs and sizes.
        budget: the number of terms after which the enumeration ends.
        terms: the number of terms that were computed.
        complete: the largest number of nodes up to which all terms were enumerated.
        candidates: the pairs that were found.
    """

    grammar: Grammar
    budget: int = 1 << 62
    terms: int = 0
    complete: int = 0
    implied: int = 0
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    classes: list[Class] = field(default_factory=list[Class])
    nodes: list[Node] = field(default_factory=list[Node])

    def __post_init__(self) -> None:
        self.nodes = self.grammar.expanded()
        self._evaluator = Evaluator(self.grammar)
        self._known: dict[bytes, int] = {}
        self._rules: dict[tuple[int, ...], list[Tree]] = {}
        self._commutes: set[int] = set()
        self._kinds: dict[Tree, Any] = {}
        self._users: list[list[int]] = []  # The classes whose terms contain a class's node.
        self._by_size: list[list[int]] = [[]]
        sizes = self.grammar.sizes
        given = [values_of(self.grammar, each, at) for at, each in enumerate(sizes)]
        for number, text in enumerate(self.grammar.inputs):
            types = tuple(input_type(text, each) for each in (*sizes, self._evaluator.large))
            values = [each[number] for each in given]
            self._known[fingerprint(values, types[:-1])] = len(self.classes)
            self._by_size[0].append(len(self.classes))
            self._users.append([])
            self.classes.append(
                Class(-1, (number,), frozenset(), frozenset(), 0.0, 0.0, types, values)
            )

    def run(self) -> None:
        """Enumerate all terms, by their number of nodes, until the budget is used up."""
        self._find_commuting()
        for size in range(1, self.grammar.most + 1):
            self._by_size.append([])
            for node, operands in self._of(size):
                self._add(node, operands, size)
                if self.terms >= self.budget:
                    return
            self.complete = size

    def _of(self, size: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the nodes on operands that together have one node less than `size`."""
        before = size - 1
        singles = self._by_size[before]
        pairs = list(self._pairs(before))
        for number, node in enumerate(self.nodes):
            if node.operands == 1:
                yield from ((number, (one,)) for one in singles)
            elif node.operands == 2:
                for one, other in pairs:
                    yield number, (one, other)
                    if one != other and number not in self._commutes:
                        yield number, (other, one)
            else:
                yield from ((number, each) for each in self._many(before, node.operands))

    def _pairs(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield pairs of classes whose terms have `size` nodes in all, shared ones once."""
        leaves, mine = self._by_size[0], self._by_size[size]
        if size == 0:
            yield from ((a, b) for a in leaves for b in leaves if b <= a)
            return
        for one in mine:
            yield from ((one, other) for other in (*leaves, *self.classes[one].parts))
        for larger in range((size + 1) // 2, size):
            for one in self._by_size[larger]:
                parts = self.classes[one].parts
                sharing = {other for part in parts for other in self._users[part]}
                for smaller in range(size - larger, larger + 1):
                    for other in self._by_size[smaller]:
                        if larger == smaller and other < one:
                            continue
                        if smaller + larger > size and other not in sharing:
                            continue
                        if len(parts | self.classes[other].parts) == size:
                            yield one, other

    def _many(self, size: int, count: int) -> Iterator[tuple[int, ...]]:
        """Yield operands of a node with more than two: inputs, and one term of `size` nodes."""
        leaves = self._by_size[0]
        for place in range(count) if size else (0,):
            lists: list[Sequence[int]] = [leaves] * count
            lists[place] = self._by_size[size]
            yield from product(*lists)

    def _find_commuting(self) -> None:
        """Find the nodes of two operands whose value does not depend on the operands' order."""
        leaves = self._by_size[0]
        for number, node in enumerate(self.nodes):
            if node.operands != 2:
                continue
            both = [
                (self._computed(number, (a, b)), self._computed(number, (b, a)))
                for a in leaves
                for b in leaves
                if a < b
            ]
            prints = [(a[0], b[0]) for a, b in both if a is not None and b is not None]
            if prints and len(prints) == len(both) and all(a == b for a, b in prints):
                self._commutes.add(number)

    def _computed(
        self, number: int, operands: tuple[int, ...]
    ) -> tuple[bytes, tuple[Attribute, ...], list[torch.Tensor], float] | None:
        """Return a term's fingerprint, types, values and own cost; None if it is no term."""
        node, given = self.nodes[number], [self.classes[each] for each in operands]
        types: list[Attribute] = []
        values: list[torch.Tensor] = []
        cost, count = 0.0, len(self.grammar.sizes)
        for at in range(count + 1):
            applied = self._evaluator.applied(node, tuple(each.types[at] for each in given))
            if applied is None:
                return None
            types.append(applied.type)
            if at == count:
                cost = applied.cost
                break
            value = self._evaluator.run(applied, [each.values[at] for each in given])
            if value is None:
                return None
            values.append(value)
        return fingerprint(values, types[:-1]), tuple(types), values, cost

    def _add(self, number: int, operands: tuple[int, ...], size: int) -> None:
        made = self._computed(number, operands)
        if made is None:
            return
        self.terms += 1
        digest, types, values, own = made
        given = [self.classes[each] for each in operands]
        parts = frozenset[int]().union(*(each.parts for each in given))
        used = frozenset[int]().union(*(each.used for each in given))
        cost = own + sum(self.classes[each].own for each in used)
        known = self._known.get(digest)
        if known is None:
            self._insert(
                digest, Class(number, operands, parts, used, cost, own, types, values), size
            )
        elif known in used or known in operands or cost > self.classes[known].cost * GAIN:
            self._offer((number, tuple(map(self.tree, operands))), self.tree(known), cost, known)
        elif cost * GAIN < self.classes[known].cost:
            old, held = self.tree(known), self.classes[known]
            term: Tree = (number, tuple(map(self.tree, operands)))
            self._offer(old, term, held.cost, known, cost)
            held.node, held.operands, held.own = number, operands, own
            self._recount(known)

    def _insert(self, digest: bytes, made: Class, size: int) -> None:
        """Add a class, whose first term has `size` nodes."""
        at = len(self.classes)
        self._known[digest] = at
        self._by_size[size].append(at)
        made.parts, made.used = made.parts | {at}, made.used | {at}
        made.values = made.values if size < self.grammar.most else []
        self._users.append([])
        for part in made.parts:
            self._users[part].append(at)
        self.classes.append(made)

    def _recount(self, changed: int) -> None:
        """Compute the nodes and the cost of each class anew whose term reads a changed one."""
        for at, each in enumerate(self.classes):
            if changed in each.used:
                each.used = frozenset(self._reached(at))
                each.cost = sum(self.classes[part].own for part in each.used)

    def _reached(self, number: int) -> set[int]:
        """Return the classes of all nodes of a class's cheapest term."""
        found, waiting = set[int](), [number]
        while waiting:
            at = waiting.pop()
            if at not in found and self.classes[at].node >= 0:
                found.add(at)
                waiting += self.classes[at].operands
        return found

    def minimal(self) -> list[Candidate]:
        """Return the candidates that are no instances of others, the smallest first."""
        rules: dict[tuple[int, ...], list[Tree]] = {}
        found: list[Candidate] = []

        def order(each: Candidate) -> tuple[int, int, int]:
            return size_of(each.before), -len(inputs_of(each.before)), size_of(each.after)

        for each in sorted(self.candidates, key=order):
            if not _is_instance(each.before, rules, self._kind_of):
                found.append(each)
                _register(each.before, rules)
        return found

    def _offer(
        self, before: Tree, after: Tree, cost: float, known: int, cheap: float | None = None
    ) -> None:
        """Record a candidate, unless another one rewrites the first term at its root."""
        if not inputs_of(after) <= inputs_of(before) or isinstance(before, int):
            return
        if _is_instance(before, self._rules, self._kind_of):
            self.implied += 1
            return
        _register(before, self._rules)
        lower = self.classes[known].cost if cheap is None else cheap
        self.candidates.append(Candidate(before, after, cost, lower))

    def tree(self, number: int) -> Tree:
        """Return the cheapest term of a class."""
        held = self.classes[number]
        made: Tree = held.operands[0]
        if held.node >= 0:
            made = held.node, tuple(map(self.tree, held.operands))
        self._kinds[made] = element(held.types[0]), len(dims(held.types[0]))
        return made

    def _kind_of(self, tree: Tree) -> Any:
        """Return the element type and the rank of a term that `tree` returned."""
        return self._kinds[tree]


def _is_instance(
    tree: Tree, rules: dict[tuple[int, ...], list[Tree]], kind_of: Callable[[Tree], Any]
) -> bool:
    """Whether a term is an instance of one of some terms, which `_register` added."""
    if isinstance(tree, int):
        return False
    heads = product(*({-1, _head(part)} for part in tree[1]))
    near = (rule for rest in heads for rule in rules.get((tree[0], *rest), ()))
    return any(matches(rule, tree, kind_of) for rule in near)


def _register(tree: Tree, rules: dict[tuple[int, ...], list[Tree]]) -> None:
    assert not isinstance(tree, int)
    rules.setdefault((tree[0], *map(_head, tree[1])), []).append(tree)


def size_of(tree: Tree) -> int:
    """Return the number of different nodes of a term."""
    seen: set[Tree] = set()

    def look(part: Tree) -> None:
        if not isinstance(part, int) and part not in seen:
            seen.add(part)
            for operand in part[1]:
                look(operand)

    look(tree)
    return len(seen)


def _head(tree: Tree) -> int:
    """Return the number of a term's outermost node; −1 for an input."""
    return -1 if isinstance(tree, int) else tree[0]


def inputs_of(tree: Tree) -> set[int]:
    """Return the inputs of a term."""
    if isinstance(tree, int):
        return {tree}
    return {each for part in tree[1] for each in inputs_of(part)}


def matches(
    pattern: Tree,
    tree: Tree,
    kind_of: Callable[[Tree], Any] = lambda tree: None,
    bound: dict[int, Tree] | None = None,
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


def told(tree: Tree, nodes: Sequence[Node], names: Sequence[str] = NAMES) -> str:
    """Return a term as text."""
    if isinstance(tree, int):
        return names[tree]
    node = nodes[tree[0]]
    parts: list[Any] = [told(part, nodes, names) for part in tree[1]]
    held = [f"{n}={v}" for n, v in node.arguments if not str(v).startswith(OFFSETS)]
    return f"{node.op.partition('.')[2]}({', '.join([*parts, *held])})"

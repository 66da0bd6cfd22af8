"""Conclude from the instances of a rule that it holds for any rank and any size.

The prover decides a rule for arbitrary elements at the ranks and sizes that it enumerates. Each
argument here is a lemma with side conditions. `Evidence` checks them on every instance that was
decided, and on the source of the rule's functions (`reviewed`), which must treat every rank
alike: otherwise a rule is proved "up to rank N" as before. TensorRight (POPL 2025) bounds the rank
of a counterexample in the same way: by the axes that a rule distinguishes.

elementwise
    Every op computes each element from the elements at the same index. One axis of any size then
    represents any number of axes.
row-major
    Every op is elementwise over tensors of one shape, or keeps the elements in row-major order in
    another shape. Element f of both sides, counted in that order, depends on the elements f of the
    inputs alone, whatever the shapes are.
one movement
    Both sides apply the same ops with the same arguments, and compute each element for itself in
    between, which commutes with movements: an element is f(x at m(i)) on both sides, whatever m is.
axes
    Each op relates axes one by one (its axis map: kept, broadcast, reduced, sliced). Let k be the
    number of axes that arguments or literals of the rule name. If an instance is wrong at some
    rank, the two sides read an element of an input at indices that differ along one of its axes, or
    put two of its axes in another order. Keep these axes, two at most, the k named ones, and those
    that an op sums over, or treats otherwise in its own way, as a linear layer the last one. Along
    every other axis both sides only pass the index on: fixing these indices gives a wrong instance
    of that many axes (one more if axes are merged: one that lies between two may matter). All
    instances up to that rank are tried, with every argument, and with sizes that are symbols:
    different, equal, or 1 (different ones alone, if nothing in the rule depends on sizes).
positions
    As "axes", and arguments are positions along axes (the start of a slice, the amounts of a
    padding). Each op passes positions on in their order, one by one. If the two sides read an
    element at different positions p and q along an axis, delete any other position of it: each cut
    moves with the elements around it. Two positions are left, and three if two cuts are added up.
    That functions treat cuts as places between positions, however many there are, is for whoever
    looks at them to see (`reviewed`). All sizes up to 3, a symbol, and all cuts are tried along one
    axis; along several the orders of axes decide, and sizes up to 2 and a few cuts are tried.
its rank
    An op of the rule accepts no other rank; sizes are symbols.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from stepwell.ir.axes.forms import elementwise
from stepwell.ir.axes.maps import All, Along, AxisMap, Flat, Once, axis_map, lies_the_same
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_movement, is_of
from stepwell.ir.traversal import producers
from stepwell.ir.types import Dim, dims
from stepwell.translate.rules.notation import Computed, Rule
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.validation.rules.atoms import atoms
from stepwell.validation.rules.equality import as_known
from stepwell.validation.rules.instances import Instances
from stepwell.validation.rules.instantiation import RuleProgram
from stepwell.validation.rules.named_axes import lists_axes, named_axes, takes_orders
from stepwell.validation.rules.op_kinds import (
    is_elementwise,
    is_table,
    moves_by_nothing,
    tensors_of,
)
from stepwell.validation.rules.reviewed import reading
from stepwell.validation.rules.rule_terms import is_pointwise, literals, named_callables, repeats

Argument = Literal["", "elementwise", "row-major", "one movement", "axes", "positions", "its rank"]
Pattern = tuple[tuple[int, ...], ...]
_WITNESSES = 2
_SEVERAL_CUTS = 10
"""The least number of instances of one axis from which it is seen that cuts are treated alike."""
_IN_ORDER = frozenset(
    f"aten.{name}"
    for name in """slice.Tensor slice_copy.Tensor expand.default expand_copy.default repeat.default
    broadcast_to.default expand_as.default""".split()
)
"""Ops whose result has every index of an operand's axis in order, or some, or all several times:
with the operand's shape it is the operand.
"""
_OF_PLACES = frozenset(
    ("cmsis.reshape", "tosa_reshape", "quant.store", "quant.reals", "tosa_single")
)
"""Recipes of weights that keep the elements in row-major order."""


@dataclass(frozen=True)
class Requirement:
    """What a conclusion about any rank asks of a rule.

    Attributes:
        least: a rank above those that the rule's functions may tell from others.
        rank: the rank up to which every instance has to be decided, if axes are told apart.
        named: the number of axes that arguments name; None if not all arguments are tried.
        problems: why the rule's functions may tell ranks apart.
    """

    least: int
    rank: int
    named: int | None
    problems: tuple[str, ...]
    reads_sizes: bool = True
    """Whether the rule's functions read sizes."""
    has_orders: bool = False
    """Whether arguments are orders of axes."""
    has_positions: bool = False
    """Whether arguments are positions along axes."""
    has_lists: bool = False
    """Whether arguments are lists of axes, of any length."""
    is_pointwise: bool = False
    """Whether all ops of every form are elementwise, with the instances of `instances` for that."""
    passes_on: bool = False
    """Whether lines after compute no arguments, or the operators are those of an example."""
    is_removal: bool = False
    """Whether every form replaces one op's result by its operand, of the same type."""


def requirement(rewrite: type[RuleRewrite], forms: tuple[Rule, ...]) -> Requirement:
    """Return the rank up to which the instances of some forms of a rule have to be decided."""
    tried = [Instances(rewrite, form) for form in forms]
    counts = [named_axes(each) for each in tried]
    named = None if None in counts else max(count or 0 for count in counts)
    have_axes = not all(map(is_pointwise, forms))
    named_ones = named_callables(rewrite, forms)
    read = reading(named_ones, have_axes=have_axes)
    for form in forms if have_axes else ():
        for number in literals(form):
            read.literal(number)
    least = max(read.named, read.threshold + 1 if read.threshold else 0)
    rank = max(read.named + (named or 0) + _WITNESSES, least)
    problems = sorted(set(read.problems))
    has_positions = any(each.positions for each in tried)
    if (read.reads_sizes or has_positions) and read.largest:
        problems.append(f"sizes may be compared with {read.largest}")
    if any(map(repeats, forms)):
        problems.append("an order of axes may be composed with itself")
    terms = (term for f in forms for line in f.after for _, term in line.arguments)
    are_computed = (isinstance(term, Computed) for term in terms)
    is_family = any(line.is_again for form in forms for line in form.before)
    passes = is_family or not any(are_computed)
    removes = all(len(f.before) == 1 and f.after and f.after[-1].forwards for f in forms)
    return Requirement(
        least=least,
        rank=rank,
        named=named,
        problems=tuple(problems),
        reads_sizes=read.reads_sizes,
        has_lists=any(map(lists_axes, tried)),
        has_orders=any(map(takes_orders, tried)),
        has_positions=has_positions,
        is_pointwise=not have_axes,
        passes_on=passes,
        is_removal=removes,
    )


@dataclass
class Evidence:
    """What the instances of a rule that were decided show about other ranks and sizes."""

    elementwise: bool = True
    row_major: bool = True
    with_any_arguments: bool = True
    """Whether it is in row-major order whatever the arguments of its ops are."""
    one_movement: bool = True
    keeps_positions: bool = True
    """Whether each op passes positions along axes on in their order, one by one."""
    axes: bool = True
    groups: bool = True
    sizes_matter: bool = False
    """Whether an op broadcasts, reshapes, or reads several tensors."""
    is_whole: bool = False
    """Whether all instances up to the required rank were tried."""
    keeps_shape: bool = True
    rank: int = 0
    special: int = 0
    """The largest number of axes that an op does not just pass on."""
    ranks: set[tuple[int, ...]] = field(default_factory=set[tuple[int, ...]])
    """The ranks of the inputs and weights of each instance."""
    along_one: int = 0
    """The number of instances of one axis."""
    has_weights: bool = False
    reads_again: bool = False
    """Whether a side reads an input by several ways, of which the number is not bounded here."""
    symbolic: set[Pattern] = field(default_factory=set[Pattern])
    static: set[Pattern] = field(default_factory=set[Pattern])

    def add(self, written: RuleProgram) -> None:
        """Record the ops of both sides of an instance that was decided."""
        program = written.program
        types = [a.type for a in program.method().body.block.args]
        shapes = [dims(type_) for type_ in types if isinstance(type_, TensorType)]
        held = [op for op in program.module.walk() if isinstance(op, WeightOp)]
        held = [op for op in held if program.weights.recipe_of(op.key.data) is None]
        self.has_weights |= bool(held)
        ranks = [*map(len, shapes), *(len(dims(op.result.type)) for op in held)]
        self.ranks.add(tuple(ranks))
        self.along_one += max(ranks, default=0) == 1
        is_fixed = all(isinstance(size, int) for shape in shapes for size in shape)
        if is_fixed:
            self.static.add(_pattern(shapes))
        if not any(isinstance(size, int) and size != 1 for shape in shapes for size in shape):
            self.symbolic.add(_pattern(shapes))
        for old, new in written.pairs:
            if not isinstance(old.type, TensorType):
                self.elementwise = self.row_major = self.one_movement = self.axes = False
                continue
            self.rank = max(self.rank, len(dims(old.type)))
            reached = producers([old, new])
            ops = [op for op in reached if _computes(op)]
            weights = [op.key.data for op in reached if isinstance(op, WeightOp)]
            keeps = all(_keeps_order(program.weights, key) for key in weights)
            self.elementwise &= keeps and all(map(is_elementwise, ops))
            self.row_major &= keeps and all(map(_is_row_major, ops))
            reshaping = [is_elementwise(op) or is_of(op, "reshape") for op in ops]
            self.with_any_arguments &= all(reshaping)
            self.keeps_shape &= all(map(_keeps_shape, ops))
            self.keeps_positions &= all(map(_keeps_positions, ops))
            self.one_movement &= _moves(old) == _moves(new)
            self.sizes_matter |= any(map(_compares_sizes, ops))
            found = atoms(old, program.weights)
            self.groups &= found is not None and found == atoms(new, program.weights)
            special = [_special(op) for op in ops]
            self.axes &= None not in special
            self.reads_again |= any(map(_reads_again, (old, new)))
            self.special = max(self.special, *(each or 0 for each in special), 0)

    def is_blind(self, asked: Requirement) -> bool:
        """Whether nothing in a rule depends on which sizes are equal, or 1."""
        return not (self.sizes_matter or asked.reads_sizes)

    def needed(self, asked: Requirement) -> int:
        """Return the rank up to which all instances have to be tried: one more if axes are merged,
        for an axis between two that are, and for each axis that ops treat otherwise unasked.
        """
        own = 0 if asked.has_lists else max(0, self.special - (asked.named or 0))
        return asked.rank + own + (not self.axes and not self.row_major)

    def conclude(self, asked: Requirement) -> Argument:
        """Return the argument by which a proved rule holds for any rank and size, if any."""
        tried = max((max(each, default=0) for each in self.ranks), default=0)
        least = min((max(each, default=0) for each in self.ranks), default=0)
        most = max(self.needed(asked), least)
        fixed = {pattern for pattern in self.static if max(map(len, pattern), default=0) <= most}
        if self.groups and self.axes and not asked.reads_sizes:
            fixed = set()  # Axes that are permuted alike are so whatever their sizes are.
        if self.is_blind(asked):
            fixed = {tuple(tuple(range(1, len(s) + 1)) for s in pattern) for pattern in fixed}
        covered = fixed <= self.symbolic and bool(self.symbolic or self.groups)
        if not asked.problems and tried >= asked.least:
            if self.elementwise or asked.is_pointwise:
                return "elementwise"
            if self.one_movement and (asked.passes_on or self.is_whole):
                return "one movement"
            are_tried = self.is_whole and not asked.has_positions
            is_removal = asked.is_removal and self.keeps_shape
            if self.row_major and (self.with_any_arguments or (are_tried and covered)):
                return "row-major"
            if is_removal and (self.is_whole or not asked.has_positions):
                return "row-major"
        if asked.has_positions:
            is_enough = self.is_whole and not asked.problems and tried >= self.needed(asked)
            is_one_by_one = self.axes and self.keeps_positions and not self.reads_again
            is_enough &= self.along_one >= _SEVERAL_CUTS
            return "positions" if is_enough and is_one_by_one and asked.named is not None else ""
        if asked.named is None or not self.is_whole or not covered:
            return ""
        if self.reads_again and (asked.has_lists or asked.has_orders):
            return ""  # Two witnesses tell one way from another, not several from several.
        if (self.axes or self.groups) and not asked.problems and tried >= self.needed(asked):
            return "axes"
        return "its rank" if self.has_one_rank else ""

    @property
    def is_promising(self) -> bool:
        """Whether the side conditions of some argument hold so far."""
        by_ops = self.elementwise or self.row_major or self.one_movement
        return by_ops or self.axes or self.groups or self.has_one_rank

    @property
    def has_one_rank(self) -> bool:
        """Whether ops accepted inputs of one rank alone, though others were tried: an axis more, or
        one less. The ranks of weights are not varied.
        """
        return len(self.ranks) == 1 and not self.has_weights and bool(self.static)


def _pattern(shapes: list[tuple[Any, ...]]) -> Pattern:
    """Return shapes with their sizes numbered in the order in which they first occur; 1 is 0."""
    numbers: dict[Any, int] = {1: 0}
    return tuple(
        tuple(numbers.setdefault(size, len(numbers)) for size in shape) for shape in shapes
    )


def _computes(op: Operation) -> bool:
    return any(isinstance(v.type, TensorType) for v in op.results) and not isinstance(op, WeightOp)


def _keeps_order(weights: Any, key: str) -> bool:
    made = weights.recipe_of(key)
    return made is None or (
        made[0] in _OF_PLACES and all(_keeps_order(weights, k) for k in made[1])
    )


def _shape(value: SSAValue) -> tuple[Dim, ...]:
    return dims(value.type) if isinstance(value.type, TensorType) else ()


def _is_row_major(op: Operation) -> bool:
    """Whether an op keeps the order of elements: with any arguments, or with those that it has."""
    if is_elementwise(op) or is_of(op, "reshape") or moves_by_nothing(op):
        return True
    if is_of(op, "permutation"):
        axes = axis_map(op)
        order = None if axes is None else axes.order_after(0, tuple(range(len(axes.shape))))
        return order is not None and lies_the_same(_shape(op.operands[0]), order)
    return False


def _keeps_shape(op: Operation) -> bool:
    """Whether an op takes or repeats elements along axes, in order, and has its operand's shape."""
    return op.name in _IN_ORDER and _shape(op.operands[0]) == dims(op.results[0].type)


def _reads_again(value: SSAValue) -> bool:
    """Whether elements of an input reach a value by several sequences of ops that are not
    elementwise.
    """
    known: dict[SSAValue, frozenset[tuple[Any, ...]]] = {}

    def ways(each: SSAValue) -> frozenset[tuple[Any, ...]]:
        if each not in known:
            op = each.owner
            if not isinstance(op, Operation) or isinstance(op, WeightOp):
                known[each] = frozenset(((each,),))
            else:
                own = () if is_elementwise(op) else (op,)
                below = [way for operand in tensors_of(op) for way in ways(operand)]
                known[each] = frozenset((*way, *own) for way in below)
        return known[each]

    counted = Counter(way[0] for way in ways(value))
    return any(count > 1 for count in counted.values())


def _moves(value: SSAValue) -> tuple[Any, ...]:
    """Return the ops behind a value as a tree, without what is computed for each element: it
    commutes with movements. Any other op stands for itself, on its very operands.
    """
    op = value.owner
    if not isinstance(op, Operation):
        return (value,)
    if isinstance(op, WeightOp):
        return (op.key.data,)
    several = [v for v in tensors_of(op) if not _is_one_constant(v) or len(tensors_of(op)) == 1]
    if is_elementwise(op) and len(several) == 1:
        return _moves(several[0])
    name, operands, fields = as_known(op, op.results.index(value))  # pyright: ignore[reportArgumentType]
    if is_movement(op):
        return name, fields, *(_moves(v) if v is not None else v for v in operands)
    return name, fields, *operands


def _is_one_constant(value: SSAValue) -> bool:
    """Whether a value is one element that depends on no tensor."""
    owner = value.owner
    return set(_shape(value)) <= {1} and not (isinstance(owner, Operation) and tensors_of(owner))


def _links(op: Operation) -> AxisMap | None:
    found = axis_map(op)
    if found is None and is_of(op, "elementwise"):
        shape, tensors = dims(op.results[0].type), tensors_of(op)
        if all(len(dims(value.type)) <= len(shape) for value in tensors):
            return elementwise(op, len(tensors))
    return found


def _keeps_positions(op: Operation) -> bool:
    """Whether an op passes the positions along each axis on in their order, without steps."""
    axes = _links(op)
    if is_of(op, "factory") or op.name in ("aten.select.int", "aten.select_copy.int"):
        return True
    pairs = zip(op.operands, axes.links, strict=True) if axes else ()
    held = [links for value, links in pairs if isinstance(value.type, TensorType)]
    links = [link for each in held for link in ((None,) if each is None else each)]
    return axes is not None and all(
        isinstance(link, Once) or (isinstance(link, Along) and link.stride == link.reach == 1)
        for link in links
    )


def _compares_sizes(op: Operation) -> bool:
    """Whether what an op does may depend on which sizes are equal, or 1."""
    axes = _links(op)
    links = [link for each in (axes.links if axes else (None,)) for link in each or (None,)]
    is_plain = all(isinstance(link, Along | All) for link in links)
    return len(tensors_of(op)) != 1 or not (is_plain or not _shape(op.operands[0]))


def _special(op: Operation) -> int | None:
    """Return with how many axes of operands an op does more than to pass them on; None if its axis
    map does not say it axis by axis.
    """
    if is_of(op, "factory") and not tensors_of(op):
        return 0
    axes = _links(op)
    if axes is None:
        return None
    mixed = set[int]()
    for value, links in zip(op.operands, axes.links, strict=True):
        if not isinstance(value.type, TensorType) or is_table(op, value):
            continue
        if _is_one_constant(value) and links is None:
            continue
        if links is None:
            return None
        for axis, link in enumerate(links):
            match link:
                case Once() | Flat(sources=(_,), targets=(_,)):
                    pass
                case Along(reach=1) | All():
                    if not isinstance(link, Along) or not link.is_plain:
                        mixed.add(axis)
                case _:
                    return None
    return len(mixed)

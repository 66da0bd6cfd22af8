"""Model tensors for the solver as functions of an index, from the declarations of ops.

An op's `@means` defines the element, its axis map defines which elements of operands it reads, and
its family states that it is data movement. Sizes may be symbolic: an index is an integer of the
solver, and a reduction over an axis of symbolic size has a bound index. Data movement whose map
does not name one element is resolved by running it on the indices of the elements, if sizes are
static.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

import stepwell.dialects.reduction_semantics  # noqa: F401  # pyright: ignore[reportUnusedImport]
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.op_text import is_repeatable
from stepwell.ir.axes.maps import Along, AxisMap, Flat, Links, Once, axis_map
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_movement, is_of
from stepwell.ir.declared.interpretation import Interpreter, rule_for
from stepwell.ir.declared.scalar_semantics import meaning
from stepwell.ir.dtypes import f64, i1, i64, torch_dtype
from stepwell.ir.sizes.size import Size, number_of
from stepwell.ir.types import BoolType, FloatType, IntType, dims, element, is_static
from stepwell.ir.weights import WeightStore
from stepwell.validation.rules.equality import UNROUNDED, as_known, unrounded
from stepwell.validation.rules.expressions import Expression, Index, held_as
from stepwell.validation.rules.numbers import Symbolic, Tokens, Unproven
from stepwell.validation.rules.op_kinds import FILLS, is_elementwise, moves_by_nothing, tensors_of
from stepwell.validation.rules.reals import Reals
from stepwell.validation.rules.recipes import OFFSET, element_of_weight, numbered
from stepwell.validation.rules.scalars import Domain, Typed
from stepwell.validation.rules.solver import z3

_MOST_PLACES = 4096
_MOST_ROWS = 8
"""The limit of rows of a table that are tried one by one; an index outside the table is no
program.
"""
_WRITES = frozenset(("tosa.scatter",))
"""Ops that move elements to indices in another operand."""
_OF_WINDOWS = frozenset(("aten.convolution.default",))
"""Reductions that are treated as one function of their operands, because no map defines which
elements they read.
"""
_NUMBERS: dict[type[Attribute], Attribute] = {FloatType: f64, BoolType: i1, IntType: i64}
"""The element types of runtime numbers."""
_RANKINGS = frozenset(("aten.topk.default", "aten.sort.default"))


@dataclass
class Fold:
    """A constant of the solver that represents the result of a reduction; provably equal reductions
    share it.
    """

    function: str
    body: Any
    counts: tuple[Any, ...]
    value: Any


@dataclass
class Tensors:
    """The elements of values, in a domain.

    Attributes:
        domain, tokens, weights: the scalars' domain, expressions' tokens, the program's weights.
    """

    domain: Domain
    tokens: Tokens
    weights: WeightStore
    relative: float = 0.0
    absolute: float = 0.0
    """The absolute error bound of a rule over the reals."""
    names: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    sizes: dict[str, Any] = field(default_factory=dict[str, Any])
    inputs: dict[str, tuple[Any, Typed]] = field(default_factory=dict[str, Any])
    folds: list[Fold] = field(default_factory=list[Fold])
    elements: dict[int, Any] = field(default_factory=dict[int, Any])
    """The elements of inputs that were used."""
    ranges: list[Any] = field(default_factory=list[Any])
    """Facts about the indices in the program."""
    is_rank_free: bool = True
    has_symbols: bool = False
    weight_names: set[str] = field(default_factory=set[str])
    maps_alone: bool = False
    """Whether the caller resolves indices that no map names."""
    _unrounded: dict[Operation, SSAValue] = field(default_factory=dict[Operation, SSAValue])
    _known: dict[tuple[Any, ...], Typed] = field(default_factory=dict[Any, Typed])
    _parts: dict[Any, Any] = field(default_factory=dict[Any, Any])
    _places: dict[tuple[Operation, int], Any] = field(default_factory=dict[Any, Any])

    # -- sizes and indices -------------------------------------------------------------------

    def size(self, dim: Any) -> Any:
        """Return a dimension of a tensor type as an integer term of Z3."""
        if isinstance(dim, int):
            return z3.IntVal(dim)
        self.has_symbols = True
        if not isinstance(dim, Size):
            raise Unproven("a size of which nothing is known")
        total = z3.IntVal(0)
        for monomial, factor in dim.terms:
            part = z3.IntVal(factor)
            for atom, power in monomial:
                for _ in range(power):
                    part = part * self._atom(str(atom))
            total = total + part
        return z3.simplify(total)

    def _atom(self, name: str) -> Any:
        if not name.isidentifier():
            raise Unproven(f"the size {name}")
        if name not in self.sizes:
            made = self.sizes[name] = z3.Int(name)
            self.domain.facts.append(made >= 1)
        return self.sizes[name]

    def index_of(self, value: SSAValue) -> Index:
        """Return a symbolic index of an arbitrary element of a value."""
        found: list[Any] = []
        for axis, dim in enumerate(dims(value.type)):
            if dim == 1:
                found.append(z3.IntVal(0))
                continue
            at = z3.Int(f"i{axis}")
            self.ranges += [at >= 0, at < self.size(dim)]
            found.append(at)
        return tuple(found)

    # -- elements ----------------------------------------------------------------------------

    def at(self, value: SSAValue, index: Index) -> Typed:
        """Return the term for a value's element at an index."""
        index = tuple(z3.simplify(each) for each in index)
        key = (value, *(each.get_id() for each in index))
        if key not in self._known:
            self._known[key] = self._element(value, index)
            self._parts[key] = index  # Keeps the terms alive, so that their ids are not reused.
        return self._known[key]

    def _element(self, value: SSAValue, index: Index) -> Typed:
        owner = value.owner
        if isinstance(owner, WeightOp):
            return element_of_weight(self, owner, index)
        if not isinstance(owner, Operation) or value in self.names:
            return self.of_input(value, index)
        number = owner.results.index(value)  # pyright: ignore[reportArgumentType]
        if is_movement(owner) or is_of(owner, "padding", "lookup") or owner.name in _WRITES:
            return self._moved(owner, number, index)
        if owner.name == "cmsis.quantized_activation":
            place = self._whole(self.at(owner.operands[0], index)) + OFFSET
            return self.at(owner.operands[1], (place,))
        if owner.name in _RANKINGS and dims(value.type) == dims(owner.operands[0].type):
            place = self._of_one(owner, number, index)
            if place is not None:
                return place
        if owner.name in FILLS:
            assert isinstance(owner, SchemaOp)
            of = held_as(value.type)
            forced = None if owner.operands else of
            return Expression(self, owner, index, forced).result(owner.arg(FILLS[owner.name]))
        if not self.domain.is_exact and owner.name in UNROUNDED:
            if owner not in self._unrounded:
                self._unrounded[owner] = unrounded(owner)
            return self.at(self._unrounded[owner], index)
        said = meaning(owner) if number == 0 else None
        is_mapped = axis_map(owner) is not None or is_of(owner, "elementwise")
        if said is not None and said.element is not None and is_mapped:
            if owner.name in _OF_WINDOWS:
                with suppress(Unproven):
                    return Expression(self, owner, index).result(said.element)
                return self.opaque(owner, number, index)
            return Expression(self, owner, index).result(said.element)
        return self.opaque(owner, number, index)

    def _of_one(self, op: Operation, number: int, index: Index) -> Typed | None:
        """Return the result of a `topk` or `sort` over one element: the element, and its index."""
        assert isinstance(op, SchemaOp)
        shape = dims(op.operands[0].type)
        if shape and shape[op.arg("dim")] != 1:
            return None
        return (
            Typed(self.domain.constant(0, i64), i64) if number else self.at(op.operands[0], index)
        )

    def of_input(self, value: SSAValue, index: Index) -> Typed:
        """Return an element of an arbitrary tensor."""
        of = held_as(value.type)
        if value not in self.names:
            self.names[value] = f"x{len(self.names)}"
        sorts = [z3.IntSort() for _ in index]
        made = self.domain.function(self.names[value], *sorts, self.domain.sort(of))
        found = made(*index) if index else made()
        self.elements[found.get_id()] = found
        return Typed(found, of)

    def opaque(self, op: Operation, number: int, index: Index) -> Typed:
        """Return an element of an op's result as an uninterpreted function of its operands and
        arguments.
        """
        name, operands, fields = as_known(op, number)
        if any(isinstance(v, SSAValue) and v.owner is op for v in operands):
            raise Unproven(f"{op.name} has no meaning")
        of = held_as(op.results[number].type)
        tensors = tensors_of(op)
        held = [v for v in operands if v is not None]
        is_scalar = is_elementwise(op) and is_repeatable(op) and len(held) == len(op.operands)
        if is_scalar and {dims(v.type) for v in tensors} == {dims(op.results[number].type)}:
            each = [self.at(v, index) if v in tensors else self.scalar(v) for v in held]
            types = [v and (element(v.type) if v in tensors else v.type) for v in operands]
            sorts = [self.domain.sort(typed.of) for typed in each]
            said = f"{name}({', '.join(map(str, types))}; {fields}) -> "
            said += str(element(op.results[number].type))
            scalar = self.domain.function(said, *sorts, self.domain.sort(of))
            return Typed(scalar(*(typed.term for typed in each)), of)
        key = f"{name}({', '.join(map(self._named, operands))}; {fields})"
        sorts = [z3.IntSort() for _ in index]
        made = self.domain.function(key, *sorts, self.domain.sort(of))
        self.is_rank_free = False
        return Typed(made(*index) if index else made(), of)

    def _named(self, value: SSAValue | None) -> str:
        if value is None:
            return "none"
        self._parts[value] = value
        return str(id(value))

    def scalar(self, value: SSAValue) -> Typed:
        """Return the term of a runtime number."""
        of = _NUMBERS.get(type(value.type))
        if of is None:
            raise Unproven(f"{value.type} is no number")
        if value not in self.names:
            self.names[value] = f"n{len(self.names)}"
        return Typed(z3.Const(self.names[value], self.domain.sort(of)), of)

    # -- movements ---------------------------------------------------------------------------

    def _moved(self, op: Operation, number: int, index: Index) -> Typed:
        """Return the element that data movement puts at an index."""
        self.is_rank_free = False
        if moves_by_nothing(op):
            return self.at(op.operands[0], index)
        if is_of(op, "lookup") or op.name in _WRITES:
            return self._looked_up(op, index)
        axes = axis_map(op, number)
        tensors = tensors_of(op)
        reads_one = len(tensors) == 1 or op.name == "aten.expand_as.default"
        if axes is not None and not is_of(op, "padding") and reads_one:
            places = self._mapped(axes, 0, index)
            if places is not None:
                return self.at(tensors[0], places)
        return self._by_running(op, number, index)

    def _mapped(self, axes: AxisMap, operand: int, index: Index) -> Index | None:
        """Return the single index that an axis map names; None if it names several, or none."""
        links: Links | None = axes.links[operand]
        if links is None:
            return None
        found: list[Any] = []
        for axis, link in enumerate(links):
            match link:
                case Along(axis=at, stride=stride, offset=offset, reach=1):
                    found.append(index[at] * stride + offset)
                case Once():
                    found.append(z3.IntVal(0))
                case Flat(sources=sources, targets=targets):
                    group = self._unflattened(
                        [(self.size(axes.shape[t]), index[t]) for t in targets],
                        [self.size(axes.shapes[operand][s]) for s in sources],
                    )
                    found.append(group[sources.index(axis)])
                case _:
                    return None
        return tuple(found)

    def _unflattened(self, given: list[tuple[Any, Any]], sizes: list[Any]) -> list[Any]:
        """Return the indices, along axes of some sizes, of the element at other indices."""
        flat = z3.IntVal(0)
        for size, at in given:
            flat = flat * size + at
        flat = z3.simplify(flat)
        if len(sizes) == 1:
            return [flat]
        if all(z3.is_int_value(size) for size in sizes):
            found: list[Any] = []
            for size in reversed(sizes[1:]):
                found.append(z3.simplify(flat % size))
                flat = z3.simplify(flat / size)
            return [flat, *reversed(found)]
        key = ("flat", flat.get_id(), *(size.get_id() for size in sizes))
        if key not in self._parts:
            made = [z3.FreshInt("u") for _ in sizes]
            whole = z3.IntVal(0)
            for size, at in zip(sizes, made, strict=True):
                self.ranges += [at >= 0, at < size]
                whole = whole * size + at
            self.ranges.append(whole == flat)
            self._parts[key] = (made, flat, sizes)
        return self._parts[key][0]

    def _by_running(self, op: Operation, number: int, index: Index) -> Typed:
        """Return the element that data movement puts at an index, by running on index numbers."""
        shape = dims(op.results[number].type)
        if not all(isinstance(size, int) for size in shape):
            raise Unproven(f"which element {op.name} moves is not said for symbolic sizes")
        if self.maps_alone and not all(map(z3.is_int_value, index)):
            raise Unproven(f"{op.name}: which element it moves is not said by its map")
        if (op, number) not in self._places:
            self._places[op, number] = self._table(op, number)
        places = self._places[op, number]
        at = 0
        for size, each in zip(shape, index, strict=True):
            if not z3.is_int_value(each):
                return self._at_any(op, number, index)
            at = at * int(size) + each.as_long()  # pyright: ignore[reportArgumentType]
        kind, *where = places[at]
        if kind == "number":
            of = held_as(op.results[number].type)
            return Typed(self.domain.constant(self._plain(where[0]), of), of)
        value, inner = where
        return self.at(value, tuple(map(z3.IntVal, inner)))

    def _plain(self, number: Any) -> Any:
        lifted = self.tokens.lifted(number)
        if isinstance(lifted, float) and not isinstance(lifted, Symbolic) and lifted.is_integer():
            lifted = self.tokens.whole.get(int(lifted), lifted)
        return lifted.node if isinstance(lifted, Symbolic) else lifted

    def _at_any(self, op: Operation, number: int, index: Index) -> Typed:
        """Return a case distinction over an unknown index of a small tensor."""
        shape = [int(size) for size in dims(op.results[number].type)]  # pyright: ignore[reportArgumentType]
        found: Typed | None = None
        grid = list(torch.cartesian_prod(*(torch.arange(s) for s in shape)).reshape(-1, len(shape)))
        for each in grid:
            place = each.tolist()
            here = self._by_running(op, number, tuple(map(z3.IntVal, place)))
            is_it = z3.And(*(a == b for a, b in zip(index, place, strict=True)))
            found = here if found is None else Typed(z3.If(is_it, here.term, found.term), here.of)
        assert found is not None
        return found

    def _table(self, op: Operation, number: int) -> list[tuple[Any, ...]]:
        """Return each element's source: ("place", operand, index) or ("number", the constant)."""
        if rule_for(type(op)) is None:
            raise Unproven(f"{op.name} cannot be run")
        for value in op.operands:
            if not isinstance(value.type, TensorType):
                raise Unproven(f"{op.name} of numbers that are known at run time")
            if not is_static(value.type):
                raise Unproven(f"which element {op.name} moves is not said for symbolic sizes")
            if (count := math.prod(map(number_of, dims(value.type)))) > _MOST_PLACES:
                raise Unproven(f"{op.name} of {count} elements")
        constants = [self._constant(value) for value in op.operands]
        moving = [v for v, held in zip(op.operands, constants, strict=True) if held is None]
        numbers, where = numbered([[*map(number_of, dims(v.type))] for v in moving])
        given = [numbers.pop(0) if held is None else held for held in constants]
        runs: list[Any] = []
        for offset in (1, len(where) + 1 if len(where) < 60 else 3):
            made = self._run(op, given, offset)[number]
            runs.append((made.reshape(-1).tolist(), offset))
        (first, one), (second, other) = runs
        found: list[tuple[Any, ...]] = []
        for a, b in zip(first, second, strict=True):
            if a == b or not (0 <= a - one < len(where)) or a - one != b - other:
                if a != b and a == a:
                    raise Unproven(
                        f"{op.name} of {held_as(op.results[number].type)}: places are lost"
                    )
                found.append(("number", a))
            else:
                number_, place = where[int(a - one)]
                found.append(("place", moving[number_], place))
        return found

    def _run(self, op: Operation, given: list[Any], offset: int) -> Sequence[Any]:
        """Run an op on tensors of index numbers: as integers, else in the op's own types."""
        rule = rule_for(type(op))
        assert rule is not None
        refused: Exception | None = None
        for plain in (False,) if is_of(op, "padding") else (True, False):
            operands = [
                (g + offset).to(torch.int64 if plain else torch_dtype(held_as(v.type)))
                if self._constant(v) is None
                else g
                for g, v in zip(given, op.operands, strict=True)
            ]
            try:
                return rule(op, operands, Interpreter(self.weights))
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                refused = error
        raise Unproven(f"{op.name} cannot be run on the numbers of places: {refused}")

    def _constant(self, value: SSAValue) -> Any:
        """Return the content of a constant list of sizes; None for a tensor of elements."""
        owner = value.owner
        if isinstance(owner, Operation) and owner.name in ("tosa.const_shape", "tosa.const"):
            rule = rule_for(type(owner))
            return None if rule is None else rule(owner, [], Interpreter(self.weights))[0]
        return None

    def _looked_up(self, op: Operation, index: Index) -> Typed:
        """Return an operand's element at an index that another tensor contains (a gather)."""
        if op.name == "aten.embedding.default":
            rows = len(dims(op.operands[1].type))
            at = self.at(op.operands[1], index[:rows])
            table = op.operands[0]
            count = dims(table.type)[0]
            is_short = isinstance(count, int) and 1 <= count <= _MOST_ROWS
            if not isinstance(count, int) or not is_short or not isinstance(table.owner, WeightOp):
                return self.at(table, (self._whole(at), *index[rows:]))
            found = self.at(table, (z3.IntVal(count - 1), *index[rows:]))
            for row in range(count - 1):
                here = self.at(table, (z3.IntVal(row), *index[rows:]))
                found = Typed(z3.If(at.term == row, here.term, found.term), found.of)
            return found
        if op.name == "tosa.gather":
            n, w, c = index
            return self.at(op.operands[0], (n, self._whole(self.at(op.operands[1], (n, w))), c))
        if op.name == "tosa.scatter":
            return self._scattered(op, index)
        return self.opaque(op, 0, index)

    def _scattered(self, op: Operation, index: Index) -> Typed:
        """Return the element that a scatter writes to a row; TOSA forbids two writes to one row."""
        values, indices, given = op.operands
        n, k, c = index
        count = dims(indices.type)[1]
        if not isinstance(count, int):
            raise Unproven("rows are written to as many places as a symbolic size says")
        found = self.at(values, index)
        for row in range(count):
            is_it = self._whole(self.at(indices, (n, z3.IntVal(row)))) == k
            here = self.at(given, (n, z3.IntVal(row), c))
            found = Typed(z3.If(is_it, here.term, found.term), found.of)
        return found

    def _whole(self, value: Typed) -> Any:
        return z3.BV2Int(value.term, is_signed=True)

    # -- folds -------------------------------------------------------------------------------

    @property
    def finite(self) -> list[Any]:
        """Return solver facts that inputs, sums and extrema are finite, if the type's limit is a
        constant.
        """
        if not isinstance(self.domain, Reals):
            return []
        terms = [fold.value for fold in self.folds] + list(self.elements.values())
        reals = [term for term in terms if z3.is_real(term)]
        found: list[Any] = []
        greatest = self.domain.greatest
        if self.domain.has_infinity:
            found += [z3.And(-greatest < term, term < greatest) for term in reals]
        if self.domain.largest is not None:
            limit = self.domain.constant(self.domain.largest, f64)
            found += [z3.And(-limit <= term, term <= limit) for term in reals]
            found += [greatest > limit] if self.domain.has_infinity else []
        return found

    def folded(
        self, function: str, body: Any, counts: Sequence[Any], same: Callable[[Any, Any], bool]
    ) -> Any:
        """Return the constant of a reduction: the same one for all provably equal reductions."""
        for known in self.folds:
            if known.function == function and len(known.counts) == len(counts):
                pairs = zip(known.counts, counts, strict=True)
                if all(same(a, b) for a, b in pairs) and same(known.body, body):
                    return known.value
        value = z3.FreshConst(body.sort(), function)
        self.folds.append(Fold(function, body, tuple(counts), value))
        return value

    @cached_property
    def equal(self) -> Callable[[Any, Any], bool]:
        """Whether two terms are provably equal."""

        def same(one: Any, other: Any) -> bool:
            if one.sort() != other.sort():
                return False
            if one.eq(other):
                return True
            solver = z3.Solver()
            solver.set("rlimit", 200_000)
            solver.add(*self.domain.facts, *self.ranges, *self.finite, one != other)
            return solver.check() == z3.unsat

        return same

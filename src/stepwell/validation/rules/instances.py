"""Enumerate the instances of a rule: shapes, element types and arguments that cover every case.

Numbers and elements stay symbolic. Sizes do, too: different, equal, or 1. The enumerated cases are
ranks, the ways in which sizes are equal or 1, element types, and arguments of other kinds. Up to
the rank on which a conclusion about any rank rests (`any_rank`), all of them are tried; up to rank
4, a sample. If all ops of a rule are elementwise, one axis represents any number of axes, because
broadcasting acts on each axis independently.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice, permutations, product
from math import prod
from typing import Any

from xdsl.ir import Attribute

from stepwell.ir import dtypes
from stepwell.ir.declared.families import families_of
from stepwell.ir.dtypes import f16, f32, f64, i32
from stepwell.ir.sizes.size import Dim, Size
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.rules.compiling import named_arguments, operator
from stepwell.translate.rules.examples import inputs_of, meant, optional_of
from stepwell.translate.rules.notation import (
    WEIGHT,
    Hole,
    Rule,
    TypePattern,
    ValueName,
)
from stepwell.translate.rules.operators import Parameter, SchemaOperator
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.validation.rules.named_axes import (
    AXES,
    ORDERS,
    POSITIONS,
    has_views,
    holds_positions,
    repeated,
)
from stepwell.validation.rules.numbers import Unknown
from stepwell.validation.rules.patterns import (
    FAR,
    MOST_SIGNED,
    SIZES,
    as_arguments,
    broadcasting,
    holes_of,
    is_list_of_ints,
    is_tensor,
    kinds_of,
    patterns,
    positions,
    repetitions,
    signed,
    some_orders,
    symbolic,
    views_of,
)
from stepwell.validation.rules.rule_terms import is_pointwise

SOME = 3
"""The size of the only axis of elementwise ops; it is arbitrary, because elements do not depend on
it.
"""
Dims = Dim | tuple[Dim, ...]
"""What an axis of the example becomes: one of another size, or several."""
_OF_BASES: dict[str, list[Any]] = {
    "bool": [False, True],
    "ScalarType": [f32, f16, f64, i32],
    "MemoryFormat": ["torch.contiguous_format", "torch.channels_last"],
}
_DEFAULT = object()
"""Marks an argument after `…` that is omitted."""
MOST, ALL = 8, 50_000
"""The number of choices of arguments tried for one shape; if there are more, they are sampled
evenly. `ALL` is for shapes on which a conclusion about any rank rests.
"""


@dataclass(frozen=True)
class Instance:
    """A rule's form with values for its types and arguments.

    Attributes:
        given: the types of values, and the assigned values of the rule's holes.
        unstated: arguments that `…` leaves open, by the name of the line's result.
        is_partial: whether not all arguments for this shape are tried.
    """

    rule: Rule
    given: dict[str, Any]
    is_pointwise: bool
    is_partial: bool = False

    def __str__(self) -> str:
        texts = {
            n: f"any {'int' if v.is_int else 'float'}"
            for n, v in self.given.items()
            if isinstance(v, Unknown)
        }
        return ", ".join(f"{n} = {texts.get(n, v)}" for n, v in self.given.items())


class Instances:
    """The instances of one form of a rule."""

    def __init__(
        self,
        rewrite: type[RuleRewrite],
        rule: Rule,
        as_example: bool = False,
        whole: int | None = None,
        is_blind: bool = False,
        is_far: bool = False,
    ) -> None:
        """Enumerate the instances of one form of a rule.

        Args:
            rewrite, rule: the rule and its form.
            as_example: whether to try only shapes like the example's.
            whole: a rank up to which to yield all arguments, with all patterns of sizes.
            is_blind: whether nothing in the rule depends on sizes, so that different ones suffice.
            is_far: whether to yield a few instances of high ranks, with numbers as sizes.
        """
        self.is_blind, self.is_far = is_blind, is_far
        self.whole = whole
        self._of_inputs: list[tuple[Dim, ...]] = []
        self.rewrite, self.rule, self.as_example = rewrite, rule, as_example
        self.example = {name: meant(value) for name, value in rule.example.items()}
        self.pointwise = is_pointwise(rule)
        self.optional = [n for n in optional_of(rule) if self.example.get(n) is not None]
        self.inputs = [*inputs_of(rule), *self.optional]
        self.repeated = dict(repeated(rewrite, rule))
        self.patterns = {name: self._pattern(name) for name in self.inputs}
        self.positions = frozenset(
            name
            for name, (parameter, *_) in self.arguments().items()
            if (parameter.name in POSITIONS or parameter.is_value) and name not in self.repeated
        )

    def __iter__(self) -> Iterator[Instance]:
        for types, most in self._types():
            shapes = [dims(v) for v in types.values() if is_tensor(v)]
            shape = max(shapes, key=len, default=())
            self._of_inputs = shapes
            arguments = self.arguments()
            choices = [
                self._led(name, self._choices(name, kind, len(shape), shape))
                for name, kind in arguments.items()
            ]
            step = max(1, -(-prod(map(len, choices)) // most))
            for picked in islice(product(*choices), 0, None, step):
                chosen = zip(arguments, picked, strict=True)
                given = types | {name: value for name, value in chosen if value is not _DEFAULT}
                if sum(isinstance(v, Unknown) and v.is_late for v in given.values()) > 1:
                    continue  # With two runtime numbers, the semantics do not tell them apart.
                yield Instance(self.rule, given, self.pointwise, step > 1)

    def _led(self, name: str, choices: list[Any]) -> list[Any]:
        """Return the values to try for an argument of an op in the pattern. With the shapes of the
        rule's example, the example's own value comes first.
        """
        if not (self.as_example or self.is_templated) or name not in self.example:
            return choices
        own = self.example[name]
        alike = [each for each in choices if type(each) is type(own) and each == own]
        return [*alike[:1], *(each for each in choices if each not in alike)]

    # -- types -------------------------------------------------------------------------------

    def _pattern(self, name: str) -> Any:
        """Return the rule's type pattern of an input."""
        for line in self.rule.before:
            if line.op == WEIGHT:
                continue
            terms: list[Any] = [term for _, term in line.arguments]
            if not line.is_again:
                known = operator(line, self.rule)
                written = named_arguments(line, known, self.rule)
                terms = [written.get(p.name) for p in known.values]
            for index, term in enumerate(terms):
                if term == ValueName(name) and index < len(line.operand_types):
                    return line.operand_types[index]
        return None

    def _types(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield types of the inputs, and the number of argument choices to try for each."""
        if self.as_example or self.is_templated:
            most = MOST if self.whole is None else ALL
            yield from ((types, most) for types in self._templated() if not self.is_far)
            return
        shapes = dict.fromkeys(self._shape_keys())
        kinds = dict.fromkeys(self._element_keys())
        plain: dict[str, Attribute] = dict.fromkeys(kinds, f32)
        for sizes in self._shapes(list(shapes)):
            yield self._typed(sizes, plain), MOST if self.whole is None else ALL
        if self.whole is not None or self.is_far:
            return
        for rank in (1, 0) if len(kinds) > 1 else (1,):
            sizes: dict[str, tuple[Dim, ...]] = {
                key: (SOME,) * (1 if at == 0 else rank) for at, key in enumerate(shapes)
            }
            for given in kinds_of(list(kinds)):
                yield self._typed(sizes, given), 2

    def _shape_keys(self) -> Iterator[str]:
        for name in self.inputs:
            pattern = self.patterns[name]
            if isinstance(pattern, TypePattern):
                assert isinstance(pattern.rest, Hole)
                yield f"*{pattern.rest.name}"
            else:
                yield f"*{pattern.name}" if isinstance(pattern, Hole) else f"*{name}"

    def _element_keys(self) -> Iterator[str]:
        for name in self.inputs:
            pattern = self.patterns[name]
            if isinstance(pattern, TypePattern) and isinstance(pattern.element, Hole):
                yield pattern.element.name
            elif not isinstance(pattern, TypePattern):
                yield f"{pattern.name if isinstance(pattern, Hole) else name}.of"

    @cached_property
    def is_templated(self) -> bool:
        """Whether the rule's example relates shapes in a way that the rule's types do not state."""
        lines = (*self.rule.beside, *self.rule.before)
        if any(line.op == WEIGHT for line in lines) or self.rule.root.family:
            return True
        for name in self.inputs:
            pattern = self.patterns[name]
            if isinstance(pattern, TypePattern) and (pattern.sizes or pattern.rest is None):
                return True
            if isinstance(pattern, Hole) and self.example.get(pattern.name) is not None:
                return True
        if any(isinstance(v, Attribute) and "quant" in str(v) for v in self.example.values()):
            return True
        return len(set(self._shape_keys())) > 1 and not self.pointwise

    def _typed(
        self, sizes: dict[str, tuple[Dim, ...]], kinds: dict[str, Attribute]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self.inputs:
            pattern = self.patterns[name]
            if isinstance(pattern, TypePattern):
                assert isinstance(pattern.rest, Hole)
                shape = sizes[f"*{pattern.rest.name}"]
                found[pattern.rest.name] = list(shape)
                if isinstance(pattern.element, Hole):
                    of = found[pattern.element.name] = kinds[pattern.element.name]
                else:
                    of = getattr(dtypes, str(pattern.element))
            else:
                key = pattern.name if isinstance(pattern, Hole) else name
                shape, of = sizes[f"*{key}"], kinds[f"{key}.of"]
                if isinstance(pattern, Hole):
                    found[key] = tensor(shape, of)
            found[name] = tensor(shape, of)
        return found

    def _shapes(self, keys: list[str]) -> Iterator[dict[str, tuple[Dim, ...]]]:
        if self.is_far:
            yield from (dict.fromkeys(keys, shape) for shape in FAR)
            return
        if self.pointwise:
            for picked in product([(SOME,), (1,), ()], repeat=len(keys)):
                yield dict(zip(keys, picked, strict=True))
            yield dict.fromkeys(keys, (Size.symbol("n"),))
            return
        if self.whole is not None:
            for rank in range(self.whole + 1):
                if self.positions:
                    few = (1, 2, 3, None) if rank == 1 else (1, 2, None)
                    for shape in product(few, repeat=rank):
                        named = (s or Size.symbol(f"n{at}") for at, s in enumerate(shape))
                        yield dict.fromkeys(keys, tuple(named))
                    continue
                different = [tuple(range(1, rank + 1))]
                for blocks in different if self.is_blind else patterns(rank):
                    yield dict.fromkeys(keys, symbolic(blocks))
                    if has_views(self.rule):
                        yield dict.fromkeys(keys, tuple(number + 1 for number in blocks))
            return
        for blocks in SIZES:
            yield dict.fromkeys(keys, tuple(b + 1 for b in blocks))
            if blocks in ((1, 2), (1, 1), (1, 2, 3)):
                yield dict.fromkeys(keys, symbolic(blocks))

    def _templated(self) -> Iterator[dict[str, Any]]:
        """Yield the example's types, also with symbolic sizes and with sizes of 1."""
        yield self._of_example({})
        sizes = {s for v in self._of_example({}).values() if is_tensor(v) for s in dims(v)}
        known = sorted(size for size in sizes if isinstance(size, int) and size > 1)
        symbols: dict[int, Dims] = {size: Size.symbol(f"n{size}") for size in known}
        yield self._of_example(symbols)
        for size in known:
            yield self._of_example({size: 1})
            yield self._of_example({size: symbols[size]})
            yield self._of_example(dict.fromkeys(known, size))
        if self.whole is not None:
            yield from self._varied(symbols)

    def _varied(self, symbols: dict[int, Dims]) -> Iterator[dict[str, Any]]:
        """Yield types like the example's with other patterns of symbolic sizes, and with each axis
        doubled or left out, as far as ops accept it.
        """
        repeats = any("repetition" in families_of(line.op) for line in self.rule.before)
        if repeats and len(self.inputs) > 1 and not any(self.patterns.values()):
            kinds = {name: element(self._of_example({})[name]) for name in self.inputs}
            for shapes in broadcasting(len(kinds), self.whole or 0):
                pairs = zip(kinds.items(), shapes, strict=True)
                yield {name: tensor(shape, kind) for (name, kind), shape in pairs}
        yield self._of_example({1: Size.symbol("n1"), **symbols})
        yield self._of_example(dict.fromkeys(symbols, Size.symbol("n")))
        for size, one in symbols.items():
            yield self._of_example({**symbols, size: 1})
            other = Size.symbol("m")
            assert isinstance(one, Size)
            for several in () if self.rule.lies else ((), (one, other), (other, 1, one)):
                of_size: dict[int, Dims] = {**symbols, size: several}
                yield self._of_example(of_size)
        for name in self.inputs[1:]:
            whole = self._of_example(symbols)
            shape = dims(whole[name])
            for at in range(len(shape)):
                for other in (shape[at + 1 :], (*shape[:at], 1, *shape[at + 1 :])):
                    yield {**whole, name: tensor(other, element(whole[name]))}

    def _of_example(self, sizes: Mapping[int, Dims]) -> dict[str, Any]:
        def resized(shape: Sequence[Dim]) -> list[Dim]:
            found: list[Dim] = []
            for size in shape:
                other = sizes.get(size, size) if isinstance(size, int) else size
                found += other if isinstance(other, tuple) else [other]
            return found

        found: dict[str, Any] = {}
        for name in self.inputs:
            given = self.example.get(name)
            if isinstance(given, list) or given is None:
                given = self._example_type(name, given)
            found[name] = tensor(resized(dims(given)), element(given))
        for name, value in self.example.items():
            if is_tensor(value) and name not in found:
                found[name] = tensor(resized(dims(value)), element(value))
            elif is_list_of_ints(value) and self._is_shape(name):
                found[name] = resized(value)
        return found

    def _is_shape(self, name: str) -> bool:
        patterns = (
            p for line in self.rule.before for p in (*line.operand_types, *line.result_types)
        )
        rests = (p.rest for p in patterns if isinstance(p, TypePattern))
        return any(isinstance(rest, Hole) and rest.name == name for rest in rests)

    def _example_type(self, name: str, given: Any) -> Any:
        pattern = self.patterns[name]
        if isinstance(pattern, Hole):
            return self.example.get(pattern.name) or tensor(given or [2, 3], f32)
        if isinstance(pattern, TypePattern):
            shape: list[Dim] = []
            if isinstance(pattern.rest, Hole):
                shape += self.example.get(pattern.rest.name) or [2, 3]
            for at, size in enumerate(pattern.sizes):
                held = self.example.get(size.name, 5 + at) if isinstance(size, Hole) else size
                assert isinstance(held, int)
                shape.append(held)
            of = pattern.element
            held_of: Any = (
                self.example.get(of.name, f32) if isinstance(of, Hole) else getattr(dtypes, str(of))
            )
            return tensor(shape, held_of)
        return tensor(given or [2, 3], f32)

    # -- arguments ---------------------------------------------------------------------------

    def arguments(self) -> dict[str, Any]:
        """Return (parameter, schema argument, whether a runtime value, …) of each argument whose
        value the rule does not state.
        """
        found: dict[str, Any] = {}
        for line in self.rule.before:
            if line.op == WEIGHT or line.is_again:
                continue
            known = operator(line, self.rule)
            schema: dict[str, Any] = (
                dict(known.schema_op.SCHEMA.by_name) if isinstance(known, SchemaOperator) else {}
            )
            written = named_arguments(line, known, self.rule)
            for name, term in written.items():
                for hole in holes_of(term):
                    parameter = known.by_name[name]
                    is_list = is_list_of_ints(self.example.get(hole.name))
                    is_number = not parameter.is_value or (
                        is_list and holds_positions(line.op, name)
                    )
                    if is_number and hole.name not in found:
                        in_list = isinstance(term, list)
                        found[hole.name] = (parameter, schema.get(name), hole.is_late, in_list)
            if line.is_open:
                for name, parameter in known.by_name.items():
                    if name not in written and not parameter.is_value:
                        found.setdefault(name, (parameter, schema.get(name), None, False))
        types = set(self._element_keys())
        return {name: kind for name, kind in found.items() if name not in types}

    def _choices(self, name: str, kind: Any, rank: int, shape: Sequence[Dim]) -> list[Any]:
        """Return the values to try for an argument."""
        parameter, argument, is_late, in_list = kind
        if self.whole is not None and (number := self.repeated.get(name)) is not None:
            return [number * count for count in range(2 * rank + 1)]
        if self.whole is not None and name in self.positions:
            return positions(parameter.name, rank, isinstance(self.example.get(name), list))
        if is_late is None:  # It is after `…`.
            kind = (parameter, argument, False, in_list)
            held = [v for v in self._choices(name, kind, rank, shape) if v is not None]
            return held if self.whole is not None and name in self.example else [_DEFAULT, *held]
        example = self.example.get(name)
        if argument is None:
            return self._fields(parameter, example, rank)
        if argument.name == "implicit":
            return [False]  # No kernel reads it.
        base, nullable = argument.type.base, argument.type.nullable
        none: list[Any] = [None] if nullable or argument.default == (None,) else []
        if argument.type.is_list and not in_list:
            size = argument.type.size
            return self._lists(parameter, example, rank, shape, size) + none
        if base in ("Scalar", "float"):
            late: list[Any] = [Unknown(name, is_late=True)] if is_late else []
            found: list[Any] = [Unknown(name)]
            if base == "Scalar":
                found.append(Unknown(name, is_int=True))
            return found + none + late
        if base in ("int", "SymInt") and (argument.name in AXES or in_list):
            return list(range(-max(rank, 1), max(rank, 1)))
        if base in ("int", "SymInt"):
            return [None, 0, 1, 2, -1, *none] if example is None else [example, *none]
        return [*_OF_BASES[base], *none] if base in _OF_BASES else [example]

    def _lists(
        self,
        parameter: Parameter,
        example: Any,
        rank: int,
        shape: Sequence[Dim],
        parameter_size: int | None,
    ) -> list[Any]:
        """Return the permutations, axes or sizes to try for a list argument."""
        if parameter.name in ORDERS and example and isinstance(example, list) and self._permutes():
            count = self._axes(example, rank)
            orders = list(some_orders(count))
            if count <= MOST_SIGNED:
                return [*orders, *(each for order in orders for each in signed(order)[1:])]
            return [*orders, *([axis - count for axis in order] for order in orders[:4])]
        if parameter.name in ("dim", "dims", "source", "destination"):
            if rank > MOST_SIGNED:
                begins = (-rank, 0) if self.whole is not None else (-rank,)
                spans = [range(begin, begin + rank) for begin in begins]
                counts = range(rank + 1)
                return [list(c) for span in spans for n in counts for c in combinations(span, n)]
            chosen = (list(c) for n in range(rank + 1) for c in permutations(range(rank), n))
            return [each for axes in chosen for each in signed(axes, rank)]
        if parameter.name == "size":
            whole = [list(shape), [-1]]
            if self.whole is not None:
                sizes = views_of(shape) if has_views(self.rule) else repetitions(self._of_inputs)
                whole = [*map(as_arguments, sizes), [-1]]
            return whole + ([example] if example is not None else [])
        if parameter.name == "normalized_shape" and isinstance(example, list):
            ends = [shape[at:] for at in range(rank)]
            return [list(end) for end in ends if len(self.inputs) < 2 or end in self._of_inputs[1:]]
        if is_list_of_ints(example):
            near = [[item + 1 for item in example], [item - 1 for item in example]]
            return [example, *near]
        if example is None:
            count = parameter_size or 2
            return [[number] * count for number in (1, 2, 0)]
        return [example]

    def _permutes(self) -> bool:
        return any("permutation" in families_of(line.op) for line in self.rule.before)

    def _axes(self, example: Any, rank: int) -> int:
        """Return the number of permuted axes: the example's for tensors of the example's ranks."""
        count = len(example) if isinstance(example, list) else 0
        is_like = self.whole is None and (self.as_example or self.is_templated)
        return count if count and is_like else rank

    def _fields(self, parameter: Parameter, example: Any, rank: int) -> list[Any]:
        if parameter.name in ORDERS:
            return list(some_orders(self._axes(example, rank)))
        if isinstance(example, float):
            return [Unknown(parameter.name)]
        return [example]

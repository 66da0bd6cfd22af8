"""Code generation: elementwise ops and reductions as loops in C, from their scalar semantics.

An operator's scalar semantics define an element of its result as a term over elements of operands;
its axis map states which elements these are. The result's axes on which a reduction depends are the
outer loops, the reductions are variables there, and the loops over the other axes compute the
elements.

    for (i0) { f0 = greatest; f1 = total of exp(x - f0); for (i1) y[…] = …/f1; }
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

from xdsl.ir import SSAValue

from stepwell.backends.cortex_m.c.operators import KernelOperator
from stepwell.backends.cortex_m.c.terms import (
    C_KIND,
    Body,
    Kind,
    Number,
    as_kind,
    end_of,
    kind_of,
    loops,
)
from stepwell.backends.cortex_m.c.writer import MethodWriter
from stepwell.backends.executorch.container import TensorValue, strides
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.forms import elementwise
from stepwell.ir.axes.maps import All, Along, AxisMap, Flat, Once, axis_map
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.scalar_semantics import Term, meaning
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.types import element

FOLDS = frozenset({"total", "average", "greatest", "least"})


@dataclass(frozen=True)
class Loop:
    """A loop: the number of iterations, and how far each tensor advances in one iteration."""

    size: int
    steps: Mapping[str, int]


@dataclass
class ElementPosition:
    """The position in memory of the operand element that a result element reads.

    `steps` maps result axes to steps in elements, from `offset` on. `folded` lists the reduced
    axes as (size, step, result axis that replaces the axis or None).
    """

    name: str
    type_: Any
    steps: dict[int, int] = field(default_factory=dict[int, int])
    offset: int = 0
    folded: list[tuple[int, int, int | None]] = field(
        default_factory=list[tuple[int, int, "int | None"]]
    )


def place_of(
    name: str, value: TensorValue, type_: Any, links: Sequence[Any], shape: Sequence[int]
) -> ElementPosition:
    """Compute the position of an operand's element from the links of its axes.

    Raises:
        UnsupportedError: the op reads windows, out of bounds, or groups that are not nested in
            order.
    """
    place = ElementPosition(name, type_)
    apart = strides(value.sizes, value.dim_order)
    done: set[int] = set()

    def step(axis: int, by: int) -> None:
        place.steps[axis] = place.steps.get(axis, 0) + by

    for axis, (link, size) in enumerate(zip(links, value.sizes, strict=True)):
        match link:
            case Along(at, stride, offset, 1):
                ends = (offset, offset + stride * (shape[at] - 1))
                if min(ends) < 0 or max(ends) >= size:
                    raise UnsupportedError("the op reads beyond an operand (padding)")
                step(at, stride * apart[axis])
                place.offset += offset * apart[axis]
            case Once():
                continue
            case All(at):
                place.folded.append((size, apart[axis], at))
            case Flat(sources, targets):
                if axis in done:
                    continue
                done |= set(sources)
                for one, after in pairwise(sources):
                    if apart[one] != apart[after] * value.sizes[after]:
                        raise UnsupportedError("merged axes are not contiguous in memory")
                for position, target in enumerate(targets):
                    inner = prod(shape[t] for t in targets[position + 1 :])
                    step(target, inner * apart[sources[-1]])
            case _:
                raise UnsupportedError("loops for ops that read windows are not generated")
    return place


def collapsed(loops: Iterable[Loop]) -> list[Loop]:
    """Remove loops of one iteration, and merge nested loops over contiguous elements."""
    found: list[Loop] = []
    for loop in loops:
        if loop.size == 1:
            continue
        if found:
            outer, names = found[-1], {*found[-1].steps, *loop.steps}
            if all(outer.steps.get(n, 0) == loop.steps.get(n, 0) * loop.size for n in names):
                found[-1] = Loop(outer.size * loop.size, loop.steps)
                continue
        found.append(loop)
    return found


def index_text(name: str, offset: int, loops: Sequence[tuple[str, Loop]]) -> str:
    """Return the C expression of a tensor's index within loops."""
    terms = [
        variable if loop.steps[name] == 1 else f"{loop.steps[name]} * {variable}"
        for variable, loop in loops
        if loop.steps.get(name, 0)
    ]
    return " + ".join([*terms, *([str(offset)] if offset or not terms else [])])


def nested(nest: Sequence[tuple[str, Loop]], body: Sequence[str]) -> list[str]:
    """Return statements inside nested loops over axes."""
    return loops({variable: loop.size for variable, loop in nest}, body)


@dataclass
class _Nest:
    """The loops that compute one result of an operator."""

    places: Mapping[SSAValue, ElementPosition]
    shape: tuple[int, ...]
    order: tuple[int, ...]
    kind: Kind
    sections: set[str] = field(default_factory=set[str])
    folds: dict[int, Number] = field(default_factory=dict[int, Number])
    lines: list[str] = field(default_factory=list[str])

    def write(self, term: Term, store: str) -> list[str]:
        """Return the statements; `store` precedes the value, with `{at}` for its index."""
        folds = list(dict.fromkeys(_folds(term)))
        needed = {axis for fold in folds for axis in self._axes(fold, within=False)}
        if not folds:
            needed = set(range(len(self.shape)))
        apart = dict(zip(range(len(self.shape)), strides(self.shape, self.order), strict=True))

        def loops(axes: Iterable[int]) -> list[Loop]:
            return collapsed(Loop(self.shape[a], self._steps(a, apart[a])) for a in axes)

        outer = _named("i", loops(axis for axis in self.order if axis in needed))
        inner = _named("j", loops(axis for axis in self.order if axis not in needed))
        body: list[str] = []
        for number, fold in enumerate(folds):
            body += self._fold(fold, f"f{number}", outer)
        last = self._body([*outer, *inner], "t", within=False)
        value = last.number(term)
        at = index_text("y", 0, [*outer, *inner])
        statements = [*last.lines, store.format(at=at, value=as_kind(value, self.kind))]
        self.sections |= last.sections
        return nested(outer, [*body, *nested(inner, statements)])

    def _steps(self, axis: int, own: int) -> dict[str, int]:
        steps = {place.name: place.steps.get(axis, 0) for place in self.places.values()}
        for place in self.places.values():
            for _, step, at in place.folded:
                if at == axis:
                    steps[f"{place.name}'"] = steps.get(f"{place.name}'", 0) + step
        return {**steps, "y": own}

    def _axes(self, term: Term, *, within: bool) -> Iterator[int]:
        """Yield the result's axes on which a term depends."""
        if term.function == "element":
            assert term.value is not None
            place = self.places[term.value]
            yield from place.steps
            if not within:
                yield from (at for *_, at in place.folded if at is not None)
        for operand in term.operands:
            if isinstance(operand, Term):
                yield from self._axes(operand, within=within or term.function in FOLDS)

    def _body(self, loops: Sequence[tuple[str, Loop]], prefix: str, *, within: bool) -> Body:
        def leaf(term: Term) -> Number | None:
            if id(term) in self.folds:
                return self.folds[id(term)]
            if term.function == "unknown":
                raise UnsupportedError("an argument is computed at run time")
            if term.function != "element":
                return None
            assert term.value is not None
            place = self.places[term.value]
            steps = [(variable, self._moved(place, loop, within)) for variable, loop in loops]
            kind = kind_of(place.type_)
            text = f"{place.name}[{index_text(place.name, place.offset, steps)}]"
            read = Number(text, kind)
            return Number(f"({C_KIND[kind]}){text}", kind) if kind in ("truth", "whole") else read

        return Body(leaf, self.kind, prefix)

    def _moved(self, place: ElementPosition, loop: Loop, within: bool) -> Loop:
        """Return a loop over a result axis that also advances on the operand axis it replaces."""
        mixed = 0 if within else loop.steps.get(f"{place.name}'", 0)
        return Loop(loop.size, {place.name: loop.steps.get(place.name, 0) + mixed})

    def _fold(self, fold: Term, name: str, outer: Sequence[tuple[str, Loop]]) -> list[str]:
        read = [self.places[v] for v in dict.fromkeys(_elements(fold))]
        rank = max((len(place.folded) for place in read), default=0)
        sizes = {tuple(size for size, *_ in p.folded) for p in read if len(p.folded) == rank}
        if len(sizes) > 1 or any(len(p.folded) not in (0, rank) for p in read):
            raise UnsupportedError("the operands of a reduction differ in their reduced axes")
        over = _named(
            "k",
            collapsed(
                Loop(size, {p.name: p.folded[n][1] for p in read if p.folded})
                for n, size in enumerate(next(iter(sizes), ()))
            ),
        )
        body = self._body([*outer, *over], f"{name}_", within=True)
        value = body.number(fold.operands[0])
        kind = "whole" if value.kind == "truth" else value.kind
        function = fold.function
        if function == "average" and kind == "whole":
            kind = self.kind if self.kind in ("float", "double") else "float"
        text = as_kind(value, kind)
        if function in ("total", "average"):
            first, step = ("0" if kind == "whole" else "0.0f"), f"{name} += {text};"
        else:
            self.sections.add(f"{kind}_numbers")
            which = "maximum" if function == "greatest" else "minimum"
            first = end_of(kind, "-" if which == "maximum" else "")
            step = f"{name} = sw_{kind}_{which}({name}, {text});"
        lines = [
            f"{C_KIND[kind]} {name} = {first};",
            *nested(over, [*body.lines, step]),
        ]
        if function == "average":
            count = prod(loop.size for _, loop in over)
            lines.append(f"{name} /= ({C_KIND[kind]}){count};")
        self.sections |= body.sections
        self.folds[id(fold)] = Number(name, kind)
        return lines


def _named(stem: str, loops: Sequence[Loop]) -> list[tuple[str, Loop]]:
    return [(f"{stem}{number}", loop) for number, loop in enumerate(loops)]


def _folds(term: Term) -> Iterator[Term]:
    """Return the reductions in a term, inner reductions first."""
    for operand in term.operands:
        if isinstance(operand, Term):
            yield from _folds(operand)
    if term.function in FOLDS:
        yield term


def _elements(term: Term) -> Iterator[SSAValue]:
    """Yield the operands whose elements a reduction reads directly, not by a nested reduction."""
    if term.function == "element":
        assert term.value is not None
        yield term.value
    for operand in term.operands:
        if isinstance(operand, Term) and operand.function not in FOLDS:
            yield from _elements(operand)


def write_elements(w: MethodWriter, operator: KernelOperator) -> bool:
    """Write a call by its operator's meaning; return False if none is declared.

    Raises:
        UnsupportedError: the meaning is declared but cannot be written as loops; the message states
            why.
    """
    said = meaning(operator.op)
    term = None if said is None else said.element
    axes = None if term is None else _axis_map(operator.op)
    if term is None or axes is None or any(w.is_read(index) for index in operator.results[1:]):
        return False
    write_term(w, operator, term, axes)
    return True


def write_term(
    w: MethodWriter, operator: KernelOperator, term: Term, axes: AxisMap, result: int = 0
) -> None:
    """Write a C function whose loops compute a term for each element of a call's result.

    The axis map gives the positions of the operands' elements.
    """
    op, index = operator.op, operator.results[result]
    value = w.tensor(index)
    places: dict[SSAValue, ElementPosition] = {}
    pointers: list[tuple[str, int]] = []
    for operand, links, at in zip(op.operands, axes.links, operator.operands, strict=True):
        held = w.method.values[at]
        is_met = operand in places or operand not in set(_leaves(term))
        if is_met or links is None or not isinstance(held, TensorValue):
            continue
        name = f"x{len(places)}"
        places[operand] = place_of(name, held, element(operand.type), links, value.sizes)
        pointers.append((name, at))
    nest = _Nest(places, value.sizes, value.dim_order, kind_of(element(op.results[result].type)))
    lines = nest.write(term, f"y[{{at}}] = ({w.c_element(index)})({{value}});")
    w.function(lines, pointers, [("y", index)], nest.sections)


def _leaves(term: Term) -> Iterator[SSAValue]:
    if term.value is not None:
        yield term.value
    for operand in term.operands:
        if isinstance(operand, Term):
            yield from _leaves(operand)


def _axis_map(op: SchemaOp) -> AxisMap | None:
    found = axis_map(op)
    return elementwise(op) if found is None and is_of(op, "elementwise") else found

"""Translate an element of an op's result, by its declared semantics, to a term of the solver."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.axes.forms import elementwise
from stepwell.ir.axes.maps import All, Along, AxisMap, Links, Once, axis_map
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.scalar_semantics import Term
from stepwell.ir.dtypes import bf16, element_type, f16, f32, f64, i1, is_float, torch_dtype
from stepwell.ir.types import dims, element
from stepwell.validation.rules.numbers import Number, Symbolic, Unproven
from stepwell.validation.rules.scalars import Typed
from stepwell.validation.rules.solver import z3

Index = tuple[Any, ...]
FOLDS = frozenset(("total", "average", "greatest", "least"))
_COMPARES = frozenset(("less", "less_equal", "equal", "is_nan"))
_TRUTHS = frozenset(("not_", "and_", "or_", "xor"))
NOT_NEGATIVE = {"aten.softshrink.default": "lambd"}
"""Arguments that PyTorch rejects below 0."""


def held_as(type_: Attribute) -> Attribute:
    """Return the storage type of an element type."""
    held = quantization(type_)
    return storage_element(held) if held else element(type_)


@dataclass
class Expression:
    """An element of one op's result by its declared semantics, and the types of its computation."""

    tensors: Any
    """The `Tensors` to which it belongs."""
    op: Operation
    index: Index
    forced: Attribute | None = None
    """The type of the computation: float64 for terms of numbers only."""

    @cached_property
    def axes(self) -> AxisMap | None:
        """Return the op's axis map; for an elementwise op without one, that of its family."""
        found = axis_map(self.op)
        if found is None and is_of(self.op, "elementwise"):
            tensors = sum(isinstance(v.type, TensorType) for v in self.op.operands)
            return elementwise(self.op, tensors)
        return found

    def links(self, value: SSAValue) -> Links | None:
        """Return the axis map's links for an operand's axes."""
        return None if self.axes is None else self.axes.links[[*self.op.operands].index(value)]

    @cached_property
    def computed_in(self) -> Attribute:
        """Return the type of the computation: float32 for halves, the operand type for
        comparisons.
        """
        if self.forced is not None:
            return self.forced
        made = held_as(self.op.results[0].type)
        first = self.op.operands[0].type
        if is_float(made) is False and isinstance(first, TensorType) and is_of(self.op, "cast"):
            made = held_as(first) if made != i1 else made
        if self.op.name.startswith("quantized_decomposed.quantize"):
            made = held_as(first)
        if made in (f16, bf16):
            return f32
        if made != i1 or self.op.name.startswith(("aten.logical", "aten.isnan")):
            return made
        tensors = [v for v in self.op.operands if isinstance(v.type, TensorType)]
        if self.op.name.startswith("aten.") and tensors:
            assert isinstance(self.op, SchemaOp)
            arguments = self.op.SCHEMA.arguments
            given: list[Any] = [
                torch.empty([1] * len(dims(v.type)), dtype=torch_dtype(held_as(v.type)))
                for v in tensors
            ]
            numbers = (self.op.arg(a.name) for a in arguments[1:])
            given += [number for number in numbers if isinstance(number, int | float)]
            if len(given) == 2:
                return element_type(torch.result_type(*given))
        return held_as(tensors[0].type) if tensors else made

    @cached_property
    def free(self) -> int:
        """Return the number of the first bound index that is unused at this index.

        The reductions of one element all number their indices from there, so that equal reductions
        have equal terms.
        """
        found, waiting = 0, list(self.index)
        while waiting:
            term = waiting.pop()
            name = term.decl().name() if z3.is_const(term) else ""
            if name.startswith("k") and name[1:].isdigit():
                found = max(found, int(name[1:]) + 1)
            waiting += term.children()
        return found

    def result(self, term: Any) -> Typed:
        """Return the element, in the type of the result."""
        made = self.of(term, None)
        name = NOT_NEGATIVE.get(self.op.name)
        if name is not None:
            assert isinstance(self.op, SchemaOp)
            zero, held = (self.of(each, None).term for each in (0.0, self.op.arg(name)))
            self.tensors.domain.facts.append(
                self.tensors.domain.apply("less_equal", [zero, held], self.computed_in)
            )
        return self.tensors.domain.converted(made, held_as(self.op.results[0].type))

    def of(self, term: Any, bound: dict[tuple[SSAValue, int], Any] | None) -> Typed:
        """Translate a term of the semantics; `bound` are the indices of an enclosing reduction."""
        tensors, domain, of = self.tensors, self.tensors.domain, self.computed_in
        if isinstance(term, SSAValue):
            return domain.converted(self.tensors.scalar(term), of)
        if not isinstance(term, Term):
            lifted = self.tensors.tokens.lifted(term)
            held: Any = lifted.node if isinstance(lifted, Symbolic) else lifted
            if isinstance(held, Number):
                return Typed(domain.constant(held, of), of)
            if held is None or not isinstance(held, int | float):
                raise Unproven(f"{self.op.name}: {held!r} is no number")
            return Typed(domain.constant(held, of), of)
        if term.function == "element":
            assert term.value is not None
            return self.element(term.value, bound)
        if term.function == "unknown":
            late = [v for v in self.op.operands if not isinstance(v.type, TensorType)]
            if len(late) != 1:
                raise Unproven(f"{self.op.name} of several numbers that are known at run time")
            return domain.converted(tensors.scalar(late[0]), of)
        if term.function in FOLDS:
            return self.fold(term)
        if term.function == "some":
            return Typed(z3.FreshConst(domain.sort(of)), of)
        if _is_of_numbers(term) and of != f64 and is_float(of):
            return domain.converted(replace(self, forced=f64).of(term, None), of)
        parts = [self.of(part, bound) for part in term.operands]
        if term.function == "cast":
            assert term.to is not None
            return domain.converted(parts[0], held_as(self.op.results[0].type))
        if term.function == "where":
            test = domain.converted(parts[0], i1).term
            one, other = (domain.converted(part, of).term for part in parts[1:])
            return Typed(domain.apply("where", [test, one, other], of), of)
        if term.function in _TRUTHS:
            terms = [domain.converted(part, i1).term for part in parts]
            return Typed(domain.apply(term.function, terms, i1), i1)
        terms = [domain.converted(part, of).term for part in parts]
        made = domain.apply(term.function, terms, of)
        return Typed(made, i1 if term.function in _COMPARES else of)

    def element(self, value: SSAValue, bound: dict[tuple[SSAValue, int], Any] | None) -> Typed:
        """Return the operand's element at the index that the axis map states."""
        tensors, shape = self.tensors, dims(value.type)
        if not shape:
            return tensors.at(value, ())
        if self.axes is None:
            raise Unproven(f"{self.op.name} has no axis map here")
        links = self.links(value)
        if links is None:
            raise Unproven(f"{self.op.name}: which elements it reads is not said")
        found: list[Any] = []
        for axis, link in enumerate(links):
            match link:
                case _ if bound and (value, axis) in bound:
                    found.append(bound[value, axis])
                case Along(axis=at, stride=stride, offset=offset, reach=1):
                    found.append(self.index[at] * stride + offset)
                case Once():
                    found.append(z3.IntVal(0))
                case All(axis=at) if at is not None:
                    found.append(self.index[at])
                case _:
                    raise Unproven(f"{self.op.name}: which elements it reads is not one")
        return tensors.at(value, tuple(found))

    def fold(self, term: Term) -> Typed:
        """Return a sum, an average or an extremum over the axes that the axis maps reduce."""
        tensors, domain, of = self.tensors, self.tensors.domain, self.computed_in
        values = _read_by(term)
        bound: dict[tuple[SSAValue, int], Any] = {}
        counts: list[Any] = []
        start = self.free
        for value in values:
            links = self.links(value)
            if links is None:
                raise Unproven(f"{self.op.name}: which elements it folds is not said")
            if any(isinstance(link, Along) and link.reach != 1 for link in links):
                raise Unproven(f"{self.op.name}: which elements stand in a window is not said")
            whole = [axis for axis, link in enumerate(links) if isinstance(link, All)]
            if counts and len(whole) != len(counts):
                raise Unproven(f"{self.op.name}: which elements it multiplies is not said")
            for number, axis in enumerate(whole):
                size = dims(value.type)[axis]
                if number == len(counts):
                    counts.append(tensors.size(size))
                is_one = counts[number].eq(z3.IntVal(1))
                at = z3.IntVal(0) if is_one else z3.Int(f"k{start + number}")
                bound[value, axis] = at
                if not is_one:
                    tensors.ranges += [at >= 0, at < counts[number]]
        counts = [count for count in counts if not count.eq(z3.IntVal(1))]
        body = domain.converted(self.of(term.operands[0], bound), of).term
        self.tensors.is_rank_free = False
        function = term.function
        if not counts and function in ("total", "average") and domain.is_exact and is_float(of):
            return Typed(domain.alone(body, of), of)
        if not counts:
            # A reduction of ones is finite like the others.
            self.tensors.elements[body.get_id()] = body
            return Typed(body, of)
        if function in ("greatest", "least") and of == i1:
            for truth in (z3.BoolVal(True), z3.BoolVal(False)):
                if tensors.equal(body, truth):
                    return Typed(truth, of)
        if function == "average" and not domain.is_exact:
            count = z3.IntVal(1)
            for size in counts:
                count = count * size
            total = tensors.folded("total", body, counts, tensors.equal)
            return Typed(total / z3.ToReal(count), of)
        return Typed(tensors.folded(f"{function}:{of}", body, counts, tensors.equal), of)


def _is_of_numbers(term: Any) -> bool:
    """Whether a term depends on no tensor element."""
    if not isinstance(term, Term):
        return isinstance(term, int | float)
    return bool(term.operands) and all(map(_is_of_numbers, term.operands))


def _read_by(term: Term) -> list[SSAValue]:
    """Return the operands whose elements a term reads outside nested reductions."""
    found: dict[SSAValue, None] = {}
    waiting: list[Any] = list(term.operands)
    while waiting:
        part = waiting.pop(0)
        if not isinstance(part, Term):
            continue
        if part.function == "element":
            assert part.value is not None
            if isinstance(part.value.type, TensorType):
                found[part.value] = None
        elif part.function not in FOLDS:
            waiting += part.operands
    return list(found)

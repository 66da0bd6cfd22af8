"""Export of ops with scalar semantics (`@means`): their reductions, then their elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import Any

from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.maps import All, Along, Flat, Links, Once, axis_map, kept
from stepwell.ir.declared.scalar_semantics import Term
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.dtypes import i1
from stepwell.ir.types import dims, element
from stepwell.translate.upstream.linalg_exporter.bodies import Body, BodyValue, computed_type
from stepwell.translate.upstream.linalg_exporter.writing import (
    Text,
    affine,
    divided,
    is_tensor,
    spelled,
    tensor_type,
)

STARTS: Mapping[str, tuple[float, str]] = {
    "total": (0, "add"),
    "average": (0, "add"),
    "greatest": (-inf, "maximum"),
    "least": (inf, "minimum"),
}
"""Reductions → their initial values and combining functions."""


def computed(text: Text, op: SchemaOp, term: Term) -> str:
    """Write an op whose elements are expressions; return the name of its first result."""
    result = op.results[0]
    shape, dtype = dims(result.type), element(result.type)
    written = OpWriter(text, op, shape)
    types = [element(value.type) for value in op.operands if is_tensor(value)]
    compute = computed_type(types, dtype)
    written.stage(term, compute)
    return written.pointwise(term, compute, dtype)


class OpWriter:
    """Writes one op with scalar semantics: its reductions, then its elements."""

    def __init__(self, method: Text, op: SchemaOp, shape: Sequence[Any]) -> None:
        self.method, self.shape = method, shape
        tensors = [value for value in op.operands if is_tensor(value)]
        axes = axis_map(op)
        self.links: dict[SSAValue, Links] = {}
        self.sizes: dict[int, tuple[SSAValue, int]] = {}
        for value in tensors:
            links = None if axes is None else axes.links[list(op.operands).index(value)]
            if links is None and not shape:  # A scalar result reads all elements.
                links = tuple(All() for _ in dims(value.type))
            elif links is None:
                links = broadcast(dims(value.type), shape)
            if links is None:
                raise UnsupportedError("the op has no axis map")
            links = tuple(
                All() if isinstance(link, Flat) and not link.targets else link
                for link in links or ()
            )  # The elements that a scalar result reduces.
            if any(isinstance(link, Flat) for link in links):
                raise UnsupportedError("the axis map relates groups of axes, not single ones")
            self.links[value] = links
            for at, link in enumerate(links):
                if isinstance(link, Along | All) and link.axis is not None:
                    plain = not isinstance(link, Along) or link.is_plain
                    if plain and dims(value.type)[at] == shape[link.axis]:
                        self.sizes.setdefault(link.axis, (value, at))
                if isinstance(link, Along) and (link.reach != 1 or link.offset < 0):
                    raise UnsupportedError("the op reads windows, or beyond the end of an axis")
        self.folded: dict[Term, tuple[str, tuple[int, ...], Attribute]] = {}

    def leaves(self, term: Any) -> list[Term]:
        """Return the elements and the reductions from which a term is computed."""
        if not isinstance(term, Term):
            return []
        if term in self.folded or term.function == "element":
            return [term]
        found = (leaf for operand in term.operands for leaf in self.leaves(operand))
        return list(dict.fromkeys(found))

    def stage(self, term: Any, compute: Attribute) -> None:
        """Write a linalg op for every reduction in a term, inner reductions first."""
        if not isinstance(term, Term) or term in self.folded:
            return
        for operand in term.operands:
            self.stage(operand, compute)
        if term.function in STARTS:
            self.folded[term] = self.fold(term, compute)

    def fold(self, term: Term, compute: Attribute) -> tuple[str, tuple[int, ...], Attribute]:
        """Write a reduction; return its tensor, the result axes that it has, and its type."""
        (inside,) = term.operands
        leaves = self.leaves(inside)
        kept_axes: set[int] = set()
        sizes: list[Any] = []
        for leaf in leaves:
            if leaf in self.folded:
                continue
            value = leaf.value
            assert value is not None
            read = [
                dims(value.type)[at]
                for at, link in enumerate(self.links[value])
                if isinstance(link, All)
            ]
            if read and sizes and read != sizes:
                raise UnsupportedError("the operands are reduced over different axes")
            sizes = read or sizes
            kept_axes |= {link.axis for link in self.links[value] if isinstance(link, Along)}
        axes = tuple(sorted(kept_axes))
        variables = {axis: f"d{at}" for at, axis in enumerate(axes)}
        extra = [f"d{len(axes) + at}" for at in range(len(sizes))]
        number, word = STARTS[term.function]
        dtype = compute
        if isinstance(dtype, IntegerType) and abs(number) == inf:
            half = 1 << (dtype.width.data - 1)
            ends = (-half, half - 1) if dtype != i1 else (0, 1)
            number = ends[number > 0]
        shape = [self.shape[axis] for axis in axes]
        start = self.method.filled(
            number,
            shape,
            dtype,
            {at: self.sizes.get(axis) for at, axis in enumerate(axes) if axis in self.sizes},
        )
        inputs, arguments, known = self.read(leaves, variables, extra)
        body = Body(compute, self.method.fresh, known)
        value = body.as_type(body.value(inside), dtype)
        out = BodyValue(self.method.fresh(), dtype)
        total, given = body.of_two(word, out, value), [*arguments, out]
        name = self.method.generic(inputs, start, shape, body.lines, given, total, len(sizes))
        if term.function == "average":
            if not all(isinstance(size, int) for size in sizes):
                raise UnsupportedError("means over a dynamic size are not supported")
            name = divided(self.method, name, shape, dtype, prod(sizes))
        return name, axes, dtype

    def read(
        self, leaves: Sequence[Term], variables: Mapping[int, str], extra: Sequence[str]
    ) -> tuple[list[tuple[str, str, str]], list[BodyValue], dict[Term, BodyValue]]:
        """Return the operands and body arguments of a `generic`, and the value of each leaf."""
        inputs: list[tuple[str, str, str]] = []
        arguments: list[BodyValue] = []
        known: dict[Term, BodyValue] = {}
        by_value: dict[SSAValue, BodyValue] = {}
        for leaf in leaves:
            if leaf in self.folded:
                name, axes, dtype = self.folded[leaf]
                indices = ", ".join(variables[axis] for axis in axes)
                type_ = tensor_type([self.shape[axis] for axis in axes], dtype)
            else:
                value = leaf.value
                assert value is not None
                if value in by_value:
                    known[leaf] = by_value[value]
                    continue
                name, type_, dtype = (
                    self.method.names[value],
                    spelled(value.type),
                    element(value.type),
                )
                indices = self.indices(self.links[value], variables, extra)
            argument = BodyValue(self.method.fresh(), dtype)
            inputs.append((name, type_, indices))
            arguments.append(argument)
            known[leaf] = argument
            if leaf not in self.folded and leaf.value is not None:
                by_value[leaf.value] = argument
        return inputs, arguments, known

    def indices(self, links: Links, variables: Mapping[int, str], extra: Sequence[str]) -> str:
        """Return the indices at which an operand is read."""
        found: list[str] = []
        folded = iter(extra)
        for link in links:
            match link:
                case Along(axis=axis):
                    if axis not in variables:
                        raise UnsupportedError("a reduction drops every axis that it reads")
                    found.append(affine(link, variables[axis]))
                case All(axis=axis) if extra:
                    found.append(next(folded))
                case All(axis=axis) if axis is not None:
                    found.append(variables[axis])
                case Once():
                    found.append("0")
                case _:
                    raise UnsupportedError("the op reads a whole axis without reducing over it")
        return ", ".join(found)

    def pointwise(self, term: Term, compute: Attribute, dtype: Attribute) -> str:
        """Write the elementwise computation, and return its result."""
        shape = self.shape
        if term in self.folded:
            name, axes, type_ = self.folded[term]
            if axes == tuple(range(len(shape))) and type_ == dtype:
                return name
        variables = {axis: f"d{axis}" for axis in range(len(shape))}
        inputs, arguments, known = self.read(self.leaves(term), variables, ())
        body = Body(compute, self.method.fresh, known)
        made = body.as_type(body.value(term), dtype)
        empty = self.method.empty(shape, dtype, self.sizes)
        given = [*arguments, BodyValue(self.method.fresh(), dtype)]
        return self.method.generic(inputs, empty, shape, body.lines, given, made)


def broadcast(given: Sequence[Any], made: Sequence[Any]) -> Links | None:
    """Return the axis-map links that broadcast an operand to the result, from the last axis on."""
    first = len(made) - len(given)
    if first < 0:
        return None
    links: list[Any] = []
    for at, size in enumerate(given):
        if size == made[first + at]:
            links.append(Along(first + at))
        elif size == 1:
            links.append(Once(first + at))
        else:
            return None
    return kept(len(given)) if links == list(kept(len(given))) else tuple(links)

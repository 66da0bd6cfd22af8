"""Symbolic sizes as values: build the op that computes `2*s77` at run time for a rewrite.

A size is preferably read from a tensor that has it. If no tensor has it, it is computed from sizes
that contain its symbols. A run-time number that is no size is an operand of the op.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, SSAValue

from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.sym import OPS, functions
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.rewriting.rewrite import Rewriter
from stepwell.ir.sizes.size import UNKNOWN, Dim, Size
from stepwell.ir.sizes.size_values import OF_TWO, computed
from stepwell.ir.types import BoolType, FloatType, IntType, dims, element, tensor
from stepwell.translate.rewrites.building import size_of


def can_compute(
    size: Dim, types: Collection[Attribute], inputs: Collection[Dim] = frozenset()
) -> bool:
    """Whether `SizeBuilder` can compute a size once it has seen values of these types.

    Args:
        size: the requested size.
        types: the types of the values.
        inputs: the sizes of inputs of the method, which are always available.
    """
    known: set[Dim] = set()
    for type_ in types:
        if isinstance(type_, IntType | FloatType | BoolType):
            known.add(_stated(type_))
        elif isinstance(type_, TensorType):
            known.update(dims(type_))
    return _source(Size.of(size), known, inputs) is not None


def _source(size: Size, known: Collection[Dim], inputs: Collection[Dim]) -> int | None:
    """Return what a size must be computed from: 0 for known sizes alone, 1 also for their
    fractions, 2 also for the sizes of inputs; None if it cannot be computed.
    """
    for source, sizes in enumerate(((), known, (*known, *inputs))):

        def leaf(part: Size, sizes: Collection[Dim] = sizes) -> bool | None:
            if part.number is not None or part in known:
                return True
            shares = (share_of(part, size) for size in sizes if isinstance(size, Size))
            return any(share is not None for share in shares) or None

        if computed(size, leaf, lambda _name, _one, _other: True):
            return source
    return None


def sizes_of_inputs(block: Block | None) -> frozenset[Dim]:
    """Return the symbolic sizes of a method's inputs, for use in the method's own block."""
    if block is None or not isinstance(block.parent_op(), FuncOp):
        return frozenset()
    types = [argument.type for argument in block.args]
    sizes = [size for type_ in types if isinstance(type_, TensorType) for size in dims(type_)]
    return frozenset(size for size in sizes if isinstance(size, Size) and size != UNKNOWN)


def _stated(type_: IntType | FloatType | BoolType) -> Dim:
    """Return the expression of a dynamic number; only its text if it is not an integer."""
    return type_.size if isinstance(type_, IntType) else Size.computed(type_.data)


def share_of(wanted: Dim, dim: Dim) -> Fraction | None:
    """Return the factor from one size to another, if it does not depend on the symbols.

    The factor from `32*s` to `8*s` is 1/4.
    """
    one, other = Size.of(wanted), Size.of(dim)
    if not one.terms:
        return None
    share = Fraction(one.terms[0][1], other.terms[0][1])
    return share if one * share.denominator == other * share.numerator else None


@dataclass(frozen=True)
class InputSize:
    """A size as a fraction of the size of an axis of an input of the method."""

    source: SSAValue
    axis: int
    share: Fraction

    def value(self, rw: Rewriter) -> SSAValue:
        """Build the query of the input, and the multiplication and division."""
        dim = dims(self.source.type)[self.axis]
        asked = op_class("aten.sym_size.int").make(
            self.source, self.axis, result_types=[IntType(str(dim))]
        )
        return share_as_value(rw, dim, rw.insert(asked).results[0], self.share)


def share_as_value(rw: Rewriter, size: Dim, value: SSAValue, share: Fraction) -> SSAValue:
    """Build the multiplication and division of a size that a value holds."""
    for name, number in (("mul", share.numerator), ("floordiv", share.denominator)):
        if number != 1:
            size = functions()[name](size, number)
            made = OPS[name].make([value, number], IntType(str(size)))
            value = rw.insert(made).results[0]
    return value


def size_of_input(block: Block | None, size: Dim) -> InputSize | None:
    """Return the first method input and axis of which a size is a fraction."""
    return None if block is None else _size_of_any(block.args, size)


def _size_of_any(values: Iterable[SSAValue], size: Dim) -> InputSize | None:
    """Return the first value and axis of which a size is a fraction."""
    for value in values:
        if isinstance(value.type, TensorType):
            for axis, dim in enumerate(dims(value.type)):
                if isinstance(dim, Size) and dim != UNKNOWN:
                    share = share_of(size, dim)
                    if share is not None:
                        return InputSize(value, axis, share)
    return None


def size_as_tensor(rw: Rewriter, size: Size, source: SSAValue) -> SSAValue:
    """Build a size as a one-element tensor of a value's type, from an input or the value."""
    owner = source.owner
    asked = size_of_input(owner if isinstance(owner, Block) else owner.parent_block(), size)
    asked = asked or _size_of_any([source], size)
    count = asked.value(rw) if asked else size_of(rw, source, dims(source.type).index(size))
    kind = tensor([1], element(source.type))
    full = op_class("aten.full.default").make(
        [1], count, dtype=element(source.type), result_types=[kind]
    )
    return rw.insert(full).results[0]


class SizeBuilder:
    """Builds sizes as values; inserts the ops that compute them before the op being rewritten."""

    def __init__(self, rw: Rewriter, operands: Sequence[SSAValue], block: Block | None) -> None:
        self._rw = rw
        self._block = block
        self._source = 0
        self._values: dict[Dim, SSAValue | Callable[[], SSAValue]] = {}
        for operand in operands:
            self.see(operand)

    def see(self, value: SSAValue) -> None:
        """Make a number, or a tensor's sizes, available from now on."""
        type_ = value.type
        if isinstance(type_, IntType | FloatType | BoolType):
            self._values[_stated(type_)] = value
        elif isinstance(type_, TensorType):
            for axis, dim in enumerate(dims(type_)):
                if isinstance(dim, Size) and dim not in self._values:
                    self._values[dim] = self._asking(value, axis, dim)

    def _asking(self, value: SSAValue, axis: int, dim: Size) -> Callable[[], SSAValue]:
        def ask() -> SSAValue:
            size, types = op_class("aten.sym_size.int"), [IntType(str(dim))]
            return self._rw.insert(size.make(value, axis, result_types=types)).results[0]

        return ask

    def value(self, size: Dim) -> SSAValue | int:
        """Return the value of a size, a plain int where it is static.

        Raises:
            StepwellError: no value has the size, which `can_compute` reports beforehand.
        """
        if isinstance(size, int):
            return size
        inputs = sizes_of_inputs(self._block)
        source = _source(size, self._values.keys(), inputs)
        self._source = source or 0
        made = None if source is None else computed(size, self._at_hand, self._applied)
        if made is None:
            raise StepwellError(f"no value holds the size {size}")
        return made[1]

    def _at_hand(self, size: Size) -> _Valued | None:
        if size.number is not None:
            return size, size.number
        if size in self._values:
            return size, self._known(size)
        shares = ((known, share_of(size, known)) for known in list(self._values))
        for known, share in shares if self._source else ():
            if isinstance(known, Size) and share is not None:
                return size, share_as_value(self._rw, known, self._known(known), share)
        asked = size_of_input(self._block, size) if self._source == 2 else None
        return None if asked is None else (size, asked.value(self._rw))

    def _known(self, size: Dim) -> SSAValue:
        value = self._values[size]
        if not isinstance(value, SSAValue):
            value = self._values[size] = value()
        return value

    def _applied(self, name: str, one: _Valued, other: _Valued) -> _Valued:
        size = OF_TWO[name](one[0], other[0])
        made = OPS[name].make([one[1], other[1]], IntType(str(size)))
        value = self._values[size] = self._rw.insert(made).results[0]
        return size, value


_Valued = tuple[Size, SSAValue | int]
"""A size and its value."""

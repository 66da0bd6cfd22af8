"""Values on the scratch pad of a lowering to OpenVINO: operators are inserted by their names.

OpenVINO's CPU plug-in computes in float32, and integers of 64 bits in 32. Values of other floats,
and integers that are not proved to fit, are therefore refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.integrations.openvino.dialect import OPS, ConstantOp, OpenvinoOp
from stepwell.integrations.openvino.meaning import NAMES
from stepwell.ir.core import WeightOp, weight_key
from stepwell.ir.declared.bounds import roundings
from stepwell.ir.declared.numerics import Deviation
from stepwell.ir.dtypes import dtype_name, f32, i1, i8, i64, torch_dtype, ui8
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewriter
from stepwell.ir.sizes.size import UNKNOWN, Dim, Size
from stepwell.ir.types import dims, element, tensor
from stepwell.translate.decompositions.values import broadcast
from stepwell.translate.lowerings.goals import Goal, goal
from stepwell.translate.lowerings.lowering import refuse
from stepwell.translate.range_analysis import interval, is_never_nan

EXACT_INTEGERS = 1 << 24
"""Integers up to this magnitude are exact in every kernel of the CPU plug-in, also in float32."""
WRAPPING = frozenset(
    "Abs Add Convolution CumSum Divide FloorMod GroupConvolution MatMul Mod Multiply Negative "
    "Power ReduceProd ReduceSum Subtract".split()
)
"""Operators whose integers of 8 bits saturate, where torch's wrap."""
OF_NUMBERS = frozenset("Maximum Minimum ReduceMax ReduceMin Select".split())
"""Operators that OpenVINO does not have for truth values."""
ROUNDED = roundings("OpenVINO's kernels round in another order")
APPROXIMATE = Bound(1e-4, 4e-6, "OpenVINO approximates the function")


class Value:
    """A tensor value, with the rewriter that inserts operators on it."""

    __slots__ = ("b", "ssa")

    def __init__(self, ssa: SSAValue, b: Rewriter) -> None:
        self.ssa, self.b = ssa, b

    @property
    def dtype(self) -> Attribute:
        """Return the element type."""
        return element(self.ssa.type)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Return the sizes."""
        return dims(self.ssa.type)

    @property
    def rank(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    @property
    def is_constant(self) -> bool:
        """Whether the value is a weight, or computed from weights alone."""
        owner = self.ssa.owner
        if isinstance(owner, OpenvinoOp):
            return all(Value(operand, self.b).is_constant for operand in owner.operands)
        return isinstance(owner, WeightOp | ConstantOp)

    def axis(self, dim: int) -> int:
        """Return an axis counted from the front."""
        return dim % max(self.rank, 1)

    def constant(self, values: Any, dtype: torch.dtype = torch.int64) -> Value:
        """Insert a small constant."""
        made = ConstantOp.make(torch.as_tensor(values, dtype=dtype))
        return Value(self.b.insert(made).results[0], self.b)

    def like(self, number: Value | float) -> Value:
        """Return a number as a constant of this value's element type."""
        if isinstance(number, Value):
            return number
        return self.constant(number, torch_dtype(self.dtype))

    def op(
        self,
        name: str,
        *operands: Any,
        shape: Sequence[Dim] | None = None,
        dtype: Attribute | None = None,
        **fields: Any,
    ) -> Value:
        """Insert an operator on this and other operands; lists of ints become constants.

        The result has this value's type unless a shape or an element type is given.
        """
        shape = self.shape if shape is None else tuple(shape)
        return self.results(name, *operands, types=[tensor(shape, dtype or self.dtype)], **fields)[
            0
        ]

    def results(
        self, name: str, *operands: Any, types: Sequence[Attribute], **fields: Any
    ) -> tuple[Value, ...]:
        """Insert an operator of several results."""
        made = element(types[0])
        if name in WRAPPING and made in (i8, ui8):
            refuse("integers of 8 bits wrap in torch, and saturate in OpenVINO")
        if name in OF_NUMBERS and made == i1:
            refuse("OpenVINO computes with no truth values")
        given = [self.ssa]
        for operand in operands:
            if isinstance(operand, SSAValue | Value):
                given.append(operand.ssa if isinstance(operand, Value) else operand)
            elif isinstance(operand, torch.Tensor):
                given.append(self.constant(operand, operand.dtype).ssa)
            else:
                given.append(self.constant(operand).ssa)
        op = self.b.insert(OPS[name].make(given, types, **fields))
        return tuple(Value(result, self.b) for result in op.results)

    def binary(
        self, name: str, other: Value | float, dtype: Attribute | None = None, swapped: bool = False
    ) -> Value:
        """Insert an operator of two values that broadcast."""
        left, right = self, self.like(other)
        left, right = (right, left) if swapped else (left, right)
        return left.op(name, right, shape=broadcast(left.shape, right.shape), dtype=dtype)

    def __add__(self, other: Value | float) -> Value:
        return self.binary("Add", other)

    def __mul__(self, other: Value | float) -> Value:
        return self.binary("Multiply", other)

    def cast(self, dtype: Attribute) -> Value:
        """Convert to an element type."""
        if self.dtype == dtype:
            return self
        named = NAMES.get(torch_dtype(dtype))
        if named is None:
            refuse(f"OpenVINO does not compute in {dtype_name(dtype)}")
        return self.op("Convert", dtype=dtype, destination_type=named)

    def sizes(self, shape: Sequence[Dim]) -> Value:
        """Return sizes as a tensor; symbolic ones are computed from this value's."""
        if all(isinstance(size, int) for size in shape):
            return self.constant(list(shape))
        parts = [self._size(Size.of(size)) for size in shape]
        return parts[0].op("Concat", *parts[1:], shape=[len(parts)], axis=0)

    def _size(self, size: Size) -> Value:
        """Return a size as a tensor of one element, computed from the sizes of this value."""
        if size.number is not None:
            return self.constant([size.number])
        if size in self.shape:
            whole = self.op("ShapeOf", shape=[self.rank], dtype=i64, output_type="i64")
            return whole.op(
                "Gather", [self.shape.index(size)], torch.tensor(0), shape=[1], batch_dims=0
            )
        total: Value | None = None
        for monomial, coefficient in size.terms:
            term = self.constant([coefficient])
            for atom, power in monomial:
                alone = Size((((((atom, 1),)), 1),))
                if alone not in self.shape:
                    refuse(
                        f"the size {size} is not one of the operand's, {list(map(str, self.shape))}"
                    )
                for _ in range(power):
                    term = term * self._size(alone)
            total = term if total is None else total + term
        assert total is not None
        return total

    def reshape(self, *shape: Dim) -> Value:
        """Reshape; one symbolic size is inferred, others are computed."""
        if shape == self.shape:
            return self
        symbolic = [at for at, size in enumerate(shape) if isinstance(size, Size)]
        kept = all(at < self.rank and self.shape[at] == shape[at] for at in symbolic)
        if len(symbolic) > 1 and not kept:
            target, zero = self.sizes(shape), False
        else:
            hidden = 0 if kept and symbolic else -1
            target = self.constant([hidden if at in symbolic else s for at, s in enumerate(shape)])
            zero = hidden == 0
        return self.op("Reshape", target, shape=shape, special_zero=zero)

    def permute(self, order: Sequence[int]) -> Value:
        """Permute the axes."""
        return self.op("Transpose", list(order), shape=[self.shape[at] for at in order])

    def unsqueeze_to(self, rank: int) -> Value:
        """Add leading axes of size 1 up to a rank."""
        return self.reshape(*[1] * (rank - self.rank), *self.shape)


def unfit(values: Iterable[SSAValue], program: Program, symbols: bool = True) -> Refusal | None:
    """Return why OpenVINO does not compute with values of these types, or None."""
    for value in values:
        if not isinstance(value.type, TensorType):
            continue  # A size: lowerings state it by the result's type, or refuse it.
        if (refusal := cannot_hold(value)) is not None:
            return refusal
        of = element(value.type)
        if isinstance(of, IntegerType) and of != i1:
            if _most(value, program) > EXACT_INTEGERS:
                return Refusal("integers may be beyond 2²⁴, up to which OpenVINO's are exact")
        elif of not in (f32, i1):
            return Refusal(f"OpenVINO's CPU plug-in computes in float32, not {dtype_name(of)}")
    return None


def _most(value: SSAValue, program: Program) -> float:
    """Return the greatest magnitude that integers may have; all of a constant's are read."""
    key = weight_key(value)
    if key is None or not program.weights.get(key).numel():
        return interval(value, program).most
    return float(program.weights.get(key).abs().max())


def cannot_hold(value: SSAValue) -> Refusal | None:
    """Return why OpenVINO has no tensor of this type."""
    if torch_dtype(element(value.type)) not in PORTS:
        return Refusal(f"delegates of OpenVINO take no {dtype_name(element(value.type))}")
    shape = dims(value.type)
    if 0 in shape or UNKNOWN in shape:
        return Refusal("a dimension is 0 or unknown")
    return None


PORTS = frozenset((torch.float32, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool))
"""Element types that the runtime passes to a delegate."""


def loses_nan(op: Any, program: Program) -> Deviation | None:
    """Return the deviation of operators that return a number for NaN, as stock's flow does."""
    lost = Deviation("a NaN becomes a number, as in every flow to OpenVINO", accepted=True)
    floats = [v for v in op.operands if element(v.type) == f32]
    return lost.unless(*(is_never_nan(value, program) for value in floats))


goal("openvino", Goal(ROUNDED, lambda rw: rw, Value, lambda value: dims(value.type), unfit))

"""Apply nodes to values: types and results at several sizes, fingerprints and costs.

A term's value is computed once from its operands' values, by the interpreter's rule of the op. The
sizes of one grammar are few and small; a last choice of sizes, larger ones, has types only and
gives the cost.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy
import torch
from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from stepwell.cost_model.discovery.grammar import (
    NAMED_TYPES,
    RESULT,
    Grammar,
    Node,
    input_type,
)
from stepwell.dialects.cmsis.costs import LAYOUT as CMSIS
from stepwell.dialects.quant.types import stored_dtype
from stepwell.dialects.tosa.constants import const, const_shape
from stepwell.dialects.tosa.costs import LAYOUT as TOSA
from stepwell.dialects.xnnpack.costs import COSTS
from stepwell.dialects.xnnpack.costs.nodes import nanoseconds
from stepwell.ir.declared.interpretation import Interpreter, Rule, rule_for
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import element_type, torch_dtype
from stepwell.ir.types import dims, element, tensor
from stepwell.ir.weights import WeightStore
from stepwell.ir.work import operations

FAILS = (
    StepwellError, VerifyException, RuntimeError, ValueError, TypeError, IndexError, KeyError,
    AssertionError, NotImplementedError, AttributeError, ZeroDivisionError, struct.error,
)  # fmt: skip
"""What an op raises that does not take its operands."""
LARGE = 16
"""By how much the sizes for costs exceed the sizes for values; sizes of 1 stay."""
_SPECIAL = {
    torch.float32: (0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 2.0, 0.5,
                    -3.5, 6.0, 3e38, -3e38, 1e-40, -1e-40, 0.3),
    torch.int32: (0, 1, -1, 2, 7, 31, 127, 128, -128, 255, 2**31 - 1, -(2**31), 1 << 16, -77),
    torch.int8: (0, 1, -1, 127, -128, 2, 7, 8, -64, 100, 3, -5),
    torch.bool: (True, False),
}  # fmt: skip


def built(node: Node, types: Sequence[Attribute]) -> Operation | None:
    """Return a node's op on operands of some types, in a block of its own; None if it takes none
    such.
    """
    block = Block(arg_types=list(types))
    op = appended(node, block.args, block)
    if op is not None:
        op.verify(verify_nested_ops=False)
    return op


def appended(node: Node, operands: Sequence[SSAValue], block: Block) -> Operation | None:
    """Append a node's op to a block, with its constant operands; None if its arguments do not fit
    the first operand's shape, or the op does not take operands of these types.
    """
    types = [operand.type for operand in operands]
    fields = node.fields(shape_of(types[0]))
    if fields is None:
        return None
    reader, values = node.reader, iter(operands)
    given: dict[str, Any] = {}
    for parameter in reader.parameters:
        if parameter.name in fields:
            held = fields[parameter.name]
            held = _typed(held) if isinstance(held, str) and not parameter.is_value else held
            given[parameter.name] = _constant(held, block) if parameter.is_value else held
        elif parameter.is_value and parameter.is_list:
            given[parameter.name] = list(values)
        elif parameter.is_value:
            given[parameter.name] = next(values, None)
    op = _made(node, given, types)
    if op is not None:
        block.add_op(op)
    return op


def _typed(text: str) -> Any:
    """Return a number `'i32:0'` of a field as an attribute; other words as they are."""
    kind, _, number = text.partition(":")
    return IntegerAttr(int(number), NAMED_TYPES[kind]) if number else text


def _constant(held: Any, block: Block) -> Any:
    """Return a constant operand: a list of sizes, or one number `'i8:0'` of some type."""
    if isinstance(held, list):
        op: Operation = const_shape(held)
    else:
        kind, _, number = str(held).partition(":")
        dtype = {"i8": torch.int8, "i32": torch.int32, "f32": torch.float32}[kind]
        op = const(torch.tensor([float(number) if kind == "f32" else int(number)], dtype=dtype))
    block.add_op(op)
    return op.results[0]


def _made(node: Node, given: dict[str, Any], types: Sequence[Attribute]) -> Operation | None:
    fields = dict(node.arguments)
    if RESULT in fields:
        return node.reader.make(given, [tensor(dims(types[0]), fields[RESULT])])
    try:
        return node.reader.make(given, None)
    except FAILS:
        if node.op.startswith(("xnnpack.", "aten.", "tosa.")):
            return None
    draft = node.reader.make(given, [types[0]])
    rule = rule_for(type(draft))
    assert rule is not None
    zeros = [torch.zeros(shape_of(t), dtype=torch_dtype(element(t))) for t in types]
    (found,) = rule(draft, zeros, Interpreter(WeightStore()))
    draft.erase()
    return node.reader.make(given, [tensor(found.shape, element_type(found.dtype))])


def values_of(grammar: Grammar, sizes: Any, seed: int) -> list[torch.Tensor]:
    """Return the inputs of a grammar for some sizes: each pair of special numbers as far as there
    is room, and random numbers.
    """
    draw = numpy.random.default_rng(seed)
    found: list[torch.Tensor] = []
    for at, text in enumerate(grammar.inputs):
        type_ = input_type(text, sizes)
        dtype = stored_dtype(type_)
        shape = shape_of(type_)
        count = int(numpy.prod(shape))
        if dtype == torch.bool:
            numbers: Any = draw.integers(0, 2, count).astype(bool)
        elif dtype.is_floating_point:
            numbers = draw.standard_normal(count) * numpy.exp(draw.uniform(-2, 2, count))
        else:
            low, high = (-128, 128) if dtype == torch.int8 else (-(2**31), 2**31)
            numbers = draw.integers(low, high, count)
            small = draw.integers(-9, 10, count)
            numbers = numpy.where(draw.random(count) < 0.5, numbers, small)
        special = numpy.array(_SPECIAL[dtype])
        base = len(special)
        if count >= base**2:  # Each pair of special numbers.
            held = special[(numpy.arange(count) // base**at) % base]
            is_held = numpy.arange(count) < max(count // 2, base**2)
        else:
            held, is_held = draw.choice(special, count), draw.random(count) < 0.4
        numbers = numpy.where(is_held, held, numbers)
        found.append(torch.tensor(numpy.asarray(numbers).tolist(), dtype=dtype).reshape(shape))
    return found


@cache
def _text(type_: Attribute) -> bytes:
    return str(type_).encode()


def fingerprint(values: Sequence[torch.Tensor], types: Sequence[Attribute]) -> bytes:
    """Return a digest of a term's values at all sizes. Every NaN is one number, 0 and −0 are
    two.
    """
    digest = hashlib.blake2b(digest_size=12)
    for value, type_ in zip(values, types, strict=True):
        held = value.contiguous().numpy()
        if held.dtype.kind == "f":
            held = numpy.where(held == held, held, numpy.nan).astype(held.dtype)
        digest.update(held.tobytes())
        digest.update(_text(type_))
    return digest.digest()


@dataclass(frozen=True)
class Applied:
    """A node on operands of some types: its op, the interpreter's rule, the result's type, and the
    cost.
    """

    op: Operation
    rule: Rule
    type: Attribute
    cost: float


class Evaluator:
    """The nodes of a grammar applied to values, with a cache of their ops by operand types."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.interpreter = Interpreter(WeightStore())
        self._known: dict[tuple[Node, tuple[Attribute, ...]], Applied | None] = {}

    @property
    def large(self) -> dict[str, int]:
        """Return the sizes at which terms are compared by cost."""
        return {n: size if size == 1 else size * LARGE for n, size in self.grammar.sizes[0].items()}

    def applied(self, node: Node, types: tuple[Attribute, ...]) -> Applied | None:
        """Return a node on operands of some types; None if it does not take them."""
        key = (node, types)
        if key not in self._known:
            self._known[key] = self._applied(node, types)
        return self._known[key]

    def _applied(self, node: Node, types: tuple[Attribute, ...]) -> Applied | None:
        try:
            op = built(node, types)
        except FAILS:
            return None
        if op is None or len(op.results) != 1 or not isinstance(op.results[0].type, TensorType):
            return None
        rule = rule_for(type(op))
        return None if rule is None else Applied(op, rule, op.results[0].type, self._cost(op))

    def _cost(self, op: Operation) -> float:
        if op.name.startswith("xnnpack."):
            return nanoseconds(op, COSTS)
        return (CMSIS if op.name.startswith("cmsis.") else TOSA).op + operations(op)

    def run(self, applied: Applied, operands: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """Return a node's value; None if the op fails on these numbers or gives another type."""
        op, constants = applied.op, []
        if len(operands) < len(op.operands):
            constants = [
                rule_for(type(v.owner))(v.owner, [], self.interpreter)[0]  # pyright: ignore
                for v in op.operands
                if isinstance(v.owner, Operation)
            ]
        given, rest = iter(operands), iter(constants)
        all_ = [next(rest) if isinstance(v.owner, Operation) else next(given) for v in op.operands]
        try:
            found = applied.rule(op, all_, self.interpreter)[0]
        except FAILS:
            return None
        if not isinstance(found, torch.Tensor) or list(found.shape) != list(dims(applied.type)):
            return None
        return found


def shape_of(type_: Attribute) -> list[Any]:
    """Return the shape of a type."""
    return list(dims(type_))

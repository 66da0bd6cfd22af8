"""Apply nodes to values: types and results at several sizes, fingerprints and costs.

A term's value is computed once from its operands' values, by the interpreter's rule of the op. The
sizes of one grammar are few and small; a last choice of sizes, larger ones, has types only and
gives the cost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, cast

import numpy
import torch
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from stepwell.cost_model.discovery.grammar import NAMED_TYPES, RESULT, Grammar, Node, input_type
from stepwell.cost_model.optimum import cost_of
from stepwell.dialects.quant.types import stored_dtype
from stepwell.dialects.tosa.constants import const, const_shape
from stepwell.ir.declared.interpretation import Interpreter, rule_for
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import element_type, torch_dtype
from stepwell.ir.types import dims, element, tensor
from stepwell.ir.weights import WeightStore
from stepwell.validation.fills import tensor_of

LARGE = 16
"""By how much the sizes for costs exceed the sizes for values; sizes of 1 stay."""
SPECIAL = {
    torch.float32: (0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 2.0, 0.5,
                    -3.5, 6.0, 3e38, -3e38, 1e-40, -1e-40, 0.3),
    torch.int32: (0, 1, -1, 2, 7, 31, 127, 128, -128, 255, 2**31 - 1, -(2**31), 1 << 16, -77),
    torch.int8: (0, 1, -1, 127, -128, 2, 7, 8, -64, 100, 3, -5),
    torch.bool: (True, False),
}  # fmt: skip
_PRIME = 17
"""A prime number that is larger than each number of special values."""


class NotApplicable(StepwellError):
    """Raised if a node does not take operands of some types."""


def append_node(node: Node, operands: Sequence[SSAValue], block: Block) -> Operation:
    """Append a node's op to a block, after its constant operands.

    Raises:
        NotApplicable: the node does not take operands of these types.
    """
    fields = node.fields(dims(operands[0].type))
    if fields is None:
        raise NotApplicable(f"{node} is for other ranks or sizes")
    values = iter(operands)
    given: dict[str, Any] = {}
    for parameter in node.reader.parameters:
        name = parameter.name
        if name in fields:
            given[name] = _argument(fields[name], block if parameter.is_value else None)
        elif parameter.is_value:
            given[name] = list(values) if parameter.is_list else next(values, None)
    try:
        op = node.reader.make(given, _result_types(node, fields, given, operands))
        op.verify(verify_nested_ops=False)
    except (StepwellError, VerifyException) as error:
        raise NotApplicable(f"{node}: {error}") from error
    block.add_op(op)
    return op


def _argument(value: Any, block: Block | None) -> Any:
    """Return a field, or append it to a block as a constant operand; `'i8:0'` is a number of some
    integer type, a list is a list of sizes.
    """
    if isinstance(value, str) and ":" in value:
        kind, _, text = value.partition(":")
        number, of = int(text), NAMED_TYPES[kind]
        if block is None:
            return IntegerAttr(number, of)
        constant: Operation = const(torch.tensor([number], dtype=torch_dtype(of)))
    elif block is None:
        return value
    else:
        constant = const_shape(cast("list[int]", value))
    block.add_op(constant)
    return constant.results[0]


def _result_types(
    node: Node, fields: Mapping[str, Any], given: Mapping[str, Any], operands: Sequence[SSAValue]
) -> list[Attribute] | None:
    """Return the types of a node's results; None if its dialect infers them."""
    first = operands[0].type
    if RESULT in fields:
        return [tensor(dims(first), fields[RESULT])]
    if not node.op.startswith("cmsis."):
        return None
    draft = node.reader.make(given, [first])
    rule = rule_for(type(draft))
    assert rule is not None
    shapes = [torch.empty(_static(v.type), dtype=torch_dtype(element(v.type)), device="meta")
              for v in operands]  # fmt: skip
    try:
        (result,) = rule(draft, shapes, Interpreter(WeightStore()))
    except RuntimeError as error:  # PyTorch does not broadcast the operands.
        raise NotApplicable(f"{node}: {error}") from error
    draft.erase()
    return [tensor(result.shape, element_type(result.dtype))]


def _static(type_: Attribute) -> list[int]:
    return [size for size in dims(type_) if isinstance(size, int)]


def values_of(grammar: Grammar, sizes: Mapping[str, int], seed: int) -> list[torch.Tensor]:
    """Return the inputs of a grammar for some sizes: random numbers, and before them, if there is
    room, special numbers such that any two inputs have each pair of them.
    """
    random = torch.Generator().manual_seed(seed)
    values: list[torch.Tensor] = []
    for number, text in enumerate(grammar.inputs):
        type_ = input_type(text, sizes)
        dtype, shape = stored_dtype(type_), _static(type_)
        at = torch.arange(prod(shape))
        any_number = tensor_of([len(at)], dtype, "random", random)
        if dtype in (torch.int8, torch.int32):
            limits = torch.iinfo(dtype)
            any_number = any_number.random_(limits.min, limits.max + 1, generator=random)
        small = tensor_of([len(at)], dtype, "integers", random)
        numbers = torch.where(at % 2 == 0, any_number, small)
        if len(at) >= _PRIME**2:
            special = torch.tensor(SPECIAL[dtype], dtype=dtype)
            row, column = at // _PRIME, at % _PRIME
            # Lines of different slopes meet once in the plane over a prime field.
            line = column if number == 0 else row + (number - 1) * column
            numbers = torch.where(at < _PRIME**2, special[line % _PRIME % len(special)], numbers)
        values.append(numbers.reshape(shape))
    return values


@cache
def _type_text(type_: Attribute) -> bytes:
    return str(type_).encode()


def fingerprint(values: Sequence[torch.Tensor], types: Sequence[Attribute]) -> bytes:
    """Return a digest of a term's values at all sizes. Every NaN is one number, 0 and −0 are
    two.
    """
    digest = hashlib.blake2b(digest_size=12)
    for value, type_ in zip(values, types, strict=True):
        array = value.contiguous().numpy()
        if array.dtype.kind == "f":
            array = numpy.where(array == array, array, numpy.nan).astype(array.dtype)
        digest.update(array.tobytes())
        digest.update(_type_text(type_))
    return digest.digest()


@dataclass(frozen=True)
class Application:
    """A node on operands of some types: its op in a block, the values of its constant operands,
    the type of its result, and its cost.
    """

    op: Operation
    block: Block
    constants: Mapping[SSAValue, torch.Tensor]
    type: Attribute
    cost: float


class Evaluator:
    """The nodes of a grammar applied to values, with a cache of their ops by operand types."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.interpreter = Interpreter(WeightStore())
        self._known: dict[tuple[Node, tuple[Attribute, ...]], Application | None] = {}

    @property
    def large(self) -> dict[str, int]:
        """Return the sizes at which terms are compared by cost."""
        return {n: size if size == 1 else size * LARGE for n, size in self.grammar.sizes[0].items()}

    def applied(self, node: Node, types: tuple[Attribute, ...]) -> Application | None:
        """Return a node on operands of some types; None if it does not take them."""
        key = (node, types)
        if key not in self._known:
            try:
                self._known[key] = self._apply(node, types)
            except NotApplicable:
                self._known[key] = None
        return self._known[key]

    def _apply(self, node: Node, types: tuple[Attribute, ...]) -> Application:
        block = Block(arg_types=list(types))
        op = append_node(node, block.args, block)
        constants: dict[SSAValue, torch.Tensor] = {}
        for each in block.ops:
            if each is not op:
                self.interpreter.step(each, constants)
        target = "tosa" if self.grammar.target == "aten" else self.grammar.target
        return Application(op, block, constants, op.results[0].type, cost_of(op, target))

    def run(self, application: Application, operands: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return a node's value.

        Raises:
            StepwellError: the op fails on these numbers. Its types are verified, so that this is a
                defect of the op's rule.
        """
        arguments = zip(application.block.args, operands, strict=True)
        environment = {**application.constants, **dict(arguments)}
        self.interpreter.step(application.op, environment)
        value = environment[application.op.results[0]]
        type_ = application.type
        assert list(value.shape) == _static(type_), str(application.op)
        assert value.dtype == stored_dtype(type_), str(application.op)
        return value

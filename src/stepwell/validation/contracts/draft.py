"""Represent a method as plain data that is edited and rebuilt, with types inferred again.

Values are numbered. A source is an input or a weight; a step is an op whose operands are in its
`arguments`. A rebuilt program has the types that its dialect infers. If a dialect states types (the
casts of `quant`, CMSIS-NN's operators), they are those of the interpreter's results on zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant.types import quantization, stored_dtype
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.declared.inference import infer
from stepwell.ir.declared.interpretation import Interpreter, rule_for
from stepwell.ir.dtypes import element_type
from stepwell.ir.program import Program
from stepwell.ir.signature import Port, get_signature, set_signature
from stepwell.ir.sizes.size import Size
from stepwell.ir.syntax.text import parse_module
from stepwell.ir.types import Dim, dims, element, tensor
from stepwell.ir.verification import find_problems
from stepwell.ir.weights import WeightStore
from stepwell.validation.fills import Fill, fill_of, weight_tensor

MOST_ELEMENTS = 1 << 16
"""The limit of elements of a tensor in a variant."""


class Dropped(Exception):
    """Raised if a variant is not a program: it does not verify, or the interpreter rejects it."""


@dataclass(frozen=True)
class Ref:
    """A reference in an op's arguments to a value of a draft, by its number."""

    number: int


@dataclass
class DraftInput:
    """An input or a weight of a draft (a method as editable data).

    Attributes:
        value: the number of the input's value.
        type: the type of a tensor or of a runtime number.
        key: the key of a weight; None for an input.
        kind: the kind of a weight.
        fill: how its elements are filled.
        lying: the memory layout of a weight: "dense", "transposed", "expanded" or "sliced".
        order: the dim order of an input.
    """

    value: int
    type: Attribute
    key: str | None = None
    kind: str = "parameter"
    fill: Fill = "random"
    lying: str = "dense"
    order: tuple[int, ...] | None = None


@dataclass
class Step:
    """An op of a draft (a method as editable data). For a PyTorch op, `arguments` follow the
    schema; for other ops they are `operands` in order.

    Attributes:
        cls: the class of the op.
        arguments: the arguments by name; values are `Ref`s, also in lists.
        properties, attributes: those of the op; those of a schema op are in `arguments`.
        types: the types of its results before any edit.
        results: the numbers of its results.
        regions: the op whose regions are cloned; None for an op without regions.
    """

    cls: type[Operation]
    arguments: dict[str, Any]
    properties: dict[str, Attribute]
    attributes: dict[str, Attribute]
    types: list[Attribute]
    results: list[int]
    regions: Operation | None

    def copy(self) -> Step:
        """Return an independent copy of the op; attributes are shared."""
        return replace(
            self,
            arguments={
                name: mapped(value, lambda ref: ref) for name, value in self.arguments.items()
            },
            properties=dict(self.properties),
            attributes=dict(self.attributes),
            types=list(self.types),
            results=list(self.results),
        )


@dataclass
class Draft:
    """A method of a program under construction, which edits can change."""

    sources: list[DraftInput]
    steps: list[Step]
    returned: list[int]
    name: str
    module: dict[str, Attribute]
    func: dict[str, Attribute]
    ranges: dict[str, tuple[int, int | None]] = field(
        default_factory=dict[str, tuple[int, int | None]]
    )
    is_blind: bool = False
    """Whether weights have no data for the rewrite, only types."""
    orders: tuple[tuple[int, ...] | None, ...] = ()
    """The dim orders of the outputs, from the first one."""

    def copy(self) -> Draft:
        """Return an independent copy of the draft; op classes and attributes are shared."""
        return replace(
            self,
            sources=[replace(source) for source in self.sources],
            steps=[step.copy() for step in self.steps],
            returned=list(self.returned),
            func=dict(self.func),
            ranges=dict(self.ranges),
        )

    def fresh(self) -> int:
        """Return a number that no value of the draft has yet."""
        numbers = [source.value for source in self.sources]
        numbers += [number for step in self.steps for number in step.results]
        return max(numbers, default=0) + 1

    def build(self) -> Program:
        """Build a program from the draft.

        Raises:
            Dropped: the draft is not a program: types cannot be inferred or do not verify.
        """
        return _Builder(self).build()


def mapped(value: Any, change: Callable[[Any], Any], of: type[Any] = Ref) -> Any:
    """Return an argument with `change` applied to each `Ref` or value of a class, also in lists."""
    if isinstance(value, of):
        return change(value)
    if isinstance(value, list):
        return [mapped(item, change, of) for item in cast(list[Any], value)]
    return value


def refs_in(value: Any) -> list[Ref]:
    """Return the `Ref`s of an argument, in order."""
    refs: list[Ref] = []
    mapped(value, refs.append)
    return refs


def draft_of(text: str) -> Draft:
    """Return the only method of a text as a draft."""
    module = parse_module(text)
    func = next(op for op in module.ops if isinstance(op, FuncOp))
    signature = get_signature(func)
    numbers: dict[SSAValue, Any] = {}
    sources: list[DraftInput] = []
    steps: list[Step] = []
    returned: list[int] = []
    for argument, port in zip(func.body.block.args, signature.runtime_inputs, strict=True):
        numbers[argument] = Ref(len(numbers))
        sources.append(DraftInput(numbers[argument].number, argument.type, order=port.dim_order))
    for op in func.body.block.ops:
        if isinstance(op, ReturnOp):
            returned = [numbers[value].number for value in op.operands]
            continue
        for result in op.results:
            numbers[result] = Ref(len(numbers))
        made = [numbers[result].number for result in op.results]
        if isinstance(op, WeightOp):
            key = op.key.data
            sources.append(DraftInput(made[0], op.result.type, key, op.kind.data, fill_of(key)))
            continue
        given = {str(i): numbers[value] for i, value in enumerate(op.operands)}
        properties = dict(op.properties)
        if isinstance(op, SchemaOp):
            given = {
                name: mapped(value, numbers.__getitem__, SSAValue)
                for name, value in op.present().items()
            }
            properties = {}
        types = [result.type for result in op.results]
        attributes = dict(op.attributes)
        regions = op if op.regions else None
        steps.append(Step(type(op), given, properties, attributes, types, made, regions))
    kept = {name: v for name, v in func.attributes.items() if not name.startswith("stepwell.")}
    place = (func.sym_name.data, dict(module.attributes), kept, dict(signature.ranges))
    orders = tuple(port.dim_order for port in signature.runtime_outputs)
    return Draft(sources, steps, returned, *place, orders=orders)


class _Builder:
    """A builder of the program of a draft, which is interpreted on zeros where types need it."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.values: dict[int, SSAValue] = {}
        self.weights = WeightStore()

    def build(self) -> Program:
        draft = self.draft
        inputs = [source for source in draft.sources if source.key is None]
        block = Block(arg_types=[source.type for source in inputs])
        for source, argument in zip(inputs, block.args, strict=True):
            self.values[source.value] = argument
            _check_size(source.type)
        for source in draft.sources:
            if source.key is not None:
                self._weight(source, block)
        for step in draft.steps:
            self._step(step, block)
        try:
            values = [self.values[number] for number in draft.returned]
        except KeyError:
            raise Dropped("an undefined value is returned") from None
        block.add_op(ReturnOp(*values))
        types = [value.type for value in values]
        func = FuncOp(draft.name, ([s.type for s in inputs], types), Region(block))
        func.attributes.update(draft.func)
        self._sign(func, inputs, values)
        module = ModuleOp([func], attributes=dict(draft.module))
        program = Program(module, self.weights)
        problems = list(find_problems(module, self.weights, membership=False))
        if problems:
            raise Dropped(problems[0].fact)
        return program

    def _sign(self, func: FuncOp, inputs: Sequence[DraftInput], values: Sequence[SSAValue]) -> None:
        orders = [
            order if order is not None and len(order) == len(dims(value.type)) else None
            for order, value in zip_longest(self.draft.orders[: len(values)], values)
        ]
        if not any(source.order for source in inputs) and not any(orders) and not self.draft.ranges:
            return
        signature = get_signature(func)
        ports = tuple(Port(f"input_{i}", s.order) for i, s in enumerate(inputs))
        outputs = tuple(
            replace(port, dim_order=order)
            for port, order in zip(signature.outputs, orders, strict=True)
        )
        ranges = dict(self.draft.ranges)
        set_signature(func, replace(signature, inputs=ports, outputs=outputs, ranges=ranges))

    def _weight(self, source: DraftInput, block: Block) -> None:
        assert source.key is not None
        _check_size(source.type)
        if any(isinstance(dim, Size) for dim in dims(source.type)):
            raise Dropped("a weight has a symbolic size")
        if source.key not in self.weights:
            try:
                made = weight_tensor(source.type, source.fill, source.lying)
            except Exception as error:  # The dtype does not represent these numbers.
                raise Dropped(f"no such weight: {error}") from None
            self.weights.add(source.key, made)
        op = WeightOp(source.key, source.type, source.kind)
        block.add_op(op)
        self.values[source.value] = op.result

    def _step(self, step: Step, block: Block) -> None:
        def value(ref: Ref) -> SSAValue:
            try:
                return self.values[ref.number]
            except KeyError:
                raise Dropped("an undefined value is read") from None

        arguments = {name: mapped(item, value) for name, item in step.arguments.items()}
        try:
            op = self._made(step, arguments)
        except Dropped:
            raise
        except Exception as error:  # Kernels may raise any exception.
            raise Dropped(f"{step.cls.name}: {str(error)[:200]}") from None
        block.add_op(op)
        for result in op.results:
            _check_size(result.type)
        self.values.update(zip(step.results, op.results, strict=False))

    def _made(self, step: Step, arguments: dict[str, Any]) -> Operation:
        if step.regions is not None:
            op = step.regions.clone()
            op.operands = list(arguments.values())
            return op
        if issubclass(step.cls, SchemaOp):
            op = step.cls.from_arguments(arguments)
            if (keywords := step.attributes.get("aten.keywords_from")) is not None:
                op.attributes["aten.keywords_from"] = keywords
            return op
        op = step.cls.create(
            operands=list(arguments.values()),
            result_types=step.types,
            properties=step.properties,
            attributes=step.attributes,
        )
        inferred = infer(op) if isinstance(op, IRDLOperation) else None
        if inferred is not None:
            for result, type_ in zip(op.results, inferred, strict=True):
                set_type(result, type_)
        elif not isinstance(op, UpdateOp | MutateInputOp | StateOp):
            self._evaluated(op)
        return op

    def _evaluated(self, op: Operation) -> None:
        """Set an op's result shapes to those that the interpreter computes on zeros."""
        if any(not _is_static(value.type) for value in (*op.operands, *op.results)):
            return
        rule = rule_for(type(op))
        if rule is None:
            return
        zeros = [zeros_of(value.type) for value in op.operands]
        with torch.no_grad():
            made = rule(op, zeros, Interpreter(self.weights))
        for result, value in zip(op.results, made, strict=True):
            if isinstance(value, torch.Tensor) and isinstance(result.type, TensorType):
                is_plain = quantization(result.type) is None
                of = element_type(value.dtype) if is_plain else element(result.type)
                set_type(result, tensor(list(value.shape), of))


def _is_static(type_: Attribute) -> bool:
    return not isinstance(type_, TensorType) or all(isinstance(d, int) for d in dims(type_))


def zeros_of(type_: Attribute) -> Any:
    """Return zeros of a tensor type (of the storage type, if it is quantized), or the number 0."""
    if not isinstance(type_, TensorType):
        return 0
    return torch.zeros([d for d in dims(type_) if isinstance(d, int)], dtype=stored_dtype(type_))


def elements_of(shape: Sequence[Dim]) -> int:
    """Return the number of elements of a tensor; symbolic sizes count as 1."""
    return math.prod(d for d in shape if isinstance(d, int))


def _check_size(type_: Attribute) -> None:
    if not isinstance(type_, TensorType):
        return
    if any(isinstance(d, int) and d < 0 for d in dims(type_)):
        raise Dropped("a negative size")
    if elements_of(dims(type_)) > MOST_ELEMENTS:
        raise Dropped("too many elements to try")

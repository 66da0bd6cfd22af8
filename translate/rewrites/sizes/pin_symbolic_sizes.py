"""Specialization: pin dynamic sizes to stated numbers, in the types and in the signature.

Some runtimes have operators that keep the planned size of their results. They compute wrong numbers
at any other size. With the size pinned the program states it: its input has one shape, and every
engine refuses another. Values computed from the size become constants.

    func.func @forward(%x: tensor<?x12xf32, #stepwell.shape<["s0", 12]>>) …      # 1 <= s0 <= 16

with `sizes="max"` becomes

    func.func @forward(%x: tensor<16x12xf32>) …
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from xdsl.dialects.builtin import FunctionType, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.attributes import DYNAMIC, scalar_attribute
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.sym import ConstantOp, SymOp
from stepwell.dialects.symbols import Symbols
from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.diagnostics import Problem, StepwellError, describe_op
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import History, Pass
from stepwell.ir.side_effects import is_dead
from stepwell.ir.signature import Signature, get_signature, set_signature
from stepwell.ir.sizes.size import UNKNOWN, Size
from stepwell.ir.sizes.size_text import dim_of
from stepwell.ir.traversal import walk_blocks
from stepwell.ir.types import BoolType, Dim, FloatType, IntType, dims, element, is_static, tensor

Number = int | float | bool
Sizes = str | int | Mapping[str, int]

MAX = "max"


@dataclass(frozen=True)
class PinSymbolicSizes(Pass):
    """Replace symbolic sizes by numbers.

    Args:
        sizes: `max` (each symbol at its upper bound), `4` (the program's only symbol), or
            `s77=4,s31=8`. Symbols that are not named stay.
    """

    sizes: str = MAX
    name: ClassVar[str] = "pin-symbolic-sizes"

    @classmethod
    def of(cls, sizes: Sizes) -> PinSymbolicSizes:
        """Create the pass from sizes as Python objects: `"max"`, `4`, `{"s77": 4}`."""
        if isinstance(sizes, Mapping):
            return cls(",".join(f"{symbol}={size}" for symbol, size in sizes.items()))
        return cls(str(sizes))

    def apply(self, program: Program, history: History) -> int:
        """Pin the sizes; return the number of symbols.

        Raises:
            StepwellError: a size is out of its range, has no bound, is unknown or data-dependent,
                or contradicts an assertion of the program.
        """
        sizes = {name: sizes_of_inputs(func) for name, func in program.methods.items()}
        pins = self._pins({s: r for ranges in sizes.values() for s, r in ranges.items()})
        if problems := list(_out_of_range(pins, sizes)):
            raise StepwellError(problems)
        if pins:
            program.samples.clear()  # Other methods may have another size.
            for func in program.methods.values():
                Pinning(func, pins).apply()
        return len(pins)

    def _pins(self, ranges: Mapping[str, tuple[int, int | None]]) -> dict[str, int]:
        known = ", ".join(spelled(name, *bounds) for name, bounds in ranges.items()) or "none"
        if self.sizes == MAX:
            if unbounded := [name for name, (_, high) in ranges.items() if high is None]:
                raise StepwellError(
                    f"{', '.join(unbounded)} has no upper bound to be pinned to",
                    help="state a size, or export with Dim(…, max=…)",
                )
            return {name: high for name, (_, high) in ranges.items() if high is not None}
        if self.sizes.isdecimal():
            if len(ranges) != 1:
                raise StepwellError(
                    f"one size is given, the program has {len(ranges)} symbolic sizes",
                    help=f"name them, as in {{'s0': 4}}; they are: {known}",
                )
            return dict.fromkeys(ranges, int(self.sizes))
        pins: dict[str, int] = {}
        for part in self.sizes.split(","):
            symbol, _, size = (piece.strip() for piece in part.partition("="))
            if not size.isdecimal():
                raise StepwellError(f"{part!r} is no size", help="max, 4, or s77=4,s31=8")
            if symbol not in ranges:
                raise StepwellError(
                    f"no input has the symbolic size {symbol!r}", help=f"they are: {known}"
                )
            pins[symbol] = int(size)
        return pins


def spelled(name: str, low: int, high: int | None) -> str:
    """Describe a symbol and its range."""
    return f"{name} ({low} … {'unbounded' if high is None else high})"


def sizes_of_inputs(func: FuncOp) -> dict[str, tuple[int, int | None]]:
    """Return the symbols that a caller determines (not data-dependent ones) with their ranges."""
    ranges = get_signature(func).ranges
    sizes: dict[str, tuple[int, int | None]] = {}
    for argument in func.body.block.args:
        for size in _sizes(argument.type):
            for name in sorted(size.symbols):
                sizes[name] = ranges.get(name, (0, None))
    return sizes


def _sizes(type_: Attribute) -> Iterator[Size]:
    given = dims(type_) if isinstance(type_, TensorType) else ()
    for size in (type_.size,) if isinstance(type_, IntType) else given:
        if isinstance(size, Size) and size != UNKNOWN:
            yield size


def _out_of_range(
    pins: Mapping[str, int], found: Mapping[str, Mapping[str, tuple[int, int | None]]]
) -> Iterator[Problem]:
    for method, ranges in found.items():
        for symbol, size in pins.items():
            low, high = ranges.get(symbol, (size, size))
            if size < low or (high is not None and size > high):
                stated = spelled(symbol, low, high)
                yield Problem(f"size {size} is outside the range of {stated}", f"method @{method}")


class Pinning:
    """Replaces symbolic sizes of one method by constants."""

    def __init__(self, func: FuncOp, pins: Mapping[str, int]) -> None:
        self.func, self.pins = func, pins
        self.ranges = get_signature(func).ranges
        self.symbols = Symbols(self.ranges)
        self.known: dict[SSAValue, Number] = {}

    def apply(self) -> None:
        """Rewrite types first, then readers of numbers that are now known, then the signature."""
        for block in walk_blocks(self.func.body):
            for argument in block.args:
                self._retype(argument)
            for op in block.ops:
                for result in op.results:
                    self._retype(result)
        for op in list(self.func.body.walk()):
            if not any(value in self.known for value in op.operands):
                continue
            if isinstance(op, SchemaOp):
                self._state_arguments(op)
            elif isinstance(op, SymOp):
                self._state_numbers(op)
        self._remove_proven()
        self._seal()
        for op in reversed(list(self.func.body.walk())):
            if is_dead(op):
                op.detach()
                op.erase()

    # -- types ---------------------------------------------------------------------------------

    def _retype(self, value: SSAValue) -> None:
        type_ = self.new_type(value.type)
        if type_ is not value.type:
            set_type(value, type_)
        if not isinstance(type_, IntType | FloatType | BoolType):
            return
        if not isinstance(self.symbols.stated(type_.data, {}), str):
            self.known[value] = self.symbols.number(type_)

    def new_type(self, type_: Attribute) -> Attribute:
        """Return a type with its sizes, or its number, pinned."""
        match type_:
            case TensorType() if not is_static(type_):
                return tensor([self.new_size(d) for d in dims(type_)], element(type_))
            case IntType() | FloatType() | BoolType():
                unpinned = self.symbols.stated(type_.data, {})
                pinned = self.symbols.stated(type_.data, self.pins)
                return type_ if pinned == unpinned else type(type_)(str(pinned))
            case _:
                return type_

    def new_size(self, dim: Dim) -> Dim:
        """Return a size in which pinned symbols are replaced by numbers."""
        if isinstance(dim, int) or dim == UNKNOWN:
            return dim
        pinned = self.symbols.stated(str(dim), self.pins)
        return dim_of(pinned) if isinstance(pinned, str) else int(pinned)

    # -- numbers -------------------------------------------------------------------------------

    def _state_arguments(self, op: SchemaOp) -> None:
        """Replace dynamic scalar arguments of a call that are now known."""
        tensors = {argument.name for argument in op.SCHEMA.tensor_arguments}
        values = {
            name: value if name in tensors else self._stated(value)
            for name, value in op.present().items()
        }
        made = type(op).from_arguments(values, [result.type for result in op.results])
        op.properties.clear()
        op.properties.update(made.properties)
        op.operands = list(made.operands)
        made.erase()

    def _stated(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._stated(item) for item in cast(list[Any], value)]
        return self.known.get(value, value) if isinstance(value, SSAValue) else value

    def _state_numbers(self, op: SymOp) -> None:
        rest = iter(op.values)
        taken: list[SSAValue] = []

        def stated(item: Attribute) -> Attribute:
            if item != DYNAMIC:
                return item
            value = next(rest)
            if value in self.known:
                return scalar_attribute(self.known[value])
            taken.append(value)
            return item

        op.properties["arguments"] = type(op.arguments)([stated(a) for a in op.arguments.data])
        op.operands = taken

    def _remove_proven(self) -> None:
        """Remove assertions about a pinned size, or report those that fail."""
        problems: list[Problem] = []
        for op in list(self.func.body.walk()):
            if op.name != "aten._assert_scalar.default" or not isinstance(op, SchemaOp):
                continue
            arg = op.arg("self")
            if isinstance(arg, SSAValue):
                continue
            if not arg:
                stated = ", ".join(f"{name} = {size}" for name, size in self.pins.items())
                problems.append(Problem(f"{stated}: {op.arg('assert_msg')}", describe_op(op)))
            op.detach()
            op.erase()
        if problems:
            raise StepwellError(problems)

    # -- the signature -------------------------------------------------------------------------

    def _seal(self) -> None:
        """Freeze known inputs and outputs in the signature; other uses read a constant."""
        func, block = self.func, self.func.body.block
        last = block.last_op
        assert last is not None
        signature = get_signature(func)
        outputs, kept = iter(list(last.operands)), list[SSAValue]()
        ports = list(signature.outputs)
        for index, port in enumerate(ports):
            if port.constant is not None:
                continue
            value = next(outputs)
            if value in self.known:
                ports[index] = replace(port, constant=(self.known[value],))
            else:
                kept.append(value)
        last.operands = kept
        self._materialize()
        arguments, inputs = iter(list(block.args)), list(signature.inputs)
        for index, port in enumerate(inputs):
            if port.constant is not None:
                continue
            argument = next(arguments)
            if argument in self.known:
                inputs[index] = replace(port, constant=(self.known[argument],))
                block.erase_arg(argument)
        left = {name: r for name, r in signature.ranges.items() if name not in self.pins}
        set_signature(
            func,
            Signature(tuple(inputs), tuple(ports), signature.in_spec, signature.out_spec, left),
        )
        func.properties["function_type"] = FunctionType.from_lists(
            [argument.type for argument in block.args], [value.type for value in kept]
        )

    def _materialize(self) -> None:
        """Give remaining readers of a known number, such as a branch, a constant."""
        for value, number in self.known.items():
            for use in list(value.uses):
                constant = ConstantOp(number)
                set_type(cast(SSAValue, constant.result), value.type)
                block = use.operation.parent
                assert block is not None
                block.insert_op_before(constant, use.operation)
                use.operation.operands[use.index] = constant.result

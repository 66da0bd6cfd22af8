"""Lift a container to a program: kernel calls become ATen ops, delegates are opened.

A `.pte` writes to memory; a program has values. Instructions are read in order while an `Arena`
tracks which value each byte range holds. Views that became shared bytes, and state that is
written in place, turn into SSA values again. Delegates are opened by the reader of their backend;
a delegate without a reader stays opaque.
"""

import math
from collections.abc import Mapping, Sequence
from typing import cast

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from stepwell.backends.executorch.container import (
    Container,
    Data,
    DelegateCall,
    Instruction,
    JumpFalse,
    KernelCall,
    Method,
    Move,
    NamedData,
    Planned,
    State,
    TensorValue,
    Value,
)
from stepwell.backends.executorch.external import read_external
from stepwell.backends.executorch.reading.fixed_sizes import InputSizes, at_largest, fixed_inputs
from stepwell.backends.executorch.reading.flow import COPY_INDEX, VIEW, Flow
from stepwell.backends.executorch.reading.lift_control import ControlLifter
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.reading.read_arguments import (
    SCALARS,
    arguments_of,
    frozen_argument,
    is_readable,
    known_number,
    scalar_op,
)
from stepwell.backends.executorch.reading.readers import (
    KernelReader,
    ReadContext,
    Readers,
    opaque_delegate,
)
from stepwell.backends.executorch.reading.value_slots import Places, dim_order_of, permuted_type
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp
from stepwell.ir.diagnostics import ParseFailure, Problem, UnsupportedError
from stepwell.ir.levels import set_level
from stepwell.ir.program import Program
from stepwell.ir.signature import Port, Signature, set_signature
from stepwell.ir.sizes.size import number_of
from stepwell.ir.types import (
    BoolType,
    FloatType,
    IntType,
    dims,
    element,
    is_static,
    with_element,
)
from stepwell.ir.weights import WeightStore


def lift(
    container: Container,
    readers: Readers | None = None,
    external: Mapping[str, Data] | None = None,
    *,
    level: str = "executorch",
    sizes: InputSizes | None = None,
) -> Program:
    """Return the program of a container.

    Args:
        container: the result of `read_container`.
        readers: readers of delegates and of kernels that are not ATen's.
        external: data of a separate `.ptd`, by key.
        level: the level that the module states.
        sizes: sizes of all tensor inputs by method, for which that method is read.

    Raises:
        UnsupportedError: names every instruction that no op represents.
        ParseFailure: the plan reads memory that was never written.
    """
    program = Program(ModuleOp([]), WeightStore())
    set_level(program.module, level)
    problems: list[Problem] = []
    for method in container.methods:
        lifter = _MethodLifter(container, method, program, readers or Readers(), external or {})
        if sizes is not None and method.name in sizes:
            lifter.specialize(sizes[method.name])
        try:
            program.module.body.block.add_op(lifter.lift())
        except UnsupportedError as error:
            problems.extend(error.problems)
    if problems:
        raise UnsupportedError(problems)
    return program


def read_pte(
    data: bytes,
    readers: Readers | None = None,
    *,
    external: bytes | None = None,
    largest: bool = False,
    sizes: InputSizes | None = None,
) -> Program:
    """Read the program in a `.pte` file's bytes; see `lift`.

    `external` is its `.ptd`, if it has one; `largest` reads it as `at_largest` does.
    """
    # A writable buffer lets constants be tensors over the file's own bytes.
    container = read_container(bytearray(data))
    container = at_largest(container) if largest else container
    held = read_external(bytearray(external)) if external else None
    return lift(container, readers, held, sizes=sizes)


_MOVES: dict[str, tuple[int, int]] = {
    "aten::copy_": (0, 1),
    VIEW: (2, 0),
    "dim_order_ops::_to_dim_order_copy.out": (3, 0),
    "dim_order_ops::_clone_dim_order.out": (3, 0),
}
"""Kernels that only move elements: the positions of the target and the source."""


class _MethodLifter:
    def __init__(
        self,
        container: Container,
        method: Method,
        program: Program,
        readers: Readers,
        external: Mapping[str, Data],
    ) -> None:
        self.container = container
        self.method = method
        self.store = program.weights
        self.readers = readers
        self.block = Block()
        self.places = Places(container, method, program.weights, external, self.block)
        self.is_straight = not any(isinstance(each, JumpFalse) for each in method.instructions)
        self.infers = False
        """Whether sizes of results follow from those of operands."""
        kept = {key: NamedData(data, 1) for key, data in external.items()}
        self.named_data: Mapping[str, NamedData] = {**kept, **container.named_data}

    def specialize(self, sizes: Sequence[Sequence[int]]) -> None:
        """Read the method for these sizes of its tensor inputs."""
        if not self.is_straight:
            raise UnsupportedError(
                "a method with branches or loops is read at its largest sizes only",
                f"method {self.method.name}",
            )
        for index, given in fixed_inputs(self.method, sizes).items():
            self.places.settle(index, given)
        self.infers = True

    def lift(self) -> FuncOp:
        """Return the method as a function."""
        method = self.method
        problems = [
            Problem(reason, f"method {method.name}, instruction {step}")
            for step, instruction in enumerate(method.instructions)
            if (reason := self._unreadable(instruction)) is not None
        ]
        if problems:
            raise UnsupportedError(problems)
        inputs = [self._input(position, i) for position, i in enumerate(method.inputs)]
        if not self.is_straight:
            ControlLifter(self, self._flow()).run()
        else:
            for step in range(len(method.instructions)):
                self.instruction(step)
        outputs = [self._output(position, i) for position, i in enumerate(method.outputs)]
        returned = [
            self.places.read(i) for i, port in zip(method.outputs, outputs, strict=True)
            if port.constant is None
        ]  # fmt: skip
        self.places.write_updates()
        self._write_inputs()
        self.block.add_op(ReturnOp(*returned))
        types = FunctionType.from_lists(
            [a.type for a in self.block.args], [v.type for v in returned]
        )
        func = FuncOp(method.name, types, Region(self.block))
        set_signature(
            func,
            Signature(
                tuple(inputs),
                tuple(outputs),
                method.input_spec or None,
                method.output_spec or None,
                self.places.ranges,
            ),
        )
        return func

    # -- inputs and outputs --------------------------------------------------------------------

    def _input(self, position: int, index: int) -> Port:
        value = self.places.stated[index]
        if not isinstance(value, TensorValue):
            return Port(f"input_{position}", constant=(frozen_argument(value),))
        argument = self.block.insert_arg(self.places.type_of(index), len(self.block.args))
        argument.name_hint = f"input_{position}"
        self.places.write(index, argument)
        return Port(f"input_{position}", dim_order_of(value))

    def _write_inputs(self) -> None:
        """Append updates of inputs that the method writes in the caller's memory."""
        entered = [i for i in self.method.inputs if isinstance(self.places.stated[i], TensorValue)]
        for argument, index in zip(self.block.args, entered, strict=True):
            value = self.places.values[index]
            if self.places.tensor(index).storage is None and value is not argument:
                self.block.add_op(MutateInputOp(argument.index, value))

    def _output(self, position: int, index: int) -> Port:
        value = self.places.stated[index]
        if isinstance(value, TensorValue):
            return Port(f"output_{position}", dim_order_of(value))
        if index in self.places.values:
            return Port(f"output_{position}")
        return Port(f"output_{position}", constant=(frozen_argument(value),))

    # -- ops -----------------------------------------------------------------------------------

    def _unreadable(self, instruction: Instruction) -> str | None:
        """Return why no op can represent an instruction, or None."""
        if not isinstance(instruction, KernelCall):
            return None
        kernel = instruction.kernel
        if kernel in _MOVES or kernel in self.readers.kernels or is_readable(kernel):
            return None
        if kernel == COPY_INDEX:
            return None
        return f"kernel {kernel} computes no operator of this IR"

    def instruction(self, step: int) -> None:
        """Read one instruction other than a jump."""
        where = f"method {self.method.name}, instruction {step}"
        try:
            match self.method.instructions[step]:
                case KernelCall() as call:
                    self._kernel(call, where)
                case DelegateCall() as call:
                    self._delegate(call, step)
                case Move(source, target):
                    self.places.assign(target, source)
                case _:
                    return
        except (IndexError, KeyError, TypeError, ValueError, VerifyException) as error:
            # The arguments match no kernel: too few, of the wrong kind, or never written.
            raise ParseFailure(
                f"the arguments do not fit: {type(error).__name__} {error}", where
            ) from error

    def _flow(self) -> Flow:
        try:
            return Flow(self.method, self._written)
        except (IndexError, ValueError) as error:
            raise ParseFailure(
                f"a call lacks arguments: {error}", f"method {self.method.name}"
            ) from error

    def _written(self, call: KernelCall | DelegateCall) -> Sequence[int] | None:
        """Return the positions of the arguments that a call writes, if a reader states them."""
        if isinstance(call, KernelCall):
            if call.kernel in self.readers.kernels:
                return self.readers.kernels[call.kernel][1]
            return (_MOVES[call.kernel][0],) if call.kernel in _MOVES else None
        delegate = self.method.delegates[call.delegate]
        reader = self.readers.delegates.get(delegate.backend)
        context = ReadContext(self.store, self.named_data, "")
        count = None if reader is None else reader.input_count(delegate, context)
        if count is None:
            raise UnsupportedError(
                f"a delegate of {delegate.backend} in a method with jumps: its outputs are unknown",
                f"method {self.method.name}",
            )
        return range(count, len(call.args))

    def _kernel(self, call: KernelCall, where: str) -> None:
        special = self.readers.kernels.get(call.kernel)
        if call.kernel == COPY_INDEX:
            self._store(call, where)
            return
        if special is not None:
            self._special_kernel(call, *special)
            return
        if call.kernel in _MOVES:
            target, source = (call.args[position] for position in _MOVES[call.kernel])
            if self.infers:
                self.places.settle(target, self._moved_sizes(call, source))
            elif call.kernel == VIEW and not is_static(type_ := self.places.type_of(target)):
                sizes = self.places.argument(call.args[1])
                value = self.places.op(
                    "aten.view.default", self.places.read(source), sizes, types=[type_]
                )
                self.places.write(target, value)
                return
            self._copy(target, source)
            return
        number = known_number(self.places, call) if self.is_straight else None
        if number is not None:
            self.places.know(call.args[-1], number)
            return
        if call.kernel in SCALARS:
            self.places.write(call.args[-1], self.places.add(scalar_op(self.places, call)))
            return
        arguments = arguments_of(self.places, call, where)
        types: list[Attribute] = [
            self.places.type_of(index)
            if isinstance(self.places.stated[index], TensorValue)
            else _number(self.places.stated[index], index)
            for index in arguments.results
        ]
        is_inferred = self.infers and not all(map(is_static, types))
        op = arguments.op.from_arguments(arguments.given, None if is_inferred else types)
        self.places.block.add_op(op)
        for index, result in zip(arguments.results, op.results, strict=True):
            self._settle(index, result)
            self.places.write(index, result)

    def _settle(self, index: int, value: SSAValue, order: Sequence[int] | None = None) -> None:
        """Give a tensor the sizes of the value that is written to it; `order` permutes them."""
        if self.infers and isinstance(self.places.stated[index], TensorValue):
            shape = [number_of(size) for size in dims(value.type)]
            self.places.settle(index, [shape[a] for a in order or range(len(shape))])

    def _moved_sizes(self, call: KernelCall, source: int) -> list[int]:
        """Return the sizes of the target of a kernel that moves elements."""
        shape = list(self.places.tensor(source).sizes)
        if call.kernel != VIEW:
            return shape
        sizes = [number_of(size) for size in self.places.argument(call.args[1])]
        rest = math.prod(shape) // max(1, math.prod(size for size in sizes if size >= 0))
        return [rest if size < 0 else size for size in sizes]

    def _store(self, call: KernelCall, where: str) -> None:
        """Read a store to a slice of a loop's stacked result."""
        stored = self.places.stored
        if stored is None:
            raise UnsupportedError(f"{call.kernel} is supported inside a map or scan only", where)
        stored[call.args[0]] = self.places.read(call.args[1])

    def _copy(self, target: int, source: int) -> None:
        """Assign `source` to `target`, with target's shape and element type."""
        places = self.places
        value, type_ = places.read(source), places.type_of(target)
        declared = places.tensor(target)
        if isinstance(declared.storage, State):
            places.read(target)  # Its value at entry, which marks the place as state.
        if element(value.type) != type_.element_type:
            to = with_element(value.type, type_.element_type)
            value = places.op("aten._to_copy.default", value, dtype=to.element_type, types=[to])
        if value.type != type_:
            if math.prod(places.tensor(source).sizes) == math.prod(declared.sizes):
                value = places.as_type(source, value, type_)
            else:
                value = places.op("aten.copy.default", places.read(target), value, types=[type_])
        places.write(target, value)

    def _special_kernel(
        self, call: KernelCall, reader: KernelReader, written: tuple[int, ...]
    ) -> None:
        results = {p: cast(Attribute, self.places.type_of(call.args[p])) for p in written}
        skipped = {*results, *self.readers.unread.get(call.kernel, ())}
        inputs = {
            p: self.places.argument(index) for p, index in enumerate(call.args) if p not in skipped
        }
        op = reader(call, inputs, results)
        self.places.block.add_op(op)
        for position, result in zip(written, op.results, strict=True):
            self.places.write(call.args[position], result)

    def _delegate(self, call: DelegateCall, step: int) -> None:
        delegate = self.method.delegates[call.delegate]
        prefix = f"{self.method.name}.{step}"
        context = ReadContext(self.store, self.named_data, prefix)
        reader = self.readers.delegates.get(delegate.backend)
        count = None if reader is None else reader.input_count(delegate, context)
        count = self._guessed_inputs(call.args) if count is None else count
        if not 0 <= count <= len(call.args):
            raise ParseFailure(
                f"the delegate takes {count} inputs of {len(call.args)} values",
                f"method {self.method.name}, instruction {step}",
            )
        # A delegate sees the dimensions of a tensor in memory order.
        places = self.places
        for position, index in enumerate(call.args[:count]):
            if reader is not None and not self._is_tensor(index):
                number = places.argument(index)
                if not isinstance(number, int):
                    raise UnsupportedError(
                        "a delegate takes a number that is computed at run time",
                        f"method {self.method.name}, instruction {step}",
                    )
                context.numbers[position] = number
        given = [i for at, i in enumerate(call.args[:count]) if at not in context.numbers]
        outputs = [i for i in call.args[count:] if reader is None or self._is_tensor(i)]
        orders = {index: places.tensor(index).dim_order for index in (*given, *outputs)}
        inputs = [places.permuted(places.read(i), orders[i]) for i in given]
        types = [permuted_type(places.type_of(index), orders[index]) for index in outputs]
        if reader is not None:
            op = reader.read(delegate, inputs, types, context)
        else:
            op = opaque_delegate(delegate, inputs, types, context)
        states = [v.owner for v in op.operands[len(given) :] if isinstance(v.owner, StateOp)]
        places.block.add_ops([*states, op])
        for state, result in zip(states, op.results[len(outputs) :], strict=True):
            self._update(state, result, f"method {self.method.name}, instruction {step}")
        for index, result in zip(outputs, op.results[: len(outputs)], strict=True):
            back = [orders[index].index(axis) for axis in range(len(orders[index]))]
            self._settle(index, result, back)
            places.write(index, places.permuted(result, back))
        for position, index in enumerate(call.args):
            if position >= count and not self._is_tensor(index):
                places.know(index, context.numbers[position])

    def _update(self, state: StateOp, value: SSAValue, where: str) -> None:
        if not self.is_straight:
            raise UnsupportedError("a delegate keeps state in a method with jumps", where)
        self.block.add_op(UpdateOp(state.key.data, value))

    def _is_tensor(self, index: int) -> bool:
        return isinstance(self.places.stated[index], TensorValue)

    def _guessed_inputs(self, args: Sequence[int]) -> int:
        """Return the inputs of an unknown delegate, assuming its outputs are the last values not
        yet written.
        """
        count = len(args)
        while count and self._is_unwritten(args[count - 1]):
            count -= 1
        return count

    def _is_unwritten(self, index: int) -> bool:
        value = self.places.stated[index]
        return (
            index not in self.places.values
            and isinstance(value, TensorValue)
            and isinstance(value.storage, Planned | None)
        )


def _number(value: Value, index: int) -> Attribute:
    """Return the type of a number that a kernel returns; its expression is a new symbol."""
    kind = {"bool": BoolType, "float": FloatType}.get(type(value).__name__, IntType)
    return kind(f"v{index}")

"""Convert a lowered program to a container: delegates' payloads, and kernel calls for other ops.

One op becomes one instruction, in the order of the program; nothing is rewritten here. Inside a
method, every tensor is row-major; inputs and outputs that the signature declares in another dim
order are converted at entry and exit. State is read in place and written after all other ops, so
that each op sees the value at entry.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from stepwell.backends.executorch.bounds import upper_bound
from stepwell.backends.executorch.container import (
    Container,
    Data,
    Delegate,
    Dynamism,
    NamedData,
    ScalarType,
    contiguous,
)
from stepwell.backends.executorch.kernels.kernel_calls import (
    argument_value,
    is_reshape,
    kernel_of,
)
from stepwell.backends.executorch.kernels.missing_kernels import UNCHECKED, emission_problems
from stepwell.backends.executorch.kernels.scalar_types import scalar_type
from stepwell.backends.executorch.kernels.signatures import InPlace, Input, KernelSignature
from stepwell.backends.executorch.writing.builder import ContainerBuilder, MethodBuilder
from stepwell.backends.executorch.writing.emit_control import CONTROL
from stepwell.backends.executorch.writing.emit_scalars import emit_scalar
from stepwell.backends.executorch.writing.filled_state import filled_states
from stepwell.backends.executorch.writing.in_place import in_place_writes, slots_of
from stepwell.backends.executorch.writing.output_orders import output_orders
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.control import YieldOp
from stepwell.dialects.quant.types import stored_dtype
from stepwell.dialects.sym import SymOp
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import UnsupportedError, node_name
from stepwell.ir.program import Program
from stepwell.ir.signature import Port, Signature, get_signature
from stepwell.ir.traversal import walk
from stepwell.ir.types import (
    BoolType,
    FloatType,
    IntType,
    NoneType,
    dims,
    element,
    is_static,
    tensor,
)
from stepwell.ir.weight_bytes import dense_view
from stepwell.ir.weights import WeightStore


@dataclass(frozen=True)
class DelegatePayload:
    """A backend's payload for one delegate op, whose operands are inputs and whose results are
    outputs.
    """

    backend: str
    payload: Data
    named_data: Mapping[str, NamedData] = field(default_factory=dict[str, NamedData])
    options: tuple[tuple[str, bytes], ...] = ()
    events: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """What the backend's profiler calls a part of the payload → the model's nodes it computes."""
    writes_operands: bool = False
    """Whether the last operands are the tensors to which the results are written."""


PayloadWriter = Callable[[Any, WeightStore], DelegatePayload]
"""Takes the delegate op and the program's weights."""

PayloadWriters = Mapping[type[Operation], PayloadWriter]


def emit(
    program: Program,
    delegates: PayloadWriters | None = None,
    *,
    external_weights: bool = False,
    files: Mapping[str, str] | None = None,
    checked: bool = True,
) -> Container:
    """Return the container of a program whose ops have kernels or are in delegates.

    Args:
        program: the program; each method becomes a method of the container, with shared constants
            and state.
        delegates: writers of payloads by the class of the delegate op.
        external_weights: put constants and delegates' named data into a separate `.ptd`.
        files: the `.ptd` files of constants that are stored in separate files, by key.
        checked: refuse kernels that compute something else than their ops; `False` is for programs
            that show what such a kernel computes.

    Raises:
        UnsupportedError: naming every op that has no kernel and is no delegate.
    """
    writers = dict(delegates or {})
    if checked and (problems := emission_problems(program, writers)):
        raise UnsupportedError(problems)
    builder = ContainerBuilder(external_constants=external_weights)
    filled = filled_states(program.methods.values())
    for name, func in program.methods.items():
        MethodEmitter(
            builder,
            builder.method(name),
            program,
            func,
            writers,
            external=external_weights,
            files=files,
            filled=filled,
        ).emit()
    return builder.finish()


class MethodEmitter:
    """Writes one method; backends whose ops are kernel calls derive from this class."""

    def __init__(
        self,
        container: ContainerBuilder,
        builder: MethodBuilder,
        program: Program,
        func: FuncOp,
        delegates: PayloadWriters,
        *,
        external: bool = False,
        files: Mapping[str, str] | None = None,
        filled: AbstractSet[str] = frozenset(),
    ) -> None:
        """Write `func` of `program` by `builder`.

        `filled` are states whose initial value is never read; `emit` explains the other parameters.
        """
        self.container = container
        self.builder = builder
        self.weights = program.weights
        self.func = func
        self.delegates = delegates
        self.signature: Signature = get_signature(func)
        self.external, self.files, self.filled = external, files or {}, filled
        self.values: dict[SSAValue, int] = {}
        self.state: dict[str, int] = {}
        self.in_place = in_place_writes(func, program)
        self.orders = output_orders(func, {op for op, _ in self.in_place})
        self.handle = 0
        self.handles: dict[str, int] = {}
        self.writes: list[UpdateOp | MutateInputOp] = []

    def emit(self) -> None:
        """Emit inputs, ops in order, outputs, then writes to state and inputs."""
        self._inputs()
        self.run_block(self.func.body.block)
        returned = self.func.body.block.last_op
        assert isinstance(returned, ReturnOp)
        self._finish(returned)

    def run_block(self, block: Block) -> None:
        """Emit the ops of a block in order; the last op's operands are its results."""
        for op in block.ops:
            self.handle = self.handle_of(op)
            match op:
                case WeightOp():
                    self._weight(op)
                case StateOp():
                    self.values[op.result] = self._state(op.key.data)
                case UpdateOp() | MutateInputOp():
                    self.writes.append(op)
                case ReturnOp() | YieldOp():
                    continue
                case SymOp():
                    self.values[op.result] = emit_scalar(self.builder, op, self.values)
                case SchemaOp():
                    if op.name not in UNCHECKED:
                        self._kernel(op)
                case _ if type(op) in CONTROL:
                    CONTROL[type(op)](self, op)
                case _:
                    self._delegate(op)

    def handle_of(self, op: Operation) -> int:
        """Return the debug handle of the model's node from which an op was created."""
        return self.handle_of_node(node_name(op.location) or "")

    def handle_of_node(self, name: str) -> int:
        """Return the debug handle of a model's node; the empty name stands for ops without a
        node.
        """
        return self.handles.setdefault(name, len(self.handles) + 1)

    # -- what enters ---------------------------------------------------------------------------

    def _inputs(self) -> None:
        mutated = {
            op.index.value.data for op in self.func.body.block.ops if isinstance(op, MutateInputOp)
        }
        arguments = iter(enumerate(self.func.body.block.args))
        self.given: list[int] = []
        for port in self.signature.inputs:
            if port.constant is not None:
                if not isinstance(port.constant[0], str):  # The runtime takes no strings.
                    self.builder.input(self.builder.scalar(port.constant[0]))
                continue
            index, argument = next(arguments)
            port = _as_taken(port)
            value = self.fresh(argument.type, port, borrowed=index in mutated)
            self.builder.input(value)
            self.given.append(value)
            self.values[argument] = self._entered(argument, value, port)

    def _entered(self, argument: SSAValue, value: int, port: Port) -> int:
        """Return an input in the row-major form that the method's ops read."""
        return self._to_order(value, argument.type, None, port.dim_order)

    def _weight(self, op: WeightOp) -> None:
        weight = self.weights.get(op.key.data)
        self.values[op.result] = self.builder.constant(
            scalar_type(weight.dtype),
            tuple(weight.shape),
            dense_view(weight),
            name=op.key.data,
            file=self.files.get(op.key.data),
        )

    def _state(self, key: str) -> int:
        if key not in self.state:
            weight = self.weights.get(key)
            self.state[key] = self.builder.state(
                key,
                scalar_type(weight.dtype),
                tuple(weight.shape),
                dense_view(weight),
                stored=key not in self.filled,
            )
        return self.state[key]

    # -- values --------------------------------------------------------------------------------

    def fresh(self, type_: Attribute, port: Port | None = None, *, borrowed: bool = False) -> int:
        """Return a new value for a result or an input of this type."""
        match type_:
            case IntType():
                return self.builder.variable(0)
            case FloatType():
                return self.builder.variable(0.0)
            case BoolType():
                return self.builder.variable(False)
            case NoneType():
                return self.builder.scalar(None)
            case _:
                assert isinstance(type_, TensorType), f"{type_} in a method"
        shape = dims(cast(Attribute, type_))
        return self.builder.tensor(
            self._scalar_type(cast(Attribute, type_)),
            [
                d if isinstance(d, int) else upper_bound(str(d), self.signature.ranges)
                for d in shape
            ],
            dim_order=port.dim_order if port is not None else None,
            dynamism=Dynamism.STATIC if is_static(cast(Attribute, type_)) else Dynamism.BOUNDED,
            borrowed=borrowed,
        )

    def _scalar_type(self, type_: Attribute) -> ScalarType:
        return scalar_type(stored_dtype(type_))

    def _to_order(
        self,
        value: int,
        type_: Attribute,
        order: tuple[int, ...] | None,
        current: tuple[int, ...] | None,
    ) -> int:
        """Return the tensor in dim order `order` (row-major if None), converted if it is in
        another.
        """
        if order == current or not isinstance(type_, TensorType):
            return value
        rank = len(dims(cast(Attribute, type_)))
        wanted = order or contiguous(rank)
        if wanted == (current or contiguous(rank)):
            return value
        type_ = cast(Attribute, type_)
        if wanted not in (contiguous(rank), (0, 2, 3, 1), (0, 2, 3, 4, 1)):
            return self._permuted(value, type_, wanted)
        result = self.fresh(type_, Port("", wanted))
        builder = self.builder
        builder.call(
            "dim_order_ops::_to_dim_order_copy.out",
            [value, builder.scalar(False), builder.ints(wanted), result, result],
        )
        return result

    def _permuted(self, value: int, type_: Attribute, order: tuple[int, ...]) -> int:
        """Return a row-major tensor's elements in any dim order, as a permuted copy."""
        builder, shape = self.builder, dims(type_)
        lying = self.fresh(tensor([shape[axis] for axis in order], element(type_)))
        builder.call("aten::permute_copy.out", [value, builder.ints(order), lying, lying])
        declared = builder.tensor_of(value)
        result = builder.tensor(
            declared.scalar_type,
            declared.sizes,
            dim_order=order,
            dynamism=declared.dynamism,
            storage_of=lying,
        )
        if declared.dynamism is not Dynamism.STATIC:
            sizes: list[int] = []
            for axis, dim in enumerate(shape):
                size = builder.scalar(dim) if isinstance(dim, int) else builder.variable(0)
                if not isinstance(dim, int):
                    builder.call("aten::sym_size.int", [value, builder.scalar(axis), size])
                sizes.append(size)
            builder.call(
                "executorch_prim::et_view.default", [lying, builder.list_of_ints(sizes), result]
            )
        return result

    # -- ops -----------------------------------------------------------------------------------

    def _kernel(self, op: SchemaOp) -> None:
        order = self.orders.get(op)
        if order or is_reshape(op):
            source = self.values[op.operands[0]]
            assert order is None or self.builder.can_be_viewed(source), "it has its own memory"
            if self.builder.can_be_viewed(source):
                type_ = op.results[0].type
                self.values[op.results[0]] = self.builder.tensor(
                    self._scalar_type(type_),
                    cast(tuple[int, ...], dims(type_)),
                    dim_order=order,
                    storage_of=source,
                )
                return
        if op.name == "aten.index_put.default" and (op, 0) in self.in_place:
            self._index_put_in_place(op)
            return
        signature = kernel_of(type(op))
        if signature is None:  # A reshape of a tensor that cannot be viewed.
            self._copied_reshape(op)
            return
        self._call(op, signature)

    def _call(self, op: SchemaOp, signature: KernelSignature) -> None:
        given = op.present()
        results = self._results(op)
        args: list[int] = []
        for argument, source in zip(signature.schema.arguments, signature.arguments, strict=True):
            if isinstance(source, InPlace):
                args.append(self._written_argument(op, source))
                continue
            if not isinstance(source, Input):
                args.append(results[source.index])
                continue
            value = given[source.name] if source.name in given else op.arg(source.name)
            args.append(argument_value(self.builder, op, argument, value, self.values.__getitem__))
        returned = results if len(results) < 2 else [self.builder.tensors(results)]
        self.builder.call(signature.kernel, [*args, *returned], [self.handle])

    def _written_argument(self, op: SchemaOp, source: InPlace) -> int:
        """Return the target of a kernel's write: the value in place, or a copy that becomes the
        result.
        """
        operand = op.operand(source.name)
        assert operand is not None
        place = self.values[operand]
        if (op, op.operands.index(operand)) not in self.in_place:
            copy, none = self.fresh(operand.type), self.builder.scalar(None)
            self.builder.call("aten::clone.out", [place, none, copy, copy], [self.handle])
            place = copy
        self.values[op.results[source.index]] = place
        return place

    def _results(self, op: SchemaOp) -> list[int]:
        """Return one value per return of the schema; a `Tensor[]` is a list of the op's results."""
        returned = op.results[: len(op.results) - len(op.SCHEMA.written)]
        rest = [self.fresh(result.type) for result in returned]
        for result, value in zip(returned, rest, strict=True):
            self.values[result] = value
        if len(op.SCHEMA.returns) == 1 and op.SCHEMA.returns[0].type.is_list:
            return [self.builder.tensors(rest)]
        return rest

    def _copied_reshape(self, op: SchemaOp) -> None:
        type_ = op.results[0].type
        result = self.values[op.results[0]] = self.fresh(type_)
        size = self.builder.ints(cast(tuple[int, ...], dims(type_)))
        self.builder.call(
            "aten::view_copy.out",
            [self.values[op.operands[0]], size, result, result],
            [self.handle],
        )

    def _index_put_in_place(self, op: SchemaOp) -> None:
        state = self.values[op.operands[0]]
        builder, lookup = self.builder, self.values.__getitem__
        arguments = op.SCHEMA.by_name
        indices, accumulate = (
            argument_value(builder, op, arguments[name], op.arg(name), lookup)
            for name in ("indices", "accumulate")
        )
        value = self.values[op.arg("values")]
        wanted = slots_of(op)
        assert wanted is not None
        is_fixed = all(isinstance(size, int) for size in wanted)
        if is_fixed and builder.tensor_of(value).sizes != wanted:
            # The kernel that writes in place wants every dimension, also those of size 1.
            sizes = cast(tuple[int, ...], wanted)
            value = builder.tensor(builder.tensor_of(value).scalar_type, sizes, storage_of=value)
        builder.call("aten::index_put_", [state, indices, value, accumulate, state], [self.handle])
        self.values[op.results[0]] = state

    def _delegate(self, op: Operation) -> None:
        made = self.delegates[type(op)](op, self.weights)
        self.container.add_named_data(made.named_data, external=self.external)
        ports = [self.values[operand] for operand in op.operands]
        if not made.writes_operands:
            ports += [self.fresh(result.type) for result in op.results]
        self.values |= dict(zip(op.results, ports[-len(op.results) :], strict=True))
        events = {
            event: tuple(self.handle_of_node(node) for node in nodes)
            for event, nodes in made.events.items()
        }
        self.builder.delegate(
            Delegate(made.backend, made.payload, made.options, events),
            ports,
            sorted({self.handle_of(inner) for inner in walk(op) if node_name(inner.location)}),
        )

    # -- what leaves ---------------------------------------------------------------------------

    def _finish(self, returned: ReturnOp) -> None:
        # A write of a value that an in-place op wrote already needs no instruction.
        targets = [
            (self._target(op), op)
            for op in self.writes
            if self.values[op.value] != self._target(op)
        ]
        written = {target for target, _ in targets}
        operands = iter(returned.operands)
        outputs: list[int] = []
        for port in self.signature.outputs:
            if port.constant is not None:
                outputs.append(self.builder.scalar(port.constant[0]))
                continue
            operand = next(operands)
            value = self._kept(self.values[operand], operand.type, written)
            is_moved = operand.owner in self.orders
            order = self.builder.tensor_of(value).dim_order if is_moved else None
            outputs.append(self._to_order(value, operand.type, port.dim_order, order))
        pending = [(target, self._written(op, written - {target})) for target, op in targets]
        for target, value in pending:
            self.builder.call("aten::copy_", [target, value, self.builder.scalar(False), target])
        self.builder.node_names = {handle: name for name, handle in self.handles.items() if name}
        self.builder.outputs(
            outputs,
            input_spec=self.signature.in_spec or "",
            output_spec=self.signature.out_spec or "",
        )

    def _target(self, op: UpdateOp | MutateInputOp) -> int:
        if isinstance(op, UpdateOp):
            return self._state(op.key.data)
        return self.given[op.index.value.data]

    def _written(self, op: UpdateOp | MutateInputOp, others: set[int]) -> int:
        value = self._kept(self.values[op.value], op.value.type, others)
        if isinstance(op, UpdateOp):
            return value
        port = _as_taken(self.signature.runtime_inputs[op.index.value.data])
        return self._to_order(value, op.value.type, port.dim_order, None)

    def _kept(self, value: int, type_: Attribute, written: set[int]) -> int:
        """Return the value, or a copy of it if later writes would change it."""
        if not any(self.builder.share_storage(value, target) for target in written):
            return value
        copy = self.fresh(type_)
        none = self.builder.scalar(None)
        self.builder.call("aten::clone.out", [value, none, copy, copy])
        return copy


def _as_taken(port: Port) -> Port:
    """Return an input that callers pass row-major if the runtime refuses its declared dim order.

    The runtime accepts row-major inputs, and channels-last ones of four axes.
    """
    return port if port.dim_order == (0, 2, 3, 1) else Port(port.name, None, port.constant)

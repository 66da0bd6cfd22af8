"""Trace an operator as the sequence of calls by which PyTorch computes it.

PyTorch computes most operators from others: by composite kernels, decomposition tables and
functions in Python, which reveal the calls when they run on tensors without data. The caller passes
the function that computes an operator, and thereby decides where to stop. No operator needs code
here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import of_overload, torch_overload
from stepwell.dialects.symbols import (
    Ranges,
    Symbols,
    expression_of,
    is_of_more_than_one,
    is_true_of,
    tensor_type,
)
from stepwell.ir.compat.torch.lazy_imports import symbolic_shapes
from stepwell.ir.compat.torch.torch_private import enable_python_dispatcher, pytree, schema_of
from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import element_type, torch_dtype
from stepwell.ir.rewriting.rewrite import Refusal, Rewriter
from stepwell.ir.signature import ranges_around
from stepwell.ir.sizes.size import Dim, Size, is_unbacked, settled
from stepwell.ir.types import are_same_within, dims, is_static
from stepwell.translate.decompositions.traced import DECOMPOSITIONS
from stepwell.translate.rewrites.calls.recorded_calls import (
    CannotTraceError,
    FunctionOf,
    FusedLayerError,
    RecordedCall,
    Recorder,
)
from stepwell.translate.rewrites.sizes.sizes import SizeBuilder, can_compute, sizes_of_inputs

LAYOUT_ARGUMENTS = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking"})
"""Arguments that describe a tensor's device and layout, and not its values."""

INTO_ITSELF = "PyTorch decomposes it into itself"
"""The reason for an operator whose only decomposition is a name for its kernel."""


_FAILURES = (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, StepwellError)
"""The end of PyTorch's message for an operator that it does not decompose."""


@dataclass(frozen=True)
class Trace:
    """The recorded calls that compute an op; ops of equal name, types and arguments share them.

    `operands[i]` represents the i-th operand, `outputs[i]` the i-th result.
    """

    operands: tuple[Any, ...]
    calls: tuple[RecordedCall, ...]
    outputs: tuple[torch.Tensor, ...]

    def write(self, op: SchemaOp, rw: Rewriter) -> None:
        """Replace an op by the calls, in order."""
        sizes = SizeBuilder(rw, op.operands, op.parent_block())
        outputs = self.put(op.operands, rw.insert, sizes)
        for value, result in zip(outputs, op.results, strict=True):
            if value.type != result.type:  # Sizes that are the same for all calls.
                set_type(value, result.type)
        rw.replace(op, outputs)

    def put(
        self,
        given: Sequence[SSAValue],
        insert: Callable[[Operation], Operation],
        sizes: SizeBuilder | None = None,
    ) -> list[SSAValue]:
        """Insert the calls on these values; return the values of the outputs."""
        values = {id(fake): value for fake, value in zip(self.operands, given, strict=True)}
        for call in self.calls:
            cls = of_overload(call.overload)
            made = insert(cls.from_arguments(to_ir(call, values, sizes), call.types))
            for fake, result in zip(call.results, made.results, strict=True):
                values[id(fake)] = result
                if sizes is not None:
                    sizes.see(result)
        return [values[id(output)] for output in self.outputs]


_TRACES: dict[Any, Trace | Refusal] = {}
"""The key has all that a trace depends on; attributes compare floats bit by bit."""
_CAPACITY = 10_000


def trace(op: SchemaOp, function_of: FunctionOf) -> Trace | Refusal:
    """Return the calls that compute an op, or why there are none; equal ops share one trace."""
    order = {value: index for index, value in enumerate(reversed(op.operands))}
    shared = tuple(order[value] for value in op.operands)
    types = tuple(value.type for value in (*op.operands, *op.results))
    is_static = all(map(_is_static_tensor, types))
    ranges = {} if is_static else ranges_around(op)
    inputs = frozenset[Dim]() if is_static else sizes_of_inputs(op.parent_block())
    stated = (tuple(sorted(ranges.items())), inputs)
    key = (function_of, type(op), types, shared, frozenset(op.properties.items()), stated)
    found = _TRACES.get(key)
    if found is None:
        if len(_TRACES) >= _CAPACITY:
            _TRACES.clear()
        found = _TRACES[key] = _traced(op, function_of, ranges, inputs)
    return found


def trace_function(
    function: Callable[..., Sequence[torch.Tensor]], types: Sequence[Attribute], ranges: Ranges
) -> Trace | Refusal:
    """Return the calls of a function of tensors of these types; none may take a dynamic number."""
    symbols = Symbols(ranges)
    fakes = tuple(symbols.fake(type_) for type_ in types)
    recorder = Recorder(None, lambda overload, is_root: None, symbols.env)
    with symbols.on_fakes(), enable_python_dispatcher(), recorder:
        results = function(*fakes)
    found = Trace(fakes, tuple(recorder.calls), tuple(map(recorder.latest, results)))
    for guard in symbols.env.guards:
        if not is_of_more_than_one(guard.expr) and not is_true_of(guard.expr, ranges):
            return Refusal(f"holds only where {guard.expr}")
    numbers = [value for call in found.calls for value in pytree.tree_leaves(call.arguments)]
    if any(isinstance(value, torch.SymInt) for value in numbers):
        return Refusal("it needs a number that no value holds")
    return found


def _is_static_tensor(type_: Attribute) -> bool:
    return isinstance(type_, TensorType) and is_static(type_)


def _traced(
    op: SchemaOp, function_of: FunctionOf, ranges: Ranges, inputs: Collection[Dim]
) -> Trace | Refusal:
    """Return the trace of an op's decomposition, if it is right for all sizes within their
    ranges.
    """
    found = _followed(op, function_of, ranges)
    if isinstance(found, Refusal):
        return found
    trace, env = found
    reason = _where_else(trace, op, function_of, env, ranges) or _what_is_missing(
        trace, op, inputs, ranges
    )
    return Refusal(f"the decomposition {reason}") if reason else trace


def _followed(
    op: SchemaOp, function_of: FunctionOf, ranges: Ranges, device: str = "cpu"
) -> tuple[Trace, symbolic_shapes.ShapeEnv] | Refusal:
    """Return the calls on a device, and the conditions on sizes that they assume.

    On a CPU, PyTorch may use a fused layer (its own or oneDNN's) for which targets have no
    operator. A tensor on the device `meta` has no such layers: an LSTM is decomposed there, and
    attention under a computed mask, without changing any global setting.
    """
    symbols = Symbols(ranges, device)
    symbols.mode.allow_non_fake_inputs = True
    fakes = {value: symbols.fake(value.type) for value in dict.fromkeys(op.operands)}
    overload = torch_overload(type(op))
    recorder = Recorder(overload, function_of, symbols.env)
    function = function_of(overload, True)
    positional, keywords = op.bind()
    names = [argument.name for argument in op.SCHEMA.arguments]
    positional = [
        None if name == "memory_format" else value
        for name, value in zip(names, positional, strict=False)
    ]
    with symbols.on_fakes():
        positional, keywords = _to_torch(positional, fakes), _to_torch(keywords, fakes)
        try:
            with _dispatcher(op):
                if function is not None and function is DECOMPOSITIONS.get(overload):
                    results = recorder.follow(function, overload, positional, keywords)
                else:
                    with recorder:
                        results = overload(*positional, **keywords)
        except FusedLayerError as error:
            if device == "meta":
                return Refusal(str(error))
            return _followed(op, function_of, ranges, "meta")
        except CannotTraceError as error:
            return Refusal(str(error))
        except NotImplementedError as error:
            return Refusal((str(error).splitlines() or ["it is not implemented"])[0])
        except _FAILURES as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            return Refusal(f"PyTorch does not decompose it: {reason}")
    leaves = [t for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor)]
    operands = tuple(fakes[value] for value in op.operands)
    found = Trace(operands, tuple(recorder.calls), tuple(map(recorder.latest, leaves)))
    if any(_is_itself(call, op, overload) for call in found.calls):
        return Refusal(INTO_ITSELF)
    return found, symbols.env


def _is_itself(call: RecordedCall, op: SchemaOp, overload: Any) -> bool:
    """Whether a call is the op itself, on tensors of the same types and with the same numbers."""
    if call.overload is not overload or call.types != tuple(r.type for r in op.results):
        return False
    leaves = [t for t in pytree.tree_leaves(call.arguments) if isinstance(t, torch.Tensor)]
    tensors = [v.type for v in op.operands if isinstance(v.type, TensorType)]
    if [tensor_type(t) for t in leaves] != tensors:
        return False
    numbers = {n: v for n, v in op.present().items() if isinstance(v, int | float | list)}
    plain = {n: v for n, v in numbers.items() if not _has_values(v)}
    return all(call.arguments.get(n) == v for n, v in plain.items())


def _has_values(held: Any) -> bool:
    return isinstance(held, list) and any(
        isinstance(item, SSAValue) for item in cast(list[Any], held)
    )


def _where_else(
    found: Trace,
    op: SchemaOp,
    function_of: FunctionOf,
    env: symbolic_shapes.ShapeEnv,
    ranges: Ranges,
) -> str | None:
    """Return the sizes, within their ranges, for which the calls do not compute the op; None if
    none.

    Guards are proved from the ranges. A guard that fails at the first few sizes alone (`96*s0 >
    96`, `Ne(s0 - 1, 1)`) may concern strides, which are no condition here. Those sizes are traced
    separately, and must give the same calls.
    """
    for guard in env.guards:
        if is_of_more_than_one(guard.expr) or is_true_of(guard.expr, ranges):
            continue
        reason = f"holds only where {guard.expr}"
        small = [n for n in map(str, guard.expr.free_symbols) if not is_unbacked(n)]
        if len(small) != 1:
            return reason
        (name,) = small
        low, high = ranges.get(name, (2, None))
        first = range(low, low + _FIRST_SIZES)
        since = next(
            (n for n in first if is_true_of(guard.expr, {**ranges, name: (n, high)})), None
        )
        if since is None:
            return reason
        for size in range(low, since):
            at = {**ranges, name: (size, size)}
            if is_true_of(guard.expr, at):
                continue
            other = _followed(op, function_of, at)
            if isinstance(other, Refusal) or _at(other[0], name, size) != _at(found, name, size):
                return reason
    return None


_FIRST_SIZES = 4
"""The number of sizes of a range that may be traced separately."""


def _at(trace: Trace, symbol: str, size: int) -> list[Any]:
    """Return the calls, numbers and result sizes of a trace with a number for a symbol."""

    def settle(value: Any) -> Any:
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            value = expression_of(value)
        return settled(value.substitute({symbol: size})) if isinstance(value, Size) else value

    made: list[Any] = []
    for call in trace.calls:
        leaves = pytree.tree_leaves(call.arguments)
        made.append(call.overload)
        made.append([settle(leaf) for leaf in leaves if not isinstance(leaf, torch.Tensor)])
        for type_ in call.types:
            made.append([settle(dim) for dim in dims(type_)])
    return made


def _what_is_missing(
    found: Trace, op: SchemaOp, inputs: Collection[Dim], ranges: Ranges
) -> str | None:
    """Return why the calls cannot replace an op."""
    if len(found.outputs) != len(op.results):
        return f"gives {len(found.outputs)} results, not {len(op.results)}"
    for output, result in zip(found.outputs, op.results, strict=True):
        if not are_same_within(tensor_type(output), result.type, ranges):
            return f"gives {tensor_type(output)}"
    known = {id(fake) for fake in found.operands}
    have = {value.type for value in op.operands}
    for call in (*found.calls, RecordedCall(None, {"": found.outputs}, (), ())):
        for used in pytree.tree_leaves(call.arguments):
            if isinstance(used, torch.Tensor) and id(used) not in known:
                return "makes a constant tensor of its own"
            is_symbolic = isinstance(used, torch.SymInt | torch.SymFloat | torch.SymBool)
            if is_symbolic and not can_compute(expression_of(used), have, inputs):
                return f"needs the number {used.node.expr}, which no value holds"
        known.update(map(id, call.results))
        have.update(call.types)
    return None


def _dispatcher(op: SchemaOp) -> AbstractContextManager[Any]:
    """Enable the Python dispatcher, because composite kernels in C++ take no symbolic sizes."""
    static = all(_is_static_tensor(value.type) for value in op.operands)
    return nullcontext() if static else enable_python_dispatcher()


def _to_torch(value: Any, fakes: Mapping[SSAValue, Any]) -> Any:
    """Return an op's argument for PyTorch: fake tensors for values, dtypes for element types."""
    if isinstance(value, SSAValue):
        return fakes[value]
    if isinstance(value, Attribute):
        return torch_dtype(value)
    if isinstance(value, list | tuple):
        return [_to_torch(item, fakes) for item in cast(Sequence[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {k: _to_torch(v, fakes) for k, v in items if k not in LAYOUT_ARGUMENTS}
    return value


def to_ir(
    call: RecordedCall, values: Mapping[int, SSAValue], sizes: SizeBuilder | None
) -> dict[str, Any]:
    """Return a call's arguments for the IR; layout arguments only if the operator requires them."""

    def held(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return values[id(value)]
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            assert sizes is not None, "a size in a program of fixed sizes"
            return sizes.value(expression_of(value))
        if isinstance(value, torch.dtype):
            return element_type(value)
        if isinstance(value, torch.device):
            return "cpu"  # The device of the trace is not recorded.
        if isinstance(value, list | tuple):
            return [held(item) for item in cast(Sequence[Any], value)]
        return value

    schema = schema_of(call.overload).arguments
    needless = {a.name for a in schema if a.name in LAYOUT_ARGUMENTS and a.has_default_value()}
    return {name: held(value) for name, value in call.arguments.items() if name not in needless}

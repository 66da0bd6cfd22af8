"""Find the kernel that is wrong, where the artifact's operators are right but its results are not.

The artifact's program is written again with all of its values as results, and runs on the same
inputs. The first value that differs from what its operator means is a kernel's. For a program that
ends the process, every operator runs in a program of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.dialects.builtin import FunctionType, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from stepwell.backends.xnnpack.pte import to_pte
from stepwell.dialects.xnnpack import XnnpackOp
from stepwell.dialects.xnnpack.delegate import DelegateOp, YieldOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import StateOp, WeightOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.program import Program
from stepwell.validation.artifacts.comparing import Allowed, differs
from stepwell.validation.artifacts.engine_process import EngineCall, Failure, run_calls
from stepwell.validation.artifacts.fingerprints import ROUNDING, precision
from stepwell.validation.recording import record
from stepwell.validation.reducer.reduce import cut
from stepwell.validation.samples import Sample


def wrong_kernel(program: Program, method: str, inputs: Sequence[Any]) -> Operation | None:
    """Return the first operator of an artifact whose kernel computes another result than it means.

    Args:
        program: the artifact's program.
        method: the method.
        inputs: the inputs of a call, from the initial state.

    Returns:
        The operator; None if the written program computes what its operators mean.
    """
    own = program.method(method)
    values = record(own, program.weights, Sample("a call", tuple(inputs), True)).values
    copy, taps = _tapped(program, method)
    try:
        found = run_calls(to_pte(copy, checked=False), [EngineCall(method, tuple(inputs))])[0]
    except StepwellError:
        return None
    if isinstance(found, Failure):
        return None
    results = found[len(found) - len(taps) :]
    for value, result in zip(taps, results, strict=True):
        expected = values[value]
        if differs([expected], [result], Allowed(lambda e=expected: _moved(e))) is not None:
            return value.owner if isinstance(value.owner, Operation) else None
    return None


def _moved(value: Any) -> list[tuple[Any, ...]]:
    """Return a value with the rounding of a few operators before it."""
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel()
    if not is_float:
        return [(value,)]
    finite = value[value.isfinite()]
    largest = finite.abs().amax() if finite.numel() else value.new_zeros(())
    return [(value + 8 * precision(value.dtype, ROUNDING) * largest,)]


def ending_kernel(program: Program, method: str, inputs: Sequence[Any]) -> Operation | None:
    """Return the operator of an artifact that fails or ends the process by itself, or None."""
    own = program.method(method)
    try:
        values = record(own, program.weights, Sample("a call", tuple(inputs), True)).values
    except StepwellError:
        return None
    for at, op in enumerate(own.body.block.ops):
        if isinstance(op, WeightOp | StateOp | ReturnOp) or not op.results:
            continue
        operands = list(dict.fromkeys(v for v in op.operands if not _is_weight(v)))
        weights = [i for i, o in enumerate(own.body.block.ops) if isinstance(o, WeightOp)]
        single = cut(program, method, [*weights, at])
        given = tuple(values[value] for value in operands)
        try:
            found = run_calls(to_pte(single, checked=False), [EngineCall(method, given)])[0]
        except StepwellError:
            continue
        if isinstance(found, Failure) and not (found.unsupported or found.refused):
            return op
    return None


def _is_weight(value: SSAValue) -> bool:
    return isinstance(value.owner, WeightOp)


def _tapped(program: Program, method: str) -> tuple[Program, list[SSAValue]]:
    """Return a copy that returns all values of a method too, and those values of the program."""
    copy = program.clone()
    for name in [*copy.methods]:
        if name != program.method(method).sym_name.data:
            copy.method(name).detach()
    old, func = program.method(method), copy.method(method)
    block, taps, values = func.body.block, list[SSAValue](), list[SSAValue]()
    for op, new in zip([*old.body.block.ops], [*block.ops], strict=True):
        if isinstance(op, DelegateOp) and isinstance(new, DelegateOp):
            inner, results = _opened(op, new)
            taps += inner
            values += results
        elif not isinstance(op, WeightOp | StateOp | ReturnOp) and not op.regions:
            tensors = [at for at, r in enumerate(op.results) if isinstance(r.type, TensorType)]
            taps += [op.results[at] for at in tensors]
            values += [new.results[at] for at in tensors]
    last = block.last_op
    assert isinstance(last, ReturnOp)
    returned = [*last.operands, *values]
    last.detach()
    last.erase()
    block.add_op(ReturnOp(*returned))
    _retype(func, returned)
    return copy, taps


def _opened(op: DelegateOp, new: DelegateOp) -> tuple[list[SSAValue], list[SSAValue]]:
    """Give a delegate every value that its nodes compute as a result, and return those values with
    the results.
    """
    last = new.block.last_op
    assert last is not None
    count, yielded = len(last.operands), set(last.operands)
    outputs = [*last.operands, *(value for value in _computed(new) if value not in yielded)]
    last.detach()
    last.erase()
    new.block.add_op(YieldOp.create(operands=outputs))
    body = new.body.detach_block(0)
    wider = DelegateOp.make([*new.inputs], [value.type for value in outputs], body)
    parent = new.parent
    assert parent is not None
    parent.insert_op_before(wider, new)
    for a, b in zip(new.results, wider.results[:count], strict=True):
        a.replace_all_uses_with(b)
    new.detach()
    new.erase()
    places = {value: at for at, value in reversed([*enumerate(outputs)])}
    inner = zip(_computed(op), [*_computed(wider)], strict=True)
    pairs = [(a, wider.results[places[b]]) for a, b in inner]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _computed(op: DelegateOp) -> Iterator[SSAValue]:
    for inner in op.block.ops:
        if isinstance(inner, XnnpackOp):
            yield from inner.results


def _retype(func: FuncOp, returned: Sequence[SSAValue]) -> None:
    """Give a method the types of other results; its calling convention is no longer stated."""
    inputs = [argument.type for argument in func.body.block.args]
    types = FunctionType.from_lists(inputs, [value.type for value in returned])
    func.properties["function_type"] = types
    for name in ("stepwell.outputs", "stepwell.out_spec"):
        func.attributes.pop(name, None)
    func.properties.pop("res_attrs", None)

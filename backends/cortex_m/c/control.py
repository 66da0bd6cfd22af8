"""Write the instructions of a method as C: calls in order, jumps, and dynamic numbers."""

from collections.abc import Mapping, Sequence
from typing import cast

from stepwell.backends.cortex_m.c.elements import write_elements
from stepwell.backends.cortex_m.c.lookups import KERNEL_WRITERS
from stepwell.backends.cortex_m.c.movement import write_movement
from stepwell.backends.cortex_m.c.operators import operator_of
from stepwell.backends.cortex_m.c.writer import Handler, MethodWriter, Shared
from stepwell.backends.executorch.container import (
    Dynamism,
    Instruction,
    JumpFalse,
    KernelCall,
    Method,
    Move,
    TensorValue,
    strides,
)
from stepwell.backends.executorch.reading.flow import COPY_INDEX
from stepwell.backends.executorch.reading.read_arguments import SCALARS, SIZE
from stepwell.ir.diagnostics import Problem, StepwellError, UnsupportedError

_ITEM = "aten::_local_scalar_dense"
_SELECT = "aten::select_copy.int_out"
_NUMBERS = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "eq": "{0} == {1}",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}", "neg": "-{0}",
    "sym_not": "!{0}", "sym_ite": "{0} ? {1} : {2}", "sym_max": "({0} > {1}) ? {0} : {1}",
    "sym_min": "({0} < {1}) ? {0} : {1}", "floordiv": "sw_whole_quotient({0}, {1})",
    "mod": "sw_whole_modulo({0}, {1})", "sym_float": "(double){0}",
    "truediv": "(double){0} / (double){1}",
}  # fmt: skip
"""Kernel on numbers → its C expression."""
_REMEDY = "take it out of the model, or run the .pte of a Cortex-M target with ExecuTorch's runtime"


def write_method(shared: Shared, method: Method, handlers: Mapping[str, Handler]) -> MethodWriter:
    """Write a method's calls and return the writer.

    Args:
        shared: the parts that methods share.
        method: the method.
        handlers: the writer of each kernel's calls; other kernels are written by their operator.

    Raises:
        UnsupportedError: names every call that has no form in C, or what is of a dynamic size.
    """
    tensors = [value for value in method.values if isinstance(value, TensorValue)]
    if any(value.dynamism is not Dynamism.STATIC for value in tensors):
        fact = "a size is dynamic, and C is written for static ones"
        remedy = 'lower(…, sizes="max") or sizes=4 (--sizes) pins it'
        raise UnsupportedError([Problem(fact, f"method {method.name}", remedy)])
    ports = {*method.inputs, *method.outputs}
    if any(not value.nbytes for at, value in enumerate(method.values)
           if at in ports and isinstance(value, TensorValue)):  # fmt: skip
        fact = "an input or output has no elements, and C has no array of none"
        raise UnsupportedError([Problem(fact, f"method {method.name}", "leave it out")])
    writer = MethodWriter(shared, method, variables=_variables(method.instructions))
    problems: list[Problem] = []
    targets = {step.target for step in method.instructions if isinstance(step, JumpFalse)}
    for at, step in enumerate(method.instructions):
        if at in targets:
            writer.statements.append(f"at_{at}:;")
        try:
            _write(writer, step, handlers)
        except StepwellError as error:
            name = step.kernel if isinstance(step, KernelCall) else type(step).__name__
            fact = f"{name} has no kernel in C: {error.problems[0].fact}"
            problems.append(Problem(fact, f"method {method.name}, instruction {at}", _REMEDY))
    if len(method.instructions) in targets:
        writer.statements.append(f"at_{len(method.instructions)}:;")
    if not all(isinstance(method.values[i], TensorValue) for i in method.outputs):
        fact = "an output is not a tensor, which a C function cannot return"
        problems.append(Problem(fact, f"method {method.name}"))
    if problems:
        raise UnsupportedError(problems)
    return writer


def _variables(steps: Sequence[Instruction]) -> frozenset[int]:
    variables: set[int] = set()
    for step in steps:
        if isinstance(step, Move):
            variables.add(step.target)
        elif isinstance(step, KernelCall) and (
            step.kernel in SCALARS or step.kernel in (SIZE, _ITEM)
        ):
            variables.add(step.args[-1])
    return frozenset(variables)


def _write(w: MethodWriter, step: Instruction, handlers: Mapping[str, Handler]) -> None:
    match step:
        case JumpFalse(condition, target):
            value = w.method.values[condition]
            if condition not in w.variables and value is False:
                w.statements.append(f"goto at_{target};")
            else:
                is_tensor = isinstance(value, TensorValue)
                text = _item(w, condition) if is_tensor else w.number(condition)
                w.statements += [f"if (!{text}) {{", f"    goto at_{target};", "}"]
        case Move(source, target):
            if isinstance(w.method.values[target], TensorValue):
                raise UnsupportedError("it assigns a tensor by reference, without a copy")
            w.statements.append(f"{w.number(target)} = {w.number(source)};")
        case KernelCall():
            _call(w, step, handlers)
        case _:
            raise UnsupportedError("the instruction is not a kernel call, a move or a jump")


def _call(w: MethodWriter, call: KernelCall, handlers: Mapping[str, Handler]) -> None:
    kernel, args = call.kernel, call.args
    if kernel in handlers:
        handlers[kernel](w, w.arguments(call))
    elif kernel in SCALARS:
        text = _NUMBERS.get(kernel.removeprefix("executorch_prim::").split(".")[0])
        if text is None:
            raise UnsupportedError("there is no C expression for this function of numbers")
        w.shared.use("whole_numbers")
        numbers = [w.number(index) for index in args[:-1]]
        w.statements.append(f"{w.number(args[-1])} = {text.format(*numbers)};")
    elif kernel == SIZE:
        size = w.tensor(args[0]).sizes[cast(int, w.method.values[args[1]])]
        w.statements.append(f"{w.number(args[-1])} = {size};")
    elif kernel == _ITEM:
        w.statements.append(f"{w.number(args[-1])} = {_item(w, args[0])};")
    elif kernel == COPY_INDEX:
        size = w.tensor(args[1]).nbytes
        into = f"{w.pointer(args[0], 'uint8_t')} + ({w.number(args[2])} * {size})"
        w.statements.append(f"memcpy({into}, {w.pointer(args[1], 'uint8_t')}, {size});")
    elif kernel == _SELECT and args[2] in w.variables:
        _select(w, call)
    elif not write_operator(w, call):
        raise UnsupportedError("the operator has no scalar semantics to generate C from")


def _item(w: MethodWriter, index: int) -> str:
    """Return the C expression that reads the number in a one-element tensor."""
    w.shared.use("elements")
    kind = w.c_element(index)
    return f"(*{w.pointer(index, kind)})"


def _select(w: MethodWriter, call: KernelCall) -> None:
    """Write a slice at a dynamic index."""
    source, axis, index, result = call.args[:4]
    value = w.tensor(source)
    at = cast(int, w.method.values[axis]) % len(value.sizes)
    step = strides(value.sizes, value.dim_order)[at]
    if value.dim_order[0] != at:
        raise UnsupportedError("slices of an inner axis at a dynamic index are not supported")
    size = w.tensor(result).nbytes
    moved = f"({w.number(index)} * {step * value.scalar_type.itemsize})"
    given = f"{w.pointer(source, 'uint8_t')} + {moved}".replace("(uint8_t *)", "(const uint8_t *)")
    w.statements.append(f"memcpy({w.pointer(result, 'uint8_t')}, {given}, {size});")


def write_operator(w: MethodWriter, call: KernelCall) -> bool:
    """Write a call by its operator: by a specific writer, its family or its meaning."""
    operator = operator_of(w.shared.container, w.method, call, w.variables)
    if operator is None:
        return False
    if operator.op.name in KERNEL_WRITERS:
        KERNEL_WRITERS[operator.op.name](w, operator)
        return True
    return write_movement(w, operator) or write_elements(w, operator)

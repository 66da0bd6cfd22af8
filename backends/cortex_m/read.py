"""Read a Cortex-M `.pte` of any producer as cmsis IR.

The bytes contain no scales except those of quantize and dequantize, so tensors are read as plain
int8. All numbers that the kernels use are fields of the ops, and the interpreter runs them
bit-exactly. If a kernel ignores the dim order of its tensors, so does the op
(`with_contiguous_tensors`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.backends.cortex_m.emit import TARGET_METHOD
from stepwell.backends.cortex_m.schemas import declarations, field_of, op_classes
from stepwell.backends.ethos_u.emit import TOSA_BACKEND
from stepwell.backends.ethos_u.read import EthosuReader, TosaReader
from stepwell.backends.ethos_u.vela import BACKEND
from stepwell.backends.executorch.container import (
    Container,
    KernelCall,
    Method,
    TensorList,
    TensorValue,
    Value,
    contiguous,
)
from stepwell.backends.executorch.reading.lift import lift
from stepwell.backends.executorch.reading.read import read_container
from stepwell.backends.executorch.reading.readers import Readers
from stepwell.dialects.cmsis.level import CMSIS_LEVEL
from stepwell.dialects.cmsis.ops import LIBRARY_OPS, CmsisOp, Pad
from stepwell.dialects.cmsis.ops.base import TARGET, to_attribute
from stepwell.dialects.cmsis.ops.layout import NHWC_TO_NCHW
from stepwell.dialects.cmsis.ops.movement import is_taken_as_channels_last
from stepwell.dialects.cmsis.target import Target, target
from stepwell.dialects.ethosu import ETHOSU_LEVEL
from stepwell.ir.core import weight_key
from stepwell.ir.diagnostics import ParseFailure, describe_op
from stepwell.ir.program import Program
from stepwell.ir.rewriting.cleanup import RemoveDeadCode
from stepwell.ir.rewriting.rewrite import History
from stepwell.ir.types import WeightAttr, dims


def is_cortex_m(container: Container) -> bool:
    """Whether a program states a Cortex-M CPU, or uses the `cortex_m` library or Arm's NPUs."""
    return _target_method(container) is not None or any(
        any(delegate.backend in READERS.delegates for delegate in method.delegates)
        or (isinstance(step, KernelCall) and step.kernel in op_classes())
        for method in container.methods
        for step in method.instructions
    )


def read_pte(data: bytes) -> Program:
    """Read the program in a `.pte` file's bytes, at the cmsis level.

    Raises:
        UnsupportedError: names every instruction that no op represents.
        ParseFailure: the bytes are not a valid program.
    """
    return read_program(read_container(bytearray(data)))


def read_program(container: Container) -> Program:
    """Read the program of a container that calls the `cortex_m` library."""
    stated = _target_method(container)
    methods = tuple(method for method in container.methods if method is not stated)
    level = ETHOSU_LEVEL if any(method.delegates for method in methods) else CMSIS_LEVEL
    program = lift(
        with_contiguous_tensors(replace(container, methods=methods)), READERS, level=level.name
    )
    if stated is not None and len(stated.outputs) == 1:
        name = stated.values[stated.outputs[0]]
        if isinstance(name, str):
            program.module.attributes[TARGET] = StringAttr(name)
    known = stated_target(program)
    for op in program.module.walk():
        if isinstance(op, CmsisOp):
            _fill_in_lists(op, program)
            for field, size in op.needed_scratch(known).items() if known else ():
                op.properties[field] = to_attribute(size)
    RemoveDeadCode().apply(program, History())
    return program


def _target_method(container: Container) -> Method | None:
    return next((method for method in container.methods if method.name == TARGET_METHOD), None)


def stated_target(program: Program) -> Target | None:
    """Return the target that a program states, or None."""
    stated = program.module.attributes.get(TARGET)
    return target(stated.data) if isinstance(stated, StringAttr) else None


def run_pte(data: bytes, inputs: Sequence[Any], method: str = "forward") -> tuple[Any, ...]:
    """Run a Cortex-M `.pte` on this machine, bit for bit as on the device."""
    return read_pte(data).run(*inputs, method=method)


def _read_call(
    call: KernelCall, inputs: Mapping[int, Any], results: Mapping[int, Attribute]
) -> Operation:
    """Read one call of a library kernel as its op; lists that are stored in tensors are filled in
    later.
    """
    cls = op_classes()[call.kernel]
    operand_names = [name for name, _ in cls.get_irdl_definition().operands]
    operands: dict[str, SSAValue | None] = {}
    fields: dict[str, Any] = {}
    for position, argument in enumerate(declarations()[cls.OPERATOR].arguments):
        name = argument.name
        if name == "out":
            continue
        if field_of(name) in operand_names:
            operands[field_of(name)] = inputs[position]
        elif name.endswith("scratch"):
            fields[name] = 0
        elif argument.type.is_tensor:
            key = weight_key(inputs[position])
            if key is None:
                raise ParseFailure(
                    f"{call.kernel}: {name} is dynamic, which no field of the op can represent"
                )
            fields[name] = WeightAttr(key)
        elif argument.type.base == "ScalarType":
            fields[name] = {1: "int8", 2: "int16"}.get(inputs[position], "int8")
        elif argument.type.base == "float":
            fields[name] = float(inputs[position])
        elif argument.type.base == "bool":
            fields[name] = bool(inputs[position])
        else:
            fields[name] = inputs[position]
    (result,) = results.values()
    if cls is Pad and pads_physically(operands["input"], result, fields["pre_pad"]):
        for name in ("pre_pad", "post_pad"):
            fields[name] = [fields[name][axis] for axis in NHWC_TO_NCHW]
    return cls.make(*(operands.get(n) for n in operand_names), result=result, **fields)


def pads_physically(value: SSAValue | None, result: Attribute, widths: Any) -> bool:
    """Whether a pad's lists are in the order of NHWC memory for a tensor that is logically NCHW.

    They are if the library treats the tensor as channels-last, by its sizes, or if the lists
    name axes along which the result does not grow.
    """
    assert value is not None
    value_dims, result_dims = dims(value.type), dims(result)
    if len(value_dims) != 4:
        return False
    grows = [axis for axis in range(4) if value_dims[axis] != result_dims[axis]]
    stated = [axis for axis in range(4) if widths[axis]]
    return is_taken_as_channels_last(value_dims) or not set(stated) <= set(grows)


def _fill_in_lists(op: CmsisOp, program: Program) -> None:
    for name, attr in list(op.properties.items()):
        if isinstance(attr, WeightAttr):
            values = program.weights.get(attr.data)
            if values.dim() != 1:
                raise ParseFailure(f"{op.name}: {name} is not a list", describe_op(op))
            bits = op.MULTIPLIER_BITS.get(name, 64)
            op.properties[name] = to_attribute(cast("list[int]", values.tolist()), bits)


def _written(kernel: str) -> tuple[int, ...]:
    arguments = declarations()[op_classes()[kernel].OPERATOR].arguments
    return (next(i for i, argument in enumerate(arguments) if argument.name == "out"),)


def _scratch(kernel: str) -> tuple[int, ...]:
    """Return scratch buffers without the returned output, which is listed twice."""
    arguments = declarations()[op_classes()[kernel].OPERATOR].arguments
    found = [i for i, argument in enumerate(arguments) if argument.name.endswith("scratch")]
    return (*found, len(arguments))


READERS = Readers(
    delegates={BACKEND: EthosuReader(), TOSA_BACKEND: TosaReader()},
    kernels={kernel: (_read_call, _written(kernel)) for kernel in op_classes()},
    unread={kernel: _scratch(kernel) for kernel in op_classes()},
)
"""Readers of the library's calls, by kernel name."""


# -- kernels that ignore the dim order ------------------------------------------------------------

BLIND = frozenset(
    (
        *(f"cortex_m::{cls.OPERATOR}.out" for cls in LIBRARY_OPS if cls.IGNORES_DIM_ORDER),
        "aten::cat.out",
        "aten::slice_copy.Tensor_out",
    )
)
"""Kernels that ignore the dim order of their tensors and read memory from first to last.

Sources: ExecuTorch's `backends/cortex_m/ops`, `kernels/portable/cpu`. ExecuTorch's own flow emits
such calls: its `conv → permute → reshape → linear` and `cat(conv, conv)` are 121 and 155 units off
on a device.
"""


def with_contiguous_tensors(container: Container) -> Container:
    """Return the container with contiguous tensors, over the same bytes, in calls of `BLIND`.

    A program that was read then computes what the device computes.
    """
    return replace(container, methods=tuple(map(_method, container.methods)))


def _method(method: Method) -> Method:
    values = list(method.values)
    instructions = [
        replace(step, args=tuple(_plain(index, values) for index in step.args))
        if isinstance(step, KernelCall) and step.kernel in BLIND
        else step
        for step in method.instructions
    ]
    return replace(method, values=tuple(values), instructions=tuple(instructions))


def _plain(index: int, values: list[Value]) -> int:
    """Return the index of a row-major tensor over the bytes of value `index`, added if needed."""
    value = values[index]
    if isinstance(value, TensorList):
        items = tuple(_plain(item, values) for item in value.items)
        return index if items == value.items else _added(replace(value, items=items), values)
    if not isinstance(value, TensorValue):
        return index
    plain = contiguous(len(value.sizes))
    return index if value.dim_order == plain else _added(replace(value, dim_order=plain), values)


def _added(value: Value, values: list[Value]) -> int:
    values.append(value)
    return len(values) - 1

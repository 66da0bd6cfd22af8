"""Read a kernel call as the arguments of the functional operator that it computes."""

from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from stepwell.backends.executorch.container import (
    Dynamism,
    KernelCall,
    ScalarType,
    TensorList,
    TensorValue,
)
from stepwell.backends.executorch.kernels.kernel_calls import BY_STRIDES
from stepwell.backends.executorch.kernels.scalar_types import torch_dtype
from stepwell.backends.executorch.kernels.signatures import (
    InPlace,
    Input,
    Output,
    Role,
    functional_of,
)
from stepwell.backends.executorch.reading.value_slots import Places
from stepwell.backends.executorch.writing.emit_scalars import SCALAR_KERNELS
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.aten.schema import Argument
from stepwell.dialects.sym import OPS, SymOp
from stepwell.ir.diagnostics import ParseFailure
from stepwell.ir.dtypes import element_type
from stepwell.ir.signature import Constant as Frozen
from stepwell.ir.types import BoolType, FloatType, IntType

_INDEX_PUT = "aten::index_put_"
SIZE = "aten::sym_size.int"
_LAYOUT = frozenset({"MemoryFormat", "Layout", "Device", "Generator"})


@dataclass(frozen=True)
class DecodedCall:
    """An op class, its arguments by name, and the indices of the values that are its results."""

    op: type[SchemaOp]
    given: dict[str, Any]
    results: tuple[int, ...]


def is_readable(kernel: str) -> bool:
    """Whether calls of this kernel have a functional form."""
    return kernel == _INDEX_PUT or kernel in SCALARS or functional_of(kernel) is not None


SCALARS: dict[str, type[SymOp]] = {
    kernel: OPS[name.removeprefix("sym.")] for name, kernel in SCALAR_KERNELS.items()
} | {
    "executorch_prim::floordiv.int": OPS["floordiv"],
    "executorch_prim::mod.int": OPS["mod"],
}
"""Kernels on numbers → the equivalent `sym` op."""

_TRUTH = frozenset({"eq", "lt", "le", "gt", "ge", "sym_not"})
_FLOAT = frozenset({"truediv", "sym_float"})


def scalar_op(places: Places, call: KernelCall) -> SymOp:
    """Read a kernel call on numbers as an op. The expression of the result is a new symbol."""
    *arguments, result = call.args
    name = call.kernel.removeprefix("executorch_prim::").split(".")[0]
    kind = BoolType if name in _TRUTH else FloatType if name in _FLOAT else IntType
    return SCALARS[call.kernel].make([places.argument(i) for i in arguments], kind(f"v{result}"))


def known_number(places: Places, call: KernelCall) -> int | float | bool | None:
    """Return the result of a call on numbers if it is static, such as the size of a static
    tensor.
    """
    if call.kernel == SIZE:
        tensor, axis = places.tensor(call.args[0]), places.argument(call.args[1])
        is_known = tensor.dynamism is Dynamism.STATIC and isinstance(axis, int)
        return tensor.sizes[axis] if is_known else None
    if call.kernel not in SCALARS:
        return None
    numbers = [places.argument(index) for index in call.args[:-1]]
    if not numbers or any(isinstance(number, SSAValue) for number in numbers):
        return None
    return scalar_op(places, call).call(())


def arguments_of(places: Places, call: KernelCall, where: str) -> DecodedCall:
    """Return the functional form of a kernel call.

    Raises:
        ParseFailure: the arguments do not match the kernel's schema.
    """
    if call.kernel == _INDEX_PUT:
        cls = op_class("aten.index_put.default")
        names = ("self", "indices", "values", "accumulate")
        pairs = zip(names, call.args, strict=False)
        values = {
            name: fitted(cls.SCHEMA.by_name[name], places.argument(i), where) for name, i in pairs
        }
        return DecodedCall(cls, values, (call.args[0],))
    found = functional_of(call.kernel)
    assert found is not None, f"{call.kernel} is not readable"
    signature = found.signature
    if len(call.args) < len(signature.arguments):
        raise ParseFailure(
            f"{call.kernel} is given {len(call.args)} arguments, "
            f"its schema has {len(signature.arguments)}",
            where,
        )
    by_name = found.op.SCHEMA.by_name
    values: dict[str, Any] = {}
    written: list[int] = []
    after: list[int] = []
    for source, index in zip(signature.arguments, call.args, strict=False):
        if isinstance(source, Output):
            written.append(index)
            continue
        if isinstance(source, InPlace):
            after.append(index)
        argument = by_name[source.name]
        value = fitted(argument, places.argument(index), where)
        if argument.type.base in _LAYOUT or (argument.default == (value,) and value is not True):
            continue
        values[source.name] = value
    results = (*_results(places, call, signature.arguments, written), *after)
    if "dtype" in by_name and all(
        not isinstance(a, Input) or a.name != "dtype" for a in signature.arguments
    ):
        declared = places.stated[results[0]]
        assert isinstance(declared, TensorValue)
        values["dtype"] = element_type(torch_dtype(declared.scalar_type))
    if found.op.name in BY_STRIDES:
        values["self"] = places.laid_out(values["self"])
    return DecodedCall(found.op, values, results)


def _results(
    places: Places,
    call: KernelCall,
    arguments: tuple[Role, ...],
    written: list[int],
) -> tuple[int, ...]:
    if not written:  # The kernel returns a number, in the value after its arguments.
        return call.args[len(arguments) :][:1]
    expanded: list[int] = []
    for index in written:
        value = places.stated[index]
        expanded.extend(value.items if isinstance(value, TensorList) else (index,))
    return tuple(expanded)


def fitted(argument: Argument, value: Any, where: str) -> Any:
    """Return a value that a file states for an argument, in the form that the schema demands.

    Raises:
        ParseFailure: the value is of another kind.
    """
    if value is None or isinstance(value, SSAValue):
        if value is None and not argument.type.nullable and argument.type.base not in _LAYOUT:
            raise ParseFailure(f"argument {argument.name} is None", where)
        return value
    if argument.type.is_tensor and not argument.type.is_list:
        raise ParseFailure(f"argument {argument.name} is {value!r}, no tensor", where)
    if argument.type.base == "ScalarType":
        try:
            return element_type(torch_dtype(ScalarType(value)))
        except ValueError:
            raise ParseFailure(f"argument {argument.name}: no dtype {value!r}", where) from None
    if argument.type.is_list != isinstance(value, list):
        if argument.type.is_list:
            return [value]
        raise ParseFailure(f"argument {argument.name} is a list", where)
    if argument.type.base == "float" and isinstance(value, int):
        return float(value)
    return value


def frozen_argument(value: Any) -> Frozen:
    """Return a value that is not a tensor, in the form of a signature's constant."""
    return value if isinstance(value, int | float | bool | str | None) else str(value)

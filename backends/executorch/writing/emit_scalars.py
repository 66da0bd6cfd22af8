"""Emit arithmetic on dynamic numbers as calls of the runtime's scalar kernels."""

from collections.abc import Callable, Mapping, Sequence

from xdsl.ir import SSAValue

from stepwell.backends.executorch.writing.builder import MethodBuilder
from stepwell.dialects.sym import SymOp
from stepwell.ir.types import BoolType, FloatType

SCALAR_KERNELS = {
    f"sym.{name.removeprefix('sym_')}": f"executorch_prim::{name}.Scalar"
    for name in (
        "add sub mul truediv floordiv mod neg eq lt le gt ge ceil trunc round "
        "sym_max sym_min sym_not sym_ite sym_float sym_int"
    ).split()
}
"""`sym` op to the kernel with the same arguments."""

Write = Callable[[MethodBuilder, SymOp, Sequence[int]], int]


def _sum(builder: MethodBuilder, op: SymOp, values: Sequence[int]) -> int:
    total = builder.scalar(0)
    for value in values:
        total = _call(builder, op, "executorch_prim::add.Scalar", [total, value])
    return total


def _not_equal(builder: MethodBuilder, op: SymOp, values: Sequence[int]) -> int:
    equal = _call(builder, op, "executorch_prim::eq.Scalar", values)
    return _call(builder, op, "executorch_prim::sym_not.Scalar", [equal])


def _and(builder: MethodBuilder, op: SymOp, values: Sequence[int]) -> int:
    arguments = [values[0], values[1], builder.scalar(False)]
    return _call(builder, op, "executorch_prim::sym_ite.Scalar", arguments)


def _or(builder: MethodBuilder, op: SymOp, values: Sequence[int]) -> int:
    arguments = [values[0], builder.scalar(True), values[1]]
    return _call(builder, op, "executorch_prim::sym_ite.Scalar", arguments)


def _same(builder: MethodBuilder, op: SymOp, values: Sequence[int]) -> int:
    return values[0]


def _remainder(builder: MethodBuilder, op: SymOp, values: Sequence[int]) -> int:
    """Emit Python's remainder, which has the divisor's sign; the kernel's is C's: `-7 % 4` = −3."""
    if isinstance(op.result.type, FloatType):
        return _call(builder, op, SCALAR_KERNELS[op.name], values)
    dividend, divisor = values
    times = _call(builder, op, "executorch_prim::floordiv.Scalar", values)
    whole = _call(builder, op, "executorch_prim::mul.Scalar", [times, divisor])
    return _call(builder, op, "executorch_prim::sub.Scalar", [dividend, whole])


_COMPOSED: dict[str, Write] = {
    "sym.mod": _remainder,
    "sym.sum": _sum,
    "sym.ne": _not_equal,
    "sym.and": _and,
    "sym.or": _or,
    "sym.pos": _same,
}


def has_scalar_kernels(op: SymOp) -> bool:
    """Whether the runtime can compute a scalar op; `and` and `or` of booleans only."""
    if op.name in ("sym.and", "sym.or"):
        return isinstance(op.result.type, BoolType)
    return op.name in SCALAR_KERNELS or op.name in _COMPOSED


def emit_scalar(builder: MethodBuilder, op: SymOp, values: Mapping[SSAValue, int]) -> int:
    """Emit a scalar op; return the index of its result among the method's values."""
    bound = op.bind(list(op.values))
    items = bound[0] if op.name == "sym.sum" and isinstance(bound[0], list) else bound
    arguments = [
        values[item] if isinstance(item, SSAValue) else builder.scalar(item) for item in items
    ]
    composed = _COMPOSED.get(op.name)
    if composed is not None:
        return composed(builder, op, arguments)
    return _call(builder, op, SCALAR_KERNELS[op.name], arguments)


def _call(builder: MethodBuilder, op: SymOp, kernel: str, arguments: Sequence[int]) -> int:
    initial: bool | int | float = 0
    if isinstance(op.result.type, FloatType):
        initial = 0.0
    elif isinstance(op.result.type, BoolType):
        initial = False
    result = builder.variable(initial)
    builder.call(kernel, [*arguments, result])
    return result

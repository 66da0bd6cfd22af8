"""Code motion: compute values that are invariant along a dynamic axis before they are repeated.

Positions, masks and rotary angles are the same for each image or sentence of a dynamic batch.
Models repeat them first and compute afterwards. If the repetition comes last, everything before it
is known at compile time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.axes.maps import AxisMap, axis_map, mapped_names
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.families import is_of
from stepwell.ir.dtypes import i32, i64, torch_dtype
from stepwell.ir.rewriting.rewrite import EXACT, Rewriter
from stepwell.ir.side_effects import is_pure
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import UNKNOWN, dims, element, is_static
from stepwell.translate.decompositions.values import Value
from stepwell.translate.lowerings.lowering import Out, lowers, refuse
from stepwell.translate.rewrites.building import size_of

FILLS = {
    f"aten.{name}.default": number
    for names, number in (
        ("zeros zeros_like new_zeros", 0),
        ("ones ones_like new_ones", 1),
        ("full full_like new_full", None),
    )
    for name in names.split()
}
"""Operators that create a tensor of one number, and the number if it is not an argument."""


@lowers(
    FILLS,
    to="aten",
    bound=EXACT,
    unless=lambda op: is_static(op.results[0].type),
    sample="""
    %z = aten.zeros_like.default(%x) : (f32[s0, 3]) -> f32[s0, 3]
    %y = aten.add.Tensor(%z, %x) : (f32[s0, 3], f32[s0, 3]) -> f32[s0, 3]
    """,
)
def fill_by_expand(*, form: int | None, op: Any, out: Out, b: Rewriter) -> Value:
    """Rewrite a tensor of dynamic shape and equal elements as an expanded one-element constant."""
    number = op.arg("fill_value") if form is None else form
    if isinstance(number, SSAValue):
        refuse("the number is known only at run time")
    if UNKNOWN in out.shape:
        refuse("the shape is not known")
    if "size" in op.SCHEMA.by_name:
        sizes = list(op.arg("size"))
    else:
        x = op.operands[0]
        sizes = [
            size if isinstance(size, int) else size_of(b, x, at)
            for at, size in enumerate(out.shape)
        ]
    one = torch.full([1] * len(sizes), number, dtype=torch_dtype(out.dtype))
    return Value(b.constant(one, "filled"), b).call(aten.ExpandDefault, sizes, shape=out.shape)


@lowers(
    "aten.expand_as.default",
    to="aten",
    bound=EXACT,
    unless=lambda op: is_static(op.results[0].type),
    sample="""
    %y = aten.expand_as.default(%z, %x) : (f32[1, 3], f32[s0, 3]) -> f32[s0, 3]
    """,
)
def expand_by_sizes(x: Value, *, op: Any, out: Out, b: Rewriter) -> Value:
    """Rewrite an expand to another tensor's shape as an expand to sizes read from that tensor."""
    if UNKNOWN in out.shape:
        refuse("the shape is not known")
    given = (*[1] * (len(out.shape) - x.rank), *x.shape)
    sizes = [
        size if isinstance(size, int) else -1 if size == own else size_of(b, op.operands[1], at)
        for at, (own, size) in enumerate(zip(given, out.shape, strict=True))
    ]
    return x.call(aten.ExpandDefault, sizes, shape=out.shape)


@lowers(
    "aten.expand.default",
    to="aten",
    bound=EXACT,
    unless=lambda op: (
        is_static(op.results[0].type) or not isinstance(op.operands[0].owner, aten.ExpandDefault)
    ),
    sample="""
    %b = aten.sym_size.int(%x, 0) : (f32[s0, 3]) -> !stepwell.int<"s0">
    %e = aten.expand.default(%z, [%b, -1]) : (f32[1, 1], !stepwell.int<"s0">) -> f32[s0, 1]
    %y = aten.expand.default(%e, [-1, 3]) : (f32[s0, 1]) -> f32[s0, 3]
    """,
)
def merge_expands(x: Value, *, op: Any, out: Out) -> Value:
    """Merge an expand of an expand, for any sizes."""
    first: Any = x.owner
    inner, outer = list(first.arg("size")), list(op.arg("size"))
    ahead = len(outer) - len(inner)
    sizes = [
        size if isinstance(size, SSAValue) or size != -1 else own
        for own, size in zip([-1] * ahead + inner, outer, strict=True)
    ]
    return Value(first.operands[0], x.b).call(aten.ExpandDefault, sizes, shape=out.shape)


def is_constant(value: SSAValue) -> bool:
    """Whether a value is a weight, or becomes one by constant folding."""
    owner = value.owner
    if isinstance(owner, SchemaOp):
        return is_pure(owner) and bool(owner.operands) and all(map(is_constant, owner.operands))
    return isinstance(owner, WeightOp)


def is_repeated(value: SSAValue) -> bool:
    """Whether a value is a constant that an expand repeats along dynamic axes."""
    owner = value.owner
    return (
        isinstance(owner, aten.ExpandDefault)
        and not is_static(value.type)
        and is_constant(owner.operands[0])
    )


def repeats_nothing(op: SchemaOp) -> bool:
    """Whether no operand of an op is a repeated constant."""
    return isinstance(op, aten.ExpandDefault) or not any(map(is_repeated, op.operands))


@lowers(
    *mapped_names("aten"),
    to="aten",
    bound=EXACT,
    unless=repeats_nothing,
    sample="""
    %b = aten.sym_size.int(%x, 0) : (f32[s0, 3]) -> !stepwell.int<"s0">
    %w = stepwell.weight <"w"> "constant" : f32[1, 3]
    %e = aten.expand.default(%w, [%b, -1]) : (f32[1, 3], !stepwell.int<"s0">) -> f32[s0, 3]
    %n = aten.neg.default(%e) : (f32[s0, 3]) -> f32[s0, 3]
    %y = aten.mul.Tensor(%n, %x) : (f32[s0, 3], f32[s0, 3]) -> f32[s0, 3]
    """,
)
def compute_before_expand(*, op: Any, out: Out, b: Rewriter) -> Value:
    """Move an expand of weights along dynamic axes after an op of these weights.

    The op's axis map states the result axis of each repeated axis. Expands of an axis that is
    reduced, moved or merged are not rewritten.
    """
    if len(op.results) != 1 or not is_pure(op):
        refuse("the op has several results, or side effects")
    axes: AxisMap | None = axis_map(op)
    if axes is None:
        refuse("the op has no axis map")
    once: dict[SSAValue, SSAValue] = {}
    counts: dict[int, SSAValue] = {}
    for at, operand in enumerate(op.operands):
        if not isinstance(operand.type, TensorType):
            if is_of(op, "reshape"):
                continue
            refuse("an argument is known only at run time")
        if not is_repeated(operand):
            if not is_constant(operand):
                refuse("another operand is not a constant")
            continue
        expand: Any = operand.owner
        for axis, size in _opened(expand):
            result = axes.after(at, axis)
            if result is None:
                refuse(f"the repeated axis {axis} is not an axis of the result")
            counts[result] = size
        if operand not in once:
            once[operand] = _unrepeated(expand, b).ssa
    shape = [1 if at in counts else size for at, size in enumerate(out.shape)]
    if any(isinstance(size, Size) for size in shape):
        refuse("a size of the result is known only at run time")
    if is_of(op, "reshape"):
        made = Value(next(iter(once.values())), b).view(*shape)
    else:
        stated = {name: _in_place_of(value, once) for name, value in op.present().items()}
        made = Value(b.insert(type(op).from_arguments(stated)).results[0], b)
    return made.call(
        aten.ExpandDefault, [counts.get(at, -1) for at in range(len(shape))], shape=out.shape
    )


def _in_place_of(value: Any, once: dict[SSAValue, SSAValue]) -> Any:
    """Return an argument in which repeated values are replaced by their sources."""
    if isinstance(value, list):
        return [_in_place_of(each, once) for each in value]
    return once.get(value, value) if isinstance(value, SSAValue) else value


def _opened(expand: Any) -> Iterator[tuple[int, SSAValue]]:
    """Yield each axis that an expand of a weight makes dynamic, and the size it gets."""
    for axis, (size, made) in enumerate(
        zip(expand.arg("size"), dims(expand.results[0].type), strict=True)
    ):
        if isinstance(made, Size):
            yield axis, size


def _unrepeated(expand: Any, b: Rewriter) -> Value:
    """Return a weight that is expanded along static axes only."""
    weight = Value(expand.operands[0], b)
    made = dims(expand.results[0].type)
    ahead = weight.view(*[1] * (len(made) - weight.rank), *weight.shape)
    return ahead.expand(*(1 if isinstance(size, Size) else size for size in made))


@lowers(
    "aten.index.Tensor",
    to="aten",
    bound=EXACT,
    unless=lambda op: not is_repeated(op.operands[0]),
    sample="""
    %b = aten.sym_size.int(%x, 0) : (f32[s0, 3]) -> !stepwell.int<"s0">
    %w = stepwell.weight <"w"> "constant" : f32[1, 3]
    %e = aten.expand.default(%w, [%b, -1]) : (f32[1, 3], !stepwell.int<"s0">) -> f32[s0, 3]
    %a = aten.arange.default(%b) : (!stepwell.int<"s0">) -> i64[s0]
    %r = aten.view.default(%a, [-1, 1]) : (i64[s0]) -> i64[s0, 1]
    %c = stepwell.weight <"c"> "constant" : i64[2]
    %y = aten.index.Tensor(%e, [%r, %c]) : (f32[s0, 3], i64[s0, 1], i64[2]) -> f32[s0, 2]
    func.return %y : f32[s0, 2]
    """,
)
def pick_before_expand(*, op: Any, out: Out, b: Rewriter) -> Value:
    """Select the element 0 of a repeated axis for all indices, and repeat the result."""
    expand = op.operands[0].owner
    counts = dict(_opened(expand))
    indices = list(op.arg("indices"))
    for axis in counts:
        index = indices[axis] if axis < len(indices) else None
        if index is None or element(index.type) not in (i32, i64):
            refuse("a repeated axis is not the indexed axis")
        zero = torch.zeros([1] * len(dims(index.type)), dtype=torch_dtype(element(index.type)))
        indices[axis] = b.constant(zero, "first")
    made = _unrepeated(expand, b)
    picked = b.insert(
        type(op).from_arguments({**op.present(), "self": made.ssa, "indices": indices})
    )
    value = Value(picked.results[0], b)
    known = {dims(expand.results[0].type)[axis]: size for axis, size in counts.items()}
    if any(
        a != size and (a != 1 or size not in known)
        for a, size in zip(value.shape, out.shape, strict=True)
    ):
        refuse("the indices and the repeated value have different sizes")
    sizes = [
        -1 if a == size else known[size] for a, size in zip(value.shape, out.shape, strict=True)
    ]
    return value if set(sizes) == {-1} else value.call(aten.ExpandDefault, sizes, shape=out.shape)

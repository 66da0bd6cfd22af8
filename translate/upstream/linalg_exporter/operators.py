"""Export of operators that are not a single expression of elements at declared indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from typing import Any, cast

from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.declared.scalar_semantics import Term, element_of, greatest, least
from stepwell.ir.diagnostics import UnsupportedError
from stepwell.ir.dtypes import f32, i1, torch_dtype
from stepwell.ir.types import dims, element
from stepwell.translate.upstream.linalg_exporter.bodies import BodyValue
from stepwell.translate.upstream.linalg_exporter.writing import (
    Text,
    all_axes,
    combined,
    divided,
    is_tensor,
    lists,
    spelled,
    tensor_type,
)

CONVOLUTIONS = {1: "conv_1d_ncw_fcw", 2: "conv_2d_nchw_fchw", 3: "conv_3d_ncdhw_fcdhw"}
"""Named operators by the number of axes along which a filter slides."""
POOLS = {
    "aten.max_pool2d.default": "pooling_nchw_max",
    "aten.avg_pool2d.default": "pooling_nchw_sum",
}


def _cat(method: Text, op: SchemaOp) -> None:
    axis = op.arg("dim") % len(dims(op.results[0].type))
    parts = [value for value in op.operands if dims(value.type) != (0,)]
    names, shapes = [method.names[v] for v in parts], [dims(v.type) for v in parts]
    (result,) = op.results
    made, dtype = dims(result.type), element(result.type)
    method.names[result] = _concat(method, names, shapes, made, dtype, axis)


def _pad(method: Text, op: SchemaOp) -> None:
    (source, *_), pad = op.operands, op.arg("pad")
    shape, dtype = dims(source.type), element(source.type)
    rank = len(shape)
    sides = [*pad, *[0] * (2 * rank - len(pad))]  # PyTorch's start with the last axis.
    low, high = sides[-2::-2], sides[::-2]
    if min((*low, *high, 0)) < 0 or not all(isinstance(size, int) for size in shape):
        raise UnsupportedError("padding that crops or has dynamic sizes is not supported")
    whole: Any = shape
    name, _ = method.padded(method.names[source], whole, dtype, low, high, op.arg("value") or 0)
    method.names[op.results[0]] = name


def _convolution(method: Text, op: SchemaOp) -> None:
    x, w, *bias = (value for value in op.operands if is_tensor(value))
    shape, filters, dtype = dims(x.type), dims(w.type), element(x.type)
    count = len(filters) - 2
    named = op.SCHEMA.by_name
    groups = op.arg("groups")
    if ("transposed" in named and op.arg("transposed")) or len(shape) != count + 2:
        raise UnsupportedError(
            "transposed convolutions, and convolutions without a batch, are not supported"
        )
    if not all(isinstance(size, int) for size in (*shape, *filters)) or dtype != f32:
        raise UnsupportedError("convolutions of dynamic sizes or halves are not supported")
    stride, padding, dilation = (_each(op.arg(n), count) for n in ("stride", "padding", "dilation"))
    sides = [0, 0, *padding]
    whole: Any = shape
    given, wide = method.padded(method.names[x], whole, dtype, sides, sides, 0)
    made = dims(op.results[0].type)
    attributes = lists(dilations=dilation, strides=stride)

    def convolved(x: str, wide: Any, w: str, filters: Any, made: Any) -> str:
        start = method.filled(0, made, dtype, {})
        return method.line(
            f"linalg.{CONVOLUTIONS[count]} {{{attributes}}} "
            f"ins({x}, {w} : {tensor_type(wide, dtype)}, {tensor_type(filters, dtype)}) "
            f"outs({start} : {tensor_type(made, dtype)}) -> {tensor_type(made, dtype)}"
        )

    sizes: Any = filters
    parts = [
        convolved(
            *_part(method, given, wide, dtype, 1, at, groups),
            *_part(method, method.names[w], sizes, dtype, 0, at, groups),
            [made[0], made[1] // groups, *made[2:]],  # pyright: ignore
        )
        for at in range(groups)
    ]
    name = (
        parts[0]
        if groups == 1
        else _concat(
            method,
            parts,
            [[made[0], made[1] // groups, *made[2:]]] * groups,
            made,
            dtype,
            1,  # pyright: ignore
        )
    )
    if bias:
        read = (method.names[bias[0]], spelled(bias[0].type), "d1")
        name = combined(method, "add", name, made, dtype, read)
    method.names[op.results[0]] = name


def _part(
    method: Text,
    name: str,
    shape: Sequence[int],
    dtype: Attribute,
    axis: int,
    at: int,
    count: int,
) -> tuple[str, list[int]]:
    """Return one of `count` parts of a tensor along an axis, and its shape."""
    if count == 1:
        return name, list(shape)
    size = shape[axis] // count
    return _cut(method, name, shape, dtype, axis, at * size, (at + 1) * size)


def _concat(
    method: Text,
    names: Sequence[str],
    shapes: Sequence[Any],
    made: Any,
    dtype: Attribute,
    axis: int,
) -> str:
    types = ", ".join(tensor_type(shape, dtype) for shape in shapes)
    return method.line(
        f"tensor.concat dim({axis}) {', '.join(names)} : ({types}) -> {tensor_type(made, dtype)}"
    )


def _each(values: Any, count: int) -> list[int]:
    if isinstance(values, str):
        raise UnsupportedError(f"padding {values!r} is not supported")
    listed = list(values) if isinstance(values, list | tuple) else [values]
    return listed * count if len(listed) == 1 else listed


def _pool(method: Text, op: SchemaOp) -> None:
    (x,) = op.operands
    shape, dtype = dims(x.type), element(x.type)
    kernel, padding = _each(op.arg("kernel_size"), 2), _each(op.arg("padding"), 2)
    stride = _each(op.arg("stride") or kernel, 2)
    dilation = _each(op.arg("dilation"), 2) if "dilation" in op.SCHEMA.by_name else [1, 1]
    is_whole = all(isinstance(size, int) for size in shape)
    if len(shape) != 4 or op.arg("ceil_mode") or dtype != f32 or not is_whole:
        raise UnsupportedError(
            "pools with ceil_mode, dynamic sizes, halves, or no batch are not supported"
        )
    is_mean = "avg" in op.name
    counts = is_mean and any(padding) and not op.arg("count_include_pad")
    if counts and op.arg("divisor_override") is None:
        ones = torch.ones(1, 1, *cast("Any", shape[2:]))
        pool = torch.nn.functional.avg_pool2d
        counted = pool(ones, kernel, stride, padding, divisor_override=1)
    else:
        counted = None
    sides = [0, 0, *padding]
    whole: Any = shape
    number = 0.0 if is_mean else -inf
    given, wide = method.padded(method.names[x], whole, dtype, sides, sides, number)
    made = dims(op.results[0].type)
    start, window = method.filled(number, made, dtype, {}), method.empty(kernel, dtype, {})
    attributes = lists(dilations=dilation, strides=stride)
    name = method.line(
        f"linalg.{POOLS[op.name]} {{{attributes}}} "
        f"ins({given}, {window} : {tensor_type(wide, dtype)}, {tensor_type(kernel, dtype)}) "
        f"outs({start} : {tensor_type(made, dtype)}) -> {tensor_type(made, dtype)}"
    )
    if counted is not None:
        by = (method.literal(counted), tensor_type(counted.shape, dtype), "0, 0, d2, d3")
        name = combined(method, "divide", name, made, dtype, by)
    elif is_mean:
        divisor = op.arg("divisor_override") or prod(kernel)
        name = divided(method, name, made, dtype, divisor)
    method.names[op.results[0]] = name


def _select(method: Text, op: SchemaOp) -> None:
    (source, *_), axis = op.operands, op.arg("dim")
    shape = dims(source.type)
    axis %= len(shape)
    numbers = range(len(op.results)) if "unbind" in op.name else [op.arg("index")]
    for number, result in zip(numbers, op.results, strict=True):
        at = number % shape[axis] if isinstance(shape[axis], int) else number  # pyright: ignore
        if not isinstance(at, int) or at < 0:
            raise UnsupportedError("an index is known only at run time")
        sizes = {a: (source, a) for a in range(len(shape))}
        lengths = [
            1 if a == axis else method.size(sizes, a, size) or size for a, size in enumerate(shape)
        ]
        offsets = [at if a == axis else 0 for a in range(len(shape))]
        types = spelled(source.type), spelled(result.type)
        method.names[result] = method.slice(method.names[source], types, offsets, lengths)


def _looked_up(
    method: Text,
    table: SSAValue,
    result: SSAValue,
    places: Sequence[tuple[SSAValue, str] | int],
) -> None:
    """Gather elements of a table, with each axis at a read index or at the result's index."""
    shape, made, dtype = dims(table.type), dims(result.type), element(table.type)
    inputs: list[tuple[str, str, str]] = []
    arguments: list[BodyValue] = []
    body: list[str] = []
    names: list[str] = []
    sizes: dict[int, tuple[SSAValue, int]] = {}
    for axis, place in enumerate(places):
        if isinstance(place, int):
            sizes[place] = (table, axis)
            names.append(method.fresh())
            body.append(f"{names[-1]} = linalg.index {place} : index")
            continue
        value, indices = place
        whole, given, cast_, size, zero, below, turned, picked = (
            element(value.type),
            *(method.fresh() for _ in range(7)),
        )
        if not isinstance(shape[axis], int):
            raise UnsupportedError("look-ups along a dynamic axis are not supported")
        inputs.append((method.names[value], spelled(value.type), indices))
        arguments.append(BodyValue(given, whole))
        body += [
            f"{cast_} = arith.index_cast {given} : {whole} to index",
            f"{size} = arith.constant {shape[axis]} : index",
            f"{zero} = arith.constant 0 : index",
            f"{below} = arith.cmpi slt, {cast_}, {zero} : index",
            f"{turned} = arith.addi {cast_}, {size} : index",
            f"{picked} = arith.select {below}, {turned}, {cast_} : index",
        ]
        names.append(picked)
    found = method.fresh()
    body.append(
        f"{found} = tensor.extract {method.names[table]}[{', '.join(names)}]"
        f" : {spelled(table.type)}"
    )
    empty = method.empty(made, dtype, sizes)
    arguments.append(BodyValue(method.fresh(), dtype))
    element_ = BodyValue(found, dtype)
    method.names[result] = method.generic(inputs, empty, made, body, arguments, element_)


def _index_select(method: Text, op: SchemaOp) -> None:
    table, rows = op.operands
    axis = op.arg("dim") % len(dims(table.type))
    places: list[Any] = list(range(len(dims(table.type))))
    places[axis] = (rows, f"d{axis}" if dims(rows.type) else "")
    _looked_up(method, table, op.results[0], places)


def _gather(method: Text, op: SchemaOp) -> None:
    table, rows = op.operands
    rank = len(dims(table.type))
    places: list[Any] = list(range(rank))
    places[op.arg("dim") % max(rank, 1)] = (rows, all_axes(rank))
    _looked_up(method, table, op.results[0], places)


def _index(method: Text, op: SchemaOp) -> None:
    table, indices = op.operands[0], op.arg("indices")
    rank = len(dims(table.type))
    at = [axis for axis, value in enumerate(indices) if value is not None]
    ranks = [len(dims(indices[axis].type)) for axis in at]
    if any(str(element(indices[axis].type)) == "i1" for axis in at):
        raise UnsupportedError("the indices are a mask, so that the result has a dynamic size")
    widest = max(ranks)
    others = [axis for axis in range(rank) if axis not in at]
    is_one_run = at == list(range(at[0], at[-1] + 1))
    first = sum(axis < at[0] for axis in others) if is_one_run else 0
    made = dims(op.results[0].type)
    places: list[tuple[SSAValue, str] | int] = []
    for axis in range(rank):
        if axis not in at:
            number = others.index(axis)
            places.append(number if number < first else number + widest)
            continue
        shape = dims(indices[axis].type)
        start = first + widest - len(shape)
        text = ", ".join(
            "0" if size == 1 and made[start + n] != 1 else f"d{start + n}"
            for n, size in enumerate(shape)
        )
        places.append((indices[axis], text))
    _looked_up(method, table, op.results[0], places)


def _embedding(method: Text, op: SchemaOp) -> None:
    table, rows = op.operands
    rank = len(dims(rows.type))
    _looked_up(method, table, op.results[0], [(rows, all_axes(rank)), rank])


def _roll(method: Text, op: SchemaOp) -> None:
    (source,) = op.operands
    shape, dtype = dims(source.type), element(source.type)
    axes, shifts = ([*op.arg(name)] for name in ("dims", "shifts"))
    if not axes or not all(isinstance(size, int) for size in shape):
        raise UnsupportedError("roll without axes, or of dynamic sizes, is not supported")
    name, whole = method.names[source], cast("list[int]", list(shape))
    for axis, shift in zip(axes, shifts, strict=True):
        size = whole[axis]
        if not (cut := -shift % size if size else 0):
            continue
        parts = [_cut(method, name, whole, dtype, axis, *ends) for ends in ((cut, size), (0, cut))]
        name = _concat(method, *zip(*parts, strict=True), whole, dtype, axis % len(whole))  # pyright: ignore
    method.names[op.results[0]] = name


def _cut(
    method: Text,
    name: str,
    shape: Sequence[int],
    dtype: Attribute,
    axis: int,
    low: int,
    high: int,
) -> tuple[str, list[int]]:
    made, offsets = list(shape), [0] * len(shape)
    made[axis], offsets[axis] = high - low, low
    types = tensor_type(shape, dtype), tensor_type(made, dtype)
    return method.slice(name, types, offsets, made), made


def _like(method: Text, op: SchemaOp) -> None:
    """Write a tensor of one number with another one's shape."""
    (source,) = op.operands
    whole = dims(source.type)
    if not all(isinstance(size, int) for size in whole):
        raise UnsupportedError("constants of dynamic sizes are not supported")
    bound: dict[SSAValue, Any] = {
        source: torch.zeros(cast("Any", whole), dtype=torch_dtype(element(source.type)))
    }
    Interpreter(method.program.weights).step(op, bound)
    method.names[op.results[0]] = method.literal(bound[op.results[0]])


_BITS = {
    "aten.bitwise_and": "and_",
    "aten.bitwise_or": "or_",
    "aten.bitwise_xor": "xor",
    "aten.__and__": "and_",
    "aten.__or__": "or_",
    "aten.__xor__": "xor",
}
_ANY = {"aten.any": greatest, "aten.all": least}


def truth_of(op: SchemaOp) -> Term | None:
    """Return the semantics of bitwise functions, and of boolean reductions."""
    family = op.name.rpartition(".")[0]
    if family in _BITS:
        return (
            Term(_BITS[family], tuple(map(element_of, op.operands)))
            if len(op.operands) == 2
            else None
        )
    if family in _ANY:
        return _ANY[family](Term("cast", (element_of(op.operands[0]),), to=i1))
    return None


STATED = ("aten._assert_tensor_metadata.default",)
"""Ops that query a property of a tensor's type."""
WRITERS: Mapping[str, Callable[[Text, SchemaOp], None]] = {
    "aten.cat.default": _cat,
    "aten.constant_pad_nd.default": _pad,
    "aten.pad.default": _pad,
    "aten.embedding.default": _embedding,
    "aten.roll.default": _roll,
    **dict.fromkeys((f"aten.{word}_like.default" for word in ("full", "zeros", "ones")), _like),
    "aten.index_select.default": _index_select,
    "aten.gather.default": _gather,
    "aten.index.Tensor": _index,
    "aten.select.int": _select,
    "aten.unbind.int": _select,
    **dict.fromkeys(POOLS, _pool),
    **dict.fromkeys(
        (*(f"aten.conv{count}d.default" for count in CONVOLUTIONS), "aten.convolution.default"),
        _convolution,
    ),
}
"""Ops that are not a single expression of elements at declared indices."""

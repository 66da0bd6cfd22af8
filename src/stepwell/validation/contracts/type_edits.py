"""Edits of a draft's element types, shapes, quantization and layouts."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

from xdsl.dialects.builtin import (
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    TensorType,
)
from xdsl.ir import Attribute

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.quant.types import Quantization, UniformQuantizedType, quantization
from stepwell.ir import dtypes
from stepwell.ir.sizes.size import Size
from stepwell.ir.types import dims, element, tensor
from stepwell.validation.contracts.draft import Draft, DraftInput, Step

Change = Callable[[Draft], None]
"""Applies an edit to a draft in place."""
Edits = Iterator[tuple[str, Change]]
"""Edits with their descriptions."""
ELEMENTS = (
    dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64,
    dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64, dtypes.ui8, dtypes.i1,
)  # fmt: skip


def name_of(draft: Draft, source: DraftInput) -> str:
    """Return the name of an input or weight for labels."""
    return source.key or f"input {[s for s in draft.sources if s.key is None].index(source)}"


def tensors_of(draft: Draft) -> Iterator[tuple[int, DraftInput]]:
    """Yield the inputs and weights that are tensors, with their index."""
    for index, source in enumerate(draft.sources):
        if isinstance(source.type, TensorType):
            yield index, source


def numbers_of(attr: Any) -> list[Any]:
    """Return the numbers of an array attribute."""
    return list(attr.get_values())


def set_source(index: int, draft: Draft, **fields: Any) -> None:
    """Set fields of an input or weight of a draft."""
    for name, value in fields.items():
        setattr(draft.sources[index], name, value)


def set_type(index: int, type_: Attribute, draft: Draft) -> None:
    """Set the type of an input or weight of a draft."""
    source = draft.sources[index]
    source.type = type_
    if source.order is not None and len(source.order) != len(dims(type_)):
        source.order = None


def dtype_edits(draft: Draft) -> Edits:
    """Yield edits of the element type, of one input or weight or of all."""
    elements = {element(s.type) for _, s in tensors_of(draft) if quantization(s.type) is None}
    elements |= {
        element(t)
        for step in draft.steps
        for t in step.types
        if isinstance(t, TensorType) and quantization(t) is None
    }
    for old in sorted(elements, key=str):
        for new in ELEMENTS:
            if new != old:
                label = f"{dtypes.dtype_name(old)} becomes {dtypes.dtype_name(new)} everywhere"
                yield label, partial(_replace_element, old, new)
    for index, source in tensors_of(draft):
        if quantization(source.type) is not None:
            continue
        for new in ELEMENTS:
            if new != element(source.type):
                type_ = tensor(dims(source.type), new)
                label = f"{name_of(draft, source)} is {dtypes.dtype_name(new)}"
                yield label, partial(set_type, index, type_)


def _replace_element(old: Attribute, new: Attribute, draft: Draft) -> None:
    def changed(type_: Attribute) -> Attribute:
        if not isinstance(type_, TensorType):
            return type_
        if element(type_) == old:
            return tensor(dims(type_), new)
        stored = quantization(type_)
        if stored is not None and stored.expressed == old and dtypes.is_float(new):
            numbers = replace(stored, expressed=cast(Any, new))
            return tensor(dims(type_), UniformQuantizedType(numbers))
        return type_

    _change_types(changed, draft)
    for step in draft.steps:
        for name, value in step.arguments.items():
            if value == old:
                step.arguments[name] = new


def _change_types(changed: Callable[[Attribute], Attribute], draft: Draft) -> None:
    for source in draft.sources:
        source.type = changed(source.type)
    for step in draft.steps:
        step.types = [changed(type_) for type_ in step.types]


def shape_edits(draft: Draft) -> Edits:
    """Yield edits of sizes and ranks, of one input or weight or of all."""
    sizes = {d for _, s in tensors_of(draft) for d in dims(s.type) if isinstance(d, int)}
    for old in sorted(sizes):
        for new in (0, 1, 2, 3, 5, 16, 33):
            if new != old:
                label = f"size {old} is {new} everywhere"
                yield label, partial(_resize, old, new)
    yield "every size is 1", _all_ones
    for count in (1, 2):
        yield f"{count} leading axes more", partial(_lead_all, count)
    yield "every leading axis less", partial(_lead_all, -1)
    yield "0-d", partial(_lead_all, -9)
    for index, source in tensors_of(draft):
        shape, name = list(dims(source.type)), name_of(draft, source)
        for axis, size in enumerate(shape):
            for new in (0, 1, 2):
                if size != new:
                    made = [*shape[:axis], new, *shape[axis + 1 :]]
                    label = f"axis {axis} of {name} is {new}"
                    yield label, partial(set_shape, index, made)
        for more in ([1], [2], [1, 1], [3, 1]):
            made = [*more, *shape]
            yield f"{name} is led by {more}", partial(set_shape, index, made)
        for cut in range(1, len(shape) + 1):
            label = f"{name} has its last {len(shape) - cut} axes"
            yield label, partial(set_shape, index, shape[cut:])
        yield f"{name} has one axis more", partial(set_shape, index, [*shape, 1])


def set_shape(index: int, shape: list[Any], draft: Draft) -> None:
    """Set the shape of an input or weight of a draft."""
    set_type(index, tensor(shape, element(draft.sources[index].type)), draft)


_SIZES = ("size", "shape", "new_shape", "normalized_shape", "output_size", "sizes", "repeats")
"""Arguments that contain sizes, which are changed with those of the tensors."""


def _resize(old: int, new: int, draft: Draft) -> None:
    for index, source in tensors_of(draft):
        set_shape(index, [new if d == old else d for d in dims(source.type)], draft)
    for step in draft.steps:
        for name in _SIZES:
            argument = step.arguments.get(name)
            if isinstance(argument, list):
                items = cast(list[Any], argument)
                step.arguments[name] = [new if item == old else item for item in items]
            attr = step.properties.get(name)
            if isinstance(attr, DenseArrayBase):
                numbers = [new if v == old else v for v in numbers_of(attr)]
                step.properties[name] = DenseArrayBase.from_list(attr.elt_type, numbers)  # pyright: ignore
        _restate(step, old, new)


def _restate(step: Step, old: int, new: int) -> None:
    """Update TOSA's constant shapes, which are separate ops, after an edit of sizes."""
    values = step.properties.get("values")
    if values is None or step.cls.name != "tosa.const_shape":
        return
    if isinstance(values, DenseIntOrFPElementsAttr):
        numbers = [new if v == old else int(v) for v in cast(Any, values).get_values()]
        step.properties["values"] = DenseIntOrFPElementsAttr.from_list(
            cast(Any, values).type, numbers
        )


def _all_ones(draft: Draft) -> None:
    sizes = {d for _, s in tensors_of(draft) for d in dims(s.type) if isinstance(d, int)}
    for size in sizes:
        _resize(size, 1, draft)


def _lead_all(count: int, draft: Draft) -> None:
    """Add leading axes to every input and to lists of sizes; negative axes stay valid."""
    for index, source in tensors_of(draft):
        if source.key is not None:
            continue
        shape = list(dims(source.type))
        sizes = [2, 1][:count] + shape if count > 0 else shape[-count:]
        set_shape(index, sizes, draft)
    for step in draft.steps:
        for name in ("size", "shape", "new_shape"):
            argument = step.arguments.get(name)
            if isinstance(argument, list):
                items = cast(list[Any], argument)
                step.arguments[name] = [2, 1][:count] + items if count > 0 else items[-count:]


def symbol_edits(draft: Draft) -> Edits:
    """Yield edits that make a size of the inputs symbolic, on one axis or wherever it occurs."""
    inputs = [(index, source) for index, source in tensors_of(draft) if source.key is None]
    sizes = {d for _, s in inputs for d in dims(s.type) if isinstance(d, int) and d > 1}
    for size in sorted(sizes):
        yield f"size {size} of inputs is symbolic", partial(_symbol, size)
    is_inferred = all(issubclass(step.cls, SchemaOp) for step in draft.steps)
    for index, source in inputs if is_inferred else ():
        for axis, size in enumerate(dims(source.type)):
            if isinstance(size, int):
                label = f"axis {axis} of {name_of(draft, source)} is symbolic"
                yield label, partial(_symbol_at, index, axis)


SYMBOLS = ("s101", "s102", "s103", "s104")


def _fresh_symbol(draft: Draft) -> str | None:
    """Return a new symbol whose range begins at 1."""
    name = next((symbol for symbol in SYMBOLS if symbol not in draft.ranges), None)
    if name is not None:
        draft.ranges[name] = (1, 64)
    return name


def _symbol(size: int, draft: Draft) -> None:
    symbol = _fresh_symbol(draft)
    if symbol is None:
        return
    for index, source in tensors_of(draft):
        if source.key is None:
            shape = [symbol if d == size else d for d in dims(source.type)]
            set_shape(index, shape, draft)
    for step in draft.steps:
        step.types = [_with_symbol(type_, size, symbol) for type_ in step.types]


def _with_symbol(type_: Attribute, size: int, symbol: str) -> Attribute:
    if not isinstance(type_, TensorType):
        return type_
    return tensor([symbol if d == size else d for d in dims(type_)], element(type_))


def _symbol_at(index: int, axis: int, draft: Draft) -> None:
    symbol = _fresh_symbol(draft)
    shape = list(dims(draft.sources[index].type))
    if symbol is not None and axis < len(shape):
        shape[axis] = Size.symbol(symbol)
        set_shape(index, shape, draft)


def quantization_edits(draft: Draft) -> Edits:
    """Yield edits of scales, zero points, storage types and axes of every quantized type."""
    types = [s.type for s in draft.sources] + [t for step in draft.steps for t in step.types]
    elements = dict.fromkeys(element(type_) for type_ in types if isinstance(type_, TensorType))
    quantized = (each for each in elements if isinstance(each, UniformQuantizedType))
    for number, old in enumerate(quantized):
        for what, new in _quantizations(old.data):
            if new.problem() is None:
                quantized_type = UniformQuantizedType(new)
                label = f"quantization {number}: {what}"
                yield label, partial(_requantize, old, quantized_type)


def _quantizations(parameters: Quantization) -> Iterator[tuple[str, Quantization]]:
    count = len(parameters.scales)
    for scale in (1e-6, 0.01, 0.5, 0.3, 1.0, 37.5, 1e6):
        yield f"scale {scale}", replace(parameters, scales=(scale,) * count)
    for zero in (0, parameters.low, parameters.high, 7):
        yield f"zero point {zero}", replace(parameters, zero_points=(zero,) * count)
    for bits, signed in ((8, True), (8, False), (16, True), (32, True), (4, True)):
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        kind = f"{'i' if signed else 'u'}{bits}"
        zeros = tuple(min(max(z, low), high) for z in parameters.zero_points)
        new = replace(parameters, bits=bits, signed=signed, low=low, high=high, zero_points=zeros)
        yield kind, new
    if parameters.signed:
        zeros = tuple(max(z, -parameters.high) for z in parameters.zero_points)
        yield "a narrow range", replace(parameters, low=-parameters.high, zero_points=zeros)
    for axis in (0, 1):
        for size in (2, 3, 4, 8):
            scales = tuple(0.125 * (i + 1) for i in range(size))
            zeros = tuple(i % 2 for i in range(size))
            for label, points in (("", (0,) * size), (" with zero points", zeros)):
                grid = {"blocks": ((axis, 1),), "grid": (size,)}
                new = replace(parameters, scales=scales, zero_points=points, **grid)
                yield f"{size} scales along axis {axis}{label}", new


def _requantize(old: UniformQuantizedType, new: UniformQuantizedType, draft: Draft) -> None:
    storage, wanted = old.data.storage, new.data.storage

    def changed(type_: Attribute) -> Attribute:
        if isinstance(type_, TensorType) and element(type_) == old:
            return tensor(dims(type_), new)
        if storage != wanted and isinstance(type_, TensorType) and element(type_) == storage:
            return tensor(dims(type_), wanted)
        return type_

    _change_types(changed, draft)


def layout_edits(draft: Draft) -> Edits:
    """Yield edits with other dim orders of inputs, and with weights that are not dense."""
    for index, source in tensors_of(draft):
        rank, name = len(dims(source.type)), name_of(draft, source)
        if source.key is None:
            orders = [(0, *range(2, rank), 1), tuple(reversed(range(rank)))]
            for order in orders:
                if rank > 1 and order != tuple(range(rank)):
                    label = f"{name} has the dim order {list(order)}"
                    yield label, partial(set_source, index, order=order)
            continue
        for lying in ("transposed", "expanded", "sliced"):
            if rank:
                yield f"{name} is {lying}", partial(set_source, index, lying=lying)

"""Edits of element types, shapes, quantization and layouts."""

from __future__ import annotations

from collections.abc import Iterator
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
from stepwell.validation.contracts.draft import Draft, Step
from stepwell.validation.contracts.edit import (
    ELEMENTS,
    Edit,
    name_of,
    numbers_of,
    tensors_of,
)


def set_type(index: int, type_: Attribute, draft: Draft) -> None:
    """Set the type of a source."""
    source = draft.sources[index]
    source.type = type_
    if source.order is not None and len(source.order) != len(dims(type_)):
        source.order = None


def dtype_edits(draft: Draft) -> Iterator[Edit]:
    """Yield edits of the element type, of one source or everywhere."""
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
                yield Edit("dtypes", label, partial(_replace_element, old, new))
    for index, source in tensors_of(draft):
        if quantization(source.type) is not None:
            continue
        for new in ELEMENTS:
            if new != element(source.type):
                type_ = tensor(dims(source.type), new)
                label = f"{name_of(draft, source)} is {dtypes.dtype_name(new)}"
                yield Edit("dtypes", label, partial(set_type, index, type_))


def _replace_element(old: Attribute, new: Attribute, draft: Draft) -> None:
    def changed(type_: Attribute) -> Attribute:
        if not isinstance(type_, TensorType):
            return type_
        if element(type_) == old:
            return tensor(dims(type_), new)
        type_quantization = quantization(type_)
        if (
            type_quantization is not None
            and type_quantization.expressed == old
            and dtypes.is_float(new)
        ):
            numbers = replace(type_quantization, expressed=cast(Any, new))
            return tensor(dims(type_), UniformQuantizedType(numbers))
        return type_

    for source in draft.sources:
        source.type = changed(source.type)
    for step in draft.steps:
        step.types = [changed(type_) for type_ in step.types]
        for name, value in step.arguments.items():
            if value == old:
                step.arguments[name] = new


def shape_edits(draft: Draft) -> Iterator[Edit]:
    """Yield edits of sizes and ranks, of one source or of all."""
    sizes = {d for _, s in tensors_of(draft) for d in dims(s.type) if isinstance(d, int)}
    for old in sorted(sizes):
        for new in (0, 1, 2, 3, 5, 16, 33):
            if new != old:
                label = f"size {old} is {new} everywhere"
                yield Edit("shapes", label, partial(_resize, old, new))
    yield Edit("shapes", "every size is 1", _all_ones)
    for count in (1, 2):
        yield Edit("shapes", f"{count} leading axes more", partial(_lead_all, count))
    yield Edit("shapes", "every leading axis less", partial(_lead_all, -1))
    yield Edit("shapes", "0-d", partial(_lead_all, -9))
    for index, source in tensors_of(draft):
        shape, name = list(dims(source.type)), name_of(draft, source)
        for axis, size in enumerate(shape):
            for new in (0, 1, 2):
                if size != new:
                    made = [*shape[:axis], new, *shape[axis + 1 :]]
                    label = f"axis {axis} of {name} is {new}"
                    yield Edit("shapes", label, partial(set_shape, index, made))
        for more in ([1], [2], [1, 1], [3, 1]):
            made = [*more, *shape]
            yield Edit("shapes", f"{name} is led by {more}", partial(set_shape, index, made))
        for cut in range(1, len(shape) + 1):
            label = f"{name} has its last {len(shape) - cut} axes"
            yield Edit("shapes", label, partial(set_shape, index, shape[cut:]))
        yield Edit("shapes", f"{name} has one axis more", partial(set_shape, index, [*shape, 1]))


def set_shape(index: int, shape: list[Any], draft: Draft) -> None:
    """Set the shape of a source."""
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
    """Update the constant shapes of TOSA, which are in a separate op."""
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
    """Add leading axes to every input and to the lists of sizes; negative axes are unchanged."""
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


def symbol_edits(draft: Draft) -> Iterator[Edit]:
    """Yield edits that make a size of the inputs symbolic, on one axis or wherever it occurs."""
    inputs = [(index, source) for index, source in tensors_of(draft) if source.key is None]
    sizes = {d for _, s in inputs for d in dims(s.type) if isinstance(d, int) and d > 1}
    for size in sorted(sizes):
        yield Edit("symbols", f"size {size} of inputs is symbolic", partial(_symbol, size))
    is_inferred = all(issubclass(step.cls, SchemaOp) for step in draft.steps)
    for index, source in inputs if is_inferred else ():
        for axis, size in enumerate(dims(source.type)):
            if isinstance(size, int):
                label = f"axis {axis} of {name_of(draft, source)} is symbolic"
                yield Edit("symbols", label, partial(_symbol_at, index, axis))


SYMBOLS = ("s101", "s102", "s103", "s104")


def _fresh_symbol(draft: Draft) -> str | None:
    """Return a new symbol with the range from 1."""
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


def quantization_edits(draft: Draft) -> Iterator[Edit]:
    """Yield edits of scales, zero points, storage types and axes of every quantized type."""
    types: list[Attribute] = [s.type for s in draft.sources]
    types += [type_ for step in draft.steps for type_ in step.types]
    types = [type_ for type_ in types if isinstance(type_, TensorType)]
    quantized_types: list[UniformQuantizedType] = []
    for type_ in types:
        if quantization(type_) is not None and element(type_) not in quantized_types:
            quantized_types.append(cast(UniformQuantizedType, element(type_)))
    for number, old in enumerate(quantized_types):
        for what, new in _quantizations(old.data):
            if new.problem() is None:
                quantized_type = UniformQuantizedType(new)
                label = f"quantization {number}: {what}"
                yield Edit("quantized", label, partial(_requantize, old, quantized_type))


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
    for axis in (0, 1, -1):
        for size in (2, 3, 4, 8):
            scales = tuple(0.125 * (i + 1) for i in range(size))
            zeros = tuple(i % 2 for i in range(size))
            for label, points in (("", (0,) * size), (" with zero points", zeros)):
                if axis >= 0:
                    new = replace(
                        parameters,
                        scales=scales,
                        zero_points=points,
                        blocks=((axis, 1),),
                        grid=(size,),
                    )
                    yield f"{size} scales along axis {axis}{label}", new


def _requantize(old: UniformQuantizedType, new: UniformQuantizedType, draft: Draft) -> None:
    storage, wanted = old.data.storage, new.data.storage

    def changed(type_: Attribute) -> Attribute:
        if isinstance(type_, TensorType) and element(type_) == old:
            return tensor(dims(type_), new)
        if storage != wanted and isinstance(type_, TensorType) and element(type_) == storage:
            return tensor(dims(type_), wanted)
        return type_

    for source in draft.sources:
        source.type = changed(source.type)
    for step in draft.steps:
        step.types = [changed(type_) for type_ in step.types]


def layout_edits(draft: Draft) -> Iterator[Edit]:
    """Yield edits with other dim orders of inputs, and with weights that are not dense."""
    for index, source in tensors_of(draft):
        rank, name = len(dims(source.type)), name_of(draft, source)
        if source.key is None:
            orders = [(0, *range(2, rank), 1), tuple(reversed(range(rank)))]
            for order in orders:
                if rank > 1 and order != tuple(range(rank)):
                    label = f"{name} has the dim order {list(order)}"
                    yield Edit("layouts", label, partial(_order, index, order))
            continue
        for lying in ("transposed", "expanded", "sliced"):
            if rank:
                yield Edit("layouts", f"{name} is {lying}", partial(_lie, index, lying))


def _order(index: int, order: tuple[int, ...], draft: Draft) -> None:
    draft.sources[index].order = order


def _lie(index: int, lying: Any, draft: Draft) -> None:
    draft.sources[index].lying = lying

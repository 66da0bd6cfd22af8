"""Edits of users, shared operands and the order of ops; constants for inputs, and inputs for
constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from xdsl.dialects.builtin import (
    TensorType,
)
from xdsl.ir import Attribute

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.validation.contracts.draft import Draft, Ref, Step, mapped, refs_in
from stepwell.validation.contracts.edit import (
    Edit,
    name_of,
    tensors_of,
)


def reader_edits(draft: Draft) -> Iterator[Edit]:
    """Yield edits with more users, fewer outputs, shared and exchanged operands, or another order
    of ops.
    """
    made = [(at, number) for at, step in enumerate(draft.steps) for number in step.results]
    for at, number in made:
        step = draft.steps[at]
        type_ = step.types[step.results.index(number)]
        if not isinstance(type_, TensorType) or step.cls.name.endswith("const_shape"):
            continue
        name = f"result {number} of {step.cls.name}"
        for behind in (False, True):
            where = "after the others" if behind else "before the others"
            label = f"{name} has one more user, {where}"
            yield Edit("readers", label, partial(_read_again, at, number, type_, behind))
        yield Edit("readers", f"{name} is returned too", partial(_return_too, number))
        if step.cls.name in ("quant.qcast", "quant.dcast", "quant.scast"):
            continue
        label = f"{name} is both operands of a product"
        yield Edit("readers", label, partial(_squared, number, type_))
    for index, number in enumerate(draft.returned):
        if len(draft.returned) > 1:
            label = f"output {index} is not returned"
            yield Edit("readers", label, partial(_return_less, index))
        yield Edit("readers", f"output {index} is returned twice", partial(_return_too, number))
    for one, first in tensors_of(draft):
        for two, second in tensors_of(draft):
            if one != two and first.type == second.type:
                label = f"{name_of(draft, second)} is {name_of(draft, first)}"
                yield Edit("readers", label, partial(_share, first.value, second.value))
    for at, step in enumerate(draft.steps):
        found = [(name, ref) for name, v in step.arguments.items() for ref in refs_in(v)]
        for name, ref in found:
            for _, other in found:
                if other != ref:
                    label = f"{step.cls.name}: {name} is another operand too"
                    yield Edit("readers", label, partial(_same_operand, at, name, ref, other))
        if len(found) > 1 and not issubclass(step.cls, SchemaOp):
            continue
        if len(found) == 2 and found[0][0] != found[1][0]:
            label = f"{step.cls.name}: operands exchanged"
            yield Edit("readers", label, partial(_swap, at, found[0][0], found[1][0]))
    for at in range(1, len(draft.steps)):
        yield Edit("readers", f"step {at} is one earlier", partial(_earlier, at))


def _reading(number: int, type_: Attribute, result: int) -> Step:
    cls = op_class("aten.neg.default")
    return Step(cls, {"self": Ref(number)}, {}, {}, [type_], [result], None)


def _read_again(at: int, number: int, type_: Attribute, behind: bool, draft: Draft) -> None:
    reader = _reading(number, type_, draft.fresh())
    draft.steps.insert(len(draft.steps) if behind else at + 1, reader)
    draft.returned.append(reader.results[0])


def _return_too(number: int, draft: Draft) -> None:
    draft.returned.append(number)


def _return_less(index: int, draft: Draft) -> None:
    del draft.returned[index]


def _squared(number: int, type_: Attribute, draft: Draft) -> None:
    cls, made = op_class("aten.mul.Tensor"), draft.fresh()
    both = {"self": Ref(number), "other": Ref(number)}
    draft.steps.append(Step(cls, both, {}, {}, [type_], [made], None))
    draft.returned.append(made)


def _share(first: int, second: int, draft: Draft) -> None:
    def change(ref: Ref) -> Ref:
        return Ref(first) if ref.number == second else ref

    for step in draft.steps:
        step.arguments = {name: mapped(v, change) for name, v in step.arguments.items()}


def _same_operand(at: int, name: str, ref: Ref, other: Ref, draft: Draft) -> None:
    def change(held: Ref) -> Ref:
        return other if held == ref else held

    step = draft.steps[at]
    step.arguments[name] = mapped(step.arguments[name], change)


def _swap(at: int, one: str, two: str, draft: Draft) -> None:
    arguments = draft.steps[at].arguments
    arguments[one], arguments[two] = arguments[two], arguments[one]


def _earlier(at: int, draft: Draft) -> None:
    draft.steps[at - 1], draft.steps[at] = draft.steps[at], draft.steps[at - 1]


FILLS = (
    "zeros", "negative zeros", "ones", "negative", "positive", "integers", "denormal", "huge",
    "special", "extremes", "random",
)  # fmt: skip


def constant_edits(draft: Draft) -> Iterator[Edit]:
    """Yield edits with constants for inputs, inputs for constants, and other numbers in
    constants.
    """
    for index, source in tensors_of(draft):
        name = name_of(draft, source)
        if source.key is None:
            yield Edit("constants", f"{name} is a weight", partial(_make_weight, index))
            continue
        yield Edit("constants", f"{name} is an input", partial(_make_input, index))
        for fill in FILLS:
            yield Edit("constants", f"{name} holds {fill}", partial(_fill, index, fill))
    if any(source.key is None for source in draft.sources):
        yield Edit("constants", "every input is a weight", _all_weights)
    if any(source.key is not None for source in draft.sources):
        yield Edit("constants", "every weight is an input", _all_inputs)


def _make_weight(index: int, draft: Draft) -> None:
    source = draft.sources[index]
    source.key, source.order = f"constant_{index}", None


def _make_input(index: int, draft: Draft) -> None:
    source = draft.sources[index]
    source.key = None
    source.lying = "dense"


def _all_weights(draft: Draft) -> None:
    for index, source in tensors_of(draft):
        if source.key is None:
            _make_weight(index, draft)


def _all_inputs(draft: Draft) -> None:
    for source in draft.sources:
        source.key = None


def _fill(index: int, fill: Any, draft: Draft) -> None:
    draft.sources[index].fill = fill


def blind_edits(draft: Draft) -> Iterator[Edit]:
    """Yield edits with weights without data, as in a text without its `.safetensors`."""
    if any(source.key is not None for source in draft.sources):
        yield Edit("no data", "weights have no data", _blind)


def _blind(draft: Draft) -> None:
    draft.is_blind = True

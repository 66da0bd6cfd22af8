"""Generate programs that a rule may match, with varied shapes, numbers, arguments and users."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from xdsl.dialects.builtin import NameLoc, StringAttr, TensorType, UnknownLoc
from xdsl.ir import Attribute

from stepwell.dialects.quant.types import quantization, storage_element
from stepwell.ir.compat.xdsl.xdsl_private import set_type
from stepwell.ir.core import WeightOp
from stepwell.ir.declared.inference import infer
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import f16, f32, f64, i8, i32, is_float, ui8
from stepwell.ir.program import Program
from stepwell.ir.sizes.size import UNKNOWN, Size
from stepwell.ir.types import dims, element, is_static, tensor
from stepwell.translate.rules.examples import elements_of, meant, optional_of
from stepwell.translate.rules.notation import Hole, Line, Rule, TypePattern
from stepwell.translate.rules.rewrite import RuleRewrite
from stepwell.validation.rules.counterexamples import FLOATS, INTS, pinned, return_instead
from stepwell.validation.rules.instances import Instance, Instances
from stepwell.validation.rules.instantiation import FAILS, NotWritten, drafted
from stepwell.validation.rules.numbers import Unknown

_DRAFTS = 700
"""The number of programs drafted from an example, and from other shapes."""


def drafts(rewrite: type[RuleRewrite], form: Rule) -> Iterator[Iterator[Program]]:
    """Yield programs of a rule's pattern: with each shape, type and number, then with other users,
    constants and dynamic sizes.
    """
    kept: list[Mapping[str, Any]] = []
    first: Instance | None = None
    for as_example in (True, False):
        count = 0
        for number, instance in enumerate(Instances(rewrite, form, as_example)):
            if first is None and not any(isinstance(v, Size) for v in instance.given.values()):
                first = instance
            chosen = list(_numbers(instance, form, rewrite, is_whole=number % 40 == 0))
            kept += chosen[: max(0, 4 - len(kept))]
            count += len(chosen)
            if count > _DRAFTS:
                break
            yield (draft for each in chosen for draft in _drafted(rewrite, form, each))
    if first is not None:
        drawn = _drawn(first)
        yield (draft for each in drawn for draft in _drafted(rewrite, form, each))
    for change in (_read_again, _of_constants, _of_unknown_sizes, _of_the_model):
        for each in kept:
            draft = partial(drafted, rewrite, form, each)
            yield _where_written(change(draft))


def _where_written(programs: Iterator[Program]) -> Iterator[Program]:
    with suppress(NotWritten):
        yield from programs


def _drawn(instance: Instance) -> Iterator[Mapping[str, Any]]:
    """Yield programs in which all unknown numbers of a rule are drawn at random from a few small
    values.
    """
    unknown = [n for n, v in instance.given.items() if isinstance(v, Unknown) and not v.is_late]
    draw = Random(0)
    for _ in range(300 if len(unknown) > 1 else 0):
        picked = {name: draw.choice((-3.0, -1.0, -0.0, 0.0, 1.0, 2.5)) for name in unknown}
        yield pinned(instance, picked, 1 if instance.is_pointwise else 2)


def _drafted(rewrite: type[RuleRewrite], form: Rule, given: Mapping[str, Any]) -> Iterator[Program]:
    with suppress(NotWritten):
        yield drafted(rewrite, form, given)


_ORDERS: dict[str, Any] = {"dims": [1, 0], "perm": [1, 0], "perms": [1, 0]}
"""Arguments of ops of a family that the example's op does not have."""


def _of_family(line: Line, rewrite: type[RuleRewrite]) -> list[str]:
    classes: Any = rewrite.namespace.get(line.family, ())
    return [cls.name for cls in classes] if isinstance(classes, Iterable) else []


def _others(given: Mapping[str, Any], form: Rule) -> Iterator[dict[str, Any]]:
    """Yield other arguments and types: one at a time, and the types of all tensors together."""
    known: dict[str, Any] = {name: meant(value) for name, value in form.example.items()}
    known |= given
    tensors: dict[str, Any] = {n: v for n, v in known.items() if isinstance(v, TensorType)}
    types: dict[str, Any] = dict.fromkeys(_element_holes(form), f32)
    types |= {n: v for n, v in known.items() if isinstance(v, Attribute) and n not in tensors}
    for of in (f16, f64, i32, ui8):
        yield {n: _with_element(v, of) for n, v in {**tensors, **types}.items()}
        yield {"out_dtype": of}
        yield from ({name: _with_element(v, of)} for name, v in tensors.items())
    yield {n: _as_stored(v) for n, v in {**tensors, **types}.items()}
    for name, value in known.items():
        if isinstance(value, bool):
            yield {name: not value}
        elif isinstance(value, list) and all(isinstance(item, int) for item in value):
            yield from ({name: other} for other in _lists(value))
    for name, value in tensors.items():
        if is_static(value):
            yield {name: tensor(dims(value)[1:], element(value))}
            yield {name: tensor([*dims(value), 1], element(value))}
    yield from _optional(tensors, known, optional_of(form))


def _element_holes(form: Rule) -> Iterator[str]:
    for line in form.before:
        for pattern in (*line.operand_types, *line.result_types):
            if isinstance(pattern, TypePattern) and isinstance(pattern.element, Hole):
                yield pattern.element.name


def _with_element(of: Any, other: Attribute) -> Any:
    """Return the type with another element type, or with another expressed type."""
    if isinstance(of, TensorType) and quantization(of) is None:
        return tensor(dims(of), other)
    if "quant" in str(of):
        return meant(str(of).replace(":f32", f":{other}")) if is_float(other) else of
    return other if of == f32 else of


def _as_stored(of: Any) -> Any:
    """Replace a quantized type by the integer type that stores it; return other types unchanged."""
    held = quantization(of) if isinstance(of, TensorType) else None
    if held is not None:
        return tensor(dims(of), storage_element(held))
    return i8 if "!quant" in str(of) else of


def _lists(value: list[int]) -> Iterator[list[int]]:
    yield from (value[::-1], value[1:] + value[:1], [0] * len(value), value[1:], [])
    yield from ([item + by for item in value] for by in (1, -1))
    if any(value) is False:
        yield [(-1) ** at for at in range(len(value))]


def _optional(
    tensors: Mapping[str, Any], known: Mapping[str, Any], names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Return variants of an optional tensor: absent, one number per channel, or one number for
    all.
    """
    yield from ({name: None} for name in names)
    flags = [name for name, value in known.items() if isinstance(value, bool)]
    shape = next((dims(v) for v in tensors.values() if len(dims(v)) > 1 and is_static(v)), None)
    if shape is None or not names:
        return
    for of, size in ((f32, shape[1]), (f16, shape[1]), (f32, 1)):
        every: dict[str, Any] = dict.fromkeys(names, tensor([size], of))
        yield every
        last = {names[-1]: tensor([shape[1]], f32)}
        yield {**every, **last}
        yield from ({**every, flag: not known[flag]} for flag in flags)
        yield from ({**every, **last, flag: not known[flag]} for flag in flags)


def _numbers(
    instance: Instance, form: Rule, rewrite: type[RuleRewrite], is_whole: bool
) -> Iterator[Mapping[str, Any]]:
    """Vary each number of a rule in turn, with the example's other numbers. If `is_whole`, vary
    several of them, and arguments and types, too.
    """
    unknown = {n: v for n, v in instance.given.items() if isinstance(v, Unknown) and not v.is_late}
    usual: dict[str, Any] = {n: 2 if v.is_int else 2.5 for n, v in unknown.items()}
    for name, kind in unknown.items():
        number = form.example.get(name)
        if isinstance(number, int | float) and (number == int(number) or not kind.is_int):
            usual[name] = int(number) if kind.is_int else float(number)
    scale = 1 if instance.is_pointwise else 2
    if any(not is_static(v) for v in instance.given.values() if isinstance(v, TensorType)):
        yield {**instance.given, **usual}
        return
    yield pinned(instance, usual, scale)
    table = (*FLOATS[:7], *INTS[:3], True, 1j, *INTS[3:], *FLOATS[7:])
    for name in unknown:
        for number in table if is_whole else (*FLOATS[:4], *INTS[:3]):
            yield pinned(instance, {**usual, name: number}, scale)
    if not is_whole:
        return
    for other in _others(pinned(instance, usual, scale), form):
        yield pinned(instance, {**usual, **other}, scale)
        if any(isinstance(value, TensorType) for value in other.values()):
            for name, number in usual.items():
                as_other = float(number) if isinstance(number, int) else int(number)
                yield pinned(instance, {**usual, **other, name: as_other}, scale)
    for line in form.before:
        for name in _of_family(line, rewrite) if line.is_again else ():
            yield pinned(instance, {**_ORDERS, **usual, line.op[1:]: name}, scale)


def _read_again(draft: Callable[[], Program]) -> Iterator[Program]:
    """Yield programs that also return every intermediate value and every result."""
    count = sum(len(op.results) for op in draft().method().body.block.ops)
    for at in range(count):
        program = draft()
        block = program.method().body.block
        values = [v for op in block.ops for v in op.results]
        assert block.last_op is not None
        return_instead(program, [*block.last_op.operands, values[at]])
        yield program


def _of_the_model(draft: Callable[[], Program]) -> Iterator[Program]:
    """Yield programs in which each op is attributed to a node of the source model."""
    program = draft()
    for number, op in enumerate(program.method().body.block.ops):
        op.location = NameLoc(StringAttr(f"node{number}"), UnknownLoc())
    yield program


def _of_constants(draft: Callable[[], Program]) -> Iterator[Program]:
    """Yield programs whose operands are all constants."""
    program = draft()
    block = program.method().body.block
    first = block.first_op
    assert first is not None
    for number, argument in enumerate(block.args):
        if not is_static(argument.type) or not hasattr(argument.type, "element_type"):
            return
        weight = WeightOp(f"w{number}", argument.type, "parameter")
        block.insert_op_before(weight, first)
        program.weights.add(f"w{number}", elements_of(weight))
        argument.replace_all_uses_with(weight.results[0])
    yield program


def _of_unknown_sizes(draft: Callable[[], Program]) -> Iterator[Program]:
    """Yield programs in which all tensors, or the first one, have unbounded symbolic sizes."""
    for most in (1, None):
        program = draft()
        for argument in program.method().body.block.args[:most]:
            if isinstance(argument.type, TensorType):
                sizes = [size if size == 1 else UNKNOWN for size in dims(argument.type)]
                set_type(argument, tensor(sizes, element(argument.type)))
        with suppress(StepwellError, *FAILS):
            for op in program.method().body.block.ops:
                for made, result in zip(infer(op) or (), op.results, strict=False):
                    set_type(result, made)
            yield program

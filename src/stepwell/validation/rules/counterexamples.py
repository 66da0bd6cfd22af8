"""Search for counterexamples: instances of a rule whose two sides differ on special numbers."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, product
from types import MappingProxyType
from typing import Any, Literal

from xdsl.dialects.builtin import FunctionType, TensorType
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.quant.types import quantization, storage_dtype
from stepwell.ir.compat.torch.lazy_imports import torch
from stepwell.ir.declared.engine_behavior import engines
from stepwell.ir.declared.families import is_of
from stepwell.ir.declared.interpretation import Interpreter
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import is_float, torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.cleanup import RemoveDeadCode
from stepwell.ir.rewriting.rewrite import Bound, History
from stepwell.ir.sizes.size import UNKNOWN, Size, number_of
from stepwell.ir.syntax.text import to_text
from stepwell.ir.traversal import producers
from stepwell.ir.types import IntType, dims, element, symbols_of, tensor
from stepwell.translate.rules.examples import root_of
from stepwell.validation.rules.instances import SOME, Instance
from stepwell.validation.rules.instantiation import NotWritten, RuleProgram, Statement
from stepwell.validation.rules.numbers import Unknown, Unproven

SPECIAL = (1.0, 0.0, -0.0, -1.0, 2.5, -2.5, 0.3, 7.0, -30.0, 1e-3, 100.0,
           math.nan, math.inf, -math.inf, 1e-40, 3e38, -3e38, 16777216.0,
           1.7, -1.3, 0.1, 2.9, 1.0146484375)  # fmt: skip
MODERATE = tuple(n for n in SPECIAL if n == 0 or 0.1 <= abs(n) < 100)
"""Numbers for rules that round, whose claims exclude overflow."""
FLOATS = (2.5, 0.0, -0.0, 1.0, -1.0, 0.3, -3.0, 1e-30, 3e38, -1e38, math.inf, math.nan)
INTS = (2, 0, 1, -1, 5, 300)
_MOST_NUMBERS = 60
_TURNS = 6
"""Runs of tensors of few elements, each with other special numbers."""
_NEAR = 1e-3
"""The difference up to which an engine's result is the same number."""
_MAGNITUDE = 1e-5
"""The tolerance of a bound on roundings, relative to the largest intermediate number."""


@dataclass(frozen=True)
class Counterexample:
    """A counterexample to a rule: inputs on which pattern and replacement differ.

    Attributes:
        before, after: programs as text.
        inputs: the inputs of both programs.
        wanted, found: their results.
        engine: the engine on which both run, whose nodes treat special values in their own way.
    """

    before: str
    after: str
    inputs: tuple[Any, ...]
    wanted: Any
    found: Any
    engine: str = ""

    def as_program(self) -> str:
        """Return Python text that runs both programs on the inputs, and prints the results."""
        lines = [
            "import torch",
            "",
            "import stepwell",
            "",
            *self._lines(),
            "print(*both, sep=chr(10))",
        ]
        return "\n".join(lines) + "\n"

    def as_test(self, rule: str) -> str:
        """Return the text of a test that fails while the rule is wrong."""
        lines = [
            *self._lines("    "),
            "    for wanted, found in zip(*both, strict=True):",
            "        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)",
            "        zeros = wanted == 0",
            "        assert torch.equal(found.signbit()[zeros], wanted.signbit()[zeros])",
        ]
        head = (
            f"import torch\n\nimport stepwell\n\n\ndef test_{rule.replace('-', '_')}() -> None:\n"
        )
        return head + "\n".join(lines) + "\n"

    def _lines(self, indent: str = "") -> list[str]:
        given = ", ".join(_literal(value) for value in self.inputs)
        calls = [f"{side}.run(*inputs{self._on(side)})" for side in ("before", "after")]
        return [
            f'{indent}before = stepwell.parse("""\n{self.before}""")',
            f'{indent}after = stepwell.parse("""\n{self.after}""")',
            f"{indent}inputs = ({given},)",
            f"{indent}both = {', '.join(calls)}",
        ]

    def _on(self, side: str) -> str:
        is_on = self.engine and _has_nodes(getattr(self, side), self.engine)
        return f", engine={self.engine!r}" if is_on else ""

    def __str__(self) -> str:
        given = ", ".join(str(value.tolist()) for value in self.inputs if hasattr(value, "tolist"))
        on = f" on {self.engine}" if self.engine else ""
        return f"of {given}: {_plain(self.wanted)} becomes {_plain(self.found)}{on}"


def _has_nodes(text: str, engine: str) -> bool:
    return f"{engine.partition('/')[0]}." in text


def _plain(value: Any) -> str:
    return str(value.tolist()) if hasattr(value, "tolist") else str(value)


def _literal(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    held = repr(value.tolist()).replace("nan", "torch.nan").replace("inf", "torch.inf")
    return f"torch.tensor({held}, dtype={value.dtype})"


def search(
    statement: Statement,
    instance: Instance,
    bound: Bound,
    numbers: Mapping[str, int | float | bool] = MappingProxyType({}),
) -> Counterexample | Literal["agrees", "does not run"]:
    """Run an instance on special numbers, and search for a difference.

    Args:
        numbers: the numbers of a solver's counterexample, by the names of elements and of the
            rule's numbers.

    The reason `does not run` means that the rule's pattern is not an executable program for any
    numbers.
    """
    runs = fails = False
    elements = tuple(value for name, value in numbers.items() if not name.startswith("$"))
    is_finite = statement.rewrite.deviation is not None
    for given in islice(concrete(instance, numbers), _MOST_NUMBERS):
        try:
            written = statement.concrete(given)
        except NotWritten:
            continue
        except Unproven:
            runs, fails = runs or _runs(statement.before(given)), True
            continue
        if written is None:
            continue
        found = differs(written, bound)
        if isinstance(found, Counterexample):
            return found
        for turn in range(0 if is_finite else _TURNS):
            extreme = differs(written, bound, first=elements, turn=turn)
            if isinstance(extreme, Counterexample):
                return extreme
        fails |= found == "does not run"
        runs = runs or found == "agrees" or _runs(statement.before(given))
    return "does not run" if fails and not runs else "agrees"


def _runs(program: Program) -> bool:
    """Whether the pattern is an executable program, on special values or on ones."""
    special = inputs_of(program)
    ones = tuple(torch.ones_like(v) if isinstance(v, torch.Tensor) else v for v in special)
    for inputs in (special, ones):
        with suppress(StepwellError, RuntimeError, IndexError):
            values_of(program, inputs, list(root_of(program).results))
            return True
    return False


def concrete(
    instance: Instance, numbers: Mapping[str, int | float | bool] = MappingProxyType({})
) -> Iterator[Mapping[str, Any]]:
    """Yield the instance with concrete numbers and sizes: the counterexample's, then small ones."""
    unknown = [name for name, value in instance.given.items() if isinstance(value, Unknown)]
    if any(instance.given[name].is_late for name in unknown):
        return
    several = [INTS if instance.given[name].is_int else FLOATS for name in unknown]
    first = [numbers[f"${name}"] for name in unknown if f"${name}" in numbers]
    firsts = [tuple(first)] if first and len(first) == len(unknown) else []
    for picked in (*firsts, *product(*several)):
        for scale in (1, 2) if instance.is_pointwise else (2, 1):
            yield pinned(instance, dict(zip(unknown, picked, strict=True)), scale)


def pinned(instance: Instance, numbers: Mapping[str, Any], scale: int) -> dict[str, Any]:
    """Return an instance of a rule with given numbers and with concrete sizes."""
    given = {**instance.given, **numbers}
    return {name: _pinned(value, scale, instance.is_pointwise) for name, value in given.items()}


def _pinned(value: Any, scale: int, is_pointwise: bool) -> Any:
    if isinstance(value, Size):
        return _size(value, scale, is_pointwise)
    if isinstance(value, list) and is_pointwise:
        return [len(SPECIAL) ** scale if s == SOME else s for s in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_pinned(item, scale, is_pointwise) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Attribute) and hasattr(value, "element_type"):
        many = [len(SPECIAL) ** scale if is_pointwise and s == SOME else s for s in dims(value)]
        return tensor([_pinned(s, scale, is_pointwise) for s in many], element(value))
    return value


def _size(size: Size, scale: int, is_pointwise: bool) -> int:
    if is_pointwise:
        return len(SPECIAL) ** scale
    digits = "".join(c for c in str(size) if c.isdigit()) or "1"
    return 1 + int(digits) if scale == 2 else 2


def differs(
    written: RuleProgram,
    bound: Bound,
    *,
    is_strict: bool = False,
    of_classes: bool = False,
    first: tuple[int | float | bool, ...] = (),
    turn: int | None = None,
) -> Counterexample | Literal["agrees", "does not run"]:
    """Run the program with both sides on numbers and return the difference, or None.

    Args:
        written: both sides.
        bound: the largest allowed difference.
        is_strict: whether the numeric bound applies to every element type.
        of_classes: report only elements that are infinite, or zero, on one side alone.
        first: elements to try first.
        turn: which special numbers small tensors contain; by default none.
    """
    program = written.program
    is_special = bound.exact or (bound.absolute and not bound.derived) or of_classes
    table = SPECIAL if is_special else MODERATE
    inputs = inputs_of(program, (*first, *table), turn)
    olds, news = [[pair[side] for pair in written.pairs] for side in (0, 1)]
    try:
        wanted = values_of(program, inputs, olds)
    except (StepwellError, RuntimeError):
        return "does not run"
    if written.misfits:
        return _example(written, inputs, "types", written.misfits[0])
    try:
        found = values_of(program, inputs, news)
    except (StepwellError, RuntimeError) as error:
        return _example(
            written, inputs, str(wanted[0].shape), f"an error: {str(error).splitlines()[0]}"
        )
    for one, other in zip(wanted, found, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return _example(written, inputs, one, other)
        if of_classes:
            wrong = (one.isfinite() ^ other.isfinite()) | ((one == 0) ^ (other == 0))
        elif is_strict and (bound.relative or bound.absolute or bound.magnitudes):
            wrong = _beyond(one, other, bound, written, inputs)
        else:
            wrong = _apart(one, other, bound, inputs)
        if bool(wrong.any()):
            return _shrunk(written, inputs, wrong, one, other)
    return "agrees"


def _beyond(
    one: Any, other: Any, bound: Bound, written: RuleProgram, inputs: tuple[Any, ...]
) -> Any:
    """Return a mask of the elements in which two results differ by more than twice the rule's
    numeric bound.
    """
    wide, seen = one.double(), other.double()
    allowed = bound.absolute + bound.relative * wide.abs()
    for factor, names in bound.magnitudes:
        values = values_of(written.program, inputs, [written.named[name] for name in names])
        allowed = allowed + factor * sum(value.double().abs() for value in values)
    apart = (wide - seen).abs() > 2 * allowed
    return wide.isfinite() & (seen.isfinite() & apart | seen.isnan())


def _apart(one: Any, other: Any, bound: Bound, inputs: tuple[Any, ...]) -> Any:
    """Return a mask of the elements in which two results differ by more than a bound."""
    same = (one == other) | ((one != one) & (other != other))
    if not one.dtype.is_floating_point:
        return ~same
    if bound.exact:
        signs = torch.signbit(one.float()) == torch.signbit(other.float())
        return ~(same & (signs | (one != one)))
    wide, seen = one.double(), other.double()
    allowed = bound.absolute + wide.abs() * max(bound.relative, _MAGNITUDE)
    magnitude = 0.0
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
            finite = value.double()[value.isfinite()].abs()
            largest = float(finite.max()) if finite.numel() else 0.0
            magnitude = max(magnitude, min(largest, 1e4))
    if bound.derived or bound.magnitudes:
        allowed = allowed + magnitude * _MAGNITUDE * (50 if one.dtype.itemsize < 4 else 1)
    if one.dtype.itemsize < 4:
        allowed = allowed + wide.abs() * 2e-2 + 1e-2
    near = (wide - seen).abs() <= allowed
    return ~(same | near) & wide.isfinite() & seen.isfinite() | (wide.isfinite() & seen.isnan())


def _shrunk(
    written: RuleProgram, inputs: tuple[Any, ...], wrong: Any, one: Any, other: Any
) -> Counterexample:
    """Reduce the inputs to the first wrong element, if elements are independent of each other."""
    at = int(wrong.reshape(-1).nonzero()[0])
    whole = wrong.numel()
    ops = [op for op in written.program.method().body.block.ops if not isinstance(op, ReturnOp)]
    are_alike = all(isinstance(v, torch.Tensor) and v.numel() in (1, whole) for v in inputs)
    are_alike = are_alike and all(is_of(op, "elementwise") for op in ops)
    if whole >= len(MODERATE) and are_alike:
        small = tuple(v.reshape(-1)[at : at + 1] if v.numel() == whole else v for v in inputs)
        shapes = {tuple(v.shape) for v in (*inputs, one) if v.numel() == whole}
        return _example(written, small, one.reshape(-1)[at], other.reshape(-1)[at], shapes)
    return _example(written, inputs, one, other)


def changed_on_engines(written: RuleProgram) -> Counterexample | None:
    """Run both sides as each measured engine treats special values; return a result of the new
    side that is of another class there (NaN, infinity, another number) than in PyTorch's
    arithmetic, which the old side keeps to.
    """
    olds, news = [[pair[side] for pair in written.pairs] for side in (0, 1)]
    for engine in engines():
        for turn in range(_TURNS):
            inputs = inputs_of(written.program, SPECIAL, turn)
            try:
                plain = values_of(written.program, inputs, news)
                wanted, found = (
                    values_of(written.program, inputs, v, engine) for v in (olds, news)
                )
            except (StepwellError, RuntimeError):
                return None
            for one, other, as_torch in zip(wanted, found, plain, strict=True):
                if not one.is_floating_point():
                    continue
                same = _of_one_class(one, as_torch) & ~_of_one_class(other, as_torch)
                if bool(same.any()):
                    example = _example(written, inputs, one, other)
                    return replace(example, engine=engine)
    return None


def _of_one_class(one: Any, other: Any) -> Any:
    """Return a mask of the elements that are both NaN, the same infinity, or finite and near."""
    near = (one - other).abs() <= _NEAR * other.abs() + _NEAR
    return (one == other) | (one.isnan() & other.isnan()) | near


def values_of(
    program: Program, inputs: tuple[Any, ...], values: list[SSAValue], engine: str | None = None
) -> list[Any]:
    """Interpret a program on inputs, and return the results of some of its values; with `engine`,
    nodes treat special values as that engine does.
    """
    needed = producers(values)
    block = program.method().body.block
    environment: dict[SSAValue, Any] = dict(zip(block.args, inputs, strict=True))
    interpreter = Interpreter(program.weights, engine=engine)
    with torch.no_grad():
        for op in block.ops:
            if op in needed and not isinstance(op, ReturnOp):
                interpreter.step(op, environment)
    return [environment[value] for value in values]


def failure_of(op: Operation, program: Program) -> Exception | None:
    """Return the exception of an op on the program's inputs; None if it does not fail."""
    arguments = program.method().body.block.args
    environment: dict[SSAValue, Any] = dict(zip(arguments, inputs_of(program), strict=True))
    try:
        Interpreter(program.weights).step(op, environment)
    except (StepwellError, RuntimeError, AssertionError) as error:
        return error
    return None


_FIRST_SIZES = (2, 7, 40)
"""Sizes for the first symbol; each further symbol is one larger."""


def sizes_of(program: Program) -> dict[str, int] | None:
    """Return a size for each symbol in the input types; None if a size has no valid value."""
    types = [a.type for a in program.method().body.block.args]
    shapes = [dims(type_) for type_ in types if isinstance(type_, TensorType)]
    sizes = [size for shape in shapes for size in shape if isinstance(size, Size)]
    symbols = sorted(symbols_of(types))
    if not UNKNOWN.symbols.isdisjoint(symbols):
        return None
    for first in _FIRST_SIZES:
        chosen = {name: first + number for number, name in enumerate(symbols)}
        if all(size.evaluate(chosen) >= 0 for size in sizes):
            return chosen
    return None


def inputs_of(
    program: Program, numbers: tuple[float, ...] = SPECIAL, turn: int | None = None
) -> tuple[Any, ...]:
    """Return inputs of special numbers; symbolic sizes are replaced by concrete ones."""
    sizes = sizes_of(program) or {}
    types = [a.type for a in program.method().body.block.args]
    return tuple(input_of(type_, at, numbers, sizes, turn) for at, type_ in enumerate(types))


def input_of(
    type_: Any,
    number: int,
    numbers: tuple[float, ...] = SPECIAL,
    sizes: Mapping[str, int] = MappingProxyType({}),
    turn: int | None = None,
) -> Any:
    """Return special numbers in a permuted order, so that two inputs cover all pairs."""
    if isinstance(type_, IntType) and not isinstance(type_.size, int) and sizes:
        return type_.size.evaluate(sizes) if type_.size.symbols <= {*sizes} else 3
    if not isinstance(type_, TensorType):
        return 3 if isinstance(type_, IntType) else 1.5
    shape = [
        size.evaluate(sizes) if sizes and isinstance(size, Size) else number_of(size)
        for size in dims(type_)
    ]
    count = math.prod(shape)
    held = quantization(type_)
    if held is not None:
        span = held.high - held.low + 1
        places = torch.arange(count) * (number + 1) % span + held.low
        return places.reshape(shape).to(storage_dtype(held))
    of = element(type_)
    dtype = torch_dtype(of)
    if is_float(of):
        table = torch.tensor(numbers, dtype=torch.float64)
        if count < len(SPECIAL) and turn is None:
            return (torch.arange(1, count + 1) * (number + 0.75)).reshape(shape).to(dtype)
    elif dtype == torch.bool:
        table = torch.tensor([True, False])
    elif dtype.is_complex:
        table = torch.tensor([complex(n, -n) for n in numbers])
    else:
        info = torch.iinfo(dtype)
        whole = [int(v) for v in numbers if math.isfinite(v) and v == int(v)]
        whole += [2, 3, -2, info.max, info.min, info.max // 2 + 1]
        if info.min == 0:
            whole = [v % (info.max + 1) for v in whole]
        whole = [v for v in dict.fromkeys(whole) if info.min <= v <= info.max]
        table = torch.tensor(whole if count >= 64 or turn is not None else [1, 0, 2])
    if turn is not None and count < len(table):  # Each input begins at a place of its own.
        begin = turn * max(count, 1) + number * 5 * (turn + 1)
        return table[(torch.arange(count) + begin) % len(table)].reshape(shape).to(dtype)
    every = len(table) ** number if number < 3 else 1
    return table[torch.arange(count) // every % len(table)].reshape(shape).to(dtype)


def _example(
    written: RuleProgram,
    inputs: tuple[Any, ...],
    wanted: Any,
    found: Any,
    resized: Collection[tuple[int, ...]] = (),
) -> Counterexample:
    """Return a counterexample; tensors with the shapes `resized` are reduced to one element."""
    olds, news = [[pair[side] for pair in written.pairs] for side in (0, 1)]
    texts = [_text_of(written.program, values) for values in (olds, news)]
    for shape in resized:
        written_as = f"tensor<{'x'.join(map(str, shape))}x"
        texts = [text.replace(written_as, "tensor<1x") for text in texts]
    return Counterexample(texts[0], texts[1], inputs, wanted, found)


def _text_of(program: Program, values: list[SSAValue]) -> str:
    """Return the text of the method that returns some values."""
    before = return_instead(program, values)
    copy = Program(program.module.clone(), program.weights)
    return_instead(program, before)
    RemoveDeadCode().apply(copy, History())
    return to_text(copy.module) + "\n"


def return_instead(program: Program, values: Sequence[SSAValue]) -> list[SSAValue]:
    """Make a program return other values; return the values that it returned before."""
    method = program.method()
    block = method.body.block
    last = block.last_op
    assert last is not None
    before, last.operands = list(last.operands), list(values)
    types = [a.type for a in block.args], [v.type for v in values]
    method.properties["function_type"] = FunctionType.from_lists(*types)
    return before

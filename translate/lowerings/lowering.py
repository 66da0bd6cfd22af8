"""A lowering is a function: `@lowers("aten.permute.default", to="tosa")`.

It is named `lower-permute-to-tosa`, and as the function is where ops become ops of the same dialect:
`split-layer-norm`. `step` gives it as a step of a pipeline.

It takes an op's arguments, by their order and keyword-only ones by name: tensors as values of the
target, which compute like numbers, the rest as Python has it. It gives what replaces the op, or
each of its results that is used; `refuse("…")` says why not, and None that another one may.
Keyword-only parameters of these names get more than arguments:

    form    what the decorator's mapping says of the op at hand
    out     element type and sizes of the result
    op      the op itself
    b       what writes operators of the target

It runs on a scratch pad while matching, so guards stand wherever they read best. Anchors, the name,
the example of the reference page and of the tests are derived from the decorator and the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, getdoc, signature
from typing import Any, ClassVar, Literal, NoReturn, TypeVar, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import dtype_name
from stepwell.ir.numerics import Deviation, forbidden
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter, Value
from stepwell.ir.types import element
from stepwell.translate.lowerings.pad import Pad
from stepwell.translate.rules.operators import op_named

Function = Callable[..., Any]
_F = TypeVar("_F", bound=Function)


class Refused(Exception):
    """Thrown by `refuse`, caught by the lowering that runs."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def refuse(reason: str) -> NoReturn:
    """Leave the op alone, and say why."""
    raise Refused(reason)


def known(argument: Any, what: str) -> Any:
    """A number that the program states; `what` names the argument in the refusal."""
    if not isinstance(argument, int | float | None):
        refuse(f"{what} is known only at run time")
    return argument


@dataclass(frozen=True)
class Goal:
    """What the engine has to know of a target.

    Attributes:
        bound: how far results move where a lowering says nothing.
        writer: makes what writes its operators onto a pad.
        value: wraps an SSA value, so that it computes.
        shape: the sizes of an SSA value, as the target's values have them.
        unfit: why the target has no such values: (values, program, sizes may be symbolic); None
            where it has all.
    """

    bound: Bound
    writer: Callable[[Rewriter], Any]
    value: Callable[[SSAValue, Any], Any]
    shape: Callable[[SSAValue], tuple[Any, ...]]
    unfit: Callable[[Sequence[SSAValue], Program, bool], Refusal | None] | None


@dataclass(frozen=True)
class Drawn:
    """What stands on the pad, and what of it replaces which result."""

    op: Operation
    pad: Pad
    values: tuple[SSAValue | None, ...]


@dataclass(frozen=True)
class Out:
    """Element type and sizes of a result."""

    dtype: Attribute
    shape: tuple[Any, ...]


_GOALS: dict[str, Goal] = {}
_OF_MODULE: dict[str, list[type[Lowering]]] = {}
_OF_FUNCTION: dict[Function, type[Lowering]] = {}
_NAMES: set[str] = set()
SAME = "aten"
"""The target whose ops are those that are lowered."""


def goal(name: str, found: Goal) -> None:
    """Make a target known to `lowers`."""
    assert name not in _GOALS, f"the target {name} stands twice"
    _GOALS[name] = found


@dataclass(frozen=True)
class Lowering(Rewrite[Drawn]):
    """A function as a rewrite; each is a class of its own, made by `lowers`."""

    function: ClassVar[Function]
    to: ClassVar[str]
    forms: ClassVar[Mapping[type[Operation], Any]]
    of: ClassVar[tuple[Attribute, ...] | None]
    only: ClassVar[tuple[Attribute, ...] | None]
    fits: ClassVar[str]
    takes_symbols: ClassVar[bool]
    unless: ClassVar[Callable[[Any], bool] | None]
    loses: ClassVar[Callable[[Any, Program], Deviation | None] | None]
    moves: ClassVar[Callable[[Any, Value], Bound] | None]
    sample: ClassVar[tuple[Any, ...] | str | None]

    def match(self, op: Operation, program: Program) -> Drawn | Refusal | None:
        """What the function makes of the op."""
        cls, aim = type(self), _GOALS[self.to]
        if cls.only is not None and element_of(op) not in cls.only:
            return None
        if cls.unless is not None and cls.unless(op):
            return None
        if cls.fits != "none" and aim.unfit is not None:
            values = op.operands[:1] if cls.fits == "first" else (*op.operands, *op.results)
            refusal = aim.unfit(values, program, cls.takes_symbols)
            if refusal is not None:
                return refusal
        if cls.of is not None and (held := element_of(op)) not in cls.of:
            named = dtype_name(cast(Attribute, held))
            return Refusal(f"{self.to.upper()} has no operator for {op.name} on {named}")
        pad = Pad(op, program)
        try:
            made = _called(cls, op, aim, aim.writer(pad))
        except Refused as refused:
            pad.drop()
            return Refusal(refused.reason)
        except BaseException:
            pad.drop()
            raise
        if made is None:
            pad.drop()
            return None
        results: Any = made if isinstance(made, tuple) else (made,)
        return Drawn(op, pad, tuple(None if value is None else value.ssa for value in results))

    def deviates(self, match: Drawn, program: Program) -> Deviation | None:
        """What the decorator's `loses` says of the op at hand; what is forbidden leaves no trace."""
        lost = None if type(self).loses is None else type(self).loses(match.op, program)
        if lost is not None and forbidden(lost, program.context):
            match.pad.drop()
        return lost

    def bound_at(self, match: Drawn, value: Value) -> Bound:
        """What the decorator's `moves` says of the values at hand; the bound where there is none."""
        return self.bound if type(self).moves is None else type(self).moves(match.op, value)

    def build(self, match: Drawn, rw: Rewriter) -> None:
        """Put what stands on the pad in the op's place."""
        op = match.op
        for result, value in zip(op.results, match.pad.splice(match.values, rw), strict=True):
            if value is None:
                continue
            if value.name_hint is None:
                value.name_hint = result.name_hint
            assert value.type == result.type, f"{op.name}: {value.type} for {result.type}"
            rw.replace_value(result, value)
        rw.erase(op)


def element_of(op: Operation) -> Attribute | None:
    """The element type of an op's first tensor; of its result where it takes none."""
    for value in (*op.operands, *op.results):
        if isinstance(value.type, TensorType):
            return element(value.type)
    return None


def _called(cls: type[Lowering], op: Operation, aim: Goal, b: Any) -> Any:
    given: list[Any] = []
    more: dict[str, Any] = {}
    if not isinstance(op, SchemaOp):  # Its operands, in their order.
        given = [aim.value(value, b) for value in op.operands]
    arguments = op.SCHEMA.by_name if isinstance(op, SchemaOp) else {}
    for name, is_named in _taken(cls, type(op)):
        if name in arguments:
            assert isinstance(op, SchemaOp)
            value = op.arg(name)
            if arguments[name].type.is_tensor:
                value = _wrapped(value, aim, b)
            if is_named:
                more[name] = value
            else:
                given.append(value)
        elif name == "form":
            more[name] = cls.forms[type(op)]
        elif name == "out":
            result = op.results[0]
            more[name] = Out(element(result.type), aim.shape(result))
        else:
            more[name] = op if name == "op" else b
    return cls.function(*given, **more)


def _wrapped(value: Any, aim: Goal, b: Any) -> Any:
    if isinstance(value, SSAValue):
        return aim.value(value, b) if isinstance(value.type, TensorType) else value
    if isinstance(value, list):
        return [_wrapped(item, aim, b) for item in cast("list[Any]", value)]
    return value


_TAKEN: dict[tuple[type[Lowering], type[Operation]], list[tuple[str, bool]]] = {}


def _taken(cls: type[Lowering], op: type[Operation]) -> list[tuple[str, bool]]:
    """What a function is given of an op: names of arguments, and whether by name."""
    found = _TAKEN.get((cls, op))
    if found is None:
        parameters = signature(cls.function).parameters.values()
        by_order = [p for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
        by_name = [p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
        schema = op.SCHEMA if issubclass(op, SchemaOp) else None
        stated = [a.name for a in schema.arguments if not a.keyword_only] if schema else []
        found = [(name, False) for name, _ in zip(stated, by_order, strict=False)]
        found += [
            (name, True)
            for name in by_name
            if name in ("form", "out", "op", "b") or (schema and name in schema.by_name)
        ]
        _TAKEN[cls, op] = found
    return found


def lowers(
    *ops: str | Mapping[str, Any],
    to: str,
    bound: Bound | None = None,
    moves: Callable[[Any, Value], Bound] | None = None,
    loses: Callable[[Any, Program], Deviation | None] | None = None,
    of: Sequence[Attribute] | None = None,
    only: Sequence[Attribute] | None = None,
    fits: Literal["all", "first", "none"] = "all",
    takes_symbols: bool = True,
    unless: Callable[[Any], bool] | None = None,
    takes_empty: bool = True,
    sample: tuple[Any, ...] | str | None = None,
    formerly: tuple[str, ...] = (),
) -> Callable[[_F], _F]:
    """Let a function be the lowering of ops; gives the function.

    Args:
        ops: their names; a mapping gives the function's `form` for each.
        to: the target.
        bound: how far results move; the target's own if None.
        moves: how far they do with run-time values: of the op, and what gives those.
        loses: the class of numbers that the op at hand may lose.
        of: element types of the first tensor that it computes on; others are refused.
        only: element types of the first tensor that are its business.
        fits: whether the target must have all operands and results, the first operand, or none.
        takes_symbols: whether sizes may be symbolic.
        unless: whether an op is what the function leaves alone; asked first, for it is cheap.
        takes_empty: whether it is asked about tensors without elements.
        sample: arguments of a call of the first op, for its example: a tensor as `2x4xf32`, a
            dictionary at the end for arguments by name; or the lines of a method. Small matrices
            and numbers if None.
        formerly: names of rewrites that did this before.
    """
    forms: dict[type[Operation], Any] = {}
    for held in ops:
        named = held if isinstance(held, Mapping) else {held: None}
        forms |= {_class_named(name): form for name, form in named.items()}

    def register(function: _F) -> _F:
        spelled = cast(Any, function).__name__.strip("_").replace("_", "-")
        verb = spelled if to == SAME else f"lower-{spelled}"
        name = verb if to == SAME else f"{verb}-to-{to}"
        if name in _NAMES:
            raise StepwellError(f"two lowerings are named {name}")
        _NAMES.add(name)
        body = {
            "__doc__": getdoc(function),
            "__module__": function.__module__,
            "name": name,
            "anchors": tuple(forms),
            "bound": _GOALS[to].bound if bound is None else bound,
            "takes_empty": takes_empty,
            "formerly": formerly,
            "function": staticmethod(function),
            "to": to,
            "forms": forms,
            "of": None if of is None else tuple(of),
            "only": None if only is None else tuple(only),
            "fits": fits,
            "takes_symbols": takes_symbols,
            "unless": None if unless is None else staticmethod(unless),
            "loses": None if loses is None else staticmethod(loses),
            "moves": None if moves is None else staticmethod(moves),
            "sample": sample,
        }
        title = "".join(word.title() for word in verb.split("-"))
        made = cast("type[Lowering]", type(title, (Lowering,), body))
        _OF_MODULE.setdefault(function.__module__, []).append(made)
        _OF_FUNCTION[function] = made
        return function

    return register


def _class_named(name: str) -> type[Operation]:
    found = op_named(name)
    if found is None:
        raise StepwellError(f"there is no op {name}", help="a lowering names the ops that it takes")
    return found


def step(function: Function) -> Lowering:
    """The rewrite that a function is, for a pipeline."""
    return _OF_FUNCTION[function]()


def lowerings_of(module: str) -> tuple[type[Lowering], ...]:
    """What a module's functions lower, in their order: its `RULES`."""
    return tuple(_OF_MODULE.get(module, ()))

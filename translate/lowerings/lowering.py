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
    layer, use  of a layer between casts (`reads`), and a quantization of its result

A layer is float in the program; its function takes the integers of its activations, and is called
for each `use` that differs; without one it is called once, and gives a function of a use. Others with a default are options of the step: `step(linear, rows="width")`.

It runs on a scratch pad while matching, so guards stand wherever they read best. Anchors, the name,
the example of the reference page and of the tests are derived from the decorator and the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from inspect import Parameter, getdoc, signature
from typing import Any, ClassVar, Literal, NoReturn, TypeVar, cast, get_type_hints

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.numerics import Deviation, forbidden
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import dtype_name
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Bound, Refusal, Rewrite, Rewriter, Value
from stepwell.ir.types import element
from stepwell.translate.lowerings.pad import Pad
from stepwell.translate.quantized.layers import Layer, Parts, Reads, first
from stepwell.translate.quantized.recognize import Activation, Use, deliver, distinct
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
class Grammar:
    """What a target takes of layers between casts.

    Attributes:
        layer: (op, its parts, program, sizes may be symbolic) to the layer, or why it stays a float.
        value: wraps the integers of an activation.
        delivered: what takes the place of a use: of what a function gave for it.
        bound: how far results move where a lowering says nothing.
    """

    layer: Callable[[SchemaOp, Parts, Program, bool], Layer | Refusal | None]
    value: Callable[[Activation, Any], Any]
    delivered: Callable[[Any, Use, Any], SSAValue]
    bound: Bound


@dataclass(frozen=True)
class Drawn:
    """What stands on the pad, and what of it replaces which result, or use of one of a `layer`."""

    op: Operation
    pad: Pad
    values: tuple[SSAValue | None, ...]
    layer: Layer | None = None


@dataclass(frozen=True)
class Out:
    """Element type and sizes of a result."""

    dtype: Attribute
    shape: tuple[Any, ...]


_GOALS: dict[str, Goal] = {}
_GRAMMARS: dict[str, Grammar] = {}
_OF_MODULE: dict[str, list[type[Lowering]]] = {}
_OF_FUNCTION: dict[Function, type[Lowering]] = {}
_NAMES: set[tuple[str, str]] = set()
SAME = "aten"
"""The target whose ops are those that are lowered."""


def goal(name: str, found: Goal) -> None:
    """Make a target known to `lowers`."""
    assert name not in _GOALS, f"the target {name} stands twice"
    _GOALS[name] = found


def grammar(name: str, found: Grammar) -> None:
    """Make known what a target takes of layers between casts."""
    assert name not in _GRAMMARS, f"the grammar of {name} stands twice"
    _GRAMMARS[name] = found


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
    options: ClassVar[tuple[str, ...]]

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

        def made(b: Any) -> Sequence[SSAValue | None] | None:
            given = self.called(op, _operands(cls, op, aim, b), b)
            results: Any = given if given is None or isinstance(given, tuple) else (given,)
            return results and [None if value is None else value.ssa for value in results]

        return self.drawn(op, program, made)

    def drawn(
        self,
        op: Operation,
        program: Program,
        made: Callable[[Any], Sequence[SSAValue | None] | None],
    ) -> Drawn | Refusal | None:
        """What is made on a pad; nothing stays of a refusal, or of None."""
        pad = Pad(op, program)
        values = None
        try:
            values = made(_GOALS[self.to].writer(pad))
        except Refused as refused:
            return Refusal(refused.reason)
        finally:
            if values is None:
                pad.drop()
        return None if values is None else Drawn(op, pad, tuple(values))

    def called(self, op: Operation, given: Sequence[Any], b: Any, **more: Any) -> Any:
        """What the function makes of these values and what else it takes of the op."""
        cls = type(self)
        return cls.function(*given, **_named(self, op, _GOALS[cls.to], b), **more)

    def deviates(self, match: Drawn, program: Program) -> Deviation | None:
        """What the decorator's `loses` says of the op at hand; what is forbidden leaves no trace."""
        loses = type(self).loses
        lost = None if loses is None else loses(match.op, program)
        if lost is not None and forbidden(lost, program.context):
            match.pad.drop()
        return lost

    def bound_at(self, match: Drawn, value: Value) -> Bound:
        """What the decorator's `moves` says of the values at hand; the bound where there is none."""
        moves = type(self).moves
        return self.bound if moves is None else moves(match.op, value)

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


@dataclass(frozen=True)
class LayerLowering(Lowering):
    """A function of the integers that an op between casts reads and makes."""

    reads: ClassVar[Reads]

    def match(self, op: Operation, program: Program) -> Drawn | Refusal | None:
        """What the function makes of the layer, for each quantization of its result."""
        cls, target = type(self), _GRAMMARS[self.to]
        assert isinstance(op, SchemaOp)
        if cls.unless is not None and cls.unless(op):
            return None
        parts = cls.reads(op)
        if not isinstance(parts, Parts):
            return parts
        layer = target.layer(op, parts, program, cls.takes_symbols)
        if not isinstance(layer, Layer):
            return layer

        def made(b: Any) -> list[SSAValue] | None:
            names = _taken(cls.function)[1]
            values = [target.value(x, b) for x in layer.inputs]
            more = {"layer": layer} if "layer" in names else {}
            uses = [use for use, _ in distinct(layer.uses)]
            if "use" in names:
                results = [self.called(op, values, b, use=use, **more) for use in uses]
            else:
                of_use = self.called(op, values, b, **more)
                results = [None if of_use is None else of_use(use) for use in uses]
            if any(result is None for result in results):
                return None
            pairs = zip(results, uses, strict=True)
            return [target.delivered(result, use, b) for result, use in pairs]

        drawn = self.drawn(op, program, made)
        return replace(drawn, layer=layer) if isinstance(drawn, Drawn) else drawn

    def bound_at(self, match: Drawn, value: Value) -> Bound:
        """What the decorator's `moves` says of the layer."""
        moves = type(self).moves
        return self.bound if moves is None else moves(match.layer, value)

    def build(self, match: Drawn, rw: Rewriter) -> None:
        """What stands on the pad takes the place of the quantizations of the result."""
        values = match.pad.splice(match.values, rw)
        assert match.layer is not None
        for (_, group), value in zip(distinct(match.layer.uses), values, strict=True):
            assert value is not None
            deliver(rw, group, value)


def element_of(op: Operation) -> Attribute | None:
    """The element type of an op's first tensor; of its result where it takes none."""
    for value in (*op.operands, *op.results):
        if isinstance(value.type, TensorType):
            return element(value.type)
    return None


def _operands(cls: type[Lowering], op: Operation, aim: Goal, b: Any) -> list[Any]:
    """What a function takes by order: the arguments of a torch op, the operands of another."""
    if not isinstance(op, SchemaOp):
        return [aim.value(value, b) for value in op.operands]
    return [
        _wrapped(op.arg(name), aim, b) if is_tensor else op.arg(name)
        for name, is_tensor in _in_order(cls.function, type(op))
    ]


@cache
def _in_order(function: Function, of: type[SchemaOp]) -> tuple[tuple[str, bool], ...]:
    """The arguments of an op that a function takes by order, and whether each is a tensor."""
    stated = [argument for argument in of.SCHEMA.arguments if not argument.keyword_only]
    return tuple((a.name, a.type.is_tensor) for a in stated[: _taken(function)[0]])


def _named(lowering: Lowering, op: Operation, aim: Goal, b: Any) -> dict[str, Any]:
    """What a function takes by name: of the op, of the engine, and options."""
    cls, more = type(lowering), dict[str, Any]()
    names = _taken(cls.function)[1]
    arguments = op.SCHEMA.by_name if names and isinstance(op, SchemaOp) else {}
    for name in names:
        if name in arguments:
            value = cast(SchemaOp, op).arg(name)
            more[name] = _wrapped(value, aim, b) if arguments[name].type.is_tensor else value
        elif name == "form":
            more[name] = cls.forms[type(op)]
        elif name == "out":
            result = op.results[0]
            more[name] = Out(element(result.type), aim.shape(result))
        elif name in ("op", "b"):
            more[name] = op if name == "op" else b
        elif name in cls.options:
            more[name] = getattr(lowering, name)
    return more


def _wrapped(value: Any, aim: Goal, b: Any) -> Any:
    if isinstance(value, OpResult | BlockArgument):
        return aim.value(value, b) if isinstance(value.type, TensorType) else value
    if isinstance(value, list):
        return [_wrapped(item, aim, b) for item in cast("list[Any]", value)]
    return value


@cache
def _taken(function: Function) -> tuple[int, tuple[str, ...]]:
    """How many arguments a function takes by order, and which by name."""
    parameters = signature(function).parameters.values()
    by_order = sum(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in parameters)
    return by_order, tuple(p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY)


def _options(function: Function, ops: Iterable[type[Operation]]) -> dict[str, Any]:
    """What a function takes by name, with a default, that is nothing of its ops: name → default."""
    schemas = [op.SCHEMA.by_name for op in ops if issubclass(op, SchemaOp)]
    return {
        p.name: p.default
        for p in signature(function).parameters.values()
        if p.kind is Parameter.KEYWORD_ONLY
        and p.default is not Parameter.empty
        and not any(p.name in names for names in schemas)
    }


def lowers(
    *ops: str | Mapping[str, Any],
    to: str,
    bound: Bound | None = None,
    error_bound: Callable[[Any, Value], Bound] | None = None,
    deviation: Callable[[Any, Program], Deviation | None] | None = None,
    dtypes: Sequence[Attribute] | None = None,
    if_dtype: Sequence[Attribute] | None = None,
    check: Literal["all", "first", "none"] = "all",
    takes_symbols: bool = True,
    unless: Callable[[Any], bool] | None = None,
    takes_empty: bool | None = None,
    sample: tuple[Any, ...] | str | None = None,
    formerly: tuple[str, ...] = (),
    quantized_operands: int | Reads | None = None,
    name: str | None = None,
) -> Callable[[_F], _F]:
    """Let a function be the lowering of ops; gives the function.

    Args:
        ops: their names; a mapping gives the function's `form` for each.
        to: the target.
        bound: how far results move; the target's own if None.
        error_bound: how far they do with run-time values: of the op, and what gives those.
        deviation: the class of numbers that the op at hand may lose.
        dtypes: element types of the first tensor that it computes on; others are refused.
        if_dtype: element types of the first tensor that are its business.
        check: whether the target must have all operands and results, the first operand, or none.
        takes_symbols: whether sizes may be symbolic.
        unless: whether an op is what the function leaves alone; asked first, for it is cheap.
        takes_empty: whether it is asked about tensors without elements; layers are not.
        sample: arguments of a call of the first op, for its example: a tensor as `2x4xf32`, a
            dictionary at the end for arguments by name; or the lines of a method. Small matrices
            and numbers if None.
        formerly: names of rewrites that did this before.
        quantized_operands: of a layer between casts: how many operands are activations, or which.
        name: its own, where it is not its function's.
    """
    forms: dict[type[Operation], Any] = {}
    for op in ops:
        named = op if isinstance(op, Mapping) else {op: None}
        forms |= {_class_named(name): form for name, form in named.items()}

    def register(function: _F) -> _F:
        spelled = cast(Any, function).__name__.strip("_").replace("_", "-")
        verb = spelled if to == SAME else f"lower-{spelled}"
        full = name or (verb if to == SAME or quantized_operands is not None else f"{verb}-to-{to}")
        if (to, full) in _NAMES:
            raise StepwellError(f"two lowerings are named {full}")
        _NAMES.add((to, full))
        options = _options(function, forms)
        aim = _GOALS[to]
        default = aim.bound if quantized_operands is None else _GRAMMARS[to].bound
        body = {
            "__doc__": getdoc(function),
            "__module__": function.__module__,
            "__annotations__": {option: get_type_hints(function)[option] for option in options},
            **options,
            "name": full,
            "anchors": tuple(forms),
            "bound": default if bound is None else bound,
            "takes_empty": quantized_operands is None if takes_empty is None else takes_empty,
            "formerly": formerly,
            "function": staticmethod(function),
            "to": to,
            "forms": forms,
            "of": None if dtypes is None else tuple(dtypes),
            "only": None if if_dtype is None else tuple(if_dtype),
            "fits": check,
            "takes_symbols": takes_symbols,
            "unless": None if unless is None else staticmethod(unless),
            "loses": None if deviation is None else staticmethod(deviation),
            "moves": None if error_bound is None else staticmethod(error_bound),
            "sample": sample,
            "options": tuple(options),
            "reads": staticmethod(
                first(quantized_operands)
                if isinstance(quantized_operands, int)
                else quantized_operands or first(0)
            ),
        }
        title = "".join(word.title() for word in verb.split("-"))
        base = Lowering if quantized_operands is None else LayerLowering
        made = cast("type[Lowering]", type(title, (base,), body))
        if options:
            made = dataclass(frozen=True)(made)
        _OF_MODULE.setdefault(function.__module__, []).append(made)
        _OF_FUNCTION[function] = made
        return function

    return register


def _class_named(name: str) -> type[Operation]:
    found = op_named(name)
    if found is None:
        raise StepwellError(f"there is no op {name}", help="a lowering names the ops that it takes")
    return found


def step(function: Function, **options: Any) -> Lowering:
    """The rewrite that a function is, for a pipeline."""
    return _OF_FUNCTION[function](**options)


def is_step(rewrite: object, function: Function) -> bool:
    """Whether a rewrite is that function."""
    return type(rewrite) is _OF_FUNCTION[function]


def lowerings_of(module: str) -> tuple[type[Lowering], ...]:
    """What a module's functions lower, in their order: its `RULES`."""
    return tuple(_OF_MODULE.get(module, ()))

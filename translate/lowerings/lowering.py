"""A lowering is a function: `@lowers("aten.permute.default", to="tosa")`.

Its pass is named `lower-permute-to-tosa`; a decomposition, whose target is the dialect of its ops,
is named after the function: `split-layer-norm`. `step` returns the pass for a pipeline.

The function takes an op's positional arguments in order, and keyword-only ones by name. Tensors are
values of the target, which overload Python's operators; other arguments are Python objects. It
returns the replacement of the op, or of each of its results that is used. `refuse("…")` states why
it does not match, and None leaves the op to another lowering. Keyword-only parameters of these
names are passed by the engine:

    form    the decorator's mapping for the op at hand
    out     element type and sizes of the result
    op      the op itself
    b       the rewriter or builder of the target's operators
    layer, use  a layer between casts (`quantized_operands`), and a quantization of its result

A layer is float in the program; its function takes the integers of its activations. It is called
for each distinct `use`; without this parameter it is called once, and returns a function of a use.
Other parameters with a default are options of the pass: `step(linear, rows="width")`.

The function runs while matching, on a scratch pad that records ops without inserting them, so
guards may be anywhere in it. Root operations, the name, and the example of the reference page and
of the tests are derived from decorator and function.
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
from stepwell.translate.lowerings.goals import GOALS, GRAMMARS, Goal
from stepwell.translate.lowerings.pad import Pad
from stepwell.translate.quantized.layers import Layer, Parts, Reads, first
from stepwell.translate.quantized.recognize import deliver, distinct
from stepwell.translate.rules.operators import op_named

Function = Callable[..., Any]
_F = TypeVar("_F", bound=Function)
_T = TypeVar("_T")


class Refused(Exception):
    """Raised by `refuse`, and caught by the lowering that runs the function."""

    def __init__(self, reason: str, saving: float = 0.0) -> None:
        super().__init__()
        self.refusal = Refusal(reason, saving)


def refuse(reason: str) -> NoReturn:
    """Refuse to lower the op, for the stated reason."""
    raise Refused(reason)


def no_refusal(found: _T | Refusal) -> _T:
    """Return the result of a guard; if it is a refusal, refuse the op for its reason."""
    if isinstance(found, Refusal):
        refuse(found.reason)
    return found


def known(argument: Any, what: str) -> Any:
    """Return an argument that must be a constant; `what` names the argument in the refusal."""
    if not isinstance(argument, int | float | None):
        refuse(f"{what} is known only at run time")
    return argument


@dataclass(frozen=True)
class Drawn:
    """A match: the operations on the scratch pad, the replacement of each result (or layer use),
    and the deviation of the application, if any.
    """

    op: Operation
    pad: Pad
    values: tuple[SSAValue | None, ...]
    lost: Deviation | None
    layer: Layer | None = None


@dataclass(frozen=True)
class Out:
    """The element type and sizes of a result."""

    dtype: Attribute
    shape: tuple[Any, ...]


_OF_MODULE: dict[str, list[type[Lowering]]] = {}
_OF_FUNCTION: dict[Function, type[Lowering]] = {}
_NAMES: set[tuple[str, str]] = set()
SAME = "aten"
"""The target of decompositions, whose ops are in the dialect of the lowered ones."""


@dataclass(frozen=True)
class Lowering(Rewrite[Drawn]):
    """A function as a rewrite; `lowers` makes a class for each."""

    function: ClassVar[Function]
    to: ClassVar[str]
    forms: ClassVar[Mapping[type[Operation], Any]]
    of: ClassVar[tuple[Attribute, ...] | None]
    only: ClassVar[tuple[Attribute, ...] | None]
    fits: ClassVar[str]
    takes_symbols: ClassVar[bool]
    unless: ClassVar[Callable[[Any], bool] | None]
    requires: ClassVar[Callable[[Any], Refusal | None] | None]
    loses: ClassVar[Callable[[Any, Program], Deviation | None] | None]
    moves: ClassVar[Callable[[Any, Value], Bound] | None]
    sample: ClassVar[tuple[Any, ...] | str | None]
    options: ClassVar[tuple[str, ...]]

    def match(self, op: Operation, program: Program) -> Drawn | Refusal | None:
        """Run the function on the op."""
        cls, aim = type(self), GOALS[self.to]
        if cls.only is not None and element_of(op) not in cls.only:
            return None
        if cls.unless is not None and cls.unless(op):
            return None
        if cls.requires is not None and (refusal := cls.requires(op)) is not None:
            return refusal
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
        """Run a function on a scratch pad, which is emptied after a refusal or None.

        A forbidden deviation refuses the op when the function records its first op: guards come
        first, and nothing is built for no use.
        """
        lost: Deviation | None = None

        def refuse_deviation() -> None:
            nonlocal lost
            lost = None if loses is None else loses(op, program)
            if lost is not None and (reason := forbidden(lost, program.context)):
                raise Refused(reason, pad.saving)

        loses = type(self).loses
        pad = Pad(op, program, None if loses is None else refuse_deviation)
        drawn = None
        try:
            values = made(GOALS[self.to].writer(pad))
            if values is not None:
                if not pad.inserted:
                    refuse_deviation()
                drawn = Drawn(op, pad, tuple(values), lost)
        except Refused as refused:
            return refused.refusal
        finally:
            if drawn is None:
                pad.drop()
        return drawn

    def called(self, op: Operation, given: Sequence[Any], b: Any, **more: Any) -> Any:
        """Call a lowering function with these values and the other arguments that it takes."""
        cls = type(self)
        return cls.function(*given, **_named(self, op, GOALS[cls.to], b), **more)

    def deviates(self, match: Drawn, program: Program) -> Deviation | None:
        """Return the decorator's `deviation` for the op of the match."""
        return match.lost

    def bound_at(self, match: Drawn, value: Value) -> Bound:
        """Return the decorator's `error_bound` for the values at hand, or the fixed bound."""
        moves = type(self).moves
        return self.bound if moves is None else moves(match.op, value)

    def build(self, match: Drawn, rw: Rewriter) -> None:
        """Insert the scratch pad's operations in place of the op."""
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
    """A rewrite that runs a lowering function on the integers of an op between casts."""

    reads: ClassVar[Reads]

    def match(self, op: Operation, program: Program) -> Drawn | Refusal | None:
        """Run the function on the layer, for each quantization of its result."""
        cls, target = type(self), GRAMMARS[self.to]
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
        """Return the decorator's `error_bound` for the layer."""
        moves = type(self).moves
        return self.bound if moves is None else moves(match.layer, value)

    def build(self, match: Drawn, rw: Rewriter) -> None:
        """Replace the quantizations of the result by the scratch pad's operations."""
        values = match.pad.splice(match.values, rw)
        assert match.layer is not None
        for (_, group), value in zip(distinct(match.layer.uses), values, strict=True):
            assert value is not None
            deliver(rw, group, value)


def element_of(op: Operation) -> Attribute | None:
    """Return the element type of an op's first tensor operand; else, that of the result."""
    for value in (*op.operands, *op.results):
        if isinstance(value.type, TensorType):
            return element(value.type)
    return None


def _operands(cls: type[Lowering], op: Operation, aim: Goal, b: Any) -> list[Any]:
    """Return the positional arguments of an ATen op, or the operands of any other op."""
    if not isinstance(op, SchemaOp):
        return [aim.value(value, b) for value in op.operands[: _taken(cls.function)[0]]]
    return [
        _wrapped(op.arg(name), aim, b) if is_tensor else op.arg(name)
        for name, is_tensor in _in_order(cls.function, type(op))
    ]


@cache
def _in_order(function: Function, of: type[SchemaOp]) -> tuple[tuple[str, bool], ...]:
    """Return the op's arguments that are positional, and whether each is a tensor."""
    stated = [argument for argument in of.SCHEMA.arguments if not argument.keyword_only]
    return tuple((a.name, a.type.is_tensor) for a in stated[: _taken(function)[0]])


def _named(lowering: Lowering, op: Operation, aim: Goal, b: Any) -> dict[str, Any]:
    """Return the keyword arguments: from the op, from the engine, and options."""
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
    """Return the number of positional parameters and the names of the keyword-only ones."""
    parameters = signature(function).parameters.values()
    by_order = sum(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in parameters)
    return by_order, tuple(p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY)


def _options(function: Function, ops: Iterable[type[Operation]]) -> dict[str, Any]:
    """Return the options (parameters with a default that no op or engine has): name → default."""
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
    requires: Callable[[Any], Refusal | None] | None = None,
    takes_empty: bool | None = None,
    sample: tuple[Any, ...] | str | None = None,
    phases: Sequence[str] | Mapping[str, Mapping[str, Any]] = (),
    exact: tuple[tuple[str, str], ...] = (),
    quantized_operands: int | Reads | None = None,
    name: str | None = None,
) -> Callable[[_F], _F]:
    """Register a function as the lowering of ops, and return the function.

    Args:
        ops: the names of the ops; a mapping has the function's `form` for each.
        to: the target.
        bound: the error bound of the results; the target's default if None.
        error_bound: computes the bound from run-time values, the op, and its evaluator.
        deviation: the class of numbers that the op at hand may lose.
        dtypes: element types of the first tensor that are supported; others are refused.
        if_dtype: element types of the first tensor that match; others do not match.
        check: whether the target must support all operands and results, the first operand, or none.
        takes_symbols: whether sizes may be symbolic.
        unless: a cheap test, run first, of whether the function ignores an op.
        requires: returns why the target of a decomposition lacks the types of the op at hand.
        takes_empty: whether the function is called for tensors without elements; layers are not.
        sample: arguments of a call of the first op, for its example: a tensor as `2x4xf32`, a
            dictionary at the end for arguments by name; or the lines of a method, or of several
            with an empty line between. Small matrices and numbers if None.
        phases: the phases of pipelines to which it belongs, with its options (`Rewrite.phases`).
        exact: ops, with dtypes, that the rewrite keeps exact (`Rewrite.exact`).
        quantized_operands: for a layer between casts, the number of its activations or their roles.
        name: the name of the rewrite, if it differs from the function's.
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
        aim = GOALS[to]
        default = aim.bound if quantized_operands is None else GRAMMARS[to].bound
        body = {
            "__doc__": getdoc(function),
            "__module__": function.__module__,
            "__annotations__": {option: get_type_hints(function)[option] for option in options},
            **options,
            "name": full,
            "anchors": tuple(forms),
            "bound": default if bound is None else bound,
            "takes_empty": quantized_operands is None if takes_empty is None else takes_empty,
            "phases": phases if isinstance(phases, Mapping) else {name: {} for name in phases},
            "exact": exact,
            "function": staticmethod(function),
            "to": to,
            "forms": forms,
            "of": None if dtypes is None else tuple(dtypes),
            "only": None if if_dtype is None else tuple(if_dtype),
            "fits": check,
            "takes_symbols": takes_symbols,
            "unless": None if unless is None else staticmethod(unless),
            "requires": None if requires is None else staticmethod(requires),
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
        raise StepwellError(
            f"the op {name} does not exist", help="a lowering names the ops that it takes"
        )
    return found


def step(function: Function, **options: Any) -> Lowering:
    """Return the rewrite of a lowering function, for a pipeline."""
    return _OF_FUNCTION[function](**options)


def is_step(rewrite: object, function: Function) -> bool:
    """Whether a rewrite runs this lowering function."""
    return type(rewrite) is _OF_FUNCTION[function]


def lowerings_of(module: str) -> tuple[type[Lowering], ...]:
    """Return the lowerings of a module's functions, in order, as its `RULES`."""
    return tuple(_OF_MODULE.get(module, ()))

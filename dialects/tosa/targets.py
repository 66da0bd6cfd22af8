"""Targets such as `tosa-1.1+fp+mxfp`: which operators and element types each supports.

A target is a version, one or more profiles, and extensions. The rules are those of the
specification's profile tables by element type and operator; tosa-opt's own validation is the oracle
of the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from xdsl.dialects.builtin import ComplexType, TensorType, UnrankedTensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa import structural as s
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.forms import (
    FORMS,
    MX_EXTENSIONS,
    Needs,
    has_form,
    no_form,
    signature_of,
    spelled,
)
from stepwell.dialects.tosa.limits import EIGHT_K, NONE, LevelLimits, limits, tensor_limits
from stepwell.dialects.tosa.meaning.shapes import BINARY, UNARY
from stepwell.ir.core import MutateInputOp, StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import Problem, StepwellError, describe_op
from stepwell.ir.dtypes import dtype_name
from stepwell.ir.types import dims, is_static

PROFILES = ("fp", "int")
VERSIONS = ("1.0", "1.1")
_FP8 = frozenset(("fp8e4m3", "fp8e5m2"))

EXTENSIONS: dict[str, tuple[str, str | None]] = {
    "bf16": ("1.0", "fp"),
    "controlflow": ("1.0", None),
    "doubleround": ("1.0", "int"),
    "fft": ("1.0", "fp"),
    "fp8e4m3": ("1.0", "fp"),
    "fp8e5m2": ("1.0", "fp"),
    "inexactround": ("1.0", "int"),
    "int16": ("1.0", "int"),
    "int4": ("1.0", "int"),
    "variable": ("1.0", None),
    "dynamic": ("1.0", None),
    "mxfp": ("1.1", "fp"),
    "mxfp_conv": ("1.1", "fp"),
    "mx_common": ("1.1", "fp"),
    **dict.fromkeys(MX_EXTENSIONS.values(), ("1.1", "fp")),
    "int64": ("1.1", None),
    "shape": ("1.1", None),
}
"""Extensions with the version that introduced them and the profile that they extend, if
only one.
"""

LEVELS = {"level_none": NONE}
"""The level suffixes in a target's name; the default is level 8K."""

_BLOCK_SCALED = (
    t.CastToBlockScaledOp,
    t.CastFromBlockScaledOp,
    t.MatMulTBlockScaledOp,
    t.Conv2dBlockScaledOp,
    t.ReshapeBlockScaledOp,
    t.RowGatherBlockScaledOp,
)
_ONLY_IN_1_1 = (
    *_BLOCK_SCALED,
    t.MatMulTOp,
    t.RowGatherOp,
    t.MaxPool2dAdaptiveOp,
    t.AvgPool2dAdaptiveOp,
)
_SHAPE_OPS = (
    t.DimOp,
    *BINARY,
    *UNARY,
    t.ConcatShapeOp,
    t.SliceShapeOp,
    t.AssertEqualShapeOp,
)
_NEEDS: dict[type[Operation], str] = {
    s.CondIfOp: "controlflow",
    s.WhileLoopOp: "controlflow",
    s.VariableOp: "variable",
    s.VariableReadOp: "variable",
    s.VariableWriteOp: "variable",
    **dict.fromkeys(_SHAPE_OPS, "shape"),
}
_ROUNDINGS = {"DOUBLE_ROUND": "doubleround", "INEXACT_ROUND": "inexactround"}


@dataclass(frozen=True)
class TosaTarget:
    """A TOSA target: a version, profiles, extensions and a level."""

    version: str
    profiles: frozenset[str]
    extensions: frozenset[str]
    level: LevelLimits = EIGHT_K

    @property
    def name(self) -> str:
        """The name, `tosa-1.1+fp+mxfp`, with `+level_none` if it is not level 8K."""
        level = [name for name, held in LEVELS.items() if held == self.level]
        named = (*sorted(self.profiles), *sorted(self.extensions), *level)
        return "+".join([f"tosa-{self.version}", *named])

    def problems(self, root: Operation) -> Iterator[Problem]:
        """Yield everything below `root` that this target does not support."""
        for op in root.walk():
            if isinstance(op, FuncOp):
                yield from self._unread_inputs(op)
                yield from impossible_outputs(op)
            if isinstance(op, FuncOp) and "shape" not in self.extensions:
                symbolic = list(_symbolic_inputs(op))
                yield from symbolic
                if symbolic:
                    return
            if isinstance(op, MutateInputOp):
                remedy = f"return the value, or lower to {self.name}+cpu"
                yield Problem(
                    f"{op.name}: a TOSA graph cannot write to an input", describe_op(op), remedy
                )
            reason = self.refuses(op)
            if reason is not None:
                yield Problem(f"{op.name}: {reason}", describe_op(op), self._remedy(op))

    def refuses(self, op: Operation) -> str | None:
        """Return why a program for this target cannot contain an operator, or None."""
        if not isinstance(op, TosaOp | WeightOp | StateOp | UpdateOp):
            return None
        if not isinstance(op, TosaOp) and any(_is_empty(value.type) for value in op.results):
            return "TOSA has no empty tensors"
        if not has_form(op):
            return no_form(op)
        unknown = _unknown(op)
        if unknown is not None:
            return f"TOSA has no element type {spelled((unknown,))}"
        missing = self.missing(op)
        if not missing:
            return limits(op, self.level)
        if isinstance(op, StateOp | UpdateOp) and "variable" in missing:
            return f"the buffer {op.key.data!r} is kept between calls: needs the extension variable"
        types = spelled(signature_of(op) if type(op) in FORMS else tuple(_elements(op)))
        what = f"{types} " if types else ""
        if missing == Needs(("1.1",)):
            return f"{what}came with TOSA 1.1"
        profiles, extensions = sorted(missing & set(PROFILES)), sorted(missing & set(EXTENSIONS))
        wanted = [f"the profile {' and '.join(profiles)}"] if profiles else []
        if extensions:
            wanted.append(f"the extension{'s' * (len(extensions) > 1)} {', '.join(extensions)}")
        return f"{what}needs {' and '.join(wanted)}"

    def missing(self, op: Operation) -> Needs:
        """Return what an operator requires and this target lacks: `1.1`, `int`, `bf16`, …"""
        profiles = self.profiles | self.extensions | ({"1.1"} if self.version != "1.0" else set())
        missing = min((needs - profiles for needs in _needs_of(op)), key=len)
        if missing <= _FP8 and "mxfp" in profiles and serves_block_scaling(op):
            return Needs()
        return missing

    def _unread_inputs(self, method: FuncOp) -> Iterator[Problem]:
        """Yield inputs of unsupported types that no operator uses (an operator would report the
        others).
        """
        for index, argument in enumerate(method.body.block.args):
            type_, fact = argument.type, None
            if any(isinstance(use.operation, TosaOp) for use in argument.uses):
                continue
            if _is_empty(type_):
                fact = f"TOSA has no empty tensors, and this one has the shape {list(dims(type_))}"
            elif isinstance(type_, TensorType) and (type_.element_type,) not in FORMS[s.ConstOp]:
                fact = f"TOSA has no element type {dtype_name(type_.element_type)}"
            elif isinstance(type_, TensorType):
                fact = next(tensor_limits(type_, self.level), None)
            if fact is not None:
                where = f"method @{method.sym_name.data}"
                yield Problem(f"input {argument.name_hint or index}: {fact}", where)

    def _remedy(self, op: Operation) -> str:
        missing = self.missing(op) if has_form(op) and _unknown(op) is None else Needs()
        if not missing:
            wider = replace(self, level=NONE)
            if limits(op, self.level) is not None and wider.refuses(op) is None:
                return f"the target is {self.name}; {wider.name} has no such limit"
            return f"the target is {self.name}"
        extended = [EXTENSIONS[name] for name in missing if name in EXTENSIONS]
        added = missing | {profile for _, profile in extended if profile is not None}
        early = "1.1" not in missing and all(since == "1.0" for since, _ in extended)
        wider = TosaTarget(
            self.version if early else "1.1",
            self.profiles | (added & set(PROFILES)),
            self.extensions | (added & set(EXTENSIONS)),
            self.level,
        )
        return f"the target is {self.name}; {wider.name} has it"


def _elements(op: Operation) -> Iterator[Attribute]:
    """Yield the distinct element types of an operator's tensors."""
    types = (value.type for value in (*op.operands, *op.results))
    yield from dict.fromkeys(
        type_.element_type for type_ in types if isinstance(type_, TensorType | UnrankedTensorType)
    )


def _unknown(op: Operation) -> Attribute | None:
    """Return an element type of an operator's tensors that TOSA lacks, or None."""
    return next((element for element in _elements(op) if (element,) not in FORMS[s.ConstOp]), None)


def _needs_of(op: Operation) -> Iterator[Needs]:
    """Yield the alternative sets of requirements of an operator whose types are supported."""
    always: set[str] = set()
    if isinstance(op, StateOp | UpdateOp):
        always.add("variable")
    if type(op) in _NEEDS:
        always.add(_NEEDS[type(op)])
    if isinstance(op, _ONLY_IN_1_1):
        always.add("1.1")
    if isinstance(op, t.RescaleOp) and op.rounding_mode.data in _ROUNDINGS:
        always.add(_ROUNDINGS[op.rounding_mode.data])
    if type(op) in FORMS:
        yield from (needs | always for needs in FORMS[type(op)][signature_of(op)])
    else:
        parts = (FORMS[s.ConstOp][(element,)] for element in _elements(op))
        yield Needs().union(always, *(part for alternatives in parts for part in alternatives))


def _symbolic_inputs(method: FuncOp) -> Iterator[Problem]:
    """Yield inputs with dynamic sizes, for targets that require static sizes."""
    for index, argument in enumerate(method.body.block.args):
        type_ = argument.type
        if isinstance(type_, TensorType) and not is_static(type_):
            yield Problem(
                f"input {argument.name_hint or index}: the shape {list(dims(type_))} is known only "
                "at run time, which needs the extension shape",
                f"method @{method.sym_name.data}",
                "name a target such as tosa-1.1+fp+shape, or export with these sizes fixed",
            )


def _is_empty(type_: Attribute) -> bool:
    return isinstance(type_, TensorType) and 0 in dims(type_)


def impossible_outputs(method: FuncOp) -> Iterator[Problem]:
    """Yield outputs of types that TOSA does not have and that no operator of the graph computes.

    Such outputs are empty or complex, and cannot be computed in another way.
    """
    last = method.body.block.last_op
    for index, value in enumerate(last.operands if last is not None else ()):
        type_, fact = value.type, ""
        if isinstance(value.owner, TosaOp):
            continue
        if _is_empty(type_):
            fact = f"TOSA has no empty tensors, and this one has the shape {list(dims(type_))}"
        elif isinstance(type_, TensorType) and isinstance(type_.element_type, ComplexType):
            fact = f"TOSA has no element type {dtype_name(type_.element_type)}"
        if fact:
            yield Problem(f"output {index}: {fact}", f"method @{method.sym_name.data}")


def serves_block_scaling(op: Operation) -> bool:
    """Whether a constant is the payload of block-scaled operators only.

    For such constants, too, the specification's table of CONST requires `fp8e4m3`, so that targets
    with `mxfp` only could have no weights. TOSA's tools write and run such graphs.
    """
    if not isinstance(op, s.ConstOp | WeightOp):
        return False
    users = [use.operation for use in op.results[0].uses]
    return bool(users) and all(isinstance(user, _BLOCK_SCALED) for user in users)


@cache
def level_of(target: str) -> LevelLimits:
    """Return the level in a target's name (`+level_none`); 8K if the name states none."""
    return next((LEVELS[part] for part in target.split("+") if part in LEVELS), EIGHT_K)


def fourier_points(target: str) -> int:
    """Return the most points that a target's RFFT2D and FFT2D transform; 0 if it has neither."""
    return level_of(target).kernel if "fft" in target.split("+") else 0


def parse_target(name: str) -> TosaTarget:
    """Parse a target's name, such as `tosa-1.1+fp+mxfp` or `tosa-1.0+int+level_none`.

    Raises:
        StepwellError: an unknown version, profile or extension, or no profile.
    """
    head, *parts = name.split("+")
    version = head.removeprefix("tosa-")
    if version not in VERSIONS:
        raise StepwellError(
            f"TOSA version {version!r} is unknown", help=f"versions are {', '.join(VERSIONS)}"
        )
    known = (*PROFILES, *EXTENSIONS, *LEVELS)
    unknown = [part for part in parts if part not in known]
    if unknown:
        known = ", ".join(known)
        raise StepwellError(
            f"TOSA has no profile or extension {unknown[0]!r}", help=f"known are {known}"
        )
    profiles = frozenset(parts) & frozenset(PROFILES)
    if not profiles:
        raise StepwellError(
            f"target {name!r} names no profile", help="add +fp, +int or both: tosa-1.0+fp"
        )
    extensions = frozenset(parts) - profiles - frozenset(LEVELS)
    for extension in sorted(extensions):
        since, profile = EXTENSIONS[extension]
        if since > version:
            raise StepwellError(
                f"extension {extension} requires TOSA {since}",
                help=f"name {name.replace(f'tosa-{version}', f'tosa-{since}')}",
            )
        if profile is not None and profile not in profiles:
            raise StepwellError(
                f"extension {extension} extends the profile {profile}, which {name} lacks",
                help=f"name {name}+{profile}",
            )
    return TosaTarget(version, profiles, extensions, level_of(name))

"""Targets such as `tosa-1.1+fp+mxfp`: which operators and element types each may hold.

A target is a version, one or more profiles and extensions.  The rules are those of the
specification's profile tables, stated by element type and by operator; tosa-opt's own validation
is the oracle of the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType, UnrankedTensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa import structural as s
from stepwell.dialects.tosa.attributes import BlockScaledType
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.codes import (
    e8m0,
    f4e2m1,
    f6e2m3,
    f6e3m2,
    f8e4m3,
    f8e5m2,
    i4,
    i48,
    mxint8,
    payload_of_element,
)
from stepwell.dialects.tosa.meaning.values import ints
from stepwell.ir.core import StateOp, UpdateOp, WeightOp
from stepwell.ir.diagnostics import Problem, StepwellError, describe_op
from stepwell.ir.dtypes import bf16, f16, f32, i1, i8, i16, i32, i64
from stepwell.ir.types import dims, is_static

PROFILES = ("fp", "int")
VERSIONS = ("1.0", "1.1")
_FP8 = frozenset((f8e4m3, f8e5m2))
_NARROW = frozenset((f6e2m3, f6e3m2, f4e2m1, mxint8))

MX_EXTENSIONS = {
    "fp8e4m3": "mx_fp8e4m3",
    "fp8e5m2": "mx_fp8e5m2",
    "fp6e2m3": "mx_fp6e2m3",
    "fp6e3m2": "mx_fp6e3m2",
    "fp4e2m1": "mx_fp4e2m1",
    "mxint8": "mx_int8",
}
"""The extension that allows block-scaled types of a payload, with `mx_common`."""

EXTENSIONS: dict[str, str] = {
    "bf16": "1.0",
    "controlflow": "1.0",
    "doubleround": "1.0",
    "fft": "1.0",
    "fp8e4m3": "1.0",
    "fp8e5m2": "1.0",
    "inexactround": "1.0",
    "int16": "1.0",
    "int4": "1.0",
    "variable": "1.0",
    "dynamic": "1.0",
    "mxfp": "1.1",
    "mxfp_conv": "1.1",
    "mx_common": "1.1",
    **dict.fromkeys(MX_EXTENSIONS.values(), "1.1"),
    "int64": "1.1",
    "shape": "1.1",
}
"""Extensions with the version that brought them."""

LARGEST_KERNEL, LARGEST_STRIDE, LARGEST_SCALE = 8192, 8192, 256
"""Limits of level 8K."""

_BLOCK_SCALED = (
    t.CastToBlockScaledOp,
    t.CastFromBlockScaledOp,
    t.MatMulTBlockScaledOp,
    t.Conv2dBlockScaledOp,
    t.ReshapeBlockScaledOp,
    t.RowGatherBlockScaledOp,
)
_ONLY_IN_1_1 = (*_BLOCK_SCALED, t.MatMulTOp, t.RowGatherOp)
_SHAPE_OPS = (
    t.DimOp,
    t.AddShapeOp,
    t.SubShapeOp,
    t.MulShapeOp,
    t.MaxShapeOp,
    t.MinShapeOp,
    t.ModShapeOp,
    t.DivCeilShapeOp,
    t.DivFloorShapeOp,
    t.Exp2ShapeOp,
    t.Log2CeilShapeOp,
    t.Log2FloorShapeOp,
    t.ConcatShapeOp,
    t.SliceShapeOp,
    t.AssertEqualShapeOp,
    t.MaxPool2dAdaptiveOp,
    t.AvgPool2dAdaptiveOp,
)
_NEEDS: dict[type[Operation], str] = {
    t.FFT2dOp: "fft",
    t.RFFT2dOp: "fft",
    s.CondIfOp: "controlflow",
    s.WhileLoopOp: "controlflow",
    s.VariableOp: "variable",
    s.VariableReadOp: "variable",
    s.VariableWriteOp: "variable",
    **dict.fromkeys(_SHAPE_OPS, "shape"),
    **dict.fromkeys(_BLOCK_SCALED, "mxfp"),
}
_INTEGER_ONLY = (
    t.RescaleOp,
    t.TableOp,
    t.IntDivOp,
    t.BitwiseAndOp,
    t.BitwiseNotOp,
    t.BitwiseOrOp,
    t.BitwiseXorOp,
    t.ClzOp,
    t.ArithmeticRightShiftOp,
)
_ANY_PROFILE = frozenset((i1, i8, i16, i32))
_ELEMENT_NEEDS: dict[Attribute, str] = {
    bf16: "bf16",
    f8e4m3: "fp8e4m3",
    f8e5m2: "fp8e5m2",
    i4: "int4",
    i48: "int16",
    i64: "int64",
}


@dataclass(frozen=True)
class TosaTarget:
    """A version, profiles and extensions."""

    version: str
    profiles: frozenset[str]
    extensions: frozenset[str]

    @property
    def name(self) -> str:
        """`tosa-1.1+fp+mxfp`."""
        return "+".join([f"tosa-{self.version}", *sorted(self.profiles), *sorted(self.extensions)])

    def problems(self, root: Operation) -> Iterator[Problem]:
        """Everything below `root` that this target may not hold."""
        for op in root.walk():
            if isinstance(op, FuncOp) and "shape" not in self.extensions:
                symbolic = list(_symbolic_inputs(op))
                yield from symbolic
                if symbolic:
                    return
            reason = self.refuses(op)
            if reason is not None:
                yield Problem(f"{op.name}: {reason}", describe_op(op), f"the target is {self.name}")

    def refuses(self, op: Operation) -> str | None:
        """Why an operator may not stand in a program for this target, or None."""
        if isinstance(op, StateOp | UpdateOp) and "variable" not in self.extensions:
            return f"the buffer {op.key.data!r} is kept between calls: needs the extension variable"
        if not isinstance(op, TosaOp | WeightOp | StateOp | UpdateOp):
            return None
        extension = _NEEDS.get(type(op))
        if extension is not None and extension not in self.extensions:
            return f"needs the extension {extension}"
        if self.version == "1.0" and isinstance(op, _ONLY_IN_1_1):
            return "came with TOSA 1.1"
        if isinstance(op, _INTEGER_ONLY) and "int" not in self.profiles:
            return "needs the profile int"
        if isinstance(op, t.RescaleOp):
            mode = op.rounding_mode.data
            wanted = {"DOUBLE_ROUND": "doubleround", "INEXACT_ROUND": "inexactround"}.get(mode)
            if wanted is not None and wanted not in self.extensions:
                return f"{mode} needs the extension {wanted}"
        for value in (*op.operands, *op.results):
            reason = self._element(op, value)
            if reason is not None:
                return reason
        return limits(op)

    def _element(self, op: Operation, value: SSAValue) -> str | None:
        type_ = value.type
        if not isinstance(type_, TensorType | UnrankedTensorType):
            return None
        held: Attribute = type_.element_type
        if isinstance(held, BlockScaledType):
            name = payload_of_element(held.payload)
            needed = {"mx_common", MX_EXTENSIONS[name] if name else "mxfp"}
            missing = sorted(needed - self.extensions)
            return f"{held} needs the extensions {', '.join(sorted(needed))}" if missing else None
        if held == e8m0 or held in _NARROW:
            return None if "mxfp" in self.extensions else f"{held} needs the extension mxfp"
        if held in _FP8 and "mxfp" in self.extensions and serves_block_scaling(op, value):
            return None
        extension = _ELEMENT_NEEDS.get(held)
        if extension is not None:
            return (
                None if extension in self.extensions else f"{held} needs the extension {extension}"
            )
        if held in (f32, f16):
            return None if "fp" in self.profiles else f"{held} needs the profile fp"
        if held not in _ANY_PROFILE:
            return f"TOSA has no element type {held}"
        return None


def _symbolic_inputs(method: FuncOp) -> Iterator[Problem]:
    """Inputs whose sizes a call decides, for targets that want every size known."""
    for index, argument in enumerate(method.body.block.args):
        type_ = argument.type
        if isinstance(type_, TensorType) and not is_static(type_):
            yield Problem(
                f"input {argument.name_hint or index}: the shape {list(dims(type_))} is known only "
                "at run time, which needs the extension shape",
                f"method @{method.sym_name.data}",
                "name a target such as tosa-1.1+fp+shape, or export with these sizes fixed",
            )


def serves_block_scaling(op: Operation, value: SSAValue) -> bool:
    """Whether an fp8 value is the payload of a block-scaled operator."""
    if isinstance(op, _BLOCK_SCALED):
        return True
    if isinstance(op, s.ConstOp | WeightOp):
        return all(isinstance(use.operation, _BLOCK_SCALED) for use in value.uses)
    return False


def limits(op: Operation) -> str | None:
    """Why an operator exceeds level 8K, or None."""
    for value in op.results:
        if isinstance(value.type, TensorType) and len(dims(value.type)) > 6:
            return f"rank {len(dims(value.type))} is above 6"
    for name, most in (("kernel", LARGEST_KERNEL), ("stride", LARGEST_STRIDE)):
        attribute = op.properties.get(name)
        if attribute is not None and max(ints(attribute)) > most:
            return f"{name} {ints(attribute)} is above {most}"
    if isinstance(op, t.Conv2dOp | t.DepthwiseConv2dOp | t.Conv3dOp):
        shape = dims(op.weight.type)
        spatial = shape[:2] if isinstance(op, t.DepthwiseConv2dOp) else shape[1:-1]
        dilation = ints(op.dilation)
        for size, step in zip(spatial, dilation, strict=True):
            if isinstance(size, int) and size * step > LARGEST_KERNEL:
                return f"a kernel of {size} with dilation {step} is above {LARGEST_KERNEL}"
    return None


def parse_target(name: str) -> TosaTarget:
    """The target of a name such as `tosa-1.1+fp+mxfp`.

    Raises:
        StepwellError: an unknown version, profile or extension, or none.
    """
    head, *parts = name.split("+")
    version = head.removeprefix("tosa-")
    if version not in VERSIONS:
        raise StepwellError(
            f"there is no TOSA version {version!r}", help=f"versions are {', '.join(VERSIONS)}"
        )
    unknown = [part for part in parts if part not in PROFILES and part not in EXTENSIONS]
    if unknown:
        known = ", ".join((*PROFILES, *EXTENSIONS))
        raise StepwellError(f"TOSA has no {unknown[0]!r}", help=f"it has {known}")
    profiles = frozenset(parts) & frozenset(PROFILES)
    if not profiles:
        raise StepwellError(
            f"target {name!r} names no profile", help="add +fp, +int or both: tosa-1.0+fp"
        )
    extensions = frozenset(parts) - profiles
    early = sorted(e for e in extensions if EXTENSIONS[e] > version)
    if early:
        raise StepwellError(
            f"extension {early[0]} came with TOSA {EXTENSIONS[early[0]]}",
            help=name.replace(f"tosa-{version}", f"tosa-{EXTENSIONS[early[0]]}"),
        )
    return TosaTarget(version, profiles, extensions)

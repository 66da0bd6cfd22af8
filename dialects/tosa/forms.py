"""The element types of each operator, and the profiles and extensions that they require.

These are the tables "Supported Data Types" of the specification, 1.1 draft, as in tosa-tools
2026.8. A row such as `int: i8>i32, i16>i32` means: with the profile int, from i8 or i16 to i32. The
listed types of an operator, in order, are its *signature*: the element types of the first operand
and the first result unless `_SIGNATURES` defines another, and a single type if both are equal. All
other types follow from these by the operator's shape rule. `any` is either profile, `a+b` is both,
`1.1` the version that introduced the row. Element types have MLIR's names, MX payloads the
specification's, and a block-scaled type is `mx:` and its payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product

from xdsl.dialects.builtin import TensorType, UnrankedTensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.tosa import generated as t
from stepwell.dialects.tosa import structural as s
from stepwell.dialects.tosa.attributes import BlockScaledType
from stepwell.dialects.tosa.base import TosaOp
from stepwell.dialects.tosa.codes import PAYLOAD_ELEMENTS, e8m0, i4, i48
from stepwell.ir.dtypes import bf16, f16, f32, i1, i8, i16, i32, i64

Signature = tuple[Attribute, ...]
Needs = frozenset[str]
"""Profiles, extensions and possibly `1.1`: a target must have all of them."""

MX_EXTENSIONS = {
    "fp8e4m3": "mx_fp8e4m3",
    "fp8e5m2": "mx_fp8e5m2",
    "fp6e2m3": "mx_fp6e2m3",
    "fp6e3m2": "mx_fp6e3m2",
    "fp4e2m1": "mx_fp4e2m1",
    "mxint8": "mx_int8",
}
"""The extension that allows block-scaled types of a payload, together with `mx_common`."""

_NAMES: dict[str, Attribute] = {
    **{str(held): held for held in (i1, i4, i8, i16, i32, i48, i64, f16, bf16, f32)},
    **PAYLOAD_ELEMENTS,
    "e8m0": e8m0,
    **{f"mx:{name}": BlockScaledType(e8m0, element) for name, element in PAYLOAD_ELEMENTS.items()},
}
_FP8 = ("fp8e4m3", "fp8e5m2")


def _each(row: str, names: Iterable[str] = MX_EXTENSIONS) -> str:
    """Instantiate a row for each name: `@` becomes the name and `&` its MX extension."""
    return "; ".join(row.replace("@", n).replace("&", MX_EXTENSIONS[n]) for n in names)


_FLOATS = "fp: f16, f32; bf16: bf16"
_BYTES = _each("@: @", _FP8)
_NUMBERS = f"int: i32; int64: i64; {_FLOATS}"
_WHOLE = "int: i8, i16, i32; int64: i64"
_MOVED = f"any: i1; {_WHOLE}; {_BYTES}; {_FLOATS}"
_SCALED = _each("mx_common+&+1.1: mx:@")
_POOLED = f"int: i8; int16: i16; {_BYTES}; {_FLOATS}"
_AVERAGED = (
    f"int: i8>i32; int16: i16>i32; {_each('@: @>f16', _FP8)}; fp: f16, f16>f32, f32; bf16: bf16>f32"
)
_BY_I32 = f"fp: f16>i32, f32>i32; bf16: bf16>i32; {_each('@: @>i32', _FP8)}"
_BY_I64 = f"fp+int64: f16>i64, f32>i64; bf16+int64: bf16>i64; {_each('@+int64: @>i64', _FP8)}"
_GATHERED = (
    "int: i8>i32, i16>i32, i32; fp+1.1: i8>i32, i16>i32, i32; any+1.1: i1>i32;"
    f" int64: i1>i64, i8>i64, i16>i64, i32>i64, i64; {_BY_I32}; {_BY_I64}"
)
_CONVOLVED = (
    "int: i8>i8>i32>i32; int4: i8>i4>i32>i32; int16: i16>i8>i48>i48;"
    f" {_each('@: @>@>f16>f16; @+1.1: @>@>f32>f32', _FP8)};"
    " fp: f16>f16>f16>f16, f16>f16>f32>f16, f32>f32>f32>f32; bf16: bf16>bf16>f32>bf16"
)
_PRODUCTS = (
    "int: i8>i8>i32; int16: i16>i16>i48; fp: f16>f16>f16, f16>f16>f32, f32>f32>f32;"
    f" bf16: bf16>bf16>f32; {_each('@: @>@>f16; @+1.1: @>@>f32', _FP8)};"
    " fp8e4m3+fp8e5m2+1.1: fp8e4m3>fp8e5m2>f16, fp8e4m3>fp8e5m2>f32, fp8e5m2>fp8e4m3>f16,"
    " fp8e5m2>fp8e4m3>f32"
)
_CASTS = (
    "int: i1>i8, i1>i16, i1>i32, i8>i1, i8>i16, i8>i32, i16>i1, i16>i8, i16>i32, i32>i1, i32>i8,"
    " i32>i16; int64: i1>i64, i32>i64, i64>i1, i64>i32; fp+1.1: i1>f32, f32>i1; fp: f16>f32,"
    " f32>f16; bf16: bf16>f32, f32>bf16; "
    + "; ".join(
        f"fp: {i}>f16, {i}>f32, f16>{i}, f32>{i}; bf16: {i}>bf16, bf16>{i}"
        for i in ("i8", "i16", "i32")
    )
    + "; "
    + _each("@: @>f16, @>f32, f16>@, f32>@; @+bf16: @>bf16, bf16>@", _FP8)
)
_RESCALES = (
    "int: i8, i8>i16, i8>i32, i16, i16>i8, i16>i32, i32, i32>i8, i32>i16;"
    " int16: i48>i8, i48>i16, i48>i32"
)

_ROWS: dict[str, str] = {
    "ceil cos erf exp floor log pow reciprocal reduce_product rsqrt sigmoid sin tanh": _FLOATS,
    "abs equal greater greater_equal maximum minimum reduce_sum": _NUMBERS,
    "add sub": f"any: i32; int64: i64; {_FLOATS}",
    "mul": f"int: i8>i32, i16>i32; any: i32; int64: i64; {_FLOATS}",
    "intdiv": "any: i32; int64: i64",
    "clz": "int: i32; int64: i64",
    "logical_and logical_not logical_or logical_xor reduce_all reduce_any": "any: i1",
    "arithmetic_right_shift bitwise_and bitwise_not bitwise_or bitwise_xor": _WHOLE,
    "logical_left_shift logical_right_shift": "any: i8, i16, i32; int64: i64",
    "negate reduce_max reduce_min": f"{_WHOLE}; {_FLOATS}",
    "select": f"any: i1; {_WHOLE}; {_FLOATS}",
    "clamp": f"int: i8; int16: i16; {_FLOATS}",
    "table": "int: i8; int16: i16>i32",
    "cast": _CASTS,
    "rescale": _RESCALES,
    "identity": f"any: i1, i8, i16, i32; int4: i4; int16: i48; int64: i64; {_BYTES}; {_FLOATS}",
    "pad reverse slice tile transpose": _MOVED,
    "reshape": f"{_MOVED}; {_SCALED}",
    "concat": f"any: i1; int: i8, i32; int16: i16; int64: i64; {_BYTES}; {_FLOATS}; {_SCALED}",
    "dim": "shape: i1, i8, i16, i32; shape+int64: i64; shape+fp: f16, f32;"
    f" shape+bf16: bf16; {_each('shape+@: @', _FP8)};"
    " shape+mxfp: fp6e2m3, fp6e3m2, fp4e2m1, mxint8, e8m0",
    "argmax": "int: i8>i32; int16: i16>i32; int64: i8>i64, i16>i64, i32>i64, i64; "
    f"{_BY_I32}; {_BY_I64}",
    "gather scatter": _GATHERED,
    "row_gather": "any: i1>i32, i8>i32, i32; int16: i16>i32; int16+int64: i16>i64;"
    f" int64: i1>i64, i8>i64, i32>i64, i64, i64>i32; {_BY_I32}; {_BY_I64};"
    f" {_each('mx_common+&: mx:@>i32; mx_common+&+int64: mx:@>i64')}",
    "resize": f"int: i8, i8>i32; int16: i16, i16>i48; {_FLOATS}; {_each('@+1.1: @', _FP8)};"
    f" {_SCALED}",
    "max_pool2d max_pool2d_adaptive": _POOLED,
    "avg_pool2d avg_pool2d_adaptive": _AVERAGED,
    "conv2d conv3d depthwise_conv2d transpose_conv2d": _CONVOLVED,
    "fft2d rfft2d": "fft: f32",
    "matmul": _PRODUCTS,
    "matmul_t": "int: i8>i8>i32; int16: i16>i16>i48",
    "cast_to_block_scaled": _each("mxfp: f32>@; mxfp+bf16: bf16>@") + "; mxfp: bf16>fp4e2m1",
    "cast_from_block_scaled": _each("mxfp: @>f32; mxfp+bf16: @>bf16"),
    "matmul_t_block_scaled": _each("mxfp: @"),
    "conv2d_block_scaled": _each("mxfp_conv: @", [n for n in MX_EXTENSIONS if n != "mxint8"]),
    "reshape_block_scaled": f"{_MOVED}; {_each('mxfp: @>e8m0')}",
    "row_gather_block_scaled": f"{_GATHERED}; " + _each("mxfp: @>e8m0>i32; mxfp+int64: @>e8m0>i64"),
    "const": f"any: i1, i8, i16, i32; int4: i4; int16: i48; int64: i64; {_BYTES}; {_FLOATS};"
    f" mxfp: fp6e2m3, fp6e3m2, fp4e2m1, mxint8, e8m0; {_SCALED}",
}


def element_needs(attribute: Attribute) -> Needs:
    """Return the requirements of a float or block-scaled type, for forms that the specification
    deduces.
    """
    if isinstance(attribute, BlockScaledType):
        payload = next(
            name for name, element in PAYLOAD_ELEMENTS.items() if element == attribute.payload
        )
        return Needs(("mx_common", MX_EXTENSIONS[payload]))
    return Needs((_FLOAT_NEEDS[attribute],))


_FLOAT_NEEDS = {f16: "fp", f32: "fp", bf16: "bf16"} | {PAYLOAD_ELEMENTS[n]: n for n in _FP8}
_BLOCK_SCALED = tuple(held for name, held in _NAMES.items() if name.startswith("mx:"))
_MIXED = (*_FLOAT_NEEDS, *_BLOCK_SCALED)


def _deduced() -> Iterator[tuple[str, Signature, Needs]]:
    """Yield forms on two element types that require the extensions of both ("deduce-ext"), all of
    1.1.
    """
    for a, b in product(_MIXED, _MIXED):
        needs = element_needs(a) | element_needs(b) | {"1.1"}
        if isinstance(a, BlockScaledType) != isinstance(b, BlockScaledType):
            yield "cast", (a, b), needs
        for result in _sums(a, b):
            yield "conv2d", (a, b, f32, result), needs
            if result != f32:
                yield "conv2d", (a, b, result, result), needs
        sums = (f16, f32) if a == b == f16 else (f32,) if f32 in (a, b) else (bf16, f32)
        for result in sums:
            yield "matmul_t", (a, b, result), needs


def _sums(a: Attribute, b: Attribute) -> tuple[Attribute, ...]:
    """List the result types of a CONV2D of two element types: the wide one and f32, any if both are
    narrow.
    """
    wide = {a, b} & {f16, bf16, f32}
    if not wide:
        return (f16, bf16, f32)
    return (f32,) if len(wide) > 1 or f32 in wide else (*wide, f32)


def _element(value: SSAValue) -> Attribute | None:
    type_ = value.type
    return type_.element_type if isinstance(type_, TensorType | UnrankedTensorType) else None


def _named(*names: str) -> Callable[[Operation], Iterator[Attribute | None]]:
    """Return a function that yields the element types of operands, results or accumulators of these
    names.
    """

    def signature(op: Operation) -> Iterator[Attribute | None]:
        for name in names:
            held = getattr(op, name)
            yield _element(held) if isinstance(held, SSAValue) else held

    return signature


def _first(op: Operation) -> Iterator[Attribute | None]:
    yield _element(op.operands[0])


def _window(op: Operation) -> Iterator[Attribute | None]:
    yield from (_element(op.operands[0]), _element(op.operands[1]))
    yield from (op.properties["acc_type"], _element(op.results[0]))


def _product(op: Operation) -> Iterator[Attribute | None]:
    yield from (_element(op.operands[0]), _element(op.operands[1]), _element(op.results[0]))


def _values(op: Operation) -> Iterator[Attribute | None]:
    """Yield the element types of values, then of their scales and indices if present."""
    yield from (_element(value) for value in op.operands[:-1])


def _default(op: Operation) -> Iterator[Attribute | None]:
    yield from (_element(op.operands[0]), _element(op.results[0]))


_SIGNATURES: dict[str, Callable[[Operation], Iterator[Attribute | None]]] = {
    "equal greater greater_equal dim matmul_t_block_scaled conv2d_block_scaled": _first,
    "select": _named("input2"),
    "const": _named("output"),
    "gather row_gather": _named("values", "indices"),
    "scatter": _named("values_in", "indices"),
    "avg_pool2d avg_pool2d_adaptive": _named("input", "acc_type"),
    "conv2d conv3d depthwise_conv2d transpose_conv2d": _window,
    "matmul matmul_t": _product,
    "reshape_block_scaled row_gather_block_scaled": _values,
}


def _parsed(rows: str) -> Iterator[tuple[Signature, Needs]]:
    for row in rows.split(";"):
        needs, _, types = row.partition(":")
        for held in types.split(","):
            signature = tuple(_NAMES[name] for name in held.strip().split(">"))
            yield signature, Needs(needs.strip().split("+")) - {"any"}


def _tables() -> dict[type[Operation], dict[Signature, tuple[Needs, ...]]]:
    known: tuple[type[TosaOp], ...] = (*t.OPERATORS, *s.STRUCTURAL)
    classes = {cls.name.removeprefix("tosa."): cls for cls in known}
    tables: dict[type[Operation], dict[Signature, tuple[Needs, ...]]] = {}

    def add(name: str, signature: Signature, needs: Needs) -> None:
        table = tables.setdefault(classes[name], {})
        held = table.get(signature, ())
        if not any(other <= needs for other in held):
            table[signature] = (*held, needs)

    for names, rows in _ROWS.items():
        for name in names.split():
            for signature, needs in _parsed(rows):
                add(name, signature, needs)
    for name, signature, needs in _deduced():
        add(name, signature, needs)
    return tables


FORMS = _tables()
"""Operator → signature → alternative requirements of a target."""

_SIGNATURE_OF = {
    f"tosa.{name}": function for names, function in _SIGNATURES.items() for name in names.split()
}
_SPELLED = {held: name for name, held in _NAMES.items()}


def signature_of(op: Operation) -> Signature:
    """Return the element types that select an operator's form; None for values that are not
    tensors.
    """
    found = tuple(_SIGNATURE_OF.get(op.name, _default)(op))
    return found[:1] if len(found) == 2 and found[0] == found[1] else found  # pyright: ignore


def has_form(op: Operation) -> bool:
    """Whether some target supports an operator's element types; operators without a table have no
    types to check.
    """
    table = FORMS.get(type(op))
    return table is None or signature_of(op) in table


def no_form(op: Operation) -> str:
    """Describe that an operator does not support its element types, and which types it supports."""
    table = FORMS[type(op)]
    found = signature_of(op)
    first = dict.fromkeys(spelled(signature[:1]) for signature in table)
    others = [signature for signature in table if signature[:1] == found[:1]]
    if others:
        known = "; ".join(spelled(signature) for signature in others[:6])
        return f"has no form on {spelled(found)}; it has {known}{' and more' if others[6:] else ''}"
    return f"has no form on {spelled(found)}; it supports {', '.join(first)}"


def spelled(signature: Signature) -> str:
    """Format a signature: `i8 > i32`."""
    return " > ".join(_SPELLED.get(held, str(held)) for held in signature)

"""Emit one ATen op as one kernel call, whose arguments are values of the method.

The runtime's kernels read each value as the type in their schema and abort on another, so an
int passed for a `float` becomes a double here. Layout arguments (memory format, layout, device)
have no meaning inside a program whose tensors are all row-major and are passed as None.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.backends.executorch.kernels.kernel_tables import registrations
from stepwell.backends.executorch.kernels.scalar_types import scalar_type
from stepwell.backends.executorch.kernels.signatures import KernelSignature, kernel_for
from stepwell.backends.executorch.writing.builder import MethodBuilder
from stepwell.dialects import aten
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.reshapes import only_reshapes
from stepwell.dialects.aten.schema import Argument
from stepwell.ir.diagnostics import StepwellError, describe_op
from stepwell.ir.dtypes import (
    bf16,
    complex64,
    dtype_name,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    is_float,
    torch_dtype,
    ui8,
)
from stepwell.ir.signature import least_of
from stepwell.ir.sizes.size import is_of_data
from stepwell.ir.types import dims, element, is_static
from stepwell.translate.decompositions.traced.integers import BY_LONG, JOINED, PRODUCTS, SMALL
from stepwell.translate.rewrites.views.memory import is_laid_out

NEGATIVE, EXTREME, SPECIAL = "negative numbers", "large numbers", "special numbers"
"""Situations in which kernels were tested: contents of a tensor, known only at run time."""
SCALAR, EMPTY, BROADCAST = "a tensor without axes", "an empty tensor", "shapes that broadcast"
EMPTY_RESULT, RANK = "an empty result", "rank {}"
"""Situations: shapes of tensors."""
FRACTION, BELOW, BEYOND = "a fraction", "a number below 0", "a number above 7"
"""Situations: values of a number argument."""

REFUSALS = Path(__file__).with_name("kernel_dtypes.json")
"""What kernels refuse or get wrong, from `tools/generate_kernel_dtypes.py`."""
SITUATIONS: dict[str, dict[str, dict[str, str]]] = json.loads(REFUSALS.read_text(encoding="utf-8"))
"""Situation → kernel → verdict → element types, beyond what usual calls refuse."""
REFUSED = SITUATIONS.pop("")
"""Kernel → verdict → the element types of usual calls."""

_LAYOUT = frozenset({"MemoryFormat", "Layout", "Device", "Generator"})

BY_STRIDES = frozenset(
    f"aten.{name}.default" for name in ("as_strided", "as_strided_copy", "as_strided_scatter")
)
"""Ops that read memory by strides, which a program does not define; static ones are gathers by now.

Those with symbolic sizes come from decompositions (`chunk`), and read what was just written.
"""


_BY_LONG = frozenset(map(str, BY_LONG))
_JOINED = frozenset(map(str, JOINED))
_PRODUCTS = frozenset(map(str, PRODUCTS))


def kernel_of(cls: type[SchemaOp]) -> KernelSignature | None:
    """Return the kernel that computes an op class, or None if the runtime has none."""
    return _kernel_of(cls, registrations())


@cache
def _kernel_of(cls: type[SchemaOp], registered: int) -> KernelSignature | None:
    return kernel_for(cls.SCHEMA)


Holds = Callable[[SchemaOp], bool]


def _rank(op: SchemaOp, operand: int = 0) -> int:
    return len(dims(op.operands[operand].type))


def _counts_in_its_type(op: SchemaOp) -> bool:
    """Whether PyTorch computes the size of an `arange` in its element type, as the kernel does."""
    given = [op.arg(a.name) for a in op.SCHEMA.arguments if a.type.base == "Scalar"]
    is_whole = not is_float(element(op.results[0].type))
    return not any(
        isinstance(n, bool) or (is_whole and isinstance(n, float) and not n.is_integer())
        for n in given
    )


def _has_elements(op: SchemaOp) -> bool:
    return not any(0 in dims(value.type) for value in op.operands)


_FROM_THE_FRONT: tuple[Holds, str] = (
    lambda op: op.arg("dim") >= 0,
    "its kernel ends the process for an axis counted from the end",
)
_NO_EMPTY_PIECE: tuple[Holds, str] = (
    lambda op: 0 not in op.arg("split_sizes"),
    "its kernel refuses some empty pieces",
)
_COUNTS: tuple[Holds, str] = (
    _counts_in_its_type,
    "its kernel counts the elements of an arange in their own type",
)
PRECONDITIONS: dict[str, tuple[Holds, str]] = {
    "aten.convolution.default": (
        lambda op: _rank(op) in (3, 4),
        "its kernel convolves batches of lines and of images only",
    ),
    "aten.constant_pad_nd.default": (
        lambda op: not any(isinstance(n, int) and n < 0 for n in op.arg("pad")),
        "its kernel crops nothing: write a negative amount as a slice",
    ),
    "aten.linear.default": (
        lambda op: _rank(op, 1) == 2 and _rank(op) > 0,
        "its kernel takes no weight but a matrix",
    ),
    "aten.max_pool2d_with_indices_backward.default": (
        lambda op: False,
        "its kernel gives something else than PyTorch's",
    ),
    "aten.hardtanh.default": (
        lambda op: element(op.results[0].type) != ui8 or op.arg("min_val") >= 0,
        "its kernel takes no negative bound of uint8",
    ),
    "aten._fft_r2c.default": (
        lambda op: op.arg("onesided"),
        "its kernel gives half of the points only (`onesided`)",
    ),
    "aten.roll.default": (
        lambda op: bool(op.arg("dims")),
        "its kernel rolls along named axes, not all elements as one",
    ),
    "aten.narrow.default": _FROM_THE_FRONT,
    "aten.narrow_copy.default": _FROM_THE_FRONT,
    "aten.arange.default": _COUNTS,
    "aten.arange.start": _COUNTS,
    "aten.arange.start_step": _COUNTS,
    "aten.addmm.default": (
        lambda op: element(op.results[0].type) != i1 or _has_elements(op),
        "its kernel refuses empty matrices of bool",
    ),
    "aten.split_with_sizes.default": _NO_EMPTY_PIECE,
    "aten.split_with_sizes_copy.default": _NO_EMPTY_PIECE,
    "quantized_decomposed.choose_qparams.tensor": (
        lambda op: op.arg("quant_max") - op.arg("quant_min") < 2**31,
        "its kernel counts the steps between quant_min and quant_max in 32 bits",
    ),
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default": (
        lambda op: _rank(op) > 0,
        "its kernel needs an axis",
    ),
    "quantized_decomposed.quantize_per_token.default": (
        lambda op: element(op.operands[1].type) == f64,
        "its kernel takes scales of float64 only",
    ),
}
"""What a kernel checks, or takes for granted, beyond element types: by running every form of it
that PyTorch's samples have (`tools/kernel_preconditions.py`)."""


def kernel_limit(op: SchemaOp) -> str | None:
    """Return why the kernel of an op's class cannot run this op, as found by running kernels, or
    None.
    """
    gives_list = any(returned.type.is_list for returned in op.SCHEMA.returns)
    if gives_list and not all(is_static(result.type) for result in op.results):
        return "its kernel does not resize its outputs, so their shapes must be static"
    holds, reason = PRECONDITIONS.get(op.name, (lambda _: True, ""))
    if not holds(op):
        return reason
    if op.name in _BY_LONG and element(op.operands[1].type) != i64:
        return "its kernel takes indices of int64 only: index.long()"
    if op.name == "aten.upsample_bilinear2d.vec" and element(op.operands[0].type) == f64:
        return "its kernel weighs pixels in single precision"
    if op.name in _JOINED and len({*_elements(op.operands), *_elements(op.results)}) > 1:
        return "its kernel copies bytes, and its operands are of several dtypes"
    between = dims(op.operands[0].type)[-1] if op.name in _PRODUCTS else 1
    if is_of_data(between) and least_of(between, op) < 1:
        return "its kernel does not write the result of a product over an empty axis"
    source = op.operands[0] if op.name in BY_STRIDES else None
    if source is not None and is_static(source.type) and not is_laid_out(source):
        return "its kernel reads row by row, and how its operand lies is not known: x.contiguous()"
    signature = kernel_of(type(op))
    if signature is None:
        return None
    if reason := uncomputed(op, signature):
        return reason
    text = signature_text(_elements(op.operands), _elements(op.results))
    for verdict, texts in REFUSED.get(signature.kernel, {}).items():
        if text in texts.split(", "):
            return f"its kernel {_TRIED[verdict]} element types {text}"
    for situation in situations(op):
        for verdict, texts in SITUATIONS.get(situation, {}).get(signature.kernel, {}).items():
            if {text, _NARROW.get(text, text), _widened(op)} & set(texts.split(", ")):
                return f"its kernel {_TRIED[verdict]} {situation} of element types {text}"
    return None


_NARROW: dict[str, str] = dict.fromkeys(("i8 -> i8", "i16 -> i16", "ui8 -> ui8"), "i32 -> i32")
"""A fault on wide integers in some situation is assumed for narrow integers, too."""


def _widened(op: SchemaOp) -> str | None:
    """Return an op's signature with all integers in the result's type, to which kernels convert.

    The result is None for other ops. The table of measured kernels has mixed types only for
    ordinary numbers, and sums only in int64.
    """
    elements, made = _elements(op.operands), _elements(op.results)
    whole = all(not is_float(held) for held in (*elements, *made))
    if whole and op.name == "aten.sum.dim_IntList" and made != [i64]:
        return signature_text([i64], [i64])
    return signature_text(made, made) if whole and len(set(elements)) > 1 else None


def situations(op: SchemaOp) -> Iterator[str]:
    """Yield the special cases of an op (empty, broadcast, …) by which the table lists faults."""
    tensors = [v for v in op.operands if isinstance(v.type, TensorType)]
    shapes = [dims(value.type) for value in tensors]
    if not is_counted(op):
        yield from (NEGATIVE, EXTREME)
    if shapes:
        yield RANK.format(len(shapes[0]))
    if shapes and not shapes[0]:
        yield SCALAR
    if len(set(shapes)) > 1:
        yield BROADCAST
    if any(0 in shape for shape in shapes):
        yield EMPTY
    results = [dims(r.type) for r in op.results if isinstance(r.type, TensorType)]
    if results and all(0 in shape for shape in results):
        yield EMPTY_RESULT  # Not if only one of several results is empty, as in batch norm.
    for argument in op.SCHEMA.arguments:
        if argument.type.base == "Scalar" and not argument.type.is_list:
            yield from _situations_of_number(op.arg(argument.name))


def _situations_of_number(number: Any) -> Iterator[str]:
    if isinstance(number, float):
        yield FRACTION
    if isinstance(number, int | float) and number < 0:
        yield BELOW
    if isinstance(number, int | float) and number > SMALL:
        yield BEYOND


def is_counted(op: SchemaOp) -> bool:
    """Whether an op sums integers that are small for all inputs, such as a mask."""
    if op.name != "aten.sum.dim_IntList" or not is_static(op.operands[0].type):
        return False
    cast_ = op.operands[0].owner
    source = op.operands[0] if not isinstance(cast_, aten._ToCopyDefault) else cast_.operands[0]
    source_element = element(source.type)
    limits: dict[Attribute, int] = {i1: 1, ui8: 2**8, i8: 2**7, i16: 2**15}
    limit = limits.get(source_element)
    size = math.prod(cast(tuple[int, ...], dims(source.type)))
    return limit is not None and size * limit < SINGLE


SINGLE = 2**24
"""Up to this number, single precision represents every integer."""

_COMPUTED = frozenset((ui8, i8, i16, i32, i64, f16, bf16, f32, f64, i1))
"""Element types for which kernels have code."""

_COPIES = frozenset(
    f"aten::{name}"
    for name in (
        "clone.out copy.out embedding.out expand_copy.out index_select.out repeat.out "
        "select_copy.int_out slice_copy.Tensor_out squeeze_copy.dim_out unsqueeze_copy.out "
        "view_copy.out"
    ).split()
) | {"dim_order_ops::_clone_dim_order.out"}
"""Kernels that copy bytes of any type."""

_PLAIN = frozenset({"aten", "dim_order_ops"})
"""Namespaces whose kernels share one set of element types; quantizing kernels have their own."""


_FOURIER = frozenset(
    f"aten::{name}.out"
    for name in ("_fft_r2c", "_fft_c2r", "abs", "permute_copy", "view_as_real_copy")
)
"""Kernels that are called with complex numbers of single precision."""


def uncomputed(op: SchemaOp, signature: KernelSignature) -> str | None:
    """Return the name of an op's element type for which its kernel has no code, or None.

    Decomposition does not help, because the parts have the same type.
    """
    if op.SCHEMA.namespace in _PLAIN and signature.kernel not in _COPIES:
        for held in (*_elements(op.operands), *_elements(op.results)):
            is_complex = signature.kernel in _FOURIER and held == complex64
            if held not in _COMPUTED and not is_complex:
                return f"its kernel does not take {dtype_name(held)}"
    return None


_TRIED = {
    "fails": "does not take",
    "aborts": "ends the process for",
    "differs": "computes something else for",
}
"""The result of running it, in words."""


def signature_text(inputs: Iterable[Attribute], outputs: Iterable[Attribute]) -> str:
    """Format the distinct element types of operands and results: `f32+i64 -> f32`."""
    return " -> ".join("+".join(sorted({str(e) for e in side})) for side in (inputs, outputs))


def _elements(values: Iterable[SSAValue]) -> list[Attribute]:
    return [element(value.type) for value in values if isinstance(value.type, TensorType)]


def runs_as_kernel(op: SchemaOp) -> bool:
    """Whether an op needs only a kernel call, or no call at all."""
    if is_reshape(op):
        return True
    return kernel_of(type(op)) is not None and kernel_limit(op) is None


def is_reshape(op: SchemaOp) -> bool:
    """Whether the result has the operand's elements in the same row-major order.

    Such an op needs no kernel: its result is another tensor value over the same bytes. A complex
    number is a real and an imaginary part.
    """
    is_of_pairs = isinstance(op, aten.ViewAsRealDefault | aten.ViewAsComplexDefault)
    return (only_reshapes(op) or is_of_pairs) and all(
        is_static(value.type) for value in (op.operands[0], op.results[0])
    )


def argument_value(
    builder: MethodBuilder,
    op: SchemaOp,
    argument: Argument,
    value: Any,
    lookup: Callable[[SSAValue], int],
) -> int:
    """Return the index of the method's value for one kernel argument.

    Args:
        builder: the method being built.
        op: the called op, for errors.
        argument: the kernel's own declaration of the argument.
        value: the op's value of it: Python values, element types, SSA values, or lists.
        lookup: returns the index of the method's value for an SSA value.
    """
    type_ = argument.type
    if type_.base in _LAYOUT or value is None:
        return builder.scalar(None)
    if argument.name == "non_blocking":
        return builder.scalar(False)  # Of a copy in one memory it says nothing; kernels refuse it.
    if not type_.is_list:
        return (
            lookup(value) if isinstance(value, SSAValue) else _scalar(builder, op, argument, value)
        )
    items = cast(list[Any], value if isinstance(value, list | tuple) else [value])
    if type_.base == "Tensor":
        indices = [None if item is None else lookup(item) for item in items]
        return builder.tensors(indices, optional=type_.element_nullable)
    if type_.base in ("int", "SymInt"):
        return builder.list_of_ints(
            [
                lookup(item) if isinstance(item, SSAValue) else builder.scalar(int(item))
                for item in items
            ]
        )
    if type_.base in ("float", "bool") and not any(isinstance(i, SSAValue) for i in items):
        return builder.floats(items) if type_.base == "float" else builder.bools(items)
    raise _no_value(op, argument, value)


def _scalar(builder: MethodBuilder, op: SchemaOp, argument: Argument, value: Any) -> int:
    match argument.type.base:
        case "int" | "SymInt":
            return builder.scalar(int(value))
        case "float":
            return builder.scalar(float(value))
        case "bool" | "SymBool":
            return builder.scalar(bool(value))
        case "Scalar" if isinstance(value, bool | int | float):
            return builder.scalar(value)
        case "str":
            return builder.scalar(str(value))
        case "ScalarType" if isinstance(value, Attribute):
            return builder.scalar(int(scalar_type(torch_dtype(value))))
        case _:
            raise _no_value(op, argument, value)


def _no_value(op: SchemaOp, argument: Argument, value: Any) -> StepwellError:
    return StepwellError(
        f"{op.name}: argument {argument.name} = {value!r} cannot be represented in a .pte as "
        f"{argument.type}",
        describe_op(op),
    )

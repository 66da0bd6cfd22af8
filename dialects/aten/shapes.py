"""Shape inference of frequent operators, as torch's kernels define it.

Rules that compute with sizes accept numbers only; those that move or compare them accept symbolic
sizes too. A rule returns None if it does not apply (promotion, an unusual argument, operands that
torch rejects); then torch is used. A test compares every rule with torch's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeGuard

from xdsl.dialects.builtin import ComplexType, TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.declared.families import Family, families_of
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import bf16, f16, f32, f64, i1
from stepwell.ir.sizes.size import UNKNOWN
from stepwell.ir.types import Dim, dims, element, tensor

Rule = Callable[[SchemaOp], Sequence[Attribute] | None]
_SHAPE_INFERENCE: dict[str, Rule] = {}
TO_THE_END = 2**63 - 1
"""The value that torch writes for the end of a slice that runs to the end."""


def is_float(kind: Attribute) -> bool:
    """Whether torch computes in a float type; operators on 8-bit floats are left to torch."""
    return kind in (f32, f16, bf16, f64)


def rule_for(name: str) -> Rule | None:
    """Return the shape rule of an operator, or that of its family."""
    if (rule := _SHAPE_INFERENCE.get(name)) is not None:
        return rule
    families = families_of(name)
    if "normalization" in families:
        return _normalization
    return _function if "elementwise" in families and families.isdisjoint(_OTHER_TYPES) else None


_OTHER_TYPES: frozenset[Family] = frozenset(("comparison", "cast", "choice"))


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            full = name if name.startswith("quantized_decomposed.") else f"aten.{name}"
            assert full not in _SHAPE_INFERENCE, full
            _SHAPE_INFERENCE[full] = rule
        return rule

    return register


def _sizes(value: SSAValue | None) -> tuple[Dim, ...] | None:
    """Return the sizes, symbolic ones as expressions; for rules that move or compare them."""
    if value is None or not isinstance(value.type, TensorType):
        return None
    value_dims = dims(value.type)
    return None if UNKNOWN in value_dims else value_dims


def _shape(value: SSAValue | None) -> tuple[int, ...] | None:
    """Return the sizes if all are numbers; for rules that compute with them."""
    sizes = _sizes(value)
    if sizes is None or not _are_numbers(sizes):
        return None
    return sizes


def _are_numbers(sizes: tuple[Dim, ...]) -> TypeGuard[tuple[int, ...]]:
    return all(isinstance(size, int) for size in sizes)


def _axis(number: int, rank: int) -> int | None:
    at = number + rank if number < 0 else number
    return at if 0 <= at < rank else None


@_rule("clone.default", "detach.default", "alias.default", "dropout.default")
def _like_operand(op: SchemaOp) -> Sequence[Attribute] | None:
    type_ = op.operands[0].type
    return [type_] if len(op.operands) == 1 and is_float(element(type_)) else None


def _function(op: SchemaOp) -> Sequence[Attribute] | None:
    """Return the type of an elementwise function of one tensor."""
    schema = op.SCHEMA
    if len(schema.returns) != 1 or schema.operator in ("float_power", "__lshift__", "__rshift__"):
        return None  # Some have a type of their own, or are for integers alone.
    bases = [argument.type.base for argument in schema.arguments]
    scalars = [op.arg(a.name) for a in schema.arguments if a.type.base == "Scalar"]
    if bases.count("Tensor") != 1 or "ScalarType" in bases:
        return None
    if any(isinstance(scalar, complex) for scalar in scalars):
        return None
    if scalars and all(scalar is None for scalar in scalars):
        return None  # Torch refuses a clamp without bounds.
    return _like_operand(op)


@_rule("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum.default", "minimum.default")
def _broadcast(op: SchemaOp) -> Sequence[Attribute] | None:
    if len(op.operands) != 2:
        return None
    one, other = op.operands
    if one.type == other.type and isinstance(one.type, TensorType):
        return [one.type] if is_float(element(one.type)) else None
    a, b = _sizes(one), _sizes(other)
    if a is None or b is None or element(one.type) != element(other.type):
        return None
    if not is_float(element(one.type)):
        return None
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    if any(m != n and 1 not in (m, n) for m, n in zip(a, b, strict=True)):
        return None
    joined = [n if m == 1 else m for m, n in zip(a, b, strict=True)]
    return [tensor(joined, element(one.type))]


@_rule("eq.Scalar", "ne.Scalar", "lt.Scalar", "le.Scalar", "gt.Scalar", "ge.Scalar")
def _comparison(op: SchemaOp) -> Sequence[Attribute] | None:
    shape = _sizes(op.operands[0])
    if shape is None or len(op.operands) != 1 or isinstance(op.arg("other"), complex):
        return None
    return [tensor(shape, i1)] if is_float(element(op.operands[0].type)) else None


@_rule("view.default", "reshape.default")
def _view(op: SchemaOp) -> Sequence[Attribute] | None:
    shape = _shape(op.operands[0])
    sizes = op.arg("size" if op.name == "aten.view.default" else "shape")
    if -1 in sizes and 0 in sizes:
        return None  # With no elements -1 may be any size, which torch rejects.
    if shape is None or len(op.operands) != 1 or any(size < -1 for size in sizes):
        return None
    count = prod(shape)
    if -1 in sizes:
        rest = -prod(sizes)
        if sizes.count(-1) != 1 or rest == 0 or count % rest:
            return None
        sizes = [count // rest if size == -1 else size for size in sizes]
    return [tensor(sizes, element(op.operands[0].type))] if prod(sizes) == count else None


@_rule("permute.default")
def _permute(op: SchemaOp) -> Sequence[Attribute] | None:
    shape = _sizes(op.operands[0])
    if shape is None:
        return None
    found = [_axis(axis, len(shape)) for axis in op.arg("dims")]
    order = [axis for axis in found if axis is not None]
    if None in found or sorted(order) != list(range(len(shape))):
        return None
    return [tensor([shape[axis] for axis in order], element(op.operands[0].type))]


@_rule("transpose.int")
def _transpose(op: SchemaOp) -> Sequence[Attribute] | None:
    shape = _sizes(op.operands[0])
    if shape is None:
        return None
    one, other = _axis(op.arg("dim0"), len(shape)), _axis(op.arg("dim1"), len(shape))
    if one is None or other is None:
        return None
    sizes = list(shape)
    sizes[one], sizes[other] = sizes[other], sizes[one]
    return [tensor(sizes, element(op.operands[0].type))]


@_rule("slice.Tensor", "slice_copy.Tensor")
def _slice(op: SchemaOp) -> Sequence[Attribute] | None:
    shape, step = _sizes(op.operands[0]), op.arg("step")
    at = None if shape is None else _axis(op.arg("dim"), len(shape))
    bounds = (op.arg("start") or 0, TO_THE_END if op.arg("end") is None else op.arg("end"))
    if shape is None or at is None or not all(isinstance(n, int) for n in (*bounds, step)):
        return None
    size = shape[at]
    if isinstance(size, int) and step > 0:
        size = len(range(size)[slice(*bounds, step)])
    elif bounds != (0, TO_THE_END) or step != 1:
        return None
    return [tensor([*shape[:at], size, *shape[at + 1 :]], element(op.operands[0].type))]


@_rule("expand.default", "expand_copy.default")
def _expand(op: SchemaOp) -> Sequence[Attribute] | None:
    shape, asked = _sizes(op.operands[0]), op.arg("size")
    added = len(asked) - len(shape or ())
    if shape is None or added < 0 or not all(isinstance(n, int) and n >= -1 for n in asked):
        return None
    sizes: list[Dim] = list(asked)
    for at, size in enumerate(shape, added):
        if asked[at] == -1 or asked[at] == size:
            sizes[at] = size
        elif size != 1:
            return None
    return None if -1 in sizes else [tensor(sizes, element(op.operands[0].type))]


@_rule("constant_pad_nd.default")
def _pad_by_nothing(op: SchemaOp) -> Sequence[Attribute] | None:
    sizes, amounts = _sizes(op.operands[0]), op.arg("pad")
    if sizes is None or any(amounts) or len(amounts) % 2 or len(amounts) > 2 * len(sizes):
        return None
    return [op.operands[0].type]


@_rule("linear.default")
def _linear(op: SchemaOp) -> Sequence[Attribute] | None:
    sizes, weight = _sizes(op.operands[0]), _shape(op.operands[1])
    bias = _shape(op.operands[2]) if len(op.operands) == 3 else None
    if not sizes or weight is None or len(weight) != 2 or sizes[-1] != weight[1]:
        return None
    if bias not in (None, weight[:1]) or not _one_float(op):
        return None
    return [tensor([*sizes[:-1], weight[0]], element(op.operands[0].type))]


_GATES = {"aten.lstm.input": 4, "aten.gru.input": 3}
"""Products of each feature of the state; torch's kernels do not check them, and crash."""
RECURRENT = ("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")


@_rule(*RECURRENT)
def _recurrence(op: SchemaOp) -> Sequence[Attribute] | None:
    """Return the types of an RNN's results: time steps of the input, features of the hidden state.

    torch's inference would replace a symbolic number of steps by that of the example.
    """
    sizes, hidden = _sizes(op.operands[0]), _sizes(op.operands[1])
    if sizes is None or hidden is None or not isinstance(hidden[-1], int):
        return None
    features = hidden[-1] * (2 if op.arg("bidirectional") else 1)
    states = op.operands[1 : op.SCHEMA.result_count]
    weight, inner = _shape(op.arg("params")[0]), _sizes(states[-1])
    if weight is None or inner is None or not isinstance(inner[-1], int):
        return None
    if weight[0] != (rows := _GATES.get(op.name, 1) * inner[-1]):
        raise StepwellError(f"{op.name}: the weight has {weight[0]} rows, not {rows}")
    return [
        tensor([*sizes[:-1], features], element(op.operands[0].type)),
        *(state.type for state in states),
    ]


@_rule("mm.default", "bmm.default")
def _product(op: SchemaOp) -> Sequence[Attribute] | None:
    one, other = _sizes(op.operands[0]), _sizes(op.operands[1])
    rank = 2 if op.name == "aten.mm.default" else 3
    if one is None or other is None or not len(one) == len(other) == rank:
        return None
    if one[-1] != other[-2] or one[:-2] != other[:-2] or not _one_float(op):
        return None
    return [tensor([*one[:-1], other[-1]], element(op.operands[0].type))]


def _one_float(op: SchemaOp) -> bool:
    kinds = {element(value.type) for value in op.operands}
    return len(kinds) == 1 and is_float(next(iter(kinds)))


@_rule("conv2d.default", "conv1d.default")
def _convolution(op: SchemaOp) -> Sequence[Attribute] | None:
    given, weight = _sizes(op.operands[0]), _shape(op.operands[1])
    bias = _shape(op.operands[2]) if len(op.operands) == 3 else None
    spatial = 2 if op.name == "aten.conv2d.default" else 1
    if given is None or weight is None or not len(given) == len(weight) == spatial + 2:
        return None
    batch, cells = given[0], given[1:]
    if not _are_numbers(cells):
        return None
    groups = op.arg("groups")
    if groups < 1 or cells[0] != weight[1] * groups or weight[0] % groups or not _one_float(op):
        return None
    if bias not in (None, weight[:1]) or 0 in given or 0 in weight:
        return None
    sizes: list[int] = []
    strides, paddings, dilations = op.arg("stride"), op.arg("padding"), op.arg("dilation")
    if not len(strides) == len(paddings) == len(dilations) == spatial:
        return None
    for axis in range(spatial):
        reach = dilations[axis] * (weight[2 + axis] - 1) + 1
        slack = cells[1 + axis] + 2 * paddings[axis] - reach
        if slack < 0 or strides[axis] < 1 or dilations[axis] < 1 or paddings[axis] < 0:
            return None
        sizes.append(slack // strides[axis] + 1)
    return [tensor([batch, weight[0], *sizes], element(op.operands[0].type))]


def _normalization(op: SchemaOp) -> Sequence[Attribute] | None:
    """Return the type of a normalization along an axis, trailing axes, or all axes but the
    channels.
    """
    shape, arguments = _sizes(op.operands[0]), op.SCHEMA.by_name
    if not shape or not _one_float(op) or len(op.results) != 1:
        return None
    changing = [name for name in ("dtype", "half_to_float", "training") if name in arguments]
    if any(op.arg(name) not in (None, False) for name in changing):
        return None
    if "dim" in arguments:
        return None if _axis(op.arg("dim"), len(shape)) is None else [op.operands[0].type]
    if "normalized_shape" in arguments:
        expected: tuple[Dim, ...] = tuple(op.arg("normalized_shape"))
        if not expected or shape[-len(expected) :] != expected:
            return None
    elif "training" in arguments and len(shape) > 1:
        expected = shape[1:2]
    else:
        return None
    fits = all(_shape(value) == expected for value in op.operands[1:])
    return [op.operands[0].type] if fits else None


@_rule("mean.dim", "sum.dim_IntList", "amax.default", "logsumexp.default")
def _reduction(op: SchemaOp) -> Sequence[Attribute] | None:
    shape, arg = _sizes(op.operands[0]), op.arg("dim")
    has_type = "dtype" in op.SCHEMA.by_name and op.arg("dtype") is not None
    if shape is None or not arg or has_type or not _one_float(op):
        return None
    axes = [_axis(axis, len(shape)) for axis in arg]
    if None in axes or len(set(axes)) != len(axes):
        return None
    if op.name == "aten.amax.default" and any(
        shape[axis] == 0 for axis in axes if axis is not None
    ):
        return None  # Nothing has no maximum.
    keep = op.arg("keepdim")
    sizes = [1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes]
    return [tensor(sizes, element(op.operands[0].type))]


@_rule("istft.default")
def _istft(op: SchemaOp) -> Sequence[Attribute] | None:
    """Return the type of an inverse STFT; torch's meta function would read the window's
    elements.
    """
    shape, length = _shape(op.operands[0]), op.arg("n_fft")
    numbers = (length, op.arg("hop_length") or length // 4, op.arg("length") or 0)
    if shape is None or len(shape) < 2 or not all(isinstance(number, int) for number in numbers):
        return None
    given = element(op.operands[0].type)
    if not isinstance(given, ComplexType):
        return None
    whole, cut = length + numbers[1] * (shape[-1] - 1), length // 2 if op.arg("center") else 0
    made = given if op.arg("return_complex") else given.element_type
    return [tensor((*shape[:-2], numbers[2] or whole - 2 * cut), made)]


_QUANTIZE = ("quantize_per_tensor.default", "quantize_per_channel.default")
_DEQUANTIZE = ("dequantize_per_tensor.default", "dequantize_per_channel.default")


@_rule(*(f"quantized_decomposed.{name}" for name in _QUANTIZE))
def _quantize(op: SchemaOp) -> Sequence[Attribute] | None:
    shape, stored = _sizes(op.operands[0]), op.arg("dtype")
    if shape is None or element(op.operands[0].type) != f32 or not _has_axis(op, len(shape)):
        return None
    return [tensor(shape, stored)] if isinstance(stored, Attribute) else None


@_rule(*(f"quantized_decomposed.{name}" for name in _DEQUANTIZE))
def _dequantize(op: SchemaOp) -> Sequence[Attribute] | None:
    shape = _sizes(op.operands[0])
    if shape is None or element(op.operands[0].type) != op.arg("dtype"):
        return None
    if op.arg("out_dtype") is not None or not _has_axis(op, len(shape)):
        return None
    return [tensor(shape, f32)]


def _has_axis(op: SchemaOp, rank: int) -> bool:
    return "axis" not in op.SCHEMA.by_name or _axis(op.arg("axis"), rank) is not None

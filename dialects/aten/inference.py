"""Result types of schema ops: by rules for frequent operators, else by torch's meta kernels.

Torch infers the shape of every operator's result: it runs the operator on fake tensors, with
symbolic sizes for dynamic dimensions. Results are cached for each (op, types, arguments), so that
the repeated blocks of a network cost a dictionary look-up.

With symbolic sizes the result may depend on a decision (are `s0` and `s1` equal?) that export made
with the example inputs. If torch cannot decide, the op's stated types are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from stepwell.dialects.aten.interpretation import call_arguments, plan_of
from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.shapes import RECURRENT, rule_for
from stepwell.ir.compat.torch import torch_private
from stepwell.ir.declared.inference import infers
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.signature import method_of, ranges_around
from stepwell.ir.sizes.size import UNKNOWN
from stepwell.ir.sizes.size_text import dim_of
from stepwell.ir.types import BoolType, FloatType, IntType, ShapeAttr, dims, element, tensor

if TYPE_CHECKING:
    from stepwell.dialects.symbols import Symbols

Key = tuple[Any, ...]
_BY_IDENTITY: dict[Key, tuple[Sequence[Attribute], Any]] = {}
"""Result types by the identity of types and properties, which are stored too to keep them alive."""
_BY_VALUE: dict[Key, Sequence[Attribute]] = {}
_SYMBOLIC: dict[Key, Sequence[Attribute]] = {}
"""Result types with symbolic sizes."""
_CAPACITY = 100_000


@infers(SchemaOp)
def infer_schema_op(op: SchemaOp) -> Sequence[Attribute]:
    """Infer the result types of an op.

    Raises:
        StepwellError: torch rejects the operands; or the op states no results, and they depend on
            values known only at run time.
    """
    held = (*(value.type for value in op.operands), *op.properties.values())
    identity = (type(op), *op.properties, *map(id, held))
    found = _BY_IDENTITY.get(identity)
    if found is not None:
        return found[0]
    if any(_is_symbolic(attr) for attr in held) or any(_is_symbolic(r.type) for r in op.results):
        return _symbolic(op)
    key = (type(op), *op.properties, *held)
    types = _BY_VALUE.get(key)
    if types is None:
        types = _static_types(op)
        if any(_is_symbolic(type_) for type_ in types):  # The number of elements depends on data.
            return _symbolic(op)
    if len(_BY_IDENTITY) >= _CAPACITY:
        _BY_IDENTITY.clear()
        _BY_VALUE.clear()
    _BY_VALUE[key] = types
    _BY_IDENTITY[identity] = types, held
    return types


def _is_symbolic(attr: Attribute) -> bool:
    if isinstance(attr, TensorType):
        return isinstance(attr.encoding, ShapeAttr) or UNKNOWN in dims(attr)
    if isinstance(attr, IntType | FloatType | BoolType):
        return any(char.isalpha() for char in attr.data) and attr.data not in ("True", "False")
    return False


def _static_types(op: SchemaOp) -> Sequence[Attribute]:
    rule = rule_for(op.name)
    if rule is not None:
        types = rule(op)
        if types is not None:
            return types
    return by_torch(op)


def by_torch(op: SchemaOp, symbols: Symbols | None = None) -> Sequence[Attribute]:
    """Return the result types of torch's kernels for fake operands of these types."""
    from stepwell.dialects.symbols import Symbols, asked_quietly, flat_types

    if op.name == "aten.batch_norm.default" and len(dims(op.operands[0].type)) < 2:
        # PyTorch 2.13 reads beyond the shape, and the process ends.
        raise StepwellError("a batch norm of a tensor without channels")
    within = Symbols() if symbols is None else symbols
    try:
        values = [within.fake(value.type) for value in op.operands]
        positional, keywords = call_arguments(op, values)
        with within.on_fakes(), asked_quietly():
            returned = plan_of(type(op)).shape(*positional, **keywords)
        written = [v.type for a in op.SCHEMA.written if (v := op.operand(a.name)) is not None]
        if not op.SCHEMA.returns:
            return written
        types = flat_types(list(returned) if isinstance(returned, tuple) else returned)
        return [*types, *written]
    except StepwellError:
        raise
    except torch_private.UnsupportedOperatorException:
        return _stated(op, "torch has no shape function for it")
    except Exception as error:  # the kernels raise any class
        lines = str(error).splitlines() or [type(error).__name__]
        raise StepwellError(lines[0]) from error


def _stated(op: SchemaOp, reason: str) -> list[Attribute]:
    if not op.results and op.SCHEMA.result_count:
        raise StepwellError(f"{op.name}: result types cannot be inferred: {reason}")
    return [result.type for result in op.results]


def _symbolic(op: SchemaOp) -> Sequence[Attribute]:
    """Infer types with symbolic sizes: torch's, unless torch decided by the example's sizes."""
    if any(UNKNOWN in dims(v.type) for v in op.operands if isinstance(v.type, TensorType)):
        return _stated(op, "a dimension of an operand is unknown")
    ruled = _by_rule(op)
    is_decided = op.name.removeprefix("aten.") in RECURRENT
    if ruled is not None and (
        is_decided or all(a.type == b for a, b in zip(op.results, ruled, strict=False))
    ):
        return ruled
    if (asserted := _ends_within(op)) is not None:
        return asserted
    key = _symbolic_key(op)
    known = _SYMBOLIC.get(key)
    if known is None:
        if len(_SYMBOLIC) >= _CAPACITY:
            _SYMBOLIC.clear()
        known = _SYMBOLIC[key] = _asked(op)
    return known


def _ends_within(op: SchemaOp) -> Sequence[Attribute] | None:
    """Infer a slice up to a dynamic end that the program asserts to be within the axis.

    For example, a table of 17 rows is cut to the `h*w + 1` rows of an image. Torch does not know
    the assertion and assumes the minimum that holds for the example.
    """
    if op.name != "aten.slice.Tensor" or op.arg("step") not in (None, 1):
        return None
    stop, stated = op.arg("end"), op.results[0].type if op.results else None
    if op.arg("start") not in (None, 0) or not isinstance(stop, SSAValue):
        return None
    if not isinstance(stop.type, IntType) or not isinstance(stated, TensorType):
        return None
    shape, at = list(dims(op.operands[0].type)), op.arg("dim") or 0
    if not -len(shape) <= at < len(shape):
        return None
    shape[at] = dim_of(stop.type.data)
    type_ = tensor(shape, element(op.operands[0].type))
    return [type_] if type_ == stated else None


def _by_rule(op: SchemaOp) -> Sequence[Attribute] | None:
    """Apply a shape rule, which moves or compares sizes without deciding anything about them."""
    rule = rule_for(op.name)
    if rule is None or (op.SCHEMA.takes_runtime_scalars and op.group_sizes()[-1]):
        return None
    return rule(op)


def _symbolic_key(op: SchemaOp) -> Key:
    """Return what the result depends on: types, arguments, stated types, and the
    symbols' ranges.
    """
    method = method_of(op)
    return (
        type(op),
        tuple(op.properties.items()),
        tuple(value.type for value in op.operands),
        tuple(result.type for result in op.results),
        None if method is None else method.attributes.get("stepwell.ranges"),
    )


def _asked(op: SchemaOp) -> Sequence[Attribute]:
    """Return torch's result types, or the op's if torch decided by the example's sizes."""
    from stepwell.dialects.symbols import Symbols

    symbols = Symbols(ranges_around(op))
    try:
        inferred = by_torch(op, symbols)
    except StepwellError as error:
        return _stated(op, error.problems[0].fact)
    found = _judged(op, inferred, symbols)
    if not symbols.env.guards or list(found) == [result.type for result in op.results]:
        return found
    # C++ kernels require some sizes as plain integers, and use the example's.
    again = Symbols(ranges_around(op))
    try:
        with torch_private.enable_python_dispatcher():
            return _judged(op, by_torch(op, again), again)
    except StepwellError:
        return found


def _judged(op: SchemaOp, inferred: Sequence[Attribute], symbols: Symbols) -> Sequence[Attribute]:
    """Return torch's types, except where the op states another type that torch's result allows."""
    if not op.results:
        if symbols.env.replacements:
            _stated(op, "they depend on which sizes are equal")
        return inferred
    stated = [result.type for result in op.results]
    if len(inferred) != len(stated):
        return inferred
    known = set(symbols.ranges)
    return [
        given if _agree(given, found, symbols, known) else found
        for given, found in zip(stated, inferred, strict=True)
    ]


def _agree(stated: Attribute, attribute: Attribute, symbols: Symbols, known: set[Any]) -> bool:
    """Whether torch's result allows a stated type."""
    if stated == attribute:
        return True
    if isinstance(stated, IntType | FloatType | BoolType):
        if type(stated) is not type(attribute):
            return False
        return _same(stated.data, attribute.data, symbols, known)  # pyright: ignore
    if not isinstance(stated, TensorType) or not isinstance(attribute, TensorType):
        return False
    ours, theirs = dims(stated), dims(attribute)
    if element(stated) != element(attribute) or len(ours) != len(theirs):
        return False
    return all(
        a == b or UNKNOWN in (a, b) or _same(str(a), str(b), symbols, known)
        for a, b in zip(ours, theirs, strict=True)
    )


def _same(stated: str, found: str, symbols: Symbols, known: set[Any]) -> bool:
    """Whether two sizes are equal, or torch decided one by the example's sizes or by data."""
    ours, theirs = symbols.expression(stated), symbols.expression(found)
    if ours == theirs or bool(symbols.env.replacements):
        return True
    if (theirs.free_symbols - known) or (ours.free_symbols - known):
        return True
    return symbols.is_a_guess(ours, theirs) or symbols.may_agree(ours, theirs)

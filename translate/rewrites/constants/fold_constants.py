"""Constant folding: compute at compile time every value that depends on weights alone.

Examples are position grids, masks, relative-position tables and parametrized weights. A pure op
whose operands are all weights becomes a derived weight, a recipe that is evaluated once and only if
its result is needed. An op that creates a constant (`arange`, `full`, `ones`) is the case with no
operands, `full_like` of a static shape is `full`, and so is `empty_like`, whose elements are zeros.
An op whose result would grow the program by more than `largest` bytes stays: repeating a constant
at run time is cheaper than storing it. Operators that quantize and dequantize are not folded: a
target keeps a weight in the dtype it is stored in.

Before:
    %w = stepwell.weight <"w"> "parameter" : tensor<4x4xf32>
    %n = aten.neg.default(%w) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %t = aten.permute.default(%n, [1, 0]) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %y = aten.add.Tensor(%x, %t) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
After:
    %t = stepwell.weight <"w#operator.0253e73ce5aa"> "constant" : tensor<4x4xf32>
    %y = aten.add.Tensor(%x, %t) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.ir.compat.xdsl.xdsl_private import operands_of
from stepwell.ir.core import weight_key
from stepwell.ir.declared.families import ops_of
from stepwell.ir.dtypes import dtype_name, element_bytes, has_torch_dtype
from stepwell.ir.program import Program
from stepwell.ir.rewriting.rewrite import Refusal, Rewrite, Rewriter
from stepwell.ir.side_effects import is_pure
from stepwell.ir.types import dims, element, is_static
from stepwell.translate.rewrites.constants.recipes import derive, encode_call

FILLS = {
    "aten.full_like.default": None,
    "aten.zeros_like.default": 0,
    "aten.ones_like.default": 1,
    "aten.new_full.default": None,
    "aten.new_zeros.default": 0,
    "aten.new_ones.default": 1,
    **dict.fromkeys(ops_of("uninitialized", "aten"), 0),
}
"""Ops that read only the shape and dtype of their operand, and a fill value."""


@dataclass(frozen=True)
class Constant:
    """The call that computes each used result from the weights `keys`."""

    op: SchemaOp
    keys: tuple[str, ...]
    call: dict[str, Any]
    fills: bool = False


@dataclass(frozen=True)
class FoldConstants(Rewrite[Constant]):
    """Replace a pure op over weights by a derived weight."""

    largest: int = 16 << 20
    name: ClassVar[str] = "fold-constants"
    anchors: ClassVar[tuple[type[Operation], ...]] = (SchemaOp,)

    def match(self, op: SchemaOp, program: Program) -> Constant | Refusal | None:
        """Match pure ops of static torch dtypes over weights, unless the result is too large."""
        fills = op.name in FILLS or is_empty(op)
        keys: list[str] = []
        if not fills:
            for operand in operands_of(op):
                key = weight_key(operand)
                if key is None:
                    return None
                keys.append(key)
        if not is_pure(op) or op.SCHEMA.namespace != "aten":
            return None
        used = [result.type for result in op.results if result.uses]
        if not all(is_plain(type_) for type_ in used):
            return None
        grown = sum(map(size_in_bytes, used)) - sum(
            size_in_bytes(program.weights.type_of(key)) for key in set(keys)
        )
        if grown > self.largest:
            return Refusal(f"the folded constant would take {grown} bytes more")
        sources = list(dict.fromkeys(op.operands))
        call = fill_call(op) if fills else encode_call(op, sources)
        if call is None:
            return Refusal("an argument is known only at run time")
        for index, result in enumerate(op.results):
            if result.uses and not is_empty(op):
                at = 0 if fills else index
                failed = program.weights.cannot_derive(
                    "operator", list(dict.fromkeys(keys)), **call, result=at
                )
                if failed is not None:
                    return Refusal(failed.problems[0].fact)
        return Constant(op, tuple(dict.fromkeys(keys)), call, fills)

    def build(self, match: Constant, rw: Rewriter) -> None:
        """Derive each used result as a weight."""
        for index, result in enumerate(match.op.results):
            if not result.uses:
                continue
            call = match.call if not is_empty(match.op) else _full(result.type, 0)
            at = index if not match.fills else 0
            value = derive(rw, "operator", match.keys, **call, result=at)
            rw.count("bytes of constants", size_in_bytes(result.type))
            rw.replace_value(result, value)
        rw.erase(match.op)


def is_empty(op: SchemaOp) -> bool:
    """Whether no result of an op has elements: kernels fail on such tensors, or abort."""
    is_used = False
    for result in op.results:  # No generators: this runs for every op.
        if result.first_use is None:
            continue
        type_ = result.type
        if not isinstance(type_, TensorType) or 0 not in dims(type_) or not is_plain(type_):
            return False
        is_used = True
    return is_used


def is_plain(type_: Attribute) -> bool:
    """Whether a type is a static tensor of a dtype that torch has."""
    return isinstance(type_, TensorType) and is_static(type_) and has_torch_dtype(element(type_))


def size_in_bytes(type_: Attribute) -> int:
    """Return the bytes of a static tensor."""
    return prod(d for d in dims(type_) if isinstance(d, int)) * element_bytes(element(type_))


def fill_call(op: SchemaOp) -> dict[str, Any] | None:
    """Return the `aten.full` call for a `full_like` or similar op, or for an empty result."""
    number = FILLS.get(op.name, 0)
    if number is None:
        number = op.arg("fill_value")
    if isinstance(number, SSAValue | complex):
        return None
    return _full(op.results[0].type, number)


def _full(result: Attribute, number: float) -> dict[str, Any]:
    dtype = dtype_name(element(result))
    shape = [d for d in dims(result) if isinstance(d, int)]
    arguments = {"size": shape, "fill_value": number, "dtype": {"dtype": dtype}}
    return {"op": "aten.full.default", "arguments": arguments}

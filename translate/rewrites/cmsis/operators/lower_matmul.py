"""Products of two run-time matrices become `cmsis.quantized_batch_matmul`.

`bmm` and `matmul` of any rank; attention's q·kᵀ and p·v are two of them. The library takes the right
side transposed: the transposition written here meets the model's own `k.transpose(-2, -1)`, and
`cancel-transpose` takes both away.

Before:
    %a = quant.dcast %x : tensor<1x2x4x!quant.uniform<i8:f32, 0.5>> to tensor<1x2x4xf32>
    %b = quant.dcast %y : tensor<1x4x3x!quant.uniform<i8:f32, 0.25:1>> to tensor<1x4x3xf32>
    %z = aten.bmm.default(%a, %b) : (tensor<1x2x4xf32>, tensor<1x4x3xf32>) -> tensor<1x2x3xf32>
    %q = quant.qcast %z : tensor<1x2x3xf32> to tensor<1x2x3x!quant.uniform<i8:f32, 2.0>>
After:
    %v0 = cmsis.transpose(%y) {perm = array<i64: 0, 2, 1>}
        : (tensor<1x4x3x!quant.uniform<i8:f32, 0.25:1>>)
        -> tensor<1x3x4x!quant.uniform<i8:f32, 0.25:1>>
    %q = cmsis.quantized_batch_matmul(%x, %v0) {lhs_zero_point = 0 : i64,
        rhs_zero_point = -1 : i64, output_zero_point = 0 : i64,
        output_multiplier = 1073741824 : i64, output_shift = -3 : i64, scratch = 0 : i64}
        : (tensor<1x2x4x!quant.uniform<i8:f32, 0.5>>,
        tensor<1x3x4x!quant.uniform<i8:f32, 0.25:1>>)
        -> tensor<1x2x3x!quant.uniform<i8:f32, 2.0>>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from xdsl.ir import Operation, SSAValue

from stepwell.dialects.aten.op import SchemaOp
from stepwell.dialects.aten.registry import op_class
from stepwell.dialects.cmsis.arithmetic import (
    Multiplier,
    quantize_multiplier,
    requantize_overflows,
)
from stepwell.dialects.cmsis.ops import QuantizedBatchMatmul
from stepwell.ir.program import Program
from stepwell.ir.rewriting import Bound, Refusal, Rewrite, Rewriter
from stepwell.ir.types import dims, element, tensor, with_element
from stepwell.translate.quantised.recognise import (
    Activation,
    Use,
    activation,
    deliver,
    distinct,
    quantized_uses,
    stored_weight,
)
from stepwell.translate.rewrites.cmsis.operators.quantized import not_fixed, shift_refusal
from stepwell.translate.rewrites.cmsis.operators.rescale import kernel_type, rescaled
from stepwell.translate.rewrites.cmsis.placing.reshape import reshaped, transposed

BMM, MATMUL, MM = (op_class(f"aten.{name}.default") for name in ("bmm", "matmul", "mm"))
SAFE_INNER = (1 << 31) // (255 * 255)
"""How long a dot product of two int8 vectors with any zero points may be."""


@dataclass(frozen=True)
class Matmul:
    """A product of two int8 matrices, or batches of them, every use of it quantised."""

    op: SchemaOp
    left: Activation
    right: Activation
    uses: tuple[Use, ...]
    scales: tuple[Multiplier, ...]


@dataclass(frozen=True)
class LowerMatmul(Rewrite[Matmul]):
    """q(matmul(dq(x), dq(y))) → cmsis."""

    name: ClassVar[str] = "lower-matmul"
    anchors: ClassVar[tuple[type[Operation], ...]] = (BMM, MATMUL, MM)
    bound: ClassVar[Bound] = Bound(absolute=1.0, reason="fixed-point requantisation, in units")

    def match(self, op: SchemaOp, program: Program) -> Matmul | Refusal | None:
        """Both sides are int8 with the same batch, and no sum can overflow."""
        lhs, rhs = op.operands[0], op.operands[1]
        is_linear = len(dims(rhs.type)) == 2 and not isinstance(stored_weight(rhs), Refusal)
        if is_linear:
            return None
        if refusal := not_fixed(lhs, rhs):
            return refusal
        a, b = dims(lhs.type), dims(rhs.type)
        if len(a) < 2 or len(b) < 2 or a[:-2] != b[:-2]:
            return Refusal(f"it multiplies {list(a)} by {list(b)}; the kernel broadcasts no batch")
        if cast(int, a[-1]) > SAFE_INNER:
            return Refusal(f"a dot product of {a[-1]} can overflow int32")
        left, right = activation(lhs), activation(rhs)
        if isinstance(left, Refusal):
            return left
        if isinstance(right, Refusal):
            return right
        uses = quantized_uses(op.results[0])
        if isinstance(uses, Refusal):
            return uses
        reach = 255 * 255 * cast(int, a[-1])
        scales: list[Multiplier] = []
        for use in uses:
            scale = quantize_multiplier(left.held.scale * right.held.scale / use.held.scale)
            if found := shift_refusal([scale]):
                return found
            if requantize_overflows(-reach, reach, scale):
                return Refusal(f"a factor of {scale.real:g} takes the product past int32")
            scales.append(scale)
        return Matmul(op, left, right, uses, tuple(scales))

    def build(self, match: Matmul, rw: Rewriter) -> None:
        """Three-dimensional operands, the right one transposed."""
        left = _three_dimensional(rw, match.left.value)
        rank = len(dims(match.right.value.type))
        order = [*range(rank - 2), rank - 1, rank - 2]
        if rank <= 4:
            right = _three_dimensional(rw, transposed(rw, match.right.value, order))
        else:
            right = transposed(rw, _three_dimensional(rw, match.right.value), (0, 2, 1))
        batch, rows, _ = dims(left.type)
        columns = dims(right.type)[1]
        for use, group in distinct(match.uses):
            scale = match.scales[match.uses.index(use)]
            wide = kernel_type(use)
            made = QuantizedBatchMatmul.make(
                left,
                right,
                result=tensor((batch, rows, columns), element(wide)),
                lhs_zero_point=-match.left.held.zero_point,
                rhs_zero_point=-match.right.held.zero_point,
                output_zero_point=use.held.zero_point,
                output_multiplier=scale.multiplier,
                output_shift=scale.shift,
                scratch=0,
            )
            value = reshaped(rw, rw.insert(made).results[0], dims(use.type))
            assert value.type == with_element(use.type, element(wide))
            deliver(rw, group, rescaled(rw, value, use))


def _three_dimensional(rw: Rewriter, value: SSAValue) -> SSAValue:
    shape = cast("tuple[int, ...]", dims(value.type))
    batch = 1
    for size in shape[:-2]:
        batch *= size
    return reshaped(rw, value, (batch, *shape[-2:]))

"""`cmsis.quantized_linear` and `cmsis.quantized_batch_matmul`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType
from xdsl.irdl import (
    AttrSizedOperandSegments,
    operand_def,
    opt_operand_def,
    prop_def,
)

from stepwell.dialects.cmsis import kernels
from stepwell.dialects.cmsis.arithmetic import Multiplier
from stepwell.dialects.cmsis.kernels.matmul import fully_connected_kernel_sum_s8
from stepwell.dialects.cmsis.ops.base import (
    CmsisOp,
    activation_problems,
    int8_problems,
    multiplier_problems,
    operator,
    product_multiplier,
    result_problems,
    target_of,
    zero_point_problems,
)
from stepwell.dialects.cmsis.target import Target, fully_connected_scratch
from stepwell.ir.axes.forms import mapped
from stepwell.ir.axes.maps import All, Along, AxisMap, Links, Once, kept
from stepwell.ir.declared.families import Family
from stepwell.ir.declared.interpretation import interprets
from stepwell.ir.diagnostics import StepwellError
from stepwell.ir.dtypes import i32
from stepwell.ir.types import dims, element


@operator
class QuantizedLinear(CmsisOp):
    """Linear layer by `arm_fully_connected_s8`: x [..., K] times weights [N, K] transposed.

    The bias is read from `bias` on DSP and scalar builds and from `kernel_sum` (which includes the
    bias) on MVE builds; each ignores the other. With both operands the program is correct on all.
    """

    name = "cmsis.quantized_linear"
    IGNORES_DIM_ORDER: ClassVar[bool] = True
    FAMILY: ClassVar[Family | None] = "product"
    input = operand_def(TensorType)
    weights = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    kernel_sum = opt_operand_def(TensorType)
    input_offset = prop_def(IntegerAttr)
    filter_offset = prop_def(IntegerAttr)
    output_offset = prop_def(IntegerAttr)
    requantize_multipliers = prop_def(DenseArrayBase)
    requantize_shifts = prop_def(DenseArrayBase)
    activation_max = prop_def(IntegerAttr)
    activation_min = prop_def(IntegerAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @property
    def requantization(self) -> Multiplier:
        """Return the kernel's single multiplier and shift."""
        return Multiplier(
            self.numbers("requantize_multipliers")[0], self.numbers("requantize_shifts")[0]
        )

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from int8_problems(self, "input", "weights", "out")
        given, weights = dims(self.input.type), dims(self.weights.type)
        if len(weights) != 2 or not given or given[-1] != weights[1]:
            yield f"input {list(given)} does not multiply weights {list(weights)}"
            return
        yield from result_problems(self, (*given[:-1], weights[0]))
        for name, wanted in (("bias", (weights[0],)), ("kernel_sum", (1, weights[0]))):
            value = getattr(self, name)
            if value is not None and (dims(value.type) != wanted or element(value.type) != i32):
                yield f"{name} is {value.type}, not int32 of shape {list(wanted)}"
        if (
            len(self.numbers("requantize_multipliers")) != 1
            or len(self.numbers("requantize_shifts")) != 1
        ):
            yield "the kernel supports one multiplier and shift, not one for each row"
            return
        yield from activation_problems(self)
        yield from zero_point_problems(
            self,
            input_offset=(self.input, -1),
            filter_offset=(self.weights, -1),
            output_offset=(self.out, 1),
        )
        wanted_scale = product_multiplier(self.input, self.weights, self.out)
        yield from multiplier_problems("requantize", self.requantization, wanted_scale)
        yield from self._form_problems()

    def _form_problems(self) -> Iterator[str]:
        target = target_of(self)
        if target is None:
            return
        if target.reads_kernel_sum and self.kernel_sum is None:
            yield (
                f"no kernel_sum: {target} reads the bias from kernel_sum and not from bias; "
                "fold-kernel-sum creates it"
            )
        if not target.reads_kernel_sum and self.kernel_sum is not None and self.bias is None:
            yield f"no bias: {target} does not read kernel_sum"

    def axis_map(self, result: int = 0) -> AxisMap | None:
        last = len(dims(self.input.type)) - 1
        links: list[Links] = [(*kept(last), All(last)), (Along(last), All())]
        if self.bias is not None:
            links.append((Along(last),))
        if self.kernel_sum is not None:
            links.append((Once(), Along(last)))
        return mapped(self, *links)


@operator
class QuantizedBatchMatmul(CmsisOp):
    """Matrix product by `arm_batch_matmul_s8`: lhs [B, M, K] times rhs_transposed [B, N, K],
    transposed.

    The `zero_point` fields are offsets, that is, the negated zero points of lhs and rhs.
    """

    name = "cmsis.quantized_batch_matmul"
    IGNORES_DIM_ORDER: ClassVar[bool] = True
    FAMILY: ClassVar[Family | None] = "product"
    lhs = operand_def(TensorType)
    rhs_transposed = operand_def(TensorType)
    lhs_zero_point = prop_def(IntegerAttr)
    rhs_zero_point = prop_def(IntegerAttr)
    output_zero_point = prop_def(IntegerAttr)
    output_multiplier = prop_def(IntegerAttr)
    output_shift = prop_def(IntegerAttr)
    scratch = prop_def(IntegerAttr)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from int8_problems(self, "lhs", "rhs_transposed", "out")
        lhs, rhs = dims(self.lhs.type), dims(self.rhs_transposed.type)
        if len(lhs) != 3 or len(rhs) != 3 or lhs[0] != rhs[0] or lhs[2] != rhs[2]:
            yield f"lhs {list(lhs)} and transposed rhs {list(rhs)} do not multiply"
            return
        yield from result_problems(self, (lhs[0], lhs[1], rhs[1]))
        yield from zero_point_problems(
            self,
            lhs_zero_point=(self.lhs, -1),
            rhs_zero_point=(self.rhs_transposed, -1),
            output_zero_point=(self.out, 1),
        )
        wanted = product_multiplier(self.lhs, self.rhs_transposed, self.out)
        yield from multiplier_problems("output", self.multiplier("output"), wanted)
        yield from self.scratch_problems()

    def needed_scratch(self, target: Target) -> dict[str, int]:
        _, outputs, inner = dims(self.rhs_transposed.type)
        if not isinstance(outputs, int) or not isinstance(inner, int):
            return {}
        return {"scratch": fully_connected_scratch(target.isa, inner=inner, outputs=outputs)}

    def axis_map(self, result: int = 0) -> AxisMap | None:
        return mapped(self, (Along(0), Along(1), All()), (Along(0), Along(2), All()))


@interprets(QuantizedLinear)
def _linear(op: QuantizedLinear, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    x, weights, *rest = args
    bias = rest.pop(0) if op.bias is not None else None
    kernel_sum = rest.pop(0) if op.kernel_sum is not None else None
    scale = op.requantization
    common: dict[str, Any] = {
        "filter_offset": op.number("filter_offset"),
        "output_offset": op.number("output_offset"),
        "multiplier": scale.multiplier,
        "shift": scale.shift,
        "activation": op.activation,
    }
    target = target_of(op)
    from_sums = kernel_sum is not None if target is None else target.reads_kernel_sum
    if from_sums:
        if kernel_sum is None:
            raise StepwellError(
                f"{target} reads kernel sums, which this op lacks",
                help="lower for this target, or for all",
            )
        return (fully_connected_kernel_sum_s8(x, weights, kernel_sum, **common),)
    return (
        kernels.fully_connected_s8(
            x, weights, bias, input_offset=op.number("input_offset"), **common
        ),
    )


@interprets(QuantizedBatchMatmul)
def _batch_matmul(op: QuantizedBatchMatmul, args: Sequence[Any], ctx: object) -> Sequence[Any]:
    return (
        kernels.batch_matmul_s8(
            args[0],
            args[1],
            lhs_offset=op.number("lhs_zero_point"),
            rhs_offset=op.number("rhs_zero_point"),
            output_offset=op.number("output_zero_point"),
            multiplier=op.number("output_multiplier"),
            shift=op.number("output_shift"),
        ),
    )

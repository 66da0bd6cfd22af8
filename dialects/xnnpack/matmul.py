"""XNNPACK's nodes that multiply matrices."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr, TensorType, UnitAttr
from xdsl.irdl import (
    operand_def,
    opt_operand_def,
    opt_prop_def,
)
from xdsl.utils.exceptions import VerifyException

from stepwell.dialects.quant.types import quantization
from stepwell.dialects.xnnpack.base import XnnpackOp, full_range, node, rank, same_everywhere
from stepwell.dialects.xnnpack.datatypes import DynamicInt8Type, datatype
from stepwell.dialects.xnnpack.weights import check_bias, check_scale, check_weight
from stepwell.ir.axes.forms import broadcast, mapped
from stepwell.ir.axes.maps import All, Along, AxisMap, Links, kept
from stepwell.ir.declared.families import Family
from stepwell.ir.types import dims, element


@node
class FullyConnected(XnnpackOp):
    """`input · filterᵀ + bias` over the last axis of the input.

    Shapes: input `[…, inputs]`, filter `[outputs, inputs]` (`[inputs, outputs]` with
    `transpose_weights`), bias `[outputs]`, result `[…, outputs]`. A filter of floats may be
    computed at run time; a quantized one is a constant.

    With a float input and a quantized filter, XNNPACK sums the stored integers, adds the bias and
    then scales: the bias is in units of each output's filter scale.
    """

    name = "xnnpack.fully_connected"
    FAMILY: ClassVar[Family | None] = "product"
    PACKED: ClassVar[frozenset[int]] = frozenset({1, 2})
    DATATYPES: ClassVar[frozenset[tuple[str, str, str | None, str]]] = frozenset(
        (given, weight, bias, made)
        for given, weight, biases, made in (
            ("fp32", "fp32", ("fp32",), "fp32"),
            ("fp16", "fp16", ("fp16", "fp32"), "fp16"),
            ("bf16", "bf16", ("fp32",), "bf16"),
            ("bf16", "bf16", ("fp32",), "fp32"),
            ("qdint8", "qcint8", ("fp32",), "fp32"),
            ("qdint8", "qcint8", ("fp32",), "fp16"),
            ("qdint8", "qcint4", ("fp32",), "fp32"),
            ("qdint8", "qcint4", ("fp32",), "fp16"),
            ("qdint8", "qbint4", ("fp32",), "fp32"),
            ("qdint8", "qbint4", ("fp32",), "fp16"),
            ("fp32", "qcint8", ("fp32",), "fp32"),
            ("fp32", "qcint4", ("fp32",), "fp32"),
            ("qint8", "qint8", ("qint32",), "qint8"),
            ("qint8", "qcint8", ("qcint32", "qint32"), "qint8"),
            ("qint8", "qcint4", ("qcint32", "qint32"), "qint8"),
            ("quint8", "quint8", ("qint32",), "quint8"),
        )
        for bias in (None, *biases)
    )
    input = operand_def(TensorType)
    filter = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    output_min = opt_prop_def(FloatAttr)
    output_max = opt_prop_def(FloatAttr)
    transpose_weights = opt_prop_def(UnitAttr)

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        combination = (given[0], given[1], given[2] if len(given) > 2 else None, made[0])
        if combination not in self.DATATYPES:
            names = ", ".join(str(name) for name in combination)
            raise VerifyException(f"XNNPACK has no fully connected node for {names}")
        full_range(self.result.type)

    def check(self) -> None:
        rank(self, 1, 2)
        if not dims(self.input.type):
            raise VerifyException("the input needs an axis to sum over")
        held = element(self.input.type)
        if isinstance(held, DynamicInt8Type) and held.data != 1:
            raise VerifyException("the input must have one scale for each row: dynamic_int8<1>")
        weight = quantization(self.filter.type)
        transposed = self.flag("transpose_weights")
        if weight is not None:
            if transposed and weight.bits == 4:
                raise VerifyException("4-bit weights cannot be transposed")
            inputs = dims(self.filter.type)[1]
            if weight.bits == 4 and isinstance(inputs, int) and inputs % 2:
                raise VerifyException(f"a row has {inputs} 4-bit weights; the number must be even")
            check_scale(self)
            check_weight(self, 1, channel_axis=1 if transposed else 0)
        if self.bias is not None:
            check_bias(self, 2, dims(self.filter.type)[1 if transposed else 0])

    def axis_map(self, result: int = 0) -> AxisMap | None:
        last = len(dims(self.input.type)) - 1
        rows: Links = (*kept(last), All(last))
        filter: Links = (Along(last), All())
        if self.flag("transpose_weights"):
            filter = filter[::-1]
        return mapped(self, rows, filter, (Along(last),))


@node
class BatchMatrixMultiply(XnnpackOp):
    """`a @ b`, or `a @ bᵀ` with `transpose_b`; the dimensions before the last two broadcast.

    Shapes: a `[…, m, k]`, b `[…, k, n]` (`[…, n, k]` with `transpose_b`), result `[…, m, n]`.
    """

    name = "xnnpack.batch_matrix_multiply"
    FAMILY: ClassVar[Family | None] = "product"
    DATATYPES: ClassVar[tuple[tuple[str, str, str], ...]] = (
        ("fp32", "fp32", "fp32"),
        ("fp16", "fp16", "fp16"),
        ("qdint8", "qcint8", "fp32"),
        ("fp32", "qcint8", "fp32"),
        ("qint8", "qint8", "qint8"),
    )
    left = operand_def(TensorType)
    right = operand_def(TensorType)
    transpose_b = opt_prop_def(UnitAttr)

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        if (*given, *made) not in self.DATATYPES:
            names = ", ".join((*given, *made))
            raise VerifyException(f"XNNPACK has no batch matrix multiply for {names}")
        full_range(self.result.type)

    def check(self) -> None:
        if min(len(dims(v.type)) for v in self.operands) < 2:
            raise VerifyException("both operands need at least two dimensions")
        if datatype(self.right.type) == "qcint8":
            rank(self, 1, 2)  # For a higher rank, XNNPACK reads scales for every batch.
            check_weight(self, 1, channel_axis=0 if self.flag("transpose_b") else 1)
            right_quantization = element(self.left.type)
            if isinstance(right_quantization, DynamicInt8Type) and right_quantization.data != 1:
                raise VerifyException("the input must have a scale for each row: dynamic_int8<1>")
        right_quantization = quantization(self.right.type)
        if right_quantization is not None and not right_quantization.is_symmetric:
            raise VerifyException("the right operand must have zero point 0")

    def axis_map(self, result: int = 0) -> AxisMap | None:
        left, right, made = (dims(v.type) for v in (self.left, self.right, self.result))
        batch, rank = made[:-2], len(made)
        columns: Links = (All(), Along(rank - 1))
        if self.flag("transpose_b"):
            columns = columns[::-1]
        return mapped(
            self,
            (*broadcast(left[:-2], batch), Along(rank - 2), All()),
            (*broadcast(right[:-2], batch), *columns),
        )


@node
class ScaledDotProductAttention(XnnpackOp):
    """`softmax(query · scale · keyᵀ + mask) · value`.

    The node is in the schema, but ExecuTorch's runtime rejects it with "Unhandled node type". Such
    a program can be read, printed and interpreted, and no emitter writes it. Shapes: query `[b, h,
    t, c]`, key `[b, h, u, c]`, value `[b, h, u, d]`, scale `[c]`, mask `[t, u]`.
    """

    name = "xnnpack.scaled_dot_product_attention"
    query = operand_def(TensorType)
    key = operand_def(TensorType)
    value = operand_def(TensorType)
    scale = operand_def(TensorType)
    mask = operand_def(TensorType)

    def check_datatypes(self, given: tuple[str, ...], made: tuple[str, ...]) -> None:
        same_everywhere(given, made, ("fp32", "fp16"), self.name)

    def check(self) -> None:
        for index in range(3):
            rank(self, index, 4)
        rank(self, 3, 1)
        rank(self, 4, 2)

    def axis_map(self, result: int = 0) -> AxisMap | None:
        heads: Links = (Along(0), Along(1))
        return mapped(
            self,
            (*heads, Along(2), All()),
            (*heads, All(), All()),
            (*heads, All(), Along(3)),
            (All(),),
            (Along(2), All()),
        )

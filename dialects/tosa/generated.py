"""TOSA's operators. Written by `generate.py` from the shipped schema: do not edit."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
)
from xdsl.ir import TypeAttribute
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure

from stepwell.dialects.tosa.attributes import (
    BlockSizeAttr,
    NanModeAttr,
    ResizeModeAttr,
    RoundingModeAttr,
)
from stepwell.dialects.tosa.base import Enumerations, Field, TosaOp


@irdl_op_definition
class ArgMaxOp(TosaOp):
    """ARGMAX of the specification."""

    name = "tosa.argmax"
    CODE: ClassVar[int] = 1
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("axis", 0, "i32"),
        Field("nan_mode", 1, "NanModeAttr", "PROPAGATE"),
    )
    ENUMERATIONS: ClassVar[Enumerations] = {"nan_mode": NanModeAttr}
    input = operand_def()
    axis = prop_def(IntegerAttr)
    nan_mode = opt_prop_def(NanModeAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class AvgPool2dOp(TosaOp):
    """AVG_POOL2D of the specification."""

    name = "tosa.avg_pool2d"
    CODE: ClassVar[int] = 2
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("kernel", 0, "i64s"),
        Field("stride", 1, "i64s"),
        Field("pad", 2, "i64s"),
        Field("acc_type", 3, "type"),
    )
    input = operand_def()
    input_zp = operand_def()
    output_zp = operand_def()
    kernel = prop_def(DenseArrayBase)
    stride = prop_def(DenseArrayBase)
    pad = prop_def(DenseArrayBase)
    acc_type = prop_def(TypeAttribute)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class Conv2dOp(TosaOp):
    """CONV2D of the specification."""

    name = "tosa.conv2d"
    CODE: ClassVar[int] = 3
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("pad", 0, "i64s"),
        Field("stride", 1, "i64s"),
        Field("dilation", 2, "i64s"),
        Field("local_bound", 3, "bool", "false"),
        Field("acc_type", 4, "type"),
    )
    input = operand_def()
    weight = operand_def()
    bias = operand_def()
    input_zp = operand_def()
    weight_zp = operand_def()
    pad = prop_def(DenseArrayBase)
    stride = prop_def(DenseArrayBase)
    dilation = prop_def(DenseArrayBase)
    local_bound = opt_prop_def(BoolAttr)
    acc_type = prop_def(TypeAttribute)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class Conv3dOp(TosaOp):
    """CONV3D of the specification."""

    name = "tosa.conv3d"
    CODE: ClassVar[int] = 4
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("pad", 0, "i64s"),
        Field("stride", 1, "i64s"),
        Field("dilation", 2, "i64s"),
        Field("local_bound", 3, "bool", "false"),
        Field("acc_type", 4, "type"),
    )
    input = operand_def()
    weight = operand_def()
    bias = operand_def()
    input_zp = operand_def()
    weight_zp = operand_def()
    pad = prop_def(DenseArrayBase)
    stride = prop_def(DenseArrayBase)
    dilation = prop_def(DenseArrayBase)
    local_bound = opt_prop_def(BoolAttr)
    acc_type = prop_def(TypeAttribute)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class DepthwiseConv2dOp(TosaOp):
    """DEPTHWISE_CONV2D of the specification."""

    name = "tosa.depthwise_conv2d"
    CODE: ClassVar[int] = 5
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("pad", 0, "i64s"),
        Field("stride", 1, "i64s"),
        Field("dilation", 2, "i64s"),
        Field("local_bound", 3, "bool", "false"),
        Field("acc_type", 4, "type"),
    )
    input = operand_def()
    weight = operand_def()
    bias = operand_def()
    input_zp = operand_def()
    weight_zp = operand_def()
    pad = prop_def(DenseArrayBase)
    stride = prop_def(DenseArrayBase)
    dilation = prop_def(DenseArrayBase)
    local_bound = opt_prop_def(BoolAttr)
    acc_type = prop_def(TypeAttribute)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class FFT2dOp(TosaOp):
    """FFT2D of the specification."""

    name = "tosa.fft2d"
    CODE: ClassVar[int] = 6
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("inverse", 0, "bool"),
        Field("local_bound", 1, "bool", "false"),
    )
    input_real = operand_def()
    input_imag = operand_def()
    inverse = prop_def(BoolAttr)
    local_bound = opt_prop_def(BoolAttr)
    output_real = result_def()
    output_imag = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class MatMulOp(TosaOp):
    """MATMUL of the specification."""

    name = "tosa.matmul"
    CODE: ClassVar[int] = 7
    a = operand_def()
    b = operand_def()
    a_zp = operand_def()
    b_zp = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class MaxPool2dOp(TosaOp):
    """MAX_POOL2D of the specification."""

    name = "tosa.max_pool2d"
    CODE: ClassVar[int] = 8
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("kernel", 0, "i64s"),
        Field("stride", 1, "i64s"),
        Field("pad", 2, "i64s"),
        Field("nan_mode", 3, "NanModeAttr", "PROPAGATE"),
    )
    ENUMERATIONS: ClassVar[Enumerations] = {"nan_mode": NanModeAttr}
    input = operand_def()
    kernel = prop_def(DenseArrayBase)
    stride = prop_def(DenseArrayBase)
    pad = prop_def(DenseArrayBase)
    nan_mode = opt_prop_def(NanModeAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class RFFT2dOp(TosaOp):
    """RFFT2D of the specification."""

    name = "tosa.rfft2d"
    CODE: ClassVar[int] = 9
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("local_bound", 0, "bool", "false"),)
    input_real = operand_def()
    local_bound = opt_prop_def(BoolAttr)
    output_real = result_def()
    output_imag = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class TransposeConv2dOp(TosaOp):
    """TRANSPOSE_CONV2D of the specification."""

    name = "tosa.transpose_conv2d"
    CODE: ClassVar[int] = 10
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("out_pad", 0, "i64s"),
        Field("stride", 1, "i64s"),
        Field("local_bound", 2, "bool", "false"),
        Field("acc_type", 3, "type"),
    )
    input = operand_def()
    weight = operand_def()
    bias = operand_def()
    input_zp = operand_def()
    weight_zp = operand_def()
    out_pad = prop_def(DenseArrayBase)
    stride = prop_def(DenseArrayBase)
    local_bound = opt_prop_def(BoolAttr)
    acc_type = prop_def(TypeAttribute)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ClampOp(TosaOp):
    """CLAMP of the specification."""

    name = "tosa.clamp"
    CODE: ClassVar[int] = 11
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("min_val", 0, "value"),
        Field("max_val", 1, "value"),
        Field("nan_mode", 2, "NanModeAttr", "PROPAGATE"),
    )
    ENUMERATIONS: ClassVar[Enumerations] = {"nan_mode": NanModeAttr}
    input = operand_def()
    min_val = prop_def(IntegerAttr | FloatAttr)
    max_val = prop_def(IntegerAttr | FloatAttr)
    nan_mode = opt_prop_def(NanModeAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ErfOp(TosaOp):
    """ERF of the specification."""

    name = "tosa.erf"
    CODE: ClassVar[int] = 12
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class SigmoidOp(TosaOp):
    """SIGMOID of the specification."""

    name = "tosa.sigmoid"
    CODE: ClassVar[int] = 13
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class TanhOp(TosaOp):
    """TANH of the specification."""

    name = "tosa.tanh"
    CODE: ClassVar[int] = 14
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class AddOp(TosaOp):
    """ADD of the specification."""

    name = "tosa.add"
    CODE: ClassVar[int] = 15
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ArithmeticRightShiftOp(TosaOp):
    """ARITHMETIC_RIGHT_SHIFT of the specification."""

    name = "tosa.arithmetic_right_shift"
    CODE: ClassVar[int] = 16
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("round", 0, "bool"),)
    input1 = operand_def()
    input2 = operand_def()
    round = prop_def(BoolAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class BitwiseAndOp(TosaOp):
    """BITWISE_AND of the specification."""

    name = "tosa.bitwise_and"
    CODE: ClassVar[int] = 17
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class BitwiseOrOp(TosaOp):
    """BITWISE_OR of the specification."""

    name = "tosa.bitwise_or"
    CODE: ClassVar[int] = 18
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class BitwiseXorOp(TosaOp):
    """BITWISE_XOR of the specification."""

    name = "tosa.bitwise_xor"
    CODE: ClassVar[int] = 19
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class IntDivOp(TosaOp):
    """INTDIV of the specification."""

    name = "tosa.intdiv"
    CODE: ClassVar[int] = 20
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class LogicalAndOp(TosaOp):
    """LOGICAL_AND of the specification."""

    name = "tosa.logical_and"
    CODE: ClassVar[int] = 21
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class LogicalLeftShiftOp(TosaOp):
    """LOGICAL_LEFT_SHIFT of the specification."""

    name = "tosa.logical_left_shift"
    CODE: ClassVar[int] = 22
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class LogicalRightShiftOp(TosaOp):
    """LOGICAL_RIGHT_SHIFT of the specification."""

    name = "tosa.logical_right_shift"
    CODE: ClassVar[int] = 23
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class LogicalOrOp(TosaOp):
    """LOGICAL_OR of the specification."""

    name = "tosa.logical_or"
    CODE: ClassVar[int] = 24
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class LogicalXorOp(TosaOp):
    """LOGICAL_XOR of the specification."""

    name = "tosa.logical_xor"
    CODE: ClassVar[int] = 25
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class MaximumOp(TosaOp):
    """MAXIMUM of the specification."""

    name = "tosa.maximum"
    CODE: ClassVar[int] = 26
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("nan_mode", 0, "NanModeAttr", "PROPAGATE"),)
    ENUMERATIONS: ClassVar[Enumerations] = {"nan_mode": NanModeAttr}
    input1 = operand_def()
    input2 = operand_def()
    nan_mode = opt_prop_def(NanModeAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class MinimumOp(TosaOp):
    """MINIMUM of the specification."""

    name = "tosa.minimum"
    CODE: ClassVar[int] = 27
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("nan_mode", 0, "NanModeAttr", "PROPAGATE"),)
    ENUMERATIONS: ClassVar[Enumerations] = {"nan_mode": NanModeAttr}
    input1 = operand_def()
    input2 = operand_def()
    nan_mode = opt_prop_def(NanModeAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class MulOp(TosaOp):
    """MUL of the specification."""

    name = "tosa.mul"
    CODE: ClassVar[int] = 28
    input1 = operand_def()
    input2 = operand_def()
    shift = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class PowOp(TosaOp):
    """POW of the specification."""

    name = "tosa.pow"
    CODE: ClassVar[int] = 29
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class SubOp(TosaOp):
    """SUB of the specification."""

    name = "tosa.sub"
    CODE: ClassVar[int] = 30
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class TableOp(TosaOp):
    """TABLE of the specification."""

    name = "tosa.table"
    CODE: ClassVar[int] = 31
    input1 = operand_def()
    table = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class AbsOp(TosaOp):
    """ABS of the specification."""

    name = "tosa.abs"
    CODE: ClassVar[int] = 32
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class BitwiseNotOp(TosaOp):
    """BITWISE_NOT of the specification."""

    name = "tosa.bitwise_not"
    CODE: ClassVar[int] = 33
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class CeilOp(TosaOp):
    """CEIL of the specification."""

    name = "tosa.ceil"
    CODE: ClassVar[int] = 34
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ClzOp(TosaOp):
    """CLZ of the specification."""

    name = "tosa.clz"
    CODE: ClassVar[int] = 35
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class CosOp(TosaOp):
    """COS of the specification."""

    name = "tosa.cos"
    CODE: ClassVar[int] = 36
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ExpOp(TosaOp):
    """EXP of the specification."""

    name = "tosa.exp"
    CODE: ClassVar[int] = 37
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class FloorOp(TosaOp):
    """FLOOR of the specification."""

    name = "tosa.floor"
    CODE: ClassVar[int] = 38
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class LogOp(TosaOp):
    """LOG of the specification."""

    name = "tosa.log"
    CODE: ClassVar[int] = 39
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class LogicalNotOp(TosaOp):
    """LOGICAL_NOT of the specification."""

    name = "tosa.logical_not"
    CODE: ClassVar[int] = 40
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class NegateOp(TosaOp):
    """NEGATE of the specification."""

    name = "tosa.negate"
    CODE: ClassVar[int] = 41
    input1 = operand_def()
    input1_zp = operand_def()
    output_zp = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ReciprocalOp(TosaOp):
    """RECIPROCAL of the specification."""

    name = "tosa.reciprocal"
    CODE: ClassVar[int] = 42
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class RsqrtOp(TosaOp):
    """RSQRT of the specification."""

    name = "tosa.rsqrt"
    CODE: ClassVar[int] = 43
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class SinOp(TosaOp):
    """SIN of the specification."""

    name = "tosa.sin"
    CODE: ClassVar[int] = 44
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class SelectOp(TosaOp):
    """SELECT of the specification."""

    name = "tosa.select"
    CODE: ClassVar[int] = 45
    input1 = operand_def()
    input2 = operand_def()
    input3 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class EqualOp(TosaOp):
    """EQUAL of the specification."""

    name = "tosa.equal"
    CODE: ClassVar[int] = 46
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class GreaterOp(TosaOp):
    """GREATER of the specification."""

    name = "tosa.greater"
    CODE: ClassVar[int] = 47
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class GreaterEqualOp(TosaOp):
    """GREATER_EQUAL of the specification."""

    name = "tosa.greater_equal"
    CODE: ClassVar[int] = 48
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ReduceAllOp(TosaOp):
    """REDUCE_ALL of the specification."""

    name = "tosa.reduce_all"
    CODE: ClassVar[int] = 49
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("axis", 0, "i32"),)
    input = operand_def()
    axis = prop_def(IntegerAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ReduceAnyOp(TosaOp):
    """REDUCE_ANY of the specification."""

    name = "tosa.reduce_any"
    CODE: ClassVar[int] = 50
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("axis", 0, "i32"),)
    input = operand_def()
    axis = prop_def(IntegerAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ReduceMaxOp(TosaOp):
    """REDUCE_MAX of the specification."""

    name = "tosa.reduce_max"
    CODE: ClassVar[int] = 51
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("axis", 0, "i32"),
        Field("nan_mode", 1, "NanModeAttr", "PROPAGATE"),
    )
    ENUMERATIONS: ClassVar[Enumerations] = {"nan_mode": NanModeAttr}
    input = operand_def()
    axis = prop_def(IntegerAttr)
    nan_mode = opt_prop_def(NanModeAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ReduceMinOp(TosaOp):
    """REDUCE_MIN of the specification."""

    name = "tosa.reduce_min"
    CODE: ClassVar[int] = 52
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("axis", 0, "i32"),
        Field("nan_mode", 1, "NanModeAttr", "PROPAGATE"),
    )
    ENUMERATIONS: ClassVar[Enumerations] = {"nan_mode": NanModeAttr}
    input = operand_def()
    axis = prop_def(IntegerAttr)
    nan_mode = opt_prop_def(NanModeAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ReduceProductOp(TosaOp):
    """REDUCE_PRODUCT of the specification."""

    name = "tosa.reduce_product"
    CODE: ClassVar[int] = 53
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("axis", 0, "i32"),)
    input = operand_def()
    axis = prop_def(IntegerAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ReduceSumOp(TosaOp):
    """REDUCE_SUM of the specification."""

    name = "tosa.reduce_sum"
    CODE: ClassVar[int] = 54
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("axis", 0, "i32"),)
    input = operand_def()
    axis = prop_def(IntegerAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ConcatOp(TosaOp):
    """CONCAT of the specification."""

    name = "tosa.concat"
    CODE: ClassVar[int] = 55
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("axis", 0, "i32"),)
    input1 = var_operand_def()
    axis = prop_def(IntegerAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class PadOp(TosaOp):
    """PAD of the specification."""

    name = "tosa.pad"
    CODE: ClassVar[int] = 56
    input1 = operand_def()
    padding = operand_def()
    pad_const = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ReshapeOp(TosaOp):
    """RESHAPE of the specification."""

    name = "tosa.reshape"
    CODE: ClassVar[int] = 57
    input1 = operand_def()
    shape = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ReverseOp(TosaOp):
    """REVERSE of the specification."""

    name = "tosa.reverse"
    CODE: ClassVar[int] = 58
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("axis", 0, "i32"),)
    input = operand_def()
    axis = prop_def(IntegerAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class SliceOp(TosaOp):
    """SLICE of the specification."""

    name = "tosa.slice"
    CODE: ClassVar[int] = 59
    input1 = operand_def()
    start = operand_def()
    size = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class TileOp(TosaOp):
    """TILE of the specification."""

    name = "tosa.tile"
    CODE: ClassVar[int] = 60
    input1 = operand_def()
    multiples = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class TransposeOp(TosaOp):
    """TRANSPOSE of the specification."""

    name = "tosa.transpose"
    CODE: ClassVar[int] = 61
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("perms", 0, "i32s"),)
    input = operand_def()
    perms = prop_def(DenseArrayBase)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class GatherOp(TosaOp):
    """GATHER of the specification."""

    name = "tosa.gather"
    CODE: ClassVar[int] = 62
    values = operand_def()
    indices = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ScatterOp(TosaOp):
    """SCATTER of the specification."""

    name = "tosa.scatter"
    CODE: ClassVar[int] = 63
    values_in = operand_def()
    indices = operand_def()
    input = operand_def()
    values_out = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ResizeOp(TosaOp):
    """RESIZE of the specification."""

    name = "tosa.resize"
    CODE: ClassVar[int] = 64
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("mode", 0, "ResizeModeAttr"),)
    ENUMERATIONS: ClassVar[Enumerations] = {"mode": ResizeModeAttr}
    input = operand_def()
    scale = operand_def()
    offset = operand_def()
    border = operand_def()
    mode = prop_def(ResizeModeAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class CastOp(TosaOp):
    """CAST of the specification."""

    name = "tosa.cast"
    CODE: ClassVar[int] = 65
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class RescaleOp(TosaOp):
    """RESCALE of the specification."""

    name = "tosa.rescale"
    CODE: ClassVar[int] = 66
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("scale32", 0, "bool"),
        Field("rounding_mode", 1, "RoundingModeAttr"),
        Field("per_channel", 2, "bool"),
        Field("input_unsigned", 3, "bool"),
        Field("output_unsigned", 4, "bool"),
    )
    ENUMERATIONS: ClassVar[Enumerations] = {"rounding_mode": RoundingModeAttr}
    input = operand_def()
    multiplier = operand_def()
    shift = operand_def()
    input_zp = operand_def()
    output_zp = operand_def()
    scale32 = prop_def(BoolAttr)
    rounding_mode = prop_def(RoundingModeAttr)
    per_channel = prop_def(BoolAttr)
    input_unsigned = prop_def(BoolAttr)
    output_unsigned = prop_def(BoolAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class IdentityOp(TosaOp):
    """IDENTITY of the specification."""

    name = "tosa.identity"
    CODE: ClassVar[int] = 68
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class CustomOp(TosaOp):
    """CUSTOM of the specification."""

    name = "tosa.custom"
    CODE: ClassVar[int] = 69
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("operator_name", 0, "string"),
        Field("domain_name", 1, "string"),
        Field("implementation_attrs", 2, "bytes"),
    )
    input_list = var_operand_def()
    operator_name = prop_def(StringAttr)
    domain_name = prop_def(StringAttr)
    implementation_attrs = prop_def(StringAttr)
    output_list = var_result_def()


@irdl_op_definition
class ConstShapeOp(TosaOp):
    """CONST_SHAPE of the specification."""

    name = "tosa.const_shape"
    CODE: ClassVar[int] = 75
    values = prop_def(DenseIntOrFPElementsAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class MatMulTBlockScaledOp(TosaOp):
    """MATMUL_T_BLOCK_SCALED of the specification."""

    name = "tosa.matmul_t_block_scaled"
    CODE: ClassVar[int] = 76
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("block_size", 0, "BlockSizeAttr"),)
    ENUMERATIONS: ClassVar[Enumerations] = {"block_size": BlockSizeAttr}
    a_data = operand_def()
    a_scale = operand_def()
    b_data = operand_def()
    b_scale = operand_def()
    block_size = prop_def(BlockSizeAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class CastFromBlockScaledOp(TosaOp):
    """CAST_FROM_BLOCK_SCALED of the specification."""

    name = "tosa.cast_from_block_scaled"
    CODE: ClassVar[int] = 77
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("block_size", 0, "BlockSizeAttr"),)
    ENUMERATIONS: ClassVar[Enumerations] = {"block_size": BlockSizeAttr}
    input_data = operand_def()
    input_scale = operand_def()
    block_size = prop_def(BlockSizeAttr)
    output_data = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class CastToBlockScaledOp(TosaOp):
    """CAST_TO_BLOCK_SCALED of the specification."""

    name = "tosa.cast_to_block_scaled"
    CODE: ClassVar[int] = 78
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("block_size", 0, "BlockSizeAttr"),)
    ENUMERATIONS: ClassVar[Enumerations] = {"block_size": BlockSizeAttr}
    input_data = operand_def()
    block_size = prop_def(BlockSizeAttr)
    output_data = result_def()
    output_scale = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class DimOp(TosaOp):
    """DIM of the specification."""

    name = "tosa.dim"
    CODE: ClassVar[int] = 79
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("axis", 0, "i32"),)
    input = operand_def()
    axis = prop_def(IntegerAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ConcatShapeOp(TosaOp):
    """CONCAT_SHAPE of the specification."""

    name = "tosa.concat_shape"
    CODE: ClassVar[int] = 80
    input = var_operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class AddShapeOp(TosaOp):
    """ADD_SHAPE of the specification."""

    name = "tosa.add_shape"
    CODE: ClassVar[int] = 81
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class SubShapeOp(TosaOp):
    """SUB_SHAPE of the specification."""

    name = "tosa.sub_shape"
    CODE: ClassVar[int] = 82
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class MulShapeOp(TosaOp):
    """MUL_SHAPE of the specification."""

    name = "tosa.mul_shape"
    CODE: ClassVar[int] = 83
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class SliceShapeOp(TosaOp):
    """SLICE_SHAPE of the specification."""

    name = "tosa.slice_shape"
    CODE: ClassVar[int] = 84
    input = operand_def()
    start = operand_def()
    size = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class Exp2ShapeOp(TosaOp):
    """EXP2_SHAPE of the specification."""

    name = "tosa.exp2_shape"
    CODE: ClassVar[int] = 85
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class Log2CeilShapeOp(TosaOp):
    """LOG2_CEIL_SHAPE of the specification."""

    name = "tosa.log2_ceil_shape"
    CODE: ClassVar[int] = 86
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class Log2FloorShapeOp(TosaOp):
    """LOG2_FLOOR_SHAPE of the specification."""

    name = "tosa.log2_floor_shape"
    CODE: ClassVar[int] = 87
    input = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class MaxShapeOp(TosaOp):
    """MAX_SHAPE of the specification."""

    name = "tosa.max_shape"
    CODE: ClassVar[int] = 88
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class MinShapeOp(TosaOp):
    """MIN_SHAPE of the specification."""

    name = "tosa.min_shape"
    CODE: ClassVar[int] = 89
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ModShapeOp(TosaOp):
    """MOD_SHAPE of the specification."""

    name = "tosa.mod_shape"
    CODE: ClassVar[int] = 90
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class DivCeilShapeOp(TosaOp):
    """DIV_CEIL_SHAPE of the specification."""

    name = "tosa.div_ceil_shape"
    CODE: ClassVar[int] = 91
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class DivFloorShapeOp(TosaOp):
    """DIV_FLOOR_SHAPE of the specification."""

    name = "tosa.div_floor_shape"
    CODE: ClassVar[int] = 92
    input1 = operand_def()
    input2 = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class AssertEqualShapeOp(TosaOp):
    """ASSERT_EQUAL_SHAPE of the specification."""

    name = "tosa.assert_equal_shape"
    CODE: ClassVar[int] = 93
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("allow_broadcast", 0, "bool"),)
    input1 = operand_def()
    input2 = operand_def()
    allow_broadcast = prop_def(BoolAttr)


@irdl_op_definition
class Conv2dBlockScaledOp(TosaOp):
    """CONV2D_BLOCK_SCALED of the specification."""

    name = "tosa.conv2d_block_scaled"
    CODE: ClassVar[int] = 94
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("block_size", 0, "BlockSizeAttr"),)
    ENUMERATIONS: ClassVar[Enumerations] = {"block_size": BlockSizeAttr}
    input_data = operand_def()
    input_scale = operand_def()
    weight_data = operand_def()
    weight_scale = operand_def()
    bias = operand_def()
    pad = operand_def()
    stride = operand_def()
    dilation = operand_def()
    block_size = prop_def(BlockSizeAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class MaxPool2dAdaptiveOp(TosaOp):
    """MAX_POOL2D_ADAPTIVE of the specification."""

    name = "tosa.max_pool2d_adaptive"
    CODE: ClassVar[int] = 95
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("nan_mode", 0, "NanModeAttr", "PROPAGATE"),)
    ENUMERATIONS: ClassVar[Enumerations] = {"nan_mode": NanModeAttr}
    input = operand_def()
    kernel = operand_def()
    stride = operand_def()
    pad = operand_def()
    nan_mode = opt_prop_def(NanModeAttr)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class AvgPool2dAdaptiveOp(TosaOp):
    """AVG_POOL2D_ADAPTIVE of the specification."""

    name = "tosa.avg_pool2d_adaptive"
    CODE: ClassVar[int] = 96
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("acc_type", 0, "type"),)
    input = operand_def()
    input_zp = operand_def()
    output_zp = operand_def()
    kernel = operand_def()
    stride = operand_def()
    pad = operand_def()
    acc_type = prop_def(TypeAttribute)
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ReshapeBlockScaledOp(TosaOp):
    """RESHAPE_BLOCK_SCALED of the specification."""

    name = "tosa.reshape_block_scaled"
    CODE: ClassVar[int] = 97
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("block_size", 0, "BlockSizeAttr"),)
    ENUMERATIONS: ClassVar[Enumerations] = {"block_size": BlockSizeAttr}
    BARE_CASES: ClassVar[bool] = False
    input = var_operand_def()
    new_shape = operand_def()
    block_size = prop_def(BlockSizeAttr)
    output = var_result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class RowGatherBlockScaledOp(TosaOp):
    """ROW_GATHER_BLOCK_SCALED of the specification."""

    name = "tosa.row_gather_block_scaled"
    CODE: ClassVar[int] = 98
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("block_size", 0, "BlockSizeAttr"),)
    ENUMERATIONS: ClassVar[Enumerations] = {"block_size": BlockSizeAttr}
    BARE_CASES: ClassVar[bool] = False
    values = var_operand_def()
    indices = operand_def()
    row_count = operand_def()
    block_size = prop_def(BlockSizeAttr)
    output = var_result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class RowGatherOp(TosaOp):
    """ROW_GATHER of the specification."""

    name = "tosa.row_gather"
    CODE: ClassVar[int] = 99
    values = operand_def()
    indices = operand_def()
    row_count = operand_def()
    output = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class MatMulTOp(TosaOp):
    """MATMUL_T of the specification."""

    name = "tosa.matmul_t"
    CODE: ClassVar[int] = 100
    a = operand_def()
    b = operand_def()
    a_zp = operand_def()
    b_zp = operand_def()
    output = result_def()
    traits = traits_def(Pure())


OPERATORS = (
    ArgMaxOp,
    AvgPool2dOp,
    Conv2dOp,
    Conv3dOp,
    DepthwiseConv2dOp,
    FFT2dOp,
    MatMulOp,
    MaxPool2dOp,
    RFFT2dOp,
    TransposeConv2dOp,
    ClampOp,
    ErfOp,
    SigmoidOp,
    TanhOp,
    AddOp,
    ArithmeticRightShiftOp,
    BitwiseAndOp,
    BitwiseOrOp,
    BitwiseXorOp,
    IntDivOp,
    LogicalAndOp,
    LogicalLeftShiftOp,
    LogicalRightShiftOp,
    LogicalOrOp,
    LogicalXorOp,
    MaximumOp,
    MinimumOp,
    MulOp,
    PowOp,
    SubOp,
    TableOp,
    AbsOp,
    BitwiseNotOp,
    CeilOp,
    ClzOp,
    CosOp,
    ExpOp,
    FloorOp,
    LogOp,
    LogicalNotOp,
    NegateOp,
    ReciprocalOp,
    RsqrtOp,
    SinOp,
    SelectOp,
    EqualOp,
    GreaterOp,
    GreaterEqualOp,
    ReduceAllOp,
    ReduceAnyOp,
    ReduceMaxOp,
    ReduceMinOp,
    ReduceProductOp,
    ReduceSumOp,
    ConcatOp,
    PadOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    TileOp,
    TransposeOp,
    GatherOp,
    ScatterOp,
    ResizeOp,
    CastOp,
    RescaleOp,
    IdentityOp,
    CustomOp,
    ConstShapeOp,
    MatMulTBlockScaledOp,
    CastFromBlockScaledOp,
    CastToBlockScaledOp,
    DimOp,
    ConcatShapeOp,
    AddShapeOp,
    SubShapeOp,
    MulShapeOp,
    SliceShapeOp,
    Exp2ShapeOp,
    Log2CeilShapeOp,
    Log2FloorShapeOp,
    MaxShapeOp,
    MinShapeOp,
    ModShapeOp,
    DivCeilShapeOp,
    DivFloorShapeOp,
    AssertEqualShapeOp,
    Conv2dBlockScaledOp,
    MaxPool2dAdaptiveOp,
    AvgPool2dAdaptiveOp,
    ReshapeBlockScaledOp,
    RowGatherBlockScaledOp,
    RowGatherOp,
    MatMulTOp,
)

DTYPE_CODES = {
    "UNKNOWN": 0,
    "BOOL": 1,
    "INT4": 2,
    "INT8": 3,
    "INT16": 4,
    "INT32": 5,
    "INT48": 6,
    "FP32": 7,
    "FP16": 8,
    "BF16": 9,
    "SHAPE": 10,
    "FP8E4M3": 11,
    "FP8E5M2": 12,
    "FP6E2M3": 13,
    "FP6E3M2": 14,
    "FP4E2M1": 15,
    "FP8UE8M0": 16,
    "INT64": 17,
    "MXINT8": 18,
}
